"""An owner of partitions: records go where their keys belong, batches are split, partitions change hands."""

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from quire.log.core.batch import Records
from quire.log.core.partitions import partition_for, partition_name
from quire.log.owner.appending.appends import Appended
from quire.log.partitions.following import Whole
from quire.log.partitions.owner import PartitionedOwner, Placed, Standing, picked
from quire.metadata.clock import pause
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, LedgerRecovery, MetaStore, Read, Timeout
from quire.protocol.log_errors import AppendUnknown, LogFenced, LogMoved, LogTerminated, NoSuchLog, NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.log.upkeep.test_partitioned import refused
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def until(holds):
    """Waits for what comes by itself."""
    while not holds():
        await pause(reactor, 0.01)


async def stored(logs, name):
    """The values of each partition."""
    return [await values(await logs.read(each)) for each in await logs.partitions(name)]


def test_records_go_to_the_partition_of_their_key(tmp_path):
    """Single ones and batches; each answer says which partition, and which index there; each key keeps its order."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=3)
            owner = await logs.own_partitions("orders")
            assert (owner.name, owner.count, owner.partitions) == ("orders", 3, [0, 1, 2])
            place = owner.partition_for(b"k1")
            assert place == partition_for(b"k1", 3)
            assert await owner.append(b"first", key=b"k1") == Placed(place, 0, 0)
            assert await owner.append(b"there", partition=(place + 1) % 3, headers=[("h", b"1")]) == Placed(
                (place + 1) % 3, 0, 0
            )
            keys = [b"k%d" % (number % 7) for number in range(60)]
            many = [b"%d" % number for number in range(60)]
            done = await owner.append_many(many, keys=keys, times_ms=list(range(60)))
            assert done.partitions == [partition_for(key, 3) for key in keys]
            assert done.duplicates == 0
            assert await owner.append_many([]) == ([], [], [], 0)
            ends = await owner.barrier()
            await owner.close()
            found = await stored(logs, "orders")
            assert [ends[number].index for number in range(3)] == list(map(len, found))
            for value, number, index in zip(many, done.partitions, done.indexes, strict=True):
                assert found[number][index] == value
            for number in range(3):
                reader = await logs.read(partition_name("orders", number))
                records = [each async for batch in reader.batches() for each in batch.records()]
                for each in records[1:]:
                    if each.time_ms is not None:
                        assert each.key == keys[each.time_ms]
                times = [each.time_ms for each in records if each.time_ms is not None]
                assert times == sorted(times)

    run(story)


def test_records_without_a_key_take_turns(tmp_path):
    """All of a call go to one partition, those of the next call to another."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=3)
            owner = await logs.own_partitions("orders", [0, 2])
            seen = []
            for _ in range(4):
                done = await owner.append_many([b"x"] * 5)
                assert len(set(done.partitions)) == 1
                seen.append(done.partitions[0])
            assert sorted(set(seen)) == [0, 2]
            assert seen[0] != seen[1]

    run(story)


