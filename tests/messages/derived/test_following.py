"""Rows follow their log: opened again, foreign, damaged, trimmed, killed, and never above what is confirmed."""

import contextlib
import random
import shutil
import threading

import pytest

from quire.messages.core.queues import Placing
from quire.messages.derived import following as following_module
from quire.messages.derived import rows as r
from quire.messages.derived.directory import RowsDirectory
from quire.messages.derived.following import Following
from quire.protocol.errors import ClientClosed
from quire.protocol.log_errors import LogTrimmed, NoSuchLog, UnknownFormat
from quire.protocol.message_errors import BeyondEnd, MessageError, NoSuchStore, RowsForeign, StoreDamaged
from quire.rows.rocks import RocksRows
from tests.log.fakes.cluster import cluster
from tests.messages.derived.stores import NAME, ONE_BOOKIE, Dicts, fill, made, more, opened
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

RECORDS = [
    (("T", "U")[n % 2], n % 3, n // 6, {"body": bytes(50), "properties": b"KEYS\x01k%d\x02" % n}) for n in range(60)
]


async def closed(found):
    await found.following.close()


def test_rows_that_are_there_are_used(tmp_path):
    """A second start dispatches what is new; the rows are those of one go, from the same log."""
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts, steps = await world.logs(), Dicts(), []
            await fill(logs, values[:30])
            found = await opened(logs, tmp_path / "one", dicts, reached=steps.append)
            await found.caught_up()
            await closed(found)
            before = len(steps)
            await more(logs, values[30:])
            found = await opened(logs, tmp_path / "one", dicts, reached=steps.append)
            assert found.following.index == 30
            await found.caught_up()
            assert len(steps) > before
            assert found.following.rebuilds == 0
            await closed(found)
            whole = Dicts()
            found = await opened(logs, tmp_path / "two", whole)
            await found.caught_up()
            await closed(found)
            assert dicts.only.as_dict() == whole.only.as_dict()

    run(story)


def test_what_waits_for_the_thread_is_looked_at_there(tmp_path, monkeypatch):
    """On the reactor entries are counted by their size alone; all of them get rows, however little may wait."""
    monkeypatch.setattr(following_module, "WAITING_BYTES_MAX", 1)
    looked, portion_of = [], following_module.Portion.of

    def of(batch):
        looked.append((threading.current_thread().name, batch.count))
        return portion_of(batch)

    monkeypatch.setattr(following_module.Portion, "of", of)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs = await world.logs()
            await fill(logs, made(RECORDS), a_batch=7)
            found = await opened(logs, tmp_path / "rows", Dicts())
            await found.caught_up()
            await closed(found)

    run(story)
    assert {name for name, _count in looked} == {f"messages {NAME}"}
    assert sum(count for _name, count in looked) == len(RECORDS)


@pytest.mark.long
def test_rows_that_are_deleted_at_any_moment_come_again(tmp_path):
    """Byte for byte, at twenty moments of a log that grows, from RocksDB as from dicts."""
    values = made([("T", n % 5, n // 5, {"properties": b"KEYS\x01k%d\x02" % n}) for n in range(400)])
    chance = random.Random(11)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, twin, done = await world.logs(), Dicts(), 0
            await logs.create(NAME, roll_records=70, **ONE_BOOKIE)
            for moment in range(20):
                count = chance.randint(1, 20)
                await more(logs, values[done : done + count], a_batch=chance.randint(1, 9))
                done += count
                kept = await opened(logs, tmp_path / "kept", twin)
                await kept.caught_up()
                found = await opened(logs, tmp_path / "deleted")
                await found.caught_up()
                await closed(kept)
                await closed(found)
                rows = RocksRows(f"{found.following.path}/rows")
                assert dict(rows.scan(b"", b"\xff")) == twin.only.as_dict()
                rows.close()
                if moment % 4:
                    shutil.rmtree(found.following.path)

    run(story, 120)


def test_rows_of_another_log_are_refused(tmp_path):
    """By the marker, and by the checkpoint where a directory's contents were copied."""

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, made(RECORDS[:7]))
            await fill(logs, made(RECORDS[:9]), name="other")
            ids = [(await logs.info(name)).id for name in (NAME, "other")]
            for name in (NAME, "other"):
                found = await opened(logs, tmp_path / "derived", dicts, name=name)
                while found.following.index < 7:
                    await found.following.more(0.05)
                await closed(found)
            mine, others = (str(tmp_path / "derived" / id_ / "rows") for id_ in ids)
            dicts.rows[mine] = dicts.rows[others]
            with pytest.raises(RowsForeign, match=f"{tmp_path}/derived/{ids[0]} has rows of the log {ids[1]}"):
                await opened(logs, tmp_path / "derived", dicts)
            (tmp_path / "derived" / ids[1]).rename(tmp_path / "away")
            (tmp_path / "derived" / ids[0]).rename(tmp_path / "derived" / ids[1])
            with pytest.raises(RowsForeign, match=f"{ids[0]}, made from it.*these are rows of the log {ids[1]}"):
                await opened(logs, tmp_path / "derived", dicts, name="other")

    run(story)


def test_rows_of_a_newer_format_are_refused(tmp_path):
    """With the directory; those of an older one, or without a checkpoint, are made again."""

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, made(RECORDS))
            found = await opened(logs, tmp_path / "derived", dicts)
            await found.caught_up()
            await closed(found)
            whole, value = dicts.only.as_dict(), dicts.only.get(b"d")
            dicts.only.write([(b"d", b"\0\2" + value[2:])])
            with pytest.raises(UnknownFormat, match=f"{tmp_path}/derived/.*format 2.*newer quire"):
                await opened(logs, tmp_path / "derived", dicts)
            for harm in (lambda rows: rows.write([(b"d", b"\0\0" + value[2:])]), lambda rows: rows.write([], [b"d"])):
                dicts.only.write([(b"q stray", b"")])
                harm(dicts.only)
                found = await opened(logs, tmp_path / "derived", dicts)
                await found.caught_up()
                await closed(found)
                assert dicts.only.as_dict() == whole

    run(story)


@pytest.mark.parametrize("harm", ["above", "sum", pytest.param("position", marks=pytest.mark.long)])
def test_rows_whose_checkpoint_is_not_in_the_log_are_made_again(tmp_path, monkeypatch, harm):
    """Above the readable end, of another value, at another place: nothing is served before."""
    monkeypatch.setattr(following_module, "CHECK_S", 0.1)
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, values)
            found = await opened(logs, tmp_path / "derived", dicts)
            await found.caught_up()
            await closed(found)
            whole = dicts.only.as_dict()
            known = r.checkpoint_of(whole[b"d"])
            changed = {
                "above": known._replace(index=known.index + 1),
                "sum": known._replace(crc=known.crc ^ 1),
                "position": known._replace(position=known.position + 1),
            }[harm]
            dicts.only.write([(b"d", r.checkpoint_value(changed)), (r.queue_key("T", 0, 99), b"stray")])
            found = await opened(logs, tmp_path / "derived", dicts)
            assert found.following.rebuilds == 1
            assert (await found.reads.get(values[3].position)).position == 0  # while rows are made
            await found.caught_up()
            await closed(found)
            assert dicts.only.as_dict() == whole

    run(story)


def test_rows_of_what_was_trimmed(tmp_path):
    """
    They go, and nothing else does; reads below are `LogTrimmed`.  Rows whose last record was trimmed are made again,
    and then records have the positions that they had.
    """
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts, steps = await world.logs(), Dicts(), []
            await fill(logs, values[:10], a_batch=5, roll_records=5)
            behind = await opened(logs, tmp_path / "behind", late := Dicts())
            await behind.caught_up()
            await closed(behind)
            await more(logs, values[10:], a_batch=5)
            found = await opened(logs, tmp_path / "derived", dicts, reached=steps.append)
            await found.caught_up()
            whole = dicts.only.as_dict()
            assert await logs.trim(NAME, 40) == 40
            begin = values[40].position
            await more(logs, made([("T", 0, 10)], first=values[-1].position + len(values[-1].value)))
            while found.following.begin < begin or "trim.rows" not in steps:
                await found.following.more(0.05)
            with pytest.raises(LogTrimmed):
                await found.reads.get(values[39].position)
            assert (await found.reads.get(values[40].position)).offset == begin
            assert await found.reads.query("T", "k8") == []
            again = await opened(logs, tmp_path / "again", again_dicts := Dicts())
            await again.caught_up()
            await found.caught_up()
            for topic in ("T", "U"):
                for queue in range(3):
                    assert await found.reads.bounds(topic, queue) == await again.reads.bounds(topic, queue)
                    pulled, other = [await each.reads.pull(topic, queue, 8) for each in (found, again)]
                    assert pulled == other
                    assert (await found.reads.pull(topic, queue, 0)).status == "OFFSET_TOO_SMALL"
            await closed(again)
            await closed(found)
            left = dicts.only.as_dict()
            kept = again_dicts.only.as_dict()
            kinds = (b"q", b"o", b"k")
            assert {key for key in left if key[:1] in kinds} == {key for key in kept if key[:1] in kinds}
            gone = set(whole) - set(left)
            assert all(r.key_row(key, whole[key])[0] < begin for key in gone if key[:1] == b"k")
            found = await opened(logs, tmp_path / "behind", late)
            assert found.following.rebuilds == 1
            await found.caught_up()
            await closed(found)

    run(story)


def test_a_log_that_is_trimmed_past_its_rows(tmp_path, monkeypatch):
    """Rows that could not be written for so long are made again from the begin."""
    monkeypatch.setattr(following_module, "AGAIN_S", 0.02)
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, values[:5], a_batch=5, roll_records=5)
            found = await opened(logs, tmp_path / "derived", dicts)
            await found.caught_up()
            rows, failed = dicts.only, []

            def full(puts, _deletes=()):
                failed.append(len(puts))
                raise OSError(28, "No space left on device")

            rows.write = full
            await more(logs, values[5:], a_batch=5)
            while not failed:
                await found.following.more(0.02)
            assert await logs.trim(NAME, 30) == 30
            while not found.following.rebuilds:
                await found.following.more(0.02)
            await found.caught_up()
            assert found.following.failure is None
            assert dicts.only is not rows
            assert tuple(await found.reads.bounds("T", 0)) == (5, 10)
            await closed(found)

    run(story)


