"""Docstrings can be read alone, and name what is there.  The rules of `tidy_words.py`, and texts that break them."""

from collections.abc import Iterator

import pytest

from tests import tidy, tidy_words
from tests.test_tidy import report
from tests.tidy import Source

SOURCES = tidy.Checkout((*tidy.PACKAGES, "bench"))
# Names that look like ours and are others': of Apache's options, of files and metrics, of members of a log's settings.
OTHERS = frozenset({"dbStorage_directIOEntryLogger", "quire_bookie_status", "runs.old", "rates.records", "rates.bytes"})


@pytest.fixture(scope="module", autouse=True)
def _trees_are_dropped() -> Iterator[None]:
    """After the last rule for now: another worker may leave us one more."""
    yield
    SOURCES.drop()


def test_docstrings_can_be_read_alone() -> None:
    """They begin with a verb or the thing's name, also where `help()` shows one by itself."""
    found = tidy_words.dangling(SOURCES)
    assert not found, report(found)


@pytest.mark.parametrize("text", ["Of one bookie.", "Those that wait.", "It ends.", "Whether it is full.", "The same."])
def test_a_docstring_that_refers_to_nothing_is_found(text: str) -> None:
    """In a module, a class and a function."""
    text = f'"""{text}"""\n'
    found = tidy_words.dangling([Source("log/a.py", f"{text}class A:\n    {text}    def b(self):\n        {text}")])
    assert [line.split(":")[1] for line in found] == ["1", "2", "4"]


def test_a_docstring_that_names_its_thing_passes() -> None:
    """Words that only begin alike, too."""
    for text in ("Returns it.", "Offers of bookies.", "Items that wait.", "Thisness.", "True if it is full."):
        assert tidy_words.dangling([Source("log/a.py", f'"""{text}"""\n')]) == []


def test_names_in_docstrings_are_there() -> None:
    """Modules that moved or were renamed are followed."""
    found = tidy_words.stale(SOURCES, OTHERS)
    assert not found, report(found)


@pytest.mark.parametrize("name", ["core.gone", "edit.gone", "quire.log.gone", "log_gone", "edit.Gone", "core.gone.py"])
def test_a_name_of_nothing_is_found(name: str) -> None:
    """A module that is not there, a name that the module does not define, a word that no code has."""
    files = [Source("log/core/edit.py", "class Edit:\n    pass\n"), Source("log/a.py", f'"""See `{name}`."""\n')]
    assert len(tidy_words.stale(files)) == 1


def test_names_that_lead_somewhere_pass() -> None:
    """From a package, from a room, to a name in a module, and an attribute of the code."""
    names = ("core.edit", "log.core.edit", "edit.Edit", "core.edit.Edit", "quire.log.core", "edit.py", "core.options")
    text = " ".join(f"`{name}`" for name in names)
    files = [
        Source("log/core/__init__.py", ""),
        Source("log/core/edit.py", "class Edit:\n    pass\n"),
        Source("log/a.py", f'"""See {text}."""\nself.core.options\n'),
    ]
    assert tidy_words.stale(files) == []
