"""The note of a journal's newest segment: its bytes, and that damage is named."""

import pytest

from quire.bookie.journal.extent import read_extent, way_out, write_extent
from quire.bookie.journal.format import START
from quire.bookie.journal.mark import write_mark
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Disk

# SPDX-License-Identifier: Apache-2.0

PLACE = "/disk/journal0/current"


def test_a_note_is_read_as_it_was_written() -> None:
    """And is durable; without one nothing is known."""
    disk = Disk()
    assert read_extent(disk, PLACE) is None
    for start in (0, 4 << 20, (1 << 63) + 512):
        write_extent(disk, PLACE, start)
        assert read_extent(disk.crashed(None), PLACE) == start


def test_damage_is_reported() -> None:
    """Any flipped bit and any cut, with the file's name and what to do."""
    disk = Disk()
    write_extent(disk, PLACE, 512)
    path = f"{PLACE}/quire.extent"
    for at in range(len(disk.inodes[path].data)):
        broken, cut = disk.killed(), disk.killed()
        broken.flip(path, at, 1 << at % 8)
        del cut.inodes[path].data[at:]
        for one in (broken, cut):
            with pytest.raises(StorageError, match=f"{path} at offset 0.*--restore"):
                read_extent(one, PLACE)


@pytest.mark.parametrize("shared", [False, True])
def test_the_way_out_says_what_becomes_of_the_ledgers(shared: bool) -> None:
    """It names the directory, the command, and that nothing is denied afterwards; nothing is to be removed."""
    disk = Disk()
    if shared:
        write_mark(disk, PLACE, [START])
    text = way_out(disk, PLACE)
    assert f"move {PLACE} aside and run `quire bookie start --conf FILE --restore`" in text
    assert "limbo" in text
    assert "remove" not in text
    assert (f"The ledgers lie in {PLACE}, too" in text) == shared