def test_nothing_above_the_last_add_confirmed_is_given(tmp_path):
    """Bookies hold an entry that its owner has not said to be confirmed: no call returns anything of it."""
    values = made([("T", 0, n, {"properties": b"KEYS\x01k\x02UNIQ_KEY\x01u%d\x02" % n}) for n in range(2)])

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, other = await world.logs(lac_ms=60_000), await world.logs()
            await logs.create(NAME, **ONE_BOOKIE)
            owner = await logs.own(NAME)
            for each in values:
                await owner.append(each.value)  # acknowledged: bookies hold it
            found = await opened(other, tmp_path / "derived")
            while found.following.index < 1:
                await found.following.more(0.05)
            reads, at = found.reads, values[1].position
            for call in (reads.get(at), reads.by_id(f"7F00000100002A9F{at:016X}")):
                with pytest.raises(BeyondEnd) as raised:
                    await call
                assert raised.value.end == at
            assert (await reads.pull("T", 0, 0)).next == 1
            assert (await reads.pull("T", 0, 1)).status == "OFFSET_OVERFLOW_ONE"
            assert [each.position for each in await reads.query("T", "k")] == [0]
            assert await reads.by_unique_id("T", "u1") == []
            assert await reads.offset_by_time("T", 0, 1 << 60) == 1
            assert len(await reads.listing("T", 0, 0, 9)) == 1
            assert tuple(await reads.bounds("T", 0)) == (0, 1)
            assert found.following.index == 1
            await owner.close()
            await found.caught_up()
            assert (await reads.get(at)).position == 1
            await closed(found)

    run(story)


