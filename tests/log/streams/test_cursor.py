"""A durable cursor: what is acknowledged stays so, the rest comes again; one holder, the newest."""

from contextlib import suppress
from random import Random

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Writer
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.streams.marks import Marks
from quire.log.store.holds import cursors
from quire.log.store.ledgers import LogLedgers
from quire.log.streams import holding
from quire.log.streams.holding import load
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import ClientClosed, MetaStore, TooManyRequests
from quire.protocol.log_errors import LogFenced, LogTrimmed, NoSuchCursor
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import kill
from tests.log.upkeep.test_trims import WANTED, filled, records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def given(cursor, **more):
    """The indexes that it gives out."""
    return [record.index for record in await cursor.read(**more)]


async def value_of(logs, cursor):
    """As it is stored."""
    (found,) = [value for _id, (value, _version) in await cursors(await records_of(logs)) if value.name == cursor]
    return found


def test_what_is_not_acknowledged_comes_again(tmp_path):
    """To the next holder, in order; after a clean close nothing of what was acknowledged."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            records = await cursor.read(5)
            assert [record.value for record in records] == WANTED[:5]
            assert await given(cursor) == list(range(5, 20))
            assert await cursor.read() == []
            cursor.ack_many([1, range(3, 18)])
            assert cursor.mark == 0
            cursor.ack(0)
            assert cursor.mark == 2
            backlog = await cursor.backlog()
            assert backlog[:2] == (3, sum(map(len, WANTED[2:])))
            assert 0 <= backlog.ms < 600_000
            assert logs.metrics.of("a").cursor_backlog_records == 3
            await cursor.close()
            again = await other.cursor("a", "billing", create=False)
            assert again.mark == 2
            assert await given(again) == [2, 18, 19]
            again.rewind()
            assert await given(again, max_records=2) == [2, 18]
            again.ack(2)
            assert again.mark == 18
            again.rewind()
            assert await given(again) == [18, 19]

    run(story)


def test_where_one_begins(tmp_path):
    """At the end, at an index, at the first record; a start below the log's is refused, and one above its end."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            assert (await logs.cursor("a", "end")).mark == 20
            assert (await logs.cursor("a", "seven", start=7)).mark == 7
            error = await failing(asked(logs.trim("a", 8)), ValueError)
            assert "the cursor 'seven' needs it from index 7" in str(error)
            assert await logs.trim("a", 6) == 6
            assert (await logs.cursor("a", "begin", start="begin")).mark == 6
            await failing(asked(logs.cursor("a", "low", start=5)), LogTrimmed)
            await failing(asked(logs.cursor("a", "high", start=21)), ValueError)
            await failing(asked(logs.cursor("a", "none", create=False)), NoSuchCursor)
            assert [(info.name, info.mark) async for info in logs.cursors("a")] == [
                ("begin", 6),
                ("end", 20),
                ("seven", 7),
            ]
            infos = {info.name: info.backlog async for info in logs.cursors("a")}
            assert infos["seven"][:2] == (13, sum(map(len, WANTED[7:])))
            assert infos["end"] == (0, 0, 0)

    run(story)


def test_the_newest_opener_has_it(tmp_path):
    """The former one's next write is fenced; what it stored counts, and what it did not comes again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            first = await logs.cursor("a", "billing", start="begin")
            assert await given(first) == list(range(20))
            first.ack_many([0, 5, 7])
            await first.persist()
            first.ack(9)
            await first.persist()
            first.ack(11)
            second = await other.cursor("a", "billing")
            assert await given(second, max_records=9) == [1, 2, 3, 4, 6, 8, 10, 11, 12]
            error = await failing(asked(first.persist()), LogFenced)
            assert "another one has opened the cursor 'billing'" in str(error)
            with pytest.raises(LogFenced):
                first.ack(12)
            await failing(asked(first.read()), LogFenced)
            await first.close()
            second.ack(1)
            await second.persist()

    run(story)


def test_a_holder_that_is_killed(tmp_path):
    """What it stored stays acknowledged, by changes behind a checkpoint; the rest comes again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            cursor = await other.cursor("a", "billing", start="begin")
            assert len(await cursor.read()) == 20
            for index in (3, 5, 0, 1):
                cursor.ack(index)
                await cursor.persist()
            cursor.ack(10)
            kill(other)
            again = await logs.cursor("a", "billing")
            assert again.mark == 2
            assert await given(again) == [2, 4, *range(6, 20)]

    run(story)


def test_it_is_stored_by_itself(tmp_path):
    """Within `cursor_ms`, without a call, and again after the next acknowledgement."""

    async def story():
        steps, changed = [], [Deferred(), Deferred()]

        def reached(name):
            steps.append(name)
            if name in {"cursor.named", "cursor.changed"}:
                changed[name == "cursor.changed"].callback(None)

        async with cluster(tmp_path) as world:
            logs = await world.logs(reached, batch_bytes=1, cursor_ms=5)
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack(3)
            await changed[0]
            cursor.ack(5)
            await changed[1]
            points = [step for step in steps if step.startswith("cursor.")]
            assert points == [f"cursor.{what}" for what in ("made", "created", "checkpoint", "named", "changed")]
            assert logs.metrics.of("a").cursor_persist_bytes == 2 * 20 + 2 + 2

    run(story)


