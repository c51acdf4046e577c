"""Named logs over three real bookies: appended, rolled, taken over, fenced, read and followed."""

import pytest
from twisted.internet.defer import CancelledError, Deferred, gatherResults

from quire.log.owner.appending.appends import Position
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import CLUSTERS, RECORDS, Fault
from quire.metadata.records import NoRecord
from quire.metadata.store import WrongCluster
from quire.protocol.log_errors import LogExists, LogFenced, NoSuchLog, NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.machines import Chain
from tests.metadata.stored import put
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_a_log_s_life(tmp_path):
    """Created, written, read by another process, renamed, deleted; the second of a name is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            info = await logs.create("orders/eu", roll_bytes=1 << 20)
            assert (info.state, info.epoch, info.begin, info.end) == ("open", 0, 0, 0)
            await failing_story(other.create("orders/eu"), LogExists)
            owner = await logs.own("orders/eu")
            assert await owner.append(b"one", key=b"k") == Position(0, 0)
            done = await owner.append_many([b"two", b"three"])
            assert (done.indexes, done.positions) == (range(1, 3), [3, 6])
            reader = await other.read("orders/eu")
            (record, *_rest) = [each async for batch in reader.batches() for each in batch.records()]
            assert (record.index, record.at, record.value, record.key) == (0, 0, b"one", b"k")
            await owner.close()
            assert (await other.info("orders/eu")).end == 3
            assert await values(await other.read("orders/eu", 1)) == [b"two", b"three"]
            await other.rename("orders/eu", "orders/us")
            assert [name async for name in logs.names()] == ["orders/us"]
            await logs.delete("orders/us")
            await failing_story(other.info("orders/us"), NoSuchLog)
            await failing_story(owner_append(owner), NotOwner)

    run(story)


async def owner_append(owner):
    return await owner.append(b"x")


async def failing_story(story, *kinds):
    """The error of a coroutine that must fail."""
    return await failing(Deferred.fromCoroutine(story), *kinds)


def test_segments_follow_each_other(tmp_path):
    """Appends under load over many rollovers: all are there once, in order, and a reader crosses the borders."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=200), await world.logs()
            await logs.create("a", roll_records=30)
            owner = await logs.own("a")
            wanted = [b"%05d" % number for number in range(500)]
            done = []
            for number in range(0, 500, 25):
                done += await gatherResults([owner.append(value) for value in wanted[number : number + 25]])
            assert [each.index for each in done] == list(range(500))
            assert [each.at for each in done] == [5 * number for number in range(500)]
            info = await other.info("a")
            assert info.segments > 3
            assert await values(await other.read("a"), 500) == wanted
            for start in (1, 29, 30, 31, 255, 499):
                assert await values(await other.read("a", start), 500 - start) == wanted[start:]
            assert await values(await other.read("a", "end")) == []

    run(story)


def test_a_tail_follows_over_segments(tmp_path):
    """Records come as they are acknowledged, over rollovers and a takeover, without gap or repeat."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second, other = await world.logs(), await world.logs(), await world.logs()
            await logs.create("a", roll_records=3)
            reader = await other.read("a")
            following = reader.tail(60)
            owner = await logs.own("a")
            for number in range(20):
                if number == 10:
                    await owner.close()
                    owner = await second.own("a")
                    assert owner.epoch == 2
                await owner.append(b"%d" % number)
                batch = await anext(following)
                assert (batch.index, batch.values) == (number, [b"%d" % number])
            await following.aclose()

    run(story)


def test_a_takeover_by_force(tmp_path):
    """What the first owner was acknowledged is there; it learns that it lost the log; its later appends are refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second = await world.logs(), await world.logs()
            await logs.create("a")
            first = await logs.own("a")
            lost = Deferred()
            first.on_lost = lambda: lost.callback(None)
            await gatherResults([first.append(b"%d" % number) for number in range(50)])
            with pytest.raises(NotOwner):
                await second.own("a", wait_s=0.2)
            owner = await second.own("a", force=True)
            assert owner.epoch == 2
            position = await owner.append(b"mine")
            assert position.index == 50
            await failing(first.append(b"late"), LogFenced, NotOwner)
            await lost
            assert first.lost
            assert not owner.lost
            assert await values(await second.read("a"), 51) == [b"%d" % number for number in range(50)] + [b"mine"]

    run(story)


def test_a_store_that_is_behind(tmp_path):
    """A name that one of its servers does not know yet is looked for again after a sync."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            asked = []

            def behind(operation, _arguments):
                asked.append(operation)
                return None if "clock" in asked else Fault(error=NoRecord("not here yet"))

            logs.bk.store.faults = behind
            assert (await logs.info("a")).name == "a"
            asked.clear()
            await failing(logs.info("b"), NoSuchLog)
            assert asked == ["get", "clock", "get"]

    run(story)


def test_how_long_a_candidate_waits(tmp_path):
    """`wait_s` counts while another has the claim: else even 0 is enough; a log that is deleted ends the wait."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a", wait_s=0)
            await failing(second.own("a", wait_s=0), NotOwner)
            await owner.close()
            owner = await second.own("a", wait_s=60)
            waiting = Deferred.fromCoroutine(logs.own("a", wait_s=60))
            await second.delete("a")
            await failing(waiting, NoSuchLog)

    run(story)


