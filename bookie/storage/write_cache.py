"""
Entries in memory: the write cache (two halves) and the windows read ahead.

Knows: for each ledger disjoint runs in ascending order, each a list of bodies of at most `RUN_ENTRIES_MAX` entries and
about `RUN_BYTES_MAX` bytes, so that one run becomes one index record when it is flushed.  A later copy of an entry
wins.
Does not know: journals, files, who may write.

Work is per batch: a batch that continues its ledger costs one list concatenation.
Safety: a half is dropped only by its owner, after what it holds is durable elsewhere; only the reactor thread changes
the active half, and only `forget` (a deleted ledger) changes the flushing half, which a flush tolerates.
"""

import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from quire.bookie.index.run import RUN_BYTES_MAX, RUN_ENTRIES_MAX
from quire.metrics.histogram import Histogram

# SPDX-License-Identifier: Apache-2.0

ENTRY_OVERHEAD = 48  # bytes that one entry takes in memory beside its own: object header, list slot
# the same for a ledger's first run, its state, and what a flush of it takes; so very many ledgers are flushed in
# smaller lots
LEDGER_OVERHEAD = 2000
WINDOWS_PER_LEDGER = 4
RESERVE_PART = 8  # this part of a half is kept for what ledger recovery and repair write


class Runs:
    """The entries of one ledger in one half."""

    __slots__ = ("bodies", "bytes", "end", "firsts", "tail_bytes")

    def __init__(self) -> None:
        self.bytes = LEDGER_OVERHEAD  # what they take in memory, roughly
        self.firsts: list[int] = []
        self.bodies: list[list[bytes]] = []
        self.end = -1  # last entry + 1; -1 without entries
        self.tail_bytes = 0  # size of the last run, roughly

    def put(self, first: int, bodies: list[bytes], size: int) -> None:
        """`size`: about how many bytes the bodies have together.  The list stays the caller's."""
        count = len(bodies)
        end = self.end
        self.bytes += size
        if (
            first == end
            and self.tail_bytes + size <= RUN_BYTES_MAX
            and first - self.firsts[-1] + count <= RUN_ENTRIES_MAX
        ):
            self.bodies[-1] += bodies
            self.tail_bytes += size
            self.end = end + count
        elif first >= end:
            self._extend(first, bodies, size)
        else:
            self._replace(first, bodies, size)

    def _extend(self, first: int, bodies: list[bytes], size: int) -> None:
        count = len(bodies)
        if count <= RUN_ENTRIES_MAX and size <= RUN_BYTES_MAX:
            self.firsts.append(first)
            self.bodies.append(list(bodies))
            self.tail_bytes = size
        else:
            for start, piece, piece_size in pieces(bodies):
                self.firsts.append(first + start)
                self.bodies.append(piece)
                self.tail_bytes = piece_size
        self.end = first + count

    def _replace(self, first: int, bodies: list[bytes], _size: int) -> None:
        """The slow way: entries that lie before or over those we have.  What they overlap is cut."""
        end = first + len(bodies)
        firsts, runs = self.firsts, self.bodies
        low = max(bisect_right(firsts, first) - 1, 0)
        if firsts[low] + len(runs[low]) <= first:
            low += 1
        high = low
        while high < len(firsts) and firsts[high] < end:
            high += 1
        new_firsts: list[int] = []
        new_runs: list[list[bytes]] = []
        if low < high and firsts[low] < first:
            new_firsts.append(firsts[low])
            new_runs.append(runs[low][: first - firsts[low]])
        for start, piece, _piece_size in pieces(bodies):
            new_firsts.append(first + start)
            new_runs.append(piece)
        if low < high and firsts[high - 1] + len(runs[high - 1]) > end:
            new_firsts.append(end)
            new_runs.append(runs[high - 1][end - firsts[high - 1] :])
        firsts[low:high] = new_firsts
        runs[low:high] = new_runs
        self.end = firsts[-1] + len(runs[-1])
        self.tail_bytes = sum(map(len, runs[-1]))

    def get(self, entry: int) -> bytes | None:
        number = bisect_right(self.firsts, entry) - 1
        if number < 0:
            return None
        run = self.bodies[number]
        within = entry - self.firsts[number]
        return run[within] if within < len(run) else None

    def following(self, entry: int) -> list[bytes]:
        """The bodies of `entry` and those behind it in the same run; empty when it isn't here."""
        number = bisect_right(self.firsts, entry) - 1
        return self.bodies[number][entry - self.firsts[number] :] if number >= 0 else []

    def next_from(self, entry: int) -> int:
        """The lowest entry here that is not below `entry`; `end` or less when there is none."""
        number = bisect_right(self.firsts, entry) - 1
        if number >= 0 and entry < self.firsts[number] + len(self.bodies[number]):
            return entry
        return self.firsts[number + 1] if number + 1 < len(self.firsts) else self.end

    def ranges(self, start: int, most: int) -> tuple[list[tuple[int, int]], int | None]:
        """(first, count) of what is here from `start` on, of `most` runs at most; and the next run's first entry."""
        number = max(bisect_right(self.firsts, start) - 1, 0)
        stop = number + most
        runs = zip(self.firsts[number:stop], self.bodies[number:stop], strict=True)
        ranges = [
            (max(first, start), first + len(run) - max(first, start)) for first, run in runs if first + len(run) > start
        ]
        return ranges, self.firsts[stop] if stop < len(self.firsts) else None


