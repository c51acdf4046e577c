"""Owners that are killed at every step, take each other's log away, and lose the metadata store: what was acknowledged
is there."""

import pytest
from twisted.internet.defer import Deferred, gatherResults

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.store import paths
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetadataTooLarge, MetaStore
from quire.protocol.log_errors import LogFenced, LogFull, NotOwner
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed, kill
from tests.metadata import stored
from tests.metadata.stories import Heard
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

POINTS = [
    "claim.registered",
    "claim.claimed",
    "claim.epoch",
    "settle.recovered",
    "settle.closed",
    "open.created",
    "open.named",
    "roll.drained",
    "roll.closed",
    "roll.named",
    "fence.recovered",
    "fence.released",
    "move.closed",
]
OFTEN = ["open.created", "roll.drained", "roll.closed", "roll.named", "fence.recovered", "fence.released"]


class Told:
    """What a process was told of each of its appends."""

    def __init__(self):
        self.acked = {}
        self.failed = {}
        self.sent = 0

    def append(self, owner, name):
        """One append; nothing waits for it."""
        value = b"%s-%d" % (name, self.sent)
        self.sent += 1
        done = owner.append(value)
        done.addCallback(lambda position: self.acked.__setitem__(value, position.index))
        done.addErrback(lambda failure: self.failed.__setitem__(value, failure.value))
        return done


async def content(logs, count):
    """The values from the first on, until there are so many."""
    found = []
    async for batch in (await logs.read("a")).tail(60):
        assert batch.index == len(found)
        found += batch.values
        if len(found) >= count:
            return found
    return found


def check(found, told):
    """Each acknowledged append is at its index; none is there twice; one that failed as not stored is not there."""
    assert len(set(found)) == len(found)
    for value, index in told.acked.items():
        assert found[index] == value
    for value, error in told.failed.items():
        if isinstance(error, LogFenced | NotOwner):
            assert value not in found


@pytest.mark.parametrize(("point", "nth"), [(each, 1) for each in POINTS] + [(each, 2) for each in OFTEN])
def test_an_owner_that_is_killed_at_a_step(tmp_path, point, nth):
    """The next one takes over and goes on; everything that the first was told is true."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed, told = Doomed(point, nth), Told()
            logs, second = await world.logs(doomed.reached), await world.logs()
            await second.create("a", roll_records=3)
            if point.startswith("settle"):
                before = await second.own("a")
                await before.append(b"before")
                await second.bk.recover_ledger((await second.info("a")).ledger)
                kill(second)
                second = await world.logs()
            doomed.logs = logs
            owning = Deferred.fromCoroutine(logs.own("a"))
            owning.addCallbacks(lambda owner: Deferred.fromCoroutine(use(owner)), lambda _failure: None)

            async def use(owner):
                while not doomed.died.called and point != "move.closed":
                    waiting = [told.append(owner, b"first") for _ in range(4)]
                    ledger = (await second.info("a")).ledger
                    if point.startswith("fence") and ledger is not None:
                        await second.bk.recover_ledger(ledger)
                    await gatherResults(waiting)
                if point == "move.closed":
                    told.append(owner, b"first")
                    owner.close()

            await doomed.died.addTimeout(60, reactor)
            owner = await second.own("a", wait_s=60)
            position = await owner.append(b"second")
            found = await content(second, position.index + 1)
            assert found[-1] == b"second"
            check(found, told)

    run(story)


def test_two_that_take_the_log_from_each_other(tmp_path):
    """By force, under load: acknowledgements of an epoch never follow those of a later one, each answer is true."""

    async def story():
        async with cluster(tmp_path) as world:
            both = [await world.logs(append_ms=3000), await world.logs(append_ms=3000)]
            await both[0].create("a", roll_records=7)
            told = [Told(), Told()]
            waiting = []
            for turn in range(12):
                mine = turn % 2
                owner = await both[mine].own("a", force=True)
                assert owner.epoch == turn + 1
                waiting += [told[mine].append(owner, b"%d" % mine) for _ in range(20)]
                await owner.append(b"turn %d" % turn)
            await gatherResults(waiting)
            found = await content(both[0], max(max(each.acked.values()) for each in told) + 1)
            for each in told:
                check(found, each)
            turns = [found.index(b"turn %d" % turn) for turn in range(12)]
            assert turns == sorted(turns)

    run(story)


def test_the_store_is_away(tmp_path):
    """Appends to the open ledger go on; those that need a new segment wait, and go on when it is back."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_records=5)
            owner = await logs.own("a")
            await owner.append(b"0")
            store = logs.bk.store
            store.faults = lambda *_: Fault(error=MetaStore("away"))
            for number in range(1, 4):
                assert (await owner.append(b"%d" % number)).index == number
            later = [owner.append(b"%d" % number) for number in range(4, 12)]
            assert (await later[0]).index == 4
            assert not later[-1].called
            store.faults = None
            done = await gatherResults(later[1:])
            assert [each.index for each in done] == list(range(5, 12))

    run(story)


