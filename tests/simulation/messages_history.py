"""
A history of one message store: masters and candidates, readers with rows, an import before them, on a cluster whose
bookies, network and metadata store fail.

While the plan runs anything may fail and nothing may be wrong.  Then every fault ends: an import must come to its end,
every call must get its answer, somebody must lead and put, and rows, tables and reads must be what the log says.
"""

import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from quire.conf import messages as settings_of_stores
from quire.messages.api import Message
from quire.messages.descriptor import USE
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.source import Wanted
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import AppendUnknown
from quire.protocol.message_errors import MessageIllegal
from tests.messages.reference import parser
from tests.simulation.history import QUIET_SECONDS
from tests.simulation.log_history import LOG_OPTIONS, NAME, OWN_SECONDS, ROLLS, Handle, LogHistory
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.messages_nodes import Machine, MessageProcess, Run, in_memory
from tests.simulation.messages_source import FILE_BYTES, ROOT, MemoryTree, Source
from tests.simulation.messages_truth import CHECKPOINT, MessageTruth, Row, Sent
from tests.simulation.truth import Violation

RUNS_MAX, JOBS_MAX = 3, 24
OPTIONS = {"batch_bytes": 1500, "part_bytes": 600, "window_bytes": 12_000, "snapshot_records": 12}
FILE_BYTES_CREATED = 4096
ADDRESS = "10.0.0.5:10911"
TOPICS, KEYS = ("T", "T", "U", "%RETRY%" + "g" * 130), ("", "", "Aa", "BB", "k1 k2", "Aa BB")
BORN_MS = 1_000_000_000
IMPORTS = ("import", "import", "import", "part", "publish", "snapshot")  # procedures that an import goes through
STEPS_OF_ONE = 6
POINTS = (
    "import.created", "import.part", "import.committed", "import.table", "import.documents", "import.ready",
    "dispatch.written", "rebuild.deleted", "trim.rows",
)  # fmt: skip
DAMAGED = {-303, -312, -336}  # errors that no reader may be told


