"""A part: its ledgers are named before they exist, rolled, counted and discarded."""

import pytest
from crc32c import crc32c
from twisted.internet.defer import Deferred, gatherResults

from quire.client.handles.writer import Writer
from quire.conf.log import LogOptions
from quire.log.api import Logs, Packed
from quire.log.publish.parts import UNDER_WAY
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger, NotEnoughBookies
from quire.protocol.log_errors import LogFenced
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster, values
from tests.metadata import stored
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

KIB = 1 << 10


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def intents_of(logs):
    """Names of the intents of the txn, and the ledgers that they name."""
    id_ = (await logs.info("a")).id
    folder = f"logs/{id_[:2]}/{id_}/intents/facts"
    return folder, await logs.bk.store.records.children(folder)


def test_ledgers_of_a_part(tmp_path):
    """Rolled by size; each with its counts and the sum of its values; named in the intent, tagged as of the part."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_bytes=100)
            part = await (await logs.sink("a", "facts", "run")).part(3, 7, 1)
            first, second = [b"%040d" % number for number in range(3)], [b"last"]
            assert await part.append_many(first, keys=[b"k"] * 3) == 3
            assert await part.append_many(second) == 4
            made = await part.close()
            assert await part.close() == made
            assert (made.batch, made.part, made.attempt, made.claim) == (3, 7, 1, 1)
            assert [(each.entries, each.records, each.bytes, each.crc) for each in made.ledgers] == [
                (1, 3, 120, crc32c(b"".join(first))),
                (1, 1, 4, crc32c(b"last")),
            ]
            _folder, names = await intents_of(logs)
            assert names == [made.intent]
            assert names[0].startswith("3-7-1-")
            metadata = await logs.bk.metadata(made.ledgers[0].ledger)
            assert metadata.is_closed
            assert (metadata.custom["component"], metadata.custom["quire/part"]) == (b"log-part", b"7")
            assert (metadata.custom["quire/name"], metadata.custom["quire/txn"]) == (b"a", b"facts")
            for late in (part.append_many([b"x"]), part.discard()):
                await failing(story_of(late), ValueError)

    run(story)


def test_entries_of_one_call_are_under_way_together(tmp_path, monkeypatch):
    """Up to a bound, with the ledger's roll in between; the call is answered when all are acknowledged."""
    under_way = []
    most = []
    append_many = Writer.append_many

    def counted(writer, entries):
        done = append_many(writer, entries)
        under_way.append(done)
        most.append(len(under_way))
        return done.addBoth(lambda result: (under_way.remove(done), result)[1])

    monkeypatch.setattr(Writer, "append_many", counted)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=100)
            await logs.create("a", roll_bytes=2500)
            part = await (await logs.sink("a", "facts", "run")).part(0, 0, 0)
            values = [b"%050d" % number for number in range(100)]
            assert await part.append_many(values) == 100
            assert not under_way
            made = await part.close()
            assert [each.entries for each in made.ledgers] == [25, 25]
            assert 1 < max(most) <= UNDER_WAY

    run(story)


def test_appends_that_are_not_waited_for(tmp_path, monkeypatch):
    """Are under way when they return; `close` waits for them, and tells of one that failed; columns may be packed."""
    held, all_held = [], Deferred()
    append_many = Writer.append_many

    def hold(found, done):
        held.append((done, found))
        if len(held) == 4:
            all_held.callback(None)

    def late(writer, entries):
        done = Deferred()
        append_many(writer, entries).addCallback(hold, done)
        return done

    monkeypatch.setattr(Writer, "append_many", late)

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            good, bad = await sink.part(0, 0, 0), await sink.part(0, 1, 0)
            for part in (good, bad):
                for count in (2, 4):
                    values, keys = Packed.of([b"v", b"w"]), Packed.of([None, b"k"])
                    assert await part.append_many(values, keys=keys, durable=False) == count
            closing = story_of(good.close())
            await all_held
            assert not closing.called
            for done, found in held[:2]:
                done.callback(found)
            made = await closing
            assert [(each.entries, each.records, each.crc) for each in made.ledgers] == [(2, 4, crc32c(b"vwvw"))]
            for done, _found in held[2:]:
                done.errback(NotEnoughBookies("one is away"))
            await failing(story_of(bad.close()), LedgerError)
            await failing(story_of(bad.append_many([b"x"])), ValueError)
            await bad.discard()
            await sink.commit(0, [made])
            reader = await logs.read("a")
            found = [(record.key, record.value) async for batch in reader.batches() for record in batch.records()]
            assert found == [(None, b"v"), (b"k", b"w")] * 2

    run(story)