def test_a_partition_of_another_s_takes_nothing(tmp_path):
    """A batch of which one record belongs there is refused whole, before anything is sent; bad input likewise."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=2)
            await logs.create("plain")
            mine = await logs.own_partitions("orders", [0])
            theirs = await other.own_partitions("orders", [1], address="there:1")
            error = await refused(mine.append_many([b"a", b"b"], partitions=[0, 1]), NotOwner)
            assert "quire log show orders/1" in str(error)
            await refused(mine.append(b"x", partition=2), ValueError)
            await refused(mine.append("x"), TypeError)
            await refused(mine.append_many([b"x"], keys=[b"k", b"l"]), ValueError)
            await refused(logs.own_partitions("orders", [2]), ValueError)
            await refused(logs.own_partitions("orders", wait_s=0), NotOwner)
            await refused(logs.own_partitions("plain"), ValueError)
            assert (await mine.append(b"y", partition=0)).index == 0
            await theirs.close()
            await refused(theirs.append(b"z", partition=1), NotOwner)
            await mine.close()
            assert await stored(logs, "orders") == [[b"y"], []]

    run(story)


def test_what_is_sent_again_is_stored_once(tmp_path):
    """A producer's batch, by another owner and cut elsewhere, with keys and without: each record is there once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=4, dedup=True)
            keys = [b"k%d" % (number % 9) if number % 3 else None for number in range(90)]
            many = [b"%d" % number for number in range(90)]
            owner = await logs.own_partitions("orders")
            first = await owner.append_many(many[:60], keys=keys[:60], producer="p", first_sequence=0)
            assert first.duplicates == 0
            again = await owner.append_many(many[20:70], keys=keys[20:70], producer="p", first_sequence=20)
            assert again.duplicates == 40
            assert again.partitions[:40] == first.partitions[20:]
            await owner.close()
            owner = await other.own_partitions("orders")
            done = await owner.append_many(many, keys=keys, producer="p", first_sequence=0)
            assert done.duplicates == 70
            one = await owner.append(many[-1], key=keys[-1], producer="p", sequence=89)
            assert one.duplicate
            await owner.close()
            found = await stored(logs, "orders")
            assert sorted(value for each in found for value in each) == sorted(many)
            for each in found:
                assert each == sorted(each, key=int)

    run(story)


