"""Plain ledgers that a log takes in: which, once, beside an owner, over conflicts and lost answers."""

import json

import pytest
from twisted.internet.defer import Deferred

from quire.log.owner.appending.appends import Position
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import PublishRefused
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.gate import Gate
from tests.log.fakes.killed import Doomed
from tests.log.publish.test_sink import story_of, written
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def plain(logs, *content, close=True):
    """A ledger of another program."""
    writer = await logs.bk.create_ledger(password=b"theirs", digest="CRC32")
    if content:
        await writer.append_many(content)
    if close:
        await writer.close()
    return writer.id


async def records_of(reader):
    return [record async for batch in reader.batches() for record in batch.records()]


def test_plain_ledgers_become_segments(tmp_path):
    """Each entry is a record, in the order given, whatever its password and digest; readers begin anywhere."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            first, second = await plain(logs, b"a", b"bb", b""), await plain(logs, b"cccc")
            receipt = await logs.adopt("a", [second, first])
            assert receipt == (-1, 0, 4, (0, 1), False)
            found = await records_of(await other.read("a"))
            assert [record.value for record in found] == [b"cccc", b"a", b"bb", b""]
            assert [(record.index, record.at) for record in found] == [(0, 0), (1, 4), (2, 5), (3, 7)]
            assert len({record.stamp_ms for record in found}) == 1
            assert found[0].stamp_ms > 1_700_000_000_000
            assert (found[0].key, found[0].time_ms, found[0].headers) == (None, None, ())
            for start in range(5):
                assert await records_of(await other.read("a", start)) == found[start:]
            owner = await logs.own("a")
            assert await owner.append(b"mine") == Position(4, 7)
            assert await values(await other.read("a", 2), 3) == [b"bb", b"", b"mine"]

    run(story)


def test_beside_an_owner(tmp_path):
    """Its open segment is brought to its end; it goes on behind, and everything is there once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            acked = {}
            for number in range(4):
                ledger = await plain(other, b"adopted %d" % number)
                acked[b"own %d" % number] = (await owner.append(b"own %d" % number)).index
                waiting = owner.append(b"during %d" % number)
                acked[b"adopted %d" % number] = (await other.adopt("a", [ledger])).first
                acked[b"during %d" % number] = (await waiting).index
            found = await values(await other.read("a"), len(acked))
            assert {value: index for index, value in enumerate(found)} == acked
            assert (await logs.info("a")).epoch == 1

    run(story)


def test_what_is_refused(tmp_path):
    """A ledger that is open, or in a log; a log that takes none; nothing of the call is done then."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            await logs.create("b")
            good, taken, opened = await plain(logs, b"x"), await plain(logs, b"x"), await plain(logs, b"x", close=False)
            await logs.adopt("b", [taken])
            for wrong, text in ((opened, "is not closed"), (taken, "is in the log 'b' already")):
                error = await failing(story_of(logs.adopt("a", [good, wrong])), PublishRefused)
                assert f"ledger {wrong} {text}" in str(error)
            assert (await logs.info("a")).segments == 0
            assert (await logs.adopt("a", [good])).end == 1
            await logs.update("b", publish=False)
            await failing(story_of(logs.adopt("b", [await plain(logs, b"x")])), PublishRefused)

    run(story)


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_is_lost(tmp_path, done):
    """The call fails as unknown; made again it gives the receipt of what was done, or does it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            ledgers = [await plain(logs, b"x", b"y"), await plain(logs, b"z")]
            left = [Fault(error=MetaStore("no answer"), applied=done)]
            logs.bk.store.faults = lambda name, args: (
                left.pop() if left and name == "transact" and len(args) > 2 else None
            )
            await failing(story_of(logs.adopt("a", ledgers)), MetaStore)
            receipt = await logs.adopt("a", ledgers)
            assert receipt == (-1, 0, 3, (0, 1), done)
            assert await values(await logs.read("a")) == [b"x", b"y", b"z"]
            await failing(story_of(logs.adopt("a", ledgers[::-1])), PublishRefused)

    run(story)


def test_a_ledger_that_goes_while_the_manifest_changes(tmp_path):
    """A conflict has each ledger looked up again after the new manifest was read, so one that went is not named."""

    async def story():
        async with cluster(tmp_path) as world:
            other = await world.logs()
            await other.create("a")
            kept, going = await plain(other, b"x"), await plain(other, b"y")
            looked = Deferred()

            def reached(name):
                if name == "adopt.looked" and not looked.called:
                    looked.callback(Gate(logs.bk.store.records, "multi"))

            logs = await world.logs(reached)
            adopting = story_of(logs.adopt("a", [kept, going]))
            edit = await looked.addTimeout(60, reactor)
            await edit.reached.addTimeout(60, reactor)
            await other.update("a", roll_records=7)
            await other.bk.delete_ledger(going)
            edit.open()
            error = await failing(adopting, PublishRefused)
            assert f"ledger {going} is gone" in str(error)
            assert (await other.info("a")).segments == 0

    run(story)


