"""Directories that were exchanged are found by the roles noted in them."""

from pathlib import Path

import pytest

from quire.bookie.lifecycle.cookie import role_of
from quire.bookie.lifecycle.ids import IdentityError
from tests.bookie.fakes.home import Home, made

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_directory_has_a_line_for_each_of_its_uses() -> None:
    """One may hold a journal and ledgers; numbers follow the order of the configuration."""
    options = made(journal_directories=("/a", "/b"), ledger_directories=("/c", "/b"))
    assert [role_of(options, path) for path in ("/a", "/b", "/c", "/d")] == [
        "journal 0\n",
        "journal 1\nledgers 1\n",
        "ledgers 0\n",
        "",
    ]


def test_exchanged_directories_are_refused(home: Home) -> None:
    """
    Their cookies are the same, but each knows its role; the message says where the disk belongs.  What has no note
    gets one.
    """
    home.check()
    one, two = home.path / "l1", home.path / "l2"
    one.rename(home.path / "aside")
    two.rename(one)
    (home.path / "aside").rename(two)
    with pytest.raises(
        IdentityError, match=r"l1 was ledgers 1 of this bookie and is configured as ledgers 0.*Mount the disk at \S+/l2"
    ):
        home.check()
    with pytest.raises(IdentityError, match="exchanged"):
        home.lost()
    for directory in (one, two):
        (directory / "current" / "quire.place").unlink()
    assert home.check() is False
    assert (one / "current" / "quire.place").read_text() == "ledgers 0\n"
