"""
The processes of a simulated cluster: bookies and clients, made of the real code.

A bookie is the real storage on a simulated disk, the real service, connections, identity and registration.  A client is
the real client on the simulated network.  Only what touches the machine is replaced: files, RocksDB, sockets, threads,
time.
"""

from collections.abc import Callable, Mapping, Sequence
from errno import EIO
from random import Random
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed

from quire.bookie.directory import notes
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import index_path
from quire.bookie.journal.format import segment_start
from quire.bookie.layout import EXTENT, MARK, current
from quire.bookie.lifecycle import restoring, start_check
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.read_only import ReadOnly
from quire.bookie.lifecycle.registration import Registration
from quire.bookie.lifecycle.suspects import Lost, suspects
from quire.bookie.logs.format import log_name
from quire.bookie.server.contract import Own
from quire.bookie.server.copies import Copies
from quire.bookie.server.listener import Listener
from quire.bookie.server.service import Service
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.garbage import Garbage
from quire.bookie.upkeep.rebuild import Upkeep
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.client.api import Client
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.formats import repair_text
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.memory.tree import Nodes
from quire.metadata.repair_queue import Shortage
from quire.metadata.store import INCARNATION_PROPERTY, Cluster, ServiceInfo, Versioned
from quire.metadata.tree import Check, Done, NoNode, SessionId, Step
from quire.protocol.availability import runs_of
from quire.protocol.errors import MetadataVersion, MetaStore, NoSuchLedgerExistsOnMetadataServer, Status
from quire.protocol.messages import AddRun, Read
from quire.replication.own_copies import restore
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Events
from tests.metadata import stored
from tests.metadata.stored import AVAILABLE, LOCKS, PATHS, QUEUE, SHORT, cookies, decoded, ledger_of, meaning
from tests.simulation.disk import Inode, SimDisk
from tests.simulation.network import Network
from tests.simulation.timeline import Process, Timeline
from tests.simulation.truth import REPAIRER, Truth

T = TypeVar("T")
PORT = 3181
FOREIGN = 1 << 40  # the one ledger of another cluster
ODD_PART = 0.15  # of the failures of the store: an answer that nobody can read, after which the session is a new one
KIB = 1 << 10

BASE = BookieOptions(
    metadata_uri="memory://simulation",
    journal_directories=("/journal",),
    ledger_directories=("/ledgers",),
    allow_loopback=True,
)
# Far below what the options allow a user, so that segments roll, caches fill and checkpoints run within a few hundred
# entries.
SMALL = {
    "journal_segment_bytes": 16 * KIB,
    "write_cache_bytes_max": 16 * KIB,
    "entry_log_bytes_max": 16 * KIB,
    "journal_queue_bytes_max": 2 * KIB,
}
LATE_NEWS = 0.7  # how many events come late, where they do


