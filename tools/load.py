"""
The loads of `quire bench`: appends and reads, closed loop and open loop.

Knows: when to send what, and when each answer came.  Per batch one Deferred and one latency; per entry nothing, so that
the load costs less than what it measures.
Does not know: clusters, reports.

Closed loop: at most `window` entries wait for their acknowledgement; the next batch leaves when one came.  It measures
the peak.  Open loop: entries arrive at a fixed rate in ticks of a millisecond whatever the cluster does, and latency
counts from the tick in which an entry was due, so that a stall shows in full (no coordinated omission).
"""

import os
import random
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.metadata.clock import Clock

if TYPE_CHECKING:
    from quire.client.api import Entry, Reader, Writer

# SPDX-License-Identifier: Apache-2.0

CPU_METRIC = "process_cpu_seconds_total"
HISTOGRAM_ROWS = 16
HISTOGRAM_WIDTH = 48


class Latencies:
    """Seconds from a batch's start to its end, with the number of entries of each batch."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._entries = array("q")

    def add(self, seconds: float, entries: int) -> None:
        self._seconds.append(seconds)
        self._entries.append(entries)

    def __len__(self) -> int:
        return len(self._seconds)

    def sorted(self) -> list[tuple[float, int]]:
        return sorted(zip(self._seconds, self._entries, strict=True))

    def percentiles(self, shares: Sequence[float]) -> list[float]:
        """The latency in seconds below or at which each share (0 to 1, ascending) of entries is; 0 without any."""
        ordered = self.sorted()
        total = sum(self._entries)
        out: list[float] = []
        at = seen = 0
        for share in shares:
            while at < len(ordered) and seen + ordered[at][1] <= share * total:
                seen += ordered[at][1]
                at += 1
            out.append(ordered[min(at, len(ordered) - 1)][0] if ordered else 0.0)
        return out

    def histogram(self) -> list[str]:
        """Bars of entries over latency, each row's bound twice the last one's or, for a narrow spread, 1.3 times."""
        ordered = self.sorted()
        if not ordered:
            return []
        low, high = max(ordered[0][0], 1e-6), max(ordered[-1][0], 1e-6)
        factor = max(1.05, (high / low) ** (1 / HISTOGRAM_ROWS))
        rows: list[tuple[float, int]] = []
        bound, count, at = low * factor, 0, 0
        while at < len(ordered):
            if ordered[at][0] <= bound or bound > high:
                count += ordered[at][1]
                at += 1
            else:
                rows.append((bound, count))
                bound, count = bound * factor, 0
        rows.append((bound, count))
        most = max(count for _, count in rows)
        return [
            f"  <= {bound * 1e3:9.3f} ms {count:10,} {'#' * -(-count * HISTOGRAM_WIDTH // most)}"
            for bound, count in rows
        ]


class Counters(NamedTuple):
    """One look: CPU seconds of this process and of the bookies (None: unknown), sums of their metrics by name."""

    client_cpu_s: float
    bookie_cpu_s: float | None
    metrics: Mapping[str, float]


def look(texts: Sequence[Callable[[], str]], pids: Sequence[int]) -> Counters:
    """Reads all counters once; `texts` give those of one bookie each, and block: call it on a thread."""
    sums: dict[str, float] = {}
    for text in texts:
        for name, value in scrape(text).items():
            sums[name] = sums.get(name, 0.0) + value
    bookies = sum(map(process_cpu, pids)) if pids else sums.get(CPU_METRIC)
    return Counters(time.process_time(), bookies, sums)


def scrape(fetch: Callable[[], str]) -> dict[str, float]:
    """The samples of a Prometheus text, labels summed up; {} when there is no answer."""
    try:
        text = fetch()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0].strip()
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return found


def process_cpu(pid: int) -> float:
    """CPU seconds of a local process, its threads included; OSError when there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
