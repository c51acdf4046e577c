"""In which of its two directories an index is."""

import errno

import pytest

from quire.bookie.index import sequences
from quire.bookie.layout import SLOT
from quire.rows.files import NotBegun, StorageError
from tests.bookie.fakes.disk import Disk

# SPDX-License-Identifier: Apache-2.0

INDEX = "/index/current"
FIRST, SECOND = f"{INDEX}/runs", f"{INDEX}/runs.2"


def both(disk: Disk) -> tuple[str, str]:
    return sequences.index_path(disk, INDEX), sequences.other_path(disk, INDEX)


def test_without_a_file_it_is_in_the_first() -> None:
    """So an index of a bookie that never made another one needs no file."""
    disk = Disk()
    disk.make_directories(INDEX)
    assert both(disk) == (FIRST, SECOND)
    assert disk.names(INDEX) == []


def test_each_change_goes_to_the_other_and_is_durable() -> None:
    """Also over a power loss right after it; after two changes the file is gone again."""
    disk = Disk()
    disk.make_directories(INDEX)
    for expected in ((SECOND, FIRST), (FIRST, SECOND), (SECOND, FIRST)):
        sequences.change(disk, INDEX)
        disk = disk.crashed(None)
        assert both(disk) == expected
        assert disk.exists(f"{INDEX}/{SLOT}") == (expected[0] == SECOND)


def test_a_file_that_says_anything_else_is_damaged() -> None:
    """The wrong index would deny entries: the error names the file and the command that makes a new one."""
    disk = Disk()
    disk.make_directories(INDEX)
    for text in (b"", b"runs\n", b"runs.2", b"runs.2\n\n", b"\0uns.2\n"):
        disk.replace(f"{INDEX}/{SLOT}", text)
        for ask in (sequences.index_path, sequences.other_path):
            with pytest.raises(StorageError, match=r"quire\.index at offset 0: damaged .* rebuild-index"):
                ask(disk, INDEX)


@pytest.mark.parametrize("changed", [False, True])
def test_a_change_that_was_not_begun_leaves_it_where_it_was(changed: bool) -> None:
    """In both directions."""
    disk = Disk()
    disk.make_directories(INDEX)
    if changed:
        sequences.change(disk, INDEX)
    before = both(disk)

    def refuse(call: str, path: str) -> None:
        raise NotBegun(errno.EMFILE, "injected")

    disk.before = refuse
    with pytest.raises(NotBegun):
        sequences.change(disk, INDEX)
    disk.before = lambda call, path: None
    assert both(disk) == before
