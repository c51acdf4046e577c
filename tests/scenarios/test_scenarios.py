"""
Every story of this folder goes as it is written.  QUIRE_REWRITE=1 writes what happens now into the files: read the difference.
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


def test_every_scenario_of_the_specification_has_a_story():
    """S1 to S33 of client-protocol.md 4.6 are named in a first comment."""
    named = {int(number) for path in STORIES for number in re.findall(r"\bS(\d+)\b", path.read_text().splitlines()[0])}
    assert named >= set(range(1, 34))


def test_every_story_says_first_what_it_guards():
    """The first line of each file is a comment."""
    for path in STORIES:
        assert path.read_text().startswith("# "), path.name


def test_a_sentence_that_nobody_knows_is_an_error():
    """An unknown sentence raises `ValueError`."""
    with pytest.raises(ValueError, match="no sentence is like"):
        performed("the sun shines\n")


def test_what_happened_otherwise_is_shown():
    """A story is returned with the output that it had."""
    assert performed("there are 3 bookies\nw creates 3/3/2\nw appends a\n  w: 7 acknowledged\n").endswith("w appends a\n  w: 0 acknowledged\n")
