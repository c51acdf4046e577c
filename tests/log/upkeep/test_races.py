"""
Upkeep and who uses the log at the same time, by name and in both orders: a trim and a cursor, a delete and a cursor, a
delete and a stale owner, the search for orphans and a part, tidying and a chunk, and clocks that jump.
"""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.log.core import edits
from quire.metadata.clock import time_of_day
from quire.protocol.log_errors import LogFenced, LogTrimmed, NoSuchCursor, NoSuchLog, NotOwner
from tests.log.fakes.cluster import cluster, values
from tests.log.publish.test_sink import written
from tests.log.test_races import Gate, rolls
from tests.log.upkeep.test_trims import WANTED, filled, records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def orphans_of(logs):
    """Found and deleted."""
    return [each async for each in logs.orphans(True, really=True, grace_s=0.0)]


async def acked(cursor, index):
    cursor.ack(index)
    await cursor.persist()


async def marks_of(logs):
    return [info.mark async for info in logs.cursors("a")]


@pytest.mark.parametrize("what", ["a new cursor", "a seek back"])
@pytest.mark.parametrize("first", ["trim", "cursor"])
def test_r17_a_trim_and_a_cursor(tmp_path, what, first):
    """
    Which is made, or goes back, to where the log is trimmed: it is told what was trimmed, and stays as it was; or the
    trim is told of it, and nothing goes.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two, three = [await world.logs(batch_bytes=1) for _ in range(3)]
            await filled(three)
            cursor = await one.cursor("a", "billing", start=15) if what == "a seek back" else None
            before = await marks_of(three)

            def moved():
                return asked(one.cursor("a", "billing", start=4) if cursor is None else cursor.seek(4))

            gate = Gate(one if first == "trim" else two, lambda _manifest: True)
            if first == "trim":
                moving = moved()
                await gate.met
                assert await two.trim("a", 9) == 9
                gate.open()
                assert (await failing(moving, LogTrimmed)).begin == 9
                assert await marks_of(three) == before
                assert await values(await three.read("a")) == WANTED[9:]
            else:
                trimming = asked(two.trim("a", 9))
                await gate.met
                await moved()
                gate.open()
                assert "the cursor 'billing' needs it from index 4" in str(await failing(trimming, ValueError))
                assert await marks_of(three) == [4]
                assert await two.trim("a", 4) == 4
            if cursor is not None:
                found = [record.index for record in await cursor.read()]
                assert found == list(range(15 if first == "trim" else 4, 20))

    run(story)


@pytest.mark.parametrize("first", ["delete", "cursor", "its ledger"])
def test_r21_a_delete_and_a_cursor(tmp_path, first):
    """
    One that comes after the delete finds no log; one that was there goes with it, and its holder is told, also where
    it was about to name a ledger.  Nothing is left.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, two = [await world.logs(batch_bytes=1, cursor_ms=10**6) for _ in range(2)]
            await filled(two)
            if first == "delete":
                gate = Gate(one, lambda _manifest: True)
                making = asked(one.cursor("a", "billing", start="begin"))
                await gate.met
                await two.delete("a")
                gate.open()
                await failing(making, NoSuchLog)
            else:
                cursor = await one.cursor("a", "billing", start="begin")
                cursor.ack(3)
                gate = HeldWrite(one) if first == "its ledger" else None
                storing = asked(cursor.persist())
                await (storing if gate is None else gate.met)
                await two.delete("a")
                await two.tidy()
                if gate is not None:
                    gate.open()
                    await failing(storing, NoSuchCursor, NoSuchLog)
                else:
                    await failing(asked(acked(cursor, 5)), NoSuchCursor, NoSuchLog)
            await two.tidy()
            await orphans_of(two)
            assert await two.bk.ledger_ids() == []
            assert [name async for name in two.names()] == []

    run(story)


class HeldWrite:
    """Holds the first write of a cursor's value that names a ledger back until it is opened."""

    def __init__(self, logs):
        self._records = logs.bk.store.records
        self._multi, self._write = self._records.multi, self._records.write
        self._records.multi = lambda steps: self._held(
            self._multi, any("/cursor/" in step.path for step in steps), steps
        )
        self._records.write = lambda path, *more: self._held(self._write, "/cursor/" in path, path, *more)
        self.met, self._opened = Deferred(), Deferred()

    def _held(self, operation, wanted, *arguments):
        if wanted and not self.met.called:
            self.met.callback(None)
            return self._opened.addCallback(lambda _: operation(*arguments))
        return operation(*arguments)

    def open(self):
        self._opened.callback(None)


@pytest.mark.parametrize("first", ["delete", "owner"])
@pytest.mark.parametrize("tidied", [False, True])
def test_r22_a_log_made_again_and_a_stale_owner(tmp_path, first, tidied):
    """
    Whose edit comes when another log has the name, or whose segment was open before: it is told, and nothing of it is
    in the new log.
    """

    async def story():
        async with cluster(tmp_path) as world:
            stale, other = [await world.logs() for _ in range(2)]
            await other.create("a", roll_records=5)
            owner, lost = await stale.own("a"), Deferred()
            owner.on_lost = lambda: lost.callback(None)
            for number in range(3):
                await owner.append(b"old %d" % number)
            gate = Gate(stale, rolls) if first == "delete" else None
            if gate is not None:
                owner.roll()
            late = owner.append(b"late")
            await (late if gate is None else gate.met)
            await other.delete("a")
            if tidied:
                await other.tidy()
            former = (await other.create("a")).id
            assert former == (await other.info("a")).id
            if gate is not None:
                gate.open()
                await failing(late, NoSuchLog, LogFenced)
                await failing(owner.append(b"behind"), NoSuchLog, LogFenced, NotOwner)
            await lost
            await failing(owner.append(b"later"), NoSuchLog, LogFenced, NotOwner)
            await owner.close()
            assert await values(await other.read("a")) == []
            assert (await other.info("a")).epoch == 0
            successor = await other.own("a")
            assert (await successor.append(b"new")).index == 0
            await successor.close()
            await other.tidy()
            await orphans_of(other)
            assert await values(await other.read("a")) == [b"new"]
            assert len(await other.bk.ledger_ids()) == 1

    run(story)


