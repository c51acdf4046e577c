"""
One bookie, assembled: identity, storage, service, ports, registration; how it starts, turns read-only, fails and stops.

Order of start: the cluster is there, the port is ours, the cookies fit, the journal is replayed, the ports open, the
bookie is listed.  Clients find it only when it can serve.  Order of a stop: it leaves the list, the ports close, the
storage writes a checkpoint.

Knows: that order.  Does not know: processes, signals, files of configuration.  The store is its caller's, who closes
it.

Safety: a bookie that can't do what it is listed for does not linger.  `ended` then fails, and its process must end with
a non-zero status.
"""

import socket
from array import array
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from quire.bookie.admin.bookie_paths import Admin
from quire.bookie.admin.gc_paths import GcPaths
from quire.bookie.admin.http import HttpServer
from quire.bookie.admin.index_paths import IndexPaths, Reindexing
from quire.bookie.admin.metrics import BookieCollector, Metrics
from quire.bookie.directory import notes
from quire.bookie.files import Files, NotBegun, StorageError
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.layout import with_indexes
from quire.bookie.lifecycle import disks, ids, restoring, start_check
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.registration import Registration
from quire.bookie.server.contract import LedgerStorage
from quire.bookie.server.copies import Copies, CopyStorage
from quire.bookie.server.listener import Listener, ListeningReactor
from quire.bookie.server.service import Service
from quire.bookie.storage.journals import StorageEvents
from quire.bookie.upkeep.garbage import Garbage, Reclaiming
from quire.bookie.upkeep.rebuild import LimboMarker
from quire.bookie.upkeep.store_guard import GuardedStorage, StoreGuard
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor
from quire.metadata.store import MetadataStore, ServiceInfo

if TYPE_CHECKING:
    from quire.bookie.lifecycle.descriptors import Descriptors


# SPDX-License-Identifier: Apache-2.0

SAY_WAITING_S = 1.0  # a registration that takes longer is told of
BACKLOG = 1024  # connections that the kernel holds until they are accepted
FORCED, OPERATOR, DISK, STORAGE, RESTORING = "forceReadOnlyBookie", "operator", "disk", "storage", "restoring"


class BookieFailed(Exception):
    """The bookie can't go on, or could not start.  The text says what to do where anything can be done."""


class OpenableStorage(LedgerStorage, CopyStorage, GuardedStorage, Protocol):
    """A storage as the bookie opens and closes it."""

    counters: Any

    def stored_ledgers(self) -> "Deferred[array[int]]": ...

    def flush(self) -> Deferred[None]: ...

    @property
    def stale(self) -> list[str]:
        """
        Ledger directories that failed in an earlier run; what they missed must be put in limbo before `caught_up`.
        """
        ...

    def listen(self, events: StorageEvents) -> None:
        """Once, before `start`."""
        ...

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        """
        Blocks: replays the journal.  `dead`: ledger directories that it must do without, and why.  Raises
        `StorageError`.
        """
        ...

    def caught_up(self) -> None: ...

    def mark_limbo(self, rows: Mapping[int, LedgerRow]) -> Coroutine[Any, Any, None]: ...

    @property
    def replay_found_limbo(self) -> bool: ...

    @property
    def failed_directories(self) -> list[str]:
        """The configured ledger directories that have failed."""
        ...

    def fail_directory(self, path: str, reason: str) -> bool:
        """A ledger directory's disk has failed; False when nothing can go on without it."""
        ...

    def close(self) -> Deferred[None]: ...


class StorageListener:
    """A storage's events: the service answers requests, the bookie turns read-only or ends."""

    def __init__(
        self, service: Service, failed: Callable[[str], None], read_only: Callable[[str | None], None]
    ) -> None:
        self.durable, self.relieved = service.durable, service.relieved
        self.failed, self.read_only = failed, read_only


class Upkeep(Protocol):
    """What runs beside requests; it stops before the storage closes."""

    @property
    def space(self) -> Reclaiming: ...

    @property
    def rebuild(self) -> Reindexing: ...

    def stop(self) -> Coroutine[Any, Any, None]:
        """Ends what a round of garbage collection may wait for."""
        ...


