"""
All journals of a bookie as one, and whether writes are taken now: the fault that ends a storage, disks that can't take
more, refused callers that wait for room.

Knows: that after a fault of one journal no token comes back from any; when a checkpoint may give room back, and when
refused callers can try again.
Does not know: what is written, how a checkpoint is made.

Read-only has two degrees.  `read_only`: a ledger directory or a journal can't take more, and what is left is for fences
and recovery.  `blocked`: what is taken could not be flushed either, so recovery is refused, too.

Safety: a token comes back only after the sync that covers its write; after a journal fault none comes back.
"""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import Group, Journal, JournalOptions
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.parts import StorageCounters, Workers
from quire.bookie.storage.write_cache import WriteCache
from quire.metadata.clock import Reactor
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

log = Logger()


def _nothing(*_: object) -> None:
    pass


class StorageEvents(NamedTuple):
    """The calls that a storage makes on the reactor's thread; none of them does anything by default."""

    durable: Callable[[list[object]], None] = _nothing  # given the tokens of one synced group, in order
    refused: Callable[[object, object], None] = _nothing  # the force behind a token came to nothing, by this error
    relieved: Callable[[], None] = _nothing  # who was refused for want of room has it, or will be refused for good
    failed: Callable[[str], None] = _nothing  # a fault that ends the bookie: nothing more is acknowledged
    read_only: Callable[[str | None], None] = _nothing  # why adds are refused from now on; None: they are taken again


class Journals:
    """All of it belongs to the reactor thread."""

    def __init__(self, reactor: Reactor, files: Files, workers: Workers, counters: StorageCounters) -> None:
        self.all: list[Journal] = []  # in the order of the configuration; a start opens them
        self.fault: str | None = None  # why nothing is durable any more
        self._reactor = reactor
        self._files = files
        self._workers = workers
        self._counters = counters
        self._durable: Callable[[list[object]], None] = lambda tokens: None
        self.refuse: Callable[[object, object], None] = lambda token, error: None
        self._listener: Pressure | None = None
        self._ready: list[object] = []  # tokens that wait for nothing
        self._ends: list[Deferred[None]] = []
        self._awaited: dict[Deferred[None], None] = {}

    def listen(self, listener: "Pressure") -> None:
        """Once, before a start."""
        self._listener = listener

    def hand_tokens_to(
        self, durable: Callable[[list[object]], None], refused: Callable[[object, object], None]
    ) -> None:
        self._durable, self.refuse = durable, refused

    def open(self, directory: str, replay: Replay, options: JournalOptions) -> Journal:
        """The next one, in `directory` (`<dir>/current`), where its replay has ended; it writes nothing yet."""
        threaded, spawn = self._workers.threaded, self._workers.spawn
        journal = Journal(self._files, directory, self._reactor, replay, options, self, threaded=threaded, spawn=spawn)
        self.all.append(journal)
        return journal

    def close(self) -> None:
        """After `end`, or a fault: waits for their threads."""
        for journal in self.all:
            journal.join()
        self.all.clear()

    def of(self, ledger: int) -> Journal:
        return self.all[ledger % len(self.all)]

    def awaited(self) -> "tuple[Deferred[None], Callable[[], None]]":
        """For a block on its way: what fires when it is durable, or on a fault; and its `when_synced`."""
        waiting: Deferred[None] = Deferred()
        self._awaited[waiting] = None

        def synced() -> None:
            del self._awaited[waiting]
            waiting.callback(None)

        return waiting, synced

    def give_back(self, token: object) -> None:
        """Gives back a token that waits for nothing, in the next turn."""
        self._ready.append(token)
        if len(self._ready) == 1:
            self._reactor.callLater(0, self._give_ready)

    def _give_ready(self) -> None:
        tokens, self._ready = self._ready, []
        if self.fault is None:
            self._durable(tokens)

    async def end(self) -> None:
        """All end with a mark of a clean stop.  `StorageError`."""
        self._ends = [Deferred() for _ in self.all]
        ends = list(self._ends)
        for journal in self.all:
            journal.end()
        for end in ends:
            await end

    def count(self) -> None:
        counters = self._counters
        if len(self.all) == 1:
            (journal,) = self.all
            counters.journal_groups, counters.journal_syncs = journal.groups, journal.syncs
            counters.journal_bytes, counters.journal_seals = journal.bytes_written, journal.seals
            return
        counters.journal_groups = sum(journal.groups for journal in self.all)
        counters.journal_syncs = sum(journal.syncs for journal in self.all)
        counters.journal_bytes = sum(journal.bytes_written for journal in self.all)
        counters.journal_seals = sum(journal.seals for journal in self.all)

    def group_durable(self, group: Group) -> None:
        if self.fault is not None:
            return
        for call in group.when_synced:
            call()
        self.count()
        if group.tokens:
            self._durable(group.tokens)
        if group.end and self._ends:
            self._ends.pop().callback(None)
        if self._listener is not None:
            self._listener.synced()

    def disk_full_changed(self) -> None:
        if self._listener is not None:
            self._listener.disk_full_changed()

    def journal_failed(self, reason: str) -> None:
        if self.fault is None:
            self.fault = reason
            log.critical("storage: {reason}; nothing is acknowledged any more", reason=reason)
            awaited, self._awaited = self._awaited, {}
            for waiting in awaited:
                waiting.callback(None)
            ends, self._ends = self._ends, []
            for end in ends:
                end.errback(StorageError(reason))
            if self._listener is not None:
                self._listener.failed(reason)


