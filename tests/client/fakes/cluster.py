"""
A cluster on virtual time, behind the pool's contract: bookies that keep obligations B1 to B7 of protocol-rules.md 1.5,
without sockets, frames or disks.

A story decides what happens to each request: `cluster.judge = lambda request: …` answers "pass", "drop" (it never
arrives), "mute" (it is done, but the answer is lost), "hold" (it waits until `cluster.let_go`), or a code that the
bookie answers with instead of doing anything.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed

from quire.client.api import Client
from quire.client.connections.answers import Answer, BatchAnswer, InfoAnswer, LacAnswer, ListAnswer
from quire.client.counters import ClientCounters
from quire.client.placement.greedy import Greedy
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import INCARNATION_PROPERTY, ServiceInfo
from quire.protocol.batch import AddBatch
from quire.protocol.digest import HEADER, Digest, DigestType
from tests.clock import Clock
from tests.metadata import stored

T = TypeVar("T")

UNREACHABLE, TIMED_OUT, NO_ENTRY, NO_LEDGER, FENCED, UNAUTHORIZED, READ_ONLY, WRITE, UNKNOWN = (
    -8,
    -23,
    -13,
    -7,
    -101,
    -102,
    -104,
    -12,
    -108,
)


class VirtualReactor(Clock):
    """A clock that also takes what a reactor takes, as far as a client without sockets needs it."""

    def callFromThread(self, fn: Callable[..., object], *args: object) -> None:
        self.callLater(0, fn, *args)

    def connectTCP(self, host: str, port: int, factory: object, timeout: float = 30) -> Any:
        raise AssertionError("no story here opens a socket")


@dataclass
class Request:
    """What a story judges, of entries `entry` to `last`.  `op`: add, recovery add, read, fence, lac, write lac, …"""

    bookie: str
    op: str
    ledger: int
    entry: int
    client: int
    last: int

    def is_of(self, entries: Collection[int]) -> bool:
        """Whether it is about one of these."""
        return any(self.entry <= entry <= self.last for entry in entries)


@dataclass
class Stored:
    """One bookie's share of a ledger."""

    key: bytes | None = None
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)
    explicit_lac: bytes | None = None
    lac: int = -1
    pollers: list[Callable[[], None]] = field(default_factory=list)


