"""One process's view of a log: newer manifests, segments in chunks, and what a trim took."""

import gc
from dataclasses import replace

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.log.core import edits
from quire.log.core.edits import Claim, OpenSegment
from quire.log.core.upkeep_edits import Trim, Update
from quire.log.core.values import Owner, Segment
from quire.log.reader.view import LogView
from quire.protocol.log_errors import LogTrimmed, NoSuchLog
from tests.log.store.test_editing import LOG, World, paths
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def viewed():
    """A world, its log, and a view of it."""
    world = World()
    handle = await world.made()
    view = LogView(world.handle(), world.clock, world.random, 1.0)
    world.clock.advance(0)
    return world, handle, view


def test_a_newer_manifest_is_awaited():
    """By the watch; after the time the same comes back; a deleted log is an error."""

    async def story():
        world, handle, view = await viewed()
        first = await view.manifest()
        waiting = Deferred.fromCoroutine(view.newer(first, 60))
        await handle.edit(Update({"a": 1}))
        assert not waiting.called
        world.clock.advance(0)
        second = await waiting
        assert second.settings == {"a": 1}
        waiting = Deferred.fromCoroutine(view.newer(second, 2.5))
        for _ in range(3):
            world.clock.advance(1)
        assert await waiting is second
        for part in [*paths.PARTS, "lease"]:
            await handle.records.delete(f"{handle.path}/{part}", -1)
        await handle.records.delete(handle.path, -1)
        world.clock.advance(0)
        await failing(Deferred.fromCoroutine(view.newer(second, 60)), NoSuchLog)

    run(story)


@pytest.mark.parametrize(("soon", "not_yet_s", "then_s"), [(True, 0.9, 0.1), (False, 14.9, 30.1)])
def test_a_watch_that_is_not_called(soon, not_yet_s, then_s):
    """Whoever waits looks by itself: once a second for what is to come soon, else every half minute, more or less."""

    async def story():
        world, handle, view = await viewed()
        waiting = Deferred.fromCoroutine(view.newer(await view.manifest(), 60, soon))
        world.clock.advance(0)
        world.cluster.nodes.armed.clear()
        await handle.edit(Update({"a": 1}))
        world.clock.advance(not_yet_s)
        assert not waiting.called
        world.clock.advance(then_s)
        assert (await waiting).settings == {"a": 1}

    run(story)


def test_a_wait_that_is_not_wanted_any_more():
    """It ends when it is woken and says so; nothing of it is left, and the watch ends with the view."""

    async def story():
        world, _handle, view = await viewed()
        first, ended = await view.manifest(), []
        waiting = [Deferred.fromCoroutine(view.newer(first, 60, has_ended=lambda: bool(ended))) for _ in range(2)]
        world.clock.advance(3)
        view.wake()
        assert not waiting[0].called
        ended.append(True)
        view.wake()
        assert [await each for each in waiting] == [first, first]
        view.close()
        world.clock.advance(0)
        assert world.clock.getDelayedCalls() == []

    run(story)


def test_a_cancelled_wait_leaves_nothing():
    """Its timer ends with it, and it is not kept until the next manifest comes, however often one waits."""

    async def story():
        world, _handle, view = await viewed()
        first = await view.manifest()
        view.watch()
        world.clock.advance(0)
        timers = len(world.clock.getDelayedCalls())
        gc.collect()
        before = sum(type(each) is Deferred for each in gc.get_objects())
        for _ in range(20):
            waiting = Deferred.fromCoroutine(view.newer(first, 60))
            waiting.addErrback(lambda failure: failure.trap(CancelledError) and None)
            waiting.cancel()
            await waiting
        del waiting
        gc.collect()
        assert sum(type(each) is Deferred for each in gc.get_objects()) < before + 10
        assert len(world.clock.getDelayedCalls()) == timers
        view.close()

    run(story)


def test_segments_in_chunks():
    """Found by index and by number; one that a trim took is `LogTrimmed`, not an error of the store."""

    async def story():
        world, handle, view = await viewed()
        await handle.edit(Claim(Owner("mine", 0)))
        segments = tuple(Segment(n, 100 + n, 1, 10 * n, 10 * n, 10, 10, 1, (n, n)) for n in range(edits.SEGMENTS_MAX))
        manifest = replace((await handle.read()).value, segments=segments, next=edits.SEGMENTS_MAX)
        await handle.records.write(handle.path, manifest.encode(), handle.known.version)
        await handle.read()
        await handle.edit(OpenSegment(edits.Me("mine", 1), 9000))
        found = await view.fresh()
        assert (await view.segment_at(found, 25)).n == 2
        assert (await view.segment_at(found, 5119)).n == 511
        assert (await view.segment_at(found, 99_999)).ledger == 9000
        assert (await view.segment_after(found, 2)).n == 3
        assert (await view.segment_after(found, 448)).n == 449
        assert await view.segment_after(found, 512) is None
        (line,) = found.chunks
        chunk = await handle.chunk(line.c)
        await handle.edit(Trim(460, 4600, 4600, 1, {line.c: chunk.segments}))
        await handle.records.delete(paths.chunk_path(LOG, line.c), -1)
        late = LogView(world.handle(), world.clock, world.random, 1.0)
        error = await failing(Deferred.fromCoroutine(late.segment_at(found, 25)), LogTrimmed)
        assert error.begin == 4600
        error = await failing(Deferred.fromCoroutine(view.segment_at(await view.fresh(), 25)), LogTrimmed)
        assert error.begin == 4600

    run(story)
