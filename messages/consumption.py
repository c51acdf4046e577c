"""
The progress log of an open store: read by each process, written by the master.

Knows: when it is read, who may write, and what is written how often.
Does not know: keys and values (`progress`), queues, who asks.
Safety: an offset never goes back unless that is asked for; what was committed is stored within `progress_ms`, and at a
close; a kill repeats that time.  What a former master could not store is not committed: its next term begins with what
the log has.
"""

from contextlib import suppress

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.logger import Logger

from quire.log.api import LogReader, Logs, Owner
from quire.messages.descriptor import USE
from quire.messages.progress import END, LONG, Consumed, Progress, offset_key
from quire.metadata.clock import Clock, Timer, pause
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogTrimmed, NotOwner

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RETRY_S = 1.0
GROUP_BYTES_MAX = 255  # as of a topic


class Consumption:
    """Consumer offsets of groups, and the names of documents."""

    def __init__(self, logs: Logs, name: str, interval_s: float) -> None:
        """`name`: of the progress log."""
        self._logs, self._name, self._interval_s = logs, name, interval_s
        self._clock: Clock = logs.bk.reactor
        self._progress = Progress()
        self._reader: LogReader | None = None
        self._reading = DeferredLock()
        self._storing = DeferredLock()  # one at a time: what failed would come behind what is newer
        self._owner: Owner | None = None
        self._owning: Deferred[None] | None = None
        self._changed: dict[Consumed, int] = {}
        self._anew = False  # some of `_progress` is not in the log
        self._due: Timer | None = None
        self._waiting: list[Deferred[None]] = []  # for the ownership

    async def committed(self, consumed: Consumed) -> int | None:
        """The next position that a group consumes; None: it has committed none.  The errors of reading a log."""
        if self._owner is None:
            await self._catch_up()
        return self._progress.offsets.get(consumed)

    async def documents(self) -> dict[str, int]:
        """The size of each document, by name."""
        if self._owner is None:  # else all is known here, and some of it is not in the log yet
            await self._catch_up()
        return dict(self._progress.documents())

    def commit(self, consumed: Consumed, position: int, next_position: int, reset: bool) -> None:
        """`ValueError` for a position that is not there yet; `NotOwner`: another process is master."""
        if self._owner is None:
            raise NotOwner(f"this process does not own the log {self._name!r}: offsets are committed at the master")
        if END in consumed.group.encode() or len(consumed.group.encode()) > GROUP_BYTES_MAX or not consumed.group:
            raise ValueError(f"a consumer group has 1 to {GROUP_BYTES_MAX} bytes, none of them 1")
        if not 0 <= position <= next_position:
            raise ValueError(
                f"position {position} of queue {consumed.queue} of {consumed.topic!r} is not from 0 to its next,"
                f" {next_position}"
            )
        if position == (before := self._progress.offsets.get(consumed, -1)) or (position < before and not reset):
            return
        self._progress.offsets[consumed] = position
        self._changed[consumed] = position
        if self._due is None:
            self._due = self._clock.callLater(self._interval_s, self._store)

    def lead(self) -> None:
        """Begins to own the log, again whenever it is lost; offsets can be committed while it does."""
        if self._owning is None:
            self._owning = Deferred.fromCoroutine(self._own())

    async def owned(self) -> None:
        """Returns once this process owns the log; `NotOwner` where it does not try, or tries no more."""
        if self._owner is None and self._owning is not None:
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            await waiting
        if self._owner is None:
            raise NotOwner(f"this process does not own the log {self._name!r}, nor tries to: the master does")

    def _told(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    async def _own(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._own_once()
            except (LedgerError, ValueError) as error:
                log.warn(
                    "the progress log {name} is not owned, and is tried again: {error}", name=self._name, error=error
                )
            await pause(self._clock, RETRY_S)

    async def _own_once(self) -> None:
        owner, lost = await self._logs.own(self._name, use=USE), Deferred[None]()
        owner.on_lost = lambda: lost.callback(None)
        try:
            await self._storing.acquire()  # what a term before this one stores is in the log by then, or forgotten
            try:
                await self._catch_up()
                self._progress.offsets.update(self._changed)
                self._owner = owner
            finally:
                self._storing.release()
            self._told()
            self._store()
            if not owner.lost:
                await lost
        finally:
            if self._owner is owner:
                self._owner = None
            owner.on_lost = None
            await owner.close()

    def follow(self) -> "Deferred[None]":
        """Stores what was committed, and owns the log no more.  Never fails."""
        return Deferred.fromCoroutine(self._follow())

    async def _follow(self) -> None:
        owning, self._owning = self._owning, None
        owner, self._owner = self._owner, None
        self._told()
        if owner is not None:
            await self._stored(owner)
        elif self._changed:
            self._forget()
        if owning is not None:
            owning.cancel()
            with suppress(CancelledError):
                await owning

    async def close(self) -> None:
        """Ends as `follow`, and reads no more."""
        await self.follow()
        await self._end_reader()

    def _store(self) -> None:
        self._due = None
        if self._owner is not None and self._storing.locked:
            self._due = self._clock.callLater(self._interval_s, self._store)
        elif self._owner is not None:
            Deferred.fromCoroutine(self._stored(self._owner))

    async def _stored(self, owner: Owner) -> None:
        await self._storing.acquire()
        try:
            await self._store_changed(owner)
        finally:
            self._storing.release()

    async def _store_changed(self, owner: Owner) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        owning = self._owning
        changed, self._changed = self._changed, {}
        if not changed:
            return
        try:
            await owner.append_many(
                list(map(LONG.pack, changed.values())), keys=list(map(offset_key, changed)), atomic=False
            )
        except LedgerError as error:
            log.warn("consumer offsets could not be stored in {name}: {error}", name=self._name, error=error)
            if owning is None or self._owning is not owning:  # another master goes on from what the log has
                self._forget()
                return
            self._changed = changed | self._changed
            if self._due is None:
                self._due = self._clock.callLater(self._interval_s, self._store)

    def _forget(self) -> None:
        """Drops what is not in the log: it is not committed, and what is there is read anew."""
        self._changed, self._anew = {}, True

    async def _end_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _catch_up(self) -> None:
        """Applies what the log has by now."""
        await self._reading.acquire()
        try:
            if self._anew:
                self._progress, self._anew = Progress(), False
                await self._end_reader()
            try:
                await self._apply()
            except LogTrimmed:  # behind the reader, which was left alone for long; a new one has what is left of it
                await self._end_reader()
                await self._apply()
        except BaseException:
            await self._end_reader()  # the next one begins anew
            raise
        finally:
            self._reading.release()

    async def _apply(self) -> None:
        if self._reader is None:
            self._reader = await self._logs.read(self._name, compacted=True)
        async for batch in self._reader.batches():
            for key, value in zip(batch.keys, batch.values, strict=True):
                if key is not None:
                    self._progress.apply(key, value)
