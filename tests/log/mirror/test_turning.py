"""A copy that becomes a log of its own, and a log that gives its name away."""

import pytest

from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote, set_aside
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, LogIsMirror, MirrorDiverged, NotOwner
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
