"""
The newest entries of the logs that a process reads, and what was fetched lately from further back, for the readers that
come to the same place.

Knows: two queues, oldest first.  A tail's entries go for want of room, or once no reader is near; what was fetched from
further back has a small part of the room of its own, so that no scan drives a tail out.
Does not know: who reads, what an entry means.

Safety: only what may be given to a reader is put here, and an entry never changes.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from quire.client.api import Entry
from quire.log.core.counters import LogCounters
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0

ENTRY_BYTES = 200  # that an entry takes beside its payload
LEFT_SHARE = 0.9  # of the room, once something had to go
SCAN_SHARE = 1 / 8  # of the room, for what is no tail
PART_SHARE = 1 / 16  # of the room, for what goes at one time
SWEEP_S = 1.0  # after it goes what no reader is near to
NEAR_ENTRIES = 10_000


class Readers(Protocol):
    """The readers of one ledger."""

    counters: LogCounters

    def positions(self) -> list[int]:
        """The next entry of each, ascending."""


class Run:
    """Adjacent entries that were put there at one time; `kept` until they go."""

    __slots__ = ("at_s", "bytes", "entries", "first", "kept", "readers")

    def __init__(self, readers: Readers, entries: Sequence[Entry], size: int, at_s: float) -> None:
        self.readers = readers
        self.entries = entries
        self.first = entries[0].entry_id
        self.bytes = size
        self.at_s = at_s
        self.kept = True

    @property
    def end(self) -> int:
        """The entry behind its last."""
        return self.first + len(self.entries)

    def is_wanted(self, positions: Sequence[int]) -> bool:
        """True if one of these readers is in it or a little before it."""
        place = bisect_right(positions, self.end - 1)
        return place > 0 and self.first - positions[place - 1] <= NEAR_ENTRIES


def _parts(entries: Sequence[Entry], bytes_max: float) -> Iterator[tuple[Sequence[Entry], int]]:
    """Cuts entries to lists of so many bytes at most, or of one entry; and gives the bytes of each."""
    whole = sum(len(entry.data) for entry in entries) + ENTRY_BYTES * len(entries)
    if whole <= bytes_max:
        yield entries, whole
        return
    start = size = 0
    for number, entry in enumerate(entries):
        more = len(entry.data) + ENTRY_BYTES
        if size + more > bytes_max and number > start:
            yield entries[start:number], size
            start, size = number, 0
        size += more
    yield entries[start:], size


class LedgerRuns:
    """The cached entries of one ledger, in runs that do not overlap."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: dict[int, Run] = {}

    def all(self) -> list[Run]:
        """In no order."""
        return list(self._runs.values())

    def holding(self, entry: int) -> Run | None:
        """The run that an entry is in."""
        place = bisect_right(self._firsts, entry)
        run = self._runs[self._firsts[place - 1]] if place else None
        return run if run is not None and entry < run.end else None

    def new_of(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Gives those of adjacent entries that are not cached yet, as runs."""
        at, end = entries[0].entry_id, entries[-1].entry_id + 1
        base = at
        while at < end:
            run = self.holding(at)
            if run is not None:
                at = run.end
                continue
            place = bisect_right(self._firsts, at)
            until = min(end, self._firsts[place]) if place < len(self._firsts) else end
            yield entries[at - base : until - base]
            at = until

    def add(self, run: Run) -> None:
        insort(self._firsts, run.first)
        self._runs[run.first] = run

    def remove(self, run: Run) -> None:
        del self._firsts[bisect_right(self._firsts, run.first) - 1]
        del self._runs[run.first]

    def __bool__(self) -> bool:
        return bool(self._firsts)


class Queue:
    """Runs, oldest first, and their bytes."""

    __slots__ = ("bytes", "bytes_max", "runs")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.runs: deque[Run] = deque()


class EntryCache:
    """A cache of at most `bytes_max` bytes, an estimate of what each entry takes beside its payload included."""

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self._clock = clock
        self._scans = Queue(int(bytes_max * SCAN_SHARE))
        self._tails = Queue(bytes_max - self._scans.bytes_max)
        self._cached: dict[Readers, LedgerRuns] = {}
        self._sweep: Timer | None = None

    @property
    def bytes(self) -> int:
        """The bytes of all that is cached."""
        return self._scans.bytes + self._tails.bytes

    def at(self, readers: Readers, entry: int, most: int | None = None) -> Sequence[Entry]:
        """Adjacent entries of their ledger from that one on, `most` at most; none where it is not cached."""
        runs = self._cached.get(readers)
        run = None if runs is None else runs.holding(entry)
        if run is None:
            return []
        first = entry - run.first
        return run.entries[first : None if most is None else first + most] if first or most else run.entries

    def worth_fetching(self, readers: Readers, entry: int) -> int:
        """
        How many entries are to be fetched at once from that one on: twice as many as lie cached before it at one piece,
        for reads that came there go on; within what goes at one time.  1 where none is.
        """
        runs = self._cached.get(readers)
        run = None if runs is None else runs.holding(entry - 1)
        if run is None:
            return 1
        count = len(run.entries)
        return max(1, min(2 * count, int(self._scans.bytes_max * PART_SHARE) * count // run.bytes))

    def put(self, readers: Readers, entries: Sequence[Entry], tail: bool) -> None:
        """Adjacent entries of their ledger, which may be there already."""
        queue = self._tails if tail else self._scans
        runs = self._cached.setdefault(readers, LedgerRuns())
        most, now = queue.bytes_max * PART_SHARE, self._clock.seconds()
        for some, size in [part for new in runs.new_of(entries) for part in _parts(new, most)]:
            run = Run(readers, some, size, now)
            if run.bytes > queue.bytes_max / 2:
                continue  # it would leave nothing of what came before
            self._make_room(queue, run.bytes)
            self._cached.setdefault(readers, runs)
            runs.add(run)
            queue.runs.append(run)
            queue.bytes += run.bytes
            readers.counters.cache_bytes += run.bytes
        if not runs:
            self._cached.pop(readers, None)
        if self._sweep is None and self.bytes:
            self._sweep = self._clock.callLater(SWEEP_S, self._swept)

    def forget(self, readers: Readers) -> None:
        """There are none any more."""
        runs = self._cached.get(readers)
        if runs is None:
            return
        for run in runs.all():
            self._gone(run)
        for queue in (self._tails, self._scans):
            queue.bytes -= sum(run.bytes for run in queue.runs if not run.kept)
            queue.runs = deque(run for run in queue.runs if run.kept)
        if self._sweep is not None and not self.bytes:
            self._sweep.cancel()
            self._sweep = None

    def _make_room(self, queue: Queue, more: int) -> None:
        if queue.bytes + more > queue.bytes_max:
            while queue.runs and queue.bytes + more > queue.bytes_max * LEFT_SHARE:
                self._drop_oldest(queue)

    def _swept(self) -> None:
        """Drops what is old and not near to a reader; again, as long as something is left."""
        self._sweep = None
        before = self._clock.seconds() - SWEEP_S
        positions: dict[Readers, list[int]] = {}
        for queue in (self._tails, self._scans):
            while queue.runs and (run := queue.runs[0]).at_s <= before:
                if run.readers not in positions:
                    positions[run.readers] = run.readers.positions()
                if run.is_wanted(positions[run.readers]):
                    break
                self._drop_oldest(queue)
        if self.bytes:
            self._sweep = self._clock.callLater(SWEEP_S, self._swept)

    def _drop_oldest(self, queue: Queue) -> None:
        run = queue.runs.popleft()
        queue.bytes -= run.bytes
        self._gone(run)

    def _gone(self, run: Run) -> None:
        run.kept = False
        run.readers.counters.cache_bytes -= run.bytes
        runs = self._cached[run.readers]
        runs.remove(run)
        if not runs:
            del self._cached[run.readers]
