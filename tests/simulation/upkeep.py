"""
What keeps a cluster whole: repairs, bookies that take back what they lost, garbage collection, compaction, superfluous
copies.

The steps of a plan that belong to these, and what happens after the quiet: repairs until every entry is on its whole
write quorum again, which is looked up on the bookies themselves; then a day passes, what is superfluous goes, what was
deleted goes, the whole cluster loses its power, and every entry must still be there.  The code is the product's; only
its callers (an operator, a timer) are played here.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.bookie.upkeep.deletions import APART_S
from quire.bookie.upkeep.store_guard import DOUBTED_RAISED_MAX, GIVEN_MAX, LOOK_S
from quire.bookie.upkeep.store_notes import accepted, bytes_of, note_of
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import LedgerError, Status
from quire.replication.checker import check_ledger
from quire.replication.freeing import ledger as freeing
from quire.replication.freeing.rebalancing import Manner, Rebalanced, rebalance
from quire.replication.freeing.run import Recovered
from quire.replication.lost_bookies import recover_bookies
from quire.replication.mending import MISLEADING, mend
from quire.replication.own_copies import drop_surplus
from quire.replication.scrub import examine
from quire.replication.scrub.examine import Missing
from quire.replication.scrub.judge import Suspicion
from quire.replication.scrub.second_look import second_look
from tests.metadata import stored
from tests.simulation.nodes import SimBookie, SimClient, in_doubt
from tests.simulation.outcome import Outcome
from tests.simulation.truth import PAYLOAD_AT, REPAIRER, LedgerTruth, Violation

if TYPE_CHECKING:
    from tests.simulation.history import History, Line

DAY_SECONDS = 95_400.0  # after which no add counts as recent
COLLECT_ROUNDS = 2  # of garbage collection, after which all that may go has gone
COPIES_S = 0.2  # so long a day waits for a repair to make a copy
ROUNDS_MAX = 8
REPAIR_SECONDS = 60.0
FAR = (-86_400.0, -3600.0, 3600.0, 86_400.0)


@contextmanager
def small_parts(seed: int) -> Iterator[None]:
    """Of fragments, so that a few entries make several, or that whole fragments are copied."""
    before = freeing.UNNAMED_BYTES_MAX
    freeing.UNNAMED_BYTES_MAX = Random(f"parts/{seed}").choice((1, 300, before))
    try:
        yield
    finally:
        freeing.UNNAMED_BYTES_MAX = before


class Task(Outcome):
    """Something that runs on a client's or a bookie's process until one of them dies."""

    def __init__(self, story: "Deferred[Any]", alive: Callable[[], bool], client: SimClient | None = None) -> None:
        super().__init__(story)
        self.client = client
        self.alive = alive

    @property
    def over(self) -> bool:
        return self.done or not self.alive()


async def _rewritten(client: SimClient, ledger: int, wrong: Missing) -> None:
    """Looks at copies again that a check calls wrong though their digests hold, and mends them as a scrub does."""
    metadata, last = await client.client.metadata(ledger), wrong.first + wrong.entries - 1
    bookies = metadata.fragment_at(wrong.first).bookies
    if wrong.bookie in bookies:
        suspicion = Suspicion(ledger, last, [(bookies.index(wrong.bookie), wrong.first, last)], {(wrong.first, last)})
        await mend(client.client, ledger, await second_look(client.client, suspicion, examine.Manner()))


class Upkeep:
    """One history's."""

    def __init__(self, history: "History") -> None:
        self.history = history
        self.world = history.world
        self.truth = history.truth
        self.tasks: list[Task] = []
        self.repairs: list[Task] = []
        self.strangers: set[str] = (
            set()
        )  # bookies with a ledger of another cluster's client, the store never gave its id
        self.ids_drawn = 0  # for strangers, given by the store to nobody else

    # Steps

    def do_repair(self, rng: Random) -> None:
        """An operator gives up bookies that are down."""
        down = [bookie for bookie in self.history.bookies if not bookie.up]
        if down:
            self._repair(rng.sample(down, rng.randint(1, len(down))), rng)

    def do_retire(self, rng: Random) -> None:
        """The same of a bookie that lives."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None:
            self._repair([bookie], rng, insist=True)

    def _repair(self, lost: list[SimBookie], rng: Random, insist: bool = False) -> None:
        history = self.history
        client = history.new_client(f"{REPAIRER}{len(history.clients)}")
        client.fault_rate = history.plan.fault_rate
        line = rng.choice([None, history.some_line(rng)])
        self.world.tell(f"{client.name} repairs what {', '.join(bookie.name for bookie in lost)} held")
        self.truth.seen["repair begun under faults"] += 1
        self.truth.seen["repair beside a recovery"] += any(
            other.alive and not opened.done for one in history.lines for other, opened in one.opens
        )
        self.truth.seen["two repairs"] += any(not task.over for task in self.repairs)
        story = self._recover(
            client,
            [bookie.id for bookie in lost],
            line and line.truth.id,
            verify=rng.random() < 0.3,
            even_if_registered=insist,
        )
        self.repairs.append(self.begin(story, client))

    def do_rebalance(self, rng: Random) -> None:
        """
        An operator evens out how full bookies are.  There is much to do: they are of different sizes, one may be new,
        and a ledger was closed just now.
        """
        history = self.history
        line = history.some_line(rng)
        if rng.random() < 0.7 and line.client.alive:
            history.close_line(line)
        if rng.random() < 0.5 and len(history.bookies) < history.plan.shape[0] + 6:
            history.new_bookie().start()
        history.let_pass(0.2)
        client = history.new_client(f"{REPAIRER}{len(history.clients)}")
        client.fault_rate = history.plan.fault_rate
        up = [*stored.registrations(self.world.shared), *stored.registrations(self.world.shared, True)]
        how = Manner(
            within=rng.choice((0.02, 0.3)),
            capacities={bookie: rng.choice((1, 3, 20)) << 30 for bookie in sorted(up)},
            under_way=rng.choice((1, 1 << 20)),
            moves_max=rng.choice((1, 1000)),
        )
        self.world.tell(f"{client.name} evens out how full bookies are")
        self.truth.seen["rebalance beside a recovery"] += any(
            other.alive and not opened.done for one in history.lines for other, opened in one.opens
        )
        self.truth.seen["rebalance beside a repair"] += any(not task.over for task in self.repairs)
        story = Deferred.fromCoroutine(rebalance(client.client, how))
        self.repairs.append(self.begin(self.judged(client, story).addBoth(self._rebalanced), client))
        if rng.random() < 0.3:
            history.let_pass(rng.choice((0.005, 0.02, 0.05)))
            self.truth.seen["rebalance crashed"] += not self.repairs[-1].over
            rng.choice((client.crash, client.store.expire_session))()

    def _rebalanced(self, done: Rebalanced | Failure) -> Rebalanced | Failure:
        if isinstance(done, Rebalanced):
            self.truth.seen["rebalance moved a holding"] += len(done.moved)
            self.truth.seen["rebalance could not move a holding"] += len(done.failed)
        return done

    def _recover(
        self, client: SimClient, lost: list[str], ledger: int | None = None, **options: bool
    ) -> "Deferred[Any]":
        return self.judged(client, Deferred.fromCoroutine(recover_bookies(client.client, lost, ledger, **options)))

    def judged(self, client: SimClient, story: "Deferred[Any]") -> "Deferred[Any]":
        """A repair or the like; at its end whom it named has everything, or knows that it has not."""

        def ended(done: Recovered | Rebalanced | Failure) -> Recovered | Rebalanced | Failure:
            failed = None if isinstance(done, Failure) else {each.ledger for each in done.failed}
            for line in self.history.lines:
                metadata = None if failed is None or line.truth.id in failed else self.world.metadata(line.truth.id)
                doubting = [
                    bookie.id
                    for bookie in self.history.bookies
                    if not bookie.serving or in_doubt(bookie.storage, line.truth.id)
                ]
                self.truth.repair_ended(client.name, line.truth, metadata, doubting)
            return done

        return story.addBoth(ended)

    def begin(self, story: "Deferred[Any]", client: SimClient) -> Task:
        task = Task(story, lambda: client.alive, client)
        self.tasks.append(task)
        return task

    def do_crash_repair(self, rng: Random) -> None:
        busy = [task for task in self.repairs if not task.over]
        if busy:
            self.truth.seen["repair crashed"] += 1
            client = rng.choice(busy).client
            assert client is not None
            client.crash()

    def do_pause_repair(self, rng: Random) -> None:
        busy = [task for task in self.repairs if not task.over]
        if busy:
            self.truth.seen["repair paused"] += 1
            client = rng.choice(busy).client
            assert client is not None
            client.process.pause(rng.choice((0.05, 0.5, 3.0)))
            if rng.random() < 0.3:
                self.truth.seen["repair lost its session"] += 1
                client.store.expire_session()

    def do_refill(self, rng: Random) -> None:
        """A bookie in limbo takes back what it lost."""
        limbo = [bookie for bookie in self.history.bookies if bookie.in_limbo]
        if limbo:
            self._refill(rng.choice(limbo))

    def _refill(self, bookie: SimBookie) -> Task:
        process = bookie.process
        assert process is not None
        task = Task(bookie.refill(self.history.options), lambda: process.alive)
        self.tasks.append(task)
        return task

    def do_delete(self, rng: Random) -> None:
        """A ledger is deleted; one always stays."""
        history = self.history
        living = [line for line in history.lines if not line.truth.deleted]
        if len(living) > 1:
            client = history.new_client(f"d{len(history.clients)}")
            self.begin(client.client.delete_ledger(rng.choice(living).truth.id), client)

    def do_collect(self, rng: Random) -> None:
        """A round of garbage collection, with both kinds of compaction or without."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving:
            bookie.garbage.force(minor=rng.random() < 0.7, major=rng.random() < 0.7)
            self.truth.seen["garbage collection forced"] += 1

    def do_dark_collect(self, rng: Random) -> None:
        """The same, and the power goes in its midst."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving:
            bookie.garbage.force()
            bookie.power_after(rng.randint(1, 24), rng)

    def do_reindex(self, rng: Random) -> None:
        """A bookie rebuilds its index, beside whatever else comes."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving and bookie.upkeep.rebuild.start():
            self.world.tell(f"{bookie.name} rebuilds its index")
            self.truth.seen["index rebuilt"] += 1
            if rng.random() < 0.5:
                bookie.garbage.force()  # which has to wait

    def do_dark_reindex(self, rng: Random) -> None:
        """The same, and the power goes in its midst."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving and bookie.upkeep.rebuild.start():
            bookie.power_after(rng.randint(1, 40), rng)

    def do_rot(self, rng: Random) -> None:
        """
        What a bookie has of a ledger is damaged in its index and in its entry logs; it rebuilds its index, and finds
        that it can't tell.
        """
        history = self.history
        losers = [bookie for bookie in history.bookies if bookie.name in history.losers and bookie.serving]
        bookie = rng.choice(losers) if losers else history.some_bookie(rng)
        if bookie is None or not bookie.serving:
            return
        bookie.storage.flush().addErrback(lambda _failure: None)
        history.let_pass(0.05)
        ledger = rng.choice(sorted(bookie.settled)) if bookie.settled else history.some_line(rng).truth.id
        if (
            not bookie.serving
            or bookie.upkeep.rebuild.running
            or bookie.storage.ledger(ledger) is None
            or not history.may_lose(bookie)
        ):
            return
        if bookie.rot(ledger):
            self.world.tell(f"{bookie.name} can't tell what it has of ledger {ledger}, and rebuilds its index")
            self.truth.seen["an index could not tell what it has"] += 1
        bookie.upkeep.rebuild.start()

    def do_astray(self, rng: Random) -> None:
        """For a while it is another cluster's metadata that answers a bookie."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving:
            store = bookie.store
            store.astray = True
            self.truth.seen["another cluster answered"] += 1

            def come_back() -> None:
                store.astray = False

            self.world.timeline.at(rng.choice((0.001, 0.01, 0.1)), come_back)
            bookie.garbage.force()

    def do_hollow(self, rng: Random) -> None:
        """For a while a store that is half read denies a bookie all ledgers; it has given their ids."""
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving:
            store = bookie.store
            store.hollow = True
            self.truth.seen["a store denied all ledgers"] += 1

            def fill() -> None:
                store.hollow = False

            self.world.timeline.at(rng.choice((0.01, 0.1, 1.0)), fill)
            for _ in range(2):
                bookie.garbage.force()  # the second one right after the first

    def do_stranger(self, rng: Random) -> None:
        """A client of another cluster adds to one bookie: an id far or near above those given, too far, or given."""
        bookie = self.history.some_bookie(rng)
        if bookie is None or not bookie.serving:
            return
        shared = self.world.shared
        kind = rng.randrange(4)
        if kind == 0:
            ledger, self.ids_drawn = stored.next_ledger(shared), self.ids_drawn + 1
            stored.set_next_ledger(shared, ledger + 1)
        elif kind == 1:
            ledger = stored.next_ledger(shared) + 2 * GIVEN_MAX + rng.randrange(1000)
        else:
            ledger = stored.next_ledger(shared) + 100 + rng.randrange(2000 if kind == 2 else 90_000)
            self.strangers.add(bookie.name)
        digest = Digest(DigestType.CRC32C, b"another cluster's")
        bookie.copies.store(ledger, digest.master_key, 0, [digest.entry(ledger, 0, -1, 1, b"x")])
        self.world.tell(f"a stranger adds to ledger {ledger} on {bookie.name}")
        self.truth.seen["a stranger's add"] += 1

    def _judge_strangers(self) -> None:
        """
        They concern their bookies alone, and ids are passed over to a bound; then an operator says that they are
        strangers'.
        """
        shared, history = self.world.shared, self.history
        history.let_pass(2 * LOOK_S)
        note = note_of(stored.note(shared))
        concerned = {each.name for each in history.bookies if each.serving and each.guard.is_behind}
        if not note["accepted"] or concerned - self.strangers:
            raise Violation("strangers", f"for a stranger's add to {self.strangers} {concerned} delete nothing: {note}")
        used = stored.next_ledger(shared) - self.ids_drawn - len(history.lines)
        if used > DOUBTED_RAISED_MAX * len(self.strangers):
            raise Violation("strangers", f"{used} ids were passed over for adds to {self.strangers}")
        stored.put(shared, stored.COOKIES, bytes_of(accepted(note)))
        history.let_pass(2 * LOOK_S)
        if any(each.serving and each.guard.is_behind for each in history.bookies):
            raise Violation("strangers", "a bookie deletes nothing though an operator cleared its doubt")

    def do_surplus(self, rng: Random) -> None:
        bookie = self.history.some_bookie(rng)
        if bookie is not None and bookie.serving:
            self._drop_surplus(bookie)

    def _drop_surplus(self, bookie: SimBookie) -> Task:
        process = bookie.process
        assert process is not None
        bookie.looked_since = self.world.timeline.now
        task = Task(
            Deferred.fromCoroutine(drop_surplus(bookie.own_client(self.history.options), bookie.id, bookie.copies)),
            lambda: process.alive,
        )
        self.tasks.append(task)
        return task

    def do_day(self, rng: Random) -> None:
        """A day passes in which nothing happens; the bookies' own timers notice it."""
        self.truth.seen["a day passed"] += 1
        self._await_copies()
        self.world.timeline.asleep(DAY_SECONDS)
        self.do_pause_repair(rng)
        self.history.let_pass(self._hour_seconds)
        for bookie in self.history.bookies:
            if bookie.serving:
                self._drop_surplus(bookie)

    def _await_copies(self) -> None:
        """
        A repair that is under way comes to where it has made a copy that the metadata does not name yet, if it soon
        does.
        """
        if any(not task.over for task in self.repairs):
            before = self._unnamed()
            self.history.let_pass(COPIES_S, lambda: bool(self._unnamed() - before))

    def _unnamed(self) -> set[tuple[int, str]]:
        """Ledgers and bookies that have some of them, though the metadata does without."""
        found = set()
        for ledger, truth in self.truth.ledgers.items():
            metadata = self.world.metadata(ledger)
            if metadata is not None and metadata.is_closed:
                found |= {(ledger, bookie) for kept in truth.kept.values() for bookie in kept - set(metadata.bookies())}
        return found

    @property
    def _hour_seconds(self) -> float:
        """After which every bookie has looked at its clock."""
        return max(bookie.options.flush_interval_ms for bookie in self.history.bookies) / 1000 + 0.1

    # After the quiet

    def finish(self) -> None:
        """Every ledger that was reckoned comes to have all its copies, and keeps them."""
        history, plan = self.history, self.history.plan
        for bookie in history.bookies:
            bookie.store_told_truth()
        if history.draining is not None:
            history.draining.finish(all(line.settled or line.truth.deleted for line in history.lines))
        self._until_over(self.tasks, "a repair")
        for task in self.tasks:
            if task.done and task.error is not None and not isinstance(task.error, LedgerError | OSError):
                raise Violation("no bug", f"upkeep failed: {task.error!r}")
        if self.truth.seen["a stranger's add"]:
            self._judge_strangers()
        lines = [line for line in history.lines if not line.truth.deleted and not line.truth.deferred and line.settled]
        if lines and not plan.profile.first_id:
            self._whole_again(lines, Random(plan.seed))
        if plan.profile.emptied:
            self._empty()

    def _whole_again(self, lines: "list[Line]", rng: Random) -> None:
        history, plan = self.history, self.history.plan
        if len(history.losers) < plan.shape[2] - 1 and rng.random() < 0.5:
            lost = history.some_bookie(rng)
            if lost is not None and history.may_lose(lost):
                self.world.tell(f"{lost.name} is lost for good")
                lost.lose_disk(amnesia=False)
        if history.healing is not None:
            history.healing.make_whole(lines)
        self._make_whole(lines)
        self.audit(lines, "whole")
        self.truth.seen["every entry on its whole write quorum"] += 1
        if plan.seed % 2 == 0 or plan.profile.upkeep:
            self._a_day_later(lines, rng)

    def _a_day_later(self, lines: "list[Line]", rng: Random) -> None:
        history = self.history
        self.do_day(rng)
        self._until_over(self.tasks, "a look for superfluous copies")
        # a second round would sync what the first one moved
        rounds = 1 if history.plan.seed % 3 == 0 else COLLECT_ROUNDS
        self._collect_all(rounds)
        self.audit(lines, "whole after a day")
        if rounds == COLLECT_ROUNDS:
            self._gone("garbage collection")
        for bookie in history.bookies:
            if bookie.up:
                bookie.lose_power(rng)
        for bookie in history.bookies:
            if not bookie.gone:
                bookie.start()
        history.let_pass(1.0 + 3 * history.plan.pace)  # it hears that its former registration is gone
        for bookie in history.bookies:
            if not bookie.gone and not bookie.serving:
                raise Violation("start", f"{bookie.name} does not start after a power loss")
        self._collect_all()
        self.audit(lines, "whole after a power loss")
        self._gone("a power loss and garbage collection")

    def _empty(self) -> None:
        """Every ledger is deleted: two rounds that are apart give all space back; a third takes what came late."""
        history = self.history
        for bookie in history.bookies:
            if not bookie.gone and not bookie.up:
                bookie.start()
        history.let_pass(1.0)
        client = history.new_client(f"d{len(history.clients)}", history.plain_options)
        for line in history.lines:
            self._do(client, client.client.delete_ledger(line.truth.id))
        for _ in range(3):
            self._collect_all()
            history.let_pass(APART_S)
        for bookie in history.bookies:
            if bookie.serving and bookie.garbage.problem is not None:
                raise Violation("emptied", f"{bookie.name} keeps deleted ledgers: {bookie.garbage.problem}")
        self._gone("the cluster was emptied")
        self.truth.seen["an emptied cluster gave its space back"] += 1

    def _until_over(self, tasks: list[Task], what: str) -> None:
        self.history.let_pass(REPAIR_SECONDS, lambda: all(task.over for task in tasks))
        if not all(task.over for task in tasks):
            raise Violation("ends once", f"{what} hangs")

    def _do(self, client: SimClient, story: "Deferred[Any]") -> Any:
        """Its result, or None where it failed."""
        task = self.begin(story, client)
        self._until_over([task], "a repair")
        if task.error is not None and not isinstance(task.error, LedgerError):
            raise Violation("no bug", f"a repair failed: {task.error!r}")
        return task.value

    def _make_whole(self, lines: "list[Line]") -> None:
        """
        As an operator does: bookies take back what they lost, lost ones are decommissioned, ledgers are checked, who
        lacks copies is replaced.
        """
        history = self.history
        left = "nothing was tried"
        for _ in range(ROUNDS_MAX):
            for bookie in history.bookies:
                if bookie.serving and bookie.storage.counters.directories_lost:
                    bookie.die()  # it knows what it lost once it is started again
                if not bookie.gone and not bookie.up:
                    bookie.start()
            history.have_spares()
            history.let_pass(0.3)
            self.refill_all()
            client = history.new_client(f"{REPAIRER}{len(history.clients)}", history.plain_options)
            lost = [bookie.id for bookie in history.bookies if not bookie.up]
            if lost:
                done = self._do(client, self._recover(client, lost))
                left = f"{done.failed if done is not None else 'failed'}"
            incomplete = self._incomplete(client, lines)
            if not incomplete:
                return
            left = f"{incomplete}, {left}"
            for ledger, missing in incomplete:
                if missing.code in MISLEADING:  # to be made anew from others than this and those like it
                    self.truth.seen["a living bookie had wrong copies"] += 1
                    self._do(client, Deferred.fromCoroutine(_rewritten(client, ledger, missing)))
                else:
                    self.truth.seen["a living bookie lacked copies"] += 1
                    self._do(client, self._recover(client, [missing.bookie], ledger, even_if_registered=True))
        raise Violation("whole", f"after {ROUNDS_MAX} rounds of repair copies are missing: {left}")

    def refill_all(self) -> None:
        """Every bookie in limbo takes back what it lost."""
        refills = [self._refill(bookie) for bookie in self.history.bookies if bookie.in_limbo]
        self._until_over(refills, "a bookie that takes back what it lost")

    def _incomplete(self, client: SimClient, lines: "list[Line]") -> list[tuple[int, Missing]]:
        """Returns what ledgers lack, once for each of their bookies."""
        found: list[tuple[int, Missing]] = []
        for line in lines:
            check = self._do(client, Deferred.fromCoroutine(check_ledger(client.client, line.truth.id)))
            if check is None:
                raise Violation("whole", f"ledger {line.truth.id} can't be checked")
            by_bookie = {missing.bookie: missing for missing in reversed(check.missing)}
            found += [(line.truth.id, by_bookie[bookie]) for bookie in sorted(by_bookie)]
        return found

    def _collect_all(self, rounds: int = COLLECT_ROUNDS) -> None:
        """Rounds on every bookie: what came back late is in its table after the first."""
        history = self.history
        for _ in range(rounds):
            for bookie in history.bookies:
                if bookie.serving:
                    bookie.garbage.force()
            history.let_pass(
                REPAIR_SECONDS, lambda: not any(bookie.serving and bookie.garbage.forced for bookie in history.bookies)
            )

    def _gone(self, after: str) -> None:
        """No bookie has anything of a deleted ledger any more."""
        for bookie in self.history.bookies:
            if not bookie.serving or bookie.garbage.problem is not None:
                continue
            for line in self.history.lines:
                if line.truth.deleted and bookie.storage.ledger(line.truth.id) is not None:
                    raise Violation("deleted", f"{bookie.name} still has deleted ledger {line.truth.id} after {after}")

    # What is really on the disks

    def audit(self, lines: "list[Line]", invariant: str) -> None:
        """
        Checker 5: each entry of each fragment is with its whole write quorum, the right bytes, asked of their storages.
        """
        bookies = {bookie.id: bookie for bookie in self.history.bookies}
        tasks: list[Task] = []
        for line in lines:
            metadata = self.world.metadata(line.truth.id)
            assert metadata is not None
            for bookie_id, first, count in shares(line.truth, metadata):
                bookie = bookies[bookie_id]
                if not bookie.serving:
                    raise Violation(invariant, f"ledger {line.truth.id} names {bookie_id}, which is lost")
                tasks.append(Task(Deferred.fromCoroutine(held(bookie, line.truth, first, count)), lambda: True))
        self.history.let_pass(REPAIR_SECONDS, lambda: all(task.done for task in tasks))
        for task in tasks:
            if not task.done or task.error is not None or task.value is not None:
                raise Violation(invariant, f"{task.value or task.error!r}")


