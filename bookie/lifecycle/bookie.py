"""
One bookie, assembled: identity, storage, service, ports, registration; how it starts, fails and stops.

Order of start: the cluster is there, the port is ours, the cookies fit, the journal is replayed, what may be lacking is
in limbo, the ports open, the bookie is listed.  Clients find it only when it can serve.  Order of a stop: it leaves the
list, the ports close, the storage writes a checkpoint.

Knows: that order.  Does not know: processes, signals, files of configuration.  The metadata store belongs to the
caller, who closes it.

Safety: a bookie that can't do what it is listed for does not linger.  `ended` then fails, and its process must end with
a non-zero status.

Long: the order of a start and that of a stop are one order, read in one place, and each step hands what it made to the
next ones as attributes.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from quire.bookie.admin.apache_metrics import ApacheCollector
from quire.bookie.admin.bookie_paths import Shown, site
from quire.bookie.admin.gate import keys_of, names_of
from quire.bookie.admin.metrics import BookieCollector
from quire.bookie.lifecycle import ids, kept_status, restoring, start_check
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import BookieFailed
from quire.bookie.lifecycle.limbo import Limbo
from quire.bookie.lifecycle.read_only import DiskWatch, ReadOnly
from quire.bookie.lifecycle.registration import Registration
from quire.bookie.lifecycle.suspects import suspects
from quire.bookie.server.admission.lobby import Lobby
from quire.bookie.server.copies import Copies
from quire.bookie.server.listener import Listener
from quire.bookie.server.service import Service
from quire.bookie.server.transport import ListeningReactor
from quire.bookie.storage.journals import StorageEvents
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.garbage import Garbage
from quire.bookie.upkeep.rebuild import LimboMarker, Upkeep
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.conf.bookie import BookieOptions
from quire.conf.version import own_version
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.clock import Reactor
from quire.metadata.store import HOST_PROPERTY, INCARNATION_PROPERTY, TOKEN_PROPERTY, ServiceInfo
from quire.metadata.tree_store import MetadataStore
from quire.metrics.text import Collector, Metrics
from quire.protocol.errors import LedgerError
from quire.rows.files import Files, StorageError
from quire.security import authentication, rights
from quire.security.opening import credentials, http_credentials

# SPDX-License-Identifier: Apache-2.0

SAY_WAITING_S = 1.0  # a registration that takes longer is logged
BACKLOG = 1024  # connections that the kernel holds until they are accepted
PORT_KEY = "bookiePort"
# What a start fails with; the text says what to do.
START_FAILURES = (BookieFailed, ids.IdentityError, StorageError, LedgerError, OSError)

OpenStorage = Callable[[BookieOptions, Reactor, Files], Storage]
StartUpkeep = Callable[[Storage, Reactor, LimboMarker], Upkeep]


def bound_socket(host: str, port: int, key: str) -> socket.socket:
    """A TCP socket that refuses connections until it listens.  `BookieFailed` names the address and the port's key."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as failure:
        made.close()
        raise BookieFailed(
            f"{host}:{port} can't be listened on: {failure.strerror or failure}; {key} sets the port"
        ) from failure
    return made


