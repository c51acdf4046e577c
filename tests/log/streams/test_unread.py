"""What is given out of batches: only what is not done, from a place on."""

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.log.core.streams.marks import Marks
from quire.log.core.streams.rates import ReadRates
from quire.log.core.values import Segment
from quire.log.reader.batches import LogBatch, RawBatch
from quire.log.streams.cursor import Unread
from quire.protocol.log_errors import SegmentLost

# SPDX-License-Identifier: Apache-2.0

SEGMENT = Segment(0, 1, 1, 0, 0, raw=True, records=20, bytes=20, entries=20, t=(7, 7))


class Reader:
    """Gives records 0 to `end` - 1 in batches of three."""

    def __init__(self, end=20, lost=None, slow=None):
        self.rates = ReadRates(lambda: 0.0)
        self.index = 0
        self.begun = 0
        self.end = end
        self.lost = lost
        self.slow = slow
        self.stuck = Deferred()

    async def batches(self):
        self.begun += 1
        while self.index < self.end:
            if self.index == self.lost:
                raise SegmentLost("gone")
            if self.index == self.slow:
                await self.stuck
            batch = RawBatch([b"v"] * min(3, self.end - self.index), self.index, self.index)
            self.index += batch.count
            yield LogBatch(SEGMENT, batch, batch.first)

    async def tail(self, timeout):
        self.end += timeout
        async for batch in self.batches():
            yield batch


def indexes(unread, marks, count, timeout=0):
    """That are given out."""
    found = []
    reading = Deferred.fromCoroutine(unread.read(lambda: marks, count, timeout))
    reading.addBoth(found.append)
    (result,) = found
    return [record.index for record in result] if isinstance(result, list) else result.type


def test_what_is_not_done():
    """In any pieces, without a batch being read twice."""
    marks = Marks(2, 100)
    marks.add_many([4, range(6, 12), 19])
    unread = Unread(reader := Reader())
    assert indexes(unread, marks, 2) == [2, 3]
    assert indexes(unread, marks, 1) == [5]
    marks.add(13)
    assert indexes(unread, marks, 100) == [12, *range(14, 19)]
    assert reader.begun == 1
    assert indexes(unread, marks, 100) == []
    assert indexes(unread, marks, 100, timeout=2) == [20, 21]


def test_what_a_call_has_only_found_is_not_given_out():
    """Who goes on in its place begins there, whether the call is under way or has failed behind it."""
    unread = Unread(Reader(slow=6))
    reading = Deferred.fromCoroutine(unread.read(lambda: Marks(0, 100), 10, 0))
    assert (unread.index, unread.standing) == (6, 0)
    reading.addErrback(lambda failure: failure.trap(CancelledError)).cancel()
    unread = Unread(Reader(end=6))
    assert indexes(unread, Marks(1, 100), 3) == [1, 2, 3]
    assert unread.standing == 1
    unread.given()
    assert unread.standing == 4


def test_from_another_place():
    """Back and ahead; a mark that moved over what is to come is followed."""
    marks = Marks(0, 100)
    unread = Unread(reader := Reader())
    assert indexes(unread, marks, 4) == [0, 1, 2, 3]
    unread.go(3)
    assert indexes(unread, marks, 2) == [3, 4]
    unread.go(1)
    assert indexes(unread, marks, 2) == [1, 2]
    marks.rise(10)
    assert indexes(unread, marks, 2) == [10, 11]
    unread.go(18)
    assert indexes(unread, marks, 9) == [18, 19]
    assert unread.index == 20
    assert reader.index == 20


def test_after_an_error():
    """It is raised at each call, until the place is passed over."""
    marks = Marks(0, 100)
    unread = Unread(Reader(lost=3))
    assert indexes(unread, marks, 3) == [0, 1, 2]
    assert indexes(unread, marks, 1) is SegmentLost
    assert indexes(unread, marks, 1) is SegmentLost
    marks.rise(6)
    assert indexes(unread, marks, 1) == [6]


def test_an_error_behind_what_was_found():
    """What was found is given out, and the next call meets the error."""
    marks = Marks(0, 100)
    unread = Unread(reader := Reader(lost=6))
    assert indexes(unread, marks, 100) == [0, 1, 2, 3, 4, 5]
    assert indexes(unread, marks, 100) is SegmentLost
    reader.lost = None
    assert indexes(unread, marks, 3) == [6, 7, 8]


@pytest.mark.parametrize("sought", [None, 1])
def test_a_call_that_is_cancelled(sought):
    """What it had found comes again, or what is there where the handle was led meanwhile."""
    marks = Marks(0, 100)
    unread = Unread(reader := Reader(slow=6))
    assert indexes(unread, marks, 2) == [0, 1]
    reading = Deferred.fromCoroutine(unread.read(lambda: marks, 100, 0))
    if sought is not None:
        unread.go(sought)
    reading.cancel()
    reading.addErrback(lambda failure: failure.trap(CancelledError))
    reader.slow = None
    begin = 2 if sought is None else sought
    assert indexes(unread, marks, 100) == list(range(begin, 20))


def test_what_was_given_out_to_nobody():
    """It comes again, in its place; where that is ahead by now, nothing changes."""
    marks = Marks(0, 100)
    unread = Unread(Reader())
    assert indexes(unread, marks, 7) == list(range(7))
    unread.give_back(4)
    unread.give_back(5)
    assert unread.index == 4
    assert indexes(unread, marks, 3) == [4, 5, 6]
    unread.go(1)
    unread.give_back(4)
    assert indexes(unread, marks, 2) == [1, 2]


def test_what_comes_again_beside_a_call():
    """The call gives what it has found, once; the next one begins at what comes again."""
    marks = Marks(0, 100)
    unread = Unread(reader := Reader(slow=6))
    assert indexes(unread, marks, 2) == [0, 1]
    found = []
    Deferred.fromCoroutine(unread.read(lambda: marks, 9, 0)).addCallback(found.extend)
    unread.give_back(0)
    reader.slow = None
    reader.stuck.callback(None)
    assert [record.index for record in found] == [2, 3, 4, 5]
    assert indexes(unread, marks, 100) == list(range(20))


def test_a_call_that_is_cancelled_while_a_tail_ends():
    """What the tail has given, for which it had been begun, comes with the next call."""

    class Slow(Reader):
        async def tail(self, timeout):
            self.end += timeout
            try:
                async for batch in self.batches():
                    yield batch
            finally:
                await Deferred()

    unread = Unread(Slow(end=0))
    reading = Deferred.fromCoroutine(unread.read(lambda: Marks(0, 100), 1, 2))
    reading.addErrback(lambda failure: failure.trap(CancelledError)).cancel()
    assert indexes(unread, Marks(0, 100), 9) == [0, 1]