def test_a_part_that_is_discarded(tmp_path):
    """Its ledgers and its intent go; one without a record has neither."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            part = await sink.part(0, 0, 0)
            await part.append_many([b"x"])
            (ledger,) = await logs.bk.ledger_ids()
            await part.discard()
            await failing(logs.bk.metadata(ledger), NoSuchLedger)
            assert (await intents_of(logs))[1] == []
            empty = await (await sink.part(0, 1, 0)).close()
            assert (empty.ledgers, empty.intent) == ((), "")
            await (await sink.part(0, 2, 0)).discard()

    run(story)


def away(_name, _arguments):
    """Of the metadata store."""
    return Fault(error=MetaStore("no answer"))


@pytest.mark.parametrize("rolled", [False, True])
def test_a_ledger_whose_end_can_t_be_stored(tmp_path, rolled):
    """A close that fails so is called again, and loses nothing; an append that does so leaves a part to discard."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_bytes=5 if rolled else 1 << 20)
            sink = await logs.sink("a", "facts", "run")
            part = await sink.part(0, 0, 0)
            assert await part.append_many([b"one", b"two"]) == 2
            logs.bk.store.faults = away
            await failing(story_of(part.append_many([b"three"]) if rolled else part.close()), MetaStore)
            logs.bk.store.faults = None
            if rolled:
                await failing(story_of(part.append_many([b"three"])), ValueError)
                await failing(story_of(part.close()), ValueError)
                await part.discard()
                assert await logs.bk.ledger_ids() == []
                return
            made = await part.close()
            assert await part.close() == made
            assert len(made.ledgers) == 1
            await sink.commit(0, [made], verify="entries")
            assert await values(await logs.read("a")) == [b"one", b"two"]

    run(story)


def test_a_close_whose_answer_is_lost(tmp_path):
    """The ledger has its end all the same, and the call is answered; two calls at once give one part."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            part = await (await logs.sink("a", "facts", "run")).part(0, 0, 0)
            await part.append_many([b"x"])
            left = [Fault(error=MetaStore("no answer"), applied=True)]
            logs.bk.store.faults = lambda name, _arguments: left.pop() if left and name == "write_ledger" else None
            first, second = await gatherResults([story_of(part.close()), story_of(part.close())])
            assert not left
            assert first == second
            assert [each.records for each in first.ledgers] == [1]

    run(story)


def test_discarded_after_a_close_that_failed(tmp_path):
    """Nobody was given the part, so it goes; a discard that fails may be called again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            part = await (await logs.sink("a", "facts", "run")).part(0, 0, 0)
            await part.append_many([b"x"])
            logs.bk.store.faults = away
            await failing(story_of(part.close()), MetaStore)
            await failing(story_of(part.discard()), MetaStore)
            logs.bk.store.faults = None
            await part.discard()
            assert await logs.bk.ledger_ids() == []
            assert (await intents_of(logs))[1] == []

    run(story)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_zombie_that_begins_after_the_end(tmp_path, aborted):
    """Of its run, or of its batch: nothing of it stays, for nobody would look for it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            zombies = [await sink.part(0, 0, 0)]
            if aborted:
                await sink.abort(0)
                zombies.append(await sink.part(0, 1, 0))
            else:
                await (await logs.sink("a", "facts", "next run")).commit(0, [])
            for zombie in zombies:
                await failing(story_of(zombie.append_many([b"x"])), LogFenced)
            assert await logs.bk.ledger_ids() == []
            assert (await intents_of(logs))[1] == []

    run(story)


@pytest.mark.parametrize("point", ["part.intended", "part.created"])
def test_a_zombie_whose_intent_went(tmp_path, point):
    """Upkeep took it between two steps: the ledger that was just made is deleted, and the task hears why."""

    async def story():
        async with cluster(tmp_path) as world:
            other = await world.logs()
            await other.create("a")
            dropped = []

            def reached(name):
                if name == point and not dropped:
                    dropped.append(Deferred.fromCoroutine(drop()))

            async def drop():
                folder, names = await intents_of(other)
                for name in names:
                    await other.bk.store.records.delete(f"{folder}/{name}", -1)

            logs = await world.logs(reached)
            part = await (await logs.sink("a", "facts", "run")).part(0, 0, 0)
            await failing(story_of(part.append_many([b"x"])), LogFenced)
            assert dropped
            assert await other.bk.ledger_ids() == []

    run(story)


@pytest.mark.parametrize("roll_bytes", [30 * KIB, 1 << 30])
@pytest.mark.parametrize("size", [100, 6 * KIB, 40 * KIB])
@pytest.mark.parametrize("window", [{}, {"window_bytes_max": 10 * KIB, "batch_bytes_max": 2 * KIB}])
def test_calls_of_one_part_at_once(window, size, roll_bytes):
    """One after another, whatever the writer's window takes, and the close behind them: each call's values together."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random", **window), LogOptions(batch_bytes=1))
    world.succeed(logs.create("a", roll_bytes=roll_bytes))
    sink = world.succeed(logs.sink("a", "facts", "run"))
    part = world.succeed(sink.part(0, 0, 0))
    content = [b"%d " % number + bytes(size) for number in range(60)]
    done = [world.outcome(part.append_many(content[first : first + 10])) for first in range(0, 60, 10)]
    closed = world.succeed(part.close())
    assert [each.result() for each in done] == list(range(10, 70, 10))
    assert isinstance(world.fails(part.append_many([b"late"])), ValueError)
    world.succeed(sink.commit(0, [closed]))

    async def read():
        return [value async for batch in (await logs.read("a")).batches() for value in batch.values]

    assert world.succeed(read()) == content


