"""A slow cursor above the quota: appends fail, or wait, or its mark moves; all of it ends by itself."""

from dataclasses import replace

import pytest

from quire.log.core.streams.cursor_value import CursorValue
from quire.log.streams import quota
from quire.metadata.clock import pause, time_of_day
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import BacklogQuota
from tests.log.fakes.cluster import cluster, values
from tests.log.streams.test_expiring import mark_of, put_cursor
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Looks come close together."""
    monkeypatch.setattr(quota, "LOOK_S", 0.02)
    monkeypatch.setattr(quota, "ABOVE_S", 0.01)


async def until(condition):
    while not condition():
        await pause(reactor, 0.01)


async def move(logs, name, mark):
    """As its holder does."""
    records = await records_of(logs)
    path = f"{records.path}/cursor/{name}"
    data, version = await records.records.read(path)
    await records.records.write(path, replace(CursorValue.decode(data), mark=mark).encode(), version)


async def owned(world, now=time_of_day, **settings):
    """A log of ten records of ten bytes, its owner, and two cursors."""
    logs = await world.logs(window_records=20, append_ms=1000, now=now)
    await logs.create("a", **settings)
    owner = await logs.own("a")
    await owner.append_many([b"%010d" % number for number in range(10)])
    await owner.barrier()  # so that readers see them
    await put_cursor(logs, "slow", 2, name="slow")
    await put_cursor(logs, "fast", 9, name="fast")
    return logs, owner


def test_refuse(tmp_path):
    """Appends fail and name the slowest cursor, never sent; when it has caught up they are taken."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world, quota_bytes=50)
            await until(lambda: owner.window.refusal is not None)
            error = await failing(owner.append(b"x"), BacklogQuota)
            assert "'slow'" in str(error)
            assert "80 bytes" in str(error)
            await move(logs, "slow", 6)
            await until(lambda: owner.window.refusal is None)
            assert (await owner.append(b"x")).index == 10
            assert len(await values(await logs.read("a"), 11)) == 11

    run(story)


def test_hold(tmp_path):
    """Appends wait, longer than append_ms, too, and in the window only; they go on by themselves, in order."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world, quota_bytes=79, quota="hold")
            await until(lambda: not owner.window.may_go())
            waiting = [owner.append(b"%d" % number) for number in range(20)]
            await failing(owner.append(b"more"), TooManyRequests)
            owner.roll()
            await pause(reactor, 1.2)
            assert not any(each.called for each in waiting)
            await logs.update("a", quota_bytes=80)
            assert [(await each).index for each in waiting] == list(range(10, 30))

    run(story)


def test_a_close_does_not_wait(tmp_path):
    """What was taken is stored, quota or not."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world, quota_ms=0, quota="hold")
            await until(lambda: not owner.window.may_go())
            waiting = owner.append(b"last")
            await owner.close()
            assert (await waiting).index == 10
            assert len(await values(await logs.read("a"))) == 11

    run(story)


@pytest.mark.parametrize(
    ("settings", "mark"), [({"quota_bytes": 35}, 7), ({"quota_bytes": 0}, 10), ({"quota_ms": 3600_000}, 10)]
)
def test_drop(tmp_path, settings, mark):
    """The slowest marks move to where the quota is kept, by whole records; those further on stay."""

    async def story():
        async with cluster(tmp_path) as world:
            before = 7200 if "quota_ms" in settings else 0
            logs, owner = await owned(world, now=lambda: time_of_day() - before, quota="drop")
            await owner.close()
            other = await world.logs()
            await other.update("a", **settings)
            owner = await other.own("a")
            while await mark_of(logs, "slow") == 2:
                await pause(reactor, 0.01)
            assert await mark_of(logs, "slow") == mark
            await until(owner.window.may_go)
            assert (await owner.append(b"x")).index == 10
            assert await mark_of(logs, "fast") >= 9

    run(story)


def test_a_look_that_fails_changes_nothing(tmp_path):
    """A cursor that can't be understood is no reason to let go; later looks find it mended."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world, quota_bytes=50)
            await until(lambda: owner.window.refusal is not None)
            records = await records_of(logs)
            version = await records.records.create(f"{records.path}/cursor/bad", b"{}")
            asked = []
            children = logs.bk.store.records.children
            logs.bk.store.records.children = lambda path, *more: asked.append(path) or children(path, *more)
            await until(lambda: len(asked) > 6)
            assert owner.window.refusal is not None
            await records.records.delete(f"{records.path}/cursor/bad", version)
            await move(logs, "slow", 9)
            await until(lambda: owner.window.refusal is None)

    run(story)
