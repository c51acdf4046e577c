"""What is still needed of a log is there once it has moved, or the log stays: nothing goes that is nowhere else."""

import pytest

from quire.log.clusters.moving import Move
from quire.log.core.moving import HoldCopy
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote, set_aside
from quire.protocol.log_errors import LogError, LogIsMirror
from tests.log.clusters.test_moving import KilledMove, content, filled, numbers
from tests.log.clusters.two_clusters import played
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0


async def mirrored(two, **settings):
    """A mirror keeps a copy of all records of that log."""
    mirror = Mirror(await two.here.logs(), "orders", await two.there.logs())
    await mirror.begin()
    await mirror.copy_until()
    await mirror.close()


async def first(logs, name="billing"):
    """The index of the first record that a cursor has before it."""
    cursor = await logs.cursor("orders", name, create=False)
    found = await cursor.read(1, timeout=5)
    await cursor.close()
    return found[0].index


def test_what_a_cursor_has_before_it_is_kept_while_the_log_is_copied(tmp_path):
    """The copy's upkeep deletes nothing by age or size until the cursor is there; then it does as ever."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 50, retention_bytes=0)).close()
        await (await logs.cursor("orders", "billing", start=5)).close()
        await KilledMove("copied").run(two)
        there = await two.there.logs()
        assert (await there.tidy()).expired == {}
        await failing(there.trim("orders", 30), ValueError)
        await Move(await two.logs(), "orders", "there").run()
        await there.tidy()
        assert await first(logs) == 5
        cursor = await logs.cursor("orders", "billing")
        await cursor.seek(50)
        await cursor.close()
        await there.tidy()
        assert (await there.info("orders")).begin > 5
        assert not (await there.info("orders")).origins[-1].held

    played(tmp_path, story)


def test_a_log_stays_where_its_copy_lacks_what_a_cursor_has_before_it(tmp_path):
    """A mirror's copy was trimmed by its own clock: nothing is changed, and another copy has all of it."""

    async def story(two):
        logs, there = await two.logs(), await two.there.logs()
        owner = await filled(logs, 50, retention_bytes=0)
        await (await logs.cursor("orders", "billing", start=5)).close()
        await mirrored(two)
        await there.tidy()
        begin = (await there.info("orders")).begin
        assert begin > 5
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert f"begins at index {begin}, and the cursor 'billing' needs the log from index 5 on" in str(error)
        assert (await owner.append(b"50")).index == 50
        assert [hold.needs for hold in await there.holds("orders")] == [begin]
        assert await Move(logs, "orders", "there").abort() == "here"
        assert await there.holds("orders") == []
        await set_aside(there, "orders", "orders-before")
        await Move(logs, "orders", "there").run()
        assert await first(logs) == 5
        assert (await owner.append(b"51")).index == 51
        await owner.close()

    played(tmp_path, story)


def test_a_cursor_that_goes_back_at_the_last_moment_keeps_the_log(tmp_path, monkeypatch):
    """It is where the copy begins, and goes back right before the fence, in whose very step that is seen."""

    async def story(two):
        logs, there, here = await two.logs(), await two.there.logs(), await two.here.logs()
        await (await filled(logs, 50)).close()
        cursor = await here.cursor("orders", "billing", start=40)
        await mirrored(two)
        await there.trim("orders", 40)
        fence = Mirror.fence

        async def fenced(*args):
            await cursor.seek(7)
            return await fence(*args)

        monkeypatch.setattr(Mirror, "fence", fenced)
        await failing(Move(logs, "orders", "there").run(), LogError)
        await cursor.close()
        owner = await here.own("orders")
        assert (await owner.append(b"50")).index == 50
        await owner.close()
        assert await first(here) == 7

    played(tmp_path, story)


def test_no_cursor_is_lifted(tmp_path):
    """A copy that lost records behind the fence, whatever did that: the log is not left for it."""

    async def story(two):
        logs, there = await two.logs(), await two.there.logs()
        await (await filled(logs, 50, retention_bytes=0)).close()
        await (await logs.cursor("orders", "billing", start=5)).close()
        await KilledMove("fenced").run(two)
        copy = await there.context("orders")
        await copy.log.edit(HoldCopy((await (await two.here.logs()).info("orders")).id, False))
        await there.tidy()
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert "--promote" in str(error)
        here = await two.here.logs()
        assert await content(here) == numbers(50)
        await promote(here, "orders")
        assert await first(here) == 5

    played(tmp_path, story)


