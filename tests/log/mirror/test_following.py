"""A log that is followed: by a mirror that is deposed, fenced, refused for a while, promoted; to the log's end."""

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.manifest import MIRROR
from quire.log.mirror.mirror import Mirror, is_final
from quire.log.mirror.turning import promote
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import ClientClosed, MetaStore, NotEnoughBookies
from quire.protocol.log_errors import AppendUnknown, BacklogQuota, LogDamaged, LogFenced, LogTrimmed
from tests.log.mirror.two_clusters import SMALL, content, fill, two_clusters
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def until(holds):
    """Waits for a condition."""
    while not holds():
        await pause(reactor, 0.01)


def test_to_the_end_of_a_log_that_is_terminated(tmp_path):
    """What comes is copied as it comes, over a ledger that a repair fences; the end of the log ends it."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            mirror = Mirror(source, "a", copy)
            following = Deferred.fromCoroutine(mirror.follow())
            await fill(owner, 0, 5)
            await until(lambda: mirror.progress.end >= 4)
            await copy.bk.recover_ledger((await copy.info("a")).ledger)
            await fill(owner, 5, 5)
            await until(lambda: mirror.progress.end >= 9)
            await owner.terminate()
            await following
            await mirror.copy_until()
            assert (mirror.progress.terminated, mirror.progress.lag_records, mirror.progress.records) == (True, 0, 10)
            await mirror.close()
            assert await content(copy, "a") == await content(source, "a")

    run(story)


def test_a_mirror_that_is_deposed_goes_on_when_the_copy_is_free(tmp_path):
    """Two mirrors of one copy are one after the other; a promotion ends both."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy, other = await here.logs(), await there.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            mirror = Mirror(source, "a", copy)
            following = Deferred.fromCoroutine(mirror.follow())
            await fill(owner, 0, 3)
            await until(lambda: mirror.progress.end >= 2)
            taken = await other.own("a", use=MIRROR, force=True)
            await fill(owner, 3, 3)
            await until(lambda: mirror.progress.trouble)
            await taken.close()
            await until(lambda: mirror.progress.end >= 5)
            assert not mirror.progress.trouble
            assert await promote(other, "a") >= 5
            await failing(following, LogFenced)

    run(story)


def test_what_passes_is_waited_for(tmp_path):
    """A store that fails stops nothing for good; the copy gets older meanwhile, and says why."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            await fill(owner, 0, 3)
            copy.bk.store.faults = lambda _name, _arguments: Fault(error=MetaStore("away"))
            mirror = Mirror(source, "a", copy)
            following = Deferred.fromCoroutine(mirror.follow())
            await until(lambda: "away" in mirror.progress.trouble)
            copy.bk.store.faults = None
            await until(lambda: mirror.progress.end >= 2)
            following.cancel()
            await failing(following, Exception)
            await mirror.close()

    run(story)


def test_a_batch_that_was_not_stored_is_not_waited_for_until_another_one_comes(tmp_path):
    """It failed while its log was idle: that is told, and it is copied again."""

    async def story():
        async with two_clusters(tmp_path) as (here, there):
            source, copy = await here.logs(), await there.logs()
            await source.create("a", **SMALL)
            owner = await source.own("a")
            stored, own = Deferred(), copy.own
            asked = []

            def append_copied(records):
                asked.append(records)
                return stored

            async def first_owned(*args, **options):
                copy.own = own
                found = await own(*args, **options)
                found.append_copied = append_copied
                return found

            copy.own = first_owned
            mirror = Mirror(source, "a", copy)
            following = Deferred.fromCoroutine(mirror.follow())
            await fill(owner, 0, 2)
            await owner.close()
            await until(lambda: asked)
            stored.errback(NotEnoughBookies("too few bookies of the copy"))
            await until(lambda: "too few bookies" in mirror.progress.trouble)
            await until(lambda: mirror.progress.end == 2)
            assert not mirror.progress.trouble
            following.cancel()
            await failing(following, Exception)
            await mirror.close()

    run(story)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (MetaStore("x"), False),
        (NotEnoughBookies("x"), False),
        (AppendUnknown("x"), False),
        (BacklogQuota("x"), False),
        (LogTrimmed("x"), True),
        (LogDamaged("x"), True),
        (ClientClosed("x"), True),
    ],
)
def test_what_does_not_pass(error, final):
    """Errors of logs but for an unknown outcome, and the end of the program's own connections."""
    assert is_final(error) is final