OpenStorage = Callable[[BookieOptions, Reactor, Files], OpenableStorage]
StartUpkeep = Callable[[OpenableStorage, Reactor, LimboMarker], Upkeep]


def open_storage(
    options: BookieOptions, reactor: Reactor, files: Files, descriptors: "Descriptors | None" = None
) -> OpenableStorage:
    """The real storage."""
    from quire.bookie.index.rocks import RocksRows
    from quire.bookie.storage.storage import Storage

    if descriptors is None:
        return Storage(options, reactor, files)
    return Storage(
        options,
        reactor,
        files,
        open_rows=partial(RocksRows, files_max=descriptors.store),
        logs_open_max=descriptors.logs,
    )


def start_upkeep(storage: OpenableStorage, reactor: Reactor, limbo: LimboMarker) -> Upkeep:
    """That of the real storage."""
    from quire.bookie.storage.storage import Storage
    from quire.bookie.upkeep.upkeep import Upkeep

    return Upkeep(cast(Storage, storage), reactor, limbo)


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that has its port and refuses connections until it listens.  `BookieFailed` names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as failure:
        made.close()
        raise BookieFailed(f"{host}:{port} can't be listened on: {failure.strerror or failure}") from failure
    return made


class Bookie:
    """
    `start` and `stop` give Deferreds; `start` fails with `BookieFailed`, `IdentityError`, `StorageError` or what the
    store says, and then leaves nothing open.  `ended` fires once: with None after a clean stop, with `BookieFailed`
    when the bookie had to give up.
    """

    log = Logger()

    def __init__(
        self,
        reactor: ListeningReactor,
        options: BookieOptions,
        store: MetadataStore,
        files: Files | None = None,
        storage: OpenStorage = open_storage,
        upkeep: StartUpkeep = start_upkeep,
        *,
        restore: bool = False,
    ) -> None:
        """
        `restore`: directories that are empty now were lost; what lay on them is put in limbo, to be copied by whoever
        started the bookie.
        """
        self.options = options
        self.ended: Deferred[None] = Deferred()
        self.id = ""  # known once started
        self.host = ""
        self.port = 0
        self.http_port = 0
        self.serving = False
        self.stopping = False
        # ledgers came to be in limbo while the bookie serves: somebody should copy what they lack
        self.limbo_grew: Callable[[], None] = lambda: None
        self._reactor = reactor
        self._clock = reactor
        self._store = store
        self._files = files or Files()
        self._open_storage = storage
        self._start_upkeep = upkeep
        self._restore = restore
        self._reasons: dict[str, str] = {}  # kind -> why the bookie is read-only
        self._storage: OpenableStorage | None = None
        self._closers: list[Callable[[], object]] = []  # what a stop undoes, latest first
        self._disk_watch: LoopingCall | None = None
        self._nearly_full: frozenset[str] = frozenset()
        self._failure: str | None = None
        self._running_noted = False

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Stops cleanly; may be called once, whether or not the start came to its end."""
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        try:
            await self._prepare()
            await self._open()
            if self._failure is not None:
                raise BookieFailed(self._failure)
        except BaseException:
            await self._undo()
            raise
        self.log.info("{bookie} serves at {host}:{port}", bookie=self.id, host=self.host, port=self.port)

    async def _prepare(self) -> None:
        """Everything that must hold before a port opens."""
        options = self.options
        cluster = await self._store.cluster()
        self._socket = bound_socket(ids.listening_address(options), options.port)
        self._closers.append(self._socket.close)
        self.port = self._socket.getsockname()[1]
        self.host = ids.own_host(options)
        self.id = ids.derive_id(options, self.host, self.port)
        failed = {} if self._restore else start_check.failed_directories(self._files, options)
        lost = (
            await start_check.lost_directories(self._store, options, self.id, cluster.instance_id, self._files)
            if self._restore
            else []
        )
        if lost:
            self.log.warn(
                "{bookie} has lost {lost}: its ledgers are marked, then copied from other bookies",
                bookie=self.id,
                lost=", ".join(lost),
            )
            restoring.begin(self._files, options, lost)
        elif await start_check.check(self._store, options, self.id, cluster.instance_id, self._files, failed=failed):
            self.log.info("{bookie} is new to cluster {cluster}", bookie=self.id, cluster=cluster.instance_id)
        storage = self._storage = self._open_storage(options, self._reactor, self._files)
        self.service = Service(self._clock, options, storage, self.id)
        storage.listen(StorageListener(self.service, self._fail, lambda reason: self._set_read_only(STORAGE, reason)))
        self.listener = Listener(self._clock, options, self.service)
        self.guard = StoreGuard(
            self._clock,
            self._files,
            lambda: self._living.ledger_directories,
            storage,
            self._store,
            self.id,
            cluster.instance_id,
        )
        self.copies = Copies(self._clock, storage, self.guard)
        self._closers.append(lambda: Deferred.fromCoroutine(self._close_storage(storage)))
        self._closers.append(lambda: Deferred.fromCoroutine(self.guard.stop()))
        storage.start(failed)
        upkeep = self._upkeep = self._start_upkeep(storage, self._reactor, self)
        self.garbage = Garbage(self._clock, options, self._files, storage, upkeep.space, self._store, self.guard)
        self._closers.append(lambda: Deferred.fromCoroutine(self.garbage.stop()))
        # first, for a round of garbage collection waits for it
        self._closers.append(lambda: Deferred.fromCoroutine(upkeep.stop()))
        # before a checkpoint takes it out of the journal
        if storage.replay_found_limbo and notes.noted_limbo(self._files, self._living) is None:
            notes.note_limbo(self._files, self._living, notes.COPYING)
        await self.guard.start()
        boot = self._files.boot_id()
        # first, for then it is not what is on the lost disks alone
        if notes.unclean(self._files, self._living, boot, storage.stale):
            self.log.warn(
                "{bookie} does not sync its journal and the machine went down: its ledgers are marked as incomplete",
                bookie=self.id,
            )
            await self._mark(storage, restoring.Lost.all_of(options))
        elif lost or storage.stale:
            await self._mark(storage, restoring.Lost.of(options, [*lost, *storage.stale]))
        if lost or storage.stale:
            storage.caught_up()
            cookie = Cookie.expected(options, self.id, cluster.instance_id)
            start_check.stamp(self._files, options, cookie, with_indexes(options, storage.failed_directories))
            notes.forget_restoring(self._files, [path for path in lost if path not in storage.failed_directories])
        if self.incomplete:
            self.copies.limbo()  # read once here, so that nobody has to who asks how many there are
        else:
            self.copies.whole()
        notes.note_running(self._files, self._living, boot)
        self._running_noted = True

    async def _mark(self, storage: OpenableStorage, lost: restoring.Lost) -> None:
        """Puts in limbo what the bookie may have lost, durably.  Not by a store that does not know all of it."""
        self._check_knows_all()
        notes.note_limbo(self._files, self._living, notes.COPYING)
        marked = 0
        async for rows in restoring.suspects(self._store, self.id, lost):
            await storage.mark_limbo(rows)
            marked += sum(row.limbo for row in rows.values())
        await self.guard.look()
        self._check_knows_all()
        await storage.mark_limbo({})  # writes the marks of the directories also where there was nothing to mark
        self.log.warn(
            (
                "{bookie}: {count} ledgers may lack entries here; it says of them what it has, and never that there is "
                "no more"
            ),
            bookie=self.id,
            count=marked,
        )

    def _check_knows_all(self) -> None:
        if (reason := self.guard.behind) is not None:
            raise BookieFailed(
                f"{self.id} may have lost entries, and can't learn from the metadata store of which ledgers: {reason}"
            )

    async def _close_storage(self, storage: OpenableStorage) -> None:
        living = self._living
        await storage.close()
        if self._running_noted and self._failure is None:
            notes.note_running(self._files, living, None)

    @property
    def _living(self) -> BookieOptions:
        """The options without the ledger directories that have failed: notes are kept in the others."""
        lost = self.directories_lost
        return self.options.model_copy(
            update={"ledger_directories": tuple(path for path in self.options.ledger_directories if path not in lost)}
        )

    async def _open(self) -> None:
        """The ports, then the list."""
        options = self.options
        if options.force_read_only:
            self._reasons[FORCED] = "forceReadOnlyBookie is set"
        if notes.noted_limbo(self._files, self._living) == notes.COPYING:
            self._reasons[RESTORING] = "what it may have lost is being copied from other bookies"
        self._look_at_disks()
        self.registration = Registration(self._store, self.id, self._fail)
        assert self._storage is not None
        self._metrics = Metrics(BookieCollector(self.service, self.listener, self._storage.counters, self._gauges))
        server = HttpServer(
            self._clock, Admin(self, GcPaths(self.garbage, self.id), IndexPaths(self._upkeep.rebuild)).serve, self.id
        )
        http = bound_socket(options.metrics_host, options.metrics_port)
        self.http_port = http.getsockname()[1]
        self._listen(http, server, server.abort_all)
        self._listen(self._socket, self.listener, self.listener.close_all)
        http_host = self.host if options.metrics_host in ids.ANY_ADDRESS else options.metrics_host
        info = ServiceInfo.of(self.host, self.port, http=(http_host, self.http_port))
        self.serving = True
        self._closers.append(lambda: Deferred.fromCoroutine(self.registration.stop()))
        waiting = self._clock.callLater(SAY_WAITING_S, self._say_waiting)
        try:
            await self.registration.start(info, self.read_only)
        finally:
            if waiting.active():
                waiting.cancel()
        self.garbage.start()
        self.guard.noticed = self._store_behind
        if self.guard.is_behind:
            self._store_behind()
        self._disk_watch = LoopingCall(self._look_at_disks)
        self._disk_watch.clock = cast(IReactorTime, self._reactor)
        self._disk_watch.start(options.disk_check_interval_ms / 1000, now=False)
        self._closers.append(self._stop_disk_watch)

    def _store_behind(self) -> None:
        """What the store does not know is counted at once, for the operator."""
        self.garbage.force(minor=False, major=False)

    def _say_waiting(self) -> None:
        most = self.options.session_timeout_ms / 1000
        self.log.info(
            "{bookie} is still listed by another session; waiting for its end, {most:.0f} s at most",
            bookie=self.id,
            most=most,
        )

    def _listen(self, bound: socket.socket, factory: Any, end: Callable[[], object]) -> None:
        bound.listen(BACKLOG)
        port = self._reactor.adoptStreamPort(bound.fileno(), bound.family, factory)
        bound.close()  # the reactor has its own handle of it
        self._closers.append(end)
        self._closers.append(port.stopListening)

    async def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        self.serving = False
        await self._undo()
        if not self.ended.called:
            self.ended.callback(None)
        self.log.info("{bookie} has stopped", bookie=self.id)

    async def _undo(self) -> None:
        """Closes what was opened, latest first; a part that can't be closed doesn't keep the others open."""
        self.serving = False
        while self._closers:
            close = self._closers.pop()
            try:
                await maybeDeferred(close)
            except (OSError, StorageError) as failure:
                self.log.error("closing {bookie}: {reason}", bookie=self.id or "the bookie", reason=str(failure))

    def _fail(self, reason: str) -> None:
        """A fault that ends the bookie.  Nothing more is acknowledged: the connections end at once."""
        if self.stopping:
            self.log.error("while stopping: {reason}", reason=reason)
            return
        self.log.critical("{bookie} gives up: {reason}", bookie=self.id, reason=reason)
        self._failure = reason
        self.stopping = True
        self.serving = False
        for connection in list(self.listener.connections):
            connection.abort()
        undone = Deferred.fromCoroutine(self._undo())
        undone.addBoth(lambda _: self.ended.errback(BookieFailed(reason)))

    # -- coming back after a loss

    @property
    def incomplete(self) -> bool:
        """Whether some ledgers are in limbo, so that somebody should copy what they lack, by `copies`."""
        return notes.noted_limbo(self._files, self._living) is not None

    @property
    def restoring(self) -> bool:
        """Whether some ledger in limbo was never looked at; the bookie is listed as read-only so long."""
        return RESTORING in self._reasons

    async def mark_incomplete(self, rows: Mapping[int, LedgerRow]) -> None:
        """Ledgers may lack something here that was here before."""
        assert self._storage is not None
        # at once: neither may `copied` say in between that none is left, nor may the limbo of one end
        self.copies.add(rows)
        if notes.noted_limbo(self._files, self._living) != notes.COPYING:
            notes.note_limbo(self._files, self._living, notes.COPYING)
        await self._storage.mark_limbo(rows)
        self.log.warn("{bookie}: {count} ledgers may lack entries here now", bookie=self.id, count=len(rows))

    def ready_to_copy(self) -> None:
        """What is in limbo now can be compared with other bookies."""
        self.copies.decided()
        self.limbo_grew()

    def copied(self) -> None:
        """
        Every ledger in limbo was looked at once; those that are left wait for their writer or for another bookie.
        `OSError`.
        """
        notes.note_limbo(self._files, self._living, notes.WAITING if self.copies.limbo() else None)
        self._set_read_only(RESTORING, None)

    # -- read-only

    @property
    def read_only(self) -> bool:
        return bool(self._reasons)

    @property
    def read_only_reasons(self) -> list[str]:
        return list(self._reasons.values())

    @property
    def high_priority_writes(self) -> bool:
        return self.service.high_priority_writes

    def metrics_text(self) -> bytes:
        return self._metrics.text()

    def _gauges(self) -> list[tuple[str, str, float]]:
        return [
            ("bookie_status", "1 writable, 0 read-only, -1 not registered", self.registration.listed.value),
            *self.garbage.gauges(),
            ("ledgers_in_limbo", "ledgers that may lack entries here", self.ledgers_in_limbo),
            (
                "metadata_store_behind",
                "1 while the metadata store is behind what was seen of it, so that nothing is deleted",
                int(self.guard.is_behind),
            ),
        ]

    @property
    def ledgers_in_limbo(self) -> int:
        """Ledgers that may lack entries here and wait for copies; those of failed directories left out."""
        return self.copies.left

    @property
    def metadata_store(self) -> dict[str, Any]:
        """How far the metadata store had come, as this bookie has seen it, and whether it is behind that."""
        return self.guard.status()

    @property
    def directories_lost(self) -> list[str]:
        """The configured ledger directories that have failed since the start, or at it."""
        return self._storage.failed_directories if self._storage is not None else []

    def operator_read_only(self, on: bool) -> str | None:
        """An operator's wish; it stays until the operator takes it back or the bookie restarts."""
        if not on and FORCED in self._reasons:
            return "forceReadOnlyBookie is set in the configuration; take it out and restart the bookie"
        self._set_read_only(OPERATOR, "an operator said so" if on else None)
        return None

    def _set_read_only(self, kind: str, reason: str | None) -> None:
        before = self.read_only
        if reason is None:
            self._reasons.pop(kind, None)
        else:
            self._reasons[kind] = reason
        self.service.read_only = bool(self._reasons.keys() - {RESTORING})  # limbo itself refuses what must not be taken
        if before == self.read_only:
            return
        if self.read_only:
            self.log.warn(
                "{bookie} is read-only now: {reason}", bookie=self.id, reason="; ".join(self._reasons.values())
            )
        else:
            self.log.info("{bookie} is writable again", bookie=self.id)
        if self.serving:
            self.registration.switch(self.read_only)

    def _look_at_disks(self) -> None:
        try:
            found = disks.look(self._files, self.options)
        except NotBegun as failure:
            self.log.warn("the disks could not be looked at: {reason}", reason=str(failure))
            return
        nearly_full = frozenset(directory for directory, _ in found.nearly_full)
        for directory, used in found.nearly_full:
            if directory not in self._nearly_full:
                self.log.warn("{directory} is {used:.1%} full (diskUsageWarnThreshold)", directory=directory, used=used)
        if nearly_full - self._nearly_full:
            self.garbage.under_pressure()
        self._nearly_full = nearly_full
        self.service.high_priority_writes = found.room_for_recovery
        if self._storage is not None and self.serving:
            found = found.without(
                [directory for directory, why in found.broken if self._storage.fail_directory(directory, why)]
            )
        self._set_read_only(DISK, found.reason)

    def _stop_disk_watch(self) -> None:
        if self._disk_watch is not None and self._disk_watch.running:
            self._disk_watch.stop()
