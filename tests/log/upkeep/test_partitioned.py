"""Partitioned logs are made, grown and deleted as a whole, whichever step of it was the last one."""

import pytest
from twisted.internet.defer import Deferred, DeferredList

from quire.log.core.partitions import partition_name
from quire.log.streams import cursors
from quire.protocol.log_errors import LogExists, NoSuchLog
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import NEVER, READS, kill
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def names_of(logs):
    """The names of all logs, sorted."""
    return sorted([name async for name in logs.names()])


def refused(story, *kinds):
    """The error of a coroutine that must fail."""
    return failing(Deferred.fromCoroutine(story), *kinds)


async def interrupted(world, writes, work):
    """Ends a process at its step behind so many writes; True if the work was done before that."""
    logs = await world.logs()
    left, stopped = writes, Deferred()

    def fault(name, _arguments):
        nonlocal left
        if name in READS:
            return None
        left -= 1
        if left >= 0:
            return None
        if not stopped.called:
            stopped.callback(None)
        return NEVER

    logs.bk.store.faults = fault
    working = Deferred.fromCoroutine(work(logs))
    _result, which = await DeferredList([working, stopped], fireOnOneCallback=True, fireOnOneErrback=True)
    if which == 1:
        working.addErrback(lambda _failure: None)
        kill(logs)
        working.cancel()
    return which == 0


def test_a_partitioned_log_s_life(tmp_path):
    """Created, listed, grown, given settings, deleted; its partitions have the settings of the whole."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs = await world.logs()
            info = await logs.create("orders", partitions=3, retention_ms=5000, dedup=True)
            assert (info.settings["partitions"], info.settings["use"]) == (3, "partitions")
            names = [partition_name("orders", number) for number in range(3)]
            assert await logs.partitions("orders") == names
            assert await names_of(logs) == ["orders", *names]
            for name in names:
                settings = (await logs.info(name)).settings
                assert (settings["partition_of"], settings["use"], settings["partitions"]) == (info.id, "", 0)
                assert (settings["retention_ms"], settings["dedup"]) == (5000, True)
            await logs.update("orders", partitions=5, retention_ms=9000)
            assert await logs.partitions("orders") == [partition_name("orders", number) for number in range(5)]
            for name in await logs.partitions("orders"):
                assert (await logs.info(name)).settings["retention_ms"] == 9000
            await refused(logs.create("orders", partitions=5), LogExists)
            await logs.delete("orders")
            assert await names_of(logs) == []
            await refused(logs.delete("orders"), NoSuchLog)
            report = await logs.tidy()
            assert len(report.removed) == 6
            await logs.create("plain")
            assert await logs.partitions("plain") == ["plain"]

    run(story)


def test_what_can_t_be_is_refused(tmp_path):
    """Fewer partitions, partitions of a log with records, another use, another name; the error says what to do."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=4)
            await logs.create("plain")
            for name, partitions in (("orders", 3), ("orders", 0), ("plain", 2)):
                error = await refused(logs.update(name, partitions=partitions), ValueError)
                assert "only grows" in str(error)
            for wrong in ({"partitions": 2, "use": "messages"}, {"use": "partitions"}, {"partitions": 5000}):
                await refused(logs.create("other", **wrong), ValueError)
            await refused(logs.create("other", partition_of="0" * 32), ValueError)
            await refused(logs.create("other", partitions=2, begin_at=5), ValueError)
            await refused(logs.create("n" * 199, partitions=2), ValueError)
            await refused(logs.update("orders/1", partition_of=""), ValueError)
            for story in (
                logs.own("orders"),
                logs.terminate("orders"),
                logs.truncate("orders"),
                logs.trim("orders", 5),
                logs.compact("orders"),
                anext(logs.cursors("orders")),
                logs.seek("orders", 5),
                logs.cursor("orders", "c", start="begin"),
                logs.read("orders", "end"),
            ):
                assert "orders/0 to orders/3" in str(await refused(story, ValueError))
            reader = await logs.read("orders")
            await refused(anext(reader.batches()), ValueError)
            await refused(logs.rename("orders", "others"), ValueError)
            await refused(logs.rename("orders/1", "others"), ValueError)
            error = await refused(logs.delete("orders/1"), ValueError)
            assert "quire log delete orders" in str(error)
            assert await logs.partitions("orders") == [partition_name("orders", number) for number in range(4)]
            assert await names_of(logs) == ["orders", *await logs.partitions("orders"), "plain"]

    run(story)


def test_a_name_of_a_partition_that_is_taken(tmp_path):
    """Another log has the name of a partition: the error says so; once it has another one, the log is whole."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs = await world.logs()
            await logs.create("orders/1")
            error = await refused(logs.create("orders", partitions=3), LogExists)
            assert "quire log rename orders/1 NEW" in str(error)
            await logs.rename("orders/1", "other")
            assert len(await logs.partitions("orders")) == 3

    run(story)


def test_upkeep_of_a_whole_is_that_of_its_partitions(tmp_path):
    """A cursor is deleted in all of them; a round looks at each; a new partition has the cursors of the others."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=2)
            for name in await logs.partitions("orders"):
                await (await logs.cursor(name, "billing")).close()
            assert (await logs.tidy("orders")).logs == 2
            await logs.update("orders", partitions=3)
            (info,) = [info async for info in logs.cursors("orders/2")]
            assert (info.name, info.mark) == ("billing", 0)
            await logs.delete_cursor("orders", "billing")
            for name in await logs.partitions("orders"):
                assert [info async for info in logs.cursors(name)] == []

    run(story)


