"""What a replica's reads know, in each mode, at the owner and elsewhere; what they cost, and when they fail."""

from itertools import count
from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred, gatherResults, succeed

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.ownership_messages import Recover
from quire.log.core.values import Segment
from quire.log.machine.proofs import Horizon
from quire.log.upkeep.keeping import KeptOwner
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.metadata.uri import boottime
from quire.protocol.errors import ClientClosed, MetaStore
from quire.protocol.log_errors import LogError, LogFenced, NotOwner, StaleRead
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.gate import Gate
from tests.log.fakes.machines import Chain
from tests.log.owner.test_lease import LEASED, MS, until
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

META_S, BOOKIE_S = 1.0, 0.001  # a round trip


def applied(machine):
    return machine.applied


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def leading(logs, name="a", **settings):
    """A log and the replica that owns it."""
    await logs.create(name, **settings)
    replica = await logs.replica(name, Chain, stand=True)
    assert await replica.leads(30)
    return replica


class Asked:
    """Counts what a process asks the metadata store."""

    def __init__(self, logs):
        self.names = []
        self._store = logs.bk.store
        self._store.faults = lambda name, _arguments: self.names.append(name)

    def end(self):
        self._store.faults = None


def test_every_record_that_was_acknowledged_is_in_the_next_read(tmp_path):
    """By index at the owner and at a follower, with a writer that goes on meanwhile; by barrier at the owner."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            owner = await leading(logs)
            follower = await other.replica("a", Chain)
            assert (await follower.read(applied)).value == 0
            for number in range(40):
                await owner.propose(b"%d" % number, "ack")
                some = [owner.read(applied), follower.read(applied), owner.read(applied, "barrier")]
                for answer in await gatherResults(list(map(story_of, some))):
                    assert answer.value == answer.index == number + 1
                    assert answer.age_ms >= 0
                if number % 10 == 7:
                    owner.owner.roll()
            with pytest.raises(NotOwner):
                await follower.read(applied, "barrier")
            assert (await follower.read(applied, "unsafe")).age_ms == -1

    run(story)


def test_what_was_published_is_in_the_next_read(tmp_path):
    """Of the owner, which did not write it, and of a follower; before the owner has appended behind it, and after."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            owner = await leading(logs)
            follower = await other.replica("a", Chain)
            await owner.propose(b"one")
            sink = await other.sink("a", "facts", "r")
            for batch in range(4):
                part = await sink.part(batch, 0, 0)
                await part.append_many([b"x", b"y"])
                end = (await sink.commit(batch, [await part.close()])).end
                for answer in await gatherResults([story_of(each.read(applied)) for each in (owner, follower)]):
                    assert answer.value == end
                if batch % 2:
                    assert await owner.propose(b"next") == (end, b"next")

    run(story)


def test_a_lease_read_asks_nobody(tmp_path):
    """While the owner holds its lease; without it, and elsewhere, it is a read by index."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(boottime=lambda: 100.0), await world.logs()
            owner = await leading(logs, **LEASED)
            follower = await other.replica("a", Chain)
            await owner.propose(b"one")
            await until(lambda: owner.owner.lease.holds)
            asked = Asked(logs)
            assert (await owner.read(applied, "lease")).value == 1
            assert "clock" not in asked.names
            asked.end()
            assert (await follower.read(applied, "lease")).value == 1
            metrics = {
                sample.labels["mode"]: sample.value
                for family in logs.metrics.collect()
                for sample in family.samples
                if sample.name == "quire_log_reads_total" and sample.labels["outcome"] == "answered"
            }
            assert metrics == {"lease": 1}

    run(story)


def test_a_lease_read_whose_lease_ran_out_meanwhile_is_proved_anew(tmp_path):
    """The clock is read after the value: who was stopped in between does not answer by what it held before."""

    async def story():
        async with cluster(tmp_path) as world:
            now = [100.0]
            logs = await world.logs(boottime=lambda: now[0])
            owner = await leading(logs, **LEASED)
            await owner.propose(b"one")
            await until(lambda: owner.owner.lease.holds)
            asked, calls = Asked(logs), []

            def slow(machine):
                calls.append(len([each for each in asked.names if each == "clock"]))
                now[0] += 0.99 * MS / 1000
                return machine.applied

            assert (await owner.read(slow, "lease")).value == 1
            assert len(calls) == 2
            assert asked.names, "the second time somebody was asked"

    run(story)


def test_an_owner_that_was_deposed_without_hearing_of_it(tmp_path):
    """Its reads by index know what its successor was acknowledged; by barrier they fail."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            owner = await leading(logs)
            await owner.propose(b"one")
            handle = owner.owner
            after = await other.own("a", force=True)
            await after.append(b"two")
            assert (await owner.read(applied)).value == 2
            assert handle.lost or owner.owner is None
            error = await failing(story_of(owner.read(applied, "barrier")), LogError)
            assert isinstance(error, NotOwner | LogFenced)

    run(story)


