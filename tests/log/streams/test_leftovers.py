"""What cursors left: doomed ledgers, ledgers that they never named, and cursors that are being deleted."""

from twisted.internet.defer import Deferred

from quire.log.streams import cursors
from quire.log.streams.record import clear, remove
from tests.log.fakes.cluster import cluster
from tests.log.fakes.gate import Gate
from tests.log.streams.test_cursor import value_of
from tests.log.upkeep.test_trims import filled, kept_of
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def held(logs):
    """A cursor with a ledger, and one doomed by a seek."""
    cursor = await logs.cursor("a", "billing", start="begin")
    for index in (4, 6):
        cursor.ack(index)
        await cursor.persist()
        if index == 4:
            await cursor.seek(2)
    return cursor


def test_a_round_of_upkeep(tmp_path):
    """Takes doomed ledgers, after they are fenced, and what they are of stays; of a deleted cursor all."""

    async def story():
        points = []
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs(points.append)
            await filled(logs)
            before = set(await logs.bk.ledger_ids())
            cursor = await held(logs)
            value = await value_of(logs, "billing")
            assert len(value.doomed) == 1
            report = await other.tidy("a")
            assert report.deleted == [value.doomed[0].ledger]
            assert points[:2] == ["trim.fenced", "trim.deleted"]
            assert set(await logs.bk.ledger_ids()) == before | {value.ledger}
            cursor.ack(2)
            await cursor.persist()
            await cursors.unname((await kept_of(other)).log, "billing")
            assert (await other.tidy("a")).deleted == [value.ledger]
            assert set(await logs.bk.ledger_ids()) == before

    run(story)


def test_a_holder_that_changes_its_value_meanwhile(tmp_path):
    """The ledgers go, and are forgotten in the next round."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            cursor = await held(logs)
            kept = await kept_of(other)
            (record,) = [each async for each in cursors.listed(kept.log)]
            gate = Gate(other.bk.store, "delete_ledger")
            clearing = Deferred.fromCoroutine(clear(kept, record.id))
            await gate.reached
            await cursor.seek(1)
            gate.open()
            done = await clearing
            value = await value_of(logs, "billing")
            assert len(done.gone) == 1
            assert len(value.doomed) == 2
            again = await clear(kept, record.id)
            assert again.gone == {each.ledger for each in value.doomed}
            assert (await value_of(logs, "billing")).doomed == ()
            assert (await clear(kept, "c0ffee")).gone == set()

    run(story)


def test_ledgers_that_were_never_named(tmp_path):
    """Go through the value; what it names meanwhile stays."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1, cursor_ms=10**6)
            await filled(logs)
            await held(logs)
            kept = await kept_of(logs)
            (record,) = [each async for each in cursors.listed(kept.log)]
            value = await value_of(logs, "billing")
            unnamed = (await logs.bk.create_ledger()).id
            gone = await remove(kept.log, kept.ledgers, record.id, [unnamed, value.ledger])
            assert gone == {unnamed}
            now = await value_of(logs, "billing")
            assert (now.ledger, now.doomed) == (value.ledger, value.doomed)
            of_gone = (await logs.bk.create_ledger()).id
            assert await remove(kept.log, kept.ledgers, "c0ffee", [of_gone]) == {of_gone}

    run(story)
