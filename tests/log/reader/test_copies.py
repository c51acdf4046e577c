"""Offloaded copies of ledgers: read through the opener of their scheme."""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.log.core.values import Segment
from quire.log.reader.copies import READ_AT_ONCE, open_copy
from quire.protocol.log_errors import LogError
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

ENTRIES = [b"%d" % number for number in range(2 * READ_AT_ONCE + 1)]
SEGMENT = Segment(3, 77, 1, 0, 0, 9, 9, len(ENTRIES), (1, 1), offload={"uri": "toy:x", "bookies": "deleted"})


class Copy:
    def __init__(self, entries):
        self.entries, self.closed = entries, False

    def read(self, first, last):
        return succeed(self.entries[first : last + 1])

    def close(self):
        self.closed = True
        return succeed(None)


def test_a_copy_is_read_as_its_ledger():
    """Single entries, and all in lists of a few; closed at the end."""

    async def story():
        copy, marks = Copy(ENTRIES), []
        ledger = await open_copy(SEGMENT, {"toy": lambda mark: marks.append(mark) or succeed(copy)})
        assert marks == [SEGMENT.offload]
        assert await ledger.offset_of(11) == len(b"012345678910")
        (entry,) = await ledger.read(5, 5)
        assert (entry.ledger_id, entry.entry_id, entry.data) == (77, 5, b"5")
        lists = [some async for some in ledger.stream(1, len(ENTRIES) - 1)]
        assert [each.data for some in lists for each in some] == ENTRIES[1:]
        assert [each.entry_id for some in lists for each in some] == list(range(1, len(ENTRIES)))
        assert max(map(len, lists)) == READ_AT_ONCE
        await ledger.close()
        assert copy.closed

    run(story)


@pytest.mark.parametrize("openers", [{}, {"s3": None}])
def test_no_opener(openers):
    """The error says where the segment is and what opens it."""

    async def story():
        error = await failing(Deferred.fromCoroutine(open_copy(SEGMENT, openers)), LogError)
        assert "segment 3" in str(error)
        assert "'toy'" in str(error)

    run(story)


def test_a_copy_that_is_too_short():
    """It is an error, not fewer entries."""

    async def story():
        ledger = await open_copy(SEGMENT, {"toy": lambda _mark: succeed(Copy(ENTRIES[:3]))})
        await failing(Deferred.fromCoroutine(ledger.read(2, 4)), LogError)

    run(story)
