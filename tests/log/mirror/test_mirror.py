"""A log kept in another cluster: the same records, taken up where the copy ends, over and back."""

import pytest

from quire.log.core.manifest import MIRROR
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.protocol.log_errors import (
    LogExists,
    LogFenced,
    LogIsMirror,
    LogTrimmed,
    NotOwner,
)
from tests.log.mirror.two_clusters import SMALL, content, fill, refused, two_clusters
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_a_copy_has_the_same_records(tmp_path):
    """Index, position, stamp, value, key, time and headers; over segments, and of records that came later."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(batch_bytes=200), await there.logs()
            await source.create("orders", roll_records=30, begin_at=7, **SMALL)
            owner = await source.own("orders")
            await fill(owner, 0, 101)
            mirror = Mirror(source, "orders", copy)
            await mirror.begin()
            assert await mirror.copy_until(101) == 101
            await owner.append(b"x" * 3000)
            await fill(owner, 102, 9)
            assert await mirror.copy_until(111) == 111
            assert mirror.progress.lag_records == 0
            assert mirror.progress.records == 111
            await mirror.close()
            assert await content(copy, "orders") == await content(source, "orders")
            assert (await copy.info("orders")).segments >= 3

    run(story)


def test_it_goes_on_where_the_copy_ends(tmp_path):
    """Begun again and again, in the middle of what came in between; the copy begins where a trimmed log does."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", roll_records=20, **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 50)
            owner.roll()
            await fill(owner, 50, 7)
            assert await source.trim("a", 25) == 25
            for end in (57, 70, 71):
                await fill(owner, owner.end.index, end - owner.end.index)
                mirror = Mirror(source, "a", copy, "b")
                await mirror.begin()
                await mirror.copy_until(end - 5)
                await mirror.close()
            mirror = Mirror(source, "a", copy, "b")
            await mirror.begin()
            await mirror.copy_until(71)
            await mirror.close()
            found = await content(copy, "b")
            assert found == await content(source, "a")
            assert (found[0].index, len(found)) == (25, 46)

    run(story)


def test_a_copy_takes_appends_from_its_mirror_alone(tmp_path):
    """Owners, also those that waited, publishers, and who would end, rename or delete it are refused by name."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy, other = await here.logs(), await there.logs(), await there.logs()
            await source.create("a", **SMALL)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            error = await refused(other.own("a"), LogIsMirror)
            assert "--promote" in str(error)
            assert error.log == (await source.info("a")).id
            for work in (other.delete("a"), other.rename("a", "b"), other.terminate("a"), other.sink("a", "t", "r")):
                await refused(work, LogIsMirror)
            await refused(source.own("a", use=MIRROR), LogFenced)
            await refused(Mirror(source, "a", other).begin(wait_s=0), NotOwner)
            await mirror.close()

    run(story)


@pytest.mark.parametrize(("near_s", "rounds"), [(-1.0, 3), (1e9, 1)])
def test_little_is_left_for_the_way_over(tmp_path, monkeypatch, near_s, rounds):
    """What came while it was copied is copied, too, until a round is short, or there were many of them."""
    monkeypatch.setattr("quire.log.mirror.mirror.NEAR_S", near_s)
    monkeypatch.setattr("quire.log.mirror.mirror.ROUNDS_MAX", 3)

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            info, looks, seen = source.info, [], []

            async def appended_at(name):
                """Each look at the end of the log finds two records more."""
                looks.append(name)
                await fill(owner, owner.end.index, 2)
                assert await owner.end_segment()
                return await info(name)

            source.info = appended_at
            await mirror.catch_up(lambda end, of: seen.append((end, of)))
            source.info = info
            assert seen == [(2 * n, 2 * n) for n in range(1, rounds + 1)]
            assert len(looks) == rounds
            await mirror.close()
            await owner.close()

    run(story)


def test_over_and_back(tmp_path):
    """A planned change loses nothing: the owner is fenced, both have the same, and the same again on the way back."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", roll_records=7, **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 20)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            assert await mirror.switch() == 20
            await refused(_append(owner), LogFenced, NotOwner)
            await refused(source.own("a"), LogIsMirror)
            now = await copy.own("a")
            await fill(now, 20, 11)
            back = Mirror(copy, "a", source)
            await back.begin()
            assert await back.switch() == 31
            now = await source.own("a")
            await fill(now, 31, 4)
            again = Mirror(source, "a", copy)
            await again.begin()
            assert await again.copy_until(35) == 35
            await again.close()
            assert await content(source, "a") == await content(copy, "a")

    run(story)


async def _append(owner):
    return await owner.append(b"x")


def test_what_is_another_log_is_refused(tmp_path):
    """One of that name, one that takes appends, the log itself, and a copy exchanged with its log."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            await copy.create("b", **SMALL)
            await refused(Mirror(source, "a", copy, "b").begin(), LogExists)
            await refused(Mirror(source, "a", source).begin(), ValueError)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.close()
            await refused(Mirror(copy, "a", source, fail_back=True).begin(), ValueError)
            owner = await source.own("a")
            await owner.append(b"still")
            await promote(copy, "a")
            error = await refused(Mirror(copy, "a", source).begin(), ValueError)
            assert "--fail-back" in str(error)
            await source.create("used", use="shop", **SMALL)
            await refused(Mirror(source, "used", copy).begin(), ValueError)
            await source.create("parted", partitions=2, **SMALL)
            assert "parted/0 to parted/1" in str(await refused(Mirror(source, "parted", copy).begin(), ValueError))

    run(story)


def test_records_that_went_before_they_were_copied_are_named(tmp_path):
    """A log that was trimmed above the end of its copy can't be copied on."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 10)
            mirror = Mirror(source, "a", copy)
            await mirror.begin()
            await mirror.copy_until(10)
            await mirror.close()
            await fill(owner, 10, 10)
            await owner.close()
            owner = await source.own("a")
            await fill(owner, 20, 2)
            assert await source.trim("a", 20) == 20
            error = await refused(Mirror(source, "a", copy).begin(), LogTrimmed)
            assert "records 10 to 19" in str(error)

    run(story)
