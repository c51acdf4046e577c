"""A slow cursor above the quota: appends fail, or wait, or its mark moves; all of it ends by itself."""

from dataclasses import replace

import pytest
from twisted.internet.defer import succeed

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.streams.cursors import CursorValue
from quire.log.streams import cursor, retention
from quire.metadata.clock import pause, time_of_day
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore, TooManyRequests
from quire.protocol.log_errors import BacklogQuota
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster, values
from tests.log.streams.test_retention import give_up_open, mark_of, put_cursor
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


LOOK_S, ABOVE_S = retention.LOOK_S, retention.ABOVE_S


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Looks come close together."""
    monkeypatch.setattr(retention, "LOOK_S", 0.02)
    monkeypatch.setattr(retention, "ABOVE_S", 0.01)


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


@pytest.mark.parametrize("kept", [30, 15])
def test_drop_passes_over_what_was_given_up(tmp_path, kept):
    """What is gone takes nothing of the quota: the mark moves to where so many bytes that are there are kept."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, owner = await owned(world, quota="drop")
            await owner.close()
            gone = await give_up_open(world, logs)
            await logs.update("a", quota_bytes=kept)
            owner = await logs.own("a")
            await owner.append_many([b"%010d" % number for number in range(2)])
            await owner.barrier()
            wanted = 9 if kept == 30 else gone.stop + 1
            while (mark := await mark_of(logs, "slow")) < wanted:
                await pause(reactor, 0.01)
            assert mark == wanted
            await until(owner.window.may_go)
            await owner.append(b"x")

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


class Behind:
    """On virtual time: an owner whose records are ten bytes, one each second, and a consumer in another process."""

    def __init__(self, **settings):
        self.cluster = FakeCluster()
        clock = self.cluster.clock
        clock.advance(1e6)
        self.cluster.store.records.clock = lambda: succeed(int(clock.seconds() * 1000))
        self.logs, self.other = (
            Logs(
                self.cluster.client(placement="random"),
                LogOptions(append_ms=5000),
                now=clock.seconds,
                boottime=clock.seconds,
            )
            for _ in range(2)
        )
        self.owner, self.cursor = self.cluster.succeed(self._begun(settings))
        self.answers = []

    async def _begun(self, settings):
        await self.logs.create("a", **settings)
        owner = await self.logs.own("a")
        return owner, await self.other.cursor("a", "slow", start="begin")

    def append(self, seconds):
        """One record each second; those that are answered, in order."""
        for _ in range(seconds):
            self.answers.append(self.cluster.outcome(self.owner.append(b"0123456789")))
            self.cluster.spin(1.0)

    def catch_up(self):
        """The consumer is done with all that is there."""
        for record in self.cluster.succeed(self.cursor.read()):
            self.cursor.ack(record.index)


LIMITS = [{"quota_bytes": 200}, {"quota_ms": 20_000}]


@pytest.mark.parametrize("limit", LIMITS)
def test_refused_until_the_consumer_has_caught_up(monkeypatch, limit):
    """Within a look of the quota's end appends fail, and go on by themselves once the mark is written and looked at."""
    monkeypatch.setattr(retention, "LOOK_S", LOOK_S)
    monkeypatch.setattr(retention, "ABOVE_S", ABOVE_S)
    story = Behind(quota="refuse", **limit)
    story.append(60)
    refused = [isinstance(each.error, BacklogQuota) for each in story.answers]
    assert refused == sorted(refused)
    assert 20 <= refused.count(False) <= 20 + 1.2 * LOOK_S
    story.catch_up()
    story.cluster.spin(1.5 * cursor.LOOK_S + 1.2 * ABOVE_S + 1)
    story.append(10)
    assert [each.error for each in story.answers[60:]] == [None] * 10
    assert [each.value.index for each in story.answers if each.error is None] == list(range(refused.count(False) + 10))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("how", ["catches up", "seeks", "is deleted"])
def test_held_until_the_consumer_has_caught_up(monkeypatch, limit, how):
    """Also longer than an append may take; then all that waits is stored by itself, in order."""
    monkeypatch.setattr(retention, "LOOK_S", LOOK_S)
    monkeypatch.setattr(retention, "ABOVE_S", ABOVE_S)
    story = Behind(quota="hold", **limit)
    story.append(60)
    held = [not each.done for each in story.answers]
    assert held == sorted(held)
    assert 20 <= held.count(False) <= 20 + 1.2 * LOOK_S
    if how == "catches up":
        story.catch_up()
        story.cluster.spin(1.5 * cursor.LOOK_S)
    elif how == "seeks":
        story.cluster.succeed(story.cursor.seek("end"))
    else:
        story.cluster.succeed(story.other.delete_cursor("a", "slow"))
    story.cluster.spin(1.2 * ABOVE_S + 1)
    assert [each.value.index for each in story.answers if each.done] == list(range(60))


@pytest.mark.parametrize("limit", LIMITS)
def test_dropped_from_the_consumer(monkeypatch, limit):
    """No append waits or fails; the holder follows its mark, and is given what is left, the newest."""
    monkeypatch.setattr(retention, "LOOK_S", LOOK_S)
    story = Behind(quota="drop", **limit)
    story.append(60)
    assert [each.value.index for each in story.answers] == list(range(60))
    assert 60 - 20 - 1.2 * LOOK_S <= story.cursor.mark <= 60 - 20 + 1
    found = [record.index for record in story.cluster.succeed(story.cursor.read())]
    assert found == list(range(story.cursor.mark, 60))


def test_what_was_held_has_its_time_from_then_on():
    """A ledger that can't be made at once when the hold is over fails no append that waited long before."""
    story, failed = Behind(quota="hold", quota_bytes=50), []
    story.append(20)
    story.owner.roll()
    story.cluster.spin(10)

    def fault(name, _arguments):
        if name != "create_ledger" or len(failed) == 2:
            return None
        failed.append(name)
        return Fault(error=MetaStore("not now"))

    story.cluster.store_fault = fault
    story.cluster.succeed(story.cursor.seek("end"))
    story.cluster.spin(4)
    assert failed
    assert [each.value.index for each in story.answers if each.done] == list(range(20))
