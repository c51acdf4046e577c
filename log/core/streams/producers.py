"""
The producers of a log: which sequences are in the log, and where the newest of them are.

Knows: of each producer the highest sequence that is stored, the places of the last ones, the highest that was taken,
and what was written to the present segment; how a table and the columns behind it are replayed.
Does not know: who appends, what waits, ledgers.

Safety: a sequence counts as stored only when its record is acknowledged or was read from a closed ledger.  A table
holds what was written before it in its segment, too, for whoever reads it finds those entries in front of it.  A table
is one entry, so a producer for which it has no room is refused before anything of it is stored.
"""

from array import array
from collections.abc import Iterable, Mapping

from quire.log.core.batch import ProducerRun
from quire.log.core.frame import TableRow

# SPDX-License-Identifier: Apache-2.0

RECENT_MAX = 64  # sequences whose index is known
PRODUCERS_KEPT = 10_000  # above which idle ones are forgotten
IDLE_MS = 6 * 3600_000
TABLE_BYTES_MAX = 4 << 20  # so that it fits into a frame of the usual size
ROW_BYTES = 26  # of a table, beside the name
FORGET_MS = 1000  # at least between two looks for who is idle
NAME_BYTES_MAX = 200
SEQUENCE_MAX = (1 << 64) - 1
NOWHERE = -1
NONE = range(0)


def check_producer(producer: str | None, sequence: int | None) -> None:
    """`TypeError`, `ValueError` for what names no producer and sequence."""
    if producer is None and sequence is None:
        return
    if not isinstance(producer, str) or type(sequence) is not int:
        raise TypeError(f"a producer is a str with an int as sequence, not {producer!r} with {sequence!r}")
    if not 1 <= len(producer.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"a producer's name has 1 to {NAME_BYTES_MAX} bytes, not {len(producer.encode())}")
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"a sequence is 0 to {SEQUENCE_MAX}, not {sequence}")


class Producer:
    """
    `stored`: the highest sequence that is in the log, -1: none, and `record` its place; `pushed`: the highest that was
    taken.  `failed`: those that may come again, `passed`: those that can't any more, for a higher one was taken.
    """

    __slots__ = ("_recent", "failed", "passed", "pushed", "record", "stamp", "stored")

    def __init__(self, stored: int = -1, record: int = NOWHERE, stamp: int = 0) -> None:
        self.stored = self.pushed = stored
        self.record = record
        self.stamp = stamp
        self.failed = self.passed = NONE
        self._recent: array[int] | None = None  # sequence, index, sequence, ...; where more than one is known

    def push(self, first: int, last: int) -> None:
        """Takes these sequences, which are above all that were."""
        low, high = max(self.failed.start, self.pushed + 1), min(self.failed.stop, first)
        if low < high:
            self.passed = range(low, high)
        self.pushed = last

    def fail(self, first: int, last: int, pushed: int) -> None:
        """Notes that these were refused, or failed, which leaves those up to `pushed` as taken."""
        self.pushed = min(self.pushed, pushed)
        if self.passed.stop > self.pushed + 1:  # they can come again
            self.passed = NONE
        low = max(self.failed.start, self.pushed + 1)
        end = max(self.failed.stop, last + 1)
        self.failed = range(min(low, first), end) if low < self.failed.stop else range(first, last + 1)

    def has_passed(self, first: int, end: int) -> bool:
        """True if one of these failed, and can't come to be in the log any more."""
        return max(first, self.passed.start) < min(end, self.passed.stop)

    def store(self, run: ProducerRun, index: int, stamp: int) -> None:
        """The records of a run are in the log, from that index on."""
        last = run.records - 1
        recent = self._recent
        if recent is None and (self.record >= 0 or last):
            recent = self._recent = array("Q", (self.stored, self.record) if self.record >= 0 else ())
        self.stored = max(self.stored, run.sequence + last)
        self.pushed = max(self.pushed, self.stored)
        self.record, self.stamp = index + last, stamp
        if recent is not None:
            for number in range(max(0, run.records - RECENT_MAX), run.records):
                recent.extend((run.sequence + number, index + number))
            del recent[: -2 * RECENT_MAX]

    def rest(self) -> None:
        """All but the last place is forgotten."""
        self._recent = None

    def places(self, first: int, count: int) -> list[int]:
        """The index of each of so many sequences, -1: it is not known any more."""
        recent = (self.stored, self.record) if self._recent is None else self._recent
        known = dict(zip(recent[::2], recent[1::2], strict=True))
        return [known.get(sequence, NOWHERE) for sequence in range(first, first + count)]