def test_an_owner_whose_ledger_was_ended_by_another_one_does_not_answer_by_what_it_knows(tmp_path):
    """What it holds may be more than the owner was acknowledged: it is asked as elsewhere."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            owner = await leading(logs)
            await owner.propose(b"one")
            gate = Gate(owner.owner.records.records, "multi")  # the owner can't close its segment
            handle = owner.owner
            end = handle.end.index
            await other.bk.recover_ledger((await other.info("a")).ledger)
            stored = Gate(logs.bk.store, "read_ledger")
            try:
                reading = story_of(owner.read(applied))
                await stored.reached
                assert not reading.called, "it asked the ledger"
            finally:
                stored.open()
                gate.open()
            assert (await reading).value == end

    run(story)


def test_a_round_serves_all_that_was_asked_before_it(tmp_path):
    """A hundred reads at once are two rounds: the first one's, and that of all that came while it was under way."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            owner = await leading(logs)
            await owner.propose(b"one")
            syncs = []
            logs.bk.store.faults = lambda name, _arguments: syncs.append(1) if name == "clock" else None
            gate = Gate(logs.bk.store.records, "sync")
            reads = [story_of(owner.read(applied)) for _ in range(100)]
            await gate.reached
            gate.open()
            assert {answer.value for answer in await gatherResults(reads)} == {1}
            assert len(syncs) == 2

    run(story)


def test_a_read_without_a_proof_in_time_is_stale(tmp_path):
    """While the store is away; without a proof none is needed."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(read_ms=1000)
            owner = await leading(logs)
            await owner.propose(b"one")
            logs.bk.store.faults = lambda name, *_: Fault(before=1.5) if name == "clock" else None
            error = await failing(story_of(owner.read(applied)), StaleRead)
            assert "read_ms" in str(error)
            logs.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))
            await failing(story_of(owner.read(applied)), MetaStore)
            assert (await owner.read(applied, "unsafe")).value == 1
            logs.bk.store.faults = None
            assert (await owner.read(applied)).value == 1

    run(story)


def test_a_bounded_read_is_no_older_than_its_bound(tmp_path):
    """One round serves reads until its age is above; the answer tells its age; a bound that can't be met is stale."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs(read_ms=300)
            owner = await leading(logs)
            follower = await other.replica("a", Chain)
            await owner.propose(b"one")
            begun = boottime()
            first = await follower.read(applied, "bounded", bound_ms=60_000)
            assert first.value == 1
            assert first.age_ms <= (boottime() - begun) * 1000 + 1
            other.bk.store.faults = lambda *_: Fault(error=MetaStore("no answer"))
            again = await follower.read(applied, "bounded", bound_ms=60_000)
            assert (again.value, again.age_ms >= first.age_ms) == (1, True)
            await pause(reactor, 0.02)
            await failing(story_of(follower.read(applied, "bounded", bound_ms=10)), MetaStore)
            other.bk.store.faults = None
            await failing(story_of(follower.read(applied, "bounded", bound_ms=0)), StaleRead)
            assert (await follower.read(applied, "bounded", bound_ms=60_000)).value == 1
            for arguments in (("bounded",), ("index", 5), ("none",)):
                with pytest.raises(ValueError, match="a read is"):
                    await follower.read(applied, *arguments)

    run(story)


