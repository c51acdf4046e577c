"""What keeps a log from being trimmed, and from which index on."""

from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.log.core.values import Begin, Compacted, Origin, Segment, Snapshot
from quire.log.store.holds import Hold, cursors, holds
from quire.protocol.log_errors import LogDamaged
from tests.log.store.test_editing import World, filled
from tests.log.upkeep.test_trims import cursor
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def kept():
    """A log, its handle and its manifest with one segment."""
    handle = await World().made()
    manifest = (await handle.read()).value
    segment = Segment(4, 7, 1, 40, 400, 10, 10, 1, (1, 1))
    return handle, replace(manifest, segments=(segment,), next=5)


def test_of_the_manifest():
    """The oldest kept snapshot, the compaction's horizon, the segment of the producers' table; each if it is on."""

    async def story():
        handle, manifest = await kept()
        assert await holds(handle, manifest) == []
        snapshots = tuple(Snapshot(index, 1, 1, 1, 1, "kv", 1) for index in (30, 20))
        for settings, members, wanted in (
            ({"needs_snapshot": True}, {}, 0),
            ({"needs_snapshot": True}, {"snapshots": snapshots}, 20),
            ({"compaction": True}, {}, 0),
            ({"compaction": True}, {"compacted": Compacted(11, 0, ())}, 12),
            ({"compaction": True}, {"compacted": Compacted(11, 0, ()), "begin": Begin(4, 40, 400)}, 0),
            ({"dedup": True}, {"table": 4}, 40),
            ({"dedup": True}, {"table": 3}, 0),
        ):
            (hold,) = await holds(handle, replace(manifest, settings=settings, **members))
            assert hold.needs == wanted, settings
        assert await holds(handle, replace(manifest, snapshots=snapshots, table=4)) == []

    run(story)


def test_of_cursors():
    """Each one's mark; not of one that is being deleted; one that can't be understood keeps everything."""

    async def story():
        handle, manifest = await kept()
        folder = f"{handle.path}/cursor"
        for number in range(3):
            await handle.records.create(f"{folder}/c{number}", cursor(10 + number, name=f"n{number}"))
        await handle.records.create(f"{folder}/old", cursor(1, "deleting"))
        assert set(await holds(handle, manifest)) == {
            Hold(f"the cursor 'n{number}'", 10 + number) for number in range(3)
        }
        assert [name for name, _found in await cursors(handle)] == ["c0", "c1", "c2", "old"]
        await handle.records.create(f"{folder}/bad", b"{}")
        await failing(Deferred.fromCoroutine(holds(handle, manifest)), LogDamaged)

    run(story)


def test_a_table_in_a_chunk():
    """Its first index is in the chunk."""

    async def story():
        world = World()
        handle = await world.made()
        await filled(world, handle)
        from quire.log.core.edits import Me, OpenSegment

        manifest = (await handle.edit(OpenSegment(Me("mine", 1), 9000))).manifest
        (hold,) = await holds(handle, replace(manifest, settings={"dedup": True}, table=5))
        assert hold.needs == 50

    run(story)


def test_of_a_move():
    """A copy that its log is to move to is not trimmed at all, until it is promoted."""

    async def story():
        handle, manifest = await kept()
        for origin, wanted in (
            (Origin("c", "log"), []),
            (Origin("c", "log", held=True), [40]),
            (Origin("c", "log", end=50, held=True), []),
        ):
            found = await holds(handle, replace(manifest, begin=Begin(4, 40, 400), origins=(origin,)))
            assert [hold.needs for hold in found] == wanted

    run(story)