def test_the_second_process_is_told(tmp_path):
    """With the directory's name; the first goes on."""

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs = await world.logs()
            await fill(logs, made(RECORDS))
            found = await opened(logs, tmp_path / "derived")
            with pytest.raises(MessageError, match=f"another process uses the rows in {tmp_path}/derived"):
                await opened(logs, tmp_path / "derived")
            await found.caught_up()
            await closed(found)
            await closed(found)

    run(story)


def test_another_log_of_the_name_is_found_out(tmp_path):
    """A store that was deleted, and made again under its name, is opened again by its user."""

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs = await world.logs()
            await fill(logs, made(RECORDS[:3]))
            id_ = (await logs.info(NAME)).id
            await logs.delete(NAME)
            with pytest.raises(NoSuchLog):
                await Following(logs, NAME, id_, Placing(), RowsDirectory(str(tmp_path / "a"), id_)).open()
            await fill(logs, made(RECORDS[:3]))
            with pytest.raises(NoSuchStore, match="is another log now"):
                await Following(logs, NAME, id_, Placing(), RowsDirectory(str(tmp_path / "b"), id_)).open()

    run(story)


@pytest.mark.long
def test_a_full_disk_is_waited_for(tmp_path, monkeypatch):
    """Some writes of rows fail, also behind others of the same turn: reads go on, and rows come once there is room."""
    monkeypatch.setattr(following_module, "AGAIN_S", 0.02)
    values = made([("T", 0, n, {"body": b"", "properties": b"KEYS\x01k%d\x02" % n}) for n in range(3000)])

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, values[:10])
            found = await opened(logs, tmp_path / "derived", dicts)
            await found.caught_up()
            rows, asked = dicts.only, []
            write = rows.write

            def full(puts, deletes=()):
                asked.append(len(puts))
                if len(asked) in (2, 3, 5):
                    raise OSError(28, "No space left on device")
                write(puts, deletes)

            rows.write = full
            await more(logs, values[10:], a_batch=1500)
            while len(asked) < 3:
                await found.following.more(0.02)
            assert found.following.failure is None
            assert (await found.reads.get(values[0].position)).position == 0
            await found.caught_up()
            await closed(found)
            assert len(asked) > 5
            again = await opened(logs, tmp_path / "again", fresh := Dicts())
            await again.caught_up()
            await closed(again)
            assert dicts.only.as_dict() == fresh.only.as_dict()

    run(story)


