"""The cursors of a process: closed with it, and deleted beside whoever opens them."""

from twisted.internet.defer import Deferred, gatherResults

from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, NoSuchCursor
from tests.log.fakes.cluster import cluster
from tests.log.fakes.gate import Gate
from tests.log.streams.test_cursor import given
from tests.log.upkeep.test_trims import filled
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


def test_a_process_that_closes_its_logs(tmp_path):
    """Stores what was acknowledged with each cursor; one that can't does not keep the others from it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs(cursor_ms=10**6)
            await filled(logs)
            held = {name: await other.cursor("a", name, start="begin") for name in ("x", "y")}
            for cursor in held.values():
                cursor.ack_many([0, 2])
            fault = Fault(error=MetaStore("away"))
            first = []

            def faults(name, _arguments):
                if name == "transact" and not first:
                    first.append(name)
                    return fault
                return None

            other.bk.store.faults = faults
            await other.close()
            marks = [(await logs.cursor("a", name)).mark for name in held]
            assert sorted(marks) == [0, 1]

    run(story)


def test_all_are_closed_at_the_same_time(tmp_path, monkeypatch):
    """A store that is away takes its time-out once."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs(cursor_ms=10**6)
            await filled(logs)
            for name in ("x", "y", "z"):
                (await other.cursor("a", name, start="begin")).ack(0)
            answers = []

            def away(_steps):
                answers.append(Deferred())
                if len(answers) == 3:
                    for answer in answers:
                        answer.errback(MetaStore("away"))
                return answers[-1]

            with monkeypatch.context() as patch:
                patch.setattr(other.bk.store.records, "multi", away)
                await other.close()
            assert len(answers) == 3

    run(story)


def test_opened_while_it_is_deleted(tmp_path):
    """It is made again, and is another one; without `create` it is not there."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs(cursor_ms=10**6)
            await filled(logs)
            first = await logs.cursor("a", "x", start=9)
            gate = Gate(other.bk.store.records, "write")
            opening = asked(other.cursor("a", "x", start=3))
            await gate.reached
            await logs.delete_cursor("a", "x")
            gate.open()
            cursor = await opening
            assert cursor.mark == 3
            await failing(asked(first.persist()), NoSuchCursor)
            assert await given(cursor, max_records=2) == [3, 4]

    run(story)


def test_many_at_once(tmp_path):
    """Openers of one cursor end in one holder, and all that was acknowledged and stored counts."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await filled(logs)
            others = [await world.logs(cursor_ms=10**6) for _ in range(4)]
            cursors = await gatherResults([asked(each.cursor("a", "x", start="begin")) for each in others])
            stored = set()
            for index, cursor in enumerate(cursors, 5):
                try:
                    cursor.ack(index)
                    await cursor.persist()
                except LogFenced:
                    continue
                stored.add(index)
            assert len(stored) == 1
            last = await logs.cursor("a", "x")
            assert set(range(20)) - set(await given(last)) == stored

    run(story)