class Pressure:
    """All of it belongs to the reactor thread."""

    def __init__(
        self, journals: Journals, checkpoints: Checkpoints, cache: WriteCache, counters: StorageCounters
    ) -> None:
        self.read_only: str | None = None  # why plain adds are refused
        self.blocked: str | None = None  # why recovery adds are refused as well
        self.closing = False
        self._events = StorageEvents()
        self._journals = journals
        self._checkpoints = checkpoints
        self._cache = cache
        self._counters = counters
        self._parked = False  # a caller was refused for want of room

    def listen(self, events: StorageEvents) -> None:
        self._events = events

    def close(self) -> None:
        """The storage ends: writes are refused, and nothing more is reported."""
        self.closing = True

    def refuse(self, journal: Journal) -> None:
        """No room.  Remembers that a caller was refused, so that `relieved` is called later."""
        self._parked = True
        self._counters.parked += 1
        if journal.backlog_full:
            self.checkpoint_soon()

    def checkpoint_soon(self) -> None:
        if not self._checkpoints.running and self.blocked is None:
            self._checkpoints.run().addErrback(lambda failure: None)  # `checkpoint_ended` sees and logs it

    def checkpoint_ended(self) -> None:
        """One was made, or failed."""
        self.blocked = self._checkpoints.failure or self._checkpoints.blocked
        journals = self._journals.all
        for journal in journals:
            journal.make_room()  # segments may have been given back; `disk_full_changed` sees whether that helped
        if self.blocked is not None or not any(journal.disk_full for journal in journals):
            self._judge_read_only()
        if self._cache.full and self.blocked is None and not self.closing:
            self.checkpoint_soon()
        if self._parked and not self.closing:
            self._relieve()

    # What the journals report

    def synced(self) -> None:
        """A group is durable, and its tokens were handed back."""
        if self._parked:
            self._relieve()

    def disk_full_changed(self) -> None:
        """A journal's disk is full, or not any more.  First a checkpoint is made, if it may free something."""
        if (
            self.blocked is None
            and not self.closing
            and any(journal.disk_full and len(journal.segments) > 1 for journal in self._journals.all)
        ):
            self.checkpoint_soon()
        else:
            self._judge_read_only()

    def failed(self, reason: str) -> None:
        """Nothing is acknowledged any more."""
        self._events.failed(reason)
        if self._parked:
            self._parked = False
            self._events.relieved()

    def _relieve(self) -> None:
        """Refused callers may try again: there is room, or they will be refused for good."""
        journals = self._journals.all
        if self.read_only is None and any(journal.backlog_full for journal in journals):
            self.checkpoint_soon()  # and then again
            return
        if self.read_only is not None or (not self._cache.full and all(journal.has_room for journal in journals)):
            self._parked = False
            self._events.relieved()

    def _judge_read_only(self) -> None:
        """Read-only by a full ledger directory or journal: what is left of room is for fences and recovery."""
        reason = self.blocked or next(
            (journal.disk_full for journal in self._journals.all if journal.disk_full is not None), None
        )
        if reason != self.read_only and not self.closing:
            self.read_only = reason
            if reason is None:
                log.info("storage: writable again")
            else:
                log.error("storage: read-only: {reason}; the journal keeps what was acknowledged", reason=reason)
            self._events.read_only(reason)
            if self._parked:
                self._relieve()
