"""Batches that are published exactly once, beside an owner, over crashes, zombies and lost answers."""

import json

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from quire.log.publish.txns import Txns
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore, NoSuchLedger
from quire.protocol.log_errors import BatchGap, LogFenced, LogTerminated, PublishRefused
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def written(sink, batch, number, content, attempt=0):
    """A closed part with these values."""
    part = await sink.part(batch, number, attempt)
    if content:
        await part.append_many(content)
    return await part.close()


async def left_over(logs):
    """Intents that are there, and ledgers that nothing names."""
    records = logs.bk.store.records
    id_ = (await logs.info("a")).id
    intents = []
    for txn in await records.children(f"logs/{id_[:2]}/{id_}/intents"):
        intents += await records.children(f"logs/{id_[:2]}/{id_}/intents/{txn}")
    manifest = json.loads((await records.read(f"logs/{id_[:2]}/{id_}")).value)
    named = {each["ledger"] for each in manifest["segments"] + manifest["doomed"]}
    ledgers = set(await logs.bk.ledger_ids())
    return intents, ledgers - named


def test_batches_in_order(tmp_path):
    """Each once, its parts in the order given, empty ones too; again gives the receipt; a gap is refused."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", roll_bytes=10)
            sink = await logs.sink("a", "facts", "run one")
            parts = await gatherResults(
                [
                    story_of(written(sink, 0, 0, [b"a", b"b"])),
                    story_of(written(sink, 0, 1, [])),
                    story_of(written(sink, 0, 2, [b"c" * 20, b"d" * 20])),
                ]
            )
            assert parts[1].ledgers == ()
            receipt = await sink.commit(0, parts)
            assert (receipt.first, receipt.end, receipt.again) == (0, 4, False)
            assert await values(await logs.read("a")) == [b"a", b"b", b"c" * 20, b"d" * 20]
            again = await sink.commit(0, parts)
            assert again == receipt._replace(again=True)
            await failing(story_of(sink.commit(2, [])), BatchGap)
            empty = await sink.commit(1, [])
            assert (empty.first, empty.end, empty.segments) == (4, 4, ())
            parts = [await written(sink, 2, 0, [b"e"])]
            assert (await sink.commit(2, parts, verify="entries")).first == 4
            assert await left_over(logs) == ([], set())

    run(story)


def test_beside_an_owner(tmp_path):
    """What the owner was acknowledged and what is published make one sequence; the owner goes on behind."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            sink = await other.sink("a", "facts", "run one")
            acked = {}
            for batch in range(4):
                for number in range(5):
                    value = b"own %d %d" % (batch, number)
                    acked[value] = (await owner.append(value)).index
                part = await written(sink, batch, 0, [b"pub %d" % batch])
                waiting = owner.append(b"during %d" % batch)
                receipt = await sink.commit(batch, [part])
                acked[b"pub %d" % batch] = receipt.first
                acked[b"during %d" % batch] = (await waiting).index
            found = await values(await other.read("a"), len(acked))
            assert {value: index for index, value in enumerate(found)} == acked
            assert (await logs.info("a")).epoch == 1

    run(story)


def test_a_batch_is_spread_over_as_many_partitions_by_each_run(tmp_path):
    """Whoever asks first, beside others or with its answer lost; a later run too, and the next batch anew."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            old = await logs.sink("a", "facts", "old")
            both = await gatherResults([story_of(old.spread(0, over)) for over in (3, 5)])
            assert both[0] == both[1]
            assert both[0] in (3, 5)
            assert await old.spread(1, 5) == 5
            assert await old.spread(0, 7) == 7, "it comes too late to matter"
            assert await old.spread(1, 7) == 5
            new = await other.sink("a", "facts", "new")
            assert await new.spread(1, 8) == 5
            left = [Fault(error=MetaStore("no answer"), applied=True)]
            other.bk.store.faults = lambda name, _args: left.pop() if left and name == "transact" else None
            assert await new.spread(2, 8) == 8
            assert left == []
            await failing(story_of(old.spread(2, 9)), LogFenced)
            newest = await logs.sink("a", "facts", "newest")
            assert await newest.spread(1, 9) == 9, "a named writer goes back to a batch that it has not written"

    run(story)


def test_a_new_run_takes_over(tmp_path):
    """Parts of the run before are not published; it is fenced in everything; its ledgers go."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            old = await logs.sink("a", "facts", "old")
            await old.commit(0, [await written(old, 0, 0, [b"zero"])])
            stale = await written(old, 1, 0, [b"stale"])
            zombie = await old.part(1, 1, 0)
            await zombie.append_many([b"first"])
            new = await logs.sink("a", "facts", "new")
            await new.commit(1, [await written(new, 1, 0, [b"one"])])
            for refused in (
                story_of(old.commit(1, [stale])),
                story_of(old.abort(2)),
                story_of(old.part(2, 0, 0)),
            ):
                await failing(refused, LogFenced)
            await failing(story_of(new.commit(2, [stale])), PublishRefused)
            await new.janitor()
            await failing(story_of(zombie.append_many([b"more"])), LogFenced)
            assert await values(await logs.read("a")) == [b"zero", b"one"]

    run(story)