def test_an_entry_above_the_last_add_confirmed_is_counted(tmp_path):
    """The newest acknowledged record is above it until the owner says so: a follower waits for that, and has it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(lac_ms=300), await world.logs()
            owner = await leading(logs)
            follower = await other.replica("a", Chain)
            for number in range(5):
                await owner.propose(b"%d" % number)
                assert (await follower.read(applied)).value == number + 1

    run(story)


class Opening:
    """A client whose ledgers open when a test says so."""

    def __init__(self):
        self.asked = []
        self.closed = []
        self.horizon = Horizon(self, 1.0)

    async def metadata(self, _ledger):
        return SimpleNamespace(password=None)

    def open_ledger(self, _ledger, _password, *, recover):
        assert not recover
        self.asked.append(Deferred())
        return self.asked[-1]

    def opened(self, number, ledger=7):
        """The `number`th that was asked for opens: its reader."""
        made = SimpleNamespace(id=ledger, close=lambda: self.closed.append(made), read_horizon=lambda: succeed((3, 4)))
        self.asked[number].callback(made)
        return made


def test_a_ledger_that_opens_behind_the_close_is_closed():
    """What asked for it hears of the close."""
    world = Opening()
    asking = story_of(world.horizon.stored(Segment(0, 7, 1, 0, 0)))
    world.horizon.close()
    reader = world.opened(0)
    assert world.closed == [reader]
    asking.addErrback(lambda failure: failure.trap(ClientClosed))
    assert asking.result is ClientClosed


def test_a_ledger_that_opens_for_a_round_that_failed_is_not_left_open():
    """The next round waits for it, and uses it; one of another ledger closes it first."""
    world = Opening()
    _late, same, other = (story_of(world.horizon.stored(Segment(0, ledger, 1, 0, 0))) for ledger in (7, 7, 8))
    first = world.opened(0)
    assert same.result.reader is first
    second = world.opened(1, 8)
    assert other.result.reader is second
    assert world.closed == [first]
    world.horizon.close()
    assert world.closed == [first, second]


class Trips:
    """
    What a read costs where only the network takes time: round trips to the metadata store, which take a second each,
    and to bookies, which take a thousandth.  A replica that leads, and one that follows, on one clock.
    """

    def __init__(self):
        self.cluster = FakeCluster(latency=BOOKIE_S / 2)
        self.clock = self.cluster.clock
        self.logs = [
            Logs(self.cluster.client(placement="random"), LogOptions(), now=lambda: 9.0, boottime=self.clock.seconds)
            for _ in range(2)
        ]

        async def begun():
            owner = await leading(self.logs[0], publish=False, lease_ms=5000)
            await owner.propose(b"one")
            return owner, await self.logs[1].replica("a", Chain)

        self.owner, self.follower = self.cluster.succeed(begun())
        self.cluster.spin(1.0)
        self.cluster.store_fault = lambda *_: Fault(before=META_S)

    def of(self, story):
        """Those to the store, and those to bookies, that one came after another until it had its answer."""
        begun = self.clock.seconds()
        self.cluster.succeed(story)
        return divmod(round((self.clock.seconds() - begun) / BOOKIE_S), round(META_S / BOOKIE_S))

    def close(self):
        self.cluster.store_fault = lambda *_: None

        async def closed():
            for each in (self.owner, self.follower, *self.logs):
                await each.close()

        self.cluster.succeed(closed())


def test_what_each_read_costs():
    """
    In round trips (store, bookies): none by lease; two to the store at the owner, the sync and then both records at
    once; elsewhere one to bookies besides, and another one to the first that asks about an entry; a barrier is an
    append.
    """
    trips = Trips()
    owner, follower = trips.owner, trips.follower
    assert trips.of(owner.read(applied, "lease")) == (0, 0)
    assert trips.of(owner.read(applied)) == (2, 0)
    assert trips.of(owner.read(applied, "barrier")) == trips.of(owner.propose(b"two", "ack")) == (0, 1)
    trips.of(follower.read(applied))  # it has to open the ledger, too
    assert trips.of(follower.read(applied)) == (2, 1)
    assert trips.of(follower.read(applied, "lease")) == (2, 1)
    trips.of(owner.propose(b"three"))
    trips.cluster.spin(1.0)
    assert [trips.of(follower.read(applied)) for _ in range(2)] == [(2, 2), (2, 1)]
    assert trips.of(follower.read(applied, "bounded", bound_ms=60_000)) == (0, 0)
    assert trips.of(follower.read(applied, "unsafe")) == (0, 0)
    assert trips.of(gathered(owner.read(applied) for _ in range(100))) == (4, 0)
    trips.close()


async def gathered(stories):
    """All of them at once."""
    return await gatherResults([story_of(each) for each in stories])


def test_a_bounded_answer_is_not_older_than_it_says(tmp_path):
    """Whatever it misses was acknowledged no longer ago than its age, which is not above the bound."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            owner = await leading(logs)
            follower = await other.replica("a", Chain)
            known, missed, over = [], 0, []

            async def write():
                for number in range(150):
                    await owner.propose(b"%d" % number, "ack")
                    known.append(boottime())
                over.append(True)

            async def read(bound_ms):
                nonlocal missed
                while not over:
                    answer = await follower.read(lambda machine: (machine.applied, boottime()), "bounded", bound_ms)
                    (end, at), _index, age_ms = answer
                    assert age_ms <= bound_ms
                    missed += len(known) - end > 0
                    assert all(acknowledged >= at - age_ms / 1000 for acknowledged in known[end:])
                    await pause(reactor, 0)

            await gatherResults([story_of(write()), *(story_of(read(bound_ms)) for bound_ms in (50, 500, 60_000))])
            assert missed, "some answers were old"

    run(story)


