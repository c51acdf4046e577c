"""What a holder stores: killed at each step, with answers that are lost, beside others."""

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.streams import holding as holdings
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed
from tests.log.streams.test_cursor import given, value_of
from tests.log.upkeep.test_trims import filled
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

POINTS = [f"cursor.{what}" for what in ("made", "created", "checkpoint", "named", "changed", "folded")]
SLOW = 10**6


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def nothing_leaks(logs, expected):
    """After a round of upkeep and a search for orphans there are the log's ledgers, and those that cursors name."""
    await logs.tidy("a")
    _found = [each async for each in logs.orphans(True, really=True, grace_s=0.0)]
    value = await value_of(logs, "billing")
    assert set(await logs.bk.ledger_ids()) == {*expected, *value.ledgers}
    assert value.doomed == ()


@pytest.mark.parametrize(("point", "nth"), [*((point, 1) for point in POINTS), *((point, 2) for point in POINTS[1:5])])
def test_a_holder_that_is_killed_at_each_step(tmp_path, monkeypatch, point, nth):
    """What `persist` had stored stays so; nothing that was not acknowledged is passed over; nothing leaks."""
    monkeypatch.setattr(holdings, "LEDGER_BYTES_MAX", 60)

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed(point, nth)
            logs, first = await world.logs(batch_bytes=1), await world.logs(doomed.reached, cursor_ms=SLOW)
            await filled(logs)
            ledgers = await logs.bk.ledger_ids()
            doomed.logs = first
            acked, stored = [], []

            async def consume():
                cursor = await first.cursor("a", "billing", start="begin")
                for index in (3, 0, 5, 7, 9, 11):
                    acked.append(index)
                    cursor.ack(index)
                    await cursor.persist()
                    stored[:] = acked
                await cursor.close()

            asked(consume()).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            second = await logs.cursor("a", "billing", start="begin")
            found = await given(second)
            assert set(range(20)) - set(found) <= set(acked)
            assert not set(found) & set(stored)
            await second.close()
            await nothing_leaks(logs, ledgers)

    run(story)


@pytest.mark.parametrize("applied", [True, False])
def test_answers_that_are_lost(tmp_path, applied):
    """`persist` says that it does not know; the next one goes on with the same ledger, and it is named once."""

    async def story():
        steps = []
        async with cluster(tmp_path) as world:
            logs = await world.logs(steps.append, batch_bytes=1, cursor_ms=SLOW)
            await filled(logs)
            ledgers = await logs.bk.ledger_ids()
            cursor = await logs.cursor("a", "billing", start="begin")
            store, lost = logs.bk.store, []

            def fault(name, arguments):
                if name == "transact" and any("/cursor/" in step.path for step in arguments) and not lost:
                    lost.append(name)
                    return Fault(error=MetaStore("lost"), applied=applied)
                return None

            store.faults = fault
            cursor.ack(4)
            await failing(asked(cursor.persist()), MetaStore)
            assert lost
            cursor.ack(6)
            await cursor.persist()
            assert steps.count("cursor.created") == 1
            value = await value_of(logs, "billing")
            assert (len(await logs.bk.ledger_ids()), value.doomed) == (len(ledgers) + 1, ())
            again = await (await world.logs()).cursor("a", "billing")
            assert await given(again, max_records=6) == [0, 1, 2, 3, 5, 7]

    run(story)


def test_orphans_are_deleted_beside_a_holder(tmp_path, monkeypatch):
    """Between checkpoint and value: the holder meets another value, looks its ledger up, and makes another one."""

    async def story():
        at, go = Deferred(), Deferred()
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=SLOW), await world.logs()
            await filled(logs)
            ledgers = await logs.bk.ledger_ids()
            cursor = await logs.cursor("a", "billing", start="begin")
            begin = holdings.CursorLedger.write_checkpoint

            async def paused(self, marks):
                await begin(self, marks)
                if not at.called:
                    at.callback(None)
                    await go

            monkeypatch.setattr(holdings.CursorLedger, "write_checkpoint", paused)
            cursor.ack(4)
            storing = asked(cursor.persist())
            await at
            gone = [each async for each in other.orphans(True, really=True, grace_s=0.0)]
            assert [(each.component, each.deleted) for each in gone] == [("log-cursor", True)]
            go.callback(None)
            await storing
            value = await value_of(logs, "billing")
            assert value.ledger is not None
            assert value.ledger != gone[0].ledger
            again = await other.cursor("a", "billing")
            assert await given(again, max_records=5) == [0, 1, 2, 3, 5]
            await again.close()
            await nothing_leaks(other, ledgers)

    run(story)


