"""
Records are applied, in slices between which the reactor does other things; and who waits for that.

Knows: the user's machine, what waits to be applied, who waits for the answer of a record or for an index.
Does not know: where records come from, snapshots, who leads.

Safety: a record is applied once, all of those before it were, and nothing else touches the machine meanwhile.
"""

import heapq
from collections import deque
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred

from quire.log.core.machine.applying_messages import Applied, ApplyRaised, Given, Input
from quire.log.machine.machines import Machine, is_awaited
from quire.log.owner.appending.appends import Batch
from quire.log.reader.batches import Record
from quire.metadata.clock import Clock
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import ApplyFailed

# SPDX-License-Identifier: Apache-2.0

SLICE_S = 0.01  # after which the reactor does something else
LOOKED_AT = 64  # records between two looks at the clock
ANSWERS_MAX = 100_000  # kept for proposals that do not know their index yet
NOTHING = object()  # in place of an answer, which may be anything


class Content(Protocol):
    """Records that are to be applied."""

    def records(self) -> list[Record]: ...


class Acknowledged(NamedTuple):
    """Records that an owner was acknowledged."""

    batch: Batch

    def records(self) -> list[Record]:
        """As a reader gets them: what was stored, not what a hook was given."""
        records, placed = self.batch.stored, self.batch.placed
        count = len(records.lengths)
        columns = zip(
            range(placed.first, placed.first + count),
            placed.positions,
            records.values,
            records.keys or (None,) * count,
            records.times or (None,) * count,
            records.headers or ((),) * count,
            strict=True,
        )
        return [
            Record(index, at, placed.stamp, value, key, time, tuple(headers))
            for index, at, value, key, time, headers in columns
        ]