def test_a_janitor_that_has_not_heard_of_a_new_run(tmp_path, monkeypatch):
    """Which begins at a lower batch than the one before said: it takes nothing of that run's."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            mistyped = await logs.sink("a", "facts", "old", first_batch=170)
            await written(mistyped, 17, 0, [b"stale"])
            new, parts, names = await logs.sink("a", "facts", "new", first_batch=17), [], Txns.names

            async def late(txns):
                """The new run claims the txn after it was read."""
                monkeypatch.undo()
                parts.append(await written(new, 17, 0, [b"seventeen"]))
                return await names(txns)

            monkeypatch.setattr(Txns, "names", late)
            assert await mistyped.janitor() == 1
            await new.commit(17, parts)
            assert await values(await logs.read("a")) == [b"seventeen"]
            assert await left_over(logs) == ([], set())

    run(story)


def test_an_abort(tmp_path):
    """It deletes what was written, unless the batch was published; then no commit of this run follows."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            zero = [await written(sink, 0, 0, [b"zero"])]
            await sink.commit(0, zero)
            await sink.abort(0, zero)
            assert await values(await logs.read("a")) == [b"zero"]
            one = [await written(sink, 1, 0, [b"one"])]
            await sink.abort(1, one)
            await failing(logs.bk.metadata(one[0].ledgers[0].ledger), NoSuchLedger)
            await failing(story_of(sink.commit(1, one)), PublishRefused)
            again = await logs.sink("a", "facts", "next run")
            await again.commit(1, [await written(again, 1, 0, [b"uno"])])
            assert await values(await logs.read("a")) == [b"zero", b"uno"]
            assert await left_over(logs) == ([], set())

    run(story)


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_whose_answer_is_lost(tmp_path, late):
    """Called again it finds out; an abort in between touches nothing that was published, or lets nothing land."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            parts = [await written(sink, 0, 0, [b"zero"])]
            store = logs.bk.store
            fault = Fault(late=0.05) if late else Fault(error=MetaStore("no answer"), applied=True)
            left = [fault]

            def faults(name, args):
                big = name == "transact" and len(args) > 2
                return left.pop() if left and big else None

            store.faults = faults
            await failing(story_of(sink.commit(0, parts)), MetaStore)
            store.faults = None
            await sink.abort(0, parts)
            found = await values(await other.read("a"))
            if late:
                assert found == []
                await failing(story_of(sink.commit(0, parts)), PublishRefused)
            else:
                assert found == [b"zero"]
                assert (await sink.commit(0, parts)).again
            assert await left_over(logs) == ([], set())

    run(story)


async def attempts_of(sink):
    """A dead one, whose ledger is open, another whose ledger is closed, and the part that the third one wrote."""
    dead = await sink.part(0, 0, 0)
    await dead.append_many([b"x"])
    return dead, await written(sink, 0, 0, [b"x"], 1), await written(sink, 0, 0, [b"x"], 2)


def test_a_dead_attempt_whose_bookies_are_away(tmp_path):
    """The batch is published, and said to be again; the other dead one goes, and this one with `abandon` only."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            _dead, _closed, part = await attempts_of(sink)
            for bookie in world.bookies[:2]:
                await bookie.stop()
            for again in (False, True):
                receipt = await sink.commit(0, [part])
                assert (receipt.first, receipt.end, receipt.again) == (0, 1, again)
            intents, ledgers = await left_over(logs)
            assert [intent[:6] for intent in intents] == ["0-0-0-"]
            report = await logs.tidy("a")
            assert (report.parts, set(report.stayed), report.failed) == (0, ledgers, {})
            report = await logs.tidy("a", abandon=True)
            assert (report.parts, report.stayed) == (1, {})
            assert await left_over(logs) == ([], set())

    run(story)


