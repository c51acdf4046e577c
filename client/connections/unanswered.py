"""
Requests that were sent and not answered, kept as runs: one object per batch, never one per entry.

Knows: which ids of a batch are still open, in whatever order the answers come (wire.md 10.2: they come
out of order in every generation), and how many bytes wait with them.
Does not know: sockets, codes, time.

An answer counts once: a second one for the same id, and one for an id that was never sent, yields nothing.

`Sent` is one batch on one connection.  `RunTable` finds the run that a number belongs to by bisection; V3 uses it with
transaction ids, `Unanswered` with entry ids.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from typing import Generic, Protocol, TypeVar

# SPDX-License-Identifier: Apache-2.0

COMPACT_MIN = 512  # answered runs that are kept before a table is compacted


class SentRun(Protocol):
    """A row of a table: `left` numbers of `count` consecutive ones are still open."""

    @property
    def left(self) -> int: ...


R = TypeVar("R", bound=SentRun)


class RunTable(Generic[R]):
    """Runs by their first number; answered ones go when nothing older is open, or they outnumber the open ones."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.runs: list[R] = []
        self.head = 0  # everything before it is answered
        self._closed = 0  # answered runs at or after head, at least

    def __bool__(self) -> bool:
        return self.head < len(self.runs)

    def add(self, first: int, run: R) -> None:
        if not self.firsts or first >= self.firsts[-1]:
            self.firsts.append(first)
            self.runs.append(run)
            return
        at = bisect_right(self.firsts, first, self.head)  # an advanced writer sends ids in any order
        self.firsts.insert(at, first)
        self.runs.insert(at, run)

    def at(self, number: int) -> int:
        """Position of the last run that starts at or below `number`; below `head` when there is none."""
        return bisect_right(self.firsts, number, self.head) - 1

    def settle(self, position: int) -> None:
        """Call when the run at `position` has nothing left."""
        runs = self.runs
        if position != self.head:
            self._closed += 1
            if self._closed > COMPACT_MIN and self._closed * 2 > len(runs) - self.head:
                self.compact()
            return
        head = position + 1
        count = len(runs)
        while head < count and not runs[head].left:
            head += 1
            self._closed = max(0, self._closed - 1)
        self.head = head
        if head == count:
            self.firsts.clear()
            runs.clear()
            self.head = self._closed = 0
        elif head > COMPACT_MIN and head * 2 > count:
            del self.firsts[:head], runs[:head]
            self.head = 0

    def compact(self) -> None:
        """Drops every answered run."""
        kept = [
            (first, run)
            for first, run in zip(self.firsts[self.head :], self.runs[self.head :], strict=True)
            if run.left
        ]
        self.clear()
        self.firsts.extend(first for first, _run in kept)
        self.runs.extend(run for _first, run in kept)

    def clear(self) -> None:
        self.firsts.clear()
        self.runs.clear()
        self.head = 0
        self._closed = 0

    def any_open(self) -> bool:
        """True if some run has something left."""
        runs = self.runs
        return any(runs[at].left for at in range(self.head, len(runs)))  # mostly the first of them has

    def open(self) -> list[R]:
        """The runs with something left, ascending."""
        return [run for run in self.runs[self.head :] if run.left]


class Sent:
    """One batch as a connection carries it: `ids` ascending, `left` open, `size` bytes until the last is answered."""

    __slots__ = ("_flags", "_front", "count", "ids", "left", "size")

    def __init__(self, ids: Sequence[int], size: int) -> None:
        self.ids = ids
        self.count = self.left = len(ids)
        self.size = size
        self._front = 0  # indices below it are answered
        self._flags: bytearray | None = None  # 1 per answered index, once answers came out of order

    def index(self, entry: int) -> int:
        """Where `entry` is among the ids, or -1."""
        ids = self.ids
        if isinstance(ids, range):
            at = entry - ids[0]
            return at if 0 <= at < self.count else -1
        at = bisect_left(ids, entry)
        return at if at < self.count and ids[at] == entry else -1

    def stretch(self, index: int, count_max: int) -> int:
        """How many ids from `index` on are consecutive numbers, at most `count_max`."""
        stop = min(index + count_max, self.count)
        ids = self.ids
        if isinstance(ids, range):
            return stop - index
        last = index + 1
        while last < stop and ids[last] == ids[last - 1] + 1:
            last += 1
        return last - index

    def is_open(self, index: int) -> bool:
        return index >= self._front and (self._flags is None or not self._flags[index])

    def take(self, index: int, count: int) -> list[tuple[int, int]]:
        """Marks indices as answered; the runs (index, count) of those that were open."""
        stop = min(index + count, self.count)
        index = max(index, self._front)
        if index >= stop:
            return []
        flags = self._flags
        if flags is None:
            if index == self._front:
                self._front = stop
                self.left -= stop - index
                return [(index, stop - index)]
            flags = self._flags = bytearray(self.count)
        out = []
        while (start := flags.find(0, index, stop)) >= 0:
            index = flags.find(1, start, stop)
            if index < 0:
                index = stop
            flags[start:index] = b"\1" * (index - start)
            self.left -= index - start
            out.append((start, index - start))
        if flags[self._front]:
            front = flags.find(0, self._front)
            self._front = self.count if front < 0 else front
        return out

    def release(self, before: int) -> int:
        """Bytes set free by the answers since `left` was `before`: in proportion, and all that remain with the last."""
        if not before:
            return 0
        freed = self.size * (before - self.left) // before
        self.size -= freed
        return freed


