"""
Processes that use named logs, made of the real code, and their way to the metadata store.

A process owns, reads and publishes through `Logs`.  It may be frozen, lose its session, and be killed at a named step.
What it asked of the metadata store takes effect on the way there, also when the process has died meanwhile; operations
of one session take effect and are answered in the order in which they were asked, unless a fault lets one land late.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail

from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.metadata.store import Versioned
from quire.metadata.tree import Create
from quire.protocol.errors import MetaStore
from tests.simulation.nodes import NamedStore, SimClient, World
from tests.simulation.outcome import Outcome
from tests.simulation.timeline import Process

BOOTED_S = 1000.0  # before the history
STORE_S = 0.002  # most that an operation takes there, and back
OVER_S = (0.0, 0.05, 0.5, 2.0)  # after which a dead process's session ends
LATE_S = (0.02, 0.1, 0.5, 1.5)
NO_FAULT = Fault()


class LogStore(NamedStore):
    """A handle whose operations take a while and keep their order."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        self.process = process
        self.on_chunk: Callable[[], None] = lambda: None  # a chunk of a manifest was made, which none names yet
        self._held: list[Callable[[], None]] | None = None  # requests, or answers
        self._holds_answers = False
        self._slow_until = self._slow_s = 0.0  # until then an operation takes up to so long
        self._there = self._back = 0.0  # when the last one takes effect, and is answered

    def hold_back(self, answers: bool) -> None:
        """What is asked for from now on takes effect, or is answered, only after `let_go`; there is no news, either."""
        self._held, self._holds_answers = [], answers

    def let_go(self, slow_s: float) -> None:
        """At once; and for so long what is asked for then, and news, which have to be read, may take as long."""
        held, self._held = self._held or [], None
        for each in held:
            if self._holds_answers:
                each()
            else:
                self._send(each, 0.0)
        self._slow_until, self._slow_s = self.world.timeline.now + 2 * slow_s, slow_s

    @property
    def _way_s(self) -> float:
        """Most that an operation, or its answer, is on the way."""
        return self._slow_s if self.world.timeline.now < self._slow_until else STORE_S

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        self.world.makers[ledger] = self.owner
        return super().create_ledger(ledger, metadata)

    def delete_ledger(self, ledger: int) -> Deferred[None]:
        return self._call("delete_ledger", self._delete, ledger)

    async def _delete(self, ledger: int) -> None:
        self.world.deleter = self.owner
        await self._ledgers.delete(ledger)

    def _run(self, name: str, effect: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        return self._signed(name, args, effect, lambda effect: self._in_order(name, partial(effect, *args), args))

    def _in_order(self, name: str, bound: Callable[[], Any], args: tuple[Any, ...]) -> "Deferred[Any]":
        answer: Deferred[Any] = Deferred()
        timeline, rng = self.world.timeline, self.world.random
        if not self.process.alive:
            return answer
        fault = (self.faults(name, args) if self.faults is not None else None) or NO_FAULT

        def begin() -> None:
            if fault.late:
                timeline.at(fault.late, lambda: self._land(bound))
                outcome: Deferred[Any] = fail(fault.error)
            elif self._over:
                outcome = fail(MetaStore("simulated: the session has expired"))
            else:
                outcome = self._apply(bound, fault)
                if any(isinstance(step, Create) and "/chunk/" in step.path for step in args):
                    self.on_chunk()
            if self._held is not None and self._holds_answers:
                self._held.append(lambda: reply(outcome))
            else:
                reply(outcome)

        def reply(outcome: Deferred[Any]) -> None:
            self._back = max(self._back, timeline.now + fault.after + rng.random() * self._way_s)
            self.process.call_by_the_world(self._back - timeline.now, outcome.chainDeferred, answer)

        if self._held is None or self._holds_answers:
            self._send(begin, fault.before)
        else:
            self._held.append(begin)
        return answer

    def _send(self, begin: Callable[[], None], before_s: float) -> None:
        timeline = self.world.timeline
        self._there = max(self._there, timeline.now + before_s + self.world.random.random() * self._way_s)
        timeline.at(self._there - timeline.now, begin)


class Job(Outcome):
    """Something that a process was asked; what a process says after its death is heard by nobody."""

    def __init__(
        self, process: "LogProcess", story: "Deferred[Any]", told: Callable[["Job"], None] | None = None
    ) -> None:
        self.process = process

        def heard(outcome: Outcome) -> None:
            if not process.alive:
                self.done, self.value = False, None
            elif told is not None:
                told(self)

        super().__init__(story, heard)

    @property
    def over(self) -> bool:
        return self.done or not self.process.alive


class LogProcess(SimClient):
    """One process that uses logs.  `on_point(process, name)` hears of each named step that it comes to."""

    store_class = LogStore
    store: LogStore

    def __init__(
        self,
        world: World,
        name: str,
        options: ClientOptions,
        log_options: LogOptions,
        seed: int,
        on_point: Callable[["LogProcess", str], None],
    ) -> None:
        super().__init__(world, name, options, seed)
        self.left = False  # its logs are being closed, and with them all handles
        self.late = 0.0  # the share of faults that let an operation land late
        rate = 1 + Random(seed).uniform(-0.004, 0.004)  # of a clock that nobody sets
        self.logs = Logs(
            self.client,
            log_options,
            reached=lambda point: on_point(self, point),
            now=self.process.seconds,
            boottime=lambda: BOOTED_S + rate * world.timeline.now,
        )
        self.store.on_chunk = lambda: on_point(self, "publish.chunked")

    def _fault(self, operation: str, _arguments: tuple[object, ...]) -> Fault | None:
        rng, seen = self.world.random, self.world.truth.seen
        if not self.fault_rate or rng.random() >= self.fault_rate:
            return None
        changes = operation in ("transact", "write_ledger", "create_ledger", "delete_ledger")
        if changes and rng.random() < self.late:
            seen["a request landed late"] += 1
            return Fault(late=rng.choice(LATE_S), error=MetaStore("simulated: no answer; it lands later"))
        kind = rng.randrange(4)
        if kind == 0 and changes:
            seen["metadata answer lost"] += 1
            return Fault(
                before=rng.choice((0.0, 0.02)), error=MetaStore("simulated: the answer was lost"), applied=True
            )
        if kind == 1:
            return self._failed()
        seen["metadata slow"] += 1
        return Fault(before=rng.choice((0.0, 0.02, 0.2)), after=rng.choice((0.0, 0.02, 0.2)))

    @property
    def frozen(self) -> bool:
        return self.process.paused_until > self.world.timeline.now

    def ask(self, story: Any, told: Callable[[Job], None] | None = None) -> Job:
        """A coroutine or Deferred of this process, and what hears of its outcome."""
        return Job(self, story if isinstance(story, Deferred) else Deferred.fromCoroutine(story), told)

    def crash(self) -> None:
        """kill -9: its session ends some time later."""
        if self.process.alive:
            self.process.alive = False
            self.world.network.drop_process(self.process)
            self.world.timeline.at(self.world.random.choice(OVER_S), self.store.close)
            self.world.tell(f"{self.name} crashed")
