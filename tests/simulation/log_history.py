"""
A history of one named log: owners and candidates, readers, publishers, on a cluster whose bookies, network and metadata
store fail.

While the plan runs anything may fail and nothing may be wrong.  Then every fault ends: every call must get its answer,
somebody must be able to own the log and to append, all of it must be readable, and what nothing names must be gone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import Effect, Input, Refuse
from quire.conf.log import LogOptions
from quire.log.core import edits
from quire.log.owner.appending import producing
from quire.log.owner.appending.window import Window
from quire.log.owner.handle import Owner
from quire.log.reader import shared_ledgers
from quire.metadata.memory.cluster import RECORDS
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import AppendUnknown, NoSuchLog
from tests.simulation.history import END_SECONDS, QUIET_SECONDS, TAIL_SECONDS, History
from tests.simulation.log_cursors import Consumers
from tests.simulation.log_endings import finish
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.log_producers import Producers
from tests.simulation.log_publishers import Publishers
from tests.simulation.log_reads import Reads
from tests.simulation.log_replicas import Replicas
from tests.simulation.log_truth import LogTruth, key_of
from tests.simulation.outcome import UNEXPECTED, Outcome
from tests.simulation.plan import Plan
from tests.simulation.timeline import EPOCH, Timeline
from tests.simulation.truth import Truth, Violation

NAME = "orders"
LOG_OPTIONS = {
    "batch_bytes": 300, "part_bytes": 120, "append_ms": 1500, "takeover_ms": 4000, "window_records": 60,
    "window_bytes": 6000, "poll_ms": 100, "tidy_ms": 1500, "snapshot_records": 25, "read_ms": 2000,
    "compaction_keys": 3, "cursor_ms": 200,
}  # fmt: skip
CACHE_BYTES = (64 << 20, 64 << 20, 6000, 0)  # of a process: room for all, for some entries, for none
ROLLS = (
    {"roll_records": 4},
    {"roll_records": 12},
    {"roll_bytes": 300},
    {"roll_age_ms": 400},
    {"roll_age_ms": 2000},
    {},
)
PROCESSES = 3
OWNERS_MAX, READERS_MAX = 4, 5
SEGMENTS = {"SEGMENTS_MAX": 7, "SEGMENTS_KEPT": 3, "CHUNK_SEGMENTS_MAX": 4}
OWN_SECONDS = 90.0
FOLLOW_S = 5.0  # in place of a day
FAR_S = 10 * 86_400.0  # further than any clock is set
# What a reader may not be told while everything that is named is there.
TRIMMED = -304
NOT_FOR_READERS = {-301, -303, -304, -311, -312, -318}
POINTS = (
    "claim.registered", "claim.claimed", "claim.revoked", "claim.waited",
    "claim.epoch", "settle.recovered", "settle.closed", "open.created",
    "open.named", "roll.drained", "roll.closed", "roll.named", "fence.recovered", "fence.released", "move.announced",
    "move.closed", "part.claimed", "part.intended", "part.created", "part.looked", "part.written", "part.closed",
    "publish.checked", "publish.settled", "publish.chunked", "publish.done", "adopt.looked", "adopt.done",
    "abort.moved", "abort.fenced", "abort.deleted", "abort.cleared", "janitor.fenced", "janitor.deleted",
    "janitor.cleared", "trim.held", "trim.doomed", "trim.fenced", "trim.deleted", "trim.cleared", "orphan.doomed",
    "orphan.deleted", "end.settled", "end.marked", "delete.unnamed", "delete.fenced", "delete.ledger",
    "delete.children", "delete.done", "snapshot.created", "snapshot.written", "snapshot.closed", "snapshot.named",
    "compact.written", "compact.named", "merge.created", "merge.written", "merge.named", "cursor.made",
    "cursor.created", "cursor.checkpoint",
    "cursor.named", "cursor.changed", "cursor.folded", "lease.looked",
)  # fmt: skip
PROCEDURES = tuple(dict.fromkeys(point.split(".")[0] for point in POINTS))
AT_THE_END = {"end", "delete"}  # procedures that no step begins
TRAPPED_S = 1.0  # then whoever is in a trap is let go in any case
SELDOM = {"compact", "lease", "merge"}  # that only some logs have


class Handle:
    """One handle that owns the log, or wants to."""

    def __init__(self, process: LogProcess, number: int) -> None:
        self.process = process
        self.name = f"h{number}"
        self.owner: Owner | None = None
        self.owning: Job | None = None
        self.closing: list[Job] = []
        self.appends: list[tuple[list[bytes], Job]] = []
        self.count = 0  # values so far
        self.leaving = False  # it closes as soon as it owns the log

    @property
    def owns(self) -> bool:
        """As far as it was told; it may have lost the log since."""
        return self.owner is not None and self.process.alive

    @property
    def over(self) -> bool:
        return not self.process.alive or (self.owning is not None and self.owning.error is not None)

    def values(self, rng: Random, count: int, size: int) -> list[bytes]:
        first, self.count = self.count, self.count + count
        return [f"{self.name}.{number}.".encode() + b"x" * rng.randint(0, size) for number in range(first, self.count)]


class Reading:
    """A reader; `index` is behind the last record that it was given."""

    def __init__(self, process: LogProcess) -> None:
        self.process = process
        self.index: int | None = None
        self.values: list[bytes] = []
        self.job: Job | None = None

    @property
    def over(self) -> bool:
        return self.job is not None and self.job.over


class Trap(NamedTuple):
    """
    For who comes to a point of a procedure: what it asks of the store from there on, or the answers, are held back
    until another one comes to the point `until`, for whose sake `does` is called; a second at most.
    """

    point: str
    until: str
    does: Callable[[LogProcess, Random], None]
    rng: Random


class LogHistory(History):
    """`processes`: those that live use the log.  `prefix`: of their names; `first`: the number of the first handle."""

    prefix, first = "", 0
    process_class: type[LogProcess] = LogProcess
    log_options: Mapping[str, Any] = LOG_OPTIONS

    def __init__(self, plan: Plan, trace: bool = False, timeline: Timeline | None = None) -> None:
        super().__init__(plan, trace, timeline)
        world = self.world
        world.shared.time_of_day = lambda: EPOCH + world.timeline.now
        self.log_truth = self._made_truth()
        self.processes: list[LogProcess] = []
        self.handles: list[Handle] = []
        self.readers: list[Reading] = []
        self.trap: Trap | None = None
        self.trapped: LogProcess | None = None
        self.is_quiet = False
        self.doom: tuple[str, int] | None = None  # whoever comes to that point for that many more times dies
        self.deleted = False  # somebody began to delete the log
        self.publishers = Publishers(self)
        self.replicas = Replicas(self)
        self.reads = Reads(self)
        self.producers = Producers(self)
        self.consumers = Consumers(self)

    def _made_truth(self) -> LogTruth:
        return LogTruth(self.world)

    def run(self) -> None:
        with small_manifests(), watched_windows(self.truth):
            super().run()

    def _do(self, kind: str) -> None:
        actors = self.publishers, self.replicas, self.reads, self.producers, self.consumers
        step = next(filter(None, (getattr(actor, f"do_{kind}", None) for actor in actors)), None)
        if step is None:
            super()._do(kind)
        else:
            step(self._drawn)

    # Processes

    def new_process(self) -> LogProcess:
        made = self.process_class(
            self.world,
            f"{self.prefix}p{len(self.processes)}",
            self.options,
            LogOptions(
                **self.log_options, cache_bytes=CACHE_BYTES[(self.plan.seed + len(self.processes)) % len(CACHE_BYTES)]
            ),
            self.plan.seed * 100 + 50 + len(self.processes),
            self._reached,
        )
        self.clients.append(made)
        self.processes.append(made)
        return made

    def some_process(self, rng: Random) -> LogProcess:
        living = [process for process in self.processes if process.alive]
        if len(living) < PROCESSES:
            made = self.new_process()
            self.let_fail(made)
            living.append(made)
        return rng.choice(living)

    def let_fail(self, process: LogProcess) -> None:
        process.fault_rate, process.late = self.plan.fault_rate, self.plan.profile.late

    def _reached(self, process: LogProcess, point: str) -> None:
        if not process.alive:
            return
        self.world.tell(f"{process.name} reached {point}")
        self.seen[f"reached {point}"] += 1
        self._look_at_trap(process, point)
        procedure = point.split(".", maxsplit=1)[0]
        if self.doom is not None and self.doom[0] == procedure:
            self.doom = (procedure, self.doom[1] - 1)
            if self.doom[1] <= 0:
                self.doom = None
                self.seen[f"killed at {point}"] += 1
                self.seen[f"killed in {procedure}"] += 1
                process.crash()

    def set_trap(self, point: str, until: str, does: Callable[[LogProcess, Random], None], rng: Random) -> None:
        """Instead of the one that is set, unless somebody is in that."""
        if self.trapped is None:
            self.trap = Trap(point, until, does, Random(rng.random()))

    def _look_at_trap(self, process: LogProcess, point: str) -> None:
        trap = self.trap
        if trap is None:
            return
        if self.trapped is None and point == trap.point:
            self.seen[f"trapped at {point}"] += 1
            self.trapped = process
            process.store.hold_back(answers=trap.rng.random() < 0.5)
            self.world.timeline.at(trap.rng.random() * 0.1, partial(trap.does, process, trap.rng))
            self.world.timeline.at(TRAPPED_S, partial(self._let_go, trap))
        elif self.trapped is not None and process is not self.trapped and point == trap.until:
            self.seen[f"trapped until {point}"] += 1
            self._let_go(trap)

    def _let_go(self, trap: Trap) -> None:
        if trap is self.trap and self.trapped is not None:
            self.trapped.store.let_go(trap.rng.choice((0.0, 0.2, 0.5)))
            self.trap = self.trapped = None

    def check_error(self, outcome: Outcome, what: str) -> None:
        """A failure that can be no answer."""
        if outcome.code == UNEXPECTED or "a bug ended" in str(outcome.error):
            self.truth.break_("no bug", f"{what} failed: {outcome.error!r}")

    def _begin(self) -> None:
        self._begin_cluster()
        e, w, a = self.plan.shape
        rng = Random(self.plan.seed)
        made = self.new_process()
        settings: dict[str, Any] = {
            "ensemble": e,
            "write": w,
            "ack": a,
            "compression": rng.choice(("none", "none", "zlib")),
            "dedup": self.plan.profile.dedup,
            **rng.choice(ROLLS),
        }
        if self.plan.profile.reads:
            settings |= {"publish": False, "lease_ms": rng.choice((100, 400, 1500))}
        if self.plan.profile.compacts:
            settings["compaction"] = True
        job = made.ask(made.logs.create(NAME, **settings))
        self.let_pass(0.2)
        assert job.done, "the log is made before anything fails"
        assert job.error is None, job.error
        for process in self.processes:
            self.let_fail(process)

    # Owners

    def some_owner(self, rng: Random) -> Handle | None:
        """Rather the last one that was told that it owns the log."""
        owners = [handle for handle in self.handles if handle.owns and not handle.process.frozen]
        if not owners:
            return None
        return owners[-1] if rng.random() < 0.75 else rng.choice(owners)

    def _do_own(self, rng: Random) -> None:
        self.own(self.some_process(rng), rng)

    def own_one(self, rng: Random) -> None:
        """Some process wants the log."""
        self._do_own(rng)

    def _do_force(self, rng: Random) -> None:
        self.seen["ownership forced"] += 1
        self.own(self.some_process(rng), rng, force=True)

    def own(
        self, process: LogProcess, rng: Random, force: bool = False, then: Callable[[Handle], None] | None = None
    ) -> Handle | None:
        if process.frozen or sum(not handle.over for handle in self.handles) >= OWNERS_MAX:
            return None
        handle = Handle(process, self.first + len(self.handles))
        self.seen["two handles of one process"] += any(
            each.process is process and not each.over for each in self.handles
        )

        def told(outcome: Job) -> None:
            if outcome.error is None:
                handle.owner = outcome.value
                self.world.tell(f"{handle.name} in {process.name} owns the log, epoch {outcome.value.epoch}")
                self.seen["owned"] += 1
                if handle.leaving:
                    self.close(handle, outcome.value.close())
                elif then is not None:
                    then(handle)
            else:
                self.world.tell(f"{handle.name} in {process.name} can't own the log: {outcome.error}")
                self.seen[f"own failed {outcome.code}"] += 1
                self.check_error(outcome, "own")
                if outcome.code in (-301, -303, -311):
                    self.truth.break_("ends", f"own failed: {outcome.error!r}")

        self.handles.append(handle)
        wait = rng.choice((None, None, 0.5))
        story = process.logs.own(NAME, force=force, priority=rng.choice((0, 0, 1)), wait_s=wait)
        handle.owning = process.ask(story, told)
        return handle

    def _do_append(self, rng: Random) -> None:
        handle = self.some_owner(rng)
        if handle is None:
            self._do_own(rng)
        else:
            count, size = rng.randint(1, self.plan.profile.batch), rng.choice((8, 8, 40))
            self.append(handle, handle.values(rng, count, size))

    def _do_append_large(self, rng: Random) -> None:
        """One batch that is cut over entries, or one call that becomes several batches."""
        handle = self.some_owner(rng)
        if handle is not None:
            self.seen["large append"] += 1
            self.append(handle, handle.values(rng, rng.choice((1, 3, 5, 12)), 300), atomic=rng.random() < 0.5)

    def append(self, handle: Handle, values: list[bytes], atomic: bool = False) -> None:
        owner, truth = handle.owner, self.log_truth
        assert owner is not None
        truth.appended(handle.name, values)
        self.reads.begin(values)
        epoch = owner.epoch

        def told(job: Job) -> None:
            error = job.error
            self.reads.end(values, error)
            if error is None:
                indexes = list(job.value.indexes) if hasattr(job.value, "indexes") else [job.value.index]
                self.world.tell(f"{handle.name} was told that {indexes} are acknowledged")
                truth.acknowledged(handle.name, epoch, values, indexes)
                return
            self.world.tell(f"{handle.name}: append of {values[0][:10]!r} failed: {error!r}")
            self.seen[f"append failed: {type(error).__name__}"] += 1
            self.check_error(job, "append")
            if not isinstance(error, AppendUnknown):
                truth.refused(values, error)

        keys = [key_of(value) for value in values] if self.plan.profile.compacts else None
        if len(values) == 1 and not atomic:
            asked = owner.append(values[0], key=keys[0] if keys else None)
        else:
            asked = owner.append_many(values, keys=keys, atomic=atomic)
        handle.appends.append((values, handle.process.ask(asked, told)))

    def handle_of(self, process: LogProcess, owner: Owner) -> Handle:
        """That owns the log for a replica, which closes it."""
        for handle in self.handles:
            if handle.owner is owner:
                return handle
        handle = Handle(process, self.first + len(self.handles))
        handle.owner = owner
        self.handles.append(handle)
        return handle

    def _do_barrier(self, rng: Random) -> None:
        handle = self.some_owner(rng)
        if handle is not None and handle.owner is not None:
            handle.appends.append(([], handle.process.ask(handle.owner.barrier())))

    def _do_roll(self, rng: Random) -> None:
        handle = self.some_owner(rng)
        if handle is not None and handle.owner is not None:
            handle.owner.roll()

    def _do_settings(self, rng: Random) -> None:
        process = self.some_process(rng)
        if not process.frozen:
            process.ask(process.logs.update(NAME, **rng.choice(ROLLS)), lambda job: self.check_error(job, "update"))

    def _do_settings_of_two(self, rng: Random) -> None:
        """Two change settings at once, each to what would do; acknowledgements are no fewer than the history's."""
        e, _w, a = self.plan.shape

        def told(job: Job) -> None:
            if isinstance(job.error, ValueError) and "quorums" in str(job.error):
                self.seen["settings refused"] += 1  # beside what the other one has changed
            else:
                self.check_error(job, "update")

        for process in [self.some_process(rng) for _ in range(2)]:
            ack = rng.randint(a, e)
            changed = rng.choice(({"ack": ack}, {"write": rng.randint(ack, e)}, {"ack": ack, "write": ack}))
            if not process.frozen:
                process.ask(process.logs.update(NAME, **changed), told)

    def _do_switch_compaction(self, rng: Random) -> None:
        """Off or on: while it is off nothing keeps the log from being trimmed, and records go that it has not seen."""
        process = self.some_process(rng)
        if process.frozen:
            return
        off = self.log_truth.compacts
        self.seen["compaction turned off" if off else "compaction turned on"] += 1
        process.ask(process.logs.update(NAME, compaction=not off), lambda job: self.check_error(job, "update"))
        if off:
            self._do_roll(rng)
            self.world.timeline.at(rng.random() * 0.3, partial(self._do_trim, rng))

    def _do_compact_overtaken(self, rng: Random) -> None:
        """The next compaction that has written is named late, and meanwhile the log is trimmed behind it."""

        def overtake(trapped: LogProcess, drawn: Random) -> None:
            process = self.some_process(drawn)
            if process is trapped or process.frozen:
                return

            async def story() -> None:
                await process.logs.update(NAME, compaction=False)
                before = max(self.log_truth.acked, default=-1) + 1
                self.log_truth.trimmed = max(self.log_truth.trimmed, before)
                await process.logs.trim(NAME, before)

            process.ask(story(), self._trim_told)

        def appended(trapped: LogProcess, drawn: Random) -> None:
            self._do_append(drawn)
            self.world.timeline.at(0.1, partial(self._do_roll, drawn))
            self.world.timeline.at(0.3, partial(overtake, trapped, drawn))

        self.set_trap("compact.written", "trim.doomed", appended, rng)
        self._do_compact(rng)

    def _do_transfer(self, rng: Random) -> None:
        """To a candidate, or to nobody."""
        handle = self.some_owner(rng)
        if handle is None or handle.owner is None:
            return
        path = f"{self.log_truth.path}/candidates"
        waiting = sorted(self.world.shared.nodes.names.get(f"{RECORDS}/{path}", set()) - {handle.owner.token})
        to = rng.choice(waiting) if waiting and rng.random() < 0.8 else ""
        self.seen["handed over"] += 1
        self.close(handle, handle.owner.transfer(to) if to else handle.owner.close())

    def _do_stop_owner(self, rng: Random) -> None:
        """SIGSTOP; perhaps its session ends meanwhile."""
        handle = self.some_owner(rng)
        process = handle.process if handle is not None else self.some_process(rng)
        self.seen["process frozen"] += 1
        process.process.pause(rng.choice((0.1, 0.5, 2.0, 5.0)))
        if rng.random() < 0.4:
            self.seen["session of a frozen process ended"] += 1
            process.store.expire_session()

    def _do_crash_owner(self, rng: Random) -> None:
        handle = self.some_owner(rng)
        if handle is not None:
            self.seen["owner crashed"] += 1
            handle.process.crash()

    def _do_crash(self, rng: Random) -> None:
        self.some_process(rng).crash()

    def _do_expire(self, rng: Random) -> None:
        handle = self.some_owner(rng)
        process = handle.process if handle is not None and rng.random() < 0.7 else self.some_process(rng)
        self.seen["session expired"] += 1
        process.store.expire_session()

    def _do_crash_at(self, rng: Random) -> None:
        any_ = [each for each in PROCEDURES if each not in AT_THE_END | SELDOM]
        self.doom_at(rng.choice(self.plan.profile.points or any_), rng)
        begun = {"trim": "cut" if self.replicas.runs else "trim", "orphan": "orphans"}
        begun |= {"compact": "compact", "merge": "merge"}
        if self.doom[0] in begun:  # rare unless somebody begins it
            self._do(begun[self.doom[0]])

    def doom_at(self, procedure: str, rng: Random) -> None:
        """Whoever comes to one of its next steps dies there."""
        self.doom = procedure, rng.randint(1, 1 + sum(point.startswith(f"{procedure}.") for point in POINTS))

    def _do_trim(self, rng: Random) -> None:
        process = self.some_process(rng)
        if process.frozen:
            return
        before = rng.randint(0, max(self.log_truth.acked, default=0))
        if self.log_truth.compacts:  # what is above the horizon is held
            before = min(before, self.log_truth.horizon + 1)
        self.log_truth.trimmed = max(self.log_truth.trimmed, before)
        process.ask(process.logs.trim(NAME, before), self._trim_told)

    def _trim_told(self, job: Job) -> None:
        if isinstance(job.error, ValueError) and "the cursor" in str(job.error):
            self.seen["trim held by a cursor"] += 1
        elif isinstance(job.error, ValueError) and "the compaction by key" in str(job.error):
            self.seen["trim held by a compaction"] += 1  # which was turned on meanwhile
        else:
            self.check_error(job, "a trim")

    def _do_compact(self, rng: Random) -> None:
        def told(job: Job) -> None:
            if isinstance(job.error, ValueError) and "is not to be compacted" in str(job.error):
                self.seen["compaction refused while it is off"] += 1
            else:
                self.check_error(job, "a compaction")

        process = self.some_process(rng)
        if not process.frozen:
            process.ask(process.logs.compact(NAME), told)

    def _do_merge(self, rng: Random) -> None:
        process = self.some_process(rng)
        if not process.frozen:
            merging = process.logs.merge(NAME, to_bytes=rng.choice((1000, 100_000)), run_min=2)
            process.ask(merging, lambda job: self.check_error(job, "a merge"))

    def _do_trim_at_merge(self, rng: Random) -> None:
        """The next merge that has written is named late, and meanwhile the log is trimmed."""
        self.set_trap("merge.written", "trim.doomed", lambda _process, drawn: self._do_trim(drawn), rng)
        self._do_merge(rng)

    def _do_orphans_at_merge(self, rng: Random) -> None:
        """The next merge that has written is named late, and meanwhile another process looks for orphans."""
        self.set_trap("merge.written", "orphan.deleted", lambda _process, drawn: self._do_orphans(drawn), rng)
        self._do_merge(rng)

    def _do_tidy(self, rng: Random) -> None:
        process = self.some_process(rng)
        if not process.frozen:
            process.ask(process.logs.tidy(NAME), lambda job: self.check_error(job, "a tidy"))

    def _do_orphans(self, rng: Random) -> None:
        """What nothing names is deleted, however young it is."""
        process = self.some_process(rng)
        if not process.frozen:
            process.ask(self.orphans(process, 0.0), lambda job: self.check_error(job, "the orphans"))

    def _do_orphans_at_open(self, rng: Random) -> None:
        """The next one that has made a ledger names it late, and meanwhile another one looks for orphans."""
        self.set_trap("open.created", "orphan.deleted", lambda _process, drawn: self._do_orphans(drawn), rng)

    def _do_orphans_at_compact(self, rng: Random) -> None:
        """The next compaction that has written is named late, and meanwhile another process looks for orphans."""
        self.set_trap("compact.written", "orphan.deleted", lambda _process, drawn: self._do_orphans(drawn), rng)
        self._do_compact(rng)

    async def orphans(self, process: LogProcess, grace_s: float) -> None:
        async for orphan in process.logs.orphans(delete=True, really=True, grace_s=grace_s):
            self.world.tell(f"{process.name} found {orphan}")

    def _do_repair(self, rng: Random) -> None:
        self.recover_open_ledger()

    def recover_open_ledger(self) -> None:
        """Somebody who knows nothing of logs fences the open ledger and brings it to its end."""
        found = [segment for segment in self.log_truth.segments() if "records" not in segment]
        if found:
            self.seen["open ledger recovered from outside"] += 1
            client = self.new_client(f"r{len(self.clients)}")
            Outcome(client.client.recover_ledger(found[-1]["ledger"]), lambda done: self.check_error(done, "recover"))

    # Readers

    def _do_read(self, rng: Random) -> None:
        process = self.some_process(rng)
        if process.frozen or sum(not reading.over for reading in self.readers) >= READERS_MAX:
            return
        end = max(self.log_truth.acked, default=0)
        start = rng.choice(("begin", "begin", "end", rng.randint(0, end)))
        for _ in range(rng.choice((1, 1, 2, 3))):  # those that begin together are given what is fetched once
            self.readers.append(self.read(process, start, rng.random() < 0.7))

    def read(self, process: LogProcess, start: Any, follow: bool) -> Reading:
        name = f"a reader in {process.name}"
        reading = Reading(process)
        log = self.log_truth.path
        on_trim: Literal["raise", "skip"] = "skip" if self.plan.seed % 2 else "raise"

        async def story() -> None:
            reader = await process.logs.read(NAME, start, on_trim=on_trim)
            reading.index = reader.index
            async for batch in reader.tail(TAIL_SECONDS) if follow else reader.batches():
                if not process.alive or self.log_truth.path != log:
                    break
                begin = self.log_truth.begin
                if batch.index != reading.index and not reading.index < batch.index <= begin:
                    self.truth.break_("dense", f"{name} was given {batch.index} instead of {reading.index}")
                reading.index = batch.index + len(batch.values)
                reading.values += batch.values
                self.log_truth.saw(name, batch.index, batch.values)
                self.world.tell(f"{name} was given {batch.index} to {reading.index - 1}")

        def told(outcome: Job) -> None:
            if outcome.error is None:
                self.seen["log read"] += 1
                return
            self.world.tell(f"{name} failed: {outcome.error!r}")
            self.seen[f"reader failed {outcome.code}"] += 1
            self.check_error(outcome, "a reader")
            trimmed = outcome.code == TRIMMED and self.log_truth.trimmed
            deleted = isinstance(outcome.error, NoSuchLog) and self.deleted
            if outcome.code in NOT_FOR_READERS and not (trimmed or deleted):
                self.truth.break_("readable", f"{name} failed: {outcome.error!r}")

        reading.job = process.ask(story(), told)
        return reading

    # Quiet, and the reckoning

    def _end(self) -> None:
        self.doom = None
        if self.trapped is None:
            self.trap = None
        self.is_quiet = True
        self._calm()
        self.until("an append, a read or a commit hangs", self._all_answered)
        self.reads.make_way()
        rng = Random(self.plan.seed)
        last = self.new_process()
        for handle in self.handles:
            if not handle.over and (self.plan.seed % 3 or handle.owner is None):
                self.close(handle, self.leave(handle))
        self.replicas.stand_no_more()
        handle = self.take_over(last, force=self.plan.seed % 2 == 0)
        self.append(handle, handle.values(rng, 3, 20))
        self.until("an append after the quiet hangs", lambda: handle.appends[-1][1].done)
        if handle.appends[-1][1].error is not None:
            raise Violation("ends", f"the log is owned, and an append fails: {handle.appends[-1][1].error!r}")
        self.reads.finish()
        if self.plan.profile.dedup:
            self.producers.finish(handle)
        self.let_pass(QUIET_SECONDS)
        self._check_tails()
        if self.plan.seed % 4 == 0:
            self._fall_silent(handle, rng)
        for each in self.handles:
            if each.process.alive and not each.closing:
                self.close(each, self.leave(each))
        self.until("a close hangs", lambda: all(job.over for each in self.handles for job in each.closing))
        self.replicas.finish(last)
        self._settle_orphaned(last)
        self.publishers.finish(last)
        self.consumers.finish(last)
        self.let_pass(QUIET_SECONDS)  # an owner that has left ends the round of upkeep that it had begun
        reading = self.read(last, "begin", follow=False)
        self.until("the last reader hangs", lambda: reading.over)
        assert reading.job is not None
        if reading.job.error is not None:
            raise Violation("ends", f"the log can't be read to its end: {reading.job.error!r}")
        self.log_truth.reckon(reading.values)
        self.seen["entry that was asked for once for several"] += sum(
            process.logs.metrics.of(NAME).cache_hits for process in self.processes
        )
        if self.plan.profile.reads:
            self.reads.judge(reading.values)
        if self.plan.profile.compacts:
            self._check_compacted(last)
        self.producers.reckon(reading.values, self.log_truth.begin)
        tidying = last.ask(last.logs.tidy(NAME))
        self.until("a tidy hangs", lambda: tidying.done)
        if tidying.error is not None or (self.log_truth.manifest or {})["doomed"]:
            raise Violation("no leak", f"after a tidy ledgers are doomed: {tidying.error!r}")
        job = last.ask(self.orphans(last, -FAR_S))
        self.until("the search for orphans hangs", lambda: job.done)
        leaked = self.log_truth.leaked()
        if leaked or job.error is not None:
            raise Violation("no leak", f"nothing names the ledgers {sorted(leaked)}: {job.error!r}")
        if self.plan.profile.ends:
            finish(self, rng)

    def _check_compacted(self, process: LogProcess) -> None:
        """What is left with the log behind it is what a full replay leaves, before and after another compaction."""

        async def story() -> None:
            for again in (False, True):
                if again:
                    if not self.log_truth.compacts:
                        await process.logs.update(NAME, compaction=True)
                    await process.logs.compact(NAME)
                reader = await process.logs.read(NAME, compacted=True)
                horizon = self.log_truth.horizon
                found: list[tuple[int, bytes]] = []
                async for batch in reader.batches():
                    found += zip(batch.indexes, batch.values, strict=True)
                begin, archive = self.log_truth.begin, self.log_truth.archive
                rest = [each for each in sorted(archive.items()) if each[0] > horizon and each[0] >= begin]
                if found != self.log_truth.newest(horizon) + rest:
                    self.truth.break_("compacted", f"a reader was given {found}, left are {rest} behind {horizon}")

        job = process.ask(story())
        self.until("a compaction hangs", lambda: job.over)
        if job.error is not None:
            raise Violation("ends", f"the log can't be compacted: {job.error!r}")

    def _settle_orphaned(self, process: LogProcess) -> None:
        """
        A candidate that left while its claim was on the way may have become owner after all, of whom nobody hears: the
        segment of the one before stays open until another one owns the log.
        """
        manifest = self.log_truth.manifest
        known = {handle.owner.epoch for handle in self.handles if handle.owner is not None}
        if manifest is None or manifest["epoch"] in known:
            return
        self.seen["owner that had left"] += 1
        handle = self.take_over(process, force=True)
        self.close(handle, self.leave(handle))
        self.until("a close hangs", lambda: all(job.over for job in handle.closing))

    def close(self, handle: Handle, leaving: Any) -> None:
        lost_before = handle.owner is not None and handle.owner.lost

        def told(job: Job) -> None:
            manifest, owner = self.log_truth.manifest, handle.owner
            self.check_error(job, "a close")
            if owner is None or manifest is None or lost_before or not owner.lost:
                return
            if manifest["owner"] is None and manifest["epoch"] == owner.epoch:
                self.truth.break_("answered", f"{handle.name} was told that it lost the log, which it gave up")

        handle.closing.append(handle.process.ask(leaving, told))

    async def leave(self, handle: Handle) -> None:
        handle.leaving = True
        if handle.owner is not None:
            await handle.owner.close()
            return
        handle.process.left = True
        await handle.process.logs.close()  # the handle of a candidate is not given out

    def take_over(self, process: LogProcess, force: bool) -> Handle:
        if not force and self.plan.seed % 3 == 0:
            force = True
        handle = Handle(process, self.first + len(self.handles))
        self.handles.append(handle)

        def told(outcome: Job) -> None:
            handle.owner = outcome.value

        handle.owning = process.ask(process.logs.own(NAME, force=force), told)
        self.until("the log can't be owned", lambda: handle.owning is not None and handle.owning.done, OWN_SECONDS)
        if handle.owner is None:
            raise Violation("ends", f"faults are over, and the log can't be owned: {handle.owning.error!r}")
        return handle

    def until(self, what: str, done: Any, seconds: float = END_SECONDS) -> None:
        if not done():
            self.let_pass(seconds, done)
        if not done():
            raise Violation("ends", what)

    def _all_answered(self) -> bool:
        appends = all(job.over for handle in self.handles for _values, job in handle.appends)
        return appends and self.publishers.all_answered() and self.replicas.all_answered()

    def _fall_silent(self, handle: Handle, rng: Random) -> None:
        """Nothing is appended for longer than a ledger is followed, and then something, which tails are to be given."""
        following = sum(not each.over and not each.process.frozen for each in self.readers)
        self.seen["tail through days of silence"] += following
        if not following:
            return
        self.let_pass(2.5 * FOLLOW_S)
        self.append(handle, handle.values(rng, 1, 8))
        self.until("an append after days of silence hangs", lambda: handle.appends[-1][1].done)
        if handle.appends[-1][1].error is not None:
            raise Violation("ends", f"an append after days of silence fails: {handle.appends[-1][1].error!r}")
        self.let_pass(QUIET_SECONDS)
        self._check_tails()

    def _check_tails(self) -> None:
        end = max(self.log_truth.acked)
        for reading in self.readers:
            if reading.over or reading.process.frozen:
                continue
            self.seen["tail at the end of the log"] += 1
            if reading.index is None or reading.index <= end:
                where = f"a tail in {reading.process.name} is at {reading.index}"
                raise Violation("ends", f"{where}, the log ends at {end}")