async def create(logs):
    await logs.create("orders", partitions=2)


async def grow(logs):
    await logs.update("orders", partitions=3, retention_ms=77)


async def delete(logs):
    await logs.delete("orders")


@pytest.mark.parametrize("repair", ["again", "partitions", "delete", "tidy"])
def test_a_creation_that_stops_after_any_step_is_finished(tmp_path, repair):
    """By the same call, by whoever looks for the partitions; or it is deleted whole, without a trace."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs, steps = await world.logs(), 0
            while not await interrupted(world, steps, create):
                steps += 1
                is_there = "orders" in await names_of(logs)
                if repair == "again":
                    if is_there:
                        await refused(create(logs), LogExists)
                    else:
                        await create(logs)
                elif not is_there:
                    await refused(logs.partitions("orders"), NoSuchLog)
                    continue
                elif repair == "partitions":
                    await logs.partitions("orders")
                elif repair == "tidy":
                    await logs.tidy("orders")
                if repair != "delete":
                    assert await names_of(logs) == ["orders", "orders/0", "orders/1"]
                await logs.delete("orders")
                assert await names_of(logs) == []
            assert steps >= 3

    run(story)


def test_a_growth_that_stops_after_any_step_is_finished(tmp_path):
    """
    By the same call: all partitions are there, with the settings of the whole and the cursors of the first; none was
    without a hold before.
    """

    async def whole(logs):
        await logs.create("orders", partitions=1)
        log = (await logs.context("orders/0")).log
        for cursor in ("audit", "billing"):
            await cursors.make(log, cursor, "begin")

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs, steps = await world.logs(), 0
            await whole(logs)
            while not await interrupted(world, steps, grow):
                steps += 1
                for name in await names_of(logs):
                    assert name == "orders" or await logs.holds(name)
                await grow(logs)
                names = await logs.partitions("orders")
                for name in names:
                    assert [each.name async for each in cursors.listed((await logs.context(name)).log)] == [
                        "audit",
                        "billing",
                    ]
                    held = {hold.what for hold in await logs.holds(name)}
                    assert held == {"the cursor 'audit'", "the cursor 'billing'"}
                assert await names_of(logs) == ["orders", *names]
                assert len(names) == 3
                assert {(await logs.info(name)).settings["retention_ms"] for name in names} == {77}
                await logs.delete("orders")
                await whole(logs)
            assert steps >= 11

    run(story)


def test_a_cursor_that_was_deleted_in_one_partition_stays_deleted(tmp_path):
    """Growth gives cursors to new partitions alone."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs = await world.logs()
            await logs.create("orders", partitions=1)
            await cursors.make((await logs.context("orders/0")).log, "billing", "begin")
            await logs.update("orders", partitions=2)
            await logs.delete_cursor("orders/1", "billing")
            await logs.update("orders", partitions=3)
            found = [await cursors.names((await logs.context(name)).log) for name in await logs.partitions("orders")]
            assert found == [["billing"], [], ["billing"]]

    run(story)


@pytest.mark.parametrize("repair", [delete, create, "tidy"])
def test_a_deletion_that_stops_after_any_step_is_finished(tmp_path, repair):
    """By the same call, by a new log of that name, which takes over nothing, or by a round of upkeep."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            logs, steps = await world.logs(), 0
            former = await logs.create("orders", partitions=3)
            while not await interrupted(world, steps, delete):
                steps += 1
                is_there = "orders" in await names_of(logs)
                if repair == "tidy":
                    await logs.tidy()
                    if not is_there:
                        assert await names_of(logs) == []
                elif repair is create and not is_there:
                    await create(logs)
                    assert await names_of(logs) == ["orders", "orders/0", "orders/1"]
                    for name in await logs.partitions("orders"):
                        assert (await logs.info(name)).settings["partition_of"] != former.id
                if await names_of(logs):
                    await delete(logs)
                assert await names_of(logs) == []
                former = await logs.create("orders", partitions=3)
            assert steps >= 4

    run(story)


def test_two_calls_at_once_make_one_log(tmp_path):
    """Both grow it: no partition is made twice; one that is deleted meanwhile leaves nothing."""

    async def story():
        async with cluster(tmp_path, bookies=0) as world:
            one, other = await world.logs(), await world.logs()
            await one.create("orders", partitions=1)
            await DeferredList(
                [Deferred.fromCoroutine(logs.update("orders", partitions=6)) for logs in (one, other)],
                fireOnOneErrback=True,
            )
            assert len(await names_of(one)) == 7
            growing = Deferred.fromCoroutine(one.update("orders", partitions=40))
            await other.delete("orders")
            growing.addErrback(lambda failure: failure.trap(NoSuchLog))
            await growing
            assert await names_of(one) == []

    run(story)