def test_two_openers(tmp_path):
    """Whoever is later has it, also while the other is about to name its ledger, whose rest upkeep deletes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=SLOW), await world.logs()
            await filled(logs)
            ledgers = await logs.bk.ledger_ids()
            third = await world.logs(cursor_ms=SLOW)
            first = await third.cursor("a", "billing", start="begin")
            first.ack(4)
            both = [asked(first.persist()), asked(other.cursor("a", "billing"))]
            outcomes = [await each.addErrback(lambda failure: failure.value) for each in both]
            assert outcomes[0] is None or isinstance(outcomes[0], LogFenced)
            second = outcomes[1]
            found = await given(second)
            assert set(range(20)) - set(found) <= {4}
            assert outcomes[0] is not None or 4 not in found
            await failing(asked(first.persist()), LogFenced)
            second.ack(4)
            await second.close()
            await nothing_leaks(logs, ledgers)

    run(story)


def lost(story):
    """Its ledger is deleted; where the cursor goes on then."""
    story.cluster.succeed(story.second.bk.delete_ledger(story.ledger))
    return 3


def damaged(story):
    """The last entry, on all bookies; the one before says 6."""
    for bookie in story.cluster.bookies.values():
        entries = bookie.ledgers[story.ledger].entries
        entries[max(entries)] = entries[max(entries)][:-1] + b"\x81"
    return 6


class Stored:
    """On virtual time: a cursor whose value says 3, and whose ledger 3, then 6, then 8 besides."""

    def __init__(self):
        self.cluster = FakeCluster()
        self.first, self.second = (
            Logs(self.cluster.client(placement="random"), LogOptions(batch_bytes=1, **more), now=lambda: 9.0)
            for more in ({"cursor_ms": SLOW}, {})
        )
        self.ledger = self.cluster.succeed(self._stored())
        self.cluster.succeed(self.second.bk.recover_ledger(self.ledger))

    async def _stored(self):
        await filled(self.first)
        cursor = await self.first.cursor("a", "billing", start="begin")
        for some in ([range(3), 5], [3, 4], [8]):
            cursor.ack_many(some)
            await cursor.persist()
        return (await value_of(self.first, "billing")).ledger


@pytest.mark.parametrize("unreadable", [lost, damaged])
def test_a_ledger_that_can_t_be_read(unreadable):
    """What it says comes again; the warning says where the cursor goes on, and where its value is."""
    story, events = Stored(), []
    mark = unreadable(story)
    globalLogPublisher.addObserver(events.append)
    try:
        cursor = story.cluster.succeed(story.second.cursor("a", "billing"))
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert story.cluster.succeed(given(cursor)) == list(range(mark, 20))
    (warned,) = [formatEvent(event) for event in events if event.get("cursor") == "billing"]
    assert f"goes on from index {mark}, its value says 3" in warned
    assert f"ledger {story.ledger}" in warned
    story.cluster.succeed(cursor.close())


def test_a_store_that_is_away_when_a_bookie_dies():
    """The writer of the cursor's ledger fails with that, too: what it was given is stored once the store is back."""
    world = FakeCluster(bookies=4)
    logs, other = (
        Logs(world.client(placement="random"), LogOptions(batch_bytes=1, cursor_ms=SLOW), now=lambda: 9.0)
        for _ in range(2)
    )
    world.succeed(filled(logs))
    cursor = world.succeed(logs.cursor("a", "billing", start="begin"))
    cursor.ack(4)
    world.succeed(cursor.persist())
    before = world.succeed(value_of(logs, "billing")).ledger
    world.kill(world.metadata(before).last_fragment.bookies[0])
    world.store_fault = lambda name, _arguments: Fault(error=MetaStore("away")) if name == "write_ledger" else None
    cursor.ack(6)
    assert isinstance(world.fails(cursor.persist(), 600), MetaStore)
    world.store_fault = lambda _name, _arguments: None
    world.succeed(cursor.persist())
    assert world.succeed(value_of(logs, "billing")).ledger != before
    again = world.succeed(other.cursor("a", "billing"))
    assert world.succeed(given(again, max_records=6)) == [0, 1, 2, 3, 5, 7]