class FakeBookie:
    """B1 to B6.  `limbo`: it may have lost data, so it never says no (B4)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.limbo = False
        self.read_only = False
        self.says_its_id = True
        self.incarnation = f"{name}.1"
        self.disk = (1 << 40, 1 << 39)  # bytes in all, and free
        self.ledgers: dict[int, Stored] = {}
        self.starts = 1  # connections of an earlier life are dead

    def stored(self, ledger: int) -> Stored:
        return self.ledgers.setdefault(ledger, Stored())

    def add(self, ledger: int, entry: int, body: bytes, key: bytes, recovery: bool) -> int:
        stored = self.stored(ledger)
        if stored.key not in (None, key):
            return UNAUTHORIZED
        if stored.fenced and not recovery:
            return FENCED
        if self.read_only:
            return READ_ONLY
        stored.key = key
        stored.entries[entry] = body
        self.saw_lac(stored, HEADER.unpack_from(body)[2])
        return 0

    def saw_lac(self, stored: Stored, lac: int) -> None:
        if lac > stored.lac:
            stored.lac = lac
            pollers, stored.pollers = stored.pollers, []
            for poller in pollers:
                poller()

    def read(self, ledger: int, entry: int, fence_key: bytes | None) -> Answer:
        if fence_key is not None:
            stored = self.stored(ledger)
            if stored.key not in (None, fence_key):
                return Answer(UNAUTHORIZED)
            stored.key, stored.fenced = fence_key, True
        elif ledger not in self.ledgers:
            return Answer(UNKNOWN if self.limbo else NO_LEDGER)
        stored = self.ledgers[ledger]
        wanted = max(stored.entries, default=-1) if entry == -1 else entry
        body = stored.entries.get(wanted)
        if body is None:
            return Answer(UNKNOWN if self.limbo else NO_ENTRY)
        return Answer(0, body, stored.lac, entry)


class FakeChannel:
    """An add channel of the contract, with its own connection for order (B7)."""

    def __init__(
        self, pool: "FakePool", bookie: FakeBookie, ledger: int, sink: Any, incarnations: dict[str, str | None]
    ) -> None:
        self.pool, self.bookie, self.ledger, self.sink = pool, bookie, ledger, sink
        self.life = bookie.starts
        self.unanswered: dict[int, float] = {}  # id -> when it was sent
        self.looking = False
        self.outstanding_bytes = 0
        self.progress_at = pool.clock.seconds()
        self.sent: list[tuple[int, int]] = []
        self.closed = False
        if not bookie.up:
            pool.clock.callLater(pool.delay(bookie), self.fail, UNREACHABLE, f"bookie {bookie.name} refused")
        elif incarnations.setdefault(bookie.name, bookie.incarnation) != bookie.incarnation:
            self.life = 0  # nothing that is sent here arrives
            pool.clock.callLater(pool.delay(bookie), self.fail, UNREACHABLE, f"bookie {bookie.name} began again")

    def send(self, batch: AddBatch, entries: Sequence[int] | None = None) -> None:
        if self.closed:
            return
        ids = range(batch.first, batch.last + 1) if entries is None else entries
        bodies = batch.bodies()
        work = [(entry, bodies[entry - batch.first]) for entry in ids]
        if not self.unanswered:
            self.progress_at = self.pool.clock.seconds()
        self.unanswered.update(dict.fromkeys(ids, self.pool.clock.seconds()))
        self.sent.append((min(ids), max(ids)))
        self.pool.clock.callLater(self.pool.delay(self.bookie), self.arrive, work, batch)
        self.look_later()

    def arrive(self, work: list[tuple[int, bytes]], batch: AddBatch) -> None:
        for entry, body in work:
            op = "recovery add" if batch.recovery else "add"
            request = Request(self.bookie.name, op, self.ledger, entry, self.pool.number, entry)
            self.pool.cluster.route(
                request,
                lambda entry=entry, body=body: self.store(entry, body, batch),
                lambda code, entry=entry: self.answer(entry, code),
            )

    def store(self, entry: int, body: bytes, batch: AddBatch) -> Callable[[], None] | None:
        if not self.bookie.up or self.bookie.starts != self.life:
            return None
        code = self.bookie.add(self.ledger, entry, body, batch.digest.master_key, batch.recovery)
        return lambda: self.answer(entry, code)

    def answer(self, entry: int, code: int) -> None:
        self.pool.clock.callLater(self.pool.delay(self.bookie), self.deliver, entry, code)

    def deliver(self, entry: int, code: int) -> None:
        if self.closed or entry not in self.unanswered or self.bookie.starts != self.life or not self.bookie.up:
            return
        del self.unanswered[entry]
        self.progress_at = self.pool.clock.seconds()
        self.sink.acked(self, entry, 1, code)

    def look(self) -> None:
        """
        Fails the channel when nothing was answered for the time-out, or an add was passed over by later ones for so
        long.
        """
        self.looking = False
        limit = self.pool.options.add_timeout_ms / 1000
        if not self.unanswered or self.closed:
            return
        now = self.pool.clock.seconds()
        if now - self.progress_at >= limit or now - min(self.unanswered.values()) >= 3 * limit:
            self.fail(TIMED_OUT, "no add was answered in time")
        else:
            self.look_later()

    def look_later(self) -> None:
        if not self.looking:
            self.looking = True
            self.pool.clock.callLater(self.pool.options.add_timeout_ms / 1000 + 0.001, self.look)

    def fail(self, code: int, reason: str) -> None:
        if not self.closed:
            self.close()
            self.sink.failed(self, code, reason)

    def close(self) -> None:
        self.closed = True
        self.pool.channels.discard(self)


class FakePool:
    """One client's pool."""

    def __init__(self, cluster: "FakeCluster", number: int, options: ClientOptions) -> None:
        self.cluster, self.number, self.options = cluster, number, options
        self.clock = cluster.clock
        self.channels: set[FakeChannel] = set()
        self.asked: list[Request] = []
        self.crowd: dict[str, int] = {}
        self.closed = False
        self.under_way = 1 << 30  # it never says that nobody has many
        self.counters = ClientCounters(self.clock.seconds)

    def requests(self) -> dict[tuple[str, str], Any]:
        """None is counted."""
        return {}

    traffic = requests

    def delay(self, bookie: FakeBookie) -> float:
        return self.cluster.delay(bookie.name)

    def add_channel(self, bookie: str, ledger: int, sink: Any, secure: bool = False, incarnations: Any = None) -> Any:
        channel = FakeChannel(
            self, self.cluster.bookies[bookie], ledger, sink, {} if incarnations is None else incarnations
        )
        self.channels.add(channel)
        return channel

    def part(self, channel: Any) -> None:
        """What it sent goes on: nothing is ever queued here."""
        channel.close()

    def parted(self, ledger: int) -> Deferred[None]:
        """Nobody hears of answers to what goes on."""
        return succeed(None)

    def ask(
        self,
        bookie: str,
        op: str,
        ledger: int,
        entry: int,
        work: Callable[[FakeBookie], T],
        blank: Callable[[int], T],
        more: float = 0.0,
        count: int = 1,
    ) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        target = self.cluster.bookies[bookie]
        request = Request(bookie, op, ledger, entry, self.number, entry + count - 1)
        self.asked.append(request)

        def settle(value: T) -> None:
            if not done.called:
                timer.cancel()
                done.callback(value)

        def fired() -> None:
            if not done.called:
                done.callback(blank(TIMED_OUT))

        timer = self.clock.callLater(self.options.read_timeout_ms / 1000 + more, fired)

        def later(value: T) -> None:
            self.clock.callLater(self.delay(target), settle, value)

        def arrive() -> None:
            if not target.up:
                later(blank(UNREACHABLE))
                return

            def perform() -> Callable[[], None] | None:
                if not target.up:
                    return None
                value = work(target)
                return lambda: later(value)

            self.cluster.route(request, perform, lambda code: later(blank(code)))

        self.clock.callLater(self.delay(target), arrive)
        return done

    def says_its_id(self, bookie: str) -> Deferred[bool]:
        return self.ask(bookie, "who", -1, -1, lambda target: target.says_its_id, lambda _code: True)

    def pending(self, bookie: str) -> int:
        """Reads under way, as a story has it."""
        return self.crowd.get(bookie, 0)

    def read(
        self, bookie: str, ledger: int, entry: int, fence_key: bytes | None = None, priority: int = 0
    ) -> Deferred[Answer]:
        return self.ask(
            bookie,
            "fence" if fence_key else "read",
            ledger,
            entry,
            lambda target: target.read(ledger, entry, fence_key),
            Answer,
        )

    def batch_read(
        self,
        bookie: str,
        ledger: int,
        first: int,
        count_max: int,
        bytes_max: int,
        fence_key: bytes | None = None,
        priority: int = 0,
    ) -> Deferred[BatchAnswer]:
        def work(target: FakeBookie) -> BatchAnswer:
            answer = target.read(ledger, first, fence_key)
            if answer.code or answer.body is None:
                return BatchAnswer(answer.code, [])
            bodies, size = [answer.body], len(answer.body)
            entries = target.ledgers[ledger].entries
            while (
                len(bodies) < count_max
                and (body := entries.get(first + len(bodies))) is not None
                and size + len(body) <= bytes_max
            ):
                bodies.append(body)
                size += len(body)
            return BatchAnswer(0, bodies)

        op = "fence" if fence_key else "batch"
        return self.ask(bookie, op, ledger, first, work, lambda code: BatchAnswer(code, []), count=count_max)

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]:
        def work(target: FakeBookie) -> LacAnswer:
            if ledger not in target.ledgers:
                return LacAnswer(NO_LEDGER)
            stored = target.ledgers[ledger]
            return LacAnswer(0, stored.explicit_lac, stored.entries.get(max(stored.entries, default=-1)))

        return self.ask(bookie, "lac", ledger, -1, work, LacAnswer)

    def write_lac(self, bookie: str, ledger: int, master_key: bytes, body: bytes, lac: int) -> Deferred[int]:
        def work(target: FakeBookie) -> int:
            stored = target.stored(ledger)
            stored.explicit_lac = body
            target.saw_lac(stored, lac)
            return 0

        return self.ask(bookie, "write lac", ledger, lac, work, lambda code: code)

    def hint_lac(self, bookie: str, ledger: int, master_key: bytes, body: bytes, lac: int) -> Deferred[int]:
        return self.write_lac(bookie, ledger, master_key, body, lac)

    def force(self, bookie: str, ledger: int) -> Deferred[int]:
        return self.ask(bookie, "force", ledger, -1, lambda _target: 0, lambda code: code)

    def long_poll(self, bookie: str, ledger: int, previous_lac: int, timeout_ms: int) -> Deferred[Answer]:
        done: Deferred[Answer] = Deferred()

        def begin(target: FakeBookie) -> Answer:
            if ledger not in target.ledgers:
                return Answer(NO_LEDGER)
            stored = target.ledgers[ledger]
            if stored.lac > previous_lac:
                return Answer(0, None, stored.lac)

            def answer_poll() -> None:
                if not done.called:
                    done.callback(Answer(0, None, stored.lac))

            stored.pollers.append(answer_poll)
            self.clock.callLater(timeout_ms / 1000, answer_poll)
            return Answer(1)

        def began(answer: Answer) -> None:
            if answer.code != 1 and not done.called:
                done.callback(answer)

        self.ask(bookie, "poll", ledger, previous_lac, begin, Answer).addCallback(began)
        return done

    def read_run(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        return self.batch_read(bookie, ledger, first, count_max, bytes_max)

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]:
        def work(target: FakeBookie) -> ListAnswer:
            if ledger not in target.ledgers:
                return ListAnswer(NO_LEDGER, [])
            return ListAnswer(0, [(entry, 1) for entry in sorted(target.ledgers[ledger].entries)])

        return self.ask(bookie, "list", ledger, -1, work, lambda code: ListAnswer(code, []))

    def info(self, bookie: str) -> Deferred[InfoAnswer]:
        return self.ask(bookie, "info", -1, -1, lambda target: InfoAnswer(0, *target.disk), InfoAnswer)

    def connection_of(self, bookie: str) -> int | None:
        target = self.cluster.bookies[bookie]
        return target.starts if target.up else None

    def close(self) -> Deferred[None]:
        self.closed = True
        for channel in list(self.channels):
            channel.fail(-19, "the client was closed")
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done