def test_a_snapshot_keeps_what_a_replica_reads_behind_it(tmp_path):
    """A mirror's copy that was made before the log had a replica was trimmed further: the log stays."""

    async def story(two):
        logs, there = await two.logs(), await two.there.logs()
        await (await filled(logs, 50)).close()
        await mirrored(two)
        await there.trim("orders", 40)
        await logs.update("orders", needs_snapshot=True)
        await logs.save_snapshot("orders", 20, [b"20"], "Count")
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert "the newest snapshot needs the log from index 20 on" in str(error)

    played(tmp_path, story)


def test_what_the_log_lacks_itself_is_not_asked_of_its_copy(tmp_path):
    """A log that was trimmed before it was to have snapshots moves, for its copy begins where it begins."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 50)).close()
        await logs.trim("orders", 20)
        await logs.update("orders", needs_snapshot=True)
        await Move(logs, "orders", "there").run()
        assert await content(logs) == numbers(50, 20)

    played(tmp_path, story)


def test_settings_are_those_of_the_log(tmp_path):
    """Also those that were set since a mirror made the copy; how many bookies keep it is a matter of each cluster."""

    async def story(two):
        logs, there = await two.logs(), await two.there.logs()
        await (await filled(logs, 20)).close()
        await mirrored(two)
        await there.update("orders", ensemble=2, write=2, ack=2)
        await logs.update("orders", retention_ms=3_600_000, publish=False, lease_ms=1000, write=2, ack=1)
        wanted = (await logs.info("orders")).settings | {"ensemble": 2, "write": 2, "ack": 2}
        await Move(logs, "orders", "there").run()
        assert (await there.info("orders")).settings == wanted
        owner = await logs.own("orders")
        assert (await owner.append(b"20")).index == 20
        await owner.close()

    played(tmp_path, story)


def test_a_log_stays_where_its_copy_does_not_know_the_producers(tmp_path):
    """`dedup` was set since a mirror made the copy, and what was sent since then is to be recognised."""

    async def story(two):
        logs, there = await two.logs(), await two.there.logs()
        await (await filled(logs, 20)).close()
        await mirrored(two)
        await logs.update("orders", dedup=True)
        owner = await logs.own("orders")
        await owner.append(b"20", producer="till", sequence=7)
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert "before `dedup` was set" in str(error)
        await Move(logs, "orders", "there").abort()
        await set_aside(there, "orders", "orders-before")
        await Move(logs, "orders", "there").run()
        assert (await owner.append(b"20", producer="till", sequence=7)).duplicate
        await owner.close()

    played(tmp_path, story)


def test_nothing_is_changed_where_the_log_leaves(tmp_path):
    """Behind the fence settings and cursors are those that are carried: a change is refused, or made where it goes."""

    async def story(two):
        logs, here = await two.logs(), await two.here.logs()
        await (await filled(logs, 20)).close()
        await (await logs.cursor("orders", "billing", start="begin")).close()
        await KilledMove("carried").run(two)
        await failing(here.update("orders", roll_records=7), LogIsMirror)
        await failing(here.delete_cursor("orders", "billing"), LogIsMirror)
        await Move(await two.logs(), "orders", "there").run()
        await logs.update("orders", roll_records=7)
        await logs.delete_cursor("orders", "billing")
        there = await two.there.logs()
        assert (await there.info("orders")).settings["roll_records"] == 7
        assert [each async for each in there.cursors("orders")] == []

    played(tmp_path, story)


@pytest.mark.parametrize("kept", ["child records", "compaction"])
def test_a_log_with_what_does_not_move_stays(tmp_path, kept):
    """Child records, and what a compaction keeps of records that were trimmed: nothing is begun."""

    async def story(two):
        logs, here = await two.logs(), await two.here.logs()
        if kept == "child records":
            await logs.create("orders", cluster="here", children={"index": b"1"})
        else:
            owner = await filled(logs, 30, compaction=True)
            await owner.close()
            await logs.compact("orders")
            await logs.trim("orders", 10)
        error = await failing(Move(logs, "orders", "there").run(), LogError)
        assert kept in str(error)
        owner = await here.own("orders")
        await owner.append(b"x")
        await owner.close()
        assert [name async for name in (await two.there.logs()).names()] == []

    played(tmp_path, story)