def test_an_age_is_not_above_its_bound_on_a_busy_machine(tmp_path):
    """However much time passes between two looks at the clock: here 2 ms."""
    times = count(100_000, 2)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(boottime=lambda: next(times) / 1000)
            replica = await leading(logs)
            await replica.propose(b"x")
            ages = [(await replica.read(lambda _machine: None, "bounded", 50)).age_ms for _ in range(200)]
            assert 40 < max(ages) <= 50

    run(story)


class Apart:
    """An owner, with `leased` one that holds a lease, and a follower of another process."""

    def __init__(self, leased=True, **options):
        self._options = options
        self.cluster = FakeCluster()
        self.owners = self.cluster.store
        logs = self.logs()
        self.cluster.store = MemoryStore(self.cluster.clock, self.cluster.shared)  # of another process
        self.other = self.logs()

        async def begun():
            leader = await leading(logs, **(LEASED if leased else {}))
            await leader.propose(b"one")
            return leader, await self.other.replica("a", Chain)

        self.leader, self.follower = self.cluster.succeed(begun())
        self.cluster.spin(1.0)
        assert (self.leader.owner.lease.holds, self.follower.applied) == (leased, 1)

    def logs(self):
        clock = self.cluster.clock
        return Logs(
            self.cluster.client(placement="random"),
            LogOptions(poll_ms=50, **self._options),
            now=lambda: 9.0,
            boottime=lambda: 100.0 + clock.seconds(),
        )

    def close(self):
        async def closed():
            for each in (self.leader, self.follower, self.other):
                await each.close()

        self.owners.faults = None
        self.cluster.succeed(closed())


