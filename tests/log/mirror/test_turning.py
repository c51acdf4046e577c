"""A copy that becomes a log of its own, and a log that gives its name away."""

import pytest

from quire.log.core.manifest import TERMINATED
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote, set_aside
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, LogIsMirror, LogTerminated, MirrorDiverged, NotOwner
from tests.log.mirror.test_kills import kill
from tests.log.mirror.two_clusters import SMALL, content, fill, refused, two_clusters
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_promoted_copy_is_a_log(tmp_path):
    """Its mirror is fenced and can't begin again; the index is told again; back it goes, with all that came."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy, other = await here.logs(), await there.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 12)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_until(12)
            assert await promote(other, "a") == 12
            assert await promote(other, "a") == 12
            await owner.append(b"late")
            await refused(mirror.copy_until(13), LogFenced, NotOwner)
            again = Mirror(source, "a", copy, fail_back=True)
            assert "until it was promoted, at index 12" in str(await refused(again.begin(), LogFenced))
            now = await other.own("a")
            assert (await now.append(b"there")).index == 12
            error = await refused(Mirror(other, "a", source, fail_back=True).begin(), MirrorDiverged)
            assert (error.first, error.end) == (12, 13)
            await set_aside(source, "a", "a-aside")
            back = Mirror(other, "a", source)
            await back.begin()
            assert await back.copy_until(13) == 13
            await back.close()
            assert await content(source, "a") == await content(other, "a")
            assert (await content(source, "a-aside"))[12].value == b"late"

    run(story)


def test_a_log_that_was_never_a_copy_is_not_promoted(tmp_path):
    """Nothing is changed, and its owner goes on."""

    async def story():
        async with two_clusters(tmp_path) as (here, _there):
            logs = await here.logs()
            await logs.create("a", **SMALL)
            owner = await logs.own("a")
            with pytest.raises(ValueError, match="is no copy"):
                await promote(logs, "a")
            await owner.append(b"x")
            await owner.close()

    run(story)


def test_a_way_over_that_can_not_go_on_is_undone(tmp_path):
    """The log that took no appends takes them again; its copy stays one, and is copied to as before."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            copy = await there.logs(append_ms=500)
            away = Fault(error=MetaStore("away"))

            def reached(name):
                if name == "mirror.turned":
                    copy.bk.store.faults = lambda _name, _arguments: away

            source = await here.logs(reached)
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 5)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await refused(mirror.switch(), MetaStore)
            copy.bk.store.faults = None
            await refused(source.own("a"), LogIsMirror)
            assert await promote(source, "a") == 5
            await mirror.begin()
            owner = await source.own("a")
            await fill(owner, 5, 3)
            assert await mirror.copy_until(8) == 8
            assert not await mirror.is_switching()
            await mirror.close()

    run(story)


def test_a_log_that_was_terminated_goes_over_with_its_end(tmp_path):
    """Its copy takes nothing either, from the step on in which it is a copy no more; that it went over is known."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):

            def reached(name):
                if name == "mirror.promoted":
                    kill(dying)

            source, copy, dying = await here.logs(), await there.logs(), await there.logs(reached)
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 5)
            await owner.terminate()
            mirror = Mirror(source, "a", dying)
            assert await mirror.switched() is None
            await mirror.begin()
            assert await mirror.switch() == 5
            info = await copy.info("a")
            assert (info.state, info.end, info.mirrored) == (TERMINATED, 5, None)
            await refused(copy.own("a"), LogTerminated)
            again = Mirror(source, "a", copy)
            assert await again.switched() == 5
            assert again.progress.terminated
            assert await content(copy, "a") == await content(source, "a")

    run(story)


def test_a_copy_of_a_terminated_log_that_was_promoted_by_hand_is_open(tmp_path):
    """For the log is not asked: it did not go over, and a mirror does not undo that."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            writer = await source.own("a")
            await fill(writer, 0, 5)
            await writer.terminate()
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_until()
            await mirror.close()
            assert await promote(copy, "a") == 5
            owner = await copy.own("a")
            assert (await owner.append(b"more")).index == 5
            await owner.close()
            assert await mirror.switched() is None
            await refused(mirror.begin(), LogFenced)

    run(story)