def test_a_batch_that_fails_in_part_is_not_known(tmp_path):
    """One partition was taken by another owner: the error says so, and sent again nothing is stored twice."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=2, dedup=True)
            owner = await logs.own_partitions("orders")
            await owner.append_many([b"a", b"b"], partitions=[0, 1], producer="p", first_sequence=0)
            taken = await other.own("orders/1", force=True)
            error = await refused(
                owner.append_many([b"c", b"d"], partitions=[0, 1], producer="p", first_sequence=2), AppendUnknown
            )
            assert "1 of 2 records" in str(error)
            await refused(owner.append(b"e", partition=1), LogFenced, NotOwner)
            assert owner.partitions == [0]
            await taken.close()
            await owner.close()
            owner = await other.own_partitions("orders")
            done = await owner.append_many([b"c", b"d"], partitions=[0, 1], producer="p", first_sequence=2)
            assert done.duplicates == 1
            await owner.close()
            assert await stored(logs, "orders") == [[b"a", b"c"], [b"b", b"d"]]

    run(story)


class Alone:
    """Stands for a log of two partitions; `answers`: what owning one gives, the last one from then on."""

    def __init__(self, *answers):
        self.clock = Clock()
        self.answers = list(answers)
        self.asked = 0
        self.tell = None
        self.held = Held()
        self.ended = []
        whole = Whole("orders", 2, self.clock, self.watch, self.ended.append)
        self.owner = PartitionedOwner(whole, None, Standing(self.own, no_candidates, 0, True, "me"))

    def watch(self, _name, fn):
        self.tell = fn
        return Watch(lambda: None)

    async def own(self, name, _priority, _first):
        if name != "orders/1":
            return self.held
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return await answer if isinstance(answer, Deferred) else answer

    async def begun(self):
        beginning = Deferred.fromCoroutine(self.owner.begin())
        self.clock.advance(1)
        await beginning
        return self.owner


async def no_candidates(_name):
    for each in ():
        yield each


def test_what_passes_does_not_end_the_wait_for_a_partition():
    """One that is not made yet, bookies or a store that are away, a lease that is too long: it is asked for again."""

    async def story():
        passing = [NoSuchLog("not yet"), LedgerRecovery("away"), Timeout("away"), Read("away"), ValueError("lease_ms")]
        alone = Alone(*passing, MetaStore("away"), Held())
        owner = await alone.begun()
        assert owner.partitions == [0]
        alone.clock.pump([1] * 5)
        assert owner.partitions == [0, 1]
        await owner.close()

    run(story)


@pytest.mark.parametrize(
    "end", [LogTerminated("sealed"), LogMoved("elsewhere"), ClientClosed("over"), NoSuchLog("deleted")]
)
def test_what_does_not_pass_ends_the_wait_for_a_partition(end):
    """It has its end, or it is gone with its log, which is gone: it is asked for no more."""

    async def story():
        alone = Alone(NotOwner("theirs"), end)
        owner = await alone.begun()
        if type(end) is NoSuchLog:
            alone.clock.pump([1] * 3)
            assert alone.asked == 5
            alone.tell(None)
        alone.clock.pump([1] * 2)
        asked = alone.asked
        alone.clock.pump([1] * 5)
        assert alone.asked == asked
        assert owner.partitions == [0]
        await owner.close()

    run(story)


def test_one_that_is_cancelled_stands_no_more():
    """While it waits for what is free: what it has is given back, and what it waits for not taken."""

    async def story():
        alone = Alone(NotOwner("theirs"))
        beginning = Deferred.fromCoroutine(alone.owner.begin())
        assert alone.owner.partitions == [0]
        beginning.cancel()
        with pytest.raises(CancelledError):
            await beginning
        assert (alone.owner.closed, alone.held.closed, alone.ended) == (True, True, [alone.owner])
        asked = alone.asked
        alone.clock.pump([1] * 3)
        assert alone.asked == asked
        assert not alone.clock.getDelayedCalls()

    run(story)


class Held:
    """An owner of a partition whose answers the test gives."""

    lost = False
    closed = False

    def __init__(self):
        self.asked = []

    def ready(self, *_room):
        return succeed(None)

    def append_many(self, values, **_more):
        self.asked.append((list(values), Deferred()))
        return self.asked[-1][1]

    async def close(self):
        self.closed = True


def test_a_producer_waits_for_those_whose_failure_is_still_to_be_told(tmp_path):
    """A part failed, and its partition has another owner: what is later must not be stored before it is sent again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=2, dedup=True)
            owner = await logs.own_partitions("orders")
            kept = dict(owner.parts)
            slow, ending, new = Held(), Held(), Held()
            owner.parts.update({0: slow, 1: ending})
            both = {"partitions": [0, 1], "producer": "p"}
            first = Deferred.fromCoroutine(owner.append_many([b"a", b"b"], first_sequence=0, **both))
            owner.parts[1] = new
            ending.asked[0][1].errback(NotOwner("taken"))
            late = Deferred.fromCoroutine(owner.append(b"d", partition=1, producer="p", sequence=3))
            late.addErrback(lambda failure: failure.value)
            assert new.asked == []
            error = await late
            assert isinstance(error, AppendUnknown)
            assert "this was not sent" in str(error)
            others = Deferred.fromCoroutine(owner.append(b"x", partition=1, producer="q", sequence=0))
            assert [values for values, _answer in new.asked] == [[b"x"]]
            slow.asked[0][1].callback(Appended([0], [0], 0))
            with pytest.raises(AppendUnknown):
                await first
            again = Deferred.fromCoroutine(owner.append(b"b", partition=1, producer="p", sequence=1))
            assert [values for values, _answer in new.asked] == [[b"x"], [b"b"]]
            for at, (_values, answer) in enumerate(new.asked):
                answer.callback(Appended([at], [at], 0))
            assert [(await each).index for each in (others, again)] == [0, 1]
            owner.parts.update(kept)
            await owner.close()

    run(story)


def test_partitions_of_one_that_ends_are_taken_over_and_given_back(tmp_path):
    """Two share four partitions; one ends, the other has all of them; it comes again and has its own again."""

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = await world.logs(), await world.logs(), await world.logs()
            await one.create("orders", partitions=4)
            first = await one.own_partitions("orders", [0, 1], stand=True, address="one")
            second = await two.own_partitions("orders", [2, 3], stand=True, address="two")
            assert (first.partitions, second.partitions) == ([0, 1], [2, 3])
            await first.append_many([b"a", b"b"], partitions=[0, 1])
            await first.close()
            await until(lambda: second.partitions == [0, 1, 2, 3])
            await second.append_many([b"c"] * 4, partitions=[0, 1, 2, 3])
            first = await three.own_partitions("orders", [0, 1], stand=True, address="one")
            assert first.partitions == [0, 1]
            await until(lambda: second.partitions == [2, 3])
            await first.append(b"d", partition=0)
            await refused(second.append(b"e", partition=0), NotOwner)
            await first.close()
            await second.close()
            assert await stored(one, "orders") == [[b"a", b"c", b"d"], [b"b", b"c"], [b"c"], [b"c"]]

    run(story)


