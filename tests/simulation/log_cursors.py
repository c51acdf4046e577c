"""
Durable cursors of a log: consumers that acknowledge out of order, and what really happened to each cursor, seen from
outside.

A record that nobody acknowledged is given out; what was acknowledged and stored is not given out again; a mark passes
nothing that is not done, and the log is not trimmed above it.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from quire.log.api import Cursor
from quire.log.store.editing import LogRecords
from quire.log.store.holds import move_cursors
from quire.protocol.log_errors import LogFenced
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.log_records import Change
from tests.simulation.truth import Truth, Violation

if TYPE_CHECKING:
    from tests.simulation.log_history import LogHistory

Json = dict[str, Any]
NAME, NAMES = "orders", ("billing", "audit")
HANDLES_MAX = 4
OPEN_TRIES = 8


class Known:
    """Of one cursor: what its value says, what was acknowledged, and what was answered to be stored."""

    def __init__(self, value: Json) -> None:
        self.value = value
        self.base = value["mark"]  # what is below is done by the start, a seek or a policy
        self.acked: set[int] = set()
        self.stored: set[int] = set()
        self.seeks = 0

    def open_below(self, index: int) -> list[int]:
        """What is not done below it."""
        return [each for each in range(self.base, index) if each not in self.acked]


class CursorTruth:
    """Of all cursors of a log."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.cursors: dict[str, Known] = {}  # by id; living ones
        self.ids: dict[str, str] = {}  # by name
        self.sought: set[int] = set()  # where somebody wanted a cursor to be
        self.policies: set[int] = set()  # below each of which a policy wanted nothing; one may land after the next
        self._doomed: set[int] = set()

    def changed(self, changes: list[Change], manifest: Json | None, edit: str | None) -> None:
        """Values; the manifest then, and the id of the edit that changed it in the same step."""
        begin = 0 if manifest is None else int(manifest["begin"]["index"])
        for change in changes:
            id_, after = change.path.rpartition("/")[2], change.after
            if after is None or after["state"] != "open":
                self.cursors.pop(id_, None)
                self._doomed.update([] if after is None else ledgers_of(after))
                continue
            self._doomed.update(each["ledger"] for each in after["doomed"])
            known = self.cursors.get(id_)
            if known is None:
                self.cursors[id_], self.ids[after["name"]] = Known(after), id_
                if after["mark"] < begin:
                    self.truth.break_("holds", f"a cursor is made at {after['mark']}, the log begins at {begin}")
                continue
            self._moved(known, after, begin, after["edit"] == edit)
        self.held(begin)

    def _moved(self, known: Known, after: Json, begin: int, sought: bool) -> None:
        before, known.value = known.value, after
        mark = after["mark"]
        if sought:
            if mark not in self.sought or mark < begin:
                self.truth.break_("marks", f"a seek moved a mark to {mark}, wanted: {sorted(self.sought)}")
            known.base, known.seeks = mark, known.seeks + 1
            known.acked.clear(), known.stored.clear()
            self.truth.seen["cursor sought"] += 1
        elif mark < before["mark"]:
            self.truth.break_("marks", f"a mark moved back from {before['mark']} to {mark}")
        elif mark > before["mark"] and after["touched"] == before["touched"] and mark in self.policies:
            known.base = max(known.base, mark)
            self.truth.seen["policy moved a cursor"] += 1
        elif known.open_below(mark):
            self.truth.break_("marks", f"a mark is {mark}, not done are {known.open_below(mark)[:9]}")

    def held(self, begin: int) -> None:
        """The log begins at no higher index than any mark."""
        for known in self.cursors.values():
            if known.value["mark"] < begin:
                self.truth.break_("holds", f"the log begins at {begin}, {known.value['name']} is at {known.value}")

    def let_go(self, ledger: int) -> bool:
        """Whether it was a cursor's; `holds` is broken when it is one now."""
        for known in self.cursors.values():
            if known.value["ledger"] == ledger:
                self.truth.break_("holds", f"ledger {ledger} is deleted, and of the cursor {known.value['name']}")
        return ledger in self._doomed

    @property
    def named(self) -> set[int]:
        """Ledgers."""
        return {ledger for known in self.cursors.values() for ledger in ledgers_of(known.value)}