class World:
    """What all processes share."""

    def __init__(self, seed: int, latency: float, jitter: float, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or Timeline()  # another cluster's, which is beside it
        self.random = Random(seed)
        self.network = Network(self.timeline, self.random, latency, jitter)
        self.truth = Truth()
        self.shared = MemoryCluster("simulation", seed)
        self.shared.time_of_day = lambda: self.timeline.now
        self.shared.nodes = WatchedNodes(self.shared.nodes, self)
        self.shared.nodes.went = self._claim_went
        self.judge: Judge | None = None  # of the repair queue
        self.held: dict[int, SessionId | None] = {}  # the locks before the transaction under way, where it ends one
        self.makers: dict[int, str] = {}  # of ledgers of logs
        self.deleter = ""  # who deletes one of these now
        self.writer: tuple[str, SessionId | None] = ("", None)  # who writes metadata now, and in which session
        self.trace: list[str] | None = None
        # for bookies, one more than there are -> who started there last
        self.hosts: dict[str, SimBookie | None] = {"b-0": None}
        self.moving = False  # whether a bookie starts on any of them
        self.pace = 0.0  # most seconds that news of the metadata take
        self.paces = Random(f"paces {seed}")
        self.listing_lies = 0.0  # how often what a bookie's garbage collection lists is wrong

    def news_s(self) -> float:
        """How long an event of a watch takes; each goes by itself, beside answers."""
        return self.paces.random() * self.pace if self.pace and self.paces.random() < LATE_NEWS else 0.0

    def _claim_went(self, path: str, owner: SessionId, by: SessionId) -> None:
        if path.startswith(LOCKS):
            self.truth.went("repair lock", ledger_of(path), owner, by)
        elif path.startswith(f"{AVAILABLE}/"):
            self.truth.went("registration", path.rpartition("/")[2], owner, by)

    def ledger_changed(
        self, ledger: int, before: Versioned[LedgerMetadata] | None, after: Versioned[LedgerMetadata] | None
    ) -> None:
        """A change of metadata took effect; None: there is none."""
        if after is None:
            self.truth.metadata_deleted(ledger)
        else:
            self.truth.metadata_written(ledger, before, after, *self.writer)

    def tell(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.timeline.now:9.4f} {text}")

    def metadata(self, ledger: int) -> LedgerMetadata | None:
        found = stored.Ledgers(self.shared).get(ledger)
        return found.value if found is not None else None


class Judge(Protocol):
    """Hears of what happens to the repair queue, as it takes effect."""

    def queued(
        self, steps: Sequence[Step], before: Mapping[int, Shortage], session: SessionId, failed: Exception | None
    ) -> None: ...


class WatchedNodes(Nodes):
    """
    The tree; the world hears of each change of a ledger's metadata, and its judge of each transaction on the repair
    queue, with the marks that were there before.
    """

    def __init__(self, of: Nodes, world: World) -> None:
        super().__init__(of.uri, of.went, of.nodes, of.names)
        self.world = world

    def transact(self, steps: Sequence[Step], session: SessionId) -> list[Done]:
        written = {step.path: ledger for step in steps if (ledger := ledger_written(step)) is not None}
        before = {path: self._metadata(path, ledger) for path, ledger in written.items()}
        judge, marks = self.world.judge, self._marks(steps)
        failed = None
        try:
            done = super().transact(steps, session)
            for path, ledger in written.items():
                self.world.ledger_changed(ledger, before[path], self._metadata(path, ledger))
        except MetaStore as error:
            failed = error
            raise
        finally:
            if judge is not None and marks is not None:  # after the metadata: what it names may be what ends a mark
                judge.queued(steps, marks, session, failed)
            self.world.held.clear()
        return done

    def _metadata(self, path: str, ledger: int) -> Versioned[LedgerMetadata] | None:
        node = self.nodes.get(path)
        return None if node is None else decoded(ledger, node.data, node.stat.version)

    def _marks(self, steps: Sequence[Step]) -> dict[int, Shortage] | None:
        """The marks that these steps concern, as they are, and the locks into `held`; None: not the queue."""
        if not any(step.path.startswith(QUEUE) for step in steps):
            return None
        marks = {}
        for step in steps:
            ledger, node = ledger_of(step.path), self.nodes.get(step.path)
            if ledger is None or node is None:
                continue
            if step.path.startswith(SHORT):
                marks[ledger] = Shortage(ledger, *repair_text.decode_shortage(ledger, node.data), node.stat.version)
            else:
                self.world.held[ledger] = node.stat.owner
        return marks


def ledger_written(step: Step) -> int | None:
    """The ledger whose metadata a step changes."""
    return None if isinstance(step, Check) or "/L" not in step.path else PATHS.id_of(step.path)


class Elsewhere:
    """The metadata servers' time: their answers do not wait for the clock of who asked."""

    def __init__(self, process: Process) -> None:
        self.seconds = process.seconds
        self.callLater = process.call_by_the_world


class NamedStore(MemoryStore):
    """A handle on the metadata whose writes are known by their author."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(Elsewhere(process), world.shared)
        self.tree.pace = self._inner.pace = world.news_s
        self.world = world
        self.owner = process.name
        self._over = False  # the session is, and its process has not heard of it

    @property
    def over(self) -> bool:
        """Whether the session has ended, and its process has not heard of it."""
        return self._over

    @property
    def session(self) -> int:
        """The present one."""
        return self._session

    def expire_session(self) -> None:
        self._over = True
        super().expire_session()

    def leave_late(self, bookie: str, seconds: float) -> None:
        """The session ends, and a call of it to unregister a bookie arrives that much later."""
        session, read_only = self._session, bookie in stored.registrations(self.shared, True)
        path = f"{AVAILABLE}/readonly/{bookie}" if read_only else f"{AVAILABLE}/{bookie}"
        self.expire_session()

        def arrive() -> None:
            nodes = self.shared.nodes.nodes
            there = nodes.get(path)
            self._inner.delete_own(path, session).addErrback(lambda failure: failure.trap(NoNode) and None)
            if there is not None and path not in nodes and there.stat.owner is not None:
                self.world.truth.went("registration", bookie, there.stat.owner, session)

        self.world.timeline.at(seconds, arrive)

    def _tell_expired(self) -> None:
        self._over = False
        super()._tell_expired()

    def _run(self, name: str, effect: Callable[..., Any], *args: Any) -> Deferred[Any]:
        if self._over and name == "write_ledger":
            return fail(MetaStore("simulated: the session has expired"))
        return self._signed(name, args, effect, lambda effect: super(NamedStore, self)._run(name, effect, *args))

    def _signed(
        self,
        name: str,
        args: tuple[Any, ...],
        effect: Callable[..., Any],
        asked: Callable[[Callable[..., Any]], Deferred[Any]],
    ) -> Deferred[Any]:
        """Metadata is written by itself, or under a repair lock: its author is known when it takes effect."""
        if name != "write_ledger":
            return asked(effect)
        world, metadata, version, session = self.world, args[1], args[2], self._session

        def signed(*args: Any) -> Any:
            world.writer = self.owner, session
            try:
                return effect(*args)
            finally:
                world.writer = "", None

        world.tell(
            f"{self.owner} writes {metadata.state.name} {[(f.first, f.bookies) for f in metadata.fragments]} end "
            f"{metadata.last_entry} over version {version}"
        )
        written = asked(signed)
        written.addErrback(self._refused, metadata)
        return written

    def _refused(self, failure: Any, metadata: LedgerMetadata) -> Any:
        if failure.check(MetadataVersion):
            self.world.truth.seen[
                "conflict on close" if metadata.is_closed else f"conflict on {metadata.state.name}"
            ] += 1
            self.world.tell(f"{self.owner} had a conflict")
        return failure


class DoubtfulStore(NamedStore):
    """A handle whose answers are no evidence: listings lack something, or it is another cluster that answers."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        self.astray = False
        self.hollow = False  # it denies all ledgers to garbage collection
        self.lying = False  # once the bookie serves: its start is not garbage collection

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        return self._call("ledger_ids", self._page, after, limit)

    async def _page(self, after: int, limit: int) -> list[int]:
        if self.astray:
            return [FOREIGN] if after < FOREIGN else []
        if self.hollow:
            return []
        page = await self._ledgers.page(after, limit)
        rng = self.world.random
        if not page or not self.lying or not self.world.listing_lies or rng.random() >= self.world.listing_lies:
            return page
        self.world.truth.seen["a listing lied"] += 1
        kind = rng.randrange(4)
        if kind == 0:
            raise MetaStore("simulated: the listing broke off")
        if kind == 1:
            return page[::-1] if len(page) > 1 else []
        return [] if kind == 2 else [ledger for ledger in page if ledger != rng.choice(page)]

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        return succeed(list(ledgers)) if self.hollow else super().absent_ledgers(ledgers)

    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("read_ledger", self._read, ledger)

    async def _read(self, ledger: int) -> Versioned[LedgerMetadata]:
        if self.astray:
            raise NoSuchLedgerExistsOnMetadataServer("simulated: not in this cluster")
        return await self._ledgers.read(ledger)

    def cluster(self) -> Deferred[Cluster]:
        return self._call("cluster", self._describe)

    async def _describe(self) -> Cluster:
        found = await self._cluster.describe()
        return Cluster("another", found.layout) if self.astray else found


class DiskClock:
    """Time as the storage sees it: what it does at once takes as long as a sync, and no clock changes that."""

    def __init__(self, process: Process, sync_seconds: Callable[[], float]) -> None:
        self._process = process
        self._sync_seconds = sync_seconds
        self.seconds = process.seconds
        self.callFromThread = process.callFromThread

    def callLater(self, delay: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        if delay:
            return self._process.callLater(delay, fn, *args, **kwargs)
        return self._process.call_by_the_world(self._sync_seconds(), fn, *args, **kwargs)


class SimWorkers:
    """The storage pool: each job takes a while, and none outlives its process."""

    threaded = False

    def __init__(self, clock: DiskClock) -> None:
        self._clock = clock

    def run(self, job: Callable[..., T], *args: Any) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        self._clock.callLater(0, lambda: maybeDeferred(job, *args).chainDeferred(done))
        return done

    def spawn(self, job: Callable[[], None]) -> None:
        job()

    def pause(self) -> None: ...

    def stop(self) -> None: ...


class SimBookie:
    """One bookie and its disk, through all its lives."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        self.world = world
        self.name = name
        self.host = f"b-{len(world.hosts)}"  # drawn again at each start
        world.hosts[self.host] = None
        self.id = f"{self.host}:{PORT}"  # fixed: an address that may be another one's
        self.options = BASE.model_copy(update={**SMALL, "advertised_address": name, "bookie_id": self.id, **options})
        self.disks = 0  # that it had
        self.disk = self.new_disk()
        self.sync_seconds = 0.0005
        self.up = False
        self.leaving = False  # somebody takes it out of the cluster: nobody starts it
        self.alien = False  # its disk is not one that may serve under its id as it is; a start has to find that out
        self.refused = 0  # how often a start did
        self.outlived: set[int] = set()  # ledger directories that failed before a restore ended, and have no part in it
        self.incarnation = ""
        self.unfenced: set[int] = set()  # ledgers whose fence went with an earlier disk, and was not set again
        self.gone = False  # its disk was destroyed: it must never serve again
        self.amnesia = False  # it lost its disk, and may come back in limbo
        self.lost_directory = False  # it lost a ledger directory, and comes back without it
        self.vanished: dict[str, Inode] = {}  # files that somebody removed while it was down; no start went well since
        self.settled: set[int] = set()  # ledgers whose limbo ended here
        self.doubted: int | None = None  # the ledger that `rot` was about last
        self.doubtful = False  # it went down without having synced, and doubts itself
        self.lives = 0
        self.process: Process | None = None
        self.storage: Any = None
        self.copies: Any = None
        self.drop_unseen: Any = None  # its storage's `drop_copy` without the truth's knowledge
        self.upkeep: Any = None
        self.garbage: Any = None
        self.serving = False
        self.looked_since = 0.0  # when it last began to look for superfluous copies
        self._client: Client | None = None  # of its own, for what it does beside its service

    def new_disk(self) -> SimDisk:
        """An empty one."""
        self.disks += 1
        return SimDisk(self.disks - 1)

    def start(self) -> None:
        if self.up or self.leaving:
            return
        self.up = True
        self.lives += 1
        self._move()
        self.process = Process(self.world.timeline, self.host, self.world.network.connect, self.name)
        starting = Deferred.fromCoroutine(self._start(self.process))
        starting.addErrback(self._could_not, self.process)

    def _move(self) -> None:
        """A start is on any host where no bookie runs, perhaps one where another was and is still looked for."""
        if not self.world.moving:
            return
        hosts = self.world.hosts
        self.host = self.world.random.choice(
            [host for host, last in hosts.items() if last is None or not last.up or last.host != host or last is self]
        )
        self.world.truth.seen["bookie at an address that another one had"] += hosts[self.host] not in (None, self)
        hosts[self.host] = self

    async def _start(self, process: Process) -> None:
        world, options = self.world, self.options
        self.store = store = DoubtfulStore(world, process)
        instance_id = stored.instance_id(world.shared)
        try:
            back = self.amnesia or self.lost_directory
            lost = await start_check.lost_directories(store, options, self.id, instance_id, self.disk) if back else []
            if lost:
                await restoring.check_unlisted(process, store, options, self.id)
                cookie = await start_check.begin_incarnation(store, options, self.id, instance_id, self.disk, lost)
                restoring.begin(self.disk, options, lost)
                if cookie.incarnation == self.incarnation:
                    world.truth.break_("incarnation", f"{self.name} is restored, and says that it is what it was")
            else:
                cookie = (await start_check.check(store, options, self.id, instance_id, self.disk)).cookie
        except IdentityError as refusal:
            if self.amnesia and not self.alien and self.id not in cookies(world.shared):
                self.amnesia = False  # no ledger names it any more: it is started without a restore, as it is told
                self.die()
                world.timeline.at(0.01, self.start)
                return
            if self.outlived and not self.gone and not self.alien:
                self._empty_outlived(refusal)
                return
            if not self.gone and not self.alien:
                raise
            world.truth.seen["bookie refused to serve without its disk"] += self.gone
            self.refused += 1
            world.tell(f"{self.name} may not start: {refusal}")
            self.die()
            return
        clock = DiskClock(process, lambda: self.sync_seconds)
        storage: Any = Storage(options, clock, self.disk, open_rows=self.disk.open_rows, workers=SimWorkers(clock))
        self.storage = storage
        self.service = Service(process, options, storage, self.id, cookie.incarnation)
        self.registration = Registration(store, self.id, self._failed)
        self.reasons = ReadOnly(self.id, self.service, self.registration)
        self.guard = StoreGuard(process, self.disk, lambda: self._living(storage), storage, store, self.id, instance_id)
        self.copies = Copies(process, storage, self.guard)

        self._watch(storage)
        storage.start()
        self.upkeep = Upkeep(storage, clock, self)
        self.garbage = Garbage(process, options, self.disk, storage, self.upkeep.space, store, self.guard)
        await self.guard.start()
        if storage.counters.replayed_groups:
            world.truth.seen["journal replayed"] += 1
        failed = {options.ledger_directories.index(path) for path in storage.stale}
        if lost or storage.stale:
            await self._doubt(storage, Lost.of(options, [*lost, *storage.stale]))
            storage.caught_up()
            restoring.end(self.disk, options, cookie, lost, storage.failed_directories)
            await start_check.end_restore(store, cookie)
            self.outlived = {options.ledger_directories.index(path) for path in storage.failed_directories}
            world.truth.seen["bookie restored in limbo" if lost else "directory came back in limbo"] += 1
        if not lost and notes.unclean(self.disk, options, self.disk.boot_id()):
            await self._doubt(storage, Lost.all_of(options))
            self.doubtful = True
            world.truth.seen["bookie without sync doubts itself"] += 1
        if self.lives > 1 and Lost.of(options, lost) != Lost.all_of(options):  # else it begins empty
            self._look_back(storage, failed)
        self.alien = False
        notes.note_running(self.disk, options, self.disk.boot_id())
        listener = Listener(process, options, self.service)
        listener.startFactory()
        world.network.listeners[self.host, PORT] = (process, lambda: listener.buildProtocol(None))
        orders = DrainOrders(store.records)
        self.reasons.by_order(await orders.stands(self.id))
        orders.watch(self.id, self.reasons.by_order)
        self.incarnation = cookie.incarnation or ""
        announced = {INCARNATION_PROPERTY: self.incarnation}
        await self.registration.start(ServiceInfo.of(self.host, PORT, properties=announced), self.reasons.on)
        self.garbage.start()
        self.serving = store.lying = True
        self.vanished = {}
        world.tell(f"{self.name} serves at {self.host}")

    async def mark_incomplete(self, rows: Any) -> None:
        self.copies.add(rows)
        self.world.truth.seen["ledger doubted while a bookie serves"] += len(rows)
        await self.storage.mark_limbo(rows)

    def ready_to_copy(self) -> None:
        self.copies.decided()

    def _living(self, storage: Any) -> list[str]:
        return [path for path in self.options.ledger_directories if path not in storage.failed_directories]

    def _could_not(self, failure: Any, process: Process) -> None:
        cause = failure.value.__cause__ or failure.value
        # a fault of its disk, as it may have later
        if process.alive and isinstance(cause, OSError) and cause.errno == EIO:
            self._failed(failure.getErrorMessage())
        elif process.alive and self.vanished and isinstance(failure.value, StorageError):
            self.world.truth.seen["bookie refused to serve without a file"] += 1
            self._find_vanished(failure.getErrorMessage())
        elif process.alive:
            self.world.truth.break_("start", f"{self.name} can't start: {failure.getErrorMessage()}")

    def _watch(self, storage: Any) -> None:
        """The truth hears what the storage takes, makes durable and says."""
        truth, name, world = self.world.truth, self.id, self.world
        give_back, add, read, read_run = self.service.durable, storage.add, storage.read, storage.read_run
        delete, drop_copy, set_limbo = storage.delete_ledger, storage.drop_copy, storage.set_limbo
        self.drop_unseen = drop_copy
        copies: dict[Own, AddRun] = {}

        def durable(tokens: list[Any]) -> None:
            tokens = [token for token in tokens if token is not None]
            for _peer, request in tokens:
                if isinstance(request, AddRun):
                    truth.stored(name, request)
                elif isinstance(request, Own) and request in copies:
                    truth.stored(name, copies.pop(request))
            give_back(tokens)

        def watched_add(run: AddRun, token: Any) -> Status | None:
            status = add(run, token)
            if status is Status.EOK:
                truth.taken(name, run)
                if isinstance(token[1], Own):
                    copies[token[1]] = run
            elif status is Status.EREADONLY and not run.recovery:
                truth.seen["add refused as read-only"] += 1
            elif status is None:
                truth.seen["add parked"] += 1
            return status  # type: ignore[no-any-return]

        def watched_read(ledger: int, entry: int, alone: bool = False) -> Any:
            had = truth.has(name, ledger, entry)
            found = read(ledger, entry, alone)

            def look(result: Any) -> Any:
                truth.answered(name, ledger, entry, result, had, in_doubt(storage, ledger), world.metadata(ledger))
                return result

            return found.addCallback(look) if isinstance(found, Deferred) else look(found)

        def watched_read_run(ledger: int, first: int, *bounds: int) -> Any:
            had = truth.has(name, ledger, first)
            found = read_run(ledger, first, *bounds)

            def look(result: Any) -> Any:
                if isinstance(result, Status):
                    truth.answered(name, ledger, first, result, had, in_doubt(storage, ledger), world.metadata(ledger))
                return result

            return found.addCallback(look) if isinstance(found, Deferred) else look(found)

        def watched_delete(ledger: int) -> None:
            if storage.ledger(ledger) is not None:
                world.tell(f"{self.name} deletes ledger {ledger}")
                truth.forgotten(name, ledger, world.metadata(ledger))
            delete(ledger)

        def watched_drop(ledger: int) -> None:
            world.tell(f"{self.name} drops its copy of ledger {ledger}")
            truth.dropped(name, ledger, world.metadata(ledger), self.looked_since)
            drop_copy(ledger)

        def watched_limbo(ledger: int, limbo: bool, token: object | None = None) -> Status:
            if not limbo:
                self.settled.add(ledger)
                metadata = world.metadata(ledger)
                looking = maybeDeferred(storage.held, ledger)
                looking.addCallback(lambda held: truth.limbo_ended(name, ledger, entries_of(held), metadata))
                looking.addErrback(lambda failure: failure.trap(OSError))
            return set_limbo(ledger, limbo, token)  # type: ignore[no-any-return]

        storage.listen(
            Events(durable, self.service.relieved, self._failed, self.reasons.by_storage, self.service.refused)
        )
        storage.add, storage.read, storage.read_run = watched_add, watched_read, watched_read_run
        storage.delete_ledger, storage.drop_copy, storage.set_limbo = watched_delete, watched_drop, watched_limbo
        reads = self.service.reads
        refuse, begin = reads.refuse, reads.in_turn

        def fence_done(peer: Any, request: Any) -> None:
            if isinstance(request, Read) and request.fence and peer.alive:
                truth.fence_said(name, request.ledger)  # whatever the read finds, the answer says "fenced"
                self.unfenced.discard(request.ledger)
            begin(peer, request)

        reads.in_turn, reads.refuse = fence_done, refuse

    def _look_back(self, storage: Any, failed: set[int]) -> None:
        """
        Compares what came back from the disk with what was promised.  `failed`: numbers of directories that were given
        up before; what they lack is in limbo where the metadata wants it here, and all else is not needed any more.
        """
        for ledger, truth in self.world.truth.ledgers.items():
            if truth.deleted:
                continue
            state = storage.ledger(ledger)
            promised = {
                entry for entry, kept in truth.kept.items() if self.id in kept and (entry, self.id) not in truth.lost
            }
            if state is None and not promised and self.id not in truth.fenced:
                continue
            fence_lost = (
                self.id in truth.fenced and ledger not in self.unfenced and not (state is not None and state.fenced)
            )
            limbo = in_doubt(storage, ledger)
            self.world.truth.seen["bookie came back in limbo"] += limbo
            given_up = self.world.metadata(ledger) if ledger % len(self.options.ledger_directories) in failed else None
            comparing = maybeDeferred(storage.held, ledger)
            comparing.addCallback(self._compare, ledger, promised, fence_lost, limbo, given_up)
            comparing.addErrback(lambda failure: failure.trap(OSError))  # its index is damaged, and it says so

    def _compare(
        self, held: Any, ledger: int, promised: set[int], fence_lost: bool, limbo: bool, given_up: LedgerMetadata | None
    ) -> None:
        """`held`: what it has of the ledger."""
        truth, stored, now = self.world.truth, entries_of(held), self.world.timeline.now
        truth.has_again(self.id, ledger, stored)
        if limbo:  # it doubts itself, and says so
            truth.lacks(self.id, ledger, promised - stored, now)
        else:
            truth.came_back(
                self.id,
                ledger,
                promised - stored,
                stored - promised,
                fence_lost,
                self.options.journal_sync_data,
                given_up,
                now,
            )

    async def _doubt(self, storage: Any, lost: Lost) -> None:
        """
        Of every ledger that the metadata gives it and that lay on what is lost, it may have lost entries and fences.
        """
        async for rows in suspects(self.store, self.id, lost):
            await storage.mark_limbo(rows)
        await storage.mark_limbo({})

    def leave_late(self, seconds: float) -> None:
        """
        A process of this bookie is stopped while its session ends: what it sends to be listed no more arrives
        later.
        """
        self.store.leave_late(self.id, seconds)

    def unlist(self) -> None:
        """Another client removes its registration."""
        stored.unlist(self.world.shared, self.id)

    def read_only(self, on: bool) -> None:
        """An operator's switch; a restart forgets it."""
        if self.up and hasattr(self, "reasons"):
            self.reasons.by_operator(on)

    def _failed(self, reason: str) -> None:
        self.world.tell(f"{self.name} gives up: {reason}")
        self.world.truth.seen["bookie gave up"] += 1
        self.die()

    @property
    def in_limbo(self) -> bool:
        return self.serving and bool(self.copies.limbo())

    def own_client(self, options: ClientOptions) -> Client:
        if self._client is None:
            assert self.process is not None
            store = NamedStore(self.world, self.process)
            store.owner = f"{REPAIRER} of {self.name}"
            self._client = Client(
                self.process, store, options, random=Random(self.lives), time_of_day=self.process.seconds
            )
        return self._client

    def refill(self, options: ClientOptions) -> "Deferred[Any]":
        """Takes back once what it lost."""
        return Deferred.fromCoroutine(restore(self.own_client(options), self.id, self.copies))

    def store_told_truth(self) -> None:
        if self.up:
            self.store.astray = self.store.hollow = False

    def die(self) -> None:
        """kill -9."""
        if not self.up:
            return
        assert self.process is not None
        self.up = self.serving = False
        self.process.alive = False
        self.world.network.listeners.pop((self.host, PORT), None)
        self.world.network.drop_process(self.process)
        # the metadata store does not know: so long it is listed where it was, and another one may be there already
        if self.world.moving:
            self.world.timeline.at(self.world.random.choice((0.0, 0.02, 0.2)), self.store.close)
        else:
            self.store.close()
        if self._client is not None:
            self._client.store.close()
            self._client = None
        if self.storage is not None:
            seen, counters = self.world.truth.seen, self.storage.counters
            seen["entry logs compacted"] += counters.gc_compactions
            seen["entry logs removed"] += counters.gc_logs_removed
            self.storage = None
        self.disk.process_ended()
        self.world.tell(f"{self.name} died")

    def lose_power(self, rng: Random) -> None:
        self.die()
        if self.disk.power_lost(rng):
            self.world.truth.seen["torn write"] += 1

    def lose_disk(self, amnesia: bool) -> None:
        """The disk is gone.  With `amnesia` the bookie may serve again, in limbo; without, it must refuse to start."""
        self.die()
        self.world.truth.disk_lost(self.id, self.world.timeline.now)
        self.disk, self.vanished, self.outlived = self.new_disk(), {}, set()
        self.amnesia, self.gone, self.lost_directory = amnesia, not amnesia, False

    def begin_again(self) -> None:
        """Its disk is an empty one now.  A start finds out whether it may serve under its id."""
        self.die()
        truth = self.world.truth
        truth.disk_lost(self.id, self.world.timeline.now)
        self.unfenced = {ledger for ledger, each in truth.ledgers.items() if self.id in each.fenced}
        self.disk, self.vanished, self.outlived = self.new_disk(), {}, set()
        self.alien, self.amnesia, self.lost_directory = True, False, False
        self.settled.clear()

    def lose_directory(self, directories: Sequence[str], number: int) -> None:
        """
        One of the journals or of the ledger directories is gone; the bookie serves again without what was in it, in
        limbo.
        """
        self.die()
        count = len(directories)
        self.world.truth.disk_lost(self.id, self.world.timeline.now, lambda ledger: ledger % count == number)
        self.disk.lose(directories[number])
        self.vanished = {}
        self.lost_directory = True

    def _empty_outlived(self, refusal: IdentityError) -> None:
        """
        A directory that failed is of the incarnation before a restore, and the disk that noted its failure was lost,
        too: an operator empties it, and has it restored.
        """
        self.world.truth.seen["a failed directory was forgotten, and emptied by an operator"] += 1
        self.world.tell(f"{self.name} may not start: {refusal}")
        outlived, self.outlived = self.outlived, set()
        for number in outlived:
            self.lose_directory(self.options.ledger_directories, number)
        self.world.timeline.at(0.01, self.start)

    def lose_files(self, rng: Random) -> bool:
        """
        Somebody removes files while the bookie is down: of a journal one or all segments or its note, or a mark.  False
        where there are none, or some went before.
        """
        self.die()
        if self.vanished:
            return False
        journal = current(rng.choice(self.options.journal_directories))
        segments = [f"{journal}/{name}" for name in self.disk.names(journal) if segment_start(name) is not None]
        note, mark = f"{journal}/{EXTENT}", current(rng.choice(self.options.ledger_directories), MARK)
        wanted = rng.choice((segments[-1:], segments[-1:], segments[-2:-1], segments[:1], segments, [note], [mark]))
        if wanted and all(self.disk.exists(path) for path in wanted):
            self.vanished = self.disk.take(wanted)
            self.world.tell(f"{self.name} loses {', '.join(wanted)}")
        return bool(self.vanished)

    def _find_vanished(self, reason: str) -> None:
        """An operator puts the files back; or a journal that can't be had is restored."""
        self.world.tell(f"{self.name} does not start: {reason}")
        self.die()
        files, self.vanished = self.vanished, {}
        journals = self.options.journal_directories
        number = next((number for number, path in enumerate(journals) if min(files).startswith(path + "/")), None)
        if number is None or self.world.random.random() < 0.5:
            self.disk.put_back(files)
        else:
            self.lose_directory(journals, number)
        self.world.timeline.at(0.01, self.start)

    @property
    def is_rotten(self) -> bool:
        """Whether an index can't be read any more, and no new one was made."""
        paths = [index_path(self.disk, current(path)) for path in self.options.ledger_directories]
        return any(path in self.disk.rows and self.disk.rows[path].rotten for path in paths)

    def rot(self, ledger: int) -> set[int]:
        """
        The index can't list any more what it has of a ledger, and the entry logs can't be read on where that lies:
        entries that are lost by it.
        """
        path = self.options.ledger_directories[ledger % len(self.options.ledger_directories)]
        if path in self.storage.failed_directories or self.is_rotten:
            return set()
        rows = self.disk.rows[index_path(self.disk, current(path))]
        entries = set()
        for run in RunIndex(rows).runs(ledger):
            self.disk.rot(f"{current(path)}/{log_name(run.log)}", run.offset)
            entries.update(range(run.first, run.last + 1))
        if entries:
            self.doubted = ledger
            rows.rotten.add(ledger)
            self.world.truth.lacks(self.id, ledger, entries, self.world.timeline.now)
        return entries

    def fail_next_sync(self, prefix: str, power: Random | None) -> None:
        """The next sync below `prefix` fails, once; with `power` the power goes in that very moment."""

        def dark(call: str, path: str) -> None:
            raise OSError(5, "simulated power loss", path)

        def before(call: str, path: str) -> None:
            if call == "sync" and path.startswith(prefix):
                self.world.truth.seen["sync failed" if power is None else "power lost inside a write"] += 1
                # without power nothing works, until the machine is up again
                self.disk.before = None if power is None else dark
                if power is not None:
                    self.world.timeline.at(0, lambda: self.lose_power(power))
                raise OSError(5, "simulated I/O error", path)

        self.disk.before = before

    def power_after(self, calls: int, rng: Random) -> None:
        """The power goes in the middle of so many more changes of its disk."""
        left = calls

        def before(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                seen = self.world.truth.seen
                if self.serving:
                    seen["power lost inside a round of garbage collection"] += self.garbage.status()["running"]
                    seen["power lost while an index was rebuilt"] += self.upkeep.rebuild.running
                else:
                    seen["power lost inside a start"] += 1
                self.world.timeline.at(0, lambda: self.lose_power(rng))
            if left <= 0:
                raise OSError(5, "simulated power loss", path)

        self.disk.before = before


def in_doubt(storage: Any, ledger: int) -> bool:
    """Whether the ledger is in limbo there."""
    state = storage.ledger(ledger)
    return state is not None and bool(state.limbo)


def entries_of(held: Any) -> set[int]:
    return (
        {entry for first, count in runs_of(held) for entry in range(first, first + count)}
        if isinstance(held, bytes)
        else set()
    )


class SimClient:
    """One client process."""

    store_class: type[NamedStore] = NamedStore

    def __init__(self, world: World, name: str, options: ClientOptions, seed: int) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.timeline, name, world.network.connect)
        self.store = self.store_class(world, self.process)
        self.client = Client(self.process, self.store, options, random=Random(seed), time_of_day=self.process.seconds)
        self.fault_rate = 0.0
        self._odd = Random(f"odd answers {seed}")
        self.store.faults = self._fault

    def _fault(self, asked: str, arguments: tuple[object, ...]) -> Fault | None:
        operation, _ = meaning(asked, arguments)
        rng = self.world.random
        if (
            not self.fault_rate
            or rng.random() >= self.fault_rate
            or operation in ("create_new_ledger", "create_ledger", "new_ledger_id")
        ):
            return None
        kind = rng.randrange(4)
        seen = self.world.truth.seen
        if kind == 0 and operation == "write_ledger":
            seen["metadata answer lost"] += 1
            return Fault(
                before=rng.choice([0, 0.02]),
                after=0.01,
                error=MetaStore("simulated: the answer was lost"),
                applied=True,
            )
        if kind == 1 and operation != "release_repair":  # that one is tried until the session is over
            return self._failed()
        seen["metadata slow"] += 1
        return Fault(before=rng.choice([0.0, 0.02, 0.2]), after=rng.choice([0.0, 0.02, 0.2]))

    def _failed(self) -> Fault:
        """The store is away; or what it answers is no answer, and the thread that reads it begins a new session."""
        if self._odd.random() < ODD_PART:
            self.world.truth.seen["odd answer of the store"] += 1
            self.world.timeline.at(0.0, self.store.expire_session)
            return Fault(error=MetaStore("simulated: an answer that can't be read"), applied=self._odd.random() < 0.5)
        self.world.truth.seen["metadata failed"] += 1
        return Fault(error=MetaStore("simulated: the store is away"))

    @property
    def alive(self) -> bool:
        return self.process.alive

    def crash(self) -> None:
        if self.process.alive:
            self.process.alive = False
            self.world.network.drop_process(self.process)
            self.store.close()
            for truth in self.world.truth.ledgers.values():
                self.world.truth.repair_ended(self.name, truth, None)
            self.world.tell(f"{self.name} crashed")
