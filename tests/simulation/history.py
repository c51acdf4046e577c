"""
One history: the plan carried out on a simulated cluster, then quiet, then the reckoning.

While the plan runs anything may fail and nothing may be wrong.  Then every fault ends and every bookie that still has
its disk is started: from now on everything must come to an end, the ledger must be closable, and what was acknowledged
must be there.
"""

import gc
import sys
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any
from unittest import mock

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import globalLogBeginner

import quire.client.handles.writer as writing
from quire.client.core.append.machine import AppendMachine
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerState
from quire.protocol.errors import LedgerError
from tests.metadata import stored
from tests.simulation.draining import Draining
from tests.simulation.healing import Healing
from tests.simulation.nodes import SimBookie, SimClient, World
from tests.simulation.outcome import UNEXPECTED, Outcome
from tests.simulation.plan import Plan
from tests.simulation.returning import Returning
from tests.simulation.timeline import Timeline
from tests.simulation.truth import LedgerTruth, Truth, Violation
from tests.simulation.upkeep import FAR, Upkeep, small_parts

OPTIONS = {
    "add_timeout_ms": 150, "read_timeout_ms": 150, "connect_timeout_ms": 150, "long_poll_ms": 100,
    "speculative_read_ms": 40, "window_entries_max": 60,
    "window_bytes_max": 6000, "replica_backlog_bytes_max": 3000, "batch_entries_max": 16, "read_ahead_entries_max": 16,
    "reconnect_wait_ms_max": 100,
}  # fmt: skip
QUIET_SECONDS = 3.0
TAIL_SECONDS = 1e6  # a follower's patience outlasts every jump of its clock: it ends at the close
EARLY, EARLY_IDS = 0.15, 12  # how often an advanced writer may give an id before those below it, and how far ahead
# in which everything must have ended once faults are over: two rounds of the longest wait of a writer
END_SECONDS = 150.0
OPEN_TRIES = 12
GAP_TRIES = 10
FENCED = -101
RECOVERY_REFUSED = (-10, -23)
GENERATOR_FREED = "async generator already executing"


def say_unraisable(found: Any) -> None:
    """A coroutine of a process that died says so where Python frees it; that is no bug of its code."""
    said = str(found.exc_value)
    if not (isinstance(found.exc_value, RuntimeError) and ("GeneratorExit" in said or "already running" in said)):
        sys.__unraisablehook__(found)


RESUMED = vars(defer)["_inlineCallbacks"]


def resumed(result: Any, gen: Any, *more: Any) -> None:
    """
    A coroutine of a process that died ends where Python frees it; what fails meanwhile is not told to that very
    coroutine: Python 3.11 crashes when an exception is thrown into one that is being closed.
    """
    if not (getattr(gen, "cr_running", False) or getattr(gen, "gi_running", False)):
        RESUMED(result, gen, *more)