def test_one_that_lost_a_partition_stands_for_it_again(tmp_path):
    """Another takes it by force, and ends: it is the first one's again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=2)
            owner = await logs.own_partitions("orders", stand=True)
            taken = await other.own("orders/0", force=True)
            await until(lambda: owner.partitions == [1])
            await taken.append(b"theirs")
            await taken.close()
            await until(lambda: owner.partitions == [0, 1])
            assert (await owner.append(b"mine", partition=0)).index == 1

    run(story)


def test_those_that_stand_share_evenly(tmp_path):
    """One has all five; a second and a third come, one ends, the log grows: each has its share, and no key is lost."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = [await world.logs() for _ in range(3)]
            await logs[0].create("orders", partitions=5)

            def shares(*owners):
                return sorted(len(owner.partitions) for owner in owners)

            def whole(*owners):
                return sorted(number for owner in owners for number in owner.partitions)

            one = await logs[0].own_partitions("orders", stand=True, address="one")
            assert one.partitions == [0, 1, 2, 3, 4]
            await one.append_many([b"a"] * 5, partitions=range(5))
            two = await logs[1].own_partitions("orders", stand=True)
            await until(lambda: shares(one, two) == [2, 3] and whole(one, two) == [0, 1, 2, 3, 4])
            three = await logs[2].own_partitions("orders", stand=True)
            await until(lambda: shares(one, two, three) == [1, 2, 2] and whole(one, two, three) == [0, 1, 2, 3, 4])
            for owner in (one, two, three):
                for number in owner.partitions:
                    await owner.append(b"b", partition=number)
            await two.close()
            await until(lambda: shares(one, three) == [2, 3] and whole(one, three) == [0, 1, 2, 3, 4])
            await logs[0].update("orders", partitions=6)
            await until(lambda: shares(one, three) == [3, 3] and whole(one, three) == [0, 1, 2, 3, 4, 5])
            await one.close()
            await three.close()
            assert await stored(logs[0], "orders") == [[b"a", b"b"]] * 5 + [[]]

    run(story)


def test_an_owner_of_all_has_those_that_come(tmp_path):
    """The log grows: its owner owns the new partitions, and then places keys among all of them."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=1)
            owner = await logs.own_partitions("orders")
            await owner.append(b"a", key=b"abc")
            await other.update("orders", partitions=3)
            await until(lambda: owner.count == 3)
            assert owner.partitions == [0, 1, 2]
            key = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 3) == 2)
            assert await owner.append(b"b", key=key) == Placed(2, 0, 0)

    run(story)


def test_the_end_of_logs_ends_owners_of_partitions(tmp_path):
    """Also while they stand for some: what was appended is stored, and others can have them at once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", partitions=3)
            theirs = await other.own("orders/2")
            owner = await logs.own_partitions("orders", [0, 1], stand=True)
            appending = Deferred.fromCoroutine(owner.append(b"a", partition=0))
            await logs.close()
            assert (await appending).index == 0
            assert owner.partitions == []
            mine = await other.own_partitions("orders", [0, 1], wait_s=5)
            assert mine.partitions == [0, 1]
            await theirs.close()

    run(story)


def test_picked_records_keep_their_columns():
    """Those that there are; all of them are the same columns."""
    records = Records([b"a", b"b", b"c"], [b"k", None, b"l"], None, [(), (("h", b"1"),), ()])
    some = picked(records, [1, 2])
    assert (some.values, some.keys, some.times, some.headers) == (
        [b"b", b"c"],
        [None, b"l"],
        None,
        [(("h", b"1"),), ()],
    )
    assert picked(records, [0, 1, 2]).values is records.values