@pytest.mark.parametrize("first", ["finder", "part"])
def test_r23_the_search_for_orphans_and_a_part(tmp_path, first):
    """
    By one whose clock is a year ahead: a ledger that a part's intent names is none, neither where the part was begun
    before the search nor where it was published in its middle.
    """

    async def story():
        async with cluster(tmp_path) as world:
            one, finder = await world.logs(), await world.logs(now=lambda: time_of_day() + YEAR_S)
            await one.create("a")
            sink = await one.sink("a", "facts", "run")
            if first == "part":
                part = await sink.part(0, 0, 0)
                await part.append_many([b"0"])
                assert [each async for each in finder.orphans(True, really=True)] == []
                await part.append_many([b"1"])
                await sink.commit(0, [await part.close()])
            else:
                commit = asked(sink.commit(0, [await written(sink, 0, 0, [b"0", b"1"])]))
                search = finder.bk.store.records.sync
                finder.bk.store.records.sync = lambda: commit.addCallback(lambda _receipt: search())
                assert [each async for each in finder.orphans(True, really=True)] == []
                assert commit.called
            assert await values(await one.read("a")) == [b"0", b"1"]

    run(story)


@pytest.mark.parametrize("first", ["tidy", "chunk"])
def test_r24_tidying_and_a_chunk_that_is_about_to_be_named(tmp_path, monkeypatch, first):
    """
    It looks old, for its writer's clock is behind.  Where it goes before it is named it is made again; where it is
    named first it stays.
    """
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)

    async def story():
        async with cluster(tmp_path) as world:
            one = await world.logs(batch_bytes=1, now=lambda: time_of_day() - 2 * HOUR_S)
            two = await world.logs()
            await one.create("a", roll_records=1)
            owner = await one.own("a")
            for number in range(8):
                await owner.append(b"%d" % number)
            naming = Gate(one, lambda manifest: bool(manifest.chunks))
            following = owner.append(b"8")
            await naming.met
            records = await records_of(two)
            (early,) = await records.names(f"{records.path}/chunk")
            if first == "tidy":
                assert (await two.tidy()).chunks == 1
                naming.open()
                await following
            else:
                tidying = Held(two, "multi")
                report = asked(two.tidy())
                await tidying.met
                naming.open()
                await following
                tidying.open()
                assert (await report).chunks == 0
            (line,) = (await records.read()).value.chunks
            assert (line.c == early) is (first == "chunk")
            assert await values(await two.read("a"), 9) == [b"%d" % number for number in range(9)]
            await owner.close()
            assert (await two.tidy()).chunks == 0
            assert [each async for each in two.check("a")] == []

    run(story)


class Held:
    """Holds the first call of an operation of a process's records back until it is opened."""

    def __init__(self, logs, name):
        records = logs.bk.store.records
        real = getattr(records, name)
        self.met, self._opened = Deferred(), Deferred()

        def held(*arguments):
            if self.met.called:
                return real(*arguments)
            self.met.callback(None)
            return self._opened.addCallback(lambda _: real(*arguments))

        setattr(records, name, held)

    def open(self):
        self._opened.callback(None)


@pytest.mark.parametrize("wrong_s", [-HOUR_S, HOUR_S, YEAR_S])
def test_r26_a_clock_that_jumps(tmp_path, wrong_s):
    """
    Stamps never fall, neither of the owner whose clock jumps there and back nor of the next one; nothing of the log
    goes by age while they lie in the future, and what is old goes when it is.
    """

    async def story():
        async with cluster(tmp_path) as world:
            set_by = [0]
            one = await world.logs(batch_bytes=1, now=lambda: time_of_day() + set_by[0])
            two = await world.logs()
            await two.create("a", roll_records=2, retention_ms=HOUR_S * 1000 // 2)
            owner = await one.own("a")
            for number in range(9):
                set_by[0] = wrong_s if number in {3, 4, 5} else 0
                await owner.append(b"%d" % number)
            set_by[0] = wrong_s
            assert (await one.tidy()).expired == {}
            await owner.close()
            owner = await two.own("a")
            await owner.append(b"9")
            await owner.close()
            reader = await two.read("a")
            stamps = [record.stamp_ms async for batch in reader.batches() for record in batch.records()]
            assert len(stamps) == 10
            assert stamps == sorted(stamps)
            assert max(stamps) >= (time_of_day() + max(0, wrong_s)) * 1000 - 600_000
            assert (await two.tidy()).expired == {}
            later = await world.logs(now=lambda: time_of_day() + 2 * YEAR_S)
            later.bk.store.records.clock = later_clock
            assert list((await later.tidy()).expired.values()) == [9]

    run(story)


def later_clock():
    """Of a store, two years later."""
    return succeed(int((time_of_day() + 2 * YEAR_S) * 1000))
