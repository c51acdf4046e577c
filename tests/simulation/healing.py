"""
AutoRecovery in a history: processes that vote, audit and repair, beside all other faults, and at the end nobody else
makes the cluster whole.

The code is the product's (`replication/autorecovery`).  Beside the promises about entries it has to keep these:

| | |
|---|---|
| one auditor | of the processes whose session lives at most one audits |
| inside the delay | an auditor marks a ledger for a bookie only that was away for the delay |
| an old mark | nor does a worker that saw the bookie leave replace it before, for a mark that is older |
| one worker | metadata is changed by a process that has the ledger's lock, as long as its session lives |
| off the queue | a ledger leaves the queue when it names no bookie of its mark that was away since its repair began |
| marked again | nor one that went after that, if it was marked for it meanwhile |
| proven | nor before all that were named for it, by a worker that died since, too, have their copies or know that not |
| healed | faults are over: every entry comes to be on its whole write quorum, and the queue is empty |

Long: the steps of one kind of history and the judgement of it, which share what they remember.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from quire.client.core.quorum import Quorums
from quire.client.handles.ledger_record import LedgerRecord
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.formats import repair_text
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.metadata.repair_queue import Shortage, directory_of, name_of
from quire.metadata.store import Versioned
from quire.metadata.tree import BadVersion, Create, Delete, SessionId, Step, Write
from quire.replication.autorecovery.running import AutoRecovery
from quire.replication.copier import FragmentCopier, Sources
from quire.replication.core.fragments import HeldFragment
from tests.metadata import stored
from tests.metadata.stored import (
    LOCKS,
    QUEUE,
    SHORT,
    ledger_of,
    locks,
    meaning,
    put,
    remove,
    set_delay,
    shortages,
)
from tests.simulation.nodes import SimBookie
from tests.simulation.outcome import Outcome
from tests.simulation.truth import REPAIRER, Violation

if TYPE_CHECKING:
    from tests.simulation.history import History

OPTIONS = AutoRecoveryOptions(
    metadata_uri="memory://simulation",
    ledgers_at_once=3,
    open_ledger_grace_ms=300,
    backoff_ms=50,
    failed_ledger_pause_ms=400,
    copies_check_interval_s=0,
    scrub_interval_s=0,
)
PROCESSES_MAX = 3
SLACK_S = 4.0  # a decision takes effect so much later at most: a process may stand still, the metadata be slow
SEEN_S = 1.0  # a process that has begun, or goes on, has seen a bookie that came by then
HEALED_SECONDS = 240.0


class Process:
    """One process of AutoRecovery."""

    def __init__(self, history: "History", name: str, options: AutoRecoveryOptions) -> None:
        self.node = history.new_client(name, history.plain_options)
        self.node.fault_rate = history.plan.fault_rate
        faults, healing = self.node.store.faults, history.healing
        self.node.store.faults = lambda *asked: (
            healing.slow_finish(*meaning(*asked)) or healing.lose_target(*asked) or faults(*asked)
        )
        self.running = AutoRecovery(self.node.client, name, options)
        self.running.worker.working = Working(history.healing, self)
        self.begun = history.world.timeline.now
        self.unmarked: dict[int, int] = {}  # ledgers whose marks it took, and is not done with: in which session
        self.running.start()

    @property
    def lives(self) -> bool:
        """And its session does."""
        return self.node.alive and not self.node.store.over

    @property
    def session(self) -> int:
        return self.node.store.session


class Working(set[int]):
    """What a worker repairs."""

    def __init__(self, healing: "Healing", process: Process) -> None:
        super().__init__()
        self._healing, self._process = healing, process

    def discard(self, ledger: int) -> None:
        super().discard(ledger)
        self._healing.done_with(self._process, ledger)


class Healing:
    """One history's."""

    def __init__(self, history: "History") -> None:
        self.history = history
        self.world, self.truth = history.world, history.truth
        self.processes: list[Process] = []
        rng = Random(f"healing/{history.plan.seed}")
        self.delay_s = rng.choice(history.plan.profile.delays)
        self.checked = rng.random() < 0.25  # copies are checked all the time, too
        self.locked_at: dict[int, float] = {}  # of each ledger
        self._missed_at: dict[tuple[int, str], float] = {}  # when a ledger was marked for a lost bookie
        self.asked = False  # an operator asked for an audit: no delay counts
        self._away: dict[str, list[list[float]]] = {}  # of each bookie: when it went, when it came back
        self._here: set[str] = set()
        self._awaited: str | None = None
        self._target: tuple[int, SimBookie] | None = None  # the ledger, and which loses a directory when it is named
        self._kills = False  # whoever named that bookie dies at once

    def begin(self) -> None:
        """Once the cluster is there."""
        shared = self.world.shared
        self.world.judge = self
        shared.nodes.listeners.append(lambda _touched: self._look())
        self.truth.healing = self
        self._look()
        self.do_heal_begin(Random(0))

    # Steps

    def do_heal_begin(self, _rng: Random) -> None:
        """One process more."""
        if len([each for each in self.processes if each.node.alive]) < PROCESSES_MAX:
            name = f"{REPAIRER}heal{len(self.processes)}"
            options = OPTIONS.model_copy(
                update={"lost_bookie_recovery_delay_s": self.delay_s, "copies_check_interval_s": int(self.checked)}
            )
            self.processes.append(Process(self.history, name, options))

    def do_heal_crash(self, rng: Random) -> None:
        """A process dies, also in the middle of a repair; its session goes a little later."""
        process = self._some(rng)
        if process is not None:
            self.truth.seen["healing: a process crashed"] += 1
            self.truth.seen["healing: the auditor crashed"] += process.running.candidate.auditor is not None
            process.node.crash()

    def do_heal_pause(self, rng: Random) -> None:
        """A process stands still; its session may end meanwhile."""
        process = self._some(rng)
        if process is not None:
            process.node.process.pause(rng.choice((0.05, 0.5, 3.0)))
            if rng.random() < 0.5:
                self._expire(process)

    def do_heal_expire(self, rng: Random) -> None:
        """Its session ends, and it goes on."""
        process = self._some(rng)
        if process is not None:
            self._expire(process)

    def do_heal_break(self, rng: Random) -> None:
        """In the midst of a repair its process dies, loses its session, or another bookie goes."""
        self.history.let_pass(0.5, self._busy)
        busy = self._busy()
        if not busy:
            return
        self.truth.seen["healing: broken in a repair"] += 1
        process = rng.choice(busy)
        kind = rng.randrange(3)
        if kind == 0:
            process.node.crash()
        elif kind == 1:
            self._expire(process)
        else:
            bookie = self.history.some_bookie(rng)
            if bookie is not None:
                bookie.die()

    def do_heal_unseen(self, rng: Random) -> None:
        """
        A bookie that is lost, or inside its delay, comes back and goes again while the auditor stands still, and others
        see it.
        """
        self.do_heal_begin(rng)
        bookie, settled = self.history.some_bookie(rng), self.truth.seen["healing: a ledger left the queue"]
        if bookie is None:
            return
        bookie.die()
        inside = bool(self.delay_s) and rng.random() < 0.5
        if inside:
            self.history.let_pass(0.4)
        else:
            self.history.let_pass(1.5 + self.delay_s, lambda: self._names(bookie.id))
        auditing = [each for each in self.processes if each.node.alive and each.running.candidate.auditor is not None]
        for process in auditing:
            process.node.process.pause(0.9 if inside else 3.0)
        bookie.start()
        self.history.let_pass(2.0, lambda: not self._names(bookie.id))
        self.history.let_pass(rng.choice((0.0, 0.3)))
        if self.history.may_lose(bookie):
            bookie.lose_disk(amnesia=False)  # for good: it is not back at the end, either
        else:
            bookie.die()
        left = self.truth.seen["healing: a ledger left the queue"] - settled
        self.truth.seen["healing: it was settled for who came and went unseen"] += bool(auditing and left)
        self.truth.seen["healing: it came and went unseen inside its delay"] += bool(auditing and inside)
        if inside:
            self.history.let_pass(1.0)

    def do_heal_late(self, rng: Random) -> None:
        """A lost bookie comes back, and goes when its ledger is on the way off the queue, which takes a while."""
        self.do_heal_begin(rng)
        bookie = self.history.some_bookie(rng)
        if bookie is None:
            return
        bookie.die()
        self.history.let_pass(1.5 + self.delay_s, lambda: self._names(bookie.id))
        for process in self.processes:
            process.node.process.pause(0.3)  # else its share is copied to others before it is back
        bookie.start()
        self._awaited = bookie.id
        self.history.let_pass(3.0, lambda: self._awaited is None)
        self.truth.seen["healing: it went as its ledger left the queue"] += self._awaited is None
        self._awaited = None
        if self.history.may_lose(bookie):
            bookie.lose_disk(amnesia=False)
        else:
            bookie.die()
        self.history.let_pass(2.0)

    def do_heal_restart(self, rng: Random) -> None:
        """A bookie restarts that is marked from before, as after a check: within the delay nobody replaces it."""
        self.do_heal_begin(rng)
        bookie = self.history.some_bookie(rng)
        if bookie is None:
            return
        bookie.die()
        self._look()
        marked = shortages(self.world.shared)
        for ledger in self.truth.ledgers:
            metadata = self.world.metadata(ledger)
            if metadata is not None and bookie.id in metadata.bookies() and ledger not in marked:
                path = f"{SHORT}{directory_of(ledger)}/{name_of(ledger)}"
                self.world.judge = None
                put(self.world.shared, path, repair_text.encode_shortage((bookie.id,), 1))
                self.world.judge = self
        self.history.let_pass(rng.choice((0.2, 0.8)))
        self.truth.seen["healing: a bookie restarted that is marked from before"] += self._names(bookie.id)
        bookie.start()
        self.history.let_pass(rng.choice((0.1, 1.5)))

    def do_heal_part(self, rng: Random) -> None:
        """
        A bookie that has the newest entry of a ledger, from an earlier repair, gets a lost one's copies; it loses its
        journal, or a ledger directory, and is back before the metadata names it.
        """
        self.do_heal_begin(rng)
        line = self.history.some_line(rng)
        if line.client.alive and not line.truth.deleted:
            self.history.close_line(line)
        self.history.let_pass(0.5, lambda: self._is_closed(line.truth.id))
        metadata = self.world.metadata(line.truth.id)
        if metadata is None or not self._is_closed(line.truth.id) or metadata.last_entry < line.truth.first:
            return
        bookies = {bookie.id: bookie for bookie in self.history.bookies}
        others = [each for each in self.history.bookies if each.serving and each.id not in metadata.bookies()]
        part = self._newest(metadata)
        holder, target = bookies[part.bookies[part.indexes[0]]], rng.choice(others) if others else None
        if target is None or not holder.up or not self.history.may_lose(target):
            return
        client = self.history.new_client(f"{REPAIRER}{len(self.history.clients)}", self.history.plain_options)
        record = LedgerRecord(client.store, line.truth.id, Versioned(metadata, 0))
        copier = FragmentCopier(client.client.pool, record, part, Sources(), lambda _step: None)
        copied = Outcome(Deferred.fromCoroutine(copier.copy(part.indexes[0], target.id)))
        self.history.let_pass(1.0, lambda: copied.done)
        if target.serving:
            target.storage.flush().addErrback(lambda _failure: None)
            self.history.let_pass(0.1)
        self._target, self._kills = (line.truth.id, target), rng.random() < 0.5
        holder.die()
        self.history.let_pass(3.0 + self.delay_s, lambda: self._target is None)
        self.truth.seen["healing: it lost copies before it was named"] += self._target is None
        self._target = None
        self.history.let_pass(1.0)
        self._kills = False
        self.do_heal_begin(rng)
        self.history.let_pass(1.0)

    def _is_closed(self, ledger: int) -> bool:
        metadata = self.world.metadata(ledger)
        return metadata is not None and metadata.is_closed

    def _newest(self, metadata: LedgerMetadata) -> HeldFragment:
        """The newest entry of a closed ledger, on the first index of its write set."""
        last = metadata.last_entry
        return HeldFragment(last, last, metadata.ensemble_at(last), tuple(Quorums.of(metadata).write_set(last)[:1]))

    def lose_target(self, operation: str, arguments: tuple[object, ...]) -> Fault | None:
        """What happens while the store takes its time to name the bookie that was given copies."""
        if self._target is None or operation != "write_ledger":
            return None
        ledger, target = self._target
        written, metadata = arguments[:2]
        before = self.world.metadata(ledger)
        if written != ledger or before is None or not isinstance(metadata, LedgerMetadata):
            return None
        if target.id not in metadata.bookies() - before.bookies() or not target.up:
            return None
        self._target = None
        options = target.options
        directories = self.world.random.choice((options.journal_directories, options.ledger_directories))
        target.lose_directory(directories, ledger % len(directories))
        self.world.timeline.at(0.01, target.start)
        return Fault(before=0.5)

    def slow_finish(self, operation: str, arguments: tuple[object, ...]) -> Fault | None:
        """What the store does about the first ledger that leaves the queue with the bookie that is waited for."""
        if self._awaited is None or operation != "finish_repair":
            return None
        (ledger,) = arguments
        shortage = shortages(self.world.shared).get(ledger) if isinstance(ledger, int) else None
        metadata = self.world.metadata(shortage.ledger) if shortage is not None else None
        if (
            shortage is None
            or self._awaited not in shortage.missing
            or metadata is None
            or self._awaited not in metadata.bookies()
        ):
            return None
        self._awaited = None
        return Fault(before=1.0)

    def _names(self, bookie: str) -> bool:
        return any(bookie in each.missing for each in self._short())

    def _busy(self) -> list[Process]:
        return [each for each in self.processes if each.node.alive and each.running.worker.working]

    def do_heal_stop(self, rng: Random) -> None:
        """An operator stops a process."""
        process = self._some(rng)
        if process is not None:
            process.running.stop().addBoth(lambda _done: process.node.crash())

    def do_heal_ask(self, _rng: Random) -> None:
        """An operator asks for an audit."""
        self.asked = True
        set_delay(self.world.shared, self.delay_s)

    def do_heal_switch(self, rng: Random) -> None:
        """The switch is turned."""
        self._switch(rng.random() < 0.5)

    def _switch(self, enabled: bool) -> None:
        path, shared = f"{QUEUE}/disable", self.world.shared
        if enabled and path in shared.nodes.nodes:
            remove(shared, path)
        elif not enabled and path not in shared.nodes.nodes:
            put(shared, path)

    def _expire(self, process: Process) -> None:
        self.truth.seen["healing: a session was lost"] += 1
        self.truth.seen["healing: a session was lost in a repair"] += bool(process.running.worker.working)
        process.node.store.expire_session()

    def _some(self, rng: Random) -> Process | None:
        living = [each for each in self.processes if each.node.alive]
        return rng.choice(living) if living else None

    # Judgement

    def _look(self) -> None:
        """The lists of bookies may have changed."""
        shared, now = self.world.shared, self.world.timeline.now
        here = {*stored.registrations(shared), *stored.registrations(shared, True)}
        for bookie in self._here - here:
            self._away.setdefault(bookie, []).append([now, float("inf")])
        for bookie in here - self._here:
            if self._away.get(bookie):
                self._away[bookie][-1][1] = now
        self._here = here

    def queued(
        self, steps: Sequence[Step], before: Mapping[int, Shortage], session: SessionId, failed: Exception | None
    ) -> None:
        """What a transaction did to the queue and the locks."""
        finished = None
        for step in steps:
            ledger = ledger_of(step.path)
            if ledger is None:
                continue
            if step.path.startswith(LOCKS):
                finished = ledger if isinstance(step, Delete) else finished
                if isinstance(step, Create) and failed is None:
                    self.locked_at[ledger] = self.world.timeline.now
            elif isinstance(step, Create | Write) and failed is None:
                missing, since_ms = repair_text.decode_shortage(ledger, step.data)
                known = before.get(ledger, Shortage(ledger, (), None, 0))
                new = [bookie for bookie in missing if bookie not in known.missing]
                self.marked(ledger, new, missing, of_a_repair=since_ms == known.since_ms)
            elif isinstance(step, Delete) and ledger == finished:
                if failed is None:
                    self.unmarked(before[ledger], int(session))
                self.truth.seen["healing: it stays, for it was marked again"] += isinstance(failed, BadVersion)

    def marked(self, ledger: int, new: Sequence[str], missing: Sequence[str], of_a_repair: bool) -> None:
        """With new names, or once more for all that it names."""
        self._look()
        self.truth.seen["healing: a ledger was marked"] += 1
        self.truth.seen["healing: marked while it is repaired"] += ledger in locks(self.world.shared)
        now = self.world.timeline.now
        self.world.tell(f"ledger {ledger} is marked for {', '.join(missing)}")
        if self.asked or self.checked or of_a_repair:  # which found that copies are lacking, and waits for nothing
            return
        for bookie in new or missing:
            times = self._away.get(bookie, [])
            if new and not any(
                end > now - SLACK_S and min(end, now) - begun >= self.delay_s - 1e-6 for begun, end in times
            ):
                self.truth.break_(
                    "inside the delay", f"ledger {ledger} is marked for {bookie}, away since {times[-1:]}"
                )
            self._missed_at[ledger, bookie] = now

    def unmarked(self, shortage: Shortage, session: int) -> None:
        self._look()
        self.truth.seen["healing: a ledger left the queue"] += 1
        self.world.tell(f"ledger {shortage.ledger} leaves the queue")
        metadata = self.world.metadata(shortage.ledger)
        if metadata is None:
            return
        for process in self.processes:
            if process.session == session:
                process.unmarked[shortage.ledger] = session
        self._judge_unproven(shortage.ledger, metadata)
        for bookie in shortage.missing:
            if bookie in self._here or bookie not in metadata.bookies():
                continue
            since, locked_at = self._away[bookie][-1][0], self.locked_at[shortage.ledger]
            broken = "off the queue" if since < locked_at else "marked again"
            if since < locked_at or self._missed_at.get((shortage.ledger, bookie), 0.0) >= since:
                self.truth.break_(
                    broken, f"ledger {shortage.ledger} leaves the queue, and names {bookie}, which is away"
                )

    def is_worker(self, author: str) -> bool:
        """Whether the author of a change is one of the processes."""
        return any(each.node.name == author for each in self.processes)

    def _judge_unproven(self, ledger: int, metadata: LedgerMetadata) -> None:
        """Whoever was named and had lost copies just before got them again, or looks after itself."""
        truth = self.truth.ledgers[ledger]
        unproven, truth.unproven = truth.unproven, set()
        serving = {each.id for each in self.history.bookies if each.serving and not each.in_limbo}
        for entry, bookie in unproven & truth.lost.keys():
            if bookie in serving and bookie in truth.write_set(entry, metadata):
                self.truth.break_(
                    "proven", f"ledger {ledger} leaves the queue, and {bookie} was named for entry {entry}, lost before"
                )

    def done_with(self, process: Process, ledger: int) -> None:
        """
        A worker's task ended.  Whom it named for a ledger that it took off the queue has everything by now, unless it
        marked that again; a task that was cut off, with its session or by a stop, did not come to its end.
        """
        session = process.unmarked.pop(ledger, None)
        if session is None:
            return
        cut_off = session != process.session or process.node.store.over or process.running.worker.stopped
        again = ledger in shortages(self.world.shared)
        metadata = None if cut_off or again else self.world.metadata(ledger)
        doubting = [each.id for each in self.history.bookies if not each.serving or each.in_limbo]
        self.truth.repair_ended(process.node.name, self.truth.ledgers[ledger], metadata, doubting)

    def changed(
        self, author: str, session: int | None, ledger: int, before: LedgerMetadata, after: LedgerMetadata
    ) -> None:
        """A process wrote metadata of the same state, so it repairs; it sent that in that session."""
        process = next((each for each in self.processes if each.node.name == author), None)
        if process is None or not process.lives or process.session != session or before.state is not after.state:
            return
        if {**locks(self.world.shared), **self.world.held}.get(ledger) != process.session:
            self.truth.break_("one worker", f"{author} changes ledger {ledger} without its lock")
        if self._kills and self._target is None:
            self._kills = False
            self.truth.seen["healing: it died when it had named one that lost copies"] += 1
            self.world.timeline.at(0.0, process.node.crash)
        self._look()
        for bookie in (before.bookies() - after.bookies()) - self._here:
            self._replaced(process, ledger, bookie)

    def _replaced(self, process: Process, ledger: int, bookie: str) -> None:
        """By a worker; one that did not see it leave, or that finds a mark from since then, takes it for lost."""
        mark, since = shortages(self.world.shared).get(ledger), self._away[bookie][-1][0]
        if self.asked or mark is None or mark.since_ms is None or mark.since_ms >= 1000 * since:
            return
        away_s, came = (
            self.world.timeline.now - since,
            max((end for _gone, end in self._away[bookie][:-1]), default=0.0),
        )
        awake = max(process.begun, process.node.process.paused_until)
        if max(awake, came) < since - SEEN_S and away_s < self.delay_s:
            self.truth.break_("an old mark", f"ledger {ledger} is freed from {bookie}, away for {away_s:.2f} s")

    def check(self) -> None:
        """Between two steps."""
        auditors = [
            each.node.name for each in self.processes if each.lives and each.running.candidate.auditor is not None
        ]
        if len(auditors) > 1:
            self.truth.break_("one auditor", f"{' and '.join(auditors)} audit, and their sessions live")

    # The end

    def make_whole(self, lines: Sequence[Any]) -> None:
        """Nobody but AutoRecovery repairs, now that the faults are over."""
        history = self.history
        self._switch(True)
        for bookie in history.bookies:
            if bookie.serving and bookie.storage.counters.directories_lost:
                bookie.die()
            if not bookie.gone and not bookie.up:
                bookie.start()
        history.have_spares()
        history.let_pass(1.0)
        if not any(each.node.alive for each in self.processes):
            self.do_heal_begin(Random(0))
        for process in self.processes:
            process.node.fault_rate = 0.0
        upkeep = history.upkeep
        upkeep.refill_all()
        history.let_pass(HEALED_SECONDS, lambda: not self._waits(lines))
        if self._short():
            told = [(each.node.name, each.running.status()) for each in self.processes if each.node.alive]
            raise Violation("healed", f"still in the queue: {self._short()}, of {told}")
        lost = [bookie.id for bookie in history.bookies if not bookie.up]
        for line in lines:
            metadata = self.world.metadata(line.truth.id)
            named = sorted(set(lost) & set(metadata.bookies())) if metadata is not None else []
            if named:
                raise Violation("healed", f"ledger {line.truth.id} names {named}, and is not in the queue")
        self.truth.seen["healing: a cluster was whole again"] += 1
        for process in self.processes:
            if process.node.alive:
                process.running.stop()
        history.let_pass(1.0)

    def _short(self) -> list[Shortage]:
        return list(shortages(self.world.shared).values())

    def _waits(self, lines: Sequence[Any]) -> bool:
        """Whether there is something to repair still."""
        if self._short():
            return True
        lost = {bookie.id for bookie in self.history.bookies if not bookie.up}
        metadata = [self.world.metadata(line.truth.id) for line in lines]
        return any(each is not None and not lost.isdisjoint(each.bookies()) for each in metadata)