@contextmanager
def small_manifests() -> Iterator[None]:
    """A few segments make chunks, a few records another table of producers, and a day without news is some seconds."""
    table_records, producing.TABLE_RECORDS = producing.TABLE_RECORDS, 5
    follow_s, shared_ledgers.FOLLOW_S = shared_ledgers.FOLLOW_S, FOLLOW_S
    before = {name: getattr(edits, name) for name in SEGMENTS}
    for name, number in SEGMENTS.items():
        setattr(edits, name, number)
    try:
        yield
    finally:
        producing.TABLE_RECORDS = table_records
        shared_ledgers.FOLLOW_S = follow_s
        for name, number in before.items():
            setattr(edits, name, number)


@contextmanager
def watched_windows(truth: Truth) -> Iterator[None]:
    """
    Whoever writes ledgers for a log waits for room in their windows: nothing is refused there.  What is under way in an
    owner's own window is over once.
    """
    handle, take = AppendMachine.handle, Window.take

    def taken(window: Window, count: int, size: int) -> None:
        take(window, count, size)
        if window.records < 0 or window.bytes < 0:
            truth.break_("window", f"{window.records} records of {window.bytes} bytes are under way in an owner's")

    def watched(machine: AppendMachine, given: Input) -> list[Effect]:
        effects = handle(machine, given)
        for effect in effects:
            if isinstance(effect, Refuse) and effect.code == TooManyRequests.code:
                truth.break_("window", f"the writer of ledger {machine.ledger} was given too much: {effect.reason}")
        return effects

    with patch.object(AppendMachine, "handle", watched), patch.object(Window, "take", taken):
        yield