def test_a_fence_without_another_holder(tmp_path):
    """A repair ends the cursor's ledger: the next one has all that was acknowledged."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([2, 4])
            await cursor.persist()
            before = (await value_of(logs, "billing")).ledger
            await other.bk.recover_ledger(before)
            cursor.ack(6)
            await cursor.persist()
            value = await value_of(logs, "billing")
            assert value.ledger not in (None, before)
            assert [each.ledger for each in value.doomed] == [before]
            assert await given(await other.cursor("a", "billing"), max_records=6) == [0, 1, 3, 5, 7, 8]

    run(story)


@pytest.mark.parametrize("applied", [False, True])
def test_a_seek_whose_answer_is_lost(tmp_path, applied):
    """Whether it took effect or not, it does before the handle stores anything else; its old mark is gone."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([range(12)])
            await cursor.persist()
            lost = [True]

            def faults(operation, _arguments):
                if operation == "transact" and lost:
                    lost.clear()
                    return Fault(error=MetaStore("no answer"), applied=applied)
                return None

            logs.bk.store.faults = faults
            await failing(asked(cursor.seek(4)), MetaStore)
            await cursor.persist()
            assert not lost
            assert (cursor.mark, await given(cursor)) == (4, list(range(4, 20)))
            await cursor.close()
            again = await other.cursor("a", "billing")
            assert await given(again) == list(range(4, 20))

    run(story)


def test_seeking(tmp_path):
    """Back and ahead by the holder; acknowledgements above are forgotten, and the log is kept from there on."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([range(8), 12])
            await cursor.persist()
            assert len(await cursor.read(3)) == 3
            await cursor.seek(4)
            assert await given(cursor) == list(range(4, 20))
            await cursor.seek("end")
            assert (cursor.mark, await given(cursor)) == (20, [])
            await cursor.seek("begin")
            assert await given(cursor, max_records=2) == [0, 1]
            await failing(asked(cursor.seek(21)), ValueError)
            await cursor.seek(9)
            assert await other.trim("a", 9) == 9
            await failing(asked(cursor.seek(8)), LogTrimmed)
            cursor.ack(10)
            again = await other.cursor("a", "billing")
            assert await given(again) == list(range(9, 20))

    run(story)


def test_what_may_be_acknowledged(tmp_path):
    """Records that are known to be in the log; as many pages as the option says."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(cursor_pages_max=1)
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            for wrong in (20, -1, True, "1", 1.0, range(3, 21), range(0, 6, 2), range(-1, 3)):
                with pytest.raises(ValueError, match="no record that is known here"):
                    cursor.ack_many([wrong])
            owner = await logs.own("a")
            await owner.append_many([b""] * 600)
            assert len(await cursor.read(700)) == 620
            cursor.ack_many([range(0), 3, range(5, 7)])
            with pytest.raises(TooManyRequests, match="cursor_pages_max"):
                cursor.ack(600)
            cursor.ack_many([range(600)])
            assert cursor.mark == 600
            await cursor.close()
            with pytest.raises(ClientClosed):
                cursor.ack(600)

    run(story)


def test_reading_waits_for_what_comes(tmp_path):
    """Up to the time that is given, over the end of what is there; a close ends it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            owner = await logs.own("a")
            cursor = await logs.cursor("a", "billing", start=18)
            assert await given(cursor, timeout=60) == [18, 19]
            waiting = asked(given(cursor, timeout=60))
            await owner.append(b"more")
            assert await waiting == [20]
            assert await given(cursor) == []
            waiting = asked(given(cursor, timeout=60))
            await cursor.close()
            await failing(waiting, ClientClosed)

    run(story)


def test_a_policy_moves_the_mark(tmp_path):
    """The holder follows, and never writes a lower one over it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([3, 19])
            await cursor.persist()
            await other.truncate("a")
            cursor.ack(2)
            await cursor.persist()
            assert (cursor.mark, (await value_of(logs, "billing")).mark) == (20, 20)
            assert await given(cursor) == []
            await cursor.close()
            assert (await other.cursor("a", "billing")).mark == 20

    run(story)