def pieces(bodies: list[bytes]) -> Iterator[tuple[int, list[bytes], int]]:
    """(index of the first, bodies, bytes) of consecutive parts that each respect the limits of a run."""
    start = 0
    while start < len(bodies):
        part = bodies[start : start + RUN_ENTRIES_MAX]
        size = sum(map(len, part))
        if size > RUN_BYTES_MAX and len(part) > 1:
            size = taken = 0
            for body in part:
                if taken and size + len(body) > RUN_BYTES_MAX:
                    break
                size += len(body)
                taken += 1
            part = part[:taken]
        yield start, part, size
        start += len(part)


class Half:
    """One half of the write cache.  `bytes` are those of the ledgers that it still has."""

    __slots__ = ("bytes", "entries", "ledgers")

    def __init__(self) -> None:
        self.ledgers: dict[int, Runs] = {}
        self.bytes = 0
        self.entries = 0

    def runs_of(self, ledgers: Iterable[int]) -> Iterator[tuple[int, int, list[bytes]]]:
        """(ledger, first entry, bodies) of each run of these ledgers, in order; one deleted meanwhile is left out."""
        for ledger in sorted(ledgers):
            runs = self.ledgers.get(ledger)
            if runs is not None:
                for first, bodies in zip(runs.firsts, runs.bodies, strict=True):
                    yield ledger, first, bodies

    def forget(self, ledger: int) -> None:
        runs = self.ledgers.pop(ledger, None)
        if runs is not None:
            self.bytes -= runs.bytes


