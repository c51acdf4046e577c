"""An entry log read from its start to its end."""

import struct
from collections.abc import Callable, Iterator

from quire.bookie.logs.walk import LogWalk
from tests.bookie.fakes.disk import reader, records

# SPDX-License-Identifier: Apache-2.0

FRAME_MAX = 5 << 20


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
    """However many they are, the record behind them is found; whoever is to stop hears of it within a page."""
    pauses: list[None] = []
    for zeros in (*range(1, 40), 4092, 4093, 4094, 4095, 4096, 4097, 1 << 20):
        data = bytes(1024) + records(1, 0, 1) + bytes(zeros) + records(1, 1, 1)
        pauses.clear()
        assert [entry for _ledger, entry, _at, _body in walked(data, lambda: pauses.append(None))] == [0, 1]
        assert zeros // 4096 <= len(pauses) <= zeros // 4000 + 4