def ledgers_of(value: Json) -> list[int]:
    """That a value names."""
    return [*([] if value["ledger"] is None else [value["ledger"]]), *(each["ledger"] for each in value["doomed"])]


class Consumer:
    """One handle of a cursor."""

    def __init__(self, process: LogProcess, name: str) -> None:
        self.process = process
        self.name = name
        self.cursor: Cursor | None = None
        self.known: Known | None = None
        self.seeks = 0  # of the cursor, when it was opened or sought here
        self.at: int | None = None  # behind what it was given last
        self.acked: set[int] = set()
        self.stored: set[int] = set()  # what may not be given to it
        self.jobs: list[Job] = []
        self.ended = False

    @property
    def over(self) -> bool:
        return self.ended or not self.process.alive or all(job.over and job.error for job in self.jobs[:1])

    @property
    def fenced(self) -> bool:
        """Whether a call was told that another one holds the cursor: a close does not tell it again."""
        return any(job.over and isinstance(job.error, LogFenced) for job in self.jobs)


class Consumers:
    """Those of a history."""

    def __init__(self, history: "LogHistory") -> None:
        self.history = history
        self.world = history.world
        self.seen = history.world.truth.seen
        self.truth = history.log_truth.cursors
        self.handles: list[Consumer] = []

    def _busy(self, handle: Consumer) -> bool:
        return any(not job.over for job in handle.jobs)

    def _some(self, rng: Random) -> Consumer | None:
        found = [
            each
            for each in self.handles
            if each.cursor is not None and not each.over and not each.process.frozen and not self._busy(each)
        ]
        return rng.choice(found) if found else None

    def do_cursor(self, rng: Random) -> None:
        process = self.history.some_process(rng)
        if not process.frozen and sum(not each.over for each in self.handles) < HANDLES_MAX:
            end = max(self.history.log_truth.acked, default=0)
            self.open(process, rng.choice(NAMES), rng.choice(("begin", "end", rng.randint(0, end))))

    def open(self, process: LogProcess, name: str, start: Any) -> Consumer:
        handle = Consumer(process, name)
        self.handles.append(handle)
        before = self._known(name)
        stored, seeks = (set(), 0) if before is None else (set(before.stored), before.seeks)

        def told(job: Job) -> None:
            if job.error is not None:
                self._failed(job, "a cursor")
                return
            handle.cursor, handle.known = job.value, self._known(name)
            known = handle.known
            if known is None:  # deleted meanwhile
                handle.ended = True
                return
            handle.seeks = known.seeks
            handle.stored = stored if known is before and known.seeks == seeks else set()
            self.seen["cursor opened"] += 1

        handle.jobs.append(process.ask(process.logs.cursor(NAME, name, start=start), told))
        return handle

    def _known(self, name: str) -> Known | None:
        return self.truth.cursors.get(self.truth.ids.get(name, ""))

    def _failed(self, job: Job, what: str) -> None:
        self.world.tell(f"{what} failed: {job.error!r}")
        self.seen[f"{what} failed {job.code}"] += 1
        if not isinstance(job.error, ValueError):
            self.history.check_error(job, what)

    def do_ack(self, rng: Random) -> None:
        """Some records are read, and some of them acknowledged."""
        handle = self._some(rng)
        if handle is None:
            self.do_cursor(rng)
        else:
            count, part = rng.choice((1, 3, 10, 30)), rng.choice((0.3, 0.8, 1.0))
            handle.jobs.append(handle.process.ask(self.consume(handle, count, lambda: rng.random() < part)))

    async def consume(self, handle: Consumer, count: int, wanted: Any) -> int:
        cursor, known = handle.cursor, handle.known
        assert cursor is not None
        assert known is not None
        if handle.at is not None and self.history.plan.seed % 3 == 0:
            cursor.rewind()
            handle.at = None
        base = known.base
        found = await cursor.read(count)
        if known.seeks != handle.seeks or not handle.process.alive or self._known(handle.name) is not known:
            return len(found)
        for record in found:
            index = record.index
            at = max(known.base if handle.at is None else handle.at, min(base, known.base))
            passed = [each for each in range(max(at, known.base), index) if each not in known.acked]
            if passed:
                self.truth.truth.break_("given", f"{handle.name} was given {index}, not done are {passed[:9]}")
            if index in handle.stored:
                self.truth.truth.break_("stored", f"{handle.name} was given {index}, which is done")
            handle.at = index + 1
            self.seen["record given to a cursor"] += 1
        for record in found:
            if wanted():
                cursor.ack(record.index)
                known.acked.add(record.index)
                handle.acked.add(record.index)
        return len(found)

    def do_persist(self, rng: Random) -> None:
        handle = self._some(rng)
        if handle is not None and handle.cursor is not None:
            self._store(handle, handle.cursor.persist())

    def do_close_cursor(self, rng: Random) -> None:
        handle = self._some(rng)
        if handle is not None and handle.cursor is not None:
            handle.ended = True
            self._store(handle, handle.cursor.close())

    def _store(self, handle: Consumer, asked: Any) -> None:
        known, acked = handle.known, set(handle.acked)

        def told(job: Job) -> None:
            if job.error is not None:
                self._failed(job, "storing")
            elif known is not None and known.seeks == handle.seeks and not handle.fenced:
                known.stored |= acked
                self.seen["acknowledgements stored"] += 1

        handle.jobs.append(handle.process.ask(asked, told))

    def do_seek_cursor(self, rng: Random) -> None:
        handle = self._some(rng)
        if handle is None or handle.cursor is None or handle.known is None:
            return
        known = handle.known
        begin = self.history.log_truth.begin
        index = rng.randint(begin, max(begin, handle.cursor.mark, handle.at or 0))
        self.truth.sought.add(index)
        seeks = known.seeks

        def told(job: Job) -> None:
            if job.error is not None:
                self._failed(job, "a seek")
                handle.ended = known.seeks != seeks  # it took effect, and nobody knows since when
                return
            handle.seeks, handle.at = known.seeks, None
            handle.acked.clear(), handle.stored.clear()

        handle.jobs.append(handle.process.ask(handle.cursor.seek(index), told))

    def do_policy(self, rng: Random) -> None:
        """All marks move to some index, as retention by time moves them."""
        process = self.history.some_process(rng)
        if process.frozen:
            return
        index = max(rng.randint(0, max(self.history.log_truth.acked, default=0)), *self.truth.policies, 0)
        self.truth.policies.add(index)
        client, log = process.client, self.history.log_truth.log
        records = LogRecords(client.store.records, client.reactor, client.random, process.process.seconds, log, NAME)
        job = move_cursors(records, index)
        process.ask(job, lambda job: self.history.check_error(job, "a policy"))

    def do_delete_cursor(self, rng: Random) -> None:
        process = self.history.some_process(rng)
        if not process.frozen:
            self.seen["cursor deleted"] += 1
            process.ask(
                process.logs.delete_cursor(NAME, rng.choice(NAMES)),
                lambda job: self._failed(job, "a deletion") if job.error else None,
            )

    # The end

    def finish(self, process: LogProcess) -> None:
        """All that is not done is given out; then nothing is left."""
        if not self.handles:
            return
        for name in NAMES:
            for _ in range(OPEN_TRIES):
                handle = self.open(process, name, "begin")
                self.history.until("a cursor can't be opened", lambda handle=handle: handle.jobs[0].over)
                if handle.cursor is not None:
                    break
            else:
                raise Violation("ends", f"the cursor {name} can't be opened: {handle.jobs[0].error!r}")
            known = handle.known
            assert known is not None
            while True:
                job = process.ask(self.consume(handle, 50, lambda: True))
                self.history.until("a cursor hangs", lambda job=job: job.over)
                if job.error is not None:
                    raise Violation("ends", f"the cursor {name} can't read: {job.error!r}")
                if not job.value:
                    break
            end = max(self.history.log_truth.acked, default=-1) + 1
            left = [each for each in known.open_below(end) if each >= self.history.log_truth.begin]
            if left:
                raise Violation("given", f"{name} was never given {left[:9]}")
            closing = process.ask(handle.cursor.close())
            self.history.until("a cursor can't be closed", lambda job=closing: job.over)
            if closing.error is not None:
                raise Violation("ends", f"the cursor {name} can't be closed: {closing.error!r}")
            handle.ended = True