class WriteCache:
    """Entries that were added and are not yet in entry log and index.  `bytes_max`: both halves together."""

    def __init__(self, bytes_max: int) -> None:
        self._half_bytes_max = max(bytes_max // 2, 1)
        self._full_at = self._half_bytes_max - self._half_bytes_max // RESERVE_PART
        self.active = Half()
        self.flushing: Half | None = None

    @property
    def full(self) -> bool:
        """No more may be put until the halves were swapped, except what recovers ledgers."""
        return self.active.bytes >= self._full_at

    @property
    def reserve_full(self) -> bool:
        """The reserve is used up too."""
        return self.active.bytes >= self._half_bytes_max

    def put(self, ledger: int, first: int, bodies: list[bytes], size: int) -> None:
        """`size`: the bodies' bytes plus `ENTRY_OVERHEAD` each, roughly."""
        active = self.active
        runs = active.ledgers.get(ledger)
        if runs is None:
            runs = active.ledgers[ledger] = Runs()
            active.bytes += LEDGER_OVERHEAD
        runs.put(first, bodies, size)
        active.bytes += size
        active.entries += len(bodies)

    def get(self, ledger: int, entry: int) -> bytes | None:
        runs = self.active.ledgers.get(ledger)
        if runs is not None and (body := runs.get(entry)) is not None:
            return body
        if self.flushing is not None and (runs := self.flushing.ledgers.get(ledger)) is not None:
            return runs.get(entry)
        return None

    def following(self, ledger: int, entry: int) -> list[bytes]:
        """Consecutive bodies from `entry` on, as far as one run reaches; empty when `entry` isn't cached."""
        runs = self.active.ledgers.get(ledger)
        if runs is not None and (bodies := runs.following(entry)):
            return bodies
        if self.flushing is not None and (runs := self.flushing.ledgers.get(ledger)) is not None:
            bodies = runs.following(entry)
            active = self.active.ledgers.get(ledger)
            if bodies and active is not None and active.firsts[0] < entry + len(bodies):
                # The active half overlaps this run and its copies win: return what certainly comes before them.
                return bodies[: max(1, active.firsts[0] - entry)]
            return bodies
        return []

    def last(self, ledger: int) -> int:
        """The highest cached entry; -1 when there is none."""
        runs = self.active.ledgers.get(ledger)
        last = runs.end - 1 if runs is not None else -1
        if self.flushing is not None and (runs := self.flushing.ledgers.get(ledger)) is not None:
            last = max(last, runs.end - 1)
        return last

    def free_of(self, ledger: int, first: int, count: int) -> int:
        """How many of the `count` entries from `first` on lie before the first of them that is cached."""
        for half in (self.active, self.flushing):
            if half is not None and (runs := half.ledgers.get(ledger)) is not None and runs.end > first:
                count = min(count, runs.next_from(first) - first)
        return count

    def ranges(self, ledger: int, start: int = 0, most: int = sys.maxsize) -> tuple[list[tuple[int, int]], int | None]:
        """
        (first, count) of what is cached from entry `start` on, ascending, of `most` runs of each half at most, which
        may overlap; and the entry to go on from, if there are more.
        """
        ranges: list[tuple[int, int]] = []
        following = None
        for half in (self.active, self.flushing):
            if half is not None and (runs := half.ledgers.get(ledger)) is not None:
                some, behind = runs.ranges(start, most)
                ranges += some
                if behind is not None:
                    following = behind if following is None else min(following, behind)
        ranges.sort()
        return ranges if following is None else [some for some in ranges if some[0] < following], following

    def holds(self, ledger: int) -> bool:
        return ledger in self.active.ledgers or (self.flushing is not None and ledger in self.flushing.ledgers)

    def forget(self, ledger: int) -> None:
        """The ledger was deleted."""
        self.active.forget(ledger)
        if self.flushing is not None:
            self.flushing.forget(ledger)

    def swap(self) -> Half:
        """The active half becomes the flushing one, which must be gone."""
        assert self.flushing is None, "a half that was not flushed may not be replaced"
        self.flushing = self.active
        self.active = Half()
        return self.flushing

    def drop(self) -> None:
        """Drops the flushing half, whose entries are durable elsewhere."""
        self.flushing = None


def release(ledgers: dict[int, Runs], pause: Callable[[], None]) -> None:
    """Frees a dropped half run by run: all at once it would hold the interpreter for tens of milliseconds."""
    while ledgers:
        _ledger, runs = ledgers.popitem()
        while runs.bodies:
            runs.bodies.pop()
            pause()


class ReadAhead:
    """Windows of entries read from entry logs before they are asked for; the longest unused ledger's go first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._ledgers: OrderedDict[int, list[tuple[int, list[bytes], int]]] = OrderedDict()
        self.bytes = 0
        self.window_entries, self.window_bytes = Histogram(1), Histogram(1)  # of each that was kept

    def get(self, ledger: int, entry: int) -> bytes | None:
        windows = self._ledgers.get(ledger)
        if windows is None:
            return None
        for first, bodies, _size in windows:
            if first <= entry < first + len(bodies):
                return bodies[entry - first]
        return None

    def put(self, ledger: int, first: int, bodies: list[bytes]) -> None:
        size = sum(map(len, bodies)) + ENTRY_OVERHEAD * len(bodies)
        if not bodies or size > self._bytes_max:
            return
        windows = self._ledgers.setdefault(ledger, [])
        self._ledgers.move_to_end(ledger)
        windows.insert(0, (first, bodies, size))
        self.bytes += size
        self.window_entries.observe(len(bodies))
        self.window_bytes.observe(size)
        while len(windows) > WINDOWS_PER_LEDGER:
            self.bytes -= windows.pop()[2]
        while self.bytes > self._bytes_max:
            _ledger, oldest = self._ledgers.popitem(last=False)
            self.bytes -= sum(window[2] for window in oldest)

    def forget(self, ledger: int) -> None:
        self.bytes -= sum(window[2] for window in self._ledgers.pop(ledger, ()))