def test_two_at_once(tmp_path):
    """Two calls for one ledger: one has it; with different ones both come in, one behind the other."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            await logs.create("b")
            one, two, both = [await plain(logs, b"%d" % number) for number in range(3)]
            waiting = [story_of(logs.adopt("a", [one])), story_of(other.adopt("a", [two]))]
            assert sorted([(await each).first for each in waiting]) == [0, 1]
            waiting = [story_of(logs.adopt("a", [both])), story_of(other.adopt("b", [both]))]
            outcomes = []
            for each in waiting:
                try:
                    outcomes.append((await each).end)
                except PublishRefused:
                    outcomes.append(None)
            assert sorted(outcomes, key=str) in ([1, None], [3, None])
            shard = f"{both & 255:02x}"
            record = json.loads((await logs.bk.store.records.read(f"adopted/{shard}/{both}")).value)
            name = "a" if outcomes[0] is not None else "b"
            assert record["log"] == (await logs.info(name)).id

    run(story)


@pytest.mark.parametrize("point", ["adopt.looked", "publish.settled", "adopt.done"])
def test_one_that_is_killed_at_a_step(tmp_path, point):
    """Another one finishes it, each ledger is in once, and the owner's records are all there."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, 1)
            logs, second = await world.logs(doomed.reached), await world.logs()
            await second.create("a")
            owner = await second.own("a")
            await owner.append(b"owned 0")
            ledgers = [await plain(second, b"x"), await plain(second, b"y")]
            doomed.logs = logs
            story_of(logs.adopt("a", ledgers)).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            receipt = await second.adopt("a", ledgers)
            assert receipt[1:] == (1, 3, receipt.segments, point == "adopt.done")
            await owner.append(b"owned 1")
            assert await values(await second.read("a"), 4) == [b"owned 0", b"x", b"y", b"owned 1"]
            assert [finding async for finding in second.check("a")] == []

    run(story)


@pytest.mark.parametrize("first", ["owner", "adopt"])
def test_beside_a_takeover_and_a_commit(tmp_path, first):
    """Both bring the same segment to its end, in either order, while a batch is published: all is there once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, second, third = [await world.logs() for _ in range(3)]
            await logs.create("a")
            former = await logs.own("a")
            await former.append(b"owned 0")
            ledger = await plain(second, b"adopted")
            sink = await third.sink("a", "facts", "run")
            part = await written(sink, 0, 0, [b"published"])
            slow = second if first == "owner" else third
            slow.bk.store.faults = lambda name, _args: Fault(before=0.3) if name == "transact" else None
            adopting = story_of(second.adopt("a", [ledger]))
            committing = story_of(sink.commit(0, [part]))
            owner = await third.own("a", force=True)
            await owner.append(b"owned 1")
            await adopting
            await committing
            await owner.append(b"owned 2")
            found = await values(await logs.read("a"), 5)
            assert sorted(found) == [b"adopted", b"owned 0", b"owned 1", b"owned 2", b"published"]
            assert [each for each in found if each.startswith(b"owned")] == [b"owned 0", b"owned 1", b"owned 2"]
            assert [finding async for finding in logs.check("a")] == []

    run(story)


def test_a_thousand_at_once(tmp_path):
    """In one step, most of them into chunks right away; called again it gives the same receipt."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            ledgers = list(range(5000, 6000))
            for ledger in ledgers:
                closed = LedgerMetadata.new(1, 1, 1, ["b0"]).closed(1, 10)
                await logs.bk.store.create_ledger(ledger, closed)
            receipt = await logs.adopt("a", ledgers)
            assert receipt == (-1, 0, 2000, tuple(range(1000)), False)
            found = [segment async for segment in logs.segments("a")]
            assert [segment.ledger for segment in found] == ledgers
            assert (found[-1].first, found[-1].at, found[-1].end) == (1998, 9990, 2000)
            assert await logs.adopt("a", ledgers) == receipt._replace(again=True)
            assert await logs.adopt("a", ledgers[600:700]) == (-1, 1200, 1400, tuple(range(600, 700)), True)
            assert {each async for each in logs.orphans()} == set()

    run(story)
