"""Each decoder of foreign bytes is fuzzed, and what was found once is tried again."""

import ast
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS, TooSlow, timed
from tests.fuzz.registry import COVERED, registered
from tests.tidy import PACKAGES

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
SEEDS = [(path.parent.name, path) for path in sorted(CORPUS.glob("*/*"))]
TARGETS = registered()
NAMES = {"decode", "parse", "decoded"}
BEGINNINGS = ("decode_", "parse_", "unpack_")
# Functions of such names that see only what another one has let through.
OTHERS = {
    "log.core.values.Kind.parse": "a member of a record: `from_json` and the record's class come first",
    "log.core.values.Value.parse": "the same",
}


def decoders() -> set[str]:
    """Public functions and methods whose names say that they decode."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                of_class = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
                for owner, each in [(f"{node.name}.", each) for each in node.body] if of_class else [("", node)]:
                    if isinstance(each, ast.FunctionDef) and (each.name in NAMES or each.name.startswith(BEGINNINGS)):
                        found.add(f"{module}.{owner}{each.name}")
    return found


def test_each_decoder_has_a_target() -> None:
    """Or a line that says why it needs none; and no line speaks of one that is gone."""
    assert sorted(decoders() - COVERED.keys() - OTHERS.keys()) == []


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_has_a_corpus(name: str) -> None:
    """What its decoder takes, and what was found."""
    assert [path for target, path in SEEDS if target == name]


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_in_the_corpus_is_decoded_or_refused(name: str) -> None:
    """Whole, cut off anywhere, and with a byte changed."""
    for target, path in SEEDS:
        if target == name:
            data = path.read_bytes()
            TARGETS[name](data)
            for at in range(0, len(data), max(1, len(data) // 16)):
                TARGETS[name](data[:at])
                TARGETS[name](data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU that it took: others that keep the machine busy are no finding."""
    spent = iter([10.0, 10.9, 20.0, 21.1])
    monkeypatch.setattr("tests.fuzz.__main__.time.process_time", lambda: next(spent))
    seen: list[bytes] = []
    timed(seen.append, b"quick")
    with pytest.raises(TooSlow, match="4 bytes"):
        timed(seen.append, b"slow")
    assert seen == [b"quick", b"slow"]