class MessageHistory(LogHistory):
    """`runs`: stores that are open in processes; `source`: of the import; None: the store was created empty."""

    process_class = MessageProcess
    log_options = {**LOG_OPTIONS, **OPTIONS}
    store_truth: MessageTruth

    def _made_truth(self) -> MessageTruth:
        seed = self.plan.seed
        self.source = Source(Random(f"source/{seed}")) if "import" in self.plan.profile.weights else None
        source = self.source
        begin, size = (0, FILE_BYTES_CREATED) if source is None else (source.begin, FILE_BYTES)
        self.store_truth = MessageTruth(self.world, source, size, begin)
        self.machines: dict[str, Machine] = {}
        self.runs: list[Run] = []
        self.jobs: list[Job] = []  # puts, reads, closes
        self.importing: list[Job] = []
        self.denied: dict[str, str] = {}  # by unique id: the error that says that it is not in the log
        self.committed: set[int] = set()
        self.early: Random | None = None  # whoever becomes the log's owner next is given puts before it leads
        return self.store_truth

    def run(self) -> None:
        with in_memory(self), patch.object(settings_of_stores, "FILE_BYTES_MIN", FILE_BYTES_CREATED):
            super().run()

    def _do(self, kind: str) -> None:
        self._copy_rows(Random(self._drawn.random()))
        step: Callable[[Random], None] | None = getattr(self, f"do_{kind}", None)
        if step is None:
            super()._do(kind)
        else:
            step(self._drawn)

    # Processes

    def new_process(self) -> LogProcess:
        made = super().new_process()
        assert isinstance(made, MessageProcess)
        rng = Random(self.plan.seed * 1000 + len(self.processes))
        free = [machine for machine in self.machines.values() if machine.free]
        wrong = [machine for machine in free if machine.is_garbled]
        if self.is_quiet and wrong:  # a last one shows whether its rows are served
            made.begin_on(rng.choice(wrong))
        elif free and rng.random() < 0.8:
            made.begin_on(rng.choice(free))
        else:
            machine = Machine(self, len(self.machines))
            self.machines[machine.name] = machine
            made.begin_on(machine)
        return made

    def reached_on(self, machine: Machine) -> Callable[[str], None]:
        def reached(point: str) -> None:
            if point == "rebuild.deleted":
                machine.is_garbled = False
            if machine.user is not None:
                self._reached(machine.user, point)

        return reached

    def _reached(self, process: LogProcess, point: str) -> None:
        super()._reached(process, point)
        rng, run = self.early, getattr(process, "run", None)
        if rng is not None and run is not None and point == "claim.epoch":
            self.early = None
            for _ in range(8):
                self.world.timeline.at(rng.random() * 0.1, partial(self._put_early, run, Random(rng.random())))

    def _put_early(self, run: Run, rng: Random) -> None:
        if run.runs and not self.is_quiet:
            self.seen["put before it leads"] += not run.leads
            self.put(run, rng, 1, 8)

    def some_owner(self, rng: Random) -> Handle | None:
        """Steps of logs that want an owner's process choose among all."""
        return None

    def _begin(self) -> None:
        self._begin_cluster()
        made = self.new_process()
        assert isinstance(made, MessageProcess)
        if self.source is None:
            rng = Random(self.plan.seed)
            job = made.ask(
                made.stores.create(
                    NAME,
                    address=ADDRESS,
                    file_bytes=FILE_BYTES_CREATED,
                    record_crc=rng.random() < 0.5,
                    **self._log_settings(),
                )
            )
            self.let_pass(0.2)
            assert job.done, "the store is made before anything fails"
            assert job.error is None, job.error
        for process in self.processes:
            self.let_fail(process)

    def _log_settings(self) -> dict[str, Any]:
        e, w, a = self.plan.shape
        return {"ensemble": e, "write": w, "ack": a, **Random(self.plan.seed).choice(ROLLS)}

    # Stores

    def some_run(self, rng: Random, leads: bool = False) -> Run | None:
        found = [run for run in self.runs if run.runs]
        if leads:
            found = [run for run in found if run.leads] or found
        return rng.choice(found) if found else None

    def do_stand(self, rng: Random) -> None:
        self._open(rng, stands=True)

    def do_watch(self, rng: Random) -> None:
        self._open(rng, stands=False)

    def _open(self, rng: Random, stands: bool) -> None:
        if sum(not run.over for run in self.runs) >= RUNS_MAX:
            return
        process = self.some_process(rng)
        assert isinstance(process, MessageProcess)
        if process.frozen or (process.run is not None and not process.run.over):
            return
        self.open_in(process, stands)

    def open_in(self, process: MessageProcess, stands: bool) -> Run:
        run = process.run = Run(process, len(self.runs), stands)
        machine, truth = process.machine, self.store_truth
        self.runs.append(run)

        def on_role(role: str, epoch: int) -> None:
            if process.alive:
                self.world.tell(f"{run.name} in {process.name} is {role} of epoch {epoch}")
                self.seen[f"became {role}"] += 1
                truth.became(run.name, role, epoch, run.roles)

        def told(job: Job) -> None:
            if job.error is None:
                run.store = job.value
                self.world.tell(f"{run.name} is open in {process.name} on {machine.name}")
                self.seen["store opened"] += 1
                if machine.refuses:
                    self.truth.break_("M5", f"{machine.name} has rows to be refused with {machine.refuses}")
                return
            name = type(job.error).__name__
            self.world.tell(f"{run.name} can't open in {process.name} on {machine.name}: {job.error!r}")
            self.seen[f"open failed: {name}"] += 1
            self.check_error(job, "an open")
            if name == machine.refuses:
                machine.lose(machine.name)
                machine.refuses = ""
            elif name in ("RowsForeign", "UnknownFormat", "StoreDamaged", "SnapshotDamaged", "ApplyFailed"):
                self.truth.break_("readable", f"{run.name} can't open: {job.error!r}")

        run.opening = process.ask(process.stores.open(NAME, stand=stands, on_role=on_role), told)
        return run

    def do_close_store(self, rng: Random) -> None:
        run = self.some_run(rng)
        if run is not None:
            self.close_store(run)

    def close_store(self, run: Run) -> None:
        if run.store is not None and run.closing is None:
            run.closing = run.process.ask(run.store.close(), lambda job: self.check_error(job, "a close"))

    # Puts

    def do_put(self, rng: Random) -> None:
        run = self.some_run(rng, leads=rng.random() < 0.9)
        if run is None:
            self.do_stand(rng)
        elif self._busy() < JOBS_MAX:
            for _ in range(rng.randint(1, self.plan.profile.batch)):
                self.put(run, rng, 1, rng.choice((8, 8, 60, 300, 900)))

    def do_put_group(self, rng: Random) -> None:
        run = self.some_run(rng, leads=True)
        if run is not None and self._busy() < JOBS_MAX:
            self.put(run, rng, rng.randint(1, 4), rng.choice((8, 60, 300)), is_group=True)

    def do_put_fitting(self, rng: Random) -> None:
        """A record or group that fills its file to the last byte that it may have, or is one byte too large."""
        run = self.some_run(rng, leads=True)
        if run is None or self._busy() >= JOBS_MAX:
            return
        size = self.store_truth.file_bytes
        left = size - self.store_truth.end() % size
        wanted = rng.choice((left - 8, left - 7, left - 9, size - 8, size - 7))
        self.put(run, rng, rng.choice((1, 1, 2)), 0, is_group=True, total=wanted)

    def do_put_early(self, rng: Random) -> None:
        """The master goes with puts under way, and the next one is given puts before it has applied them."""
        run = self.some_run(rng, leads=True)
        if run is None:
            return
        for _ in range(rng.randint(1, 6)):
            self.put(run, rng, 1, 60)
        self.early = Random(rng.random())
        self.world.timeline.at(rng.random() * 0.05, partial(self.do_takeover, rng))

    def _busy(self) -> int:
        return sum(not job.over for job in self.jobs)

    def put(self, run: Run, rng: Random, count: int, size: int, is_group: bool = False, total: int = 0) -> None:
        """`total`: the bytes of all records together, if they can be made so many."""
        store, truth = run.store, self.store_truth
        assert store is not None
        topic, queue = rng.choice(TOPICS), rng.choice((0, 0, 1, 2))
        if self.source is not None and "E" in dict(self.source.next) and rng.random() < 0.2:
            topic, queue = "E", 0
        crc = store.settings.record_crc
        messages: list[Message] = []
        sizes: list[int] = []
        for place in range(count):
            unique = f"{run.name}.{run.count + place}"
            keys, tags = rng.choice(KEYS), rng.choice(("", "A", "B"))
            pairs = {"KEYS": keys, "TAGS": tags, "UNIQ_KEY": unique}
            packed = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value).encode()
            bare = len(parser.pack(topic, properties=packed, crc_property=crc))
            length = rng.randint(0, size)
            if total and place == count - 1:
                length = total - sum(sizes) - bare
                if length < 0:
                    return
            body = bytes(rng.randrange(1, 256) for _ in range(length))
            messages.append(Message(topic, body, queue=queue, tags=tags, keys=keys, unique_id=unique, born_ms=BORN_MS))
            sizes.append(bare + length)
        group = tuple(sizes) if is_group else ()
        sent = {
            each.unique_id: Sent(run.name, run.count + place, topic, queue, each.body, sizes[place], place, group)
            for place, each in enumerate(messages)
        }
        run.count += count
        truth.put(sent)
        is_too_large = sum(sizes) > truth.file_bytes - 8

        def told(job: Job) -> None:
            error = job.error
            if error is None:
                self.seen["group acknowledged" if is_group else "put acknowledged"] += 1
                puts = job.value if is_group else [job.value]
                self.world.tell(f"{run.name} was told of {puts}")
                if is_too_large or len(puts) != len(sent):
                    self.truth.break_("answered", f"{list(sent)} of {sizes} bytes were put as {puts}")
                for unique, put in zip(sent, puts, strict=False):
                    truth.put_told(unique, put)
                return
            self.world.tell(f"{run.name}: put of {list(sent)} failed: {error!r}")
            self.seen[f"put failed: {type(error).__name__}"] += 1
            self.check_error(job, "put")
            if is_too_large != isinstance(error, MessageIllegal) or not getattr(error, "status", ""):
                self.truth.break_("answered", f"a put of {sizes} bytes failed: {error!r}")
            if not isinstance(error, AppendUnknown):
                self.denied.update(dict.fromkeys(sent, repr(error)))

        asked: Any = store.put_group(messages) if is_group else store.put(messages[0])
        self.jobs.append(run.process.ask(asked, told))

    # Takeovers, fences, trims

    def do_fence(self, rng: Random) -> None:
        self.recover_open_ledger()

    def do_takeover(self, rng: Random) -> None:
        """The master goes, in one of the ways in which one can."""
        masters = [run for run in self.runs if run.leads]
        how = rng.choice(("crash", "freeze", "expire", "close", "force"))
        self.do_stand(rng)
        if how == "force" or not masters:
            self._force(rng)
            return
        run = masters[-1]
        self.seen[f"takeover: {how}"] += 1
        if how == "crash":
            run.process.crash()
        elif how == "close":
            self.close_store(run)
        else:
            if how == "freeze":
                run.process.process.pause(rng.choice((0.1, 0.5, 2.0, 5.0)))
            if how == "expire" or rng.random() < 0.5:
                run.process.store.expire_session()

    def _force(self, rng: Random) -> None:
        """An operator takes the log, and lets it go."""
        process = self.some_process(rng)
        if process.frozen:
            return

        async def story() -> None:
            owner = await process.logs.own(NAME, force=True, wait_s=2.0, use=USE)
            await owner.close()

        self.seen["takeover: force"] += 1
        self.jobs.append(process.ask(story(), lambda job: self.check_error(job, "a takeover")))

    def do_trim(self, rng: Random) -> None:
        process = self.some_process(rng)
        if process.frozen or not self.store_truth.is_ready:
            return
        snapshots = [each["index"] for each in (self.store_truth.manifest or {}).get("snapshots", ())]
        before = rng.choice([*snapshots, *snapshots, rng.randint(0, len(self.store_truth.archive))])
        self.store_truth.trimmed = max(self.store_truth.trimmed, before)

        def told(job: Job) -> None:
            if isinstance(job.error, ValueError):
                self.seen["trim refused by a hold"] += 1
            else:
                self.check_error(job, "a trim")

        process.ask(process.logs.trim(NAME, before), told)

    # Rows

    def do_lose_rows(self, rng: Random) -> None:
        """Of a machine: all rows, or the newest; or others lie there, which are not to be served."""
        machines = [
            machine
            for machine in self.machines.values()
            if machine.found is not None and b"d" in machine.found.as_dict() and not machine.refuses
        ]
        if not machines:
            return
        machine = rng.choice(machines)
        if not machine.free and machine.user is not None:
            if machine.user.frozen:
                return
            machine.user.crash()
        rows = machine.found
        if rows is None:
            return
        found = rows.as_dict()
        how = rng.choice(("gone", "older", "garbled", "beyond", "foreign", "newer"))
        if how == "gone" or b"d" not in found:
            machine.lose(machine.name)
            machine.is_garbled = False
            how = "gone"
        elif how == "older":
            if machine.is_garbled or not machine.copy:
                return
            machine.rewrite(machine.copy)
        else:
            machine.rewrite(garbled(found, how))
            machine.is_garbled = True
            machine.refuses = {"foreign": "RowsForeign", "newer": "UnknownFormat"}.get(how, "")
        self.world.tell(f"the rows of {machine.name} are {how}")
        self.seen[f"rows {how}"] += 1

    def _copy_rows(self, rng: Random) -> None:
        """Of some machines, as they are now."""
        for machine in self.machines.values():
            if machine.found is not None and not machine.is_garbled and not machine.refuses and rng.random() < 0.1:
                machine.copy = machine.found.as_dict()

    def do_look(self, rng: Random) -> None:
        """Some read of some store."""
        run = self.some_run(rng)
        if run is not None and self._busy() < JOBS_MAX:
            self.look(run, rng)

    def look(self, run: Run, rng: Random) -> None:
        store, truth = run.store, self.store_truth
        assert store is not None
        topic, queue = rng.choice(TOPICS), rng.choice((0, 0, 1))
        told_of = list(truth.told.values())
        put = rng.choice(told_of) if told_of else None
        kind = rng.choice(("pull", "pull", "get", "query", "id", "bounds"))
        key = rng.choice(("Aa", "BB", "k1"))

        async def story() -> list[Any]:
            if kind == "pull":
                position = rng.choice((0, 0, rng.randint(0, 12), 1 << 40))
                pulled = await store.reads.pull(topic, queue, position)
                found = [message.position for message in pulled.messages]
                if found != list(range(found[0] if found else 0, pulled.next if found else 0)):
                    self.truth.break_("M4", f"a pull of {topic}, {queue} from {position} gave {pulled}")
                return pulled.messages
            if kind == "query":
                given = await store.reads.query(topic, key)
                if any(each.topic != topic or key not in each.keys.split(" ") for each in given):
                    self.truth.break_("keys", f"a query of {topic}, {key} gave {given}")
                return given
            if kind == "bounds":
                first, next_ = await store.reads.bounds(topic, queue)
                if first > next_:
                    self.truth.break_("M4", f"{topic}, {queue} has the bounds {first}, {next_}")
                return []
            if kind == "id" and put is not None:
                return [await store.reads.by_id(put.message_id)]
            return [await store.reads.get(truth.begin_at if put is None else put.offset + rng.choice((0, 0, 1)))]

        def told(job: Job) -> None:
            if job.error is None:
                self.seen[f"read: {kind}"] += 1
                for message in job.value:
                    truth.saw_message(run.name, message)
                return
            self.world.tell(f"{kind} of {run.name} failed: {job.error!r}")
            self.seen[f"read failed: {type(job.error).__name__}"] += 1
            self.check_error(job, f"a {kind}")
            if job.code in DAMAGED:
                self.truth.break_("readable", f"{kind} of {run.name} failed: {job.error!r}")

        self.jobs.append(run.process.ask(story(), told))

    def do_commit_offset(self, rng: Random) -> None:
        run = self.some_run(rng, leads=True)
        if run is None or run.store is None:
            return
        position = rng.randint(0, 3)
        try:
            run.store.commit_offset("g", "T", 0, position)
        except (LedgerError, ValueError) as error:
            self.seen[f"commit failed: {type(error).__name__}"] += 1
        else:
            self.committed.add(position)
            self.seen["offset committed"] += 1

    # Imports

    def do_import(self, rng: Random) -> None:
        process = self.some_process(rng)
        if not process.frozen and sum(not job.over for job in self.importing) < 2:
            self.import_in(process)

    def do_kill_import(self, rng: Random) -> None:
        """Whoever comes to a step of an import dies there; and an import begins."""
        self.doom = rng.choice(IMPORTS), rng.randint(1, STEPS_OF_ONE)
        self.do_import(rng)

    def import_in(self, process: LogProcess) -> Job:
        assert self.source is not None
        tree = MemoryTree(self.source.files)

        async def story() -> None:
            plan = await planned(process.logs, tree, Wanted((ROOT,), single=True), lambda _done, _total: None)
            reached = partial(self._reached, process)
            await Importing(process.logs, tree, NAME, plan, settings=self._log_settings(), reached=reached).run()

        def told(job: Job) -> None:
            if job.error is None:
                self.seen["import ended"] += 1
                if not self.store_truth.is_ready:
                    self.truth.break_("import", "an import has ended, and the store is not ready")
                return
            self.world.tell(f"the import in {process.name} failed: {job.error!r}")
            self.seen[f"import failed: {type(job.error).__name__}"] += 1
            self.check_error(job, "an import")

        job = process.ask(story(), told)
        self.importing.append(job)
        return job

    # Quiet, and the reckoning

    def _end(self) -> None:
        self.doom = self.trap = None
        self.is_quiet = True
        self._calm()
        self.until("a put or a read hangs", lambda: all(job.over for job in self.jobs))
        rng = Random(self.plan.seed)
        self.until("an import hangs", lambda: all(job.over for job in self.importing))
        if self.source is not None and not self.store_truth.is_ready:
            job = self.import_in(self.new_process())
            self.until("an import hangs", lambda: job.over)
            if job.error is not None:
                raise Violation("ends", f"faults are over, and an import fails: {job.error!r}")
        self.until("an open hangs", lambda: all(run.opening is None or run.opening.over for run in self.runs))
        for run in self.runs:
            if not run.over and run.stands:
                self.close_store(run)
        self._closed()
        last = self._master()
        for is_group in (False, True, False):
            self.put(last, rng, 2 if is_group else 1, 60, is_group)
            self.until("a put after the quiet hangs", lambda: self.jobs[-1].over)
            if self.jobs[-1].error is not None:
                raise Violation("ends", f"the store has a master, and a put fails: {self.jobs[-1].error!r}")
        self.let_pass(QUIET_SECONDS)
        self._reckon(last)

    def _closed(self) -> None:
        self.until("a close hangs", lambda: all(run.closing is None or run.closing.over for run in self.runs))

    def _master(self) -> Run:
        """A store of a fresh process, once it leads."""
        while True:
            process = self.new_process()
            assert isinstance(process, MessageProcess)
            refused = process.machine.refuses
            run = self.open_in(process, stands=True)
            self.until("a store can't be opened", lambda run=run: run.opening is not None and run.opening.over)
            if run.store is not None:
                break
            if not refused:
                raise Violation("ends", f"faults are over, and a store can't be opened: {run.opening}")
        self.until("a store has no master", lambda: run.leads, OWN_SECONDS)
        return run

    def _reckon(self, last: Run) -> None:
        truth = self.store_truth
        open_ = [run for run in self.runs if run.runs]
        jobs = [(run, run.process.ask(run.store.caught_up())) for run in open_ if run.store is not None]
        self.until("rows do not come to the end of the log", lambda: all(job.over for _run, job in jobs))
        for run, job in jobs:
            if job.error is not None:
                raise Violation("ends", f"the rows of {run.name} do not come to the end: {job.error!r}")
        rows_of = {run: found.as_dict() for run in open_ if (found := run.process.machine.found) is not None}
        reading = last.process.ask(self._read_all(last))
        self.until("the last reads hang", lambda: reading.over)
        if reading.error is not None:
            raise Violation("ends", f"the store can't be read: {reading.error!r}")
        end = len(reading.value["log"]) + int((truth.manifest or {})["begin"]["index"])
        self.until("a queue table stays behind", lambda: all(applied(run) >= end for run in open_))
        tables = {run: vars(run.store)["_standing"].table for run in open_}
        for run in self.runs:
            self.close_store(run)
        self._closed()
        self.let_pass(QUIET_SECONDS)
        records = truth.records()
        begin_at = int((truth.manifest or {})["begin"].get("at", truth.begin_at))
        truth.judge(records, begin_at, self.denied)
        for run, rows in rows_of.items():
            truth.judge_rows(run.name, rows, records, begin_at, is_whole=True)
        self._judge_reads(reading.value, records, begin_at)
        for run, table in tables.items():
            wrong = {queue: table.next(*queue) for queue, next_ in truth.next.items() if table.next(*queue) != next_}
            if wrong:
                self.truth.break_("M1", f"the queue table of {run.name} has {wrong}, the log {truth.next}")
        if self.truth.violation is not None:
            raise self.truth.violation

    async def _read_all(self, run: Run) -> dict[str, Any]:
        store = run.store
        assert store is not None
        reads = store.reads
        found: dict[str, Any] = {"pulls": {}, "keys": {}, "log": []}
        for topic in await reads.topics():
            for queue, bounds in (await reads.queues(topic)).items():
                pulled = await reads.pull(topic, queue, bounds.first, 10_000, 1 << 30)
                found["pulls"][topic, queue] = bounds, [(each.position, each.offset) for each in pulled.messages]
            for key in ("Aa", "BB", "k1", "k2"):
                found["keys"][topic, key] = [each.offset for each in await reads.query(topic, key)]
        async for messages in store.read():
            found["log"] += [(each.offset, each.position, each.raw) for each in messages]
        if self.source is not None:
            for (group, topic, queue), position in self.source.offsets.items():
                if await store.committed(group, topic, queue) != position:
                    raise Violation("import", f"{group} has consumed {topic}, {queue} up to {position} in the source")
        committed = await store.committed("g", "T", 0)
        if committed is not None and committed not in self.committed:
            raise Violation("answered", f"{committed} is committed, of {self.committed}")
        return found

    def _judge_reads(self, found: dict[str, Any], records: list[Row], begin_at: int) -> None:
        kept = [row for row in records if row.found.at >= begin_at]
        queues: dict[Any, list[tuple[int, int]]] = {}
        keys: dict[Any, list[int]] = {}
        for row in kept:
            record = row.found.record
            if row.position is not None:
                queues.setdefault(row.found.queue, []).append((row.position, row.found.offset))
            for key in {"Aa", "BB", "k1", "k2"} & set(record["properties"].get("KEYS", "").split(" ")):
                keys.setdefault((record["topic"], key), []).append(row.found.offset)
        for queue, next_ in self.store_truth.next.items():
            wanted = queues.get(queue, [])
            first = wanted[0][0] if wanted else next_
            given = found["pulls"].get(queue)
            if given != ((first, next_), wanted):
                self.truth.break_("M4", f"of {queue} a reader was given {given}, there are {first, next_} {wanted}")
        for name, offsets in found["keys"].items():
            if offsets != keys.get(name, [])[-64:]:
                self.truth.break_("keys", f"of {name} a reader was given {offsets}, there are {keys.get(name)}")
        log = [
            (row.found.offset, -1 if row.position is None else row.position, row.found.record["raw"]) for row in kept
        ]
        if found["log"] != log:
            self.truth.break_("one sequence", f"a reader was given {len(found['log'])} messages, {len(log)} are there")


def applied(run: Run) -> int:
    """How many records are in the queue table of a store."""
    replica = None if run.store is None else vars(run.store)["_replica"]
    return 0 if replica is None else int(replica.applied)


def garbled(found: dict[bytes, bytes], how: str) -> dict[bytes, bytes]:
    """Rows that point elsewhere, behind a checkpoint that says that they are not of this log as it is."""
    format_, log, index, position, crc = CHECKPOINT.unpack(found[b"d"])
    if how == "beyond":
        index, position = index + 1000, position + 100_000
    elif how == "foreign":
        log = bytes(byte ^ 0xFF for byte in log)
    elif how == "newer":
        format_ += 1
    else:
        crc = (crc + 1) & 0xFFFFFFFF  # not what was there first, however often it is done
    rows = {
        key: struct.pack(">q", struct.unpack_from(">q", value)[0] + 1) + value[8:] if key[:1] == b"q" else value
        for key, value in found.items()
    }
    return {**rows, b"d": CHECKPOINT.pack(format_, log, index, position, crc)}