def test_a_janitor_that_fails_behind_a_commit(tmp_path):
    """The commit is answered all the same, and the next one's takes what is left."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            _dead, _closed, part = await attempts_of(sink)
            logs.bk.store.faults = lambda name, _arguments: (
                Fault(error=MetaStore("no answer")) if name == "delete_ledger" else None
            )
            assert (await sink.commit(0, [part])).end == 1
            assert len((await left_over(logs))[0]) == 2
            logs.bk.store.faults = None
            assert (await sink.commit(1, [])).end == 1
            assert await left_over(logs) == ([], set())

    run(story)


def test_parts_that_are_refused(tmp_path):
    """An open ledger, one that is gone, another's, tags that are no text, an intent that is gone; nothing is lost."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            good = await written(sink, 0, 0, [b"good"])
            (ledger,) = good.ledgers
            for wrong in (
                ledger._replace(entries=2),
                ledger._replace(ledger=ledger.ledger + 1000),
            ):
                await failing(story_of(sink.commit(0, [good._replace(ledgers=(wrong,))])), PublishRefused)
            tags = (await logs.bk.metadata(ledger.ledger)).custom
            for custom in ({}, {**tags, "quire/txn": b"\xff"}, {**tags, "quire/log": b"\xff"}):
                other = await logs.bk.create_ledger(custom_metadata=custom)
                await other.append(b"x")
                await other.close()
                wrong = good._replace(ledgers=(ledger._replace(ledger=other.id),))
                error = await failing(story_of(sink.commit(0, [wrong])), PublishRefused)
                assert f"ledger {other.id}" in str(error)
            wrong = good._replace(ledgers=(ledger._replace(records=9),))
            await failing(story_of(sink.commit(0, [wrong], verify="entries")), PublishRefused)
            await failing(story_of(sink.commit(0, [good._replace(intent="0-0-0-gone")])), PublishRefused)
            assert (await sink.commit(0, [good])).end == 1

    run(story)


def test_a_commit_looks_at_fifty_ledgers_at_a_time(tmp_path, monkeypatch):
    """One after the other a thousand cost a thousand round trips, all at once they would take the store's turns."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            sink = await logs.sink("a", "facts", "run")
            parts = [await written(sink, 0, number, [b"x"]) for number in range(120)]
            under_way, most, looked_at, answer = 0, 0, [], logs.bk.metadata

            async def watched(ledger):
                nonlocal under_way, most
                looked_at.append(ledger)
                under_way += 1
                most = max(most, under_way)
                await deferLater(reactor, 0)
                found = await answer(ledger)
                under_way -= 1
                return found

            monkeypatch.setattr(logs.bk, "metadata", watched)
            assert (await sink.commit(0, parts)).end == 120
            assert most == 50
            assert sorted(looked_at) == sorted(each.ledger for part in parts for each in part.ledgers)

    run(story)


def test_a_log_that_takes_none(tmp_path):
    """Terminated, or with publishing off: the parts go by abort."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", publish=False)
            sink = await logs.sink("a", "facts", "run")
            parts = [await written(sink, 0, 0, [b"x"])]
            await failing(story_of(sink.commit(0, parts)), PublishRefused, LogTerminated)
            await sink.abort(0, parts)
            assert await left_over(logs) == ([], set())

    run(story)


@pytest.mark.parametrize("why", ["refused", "empty"])
def test_a_commit_that_can_not_come_behind_an_owner_leaves_it_alone(tmp_path, why):
    """One that is refused, again and again, and one that brings no ledger: the owner's segment goes on."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            sink = await other.sink("a", "facts", "run")
            parts = [await written(sink, 0, 0, [] if why == "empty" else [b"x"])]
            if why != "empty":
                await logs.update("a", publish=False)
            owner = await logs.own("a")
            await owner.append(b"own")
            ledgers = set(await logs.bk.ledger_ids())
            for _ in range(2):
                if why == "empty":
                    assert (await sink.commit(0, parts)).segments == ()
                else:
                    await failing(story_of(sink.commit(0, parts)), PublishRefused)
                await owner.append(b"own")
            assert set(await logs.bk.ledger_ids()) == ledgers, "the owner has not begun another segment"
            assert await values(await other.read("a"), 3) == [b"own"] * 3

    run(story)