class FakeCluster:
    """Bookies b0, b1, … and a metadata store, on one clock."""

    def __init__(self, bookies: int = 3, seed: int = 0, latency: float = 0.001) -> None:
        self.clock = VirtualReactor()
        self.random = Random(seed)
        self.latency = latency
        self.bookies = {f"b{number}": FakeBookie(f"b{number}") for number in range(bookies)}
        self.shared = MemoryCluster("fake", seed)
        self.store = MemoryStore(self.clock, self.shared)
        self.judge: Callable[[Request], str | int] = lambda _request: "pass"
        self.held: list[tuple[Request, Callable[[], None]]] = []
        self.slow: dict[str, float] = {}
        self.writes: list[LedgerMetadata] = []
        self._clients = 0
        self.succeed(self.store.init_cluster())
        for name in self.bookies:
            self.register(name)
        self.store.faults = self._note
        self.store_fault: Callable[[str, tuple[Any, ...]], Any] = lambda _name, _arguments: None

    def _note(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "write_ledger":
            self.writes.append(arguments[1])
        return self.store_fault(*stored.meaning(name, arguments))

    def delay(self, bookie: str) -> float:
        return self.latency + self.slow.get(bookie, 0.0)

    def register(self, name: str) -> None:
        announced = {INCARNATION_PROPERTY: self.bookies[name].incarnation}
        self.succeed(self.store.register_bookie(name, ServiceInfo.of("127.0.0.1", 1, properties=announced)))

    def unregister(self, name: str) -> None:
        self.succeed(self.store.unregister_bookie(name))

    def grow(self) -> str:
        """One more bookie, registered."""
        name = f"b{len(self.bookies)}"
        self.bookies[name] = FakeBookie(name)
        self.register(name)
        return name

    def kill(self, *names: str, registered: bool = False) -> None:
        """Bookies die: their connections break; `registered`: the store has not noticed yet."""
        for name in names:
            bookie = self.bookies[name]
            bookie.up = False
            if not registered:
                self.unregister(name)
        for pool in self.pools:
            for channel in [channel for channel in pool.channels if channel.bookie.name in names]:
                self.clock.callLater(
                    self.latency, channel.fail, UNREACHABLE, f"the connection to {channel.bookie.name} was lost"
                )

    def restart(self, *names: str, registered: bool = False) -> None:
        for name in names:
            bookie = self.bookies[name]
            bookie.up, bookie.starts = True, bookie.starts + 1
            if not registered:
                self.register(name)

    pools: list[FakePool] = []

    def client(self, **options: Any) -> Client:
        self._clients += 1
        chosen = ClientOptions(**options)
        pool = FakePool(self, self._clients, chosen)
        self.pools = [*self.pools, pool]
        return Client(
            self.clock,
            self.store,
            chosen,
            pool=pool,
            random=Random(self._clients),
            placement=Greedy(self.random),
            time_of_day=self.clock.seconds,
        )  # type: ignore[arg-type]

    def route(
        self, request: Request, perform: Callable[[], Callable[[], None] | None], refuse: Callable[[int], None]
    ) -> None:
        verdict = self.judge(request)
        if verdict == "drop":
            return

        def act() -> None:
            deliver = perform()
            if deliver is not None and verdict != "mute":
                deliver()

        if isinstance(verdict, int):
            refuse(verdict)
        elif verdict == "hold":
            self.held.append((request, act))
        else:
            act()

    def let_go(self, which: Callable[[Request], bool] = lambda _request: True) -> int:
        """Held requests arrive now."""
        gone = [(request, act) for request, act in self.held if which(request)]
        self.held = [(request, act) for request, act in self.held if not which(request)]
        for _request, act in gone:
            act()
        return len(gone)

    def spin(self, seconds: float = 0.5, step: float = 0.0005) -> None:
        """Time passes, in jumps from one delayed call to the next."""
        end = self.clock.seconds() + seconds
        while True:
            due = self.clock.due()
            if due is None or due > end:
                self.clock.advance(max(0.0, end - self.clock.seconds()))
                return
            self.clock.advance(max(0.0, due - self.clock.seconds()))

    def outcome(self, made: Awaitable[T] | Deferred[T], seconds: float = 60.0) -> "Outcome":
        """Starts something; `Outcome` has its result or error."""
        deferred = made if isinstance(made, Deferred) else Deferred.fromCoroutine(made)  # type: ignore[arg-type]
        return Outcome(deferred)

    def succeed(self, made: Any, seconds: float = 60.0) -> Any:
        """Runs time until it is done; raises what it raises."""
        outcome = self.outcome(made)
        end = self.clock.seconds() + seconds
        while not outcome.done and self.clock.seconds() < end:
            due = self.clock.due()
            if due is None:
                break
            self.clock.advance(max(0.0, due - self.clock.seconds()))
        return outcome.result()

    def fails(self, made: Any, seconds: float = 60.0) -> BaseException:
        """The same for what must fail: the error."""
        try:
            result = self.succeed(made, seconds)
        except BaseException as error:
            if isinstance(error, AssertionError):
                raise
            return error
        raise AssertionError(f"it succeeded: {result!r}")

    def metadata(self, ledger: int) -> LedgerMetadata:
        return stored.Ledgers(self.shared)[ledger].value

    def holders(self, ledger: int, entry: int) -> set[str]:
        return {
            name
            for name, bookie in self.bookies.items()
            if ledger in bookie.ledgers and entry in bookie.ledgers[ledger].entries
        }

    def put(
        self, ledger: int, entry: int, payload: bytes, lac: int, length: int, *names: str, digest: Digest | None = None
    ) -> None:
        """An entry on these bookies, as a writer that is gone left it."""
        made = digest or Digest(DigestType.CRC32C, b"")
        body = made.entry(ledger, entry, lac, length, payload)
        for name in names:
            assert self.bookies[name].add(ledger, entry, body, made.master_key, False) == 0

    def ledger(self, fragments: dict[int, Sequence[str]], write: int, ack: int) -> int:
        """An open ledger in the store, whose writer is gone."""
        first, *others = sorted(fragments)
        metadata = LedgerMetadata.new(len(fragments[first]), write, ack, fragments[first])
        for start in others:
            metadata = metadata.with_ensemble(start, fragments[start])
        ledger: int = self.succeed(self.store.new_ledger_id())
        self.succeed(self.store.create_ledger(ledger, metadata))
        return ledger


class Outcome:
    """What became of a Deferred; it counts how often it fired."""

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        deferred.addCallbacks(self._succeeded, self._failed)

    def _succeeded(self, value: Any) -> None:
        assert not self.done
        self.done, self.value = True, value

    def _failed(self, failure: Any) -> None:
        assert not self.done
        self.done, self.error = True, failure.value

    @property
    def code(self) -> int:
        """0, or the code it failed with; -1000 while it runs."""
        if not self.done:
            return -1000
        return 0 if self.error is None else int(getattr(self.error, "code", -999))

    def result(self) -> Any:
        assert self.done, "it hangs: nothing more will happen"
        if self.error is not None:
            raise self.error
        return self.value