def test_a_short_state_is_in_the_value_and_a_long_one_in_a_ledger(tmp_path, monkeypatch):
    """After a clean close; either way nothing comes again."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1, cursor_ms=10**6)
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([4, 6])
            await cursor.persist()
            await cursor.close()
            value = await value_of(logs, "billing")
            assert (value.ledger, len(value.doomed), bool(value.acks)) == (None, 1, True)
            monkeypatch.setattr(holding.cursors, "acks_of", lambda _runs: None)
            cursor = await logs.cursor("a", "billing")
            cursor.ack(8)
            await cursor.close()
            value = await value_of(logs, "billing")
            assert value.acks is None
            assert (await logs.bk.metadata(value.ledger)).is_closed
            cursor = await logs.cursor("a", "billing")
            await cursor.close()
            assert (await value_of(logs, "billing")).ledger == value.ledger
            assert await given(await logs.cursor("a", "billing"), max_records=7) == [0, 1, 2, 3, 5, 7, 9]

    run(story)


def test_deleted_under_its_holder(tmp_path):
    """It ends; one of the same name is another one, and nothing is left of the first."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1, cursor_ms=10**6), await world.logs()
            await filled(logs)
            ledgers = await logs.bk.ledger_ids()
            cursor = await logs.cursor("a", "billing", start=5)
            cursor.ack(7)
            await cursor.persist()
            await other.delete_cursor("a", "billing")
            await failing(asked(other.delete_cursor("a", "billing")), NoSuchCursor)
            cursor2 = await other.cursor("a", "billing", start=3)
            cursor2.ack(4)
            await failing(asked(cursor.persist()), NoSuchCursor)
            assert await given(cursor2, max_records=2) == [3, 5]
            await other.delete_cursor("a", "billing")
            assert await logs.bk.ledger_ids() == ledgers
            assert [info async for info in logs.cursors("a")] == []

    run(story)


@pytest.mark.parametrize("seed", range(5))
def test_a_kill_brings_back_what_was_acknowledged_last(seed):
    """
    On virtual time, without a call that stores: at most what was acknowledged within `cursor_ms` and the time of a
    write comes again, and all that was not acknowledged.
    """
    cluster, dice, at = FakeCluster(seed=seed), Random(seed), {}
    first, second = (
        Logs(cluster.client(placement="random"), LogOptions(cursor_ms=1000), now=lambda: 9.0) for _ in range(2)
    )

    async def opened():
        await first.create("a", roll_records=300)
        owner = await first.own("a")
        await owner.append_many([b""] * 1000)
        await owner.close()
        return await first.cursor("a", "billing", start="begin")

    cursor = cluster.succeed(opened())
    order = dice.sample(range(1000), 700)
    for index in order:
        cursor.ack(index)
        at[index] = cluster.clock.seconds()
        cluster.spin(0.01)
    cluster.spin(dice.random() * 0.5)
    died = cluster.clock.seconds()
    killed = cluster.pools[0].number
    cluster.judge = lambda request: "drop" if request.client == killed else "pass"
    again = cluster.succeed(second.cursor("a", "billing"))
    found = cluster.succeed(given(again, max_records=2000))
    lost = [index for index in found if index in at]
    assert set(range(1000)) - set(found) <= set(at)
    assert set(range(1000)) - set(at) <= set(found)
    assert died - min([at[index] for index in lost], default=died) <= 1.0 + 20 * cluster.latency
    assert len(lost) <= 102


@pytest.mark.parametrize("point", ["cursor.created", "cursor.checkpoint", "cursor.named"])
def test_a_call_that_is_cancelled_leaves_no_writer(tmp_path, point):
    """Wherever it is; what was acknowledged is stored by the next call, or by the close."""

    async def story():
        async with cluster(tmp_path) as world:
            calls = []
            logs = await world.logs(
                lambda name: calls and name == point and reactor.callLater(0, calls.pop().cancel), cursor_ms=10**6
            )
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            for first in (0, 7):
                records = await cursor.read(7)
                cursor.ack_many([each.index for each in records])
                calls.append(asked(cursor.persist()))
                with suppress(CancelledError):
                    await calls[0]
                calls.clear()
                await cursor.persist()
                assert await marked(logs) == first + 7
            records = await cursor.read(3)
            cursor.ack_many([each.index for each in records])
            calls.append(asked(cursor.persist()))
            with suppress(CancelledError):
                await calls[0]
            await cursor.close()
            await no_writer(logs)
            other = await world.logs()
            assert await given(await other.cursor("a", "billing")) == [17, 18, 19]

    run(story)


def test_a_handle_that_ends_while_it_stores_leaves_no_writer(tmp_path, monkeypatch):
    """Another one opens the cursor while the first makes its ledger."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await filled(logs)
            cursor = await logs.cursor("a", "billing", start="begin")
            cursor.ack_many([each.index for each in await cursor.read(7)])
            real = LogLedgers.create

            async def create(ledgers, *args, **options):
                writer = await real(ledgers, *args, **options)
                monkeypatch.undo()
                await other.cursor("a", "billing")
                return writer

            monkeypatch.setattr(LogLedgers, "create", create)
            await failing(asked(cursor.persist()), LogFenced)
            await no_writer(logs)

    run(story)


async def no_writer(logs):
    """Soon none is left open by this process."""
    while any(isinstance(each, Writer) for each in logs.bk.handles):
        await pause(reactor, 0.01)


async def marked(logs):
    """Where another holder would go on, by the value and the ledger that it names."""
    value = await value_of(logs, "billing")
    marks = Marks(value.mark, 1 << 20)
    if value.ledger is not None:
        await load(logs.bk, value.ledger, value.checkpoint or 0, marks)
    return marks.mark