def test_an_error_while_rows_recover_is_waited_out(tmp_path, monkeypatch):
    """Rows that can't be read, or made again, right after a write of them failed: it is tried until it can be."""
    monkeypatch.setattr(following_module, "AGAIN_S", 0.02)
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts, failed = await world.logs(), Dicts(), []
            await fill(logs, values[:20])

            def failing(text, call=None, times=1):
                """Fails for the first times, and is that call from then on."""
                told = []

                def fails(*given):
                    if call is None or len(told) < times:
                        told.append(text)
                        failed.append(text)
                        raise OSError(text)
                    return call(*given)

                return fails

            def opens(path):
                return opening[0](path)

            opening = [dicts]
            found = await opened(logs, tmp_path / "derived", opens)
            await found.caught_up()
            rows = dicts.only
            rows.write, rows.get = failing("full", rows.write), failing("not read", rows.get, 2)
            await more(logs, values[20:40])
            await found.caught_up()
            assert (failed, found.following.rebuilds) == (["full", "not read", "not read"], 0)
            opening[0] = failing("not made", dicts, 2)
            rows.write = failing("Corruption: of a block")
            await more(logs, values[40:])
            while not found.following.rebuilds:
                await found.following.more(0.02)
                assert found.following.failure is None
            await found.caught_up()
            assert failed[3:] == ["Corruption: of a block", "not made", "not made"]
            assert dicts.only is not rows
            assert tuple(await found.reads.bounds("T", 0)) == (0, 10)
            await closed(found)

    run(story)


def test_rows_end_at_a_record_that_contradicts_the_queue(tmp_path):
    """What rows are asked then fails with the same words; what is found in the log itself does not."""
    values = made([("T", 0, 0), ("T", 0, 1), ("T", 0, 5)])

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs = await world.logs()
            await fill(logs, values, a_batch=1)
            found = await opened(logs, tmp_path / "derived")
            with contextlib.suppress(StoreDamaged):
                await found.caught_up()
            with pytest.raises(StoreDamaged, match="has position 5 in queue 0"):
                await found.reads.query("T", "k")
            assert (await found.reads.get(values[2].position)).position == 5
            await closed(found)

    run(story)


def test_logs_that_are_closed_under_it(tmp_path):
    """It ends, and whoever waits for rows is told; the reactor goes on."""

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            await fill(await world.logs(), made(RECORDS))
            logs = await world.logs()
            found = await opened(logs, tmp_path / "rows", Dicts())
            await found.caught_up()
            await logs.close()
            while found.following.failure is None:
                await found.following.more(60)
            assert isinstance(found.following.failure, ClientClosed)
            await closed(found)

    run(story)


def test_lag_is_told(tmp_path):
    """How many records have no rows yet."""
    values = made(RECORDS)

    async def story():
        async with cluster(tmp_path / "bookies", bookies=1) as world:
            logs, dicts = await world.logs(), Dicts()
            await fill(logs, values)
            found = await opened(logs, tmp_path / "derived", dicts)
            await found.caught_up()
            assert found.following.lag == 0
            assert (found.following.index, found.following.position) == (
                60,
                values[-1].position + len(values[-1].value),
            )
            await closed(found)

    run(story)