def test_handing_over(tmp_path):
    """The candidate that is named gets the log although another one waits longer; no append is lost."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = [await world.logs() for _ in range(3)]
            await one.create("a")
            owner = await one.own("a")
            other = Deferred.fromCoroutine(two.own("a"))
            wanted = Deferred.fromCoroutine(three.own("a", address="three:1"))
            records = one.bk.store.records
            candidates = f"{paths.log_path((await one.info('a')).id)}/candidates"
            heard = Heard()
            records.watch_children(candidates, heard)
            names = await heard.until(lambda names: len(names) == 3)
            about = {token: (await records.read(f"{candidates}/{token}")).value for token in names}
            (third,) = [token for token, value in about.items() if b"three:1" in value]
            told = Told()
            waiting = [told.append(owner, b"one") for _ in range(10)]
            await owner.transfer(third)
            successor = await wanted
            assert not other.called
            assert successor.epoch == 2
            await gatherResults(waiting)
            position = await successor.append(b"mine")
            check(await content(three, position.index + 1), told)
            await successor.close()
            assert (await other).epoch == 3

    run(story)


def test_an_idle_owner_says_what_is_confirmed_until_bookies_hear_it():
    """After longer and longer waits while they do not; then a reader has the last record, with nothing behind it."""
    world = FakeCluster()
    logs, other = (Logs(world.client(placement="random"), LogOptions()) for _ in range(2))
    world.succeed(logs.create("a"))
    owner = world.succeed(logs.own("a"))
    world.succeed(owner.append(b"one"))
    world.spin(1.0)
    said, found = [], []

    def judge(request):
        if request.op != "write lac":
            return "pass"
        said.append(world.clock.seconds())
        return "drop"

    async def follow():
        async for batch in (await other.read("a")).tail(1e6):
            found.extend(batch.values)

    world.judge = judge
    world.outcome(follow())
    world.succeed(owner.append(b"two"))
    world.spin(120.0)
    assert found == [b"one"]
    waits = [late - early for early, late in zip(said[::3], said[3::3], strict=False)]
    assert len(waits) >= 5
    assert waits[0] < waits[-1] < 15
    world.judge = lambda _request: "pass"
    world.spin(30.0)
    assert found == [b"one", b"two"]
    before = len(said)
    world.spin(60.0)
    assert len(said) == before
    world.succeed(owner.close())


@pytest.mark.parametrize("rolls", [False, True])
def test_a_manifest_that_the_metadata_store_finds_too_large(rolls):
    """What is appended fails with the limit and the next step, and the ledger that was made for it is deleted."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random"), LogOptions())
    world.succeed(logs.create("a"))
    owner = world.succeed(logs.own("a"))
    if rolls:
        world.succeed(owner.append(b"one"))
        owner.roll()
    too_large = MetadataTooLarge("a request of 1000001 bytes is above the 1000000 that are sent (zkRequestBytesMax)")
    world.store_fault = lambda name, _: Fault(error=too_large) if name == "transact" else None
    error = world.fails(owner.append(b"two"), 5.0)
    assert isinstance(error, LogFull)
    assert "the log 'a'" in str(error)
    assert "above the 1000000 that are sent (zkRequestBytesMax)" in str(error)
    assert "`quire log tidy a` makes room, and so does a trim" in str(error)
    world.spin(5.0)
    assert len(stored.Ledgers(world.shared)) == rolls
    world.store_fault = lambda _name, _arguments: None
    again = world.succeed(logs.own("a"))
    assert world.succeed(again.append(b"three")).index == rolls


def test_a_manifest_that_was_stored_and_seemed_too_large():
    """The connection was lost behind it for another reason: the segment is open, and nothing is deleted."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random"), LogOptions())
    world.succeed(logs.create("a"))
    owner = world.succeed(logs.own("a"))
    seeming = iter([Fault(error=MetadataTooLarge("ended the connection 2 times"), applied=True)])
    world.store_fault = lambda name, _: next(seeming, None) if name == "transact" else None
    assert world.succeed(owner.append(b"one")).index == 0
    assert next(seeming, None) is None
    assert world.succeed(owner.append(b"two")).index == 1
    assert world.succeed(logs.info("a")).segments == 1