class Log:
    """Hears the code's own log for failures without a handler; one for the whole process."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        globalLogBeginner.beginLoggingTo([self._observe], redirectStandardIO=False, discardBuffer=True)

    def _observe(self, event: Any) -> None:
        failure = event.get("log_failure")
        # A process that died handles no failure: errors of the protocol are no bugs, nor is it one when Python frees a
        # coroutine of it before the one that awaits it.
        said = "" if failure is None else str(failure.value)
        freed = "already awaited coroutine" in said or said.endswith(("coroutine already executing", GENERATOR_FREED))
        if failure is not None and not freed and not isinstance(failure.value, LedgerError):
            self.failures.append(failure.getTraceback())


LOG = Log()
sys.unraisablehook = say_unraisable
mock.patch.object(defer, "_inlineCallbacks", resumed).start()
gc.freeze()  # the code itself is no garbage


class Line:
    """One ledger and its writer."""

    def __init__(self, truth: LedgerTruth, client: SimClient, writer: Any, kind: str) -> None:
        self.truth = truth
        self.client = client
        self.writer = writer
        self.kind = kind
        self.appends: list[tuple[list[bytes], Outcome]] = []
        self.given: set[bytes] = set()
        self.next_id = truth.first
        self.ids: set[int] = set()  # that an advanced writer gave
        self.early = truth.early  # it may still give ids before those below them
        self.closed: list[Outcome] = []
        self.opens: list[tuple[SimClient, Outcome]] = []
        self.readers: list[list[Any]] = []  # [client, reader, highest end]
        self.tails: list[tuple[SimClient, list[Any], Outcome]] = []
        self.peeks: list[tuple[SimClient, Outcome]] = []
        self.settled = False  # it was closed, and what it holds is right

    def give_id(self, rng: Random) -> int:
        """The lowest id that an advanced writer has not given, or one further on."""
        entry = self.next_id
        if self.early and rng.random() < EARLY:
            further = entry + rng.randint(1, EARLY_IDS)
            entry = entry if further in self.ids else further
        self.ids.add(entry)
        while self.next_id in self.ids:
            self.next_id += 1
        return entry

    def take_back(self, entry: int) -> None:
        self.ids.discard(entry)
        self.next_id = min(self.next_id, entry)

    @property
    def gaps(self) -> int:
        """Ids that are missing below the highest one."""
        return len(set(range(max(self.ids, default=-1))) - self.ids)


class History:
    def __init__(self, plan: Plan, trace: bool = False, timeline: Timeline | None = None) -> None:
        self.plan = plan
        self.world = world = World(plan.seed, plan.latency, plan.jitter, timeline)
        if trace:
            world.trace = [str(plan)]
        world.network.fragmenting = plan.fragmenting
        world.network.losses = plan.profile.losses
        world.listing_lies = plan.profile.listing_lies
        world.moving, world.pace = plan.moving, plan.pace
        self.truth: Truth = world.truth
        self.options = ClientOptions(protocol=plan.protocol, **{**OPTIONS, **dict(plan.modes)})
        self.bookies: list[SimBookie] = []
        for _ in range(plan.bookies):
            self.new_bookie()
        self.clients: list[SimClient] = []
        self.lines: list[Line] = []
        # bookies that lost something that was durable; at most AQ - 1 may, each as often as it likes
        self.losers: set[str] = set()
        self._drawn: Random = world.random
        self.upkeep = Upkeep(self)
        self.healing = Healing(self) if plan.profile.heals else None
        self.draining = Draining(self) if "drain" in plan.profile.weights else None
        self.returning = Returning(self)

    def may_lose(self, bookie: SimBookie) -> bool:
        """Whether the bookie may lose something that is durable; if so it is going to."""
        if bookie.name in self.losers or len(self.losers) < self.plan.shape[2] - 1:
            self.losers.add(bookie.name)
            return True
        return False

    @property
    def seen(self) -> Counter[str]:
        return self.truth.seen

    @property
    def trace(self) -> list[str]:
        return self.world.trace or []

    # The course of things

    def run(self) -> None:
        """Raises `Violation`."""
        LOG.failures.clear()
        with small_parts(self.plan.seed):
            self._run()

    def _run(self) -> None:
        self._begin()
        world = self.world
        start = world.timeline.now
        for step in self.plan.steps:
            self.let_pass(max(0.0, start + step.at - world.timeline.now))
            self._drawn = Random(step.seed)
            world.tell(f"-- {step.kind}")
            self._do(step.kind)
            self._check()
        self._end()
        self._count_requests()
        if self.plan.upkeep:
            self.upkeep.finish()

    def _do(self, kind: str) -> None:
        name = f"_do_{kind}"
        if hasattr(self, name):
            getattr(self, name)(self._drawn)
        else:
            parts = {"heal": self.healing, "drain": self.draining, "return": self.returning}
            getattr(parts.get(kind.partition("_")[0]) or self.upkeep, name[1:])(self._drawn)

    @property
    def plain_options(self) -> ClientOptions:
        """Of an operator, who lets ensemble changes be."""
        return self.options.model_copy(update={"disable_ensemble_change": False})

    def let_pass(self, seconds: float, until: Any = None) -> None:
        self.world.timeline.run(seconds, until)
        self._check()

    def _check(self) -> None:
        truth = self.truth
        for line in self.lines:
            if line.truth.deleted:
                continue
            metadata = self.world.metadata(line.truth.id)
            if line.client.alive:
                truth.confirm(line.truth, line.writer.last_add_confirmed, metadata)
            for pair in line.readers:
                client, reader, before = pair
                if client.alive and reader.last_entry_id != before:
                    truth.saw_end(line.truth, before, reader.last_entry_id, metadata)
                    pair[2] = reader.last_entry_id
        if self.healing is not None:
            self.healing.check()
        if self.draining is not None:
            self.draining.check()
        if LOG.failures:
            self.truth.break_("no bug", LOG.failures[0][-1500:])
        if truth.violation is not None:
            raise truth.violation

    def _begin_cluster(self) -> None:
        keeper = self.new_client("keeper")
        Outcome(keeper.store.init_cluster())
        for bookie in self.bookies:
            bookie.start()
        self.world.timeline.run(0.1)

    def _begin(self) -> None:
        plan, world = self.plan, self.world
        self._begin_cluster()
        e, w, a = plan.shape
        for number, kind in enumerate(plan.ledgers):
            client = self.new_client(f"w{number}")
            self.returning.writer_begins(client)
            machine, first = writing.AppendMachine, plan.profile.first_id
            if first:  # ids around 2^31 (S32) cannot be reached by appending
                writing.AppendMachine = lambda *given, last=first - 1: AppendMachine(
                    *given[:-1], replace(given[-1], last=last)
                )
            try:
                made = Outcome(
                    client.client.create_ledger(
                        ensemble_size=e,
                        write_quorum=w,
                        ack_quorum=a,
                        write_flags="DEFERRED_SYNC" if "deferred" in kind else (),
                        advanced="advanced" in kind,
                    )
                )
                world.timeline.run(0.1)
            finally:
                writing.AppendMachine = machine
            assert made.value is not None, made.error
            truth = LedgerTruth(made.value.id, plan.shape, client.name, "deferred" in kind)
            truth.early = "early" in kind
            truth.first = first
            truth.confirmed = first - 1
            self.truth.ledgers[truth.id] = truth
            self.lines.append(Line(truth, client, made.value, kind))
            if first:
                self._append(self.lines[-1], [b"first", b"second"])
                world.timeline.run(0.1)
        for line in self.lines:
            line.client.fault_rate = plan.fault_rate
        if self.healing is not None:
            self.healing.begin()

    def new_client(self, name: str, options: ClientOptions | None = None) -> SimClient:
        made = SimClient(self.world, name, options or self.options, self.plan.seed * 100 + len(self.clients))
        self.clients.append(made)
        return made

    def new_bookie(self) -> SimBookie:
        journals, ledgers = self.plan.directories
        made = SimBookie(
            self.world,
            f"b{len(self.bookies)}",
            journal_sync_data=self.plan.profile.sync,
            **dict(self.plan.profile.bookie),
            journal_directories=tuple(f"/journal{number}" for number in range(journals)),
            ledger_directories=tuple(f"/ledgers{number}" for number in range(ledgers)),
        )
        self.bookies.append(made)
        return made

    def have_spares(self) -> None:
        """More bookies take new entries than an ensemble has."""
        draining = self.draining
        while (
            sum(each.up and not (draining is not None and draining.is_ordered(each)) for each in self.bookies)
            <= self.plan.shape[0]
        ):
            self.new_bookie().start()

    def some_line(self, rng: Random) -> Line:
        return rng.choice(self.lines)

    def some_bookie(self, rng: Random, up: bool = True) -> SimBookie | None:
        usable = [bookie for bookie in self.bookies if bookie.up == up and not bookie.gone]
        return rng.choice(usable) if usable else None

    # What users do

    def _append(self, line: Line, payloads: list[bytes]) -> None:
        if not line.client.alive or line.client.process.paused_until > self.world.timeline.now:
            return
        writer, world, client_name = line.writer, self.world, line.client.name
        line.given.update(payloads)

        def told(outcome: Outcome, payloads: list[bytes] = payloads) -> None:
            if line.truth.deleted:
                world.tell(f"{client_name} was told of an append to a deleted ledger: {outcome.error or 'done'}")
            elif outcome.error is None:
                ids = outcome.value if isinstance(outcome.value, range) else range(outcome.value, outcome.value + 1)
                metadata = world.metadata(line.truth.id)
                self.truth.confirm(line.truth, writer.last_add_confirmed, metadata)
                if not line.truth.deferred:
                    self.truth.acknowledged(line.truth, ids, payloads, metadata)
                world.tell(f"{line.client.name} was told that {ids} are acknowledged")
            else:
                world.tell(f"{line.client.name}: append failed: {outcome.error}")
                if self.draining is not None:
                    self.draining.failed(line, outcome.error)
                self.seen["writer told that it is fenced"] += outcome.code == FENCED
                if outcome.code == UNEXPECTED:
                    self.truth.break_("no bug", f"append failed: {outcome.error!r}")

        if "advanced" in line.kind:
            for payload in payloads:
                entry = line.give_id(self._drawn)
                outcome = Outcome(writer.append_at(entry, payload), lambda outcome, one=payload: told(outcome, [one]))
                line.appends.append(([payload], outcome))
                # refused at once: the window is full
                if line.truth.early and outcome.done and outcome.error is not None:
                    line.take_back(entry)
            return
        line.appends.append((payloads, Outcome(writer.append_many(payloads), told)))

    def _do_append(self, rng: Random) -> None:
        line = self.some_line(rng)
        start = len(line.given)
        size = rng.choice((8, 8, 40, 200))
        self._append(
            line, [b"%d." % (start + number) + b"x" * size for number in range(rng.randint(1, self.plan.profile.batch))]
        )

    def _do_again(self, rng: Random) -> None:
        """An advanced writer gives an acknowledged id once more (D11)."""
        line = self.some_line(rng)
        if "advanced" not in line.kind or not line.client.alive or line.next_id == 0 or line.writer.closed:
            return
        told = [outcome.value for _payloads, outcome in line.appends if outcome.done and outcome.error is None]
        if not told:
            return
        entry = rng.choice(told)
        again = Outcome(line.writer.append_at(entry, b"twice"))
        if not again.done or again.error is None:
            self.truth.break_("D11", f"id {entry} was acknowledged and is taken once more")
        self.seen["an id was given twice"] += 1

    def _do_wait(self, rng: Random) -> None:
        self.let_pass(rng.choice((0.02, 0.2, 0.6)))

    def _do_open(self, rng: Random) -> None:
        line = self.some_line(rng)
        if len([None for _client, outcome in line.opens if not outcome.done]) < 3:
            client = self.new_client(f"r{len(self.clients)}")
            client.fault_rate = self.plan.fault_rate
            self._open(line, client)

    def _open(self, line: Line, client: SimClient) -> Outcome:
        under_way = [other for other, outcome in line.opens if other.alive and not outcome.done]
        self.seen["two recoverers"] += bool(under_way)

        def told(outcome: Outcome) -> None:
            if outcome.error is None:
                end = outcome.value.last_entry_id
                self.world.tell(f"{client.name} opened the ledger: it ends at {end}")
                self.truth.opened(line.truth, client.name, end, self.world.metadata(line.truth.id))
            else:
                self.world.tell(f"{client.name} could not open: {outcome.error}")
                self.seen["recovery failed"] += 1
                if outcome.code == UNEXPECTED:
                    self.truth.break_("no bug", f"open failed: {outcome.error!r}")

        outcome = Outcome(client.client.open_ledger(line.truth.id), told)
        line.opens.append((client, outcome))
        return outcome

    def _do_look(self, rng: Random) -> None:
        """Another reader that does not disturb the writer."""
        line = self.some_line(rng)
        if len(line.readers) >= 2:
            return
        client = self.new_client(f"t{len(self.clients)}")

        def told(outcome: Outcome) -> None:
            if outcome.error is None:
                metadata = self.world.metadata(line.truth.id)
                # the metadata may say what is confirmed before the writer's caller hears of it
                if line.client.alive:
                    self.truth.confirm(line.truth, line.writer.last_add_confirmed, metadata)
                self.truth.saw_end(line.truth, -1, outcome.value.last_entry_id, metadata)
                line.readers.append([client, outcome.value, outcome.value.last_entry_id])

        Outcome(client.client.open_ledger(line.truth.id, recover=False), told)

    def _readers(self, rng: Random) -> tuple[Line, list[Any]] | None:
        line = self.some_line(rng)
        usable = [pair for pair in line.readers if pair[0].alive]
        return (line, rng.choice(usable)) if usable else None

    def _do_poll(self, rng: Random) -> None:
        found = self._readers(rng)
        if found is None:
            return
        line, (_client, reader, _end) = found
        least = line.truth.told_at_least(reader.metadata, self.world.metadata(line.truth.id))

        def told(outcome: Outcome) -> None:
            # of a ledger that was deleted meanwhile nothing has to be known
            if outcome.error is None and not line.truth.deleted:
                self.truth.read_lac(line.truth, least, outcome.value)

        Outcome(reader.read_last_confirmed(), told)

    def _do_follow(self, rng: Random) -> None:
        found = self._readers(rng)
        if found is None or found[0].tails or self.plan.profile.first_id:
            return
        line, (client, reader, _end) = found
        got: list[Any] = []

        async def run() -> None:
            async for entries in reader.tail(TAIL_SECONDS):
                got.extend(entries)

        line.tails.append((client, got, Outcome(Deferred.fromCoroutine(run()))))

    def _do_peek(self, rng: Random) -> None:
        """Reads what is not confirmed: it may fail, but past the end of a closed ledger nothing may come back (D9)."""
        found = self._readers(rng)
        if found is None:
            return
        line, (client, reader, _end) = found
        closed = reader.closed
        beyond = Outcome(reader.read(reader.last_entry_id + 1, reader.last_entry_id + 1))
        if not beyond.done or beyond.error is None:
            self.truth.break_("D8", f"a reader whose end is {reader.last_entry_id} may read past it")

        def told(outcome: Outcome) -> None:
            if outcome.error is None and closed and outcome.value and outcome.value[-1].entry_id > reader.last_entry_id:
                self.truth.break_(
                    "D9",
                    f"a reader of closed ledger {line.truth.id} got entry {outcome.value[-1].entry_id} past its end "
                    f"{reader.last_entry_id}",
                )
            self.seen["read past what is confirmed"] += outcome.error is None

        first = line.truth.first + rng.randrange(4)
        line.peeks.append((client, Outcome(reader.read_unconfirmed(first, first + len(line.truth.payloads)), told)))

    def _do_close(self, rng: Random) -> None:
        line = self.some_line(rng)
        if line.client.alive:
            self.close_line(line)

    def close_line(self, line: Line) -> None:
        def told(outcome: Outcome) -> None:
            metadata = self.world.metadata(line.truth.id)
            ours = metadata is not None and metadata.is_closed and metadata.last_entry == line.writer.last_add_confirmed
            if outcome.error is None and not ours and not line.truth.deleted:
                self.truth.break_(
                    "S19",
                    f"a close at {line.writer.last_add_confirmed} succeeded, and ledger {line.truth.id} is {metadata}",
                )

        line.closed.append(Outcome(line.writer.close(), told))

    def _do_write_lac(self, rng: Random) -> None:
        line = self.some_line(rng)
        if line.client.alive:
            Outcome(line.writer.write_lac())

    def _do_force(self, rng: Random) -> None:
        line = self.some_line(rng)
        if not line.client.alive:
            return

        def told(outcome: Outcome) -> None:
            metadata = self.world.metadata(line.truth.id)
            if outcome.error is None and metadata is not None:
                self.seen["forced"] += 1
                self.truth.forced(line.truth, line.writer.last_add_confirmed, metadata)
            else:
                self.seen["force refused"] += 1

        Outcome(line.writer.force(), told)

    # Faults

    def _do_kill(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None:
            bookie.die()

    def _do_start(self, rng: Random) -> None:
        bookie = self.some_bookie(rng, up=False)
        if bookie is not None:
            bookie.start()

    def _do_power(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None:
            bookie.lose_power(rng)

    def _do_dark_start(self, rng: Random) -> None:
        """The power goes, and again in the midst of the start that follows."""
        bookie = self.some_bookie(rng)
        if bookie is not None:
            bookie.lose_power(rng)
            bookie.power_after(rng.randint(1, 24), rng)
            bookie.start()

    def _do_torn(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None:
            bookie.fail_next_sync("/", rng)

    def _do_sync_fault(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None:
            bookie.fail_next_sync("/journal", None)

    def _do_flush_fault(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is None:
            return
        if self.plan.directories[1] > 1:  # that directory fails, with what is in it
            if not self.may_lose(bookie):
                return
            bookie.doubtful = True
        bookie.fail_next_sync("/ledgers", None)

    def _do_flush(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None and bookie.storage is not None:
            bookie.storage.flush().addErrback(lambda _failure: None)
            self.seen["checkpoint"] += 1

    def _do_wipe(self, rng: Random) -> None:
        self._destroy(rng, amnesia=False)

    def _do_amnesia(self, rng: Random) -> None:
        self._destroy(rng, amnesia=True)

    def _destroy(self, rng: Random, amnesia: bool) -> None:
        bookie = self.some_bookie(rng)
        if bookie is None or not self.may_lose(bookie):
            return
        self.seen["disk destroyed"] += 1
        bookie.lose_disk(amnesia)
        if rng.random() < 0.7:
            self.world.timeline.at(rng.random() * 0.05, bookie.start)

    def _do_lose_unnamed(self, rng: Random) -> None:
        """A bookie loses its disk that a recovery has written to, and that the metadata does not name yet."""

        def found() -> list[SimBookie]:
            written = set()
            for line in self.lines:
                metadata = self.world.metadata(line.truth.id)
                if metadata is not None and metadata.state is LedgerState.IN_RECOVERY:
                    written |= {bookie for kept in line.truth.kept.values() for bookie in kept} - set(
                        metadata.bookies()
                    )
            return [bookie for bookie in self.bookies if bookie.id in written and bookie.serving]

        self.let_pass(0.2, found)
        bookies = found()
        if bookies and self.may_lose(bookies[0]):
            self.seen["a disk destroyed that a recovery counts on"] += 1
            bookies[0].lose_disk(amnesia=True)
            self.world.timeline.at(rng.choice((0.0, 0.01)), bookies[0].start)

    def _do_lose_directory(self, rng: Random) -> None:
        """
        A journal is gone, or one of several ledger directories: of a bookie that lost something before, if there is
        one, and then not the same ledgers.
        """
        losers = [bookie for bookie in self.bookies if bookie.name in self.losers and not bookie.gone]
        bookie = rng.choice(losers) if losers else self.some_bookie(rng)
        if bookie is None or not self.may_lose(bookie):
            return
        count = self.plan.directories[1]
        if count < 2 or rng.random() < 0.35:
            self.seen["a journal lost"] += 1
            bookie.lose_directory(bookie.options.journal_directories, rng.randrange(self.plan.directories[0]))
        else:
            self.seen["a ledger directory of several lost"] += 1
            number = rng.randrange(count)
            spared = bookie.doubted is not None and number == bookie.doubted % count
            bookie.lose_directory(bookie.options.ledger_directories, (number + 1) % count if spared else number)
        if rng.random() < 0.7:
            self.world.timeline.at(rng.random() * 0.05, bookie.start)

    def _do_lose_files(self, rng: Random) -> None:
        """Files of a journal or a mark vanish while their bookie is down: it must not start without them."""
        losers = [bookie for bookie in self.bookies if bookie.name in self.losers and not bookie.gone]
        bookie = rng.choice(losers) if losers else self.some_bookie(rng)
        if bookie is None or not self.may_lose(bookie):
            return
        self.seen["files vanished"] += bookie.lose_files(rng)
        if rng.random() < 0.7:
            self.world.timeline.at(rng.random() * 0.05, bookie.start)

    def _do_stop_link(self, rng: Random) -> None:
        hosts = [bookie.host for bookie in self.bookies]
        users = [client.name for client in self.clients[1:] if client.alive]
        if not users:
            return
        bookie, user = rng.choice(hosts), rng.choice(users)
        pairs = rng.choice(([(bookie, user)], [(user, bookie)], [(user, bookie), (bookie, user)]))
        for pair in pairs:
            self.world.network.block(*pair)
        self.seen["partition"] += 1
        if rng.random() < 0.6:
            self.world.timeline.at(rng.choice((0.02, 0.1, 0.5)), lambda: self.world.network.unblock(pairs))

    def _do_heal(self, rng: Random) -> None:
        self.world.network.unblock(sorted(self.world.network.blocked))

    def _do_cut(self, rng: Random) -> None:
        ends = [end for end in self.world.network.ends if end.open and end.protocol is not None]
        if ends:
            self.seen["connection cut"] += 1
            end = rng.choice(ends)
            self.world.network.cut(end.process.host, end.peer_host)

    def _do_slow_host(self, rng: Random) -> None:
        host = rng.choice(self.bookies).host
        self.world.network.slow[host] = rng.choice((0.0, 0.01, 0.05, 0.3))

    def _do_slow_disk(self, rng: Random) -> None:
        rng.choice(self.bookies).sync_seconds = rng.choice((0.0, 0.0005, 0.02, 0.2))

    def _do_pause_bookie(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None and bookie.process is not None:
            self.seen["process paused"] += 1
            bookie.process.pause(rng.choice((0.05, 0.3, 1.0)))

    def _do_pause_writer(self, rng: Random) -> None:
        line = self.some_line(rng)
        self.seen["process paused"] += 1
        line.client.process.pause(rng.choice((0.1, 0.5, 2.0)))

    def _do_expire(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is None or not hasattr(bookie, "store"):
            return
        kind = rng.randrange(4)
        if kind == 0:
            self.seen["registration removed by somebody"] += 1
            bookie.unlist()
            return
        self.seen["session expired"] += 1
        if kind == 1:
            self.seen["unregistered after the session's end"] += 1
            bookie.leave_late(rng.choice((0.0, 0.05, 0.5)))
        else:
            bookie.store.expire_session()

    def _do_jump(self, rng: Random) -> None:
        """The clock of one machine is set."""
        processes = [client.process for client in self.clients if client.alive] + [
            bookie.process for bookie in self.bookies if bookie.up and bookie.process
        ]
        process = rng.choice(processes)
        change = rng.choice((-1.0, -0.1, 0.1, 1.0, *FAR))
        self.seen["clock jumped"] += 1
        self.seen["clock set back far"] += change <= -3600
        self.seen["clock set forward far"] += change >= 3600
        self.world.tell(f"the clock of {process.host} is set by {change:g} s")
        process.set_clock(process.clock_offset + change)

    def _do_crash_writer(self, rng: Random) -> None:
        line = self.some_line(rng)
        if line.client.alive:
            self.truth.confirm(line.truth, line.writer.last_add_confirmed, self.world.metadata(line.truth.id))
            self.seen["writer crashed"] += 1
            line.client.crash()

    def _do_crash_opener(self, rng: Random) -> None:
        busy = [client for line in self.lines for client, outcome in line.opens if client.alive and not outcome.done]
        if busy:
            self.seen["recoverer crashed"] += 1
            rng.choice(busy).crash()

    def _do_read_only(self, rng: Random) -> None:
        bookie = self.some_bookie(rng)
        if bookie is not None:
            self.seen["read-only bookie"] += 1
            bookie.read_only(rng.random() < 0.7)

    def _do_spare(self, rng: Random) -> None:
        if len(self.bookies) < self.plan.shape[0] + 6:
            self.seen["bookie joined"] += 1
            self.new_bookie().start()

    def _do_lie(self, rng: Random) -> None:
        """A bookie's memory holds a LAC that no client wrote: in answers it is a hint, and no more (D14)."""
        bookie = self.some_bookie(rng)
        if bookie is not None:
            self._let_lie([bookie])

    def _do_lies(self, rng: Random) -> None:
        """The same of every bookie: a reader that follows finds no bookie to wait at."""
        self._let_lie(self.bookies)

    def _let_lie(self, bookies: list[SimBookie]) -> None:
        for bookie in bookies:
            for line in self.lines:
                state = bookie.storage.ledger(line.truth.id) if bookie.storage is not None else None
                if state is not None:
                    self.seen["wrong LAC hint"] += 1
                    state.lac += 3

    # Quiet, and the reckoning

    def _end(self) -> None:
        self._calm()
        for line in self.lines:
            line_out = line.client.alive and line.writer.bookies_out
            self.seen["went on without a spare"] += bool(line_out)
            if line.client.alive and not line.writer.closed:
                line.early = False
                for _ in range(GAP_TRIES if line.gaps else 1):
                    self._append(line, [b"%d.late" % (len(line.given) + number) for number in range(line.gaps + 1)])
                    self.let_pass(1.0)
                    if not line.gaps:
                        break
                if self.plan.seed % 2:
                    self.close_line(line)
                    self.let_pass(1.0)
        for line in self.lines:
            if line.truth.deleted:
                self._bury(line)
            else:
                self._settle(line)

    def _calm(self) -> None:
        """Faults end, and whoever has a disk is started."""
        world = self.world
        world.tell("-- quiet")
        for client in self.clients:
            client.fault_rate = 0.0
            client.process.set_clock(client.process.clock_ahead)  # as long passes as it was set back
        world.listing_lies = 0.0
        world.network.slow.clear()
        world.network.losses = 0.0
        world.network.jitter = min(world.network.jitter, 0.01)
        world.network.unblock(sorted(world.network.blocked))
        for _ in range(len(self.losers)):  # who lost disks for good brings new ones
            self._do_spare(self._drawn)
        for bookie in self.bookies:
            if bookie.is_rotten:  # its index could not be rebuilt: it gets a new disk
                bookie.lose_disk(amnesia=True)
            bookie.sync_seconds = 0.0005
            bookie.disk.before = None
            if bookie.process is not None:
                bookie.process.set_clock(bookie.process.clock_ahead)
            if bookie.up and bookie.storage is not None and bookie.storage.read_only is not None:
                bookie.die()  # its disk failed and works again: it is started again
            bookie.start()
            if bookie.storage is not None and bookie.storage.read_only is None:
                bookie.read_only(False)
        self.let_pass(QUIET_SECONDS)
        if self.draining is not None:
            self.draining.calm()
        unlisted = [
            bookie.name
            for bookie in self.bookies
            if bookie.serving and stored.registered(world.shared, bookie.id) is None
        ]
        if unlisted:
            raise Violation("listed", f"{unlisted} serve and are in no list")
        for bookie in self.bookies:
            if not bookie.up and not bookie.gone:
                bookie.start()

    def _bury(self, line: Line) -> None:
        """A deleted ledger: all that have to do with it come to an end."""
        for client, _got, _tail in line.tails:
            client.crash()  # a reader of a ledger that is not closed any more follows for ever
        if line.client.alive and not line.writer.closed:
            self.close_line(line)
        self.let_pass(END_SECONDS, lambda: self._all_ended(line))
        if not self._all_ended(line):
            raise Violation("ends once", f"deleted ledger {line.truth.id}: an append or an open hangs")

    def _settle(self, line: Line) -> None:
        opened: Outcome | None = None
        for _ in range(OPEN_TRIES):
            client = self.new_client(f"z{len(self.clients)}", self.plain_options)
            opened = self._open(line, client)
            self.let_pass(5.0, lambda opened=opened: opened.done)
            if opened.done and opened.error is None:
                break
            for bookie in self.bookies:
                bookie.start()
        assert opened is not None
        if not opened.done or opened.error is not None:
            doubts = sum(
                bookie.doubtful or bookie.amnesia or bookie.gone or bookie.name in self.losers
                for bookie in self.bookies
            )
            # more than a ledger need bear: it is not closed on a guess
            if doubts >= self.plan.shape[2] and opened.code in RECOVERY_REFUSED:
                self.seen["recovery refused: too many bookies in doubt"] += 1
                return
            raise Violation("I7", f"faults are over, yet ledger {line.truth.id} can't be opened: {opened.error!r}")
        metadata = self.world.metadata(line.truth.id)
        if metadata is None or metadata.state is not LedgerState.CLOSED:
            raise Violation("I7", f"ledger {line.truth.id} was opened for recovery and is {metadata}")
        self.let_pass(1.0)
        if not self._all_ended(line):
            self.let_pass(END_SECONDS, lambda: self._all_ended(line))
        self.let_pass(1.0)
        self._reckon(line, opened.value, metadata)
        line.settled = True

    def _count_requests(self) -> None:
        followers = {client.name for line in self.lines for client, _got, _tail in line.tails}
        for (host, second), requests in self.world.network.writes.items():
            if host in followers:
                self.truth.asked(host, second, requests)
        self._check()

    def _all_ended(self, line: Line) -> bool:
        if line.client.alive and not all(outcome.done for _payloads, outcome in line.appends):
            return False
        return all(
            outcome.done or not client.alive
            for client, outcome in line.opens + [(client, tail) for client, _got, tail in line.tails]
        )

    def _reckon(self, line: Line, reader: Any, metadata: Any) -> None:
        truth, first, end = line.truth, line.truth.first, metadata.last_entry
        if line.client.alive:
            hanging = [payloads[0][:20] for payloads, outcome in line.appends if not outcome.done]
            # such a writer waits for the lost bookie
            if hanging and not (self.losers and self.options.disable_ensemble_change):
                raise Violation("ends once", f"appends hang: {hanging[:3]}")
        if any(client.alive and not outcome.done for client, outcome in line.opens):
            raise Violation("ends once", "an open hangs")
        reading = Outcome(reader.read(first, end)) if end >= first else None
        if reading is not None:
            self.let_pass(20.0, lambda: reading.done)
            if reading.error is not None or not reading.done:
                raise Violation(
                    "readable", f"entries {first} to {end} of closed ledger {truth.id} can't be read: {reading.error!r}"
                )
        entries = {entry.entry_id: entry.data for entry in reading.value} if reading is not None else {}
        self.truth.reckon(truth, metadata, entries, line.given, "advanced" not in line.kind)
        self._reckon_readers(line, entries, end)

    def _reckon_readers(self, line: Line, entries: dict[int, bytes], end: int) -> None:
        truth = line.truth
        if truth.seen > end:
            raise Violation("I8", f"a reader saw entry {truth.seen} of ledger {truth.id}, which ends at {end}")
        for client, got, tail in line.tails:
            if not client.alive:
                continue
            if not tail.done:
                raise Violation("ends once", "a tail hangs")
            self.truth.followed(truth, [entry.data for entry in got], entries, tail.error)
            self.seen["tail followed to the close"] += tail.error is None
            self.seen["tail beside ids out of order"] += truth.early
        if end > -1:
            asked = [
                Outcome(pair[1].read_unconfirmed(truth.first, end + 8))
                for pair in line.readers
                if pair[0].alive and pair[1].closed
            ]
            self.let_pass(2.0, lambda: all(outcome.done for outcome in asked))
            for outcome in asked:
                past = outcome.done and outcome.error is None and outcome.value[-1].entry_id > end
                if past or not isinstance(outcome.error, LedgerError | None):
                    raise Violation(
                        "D9",
                        f"past the end {end} of closed ledger {truth.id} something was read: "
                        f"{outcome.value or outcome.error!r:.80}",
                    )
        if self.truth.violation is not None:
            raise self.truth.violation
