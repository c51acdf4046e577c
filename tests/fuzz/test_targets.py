"""Each decoder of foreign bytes is fuzzed, and what was found once is tried again."""

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TooSlow, timed
from tests.fuzz.inputs import CORPUS, add_inputs, inputs
from tests.fuzz.registry import COVERED, registered
from tests.tidy import PACKAGES, walked

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
TARGETS = registered()
PLACES = 120  # of all inputs of a target, about; of few inputs fewer
NAMES = {"decode", "parse", "decoded"}
BEGINNINGS = ("decode_", "parse_", "unpack_")
# Functions of such names that see only what another one has let through.
OTHERS = {
    "log.core.values.Kind.parse": "a member of a record: `from_json` and the record's class come first",
    "log.core.values.Value.parse": "the same",
    "log.core.values.Value.decode": "each class that is decoded has a target (`test_each_value_of_a_log_has_a_target`)",
}
# What makes values of bytes, by name; and the modules that do so without a target, and why.
READERS = {"ParseFromString", "MergeFromString", "Parse", "a2b_base64", "from_bytes", "loads", "parse_json"}
READERS |= {"unpack", "unpack_from", "iter_unpack"}
NONE_NEEDED = {
    "rows.files": "random bytes of its own",
    "conf.extras": "what pip noted when it installed this package",
    "console.entries": "`parse_json` makes a value of an entry, which is printed again",
    "bookie.index.run_index": "rows of our store, which verifies its blocks; their values are made by `Run`",
    "bookie.offline.listing": "the same, as they are",
    "bookie.offline.verify": "the same; files are read by the decoders, and each test of crashes flips bits below it",
    "client.handles.recovery": "a body that the reader has verified",
    "log.core.partitions": "a hash, which takes any bytes",
    "messages.message": "records, by the decoder of `messages.core.record`",
    "messages.derived.dispatch": "values of the log, by the decoders of `messages.core`",
    "messages.derived.reads": "records, by the decoder of `messages.core.record`",
    "messages.derived.rows": "rows of our store, which verifies its blocks",
    "messages.derived.trimming": "the same",
    "messages.check": "records, by the decoder of `messages.core.record`",
    "messages.rocketmq.exporting": "records, by the decoder of `messages.core.record`",
    "metadata.etcd.nodes": "values below a prefix of its own, which it wrote itself",
    "metadata.retired_ids": "`parse_json` makes a value, and one that says nothing is passed over",
    "metadata.sqlite.session_file": "the stamp of a session of this machine, whose size it looks at",
    "metadata.uri": "random bytes of its own",
    "pipeline.core.positions": "`parse_json` makes a value of an option, and anything but positions is refused",
    "pipeline.reading.files": "the header of a body whose size it has looked at",
    "pipeline.reading.places": "`parse_json` makes a value of an option, and anything but places is refused",
    "pipeline.reading.pulsar": "a number of eight bytes, whose size it has looked at",
    "pipeline.sources.table": "options that it has written itself into the catalog of Spark",
    "tools.commands.log.naming": "`parse_json` makes a line of a manifest",
    "tools.commands.shell.context": "documents that a command of ours has just printed",
    "tools.host.child": "a line of its own child",
    "tools.local_cluster.cluster": "a file that it wrote itself, on the user's machine",
    "tools.terminal.bookie_http": "an answer of which `parse_json` makes a value, and objects only go on",
}


def decoders() -> set[str]:
    """Public functions and methods whose names say that they decode."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            text = path.read_text(encoding="utf-8")
            for node in ast.parse(text).body if any(f"def {name}" in text for name in (*NAMES, *BEGINNINGS)) else ():
                of_class = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
                for owner, each in [(f"{node.name}.", each) for each in node.body] if of_class else [("", node)]:
                    if isinstance(each, ast.FunctionDef) and (each.name in NAMES or each.name.startswith(BEGINNINGS)):
                        found.add(f"{module}.{owner}{each.name}")
    return found


def test_each_decoder_has_a_target() -> None:
    """Or a line that says why it needs none; and no line speaks of one that is gone."""
    assert sorted(decoders() - COVERED.keys() - OTHERS.keys()) == []


def test_each_value_of_a_log_has_a_target() -> None:
    """Each class whose records are decoded somewhere, though the function is that of all of them."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "log").rglob("*.py")]
    decoded = {name for text in texts for name in re.findall(r"\b([A-Z]\w+)\.decode\(", text)}
    assert len(decoded) >= 9
    assert sorted(decoded - {name.split(".")[-2] for name in COVERED if name.endswith(".decode")}) == []


def readers() -> set[str]:
    """Modules that make values of bytes."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in walked(ast.parse(text)) if any(name in text for name in READERS) else ():
                name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
                if name in READERS:
                    found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


def test_each_module_that_reads_foreign_bytes_has_a_target() -> None:
    """However its functions are called; or a line that says why it needs none."""
    found = readers()
    fuzzed = {name for name in found if any(f"{each}.".startswith(f"{name}.") for each in COVERED)}
    assert sorted(found - fuzzed - NONE_NEEDED.keys()) == []
    assert sorted(NONE_NEEDED.keys() - found) == []


@pytest.mark.parametrize("name", COVERED)
def test_what_a_target_stands_for_is_there(name: str) -> None:
    """A module, a class or a function."""
    pkgutil.resolve_name(f"quire.{name}")


def test_each_target_has_a_corpus() -> None:
    """The inputs that its decoder takes, and those that were found; and no corpus is left of a target that is gone."""
    assert {path.stem for path in CORPUS.iterdir()} == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_in_the_corpus_is_decoded_or_refused(name: str) -> None:
    """Whole, and in some places cut off and with a byte changed: the more places the fewer inputs there are."""
    corpus = inputs(name).values()
    places = min(16, -(-PLACES // len(corpus)))
    for data in corpus:
        TARGETS[name](data)
        for at in range(0, len(data), -(-len(data) // places) or 1):
            TARGETS[name](data[:at])
            TARGETS[name](data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


@pytest.mark.parametrize("name", ["proved", "proved_in_pieces"])
def test_a_bookie_that_proves_a_password_is_in_the_corpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the fuzzer never came behind the proof."""
    opened = []
    monkeypatch.setattr("tests.fuzz.whole.Opened.is_open", lambda _self, bookie, _incarnation: opened.append(bookie))
    TARGETS["opening"](inputs("opening")[name])
    assert opened == ["b:1"]


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU that it took: others that keep the machine busy are no finding."""
    spent = iter([10.0, 10.9, 20.0, 21.1])
    monkeypatch.setattr("tests.fuzz.__main__.time.process_time", lambda: next(spent))
    seen: list[bytes] = []
    timed(seen.append, b"quick")
    with pytest.raises(TooSlow, match="4 bytes"):
        timed(seen.append, b"slow")
    assert seen == [b"quick", b"slow"]


def test_an_input_is_added_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To those that are there; a target may have none yet."""
    monkeypatch.setattr("tests.fuzz.inputs.CORPUS", tmp_path)
    assert add_inputs("target", [b"\xff\n", b"one"]) == 2
    assert add_inputs("target", [b"one", b"two"]) == 1
    assert sorted(inputs("target").values()) == [b"one", b"two", b"\xff\n"]
    assert len((tmp_path / "target.jsonl").read_text(encoding="ascii").splitlines()) == 3
