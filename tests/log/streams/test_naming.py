"""Names of cursors: found, made beside trims, listed, taken away."""

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.streams.cursors import decode_pointer
from quire.log.store.editing import LogRecords
from quire.log.streams import cursors
from quire.log.streams.cursors import find, listed, make, unname
from quire.log.upkeep.trims import trim
from quire.protocol.log_errors import LogDamaged, LogFull, LogTrimmed, NoSuchCursor, NoSuchLog
from tests.log.fakes.behind import Behind
from tests.log.fakes.cluster import cluster
from tests.log.fakes.gate import Gate
from tests.log.upkeep.test_trims import filled, kept_of, records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


def test_names(tmp_path):
    """Any text; the one that was first is there for both; one made again is another one."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            await failing(asked(find(log, "a/ö")), NoSuchCursor)
            made = await make(log, "a/ö", 7)
            assert (await find(log, "a/ö")).id == made.id == (await make(log, "a/ö", 3)).id
            assert (await made.read()).value.mark == 7
            await make(log, "b", "begin")
            assert [record.name async for record in listed(log)] == ["a/ö", "b"]
            assert (await unname(log, "a/ö")).id == made.id
            await failing(asked(unname(log, "a/ö")), NoSuchCursor)
            await failing(asked(made.read()), NoSuchCursor)
            assert [record.name async for record in listed(log)] == ["b"]
            assert (await make(log, "a/ö", 7)).id != made.id
            await failing(asked(make(log, "", 7)), ValueError)

    run(story)


def test_a_cursor_beside_a_trim(tmp_path):
    """Made before the trim is done, it is seen; after it, it is below the first record."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            log = await filled(logs)
            gate = Gate(other.bk.store.records, "multi")
            trimming = asked(trim(await kept_of(other), 9))
            await gate.reached
            await make(log, "early", 5)
            gate.open()
            assert "the cursor 'early'" in str(await failing(trimming, ValueError))
            assert await logs.trim("a", 5) == 5
            error = await failing(asked(make(log, "late", 4)), LogTrimmed)
            assert error.begin == 5
            await failing(asked(find(log, "late")), NoSuchCursor)

    run(story)


def test_a_log_that_is_deleted_or_full(tmp_path, monkeypatch):
    """Takes no cursor."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            monkeypatch.setattr(cursors, "CURSORS_MAX", 2)
            await make(log, "a", 5)
            await make(log, "b", 5)
            await failing(asked(make(log, "c", 5)), LogFull)
            monkeypatch.setattr(cursors, "CURSORS_MAX", 9)
            await logs.delete("a")
            await failing(asked(make(log, "c", 5)), NoSuchLog)

    run(story)


def test_a_server_of_the_store_that_is_behind(tmp_path):
    """A cursor that it has not heard of is there."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=1), await world.logs()
            log = await filled(logs)
            behind = Behind(other)
            made = await make(log, "a", 5)
            theirs = LogRecords(other.bk.store.records, other.bk.reactor, other.bk.random, lambda: 0.0, log.log, "a")
            assert (await find(theirs, "a")).id == made.id
            assert behind.caught_up
            assert (await records_of(logs)).log == log.log

    run(story)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cursor":5}', b'{"cursor":"a/b"}', b'{"cursor":""}'])
def test_a_name_that_points_nowhere(data):
    """Is damage."""
    with pytest.raises(LogDamaged):
        decode_pointer(data)