class Applier:
    """`feed` hears of each slice.  `machine`: None while there is none; `applied`: the first index that is not."""

    def __init__(self, name: str, clock: Clock, feed: Callable[[Input], None]) -> None:
        self.machine: Machine | None = None
        self.applied = 0
        self.error: LedgerError | None = None  # of all who wait from now on
        self._name = name
        self._clock = clock
        self._feed = feed
        self._queue: deque[tuple[list[Record], int]] = deque()  # records, and how many of them are done
        self._is_due = False
        self.is_applying = False  # what the machine, or who is answered, asks for meanwhile waits
        self._unplaced = 0  # proposals that do not know their index yet
        self._answers: dict[int, object] = {}  # of what was applied meanwhile, by index, ascending
        self._proposed: dict[int, Deferred[Any]] = {}  # by index
        self._waiting: list[tuple[int, int, Deferred[None]]] = []  # a heap by index
        self._number = 0

    def begin(self, machine: Machine, index: int) -> None:
        """A fresh machine that holds all below that index."""
        self.machine, self.applied = machine, index
        for skipped in sorted(each for each in self._proposed if each < index):
            self._proposed.pop(skipped).errback(self._unknown(skipped))
        self._wake()

    def forget(self) -> None:
        """The machine, and what waits to be applied."""
        self.machine = None
        self._queue.clear()

    def end(self, error: LedgerError) -> None:
        """Nothing more is applied, and whoever waits fails so; the machine stays as it is."""
        self.error = error
        self._queue.clear()
        proposed, self._proposed = self._proposed, {}
        waiting, self._waiting = self._waiting, []
        for each in [*proposed.values(), *(each for _index, _number, each in waiting)]:
            if not each.called:
                each.errback(error)

    def apply(self, given: Given, skip: int) -> None:
        """Applies these records behind what waits."""
        content: Any = given.content
        if (
            not skip
            and not self._is_due
            and isinstance(content, Acknowledged)
            and self._apply_own(given, content.batch)
        ):
            return
        self._queue.append((content.records(), skip))
        if not self._is_due:
            self._run()

    def _apply_own(self, given: Given, batch: Batch) -> bool:
        """True if the machine took all at once, or raised; it is not asked where somebody waits for an answer."""
        apply = getattr(self.machine, "apply_own", None)
        if apply is None or self._unplaced or self._proposed:
            return False
        self.is_applying = True
        try:
            is_applied = apply(given.first, batch.stored.values)
        except Exception as error:
            self._failed(given.first, f"raised {type(error).__name__}", f" ({error})", error)
            return True
        self.is_applying = False
        if is_applied:
            self.applied = given.end
            self._tell()
        return bool(is_applied)

    def _run(self) -> None:
        self._is_due = True  # what comes meanwhile is not begun beside it
        until = self._clock.seconds() + SLICE_S
        while self._queue:
            records, done = self._queue.popleft()
            end = min(len(records), done + LOOKED_AT)
            if not self._apply(records[done:end] if done or end < len(records) else records):
                self._is_due = False
                return
            if end < len(records):
                self._queue.appendleft((records, end))
            if self._queue and self._clock.seconds() > until:
                self._clock.callLater(0, self._run)
                break
        else:
            self._is_due = False
        if self.machine is not None:  # else it was forgotten between two slices
            self._tell()

    def _tell(self) -> None:
        self._wake()
        self._feed(Applied(self.applied))

    def _apply(self, records: list[Record]) -> bool:
        assert self.machine is not None
        apply, proposed = self.machine.apply, self._proposed
        kind: type = NoneType  # of the answer before: most have one
        self.is_applying = True
        for record in records:
            try:
                answer = apply(record)
            except Exception as error:
                return self._failed(record.index, f"raised {type(error).__name__}", f" ({error})", error)
            if type(answer) is not kind:
                kind = type(answer)
                if is_awaited(kind):
                    return self._failed(record.index, f"gave a {kind.__name__}", ", which nobody awaits")
            self.applied = record.index + 1
            if proposed and record.index in proposed:
                proposed.pop(record.index).callback(answer)
            elif self._unplaced and len(self._answers) < ANSWERS_MAX:
                self._answers[record.index] = answer
        self.is_applying = False
        return True

    def _failed(self, index: int, what: str, why: str, error: Exception | None = None) -> bool:
        failed = ApplyFailed(
            f"the state machine of the log {self._name!r} {what} at index {index}{why}, so this replica stops there; "
            f"`quire log read {self._name} --from {index} --to {index}` shows the record"
        )
        failed.index = index
        failed.__cause__ = error
        self.is_applying = False
        self._queue.clear()
        self._feed(ApplyRaised(index, failed))
        return False

    def _wake(self) -> None:
        while self._waiting and self.machine is not None and self._waiting[0][0] <= self.applied:
            waiting = heapq.heappop(self._waiting)[2]
            if not waiting.called:
                waiting.callback(None)

    # -- who waits -------------------------------------------------------------------------------------------------

    def reached(self, index: int) -> "Deferred[None]":
        """Fires between two applies when all below that index is applied."""
        waiting: Deferred[None] = Deferred()
        if self.error is not None:
            waiting.errback(self.error)
        elif self.machine is not None and self.applied >= index and not self.is_applying:
            waiting.callback(None)
        else:
            self._number += 1
            heapq.heappush(self._waiting, (index, self._number, waiting))
        return waiting

    async def answer(self, appended: "Deferred[int]") -> object:
        """Gives the machine's answer for the record of this index once acknowledged, in order.  Errors of both."""
        self._unplaced += 1
        try:
            index = await appended
            found = self._answers.pop(index, NOTHING)
            while self._answers and (first := next(iter(self._answers))) < index:  # nobody can want these any more
                del self._answers[first]
            if found is not NOTHING:
                return found
            if self.error is not None:
                raise self.error
            if self.machine is not None and index < self.applied:
                raise self._unknown(index)
            answered: Deferred[Any] = Deferred()
            self._proposed[index] = answered
        finally:
            self._unplaced -= 1
            if not self._unplaced:
                self._answers.clear()
        return await answered

    def _unknown(self, index: int) -> ApplyFailed:
        error = ApplyFailed(
            f"index {index} of the log {self._name!r} is applied; what the machine gave for it is not known here: a "
            "read shows what became of it"
        )
        error.index = index
        return error
