"""
Every story of this folder goes as it is written.  QUIRE_REWRITE=1 writes what happens now into the files: read the
difference.
"""

import os
import pathlib
import re

import pytest

from tests.scenarios.story import performed

FOLDER = pathlib.Path(__file__).parent
STORIES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path):
    """Each story's output equals the text in its file; `QUIRE_REWRITE` in the environment rewrites it."""
    text = path.read_text()
    now = performed(text)
    if os.environ.get("QUIRE_REWRITE"):
        path.write_text(now)
    assert now == text


def test_every_scenario_has_a_story():
    """Each row of scenarios.md, S1 to S34, is named in a first comment."""
    page = FOLDER.parents[1] / "docs" / "design" / "scenarios.md"
    rows = re.findall(r"^\| (S\d+) \|", page.read_text(), re.MULTILINE)
    assert rows == [f"S{number}" for number in range(1, 35)]
    assert {name for path in STORIES for name in re.findall(r"\bS\d+\b", path.read_text().splitlines()[0])} == set(rows)


def test_every_story_says_first_what_it_guards():
    """The first line of each file is a comment."""
    for path in STORIES:
        assert path.read_text().startswith("# "), path.name


def test_an_unknown_sentence_is_an_error():
    """An unknown sentence raises `ValueError`."""
    with pytest.raises(ValueError, match="no sentence is like"):
        performed("the sun shines\n")


def test_what_happened_otherwise_is_shown():
    """A story is returned with the output that it had."""
    assert performed("there are 3 bookies\nw creates 3/3/2\nw appends a\n  w: 7 acknowledged\n").endswith(
        "w appends a\n  w: 0 acknowledged\n"
    )
