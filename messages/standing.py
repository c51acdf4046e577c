"""
The queue table of an open store as a machine of its log, and the hook of the log's owner.

Knows: when offsets are given: while this process leads, from the table on to which all was applied that was there
before; who is told of the role.
Does not know: how the log is applied, who owns it, what is put.
Safety: before a process leads, and after, the hook refuses: no offset is given by a table that lacks records.
"""

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import maybeDeferred
from twisted.logger import Logger

from quire.log.api import Prepared, Record, Role
from quire.messages.core.assign import Assigner
from quire.messages.core.queues import QueueTable
from quire.messages.descriptor import Descriptor
from quire.messages.metrics import StoreCounters
from quire.protocol.message_errors import NotReady

# SPDX-License-Identifier: Apache-2.0

log = Logger()

MASTER, SLAVE = "master", "slave"


class TableMachine(QueueTable):
    """The table that a replica makes: it says what it is told of its role, and what is applied."""

    __slots__ = ("_standing",)

    def __init__(self, standing: "Standing") -> None:
        super().__init__(standing.descriptor.placing)
        self._standing = standing

    def apply(self, stored: Record) -> None:  # type: ignore[override]  # a replica gives records of the log
        """The next record of the log."""
        super().apply(stored)
        self._standing.applied(stored.index + 1)

    def apply_own(self, first: int, values: Sequence[bytes]) -> bool:
        """The records of an entry of this process, if they are what the hook made of it."""
        return self._standing.stored(first, values)

    def role(self, role: Role, epoch: int) -> None:
        """The replica begins or ceases to lead."""
        self._standing.changed(self if role is Role.LEADING else None, epoch)


class Standing:
    """The part of one open store in the puts of its log.  `role`: master or slave; `on_role(role, epoch)`: its user."""

    def __init__(
        self,
        descriptor: Descriptor,
        on_change: Callable[[str, int], object],
        counters: StoreCounters,
        seconds: Callable[[], float],
        reached: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`seconds`: a clock that measures the hook; `reached`: after each step."""
        self.descriptor = descriptor
        self._counters, self._seconds, self._reached = counters, seconds, reached
        self.role = SLAVE
        self.epoch = 0
        self._file_bytes = descriptor.store_settings.file_bytes
        self._begin = descriptor.regions[-1].begin
        self._on_change = on_change
        self._assigner: Assigner | None = None
        self.table: QueueTable | None = None  # the newest

    def make(self) -> TableMachine:
        """Makes an empty table."""
        self.table = made = TableMachine(self)
        return made

    def hook(self, first: int, position: int, stamp_ms: int, drafts: Sequence[bytes]) -> Prepared:
        """Gives offsets to the drafts of an entry; `NotReady`."""
        if self._assigner is None:
            raise NotReady("this process owns the log and has not applied all of it yet, or leads no more: put again")
        counters, begun = self._counters, self._seconds()
        if undone := self._assigner.undo(first):
            counters.requeued += undone
            self._reached("put.requeued")
        values, skips = self._assigner.assign(first, position, stamp_ms, drafts)
        self._reached("put.assigned")
        counters.hook_seconds.observe(self._seconds() - begun)
        if not (skipped := sum(skips)):
            return Prepared(values)
        counters.filler_bytes += skipped
        return Prepared(values, skips)

    def next(self, topic: str, queue: int) -> int:
        """The next position of a queue, as far as this process knows; one that was given and is not applied counts."""
        if self._assigner is not None:
            return self._assigner.next(topic, queue)
        return 0 if self.table is None else self.table.next(topic, queue)

    def applied(self, index: int) -> None:
        """All records below an index are in the table."""
        if self._assigner is not None:
            self._assigner.applied(index)

    def stored(self, first: int, values: Sequence[bytes]) -> bool:
        """True if these were the last call's that is not applied, and are in the table now."""
        return self._assigner is not None and self._assigner.stored(first, values)

    def changed(self, table: QueueTable | None, epoch: int) -> None:
        """Notes that this process leads from now on, with that table, or leads no more."""
        role = SLAVE if table is None else MASTER
        self._assigner = None if table is None else Assigner(table, self._begin, self._file_bytes)
        if (role, epoch) == (self.role, self.epoch) or (role == SLAVE == self.role):
            return
        self.role, self.epoch = role, epoch
        told = f"the listener of a message store's role raised, at {role} of epoch {epoch}"
        maybeDeferred(self._on_change, role, epoch).addErrback(partial(log.failure, told))