class Bookie:
    """
    `start` and `stop` return Deferreds; `start` fails with one of `START_FAILURES`, and then leaves nothing open.
    `ended` fires once: with None after a clean stop, with `BookieFailed` when the bookie had to give up.
    """

    log = Logger()

    def __init__(
        self,
        reactor: ListeningReactor,
        options: BookieOptions,
        store: MetadataStore,
        files: Files | None = None,
        storage: OpenStorage = Storage,
        upkeep: StartUpkeep = Upkeep,
        *,
        restore: bool = False,
        shown: Shown = Shown(),
    ) -> None:
        """`restore`: what empty directories held is put in limbo, to be copied by the caller, by `limbo`."""
        self.options = options
        own_version()  # from here on it is what was started
        self.ended: Deferred[None] = Deferred()
        self.id = ""  # known once started
        self.host = ""
        self.port = 0
        self.http_port = 0
        self.serving = False
        self.stopping = False
        self._reactor = reactor
        self._store = store
        self._files = files or Files()
        self._open_storage = storage
        self._start_upkeep = upkeep
        self._restore = restore
        self._shown = shown
        self._storage: Storage | None = None
        self._cookie = Cookie("", "", "")  # what its directories have, or get at the end of a restore
        self._closers: list[Callable[[], object]] = []  # what a stop undoes, latest first
        self._failure: str | None = None
        self._collecting = False

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Stops cleanly; may be called once, whether or not the start came to its end."""
        return Deferred.fromCoroutine(self._stop())

    # -- the start

    async def _start(self) -> None:
        try:
            instance_id = await start_check.cluster_of(self._store, self.options, self._files)
            failed, lost = await self._identify(instance_id)
            self._assemble(instance_id, failed)
            await self._find_limbo(lost)
            await self._open()
            if self._failure is not None:
                raise BookieFailed(self._failure)
        except BaseException as failure:
            await self._undo()
            start_check.explain(self.options, failure)
            raise
        self.log.info("{bookie} serves at {host}:{port}", bookie=self.id, host=self.host, port=self.port)
        if not self.options.asks_clients:
            self.log.info(
                "{bookie} asks no client who it is: whoever reaches its port may read, write and end every ledger "
                "(docs/security.md)",
                bookie=self.id,
            )

    async def _identify(self, instance_id: str) -> tuple[Mapping[str, str], Sequence[str]]:
        """Finds port, id and directories; returns the directories to do without, with reasons, and the lost ones."""
        options = self.options
        self._socket = bound_socket(ids.listening_address(options), options.port, PORT_KEY)
        self._closers.append(self._socket.close)
        self.port = self._socket.getsockname()[1]
        self.host = ids.own_host(options)
        self.id = ids.derive_id(options, self.host, self.port)
        identity = (self._store, options, self.id, instance_id, self._files)
        failed: Mapping[str, str] = {}
        lost: Sequence[str] = ()
        if self._restore:
            lost = await start_check.lost_directories(*identity)
        else:
            failed = start_check.failed_directories(self._files, options)
        if lost:
            self.log.warn(
                "{bookie} has lost {lost}: its ledgers are marked, then copied from other bookies",
                bookie=self.id,
                lost=", ".join(lost),
            )
            await restoring.check_unlisted(self._reactor, self._store, options, self.id)
            self._cookie = await start_check.begin_incarnation(*identity, lost)
            restoring.begin(self._files, options, lost)
        else:
            is_new, self._cookie = await start_check.check(*identity, failed=failed)
            if is_new:
                self.log.info("{bookie} is new to cluster {cluster}", bookie=self.id, cluster=instance_id)
        return failed, lost

    def _assemble(self, instance_id: str, failed: Mapping[str, str]) -> None:
        """Builds each part from parts that exist; the storage replays its journal."""
        options, files, clock = self.options, self._files, self._reactor
        self._credentials = credentials(options, clock.seconds)
        provider, known = authentication.of_bookie(options), rights.rights_of(options)
        access = [
            None if provider is None else authentication.watch(provider, options, clock.seconds),
            None if known is None else rights.watch(known, options, clock.seconds),
        ]
        self._http_credentials = http_credentials(options, clock.seconds)
        try:
            self._keys = keys_of(options, options.journal_directories[0], known if options.rights_file else None)
        except OSError as failure:
            raise BookieFailed(f"no file of a token can be made: {failure}; adminTokenFile names another") from failure
        storage = self._storage = self._open_storage(options, self._reactor, files)
        self.service = Service(clock, options, storage, self.id, self.incarnation)
        self.listener = Listener(
            clock, options, self.service, self._credentials, provider, known, [each for each in access if each]
        )
        self.registration = Registration(self._store, self.id, self._fail)
        self._read_only = ReadOnly(self.id, self.service, self.registration)
        served = self.service
        storage.listen(
            StorageEvents(served.durable, served.refused, served.relieved, self._fail, self._read_only.by_storage)
        )
        self.guard = StoreGuard(
            clock,
            files,
            lambda: [path for path in options.ledger_directories if path not in storage.failed_directories],
            storage,
            self._store,
            self.id,
            instance_id,
            self._count_unknown,
        )
        self.copies = Copies(clock, storage, self.guard)
        self.limbo = Limbo(
            files, options, self.id, storage, partial(suspects, self._store, self.id), self.guard, self.copies
        )
        self._closers.append(self._close_storage)
        self._closers.append(self.guard.stop)
        storage.start(failed)
        upkeep = self.upkeep = self._start_upkeep(storage, self._reactor, self.limbo)
        self.garbage = Garbage(clock, options, files, storage, upkeep.space, self._store, self.guard)
        self._disk_watch = DiskWatch(clock, files, options, storage, self.garbage, self._read_only)
        named: dict[str, Collector] = {
            "quire": BookieCollector(self.service, self.listener, storage.counters, self._gauges),
            "apache": ApacheCollector(clock.seconds, self.service, self.garbage, self._status),
        }
        self.metrics = Metrics(*(named[name] for name in options.metrics_names), *self._shown.collectors)
        self._closers.append(self.garbage.stop)
        self._closers.append(upkeep.stop)  # first, for a round of garbage collection waits for it

    async def _find_limbo(self, lost: Sequence[str]) -> None:
        """Puts what may be lacking into limbo, before a port opens; then gives restored directories their cookies."""
        storage = self._storage
        assert storage is not None
        self.limbo.note_replayed()
        await self.guard.start()
        await self.limbo.find(lost)
        if lost or storage.stale or storage.doubted:
            storage.caught_up()
            restoring.end(self._files, self.options, self._cookie, lost, storage.failed_directories)
            await start_check.end_restore(self._store, self._cookie)
        self.limbo.note_running()

    async def _open(self) -> None:
        """The ports, then the list."""
        options = self.options
        said_before = options.keeps_read_only and kept_status.kept(self._files, options.ledger_directories)
        self._read_only.begin(options.force_read_only, restoring=self.limbo.copying, by_operator=said_before)
        self._disk_watch.look()
        orders = DrainOrders(self._store.records)
        self._read_only.by_order(await orders.stands(self.id))  # before it is listed
        self._closers.append(orders.watch(self.id, self._read_only.by_order).cancel)
        server = site(
            self._reactor,
            self.id,
            names_of(options, self.host, options.http_address.host),
            self._keys,
            self,
            self.garbage,
            self.upkeep,
            self._shown.paths,
            self._http_credentials,
        )
        http = bound_socket(*options.http_address)
        self.http_port = http.getsockname()[1]
        self._listen(self._reactor.adoptStreamPort, http, server, server.abort_all)
        lobby = Lobby(self._reactor)
        self._closers.append(lobby.close)
        self._listen(lobby.adoptStreamPort, self._socket, self.listener, self.listener.close_all)
        listens_at = options.http_address.host
        http_host = self.host if listens_at in ids.ANY_ADDRESS else listens_at
        shared = {INCARNATION_PROPERTY: self.incarnation}
        if options.host_id:
            shared[HOST_PROPERTY] = options.host_id
        if self.token_file is not None:
            shared[TOKEN_PROPERTY] = self.token_file
        info = ServiceInfo.of(
            self.host,
            self.port,
            http=(http_host, self.http_port),
            https=options.http_tls,
            tls=options.tls,
            properties=shared,
        )
        self.serving = True
        self._closers.append(self.registration.stop)
        waiting = self._reactor.callLater(SAY_WAITING_S, self._say_waiting)
        try:
            await self.registration.start(info, self.read_only)
        finally:
            if waiting.active():
                waiting.cancel()
        self.garbage.start()
        self._collecting = True
        if self.guard.is_behind:
            self._count_unknown()
        self._disk_watch.start()
        self._closers.append(self._disk_watch.stop)

    def _count_unknown(self) -> None:
        """A round of garbage collection counts at once, for the operator, what a store that is behind does not know."""
        if self._collecting:
            self.garbage.force(minor=False, major=False)

    def _say_waiting(self) -> None:
        most = self.options.session_timeout_ms / 1000
        self.log.info(
            "{bookie} is still listed by another session; waiting for its end, {most:.0f} s at most",
            bookie=self.id,
            most=most,
        )

    def _listen(self, adopt: Callable[..., Any], bound: socket.socket, factory: Any, end: Callable[[], object]) -> None:
        bound.listen(BACKLOG)
        port = adopt(bound.fileno(), bound.family, factory)
        bound.close()  # the reactor has its own handle
        self._closers.append(end)
        self._closers.append(port.stopListening)

    # -- the end

    async def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping, self.serving = True, False
        await self._undo()
        if not self.ended.called:
            self.ended.callback(None)
        self.log.info("{bookie} has stopped", bookie=self.id)

    async def _undo(self) -> None:
        """Closes what was opened, latest first; a part that can't be closed does not keep the others open."""
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

    async def _close_storage(self) -> None:
        storage, living = self._storage, self.limbo.living
        assert storage is not None
        await storage.close()
        if self._failure is None:
            self.limbo.note_stopped(living)

    # -- what others ask of it

    @property
    def restoring(self) -> bool:
        """True if some ledger in limbo was never looked at; the bookie is listed as read-only so long."""
        return self._read_only.restoring

    def copied(self) -> None:
        """Every ledger in limbo was looked at once, see `Limbo.copied`."""
        self.limbo.copied()
        self._read_only.restored()

    @property
    def ledgers_in_limbo(self) -> int:
        """Ledgers that may lack entries here and wait for copies, without those of failed directories."""
        return self.copies.left

    @property
    def incarnation(self) -> str:
        """The incarnation of its directories (D19); known once started."""
        return self._cookie.incarnation or ""

    @property
    def read_only(self) -> bool:
        return self._read_only.on

    @property
    def read_only_reasons(self) -> list[str]:
        return self._read_only.reasons

    def operator_read_only(self, on: bool) -> str | None:
        """An operator's request, kept if the options say so; the text says why it is refused."""
        refused = self._read_only.by_operator(on)
        if refused is None and self.options.keeps_read_only:
            kept_status.keep(self._files, self.options.ledger_directories, on)
        return refused

    def reload(self) -> None:
        """Reads the files of TLS (for new connections), users and rights (for open ones, too) again."""
        self.listener.reload()
        if self._http_credentials is not None:
            self._http_credentials.files.reload()

    @property
    def token_file(self) -> str | None:
        """The file of the token that opens its HTTP port, once assembled; None: a certificate does."""
        return None if self._keys.admin is None else self._keys.admin.path

    @property
    def directories_lost(self) -> list[str]:
        """The configured ledger directories that have failed since the start, or at it."""
        return self._storage.failed_directories if self._storage is not None else []

    def state(self) -> dict[str, Any]:
        """Returns its state as its HTTP port shows it, with BookKeeper's keys and some more."""
        return {
            "running": self.serving,
            "readOnly": self.read_only,
            "shuttingDown": self.stopping,
            "availableForHighPriorityWrites": self.service.high_priority_writes,
            "readOnlyReasons": self.read_only_reasons,
            "ledgersInLimbo": self.ledgers_in_limbo,
            "directoriesLost": self.directories_lost,
            "metadataStore": self.guard.status(),
            "version": own_version(),
        }

    def _status(self) -> int:
        return self.registration.listed.value

    def _gauges(self) -> list[tuple[str, str, float]]:
        return [
            ("bookie_status", "1 writable, 0 read-only, -1 not registered", self._status()),
            *self.garbage.gauges(),
            ("ledgers_in_limbo", "ledgers that may lack entries here", self.ledgers_in_limbo),
            (
                "metadata_store_behind",
                "1 while the metadata store is behind what was seen of it, so that nothing is deleted",
                int(self.guard.is_behind),
            ),
            (
                "metadata_store_silent_seconds",
                "since the metadata store answered; it is asked every ten seconds",
                self.guard.silent_seconds,
            ),
        ]
