"""
The driver of a replica's machine: performs its effects on the log, its snapshots and the user's machine, and feeds it
what comes of them.

Knows: which operation answers which effect of `core.machine.applying`.
Does not know: what that machine decides, what the user's computes; who proposes and reads (`replica`).

Safety: what is applied was readable, or was acknowledged to this process's owner.  An exception out of the machine, or
of an effect, ends the replica before any caller sees more of it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.api import Client
from quire.client.core.machine import OrderedDriver, Performer, begins, performs
from quire.log.core.machine import applying_messages as m
from quire.log.core.machine.applying import UNAPPLIED_BYTES_MAX, Applying, State
from quire.log.core.machine.applying_messages import Ends, Given, Grown, Input, Read, ReadFailed, Trimmed
from quire.log.core.machine.snapshots import newest
from quire.log.machine.applier import Acknowledged, Applier
from quire.log.machine.machines import Machine, is_awaited, pieces_of
from quire.log.machine.snapshots import DAMAGE, SnapshotWriter, read_snapshot
from quire.log.machine.standing import Own, Standing
from quire.log.owner.appending.appends import Batch
from quire.log.reader import views
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.log.store.context import LogContext
from quire.log.upkeep.keeping import KeptOwner
from quire.metadata.clock import Timer
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import LogDamaged, LogError, LogTrimmed, NoSuchLog, SegmentLost, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

EVER_S = 1e9

Feed = Callable[[Input], None]
Room = Callable[[], Awaitable[None]]
FINAL = (NoSuchLog, SegmentLost, LogDamaged, UnknownFormat, ClientClosed)


class Following:
    """One way of following, from `read` or `rest` to `stop`.  `room()`: a Deferred while it is to wait, or None."""

    def __init__(self, client: Client, view: LogView, read_ahead_bytes: int) -> None:
        self._client = client
        self._view = view
        self._read_ahead_bytes = read_ahead_bytes
        self._reader: LogReader | None = None
        self._ended = False

    def _has_ended(self) -> bool:
        return self._ended

    async def read(self, index: int, feed: Feed, room: Room) -> None:
        """All records from an index on."""
        try:
            end = (await views.end(self._client, self._view)).index
            if self._has_ended():
                return
            feed(Ends(end))
            self._reader = LogReader(self._client, self._view, index, self._read_ahead_bytes)
            async with aclosing(self._reader.tail(EVER_S)) as batches:
                async for batch in batches:
                    if self._has_ended():
                        return
                    size = sum(map(len, batch.values))
                    feed(Read(Given(batch.index, batch.count, size, batch)))
                    await room()
        except LogTrimmed:
            if not self._ended:
                feed(Trimmed())
        except LedgerError as error:
            if not self._ended:
                feed(ReadFailed(error, isinstance(error, FINAL)))

    async def rest(self, feed: Feed) -> None:
        """Only how far closed segments reach."""
        manifest = await self._view.manifest()
        while not self._has_ended():
            feed(Grown(manifest.closed_end[0]))
            try:
                manifest = await self._view.newer(manifest, EVER_S, soon=False, has_ended=self._has_ended)
            except LedgerError as error:
                if not self._ended:
                    feed(ReadFailed(error, isinstance(error, FINAL)))
                return

    def stop(self) -> None:
        """Nothing more is heard of it."""
        self._ended = True
        if self._reader is not None:
            Deferred.fromCoroutine(self._reader.close()).addErrback(lambda _failure: None)
        else:
            self._view.wake()


log = Logger()

RETRY_S = 1.0
CLOSE_S = 2.0  # that the end of a snapshot under way may take


class ReplicaDriver(Performer, OrderedDriver[m.Input, m.Effect]):
    """One replica's machine, from `live` to `close`.  `changed` fires at its next state or role."""

    def __init__(
        self, context: LogContext, name: str, view: LogView, make: Callable[[], Machine], own: Own | None
    ) -> None:
        self.machine = Applying(name, context.options.snapshot_records)
        super().__init__(self.machine, self, self._ended_by)
        self.applier = Applier(name, context.client.reactor, self.feed)
        self.standing = own and Standing(context.client.reactor, own, self._led, self._lost, self._acknowledged)
        self.asked: list[Deferred[int]] = []  # for a snapshot, the next one
        self.name = name
        self.context = context
        self.view = view
        self._clock = context.client.reactor
        self._make = make
        self._told = self.machine.state, self.machine.role
        self._snapshots = SnapshotWriter(context)
        self._following = self._new_following()
        self._timer: Timer | None = None
        self._saving: Deferred[None] = succeed(None)
        self._awaited: list[Deferred[None]] = []  # another state or role
        self._room: Deferred[None] | None = None  # fires when the reader may go on

    async def live(self) -> None:
        """Begins; over when all is applied that the log had when reading began, or with the error of the machine."""
        self.feed(m.Begin())
        if self.standing is not None:
            self._run(self.standing.run())
        while self.machine.state in (State.LOADING, State.REPLAYING):
            await self.changed()
        if self.machine.error is not None:
            raise self.machine.error
        await self.applier.reached(self.machine.end)

    async def close(self) -> None:
        """Where it leads, what was proposed is stored and applied, and the log given back."""
        await self._leave()
        self.feed(m.Close())
        self._snapshots.close()
        with suppress(TimeoutError):  # the orphan finder knows what is left
            await self._saving.addTimeout(CLOSE_S, cast(IReactorTime, self._clock))

    async def _leave(self) -> None:
        if self.standing is not None:
            await self.standing.close()

    def changed(self) -> "Deferred[None]":
        """Fires when the state or the role is another one; not if it is cancelled."""
        changed: Deferred[None] = Deferred(self._awaited.remove)
        self._awaited.append(changed)
        return changed

    def closed(self) -> ClientClosed:
        """The error of whoever still waits at the close."""
        return ClientClosed(f"this replica of the log {self.name!r} was closed")

    # -- the machine -----------------------------------------------------------------------------------------------

    def feed(self, given: m.Input) -> None:
        """Hands an input to the machine and performs what follows, between two records that are applied."""
        if self.applier.is_applying:
            self._inputs.append(given)
            return
        super().feed(given)
        if self.performing:
            return
        self._tell()
        self.context.log.counters.applied_index = self.applier.applied
        if self._room is not None and self.machine.unapplied <= UNAPPLIED_BYTES_MAX:
            room, self._room = self._room, None
            room.callback(None)

    def _tell(self) -> None:
        """Answers those who wait for another state or role."""
        now = self.machine.state, self.machine.role
        if now == self._told:
            return
        self._told = now
        awaited, self._awaited = self._awaited, []
        for each in awaited:
            each.callback(None)

    def _run(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        """Fires when it has ended; what it raises is a bug, which ends the replica."""
        return Deferred.fromCoroutine(work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if self.dead:  # by another bug
            log.failure("a replica of the log {name} failed again", failure, name=self.name)
        else:
            assert failure.value is not None
            self.poison(failure.value)

    def _ended_by(self, bug: BaseException) -> None:
        """Ends the replica after a bug, and answers those who wait."""
        failure = Failure(bug)  # type: ignore[no-untyped-call]  # Twisted's has no annotations
        log.failure("a replica of the log {name} failed", failure, name=self.name)
        if self.machine.state is State.OUT:
            return
        error = LogError(
            f"this replica of the log {self.name!r} has ended, begin another one: a bug, which this program's log "
            f"tells: {bug}"
        )
        for effect in self.machine.stopped_by(error):
            self.perform(effect)
        self._tell()

    def _end(self, reason: str) -> None:
        self.feed(
            m.ReadFailed(
                LogError(f"this replica of the log {self.name!r} has ended, begin another one: {reason}"), final=True
            )
        )

    # -- loading ---------------------------------------------------------------------------------------------------

    @begins(m.Look)
    async def _look(self, _effect: m.Look) -> None:
        self._follow_anew()
        self.applier.forget()
        try:
            manifest = await self.view.fresh()
        except LedgerError as error:
            self.feed(m.ReadFailed(error, isinstance(error, LogError)))
            return
        self.feed(m.Listed(manifest.snapshots, manifest.begin.index))

    @begins(m.Load)
    async def _load(self, effect: m.Load) -> None:
        snapshot = effect.snapshot
        if snapshot is None:
            machine = self._made()
            if machine is not None:
                self._begin(machine, 0)
            return
        try:
            data = await read_snapshot(self.context, snapshot)
            machine = self._made()
            if machine is None:
                return
            load: Callable[[Iterable[bytes]], object] = machine.load
            loaded = type(load(data))
        except Exception as error:
            known = isinstance(error, LedgerError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            log.warn("a snapshot of the log {name} can't be loaded: {reason}", name=self.name, reason=reason)
            self.feed(m.LoadFailed(snapshot.ledger, reason, not known or isinstance(error, DAMAGE)))
            return
        if is_awaited(loaded):
            self._end(f"load() of its machine gave a {loaded.__name__}, which nobody awaits")
            return
        self._begin(machine, snapshot.index)

    def _made(self) -> Machine | None:
        """A fresh machine; None: there can be none, which is no snapshot's fault, and the replica ends."""
        try:
            machine = self._make()
        except Exception as error:
            self._end(f"what makes its machine raised {type(error).__name__}: {error}")
            return None
        for name in ("apply", "save", "load"):
            method = getattr(machine, name, None)
            if not callable(method):
                self._end(f"what makes its machine gave {machine!r}, which has no {name}()")
                return None
            if iscoroutinefunction(method):
                self._end(f"{name}() of its machine is an async function, and nobody would await what it gives")
                return None
            if name != "save" and isgeneratorfunction(method):
                self._end(f"{name}() of its machine is a generator function, and nobody would run what it gives")
                return None
        return machine

    def _begin(self, machine: Machine, index: int) -> None:
        if self.machine.state is State.LOADING:
            self.applier.begin(machine, index)
            self.feed(m.Loaded(index))

    # -- following -------------------------------------------------------------------------------------------------

    def _new_following(self) -> Following:
        return Following(self.context.client, self.view, self.context.options.read_ahead_bytes)

    def _follow_anew(self) -> Following:
        self._following.stop()
        self._following = self._new_following()
        return self._following

    @performs(m.ReadFrom)
    def _read_from(self, effect: m.ReadFrom) -> None:
        self._run(self._follow_anew().read(effect.index, self.feed, self._has_room))

    @performs(m.Rest)
    def _rest(self, _effect: m.Rest) -> None:
        self._run(self._follow_anew().rest(self.feed))

    def _has_room(self) -> "Deferred[None]":
        if self.machine.unapplied <= UNAPPLIED_BYTES_MAX:
            return succeed(None)
        self._room = Deferred()
        return self._room

    @performs(m.Apply)
    def _apply(self, effect: m.Apply) -> None:
        self.applier.apply(effect.given, effect.skip)

    # -- leading ---------------------------------------------------------------------------------------------------

    def _led(self, owner: KeptOwner) -> None:
        known = owner.records.known
        assert known is not None
        self.feed(m.Leads(owner.epoch, owner.end.index, newest(known.value)))

    def _lost(self) -> None:
        self.feed(m.Follows())

    def _acknowledged(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            count = len(batch.records.lengths)
            if count and not batch.barrier:
                self.feed(m.Own(m.Given(batch.placed.first, count, batch.stored.size, Acknowledged(batch))))

    @performs(m.GiveBack)
    def _give_back(self, _effect: m.GiveBack) -> None:
        assert self.standing is not None
        self.standing.give_back()

    @performs(m.Play)
    def _play(self, effect: m.Play) -> None:
        hear = getattr(self.applier.machine, "role", None)
        if hear is not None:
            try:
                hear(effect.role, effect.epoch)
            except Exception as error:
                self._end(f"its state machine raised {type(error).__name__} at its role: {error}")

    # -- the rest --------------------------------------------------------------------------------------------------

    @performs(m.Save)
    def _save(self, _effect: m.Save) -> None:
        asked, self.asked = self.asked, []
        machine, index, began = self.applier.machine, self.applier.applied, self._clock.seconds()
        assert machine is not None

        async def work() -> None:
            try:
                known = await self.view.manifest()
                name = str(getattr(machine, "name", type(machine).__name__))
                found = await self._snapshots.write(data, index, known.epoch, name)
            except Exception as error:
                self._save_failed(asked, error)
                return
            self.context.log.counters.snapshot_seconds.observe(self._clock.seconds() - began)
            for each in asked:
                each.callback(found)
            self.feed(m.Saved(found))

        try:
            data = pieces_of(machine.save(), "save() gives")
        except Exception as error:
            self._save_failed(asked, error)
            return
        self._saving = self._run(work())

    def _save_failed(self, asked: list[Deferred[int]], error: Exception) -> None:
        if isinstance(error, CancelledError):  # by the close, which could not wait for it
            error = self.closed()
        if not isinstance(error, ClientClosed):
            log.warn("no snapshot of the log {name} was made: {error!r}", name=self.name, error=error)
        for each in asked:
            each.errback(error)
        self.feed(m.SaveFailed())

    @performs(m.Wait)
    def _wait(self, effect: m.Wait) -> None:
        log.warn("the replica of the log {name} waits: {reason}", name=self.name, reason=effect.reason)
        seconds = RETRY_S * self.context.client.random.uniform(0.5, 1.5)
        self._timer = self._clock.callLater(seconds, lambda: self.feed(m.Again()))

    @performs(m.Complain)
    def _complain(self, effect: m.Complain) -> None:
        log.warn("{text}", text=effect.text)

    @performs(m.Stop)
    def _stop(self, effect: m.Stop) -> None:
        self._following.stop()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        error = effect.error or self.closed()
        self.applier.end(error)
        asked, self.asked = self.asked, []
        for each in asked:
            each.errback(error)
        if effect.error is not None:
            log.error("{error}", error=str(error))
            self._run(self._leave())
