"""An entry log read from its start to its end."""

import struct
from collections.abc import Callable, Iterator

import pytest

from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER_BYTES
from quire.bookie.logs.walk import BLOCK_BYTES, LogWalk, ledgers_in
from tests.bookie.fakes.disk import Disk, reader, records

# SPDX-License-Identifier: Apache-2.0

FRAME_MAX = 5 << 20
DIRECTORY = "/disk/ledgers/current"


def walked(data: bytes, pause: Callable[[], None] = lambda: None) -> Iterator[tuple[int, int, int, bytes]]:
    return LogWalk(reader(data), len(data), "x.log", FRAME_MAX, pause).records()


def test_a_scan_gives_the_good_prefix() -> None:
    """Padding zeros are passed over; a record that is cut off or absurdly large ends the scan."""
    good = bytes(1024) + records(1, 0, 2) + bytes(7) + records(1, 2, 1)
    assert [entry for _ledger, entry, _at, _body in walked(good)] == [0, 1, 2]
    assert [entry for _ledger, entry, _at, _body in walked(good[:-1])] == [0, 1]
    huge = bytes(1024) + records(1, 0, 1) + struct.pack(">iqq", 1 << 30, 1, 1) + bytes(100)
    assert [entry for _ledger, entry, _at, _body in walked(huge)] == [0]
    assert list(walked(b"BKLO")) == []


def test_a_scan_goes_over_zeros_by_page_and_can_be_ended() -> None:
    """However many they are, the record behind them is found; a stop is noticed within a page."""
    pauses: list[None] = []
    for zeros in (*range(1, 40), 4092, 4093, 4094, 4095, 4096, 4097, 1 << 20):
        data = bytes(1024) + records(1, 0, 1) + bytes(zeros) + records(1, 1, 1)
        pauses.clear()
        assert [entry for _ledger, entry, _at, _body in walked(data, lambda: pauses.append(None))] == [0, 1]
        assert zeros // 4096 <= len(pauses) <= zeros // 4000 + 4


@pytest.mark.parametrize(
    "zeros", [*range(9), BLOCK_BYTES - 41, *range(BLOCK_BYTES - 5, BLOCK_BYTES + 5), 5 * BLOCK_BYTES + 3]
)
def test_zeros_between_records_are_passed_over(zeros: int) -> None:
    """However many, and wherever a block that was read ends."""
    first, second = (records(1, entry, 1) for entry in (0, 1))
    data = bytes(HEADER_BYTES) + first + bytes(zeros) + second + bytes(zeros)
    walk = LogWalk(reader(data), len(data), "x.log", FRAME_MAX)
    at = HEADER_BYTES + len(first) + zeros
    assert [(ledger, entry, offset) for ledger, entry, offset, _body in walk.records()] == [
        (1, 0, HEADER_BYTES),
        (1, 1, at),
    ]
    assert walk.problem is None


@pytest.mark.parametrize("kept", [1, 3, 4, 10, 20, 21, 40])
def test_a_record_that_the_log_is_too_short_for_is_cut(kept: int) -> None:
    """Wherever it ends: nothing follows it, as after a power loss.  What is too short for a size field is none."""
    data = bytes(HEADER_BYTES) + records(1, 0, 2) + records(1, 2, 1)[:kept]
    walk = LogWalk(reader(data), len(data), "x.log", FRAME_MAX)
    assert [entry for _ledger, entry, _at, _body in walk.records()] == [0, 1]
    assert (walk.problem is not None, walk.cut) == (kept >= 4, kept >= 4)
    assert walk.end == HEADER_BYTES + len(records(1, 0, 2))


@pytest.mark.parametrize("size", [-1, 5, 1 << 30])
def test_what_is_no_record_ends_the_walk_with_a_problem(size: int) -> None:
    """It is never passed over, for the start of the next record is unknown."""
    data = bytes(HEADER_BYTES) + records(1, 0, 1) + struct.pack(">iqq", size, 1, 1) + records(1, 1, 1)
    walk = LogWalk(reader(data), len(data), "x.log", FRAME_MAX)
    assert [entry for _ledger, entry, _at, _body in walk.records()] == [0]
    assert walk.problem is not None
    assert walk.problem.startswith(f"x.log at offset {walk.end}: no record of an entry begins here")
    assert not walk.cut


@pytest.mark.parametrize("rest", [0, 1, 2, 3, 4, 5, 4000])
def test_the_padding_of_a_flush_past_the_cache_is_passed_over(rest: int) -> None:
    """Up to the next multiple of 4096, be it less than a size field; the log may end there, or in the midst of it."""
    first, second = records(1, 0, 1), records(1, 1, 2)
    start = 8192 - rest - len(first)
    data = bytes(start) + first + b"\xf0" * rest + second
    data += b"\xf0" * (-len(data) % 4096)
    for size in (len(data), len(data) - 5, 8192 + len(second)):
        walk = LogWalk(reader(data[:size]), size, "x.log", FRAME_MAX, begin=start)
        assert [(entry, at) for _ledger, entry, at, _body in walk.records()] == [
            (0, start),
            (1, 8192),
            (2, 8192 + len(first)),
        ]
        assert (walk.problem, walk.end) == (None, size)


@pytest.mark.parametrize("harm", [b"\xf0" * 95 + b"\xf1", b"\xf1" + b"\xf0" * 95])
def test_what_differs_from_padding_ends_the_walk(harm: bytes) -> None:
    """And so does padding where a flush ended at a multiple of 4096 already."""
    first, second = records(1, 0, 1), records(1, 1, 1)
    data = bytes(8192 - len(harm) - len(first)) + first + harm + second
    for padded in (data, bytes(8192 - len(first)) + first + b"\xf0" * 4096 + second):
        walk = LogWalk(reader(padded), len(padded), "x.log", FRAME_MAX)
        assert [entry for _ledger, entry, _at, _body in walk.records()] == [0]
        assert walk.problem is not None


def test_the_ledgers_of_a_log() -> None:
    """From its map, from its records without a map, and unknown when no record begins somewhere."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    logs.append(1, records(1, 0, 2))
    logs.append(2, records(2, 0, 1))
    logs.rotate()
    logs.append(3, records(3, 0, 1))
    logs.append(4, records(4, 0, 1) + records(5, 0, 1)[:30])
    logs.sync()
    assert ledgers_in(logs, 0) == {1, 2}
    assert ledgers_in(logs, 1) == {3, 4, 5}
    logs.append(3, struct.pack(">iqq", -1, 3, 1) + records(6, 0, 1))
    logs.sync()
    assert ledgers_in(logs, 1) is None