def test_what_comes_behind_an_append_that_failed():
    """Some of its values are there and some not, so nothing follows, no close either; a discard takes all of it."""
    world = FakeCluster()
    logs = Logs(world.client(placement="random"), LogOptions(batch_bytes=1))
    world.succeed(logs.create("a", roll_bytes=15000))
    part = world.succeed(world.succeed(logs.sink("a", "facts", "run")).part(0, 0, 0))
    created = []

    def second_fails(name, _arguments):
        created.extend([name] if name == "create_ledger" else [])
        return Fault(error=MetaStore("away")) if name == "create_ledger" and len(created) == 2 else None

    world.store_fault = second_fails
    done = [world.outcome(part.append_many([bytes(2000)] * 10)) for _ in range(3)]
    done.append(world.outcome(part.close()))
    world.spin(30)
    assert [type(each.error) for each in done] == [MetaStore, ValueError, ValueError, ValueError]
    assert "0-0-0-" in str(done[-1].error)
    assert "discard it" in str(done[-1].error)
    world.succeed(part.discard())
    assert not stored.Ledgers(world.shared)


def test_skips_of_a_part(tmp_path):
    """Positions advance by them, over entries, ledgers and calls; what can't be is refused before anything is sent."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=50)
            await logs.create("a", begin_at=1000, roll_bytes=300)
            sink = await logs.sink("a", "facts", "run")
            part = await sink.part(0, 0, 0)
            taken, skips = [b"%010d" % number for number in range(40)], [number % 3 * 7 for number in range(40)]
            await failing(story_of(part.append_many(taken, skips=skips[1:])), ValueError)
            assert await part.append_many(taken[:30], skips=skips[:30]) == 30
            assert await part.append_many([b"plain"]) == 31
            assert await part.append_many([b"far"], skips=[(1 << 32) - 4]) == 32
            assert await part.append_many(taken[30:], skips=skips[30:]) == 42
            made = await part.close()
            assert len(made.ledgers) > 2
            await sink.commit(0, [made])
            all_values = [*taken[:30], b"plain", b"far", *taken[30:]]
            all_skips = [*skips[:30], 0, (1 << 32) - 4, *skips[30:]]
            wanted, at = [], 1000
            for value, skip in zip(all_values, all_skips, strict=True):
                wanted.append((at + skip, value))
                at += skip + len(value)
            reader = await logs.read("a")
            assert [(each.at, each.value) async for batch in reader.batches() for each in batch.records()] == wanted
            assert await logs.find("a", wanted[31][0] - 1) == (31, wanted[31][0])  # within its skip
            assert (await logs.info("a")).end == 42
            assert not [finding async for finding in logs.check("a")]

    run(story)
