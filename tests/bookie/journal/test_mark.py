"""The mark: its bytes, and where a replay begins when there are several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bookie.journal.format import START, Position
from quire.bookie.journal.mark import decode_mark, encode_mark, lowest, read_mark
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Disk

# SPDX-License-Identifier: Apache-2.0


@given(st.lists(st.builds(Position, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=5), st.data())
def test_marks_are_checked(positions: list[Position], data: st.DataObject) -> None:
    """Read as written; any flipped bit and any cut is refused with the file's name."""
    mark = encode_mark(positions)
    assert decode_mark("x", mark) == positions
    at = data.draw(st.integers(0, len(mark) * 8 - 1))
    flipped = bytearray(mark)
    flipped[at // 8] ^= 1 << at % 8
    for broken in (bytes(flipped), mark[: data.draw(st.integers(0, len(mark) - 1))], mark + b"x"):
        with pytest.raises(StorageError, match=r"a/quire\.mark"):
            decode_mark("a/quire.mark", broken)


def test_a_mark_of_another_version_or_kind_is_refused() -> None:
    """The magic and the version are read before the checksum, so the error says which it is."""
    mark = encode_mark([Position(3, 512)])
    for wrong in (b"QMRL" + mark[4:], mark[:4] + bytes([0, 0, 0, 2]) + mark[8:]):
        with pytest.raises(StorageError, match="not a mark of version 1"):
            decode_mark("mark", wrong)


def test_a_directory_without_a_mark_file_has_none() -> None:
    """No file is None; a file is decoded, and its path is in the error."""
    disk = Disk()
    directory = "/disk/ledgers0/current"
    assert read_mark(disk, directory) is None
    disk.replace(f"{directory}/quire.mark", encode_mark([Position(7, 1024)]))
    assert read_mark(disk, directory) == [Position(7, 1024)]
    disk.replace(f"{directory}/quire.mark", b"")
    with pytest.raises(StorageError, match=f"{directory}/quire.mark: 0 bytes"):
        read_mark(disk, directory)


def test_a_replay_begins_at_the_lowest_mark_of_each_journal() -> None:
    """
    Journal by journal; a directory without a mark means everything, a journal that a mark does not name its start.
    """
    one, two = [Position(5, 2048), Position(9, 512)], [Position(4, 1024), Position(12, 4096)]
    assert lowest([("one", one), ("two", two)], 2) == [Position(4, 1024), Position(9, 512)]
    assert lowest([("one", one), ("two", two[:1])], 2) == [Position(4, 1024), START]
    assert lowest([("one", one), ("two", None)], 2) is None
    assert lowest([], 1) is None
    with pytest.raises(StorageError, match="one: the mark names 2 journals, but 1 are configured"):
        lowest([("two", two[:1]), ("one", one)], 1)
