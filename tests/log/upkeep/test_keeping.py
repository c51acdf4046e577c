"""An owner that keeps its log: rounds now and then, until it is over."""

from twisted.internet.defer import Deferred, fail

from quire.log.core.upkeep_edits import Doom
from quire.log.upkeep import keeping
from quire.metadata.clock import pause
from quire.protocol.errors import MetaStore, NoSuchLedger
from tests.log.fakes.cluster import cluster, values
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import left_over, written
from tests.log.test_races import Gate
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def gone(logs, ledger):
    """Once the ledger is."""
    while True:
        try:
            await logs.bk.metadata(ledger)
        except NoSuchLedger:
            return
        await pause(reactor, 0.01)


def test_rounds(tmp_path):
    """A doomed ledger goes by itself, again after a round that failed; a closed owner tidies no more."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(tidy_ms=100), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"x")
            for number in range(2):
                writer = await other.bk.create_ledger()
                if number:
                    failed = []
                    read = logs.bk.store.records.read
                    logs.bk.store.records.read = lambda path, read=read, failed=failed: (
                        read(path) if len(failed) > 3 else failed.append(path) or fails()
                    )
                await (await records_of(other)).edit(Doom([writer.id], "orphan", 1))
                await gone(other, writer.id)
            assert len(failed) > 3
            assert (await owner.append(b"y")).index == 1
            await owner.close()
            assert not [each for each in reactor.getDelayedCalls() if each.func == owner.tidy]
            assert await values(await other.read("a")) == [b"x", b"y"]

    def fails():
        failed = Deferred()
        failed.errback(MetaStore("away"))
        return failed

    run(story)


def test_an_owner_trims_and_ends_its_log(tmp_path):
    """As `Logs` does, beside appends."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await logs.create("a", roll_records=2)
            owner = await logs.own("a")
            for number in range(7):
                await owner.append(b"%d" % number)
            assert await owner.trim(3) == 3
            error = await failing(Deferred.fromCoroutine(owner.trim(-1)), ValueError)
            assert "-1" in str(error)
            await owner.append(b"7")
            assert (await owner.terminate()).index == 8
            assert await values(await logs.read("a")) == [b"%d" % number for number in range(3, 8)]

    run(story)


async def acknowledged(logs, index):
    """A cursor's ledger, of a handle that has stored an acknowledgement."""
    before = set(await logs.bk.ledger_ids())
    cursor = await logs.cursor("a", "c", start="begin")
    await cursor.read(1, 30.0)
    cursor.ack_many([index])
    await cursor.persist()
    (made,) = set(await logs.bk.ledger_ids()) - before
    return made


def test_owners_that_live_for_less_than_an_hour_make_rounds_with_all_steps(tmp_path, monkeypatch):
    """One of them in each hour of the log, so that what a cursor has left goes."""
    rounds, one_round = [], keeping.one_round

    async def recorded(context, *, brief, **more):
        await one_round(context, brief=brief, **more)
        rounds.append(brief)

    monkeypatch.setattr(keeping, "one_round", recorded)

    async def two_rounds():
        before = len(rounds)
        while len(rounds) < before + 2:  # one of them began after this
            await pause(reactor, 0.01)

    async def story():
        async with cluster(tmp_path) as world:
            day = Day()
            logs, other = await world.logs(tidy_ms=100, now=day), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append_many([b"x", b"y"])
            left = await acknowledged(other, 0)
            await acknowledged(await world.logs(), 1)
            for _ in range(4):
                day.seconds += 20 * 60
                await two_rounds()
                await owner.close()
                owner = await logs.own("a")
                await owner.append(b"z")  # it has taken the log over
            await gone(other, left)
            assert rounds.count(False) in (1, 2)

    run(story)


class Day:
    """A publisher's time of day, which stands."""

    def __init__(self):
        self.seconds = 1_700_000_000.0 // 3600 * 3600

    def __call__(self):
        return self.seconds


async def begins(logs):
    return (await logs.info("a")).begin


def test_publishers_alone_keep_a_log(tmp_path):
    """
    By a round behind their commits, one in each minute whatever publishers there are: retention needs nobody else.
    Once an hour with all steps, as for what publishers left.
    """

    async def story():
        async with cluster(tmp_path) as world:
            day = Day()
            logs, other = await world.logs(now=day), await world.logs(now=day)
            await logs.create("a", retention_bytes=10)
            gone = await logs.sink("a", "gone", "one")
            facts, words = await logs.sink("a", "facts", "run"), await other.sink("a", "words", "run")
            await facts.commit(0, [await written(facts, 0, 0, [b"ten bytes."])])
            await written(gone, 0, 0, [b"late"])
            await (await logs.sink("a", "gone", "two")).begin()
            day.seconds += 59
            await words.commit(0, [await written(words, 0, 0, [b"ten bytes."])])
            assert await begins(logs) == 0
            day.seconds += 1
            await words.commit(1, [await written(words, 1, 0, [b"ten bytes."])])
            assert await begins(logs) == 2
            await facts.commit(1, [await written(facts, 1, 0, [b"ten bytes."])])
            assert await begins(logs) == 2
            assert [each.txn async for each in logs.unpublished("a")] == ["gone"]
            day.seconds += 3600
            await facts.commit(2, [])
            assert await begins(logs) == 2
            await facts.commit(3, [await written(facts, 3, 0, [b"ten bytes."])])
            assert await begins(logs) == 4
            assert await left_over(logs) == ([], set())

    run(story)


def test_plain_ledgers_alone_keep_a_log(tmp_path):
    """A log that only takes in ledgers is kept by that."""

    async def story():
        async with cluster(tmp_path) as world:
            day = Day()
            logs = await world.logs(now=day)
            await logs.create("a", retention_bytes=10)
            for _ in range(3):
                day.seconds += 60
                await logs.adopt("a", [await plain(logs, b"ten bytes.")])
            assert await begins(logs) == 2

    run(story)


def test_a_round_that_takes_long(tmp_path, monkeypatch):
    """The commit is answered; the round goes on, and no other one begins beside it."""
    monkeypatch.setattr(keeping, "ROUND_S", 0.0)

    async def story():
        async with cluster(tmp_path) as world:
            day = Day()
            logs, other = await world.logs(now=day), await world.logs()
            await logs.create("a", retention_bytes=10)
            facts, held = await logs.sink("a", "facts", "run"), None
            for batch in range(4):
                day.seconds += 60
                part = await written(facts, batch, 0, [b"ten bytes."])
                if batch == 1:
                    held = Gate(logs, lambda manifest: manifest.begin.index > 0)
                await facts.commit(batch, [part])
            assert await begins(other) == 0
            held.open()
            while await begins(other) < 3:
                await pause(reactor, 0.01)

    run(story)


def test_a_round_that_fails(tmp_path):
    """The commit has taken effect, and is answered."""

    async def story():
        async with cluster(tmp_path) as world:
            day, broken = Day(), []
            logs = await world.logs(lambda name: broken and name == "publish.done" and break_off(logs), now=day)
            await logs.create("a", retention_bytes=10)
            facts = await logs.sink("a", "facts", "run")
            read = logs.bk.store.records.read
            for batch in range(2):
                day.seconds += 60
                part = await written(facts, batch, 0, [b"ten bytes."])
                broken.append(batch)
                assert (await facts.commit(batch, [part])).first == batch
                broken.clear()
                logs.bk.store.records.read = read

    def break_off(logs):
        logs.bk.store.records.read = lambda _path: fail(MetaStore("away"))

    run(story)