def shares(truth: LedgerTruth, metadata: LedgerMetadata) -> Iterator[tuple[str, int, int]]:
    """(bookie, first entry, count) of what each has to hold."""
    open_runs: dict[str, list[int]] = {}
    for entry in range(truth.first, metadata.last_entry + 1):
        for bookie in sorted(truth.write_set(entry, metadata)):
            run = open_runs.get(bookie)
            if run is not None and run[0] + run[1] == entry:
                run[1] += 1
                continue
            if run is not None:
                yield bookie, run[0], run[1]
            open_runs[bookie] = [entry, 1]
    for bookie, run in open_runs.items():
        yield bookie, run[0], run[1]


def held(bookie: SimBookie, truth: LedgerTruth, first: int, count: int) -> Coroutine[Any, Any, str | None]:
    """What is wrong with these entries there."""

    async def look() -> str | None:
        at, stop = first, first + count
        while at < stop:
            found = bookie.storage.read_run(truth.id, at, stop - at, 1 << 20)
            bodies = await found if isinstance(found, Deferred) else found
            if isinstance(bodies, Status):
                return f"{bookie.name} says {bodies.name} for entry {at} of ledger {truth.id}"
            for body in bodies:
                ids = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")
                if ids != (truth.id, at) or body[PAYLOAD_AT:] != truth.payloads[at]:
                    return f"{bookie.name} holds {bytes(body[:60])!r} as entry {at} of ledger {truth.id}"
                at += 1
        return None

    return look()