def test_a_fence_without_a_new_owner(tmp_path):
    """A repair closes the ledger under the owner: it goes on in the next one; callers see a pause, no error."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            wanted = []
            for round_ in range(5):
                some = [b"%d-%d" % (round_, number) for number in range(20)]
                waiting = gatherResults([owner.append(value) for value in some])
                wanted += some
                ledger = (await other.info("a")).ledger
                if ledger is not None:
                    await other.bk.recover_ledger(ledger)
                done = await waiting
                assert [each.index for each in done] == list(range(len(wanted) - 20, len(wanted)))
            assert await values(await other.read("a"), len(wanted)) == wanted
            assert (await other.info("a")).epoch == 1

    run(story)


def test_logs_of_a_former_cluster(tmp_path):
    """A cluster formatted anew refuses them in every operation, until they are purged by their id."""
    former = "11111111-2222-3333-4444-555555555555"

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"old")
            await owner.close()
            put(CLUSTERS[world.uri.removeprefix("memory://")], RECORDS, former.encode())
            late = await world.logs()
            for operation in (
                late.create("b"),
                late.info("a"),
                late.own("a"),
                late.read("a"),
                late.sink("a", "t", "r"),
                late.adopt("a", [7]),
                late.delete("a"),
                listed(late.names()),
                listed(late.orphans(True, really=True)),
                late.purge("another"),
                late.purge((await late.bk.store.cluster()).instance_id),
            ):
                assert former in str(await failing_story(operation, WrongCluster))
            await late.purge(former)
            assert await listed(late.names()) == []
            assert (await late.create("a")).end == 0

    run(story)


async def listed(names):
    return [name async for name in names]


def test_who_waits_for_a_log_no_longer_does_not_get_it(tmp_path):
    """An `own` that is cancelled leaves no candidate that would become the owner when the present one ends."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second, third = await world.logs(), await world.logs(), await world.logs()
            await logs.create("a")
            first = await logs.own("a")
            waiting = Deferred.fromCoroutine(second.own("a"))
            asked = await second.info("a")
            waiting.cancel()
            await failing(waiting, CancelledError)
            await first.close()
            assert (await third.own("a")).epoch == asked.epoch + 1

    run(story)


def test_who_does_not_wait_gets_a_log_that_is_free(tmp_path):
    """Also one whose owner was closed a moment ago; of one that is owned it learns at once by whom."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second = await world.logs(), await world.logs()
            await logs.create("a")
            for epoch in (1, 2, 3):
                owner = await logs.own("a", wait_s=0, address="here:1")
                assert owner.epoch == epoch
                assert (await owner.append(b"x")).index == epoch - 1
                if epoch < 3:
                    await owner.close()
            error = await failing(Deferred.fromCoroutine(second.own("a", wait_s=0)), NotOwner)
            assert error.address == "here:1"
            assert "'a' is owned by epoch 3 at here:1" in str(error)

    run(story)


def test_who_owns_a_log_and_who_waits_for_it(tmp_path):
    """With their addresses and priorities, while they do."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second = await world.logs(), await world.logs()
            await logs.create("a")
            assert [each async for each in logs.candidates("a")] == []
            owner = await logs.own("a", address="here:1")
            waiting = Deferred.fromCoroutine(second.own("a", address="there:2", priority=3))
            found = []
            while len(found) < 2:
                found = sorted([each async for each in logs.candidates("a")], key=lambda each: each.address)
                await pause(reactor, 0)
            assert [(each.address, each.priority, each.owns) for each in found] == [
                ("here:1", 0, True),
                ("there:2", 3, False),
            ]
            await owner.transfer(found[1].token)
            next_owner = await waiting
            assert [each.token async for each in logs.candidates("a")] == [next_owner.token]

    run(story)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"priority": 1 << 63}, ValueError),  # nobody could read such a claim, so nobody came to own the log
        ({"priority": "high"}, TypeError),
        ({"priority": None}, TypeError),
        ({"address": 8101}, TypeError),
    ],
)
def test_what_other_candidates_could_not_read_is_refused(tmp_path, asked, error):
    """Before there is a record of it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            await failing(Deferred.fromCoroutine(logs.own("a", **asked)), error)
            await failing(Deferred.fromCoroutine(logs.replica("a", Chain, stand=True, **asked)), error)
            assert [each async for each in logs.candidates("a")] == []
            await (await logs.own("a", priority=-(1 << 63), address="10.0.0.5:8101")).close()

    run(story)
