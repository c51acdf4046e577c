"""The value of a cursor, changed: upon the version that is replaced, also after conflicts and lost answers."""

from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.log.streams import cursors
from quire.log.streams.record import CursorRecord
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogDamaged, LogTrimmed, NoSuchCursor, UnknownFormat
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import filled
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def asked(coroutine):
    return Deferred.fromCoroutine(coroutine)


def to(mark):
    """A change of the mark; not wanted when it is there."""

    async def change(value):
        return None if value.mark == mark else replace(value, mark=mark)

    return change


def test_conflicts(tmp_path):
    """Of two handles: each change is applied to what the other one wrote; a stale one is read again first."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            one = await cursors.make(log, "c", 5)
            two = await cursors.find(log, "c")
            assert (await one.change(to(6))).mark == 6
            assert (await two.change(to(7))).mark == 7

            async def both(value):
                return replace(value, properties={"mark": value.mark})

            assert (await one.change(both)).properties == {"mark": 7}
            assert (await two.change(to(6))).properties == {"mark": 7}
            assert (await one.change(to(7))).mark == 7
            await log.records.delete(one.path, (await log.records.read(one.path)).version)
            await failing(asked(one.change(to(9))), NoSuchCursor)
            await failing(asked(one.read()), NoSuchCursor)

    run(story)


def test_lost_answers(tmp_path):
    """Called again with the same id it is done once, in one step with the manifest, too."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            record = await cursors.make(log, "c", 5)
            for change in (record.change, record.change_held):
                calls = []

                async def once(value, calls=calls):
                    calls.append(value.mark)
                    return replace(value, mark=value.mark + 1)

                for applied in (True, False):
                    before = (await record.read()).value.mark
                    faults = [Fault(error=MetaStore("lost"), applied=applied)]
                    logs.bk.store.faults = lambda name, _arguments, faults=faults: (
                        faults.pop() if name == "transact" and faults else None
                    )
                    await failing(asked(change(once, f"edit{before}")), MetaStore)
                    assert (await change(once, f"edit{before}")).mark == before + 1
                    assert (await change(once, f"edit{before}")).mark == before + 1

    run(story)


def test_a_mark_that_moves_back_moves_the_manifest(tmp_path):
    """Not below the first record of the log."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            record = await cursors.make(log, "c", 9)
            before = (await log.records.read(log.path)).version
            assert (await record.change_held(to(7))).mark == 7
            assert (await log.records.read(log.path)).version == before + 1
            assert await logs.trim("a", 7) == 7
            error = await failing(asked(record.change_held(to(6))), LogTrimmed)
            assert error.begin == 7
            assert (await record.read()).value.mark == 7

    run(story)


def test_a_value_that_can_t_be_understood(tmp_path):
    """Its cursor, log and record are named."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            log = await filled(logs)
            for data, kind in ((b"{}", LogDamaged), (b'{"quire":"cursor","format":2}', UnknownFormat)):
                record = CursorRecord(log, f"id{len(data)}", "billing")
                await log.records.create(record.path, data)
                error = await failing(asked(record.read()), kind)
                assert "the cursor 'billing' of the log 'a'" in str(error)

    run(story)
