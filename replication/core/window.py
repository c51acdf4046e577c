"""
How much may be asked of one bookie at the same time, by how long it takes to answer.

Knows: the shortest answer to requests of each size, what is slow beside it, and how the window follows: it begins
small, for others may be there, grows by what was answered in time, and shrinks once for each round in which several in
a row were slow, or one failed; a single slow one is a disk's whim.
Does not know: clocks, requests, what else the bookie does: it is felt.

A bookie that nobody else uses answers about as fast as ever until it has enough to do; beyond that more at once is only
a longer queue, in which others would wait, too.  Time is an argument; not before the last one.
"""

# SPDX-License-Identifier: Apache-2.0

BYTES_MIN = 64 << 10
BYTES_BEGIN = 512 << 10  # a few answers later it is all, if they are in time
BYTES_MAX = 8 << 20
REQUEST_BYTES = 4 << 10  # that a request costs at least
SLOW_TIMES = 2.0  # as long as the shortest answer to a request of its size takes
SLOW_S = 0.03  # and so much longer: a disk's syncs, a turn of a busy process
SLOW_ROW = 3  # so many one after the other
SHRUNK, SHRUNK_LEAST = 1 / 2, 1 / 16  # to as much as would have been answered in time, within these


class Window:
    """The window of one bookie, for one kind of request."""

    def __init__(self) -> None:
        self.bytes = BYTES_BEGIN
        self._shortest: dict[int, float] = {}  # by the number of bits of a request's size
        self._row = 0  # of slow answers, up to the last one
        self._shrunk_at = float("-inf")
        self._slow_from = float(BYTES_MAX)  # above this it was slow

    def answered(self, size: int, began: float, now: float, failed: bool = False) -> None:
        """A request of that size, begun then, has its answer.  `failed`: the bookie was too busy, or gave none."""
        took = now - began
        bits = size.bit_length()
        self._shortest[bits] = min(took, self._shortest.get(bits, took))
        shortest = min(each for other, each in self._shortest.items() if other >= bits)  # a larger one takes no less
        in_time = SLOW_TIMES * shortest + SLOW_S
        if failed or took > in_time:
            if began < self._shrunk_at:  # it was in the longer queue
                return
            self._row += 1
            if failed or self._row >= SLOW_ROW:
                self._row = 0
                self._shrunk_at = now
                self._slow_from = self.bytes * max(SHRUNK_LEAST, min(SHRUNK, in_time / took if took else SHRUNK))
                self.bytes = max(BYTES_MIN, int(self._slow_from))
        else:
            self._row = 0
            grown = size if self.bytes < self._slow_from else size * BYTES_MIN / self.bytes  # a round: so many more
            self.bytes = min(BYTES_MAX, int(self.bytes + max(1.0, grown)))
