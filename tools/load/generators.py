"""
The loads of `quire bench`: appends and reads, closed loop and open loop.

Knows: when to send what, and when each answer came.  Per batch one Deferred and one latency; per entry nothing, so that
the load costs less than what it measures.
Does not know: clusters, reports.

Closed loop: at most `window` entries wait for their acknowledgement; the next batch leaves when one came.  It measures
the peak.  Open loop: entries arrive at a fixed rate in ticks of a millisecond whatever the cluster does, and latency
counts from the tick in which an entry was due, so that a stall shows in full (no coordinated omission).
"""

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sized
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.metadata.clock import Clock
from quire.tools.load.measuring import Latencies

if TYPE_CHECKING:
    from quire.client.api import Entry, Reader, Writer

# SPDX-License-Identifier: Apache-2.0

TICK_S = 0.001


Operation = Callable[[int], "Deferred[Any]"]  # of so many entries


class Load(ABC):
    """`entries` entries, and how long they took."""

    def __init__(self, clock: Clock, entries: int) -> None:
        self._clock = clock
        self._entries = entries
        self.latencies = Latencies()
        self.ended = 0

    @abstractmethod
    async def run(self) -> float:
        """Seconds from the first start to the last end; raises the first error."""


class Streaming(Load):
    """All in order: one latency for each batch that a reader hands over."""

    def __init__(self, clock: Clock, batches: Callable[[], AsyncIterator[Sized]], entries: int) -> None:
        super().__init__(clock, entries)
        self._batches = batches

    async def run(self) -> float:
        start = before = self._clock.seconds()
        async for found in self._batches():
            now = self._clock.seconds()
            self.latencies.add(now - before, len(found))
            self.ended += len(found)
            before = now
        return self._clock.seconds() - start


class Loop(Load):
    """Operations that overlap."""

    def __init__(self, clock: Clock, operate: Operation, entries: int) -> None:
        super().__init__(clock, entries)
        self._operate = operate
        self.started = 0
        self._done: Deferred[None] = Deferred()

    async def run(self) -> float:
        start = self._clock.seconds()
        self._begin()
        await self._done
        return self._clock.seconds() - start

    def _begin(self) -> None:
        """Starts the first operations."""

    def _again(self) -> None:
        """One operation ended."""

    def _start(self, count: int, due: float) -> None:
        self.started += count
        self._operate(count).addCallbacks(self._end, self._fail, (count, due))

    def _end(self, _: object, count: int, due: float) -> None:
        self.latencies.add(self._clock.seconds() - due, count)
        self.ended += count
        if self.ended >= self._entries:
            if not self._done.called:
                self._done.callback(None)
        else:
            self._again()

    def _fail(self, failure: Failure) -> None:
        if not self._done.called:
            self._done.errback(failure)


class ClosedLoop(Loop):
    """At most `window` entries under way, `batch` a time."""

    def __init__(self, clock: Clock, operate: Operation, entries: int, window: int, batch: int) -> None:
        super().__init__(clock, operate, entries)
        self._window = max(window, batch)
        self._batch = batch
        self._pumping = False

    def _begin(self) -> None:
        self._again()

    def _again(self) -> None:
        if self._pumping:  # an operation that ends at once must not nest
            return
        self._pumping = True
        while (left := self._entries - self.started) > 0:
            count = self._batch if self._batch < left else left
            if self.started - self.ended + count > self._window or self._done.called:
                break
            self._start(count, self._clock.seconds())
        self._pumping = False


class OpenLoop(Loop):
    """`rate` entries a second, in ticks; a tick that comes late is made up for, and its lateness counts."""

    def __init__(self, clock: Clock, operate: Operation, entries: int, rate: float, single: bool = False) -> None:
        super().__init__(clock, operate, entries)
        self._rate = rate
        self._single = single  # one operation an entry, as reads are
        self._ticks = 0

    def _begin(self) -> None:
        self._epoch = self._clock.seconds()
        self._tick()

    def _tick(self) -> None:
        if self._done.called:
            return
        now = self._clock.seconds()
        while self.started < self._entries and (due := self._epoch + self._ticks * TICK_S) <= now:
            self._ticks += 1
            count = min(int(self._rate * self._ticks * TICK_S), self._entries) - self.started
            if self._single:
                for _ in range(count):
                    self._start(1, due)
            elif count > 0:
                self._start(count, due)
        if self.started < self._entries:
            self._clock.callLater(max(0.0, self._epoch + self._ticks * TICK_S - now), self._tick)


def appending(writer: "Writer", size: int) -> Operation:
    """The operation "append `count` entries of `size` bytes", of one by the call for one."""
    payload = b"x" * size

    def append(count: int) -> "Deferred[Any]":
        return writer.append(payload) if count == 1 else writer.append_many([payload] * count)

    return append


def random_reads(reader: "Reader", last: int, dice: random.Random) -> Operation:
    """The operation "read `count` consecutive entries from a random place on"."""

    def read(count: int) -> "Deferred[list[Entry]]":
        first = dice.randrange(max(1, last + 2 - count))
        return reader.read(first, min(last, first + count - 1))

    return read
