"""docs/architecture.md is true: its arrows, its files and names, and what a stranger finds in it by one search."""

import re

import pytest

from tests.tidy import ARROWS, PACKAGES, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACES = re.findall(r"^\| (?P<what>[^*|]+) \| `(?P<file>[^`]+)` \| `(?P<name>\w+)` \|$", PAGE, re.MULTILINE)
PICTURES = re.findall(r"^```mermaid\n(sequenceDiagram.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = frozenset(path.relative_to(ROOT).as_posix() for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))


def defines(file: str, name: str) -> bool:
    """True if a class or function of that name is defined in the file."""
    return (
        re.search(rf"^\s*(?:class|def|async def) {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.M) is not None
    )


def test_the_table_of_packages_is_the_rule() -> None:
    """Each package with the packages that it may import, as `tests/tidy.py` enforces it."""
    shown = dict(re.findall(r"^\| `(\w+)/` \|([^|]*)\|", PAGE, re.MULTILINE))
    assert list(shown) == list(PACKAGES)
    every = set(PACKAGES) - {"tools", "testing", "console"}
    told = {name: every if may.strip() == "all" else set(re.findall(r"`(\w+)`", may)) for name, may in shown.items()}
    assert told == {name: set(arrows) for name, arrows in ARROWS.items()}


def test_each_place_is_there() -> None:
    """Each row of the table of behaviours names a file of the checkout, and what it defines."""
    assert len(PLACES) > 60
    assert [(file, name) for _, file, name in PLACES if not defines(file, name)] == []


def test_each_file_beside_an_arrow_is_there() -> None:
    """A participant's file lies in its package and defines the class below it; other files are found by their end."""
    assert len(PICTURES) == 3
    wrong = []
    for picture in PICTURES:
        package = ""
        for line in picture.splitlines():
            if box := re.match(r"box (\w+)", line.strip()):
                package = box[1]
            for file in re.findall(r"[\w/]+\.py", line):
                homes = [path for path in FILES if f"/{path}".endswith(f"/{file}")]
                if "participant" in line and "<br>" in line and package:
                    homes = [path for path in homes if path.startswith(f"{package}/")]
                    classes = re.findall(r"<br>([A-Z]\w+)", line)
                    homes = [path for path in homes if all(defines(path, name) for name in classes)]
                if not homes:
                    wrong.append(line.strip())
    assert wrong == []


def test_paths_in_the_text_are_there() -> None:
    """Every path in backquotes is a file or a folder."""
    paths = set(re.findall(r"`([a-z_]+/[\w/.]*)`", PAGE))
    assert len(paths) > 60
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("journal is full", "bookie/journal/writer.py"),
        ("limbo ends", "replication/own_copies.py"),
        ("speed of a repair", "replication/concurrently.py"),
        ("connection is closed", "bookie/server/complaints.py"),
        ("is acknowledged", "client/core/append/machine.py"),
        ("last add confirmed", "client/handles/end_of_ledger.py"),
        ("fence", "bookie/storage/writes.py"),
        ("garbage collection", "bookie/upkeep/garbage.py"),
        ("placement", "client/placement/greedy.py"),
        ("exit status", "tools/failures.py"),
    ],
)
def test_one_search_leads_to_the_file(words: str, file: str) -> None:
    """The first row of the table of behaviours that has the words names the file in which the behaviour is."""
    found = [place for what, place, _ in PLACES if words in what.lower()]
    assert found[:1] == [file]