class Unanswered:
    """The adds that one channel has sent to one bookie and that have no answer, by entry id."""

    def __init__(self) -> None:
        self.table: RunTable[Sent] = RunTable()
        self.bytes = 0
        self.overtaken = False  # a later batch got an answer before the lowest open one was complete
        self._highest = -1
        self._tangled = False  # ids were sent twice or not in ascending order, so a run must be looked for

    def __bool__(self) -> bool:
        return self.table.head < len(self.table.runs)

    def add(self, ids: Sequence[int], size: int) -> Sent:
        """`ids` ascending, not empty; `size` in bytes."""
        sent = Sent(ids, size)
        first, last, table = ids[0], ids[-1], self.table
        if first > self._highest:  # above all that are there
            self._highest = last
            table.firsts.append(first)
            table.runs.append(sent)
        else:
            self._tangled = True
            self._highest = max(self._highest, last)
            table.add(first, sent)
        self.bytes += size
        return sent

    def only(self, ids: Container[int]) -> "Unanswered":
        """The batches that begin with one of these ids."""
        out = Unanswered()
        for sent in self.table.open():
            if sent.ids[0] in ids:
                out.add(sent.ids, sent.size)
        return out

    def answer(self, first: int, count: int) -> list[tuple[int, int]]:
        """Takes the answer for `count` entries; the runs (first id, count) that were open, ascending."""
        table = self.table
        if table.head < len(table.runs) and not self._tangled:
            oldest = table.runs[table.head]
            ids = oldest.ids
            if oldest.left == oldest.count == count and ids[0] == first and ids[-1] == first + count - 1:
                self.bytes -= oldest.size
                oldest.left = oldest.size = 0
                self.overtaken = False
                if len(table.runs) == 1:  # the only one, as of an append that is waited for
                    table.firsts, table.runs = [], []
                else:
                    table.settle(table.head)
                return [(first, count)]
        out: list[tuple[int, int]] = []
        stop = first + count
        while first < stop and table:
            at = table.at(first)
            position, index = at, -1
            while position >= table.head:
                index = table.runs[position].index(first)
                if index >= 0 and table.runs[position].is_open(index):
                    break
                position = position - 1 if self._tangled else -1
            if position < table.head:  # late, or never sent: go on where the next run begins
                first = (
                    max(first + 1, min(stop, table.firsts[at + 1]))
                    if at + 1 < len(table.firsts) and at < table.head
                    else first + 1
                )
                continue
            sent = table.runs[position]
            covered = sent.stretch(index, stop - first)
            self._take(position, index, covered, out)
            first += covered
        return out

    def answer_sent(self, sent: Sent, index: int, count: int) -> list[tuple[int, int]]:
        """Marks as answered indices of a batch that the caller has at hand (V3, which finds it by transaction)."""
        table, ids, head = self.table, sent.ids, self.table.head
        if (
            index == 0
            and head < len(table.runs)
            and table.runs[head] is sent
            and count >= sent.count == sent.left == ids[-1] - ids[0] + 1
        ):
            return self._take_oldest(sent)
        out: list[tuple[int, int]] = []
        position = table.at(ids[0])
        while position >= table.head and table.runs[position] is not sent:
            position -= 1
        if position < table.head:
            return out
        stop = min(index + count, sent.count)
        while index < stop:
            covered = sent.stretch(index, stop - index)
            self._take(position, index, covered, out)
            if not sent.left:
                break
            index += covered
        return out

    def _take_oldest(self, sent: Sent) -> list[tuple[int, int]]:
        """Takes the answer for the whole oldest batch: the usual one."""
        self.bytes -= sent.size
        sent.left = sent.size = 0
        self.overtaken = False
        self.table.settle(self.table.head)
        return [(sent.ids[0], sent.count)]

    def _take(self, position: int, index: int, count: int, out: list[tuple[int, int]]) -> None:
        """Marks indices of the batch at `position`, adds what was open to `out`, keeps the figures."""
        table = self.table
        sent = table.runs[position]
        before = sent.left
        first_id = sent.ids[index]
        for start, taken in sent.take(index, count):
            out.append((first_id + start - index, taken))
        self.bytes -= sent.release(before)
        if position != table.head:
            self.overtaken = True
        if not sent.left:
            if position == table.head:
                self.overtaken = False
            table.settle(position)