class Repaired(Apart):
    """Of these two, and an entry that every bookie stores and the owner does not know to be acknowledged."""

    def __init__(self, leased=True):
        super().__init__(leased)
        self.repair = self.cluster.client()
        self.cluster.judge = lambda request: "mute" if request.op == "add" else "pass"
        self.pending = self.cluster.outcome(self.leader.propose(b"two", "ack"))
        self.cluster.spin(0.02)

    def until(self, condition):
        """What was read by lease knows what was readable before, at each moment."""
        held = False
        for _ in range(20_000):
            if condition():
                return held
            readable, owner = self.follower.applied, self.leader.owner
            if owner is not None and owner.lease.holds:
                held = True
                read = self.cluster.outcome(self.leader.read(applied, "lease"))
                assert read.done, "it asks nobody"
                assert read.result().value >= readable
            self.cluster.spin(0.001)
        raise AssertionError("it takes too long")


@pytest.mark.parametrize("mode", ["lease", "index"])
def test_entries_that_are_sent_together_are_known_to_their_owner_before_a_follower_reads_them(mode):
    """Its ledger's writer confirms one after the other, so the owner knows of each when it is confirmed."""
    story = Apart(batch_bytes=1)
    cluster, leader = story.cluster, story.leader
    ledger = cluster.succeed(story.other.info("a")).ledger
    held = cluster.metadata(ledger).last_fragment.bookies[1:]
    last = max(cluster.bookies[held[0]].ledgers[ledger].entries)

    def judge(request):
        return "hold" if request.op == "add" and request.entry > last + 2 and request.bookie in held else "pass"

    cluster.judge = judge
    # the first leaves at once and the others together, of which all bookies take one, and one bookie all
    waiting = [cluster.outcome(leader.propose(b"%d" % number)) for number in range(3)]
    cluster.spin(0.02)
    assert [each.done for each in waiting] == [True, True, False]
    waiting.append(cluster.outcome(leader.propose(b"says what is confirmed")))
    cluster.spin(0.02)
    assert story.follower.applied == 3
    assert cluster.succeed(leader.read(applied, mode)).value == 3
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(0.1)
    assert all(each.done for each in waiting)
    assert cluster.succeed(story.follower.read(applied)).value == 5
    story.close()


@pytest.mark.parametrize("by", ["its owner", "another one"])
def test_r27_a_repair_confirms_what_the_owner_does_not_know(by):
    """
    Nobody reads it before the manifest closes the segment, which the owner does when it knows it, and another one when
    the lease is over.
    """
    story = Repaired()
    cluster, owner = story.cluster, story.leader.owner
    ledger = cluster.succeed(story.other.info("a")).ledger
    if by == "another one":
        story.owners.faults = lambda *_: Fault(error=MetaStore("no answer"))
    cluster.succeed(story.repair.recover_ledger(ledger))
    assert cluster.metadata(ledger).last_entry == 1
    assert story.follower.applied == 1
    if by == "its owner":
        story.until(lambda: story.pending.done)
        assert story.pending.result().index == 1
    else:
        taken = cluster.outcome(story.other.own("a", force=True))
        assert story.until(lambda: taken.done), "the lease was waited for"
        assert not owner.lease.holds
        cluster.succeed(taken.result().close())
    story.until(lambda: story.follower.applied == 2)
    assert cluster.succeed(story.other.info("a")).ledger is None
    story.close()


def test_what_a_repair_confirms_in_a_log_without_leases_is_in_its_owners_next_read(monkeypatch):
    """Followers read it from the closed ledger at once, whatever the owner and the manifest know."""
    recoveries = []
    monkeypatch.setitem(KeptOwner.performers, Recover, lambda *which: recoveries.append(which))
    story = Repaired(leased=False)
    cluster = story.cluster
    ledger = cluster.succeed(story.other.info("a")).ledger
    cluster.succeed(story.repair.recover_ledger(ledger))
    while story.follower.applied < 2:
        cluster.spin(0.01)
    reading = cluster.outcome(story.leader.read(applied, "index"))
    cluster.spin(0.5)
    assert not story.pending.done
    assert not reading.done or reading.result().value == 2
    monkeypatch.undo()
    for performer, effect in recoveries:
        KeptOwner.performers[Recover](performer, effect)
    while not reading.done:
        cluster.spin(0.01)
    assert reading.result().value == 2
    story.close()