class Producers:
    """The producers of one log, as one owner knows them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Producer] = {}
        self._written: dict[str, TableRow] = {}  # to the present segment
        self._bytes = 0  # of a table
        self._looked_ms = 0  # for who is idle

    def of(self, name: str) -> Producer:
        """The one of that name; a new one has nothing."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Producer()
            self._bytes += row_bytes(name)
        return found

    def has_room(self, name: str, now_ms: int, bytes_max: int = TABLE_BYTES_MAX) -> bool:
        """True if a table of that size holds this producer, too, once idle ones are forgotten."""
        if name in self.by_name:
            return True
        more = row_bytes(name)
        if self._bytes + more > bytes_max and abs(now_ms - self._looked_ms) >= FORGET_MS:
            self._looked_ms = now_ms
            self.table(now_ms, min(PRODUCERS_KEPT, len(self.by_name) // 2))
        return self._bytes + more <= bytes_max

    def _forget(self, name: str) -> None:
        """Forgets producers that have nothing under way."""
        known = self.by_name.get(name)
        if known is not None and known.pushed == known.stored:
            del self.by_name[name]
            self._bytes -= row_bytes(name)

    def stored(self, runs: Iterable[ProducerRun], first: int, stamp: int) -> None:
        """A batch is acknowledged, or was read; `first` is the index of its first record."""
        for run in runs:
            self.of(run.producer).store(run, first + run.first, stamp)

    def wrote(self, runs: Iterable[ProducerRun], first: int, stamp: int) -> None:
        """A batch was written to the present segment."""
        for run in runs:
            last = run.records - 1
            self._written[run.producer] = TableRow(run.sequence + last, first + run.first + last, stamp)

    def begin_segment(self) -> None:
        """
        Begins a segment: what was written to the one before is in the log, or is written again.  Of producers that
        wrote nothing to it only the last place stays known.
        """
        for name, each in self.by_name.items():
            if name not in self._written:
                each.rest()
        self._written.clear()

    def table(self, now_ms: int, kept: int = PRODUCERS_KEPT) -> dict[str, TableRow]:
        """Makes the table of now; of more than `kept`, the longest idle and those that stored nothing go."""
        for name in [name for name, each in self.by_name.items() if each.pushed < 0]:
            self._forget(name)
        rows = {
            name: TableRow(each.stored, each.record, each.stamp)
            for name, each in self.by_name.items()
            if each.stored >= 0
        }
        rows |= self._written
        if len(rows) > kept:
            idle = sorted((row.stamp, name) for name, row in rows.items() if row.stamp < now_ms - IDLE_MS)
            for _stamp, name in idle[: len(rows) - kept]:
                del rows[name]
                self._written.pop(name, None)
                self._forget(name)
        return rows

    def rows(self, before: int) -> dict[str, TableRow]:
        """Makes a table of those whose last record is below that index."""
        return {
            name: TableRow(each.stored, each.record, each.stamp)
            for name, each in self.by_name.items()
            if each.stored >= 0 and each.record < before
        }

    def load(self, rows: Mapping[str, TableRow]) -> None:
        """Takes over a table."""
        for name, row in rows.items():
            self.of(name)
            self.by_name[name] = Producer(row.sequence, row.record, row.stamp)

    def learn(self, read: "Producers", names: Iterable[str]) -> None:
        """Takes over what was read from closed ledgers of these producers, of which nothing is under way."""
        for name in names:
            before, each = self.of(name), read.of(name)
            if each.stored >= before.stored:
                each.failed, each.passed = before.failed, before.passed
                self.by_name[name] = each
            self.by_name[name].pushed = self.by_name[name].stored


def row_bytes(name: str) -> int:
    """Says how many bytes a producer takes of a table."""
    return ROW_BYTES + len(name.encode())
