"""The edit loop on a store in memory: conflicts, lost answers, late effects, chunks."""

from dataclasses import replace
from random import Random

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.log.core import edits
from quire.log.core.edits import Claim, CloseSegment, Me, OpenSegment, Resign
from quire.log.core.manifest import new_manifest
from quire.log.core.upkeep_edits import Hold, Rename, Terminate, Update
from quire.log.core.values import Counts, Owner, Segment
from quire.log.store import paths
from quire.log.store.editing import CONFLICTS_MAX, LogRecords, create_log
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.records import NoRecord, RecordExists
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Create
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, NoSuchLog
from tests.metadata.stored import init
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LOG = "6f1c" * 8
LOST = Fault(error=MetaStore("no answer"), applied=True)
NOT_DONE = Fault(error=MetaStore("no answer"))
LATE = Fault(late=5.0)


class World:
    """One log, and as many handles on it as a test wants, each with faults of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster("test")
        init(self.cluster)
        self.random = Random(1)

    async def made(self):
        """A handle on the new log."""
        handle = self.handle()
        manifest = new_manifest("orders", LOG, "e0", {})
        await create_log(handle.records, paths.name_path("orders"), LOG, manifest.encode(), b"name", b"lease", {})
        return handle

    def handle(self):
        store = MemoryStore(self.clock, self.cluster)
        handle = LogRecords(store.records, self.clock, self.random, lambda: 1700.0, LOG, "orders")
        handle.store, handle.faults = store, []
        store.faults = lambda name, _: handle.faults.pop(0) if handle.faults and name == "transact" else None
        return handle


async def content(handle):
    """The manifest as it is stored."""
    return (await handle.read()).value


def test_a_log_is_made_once():
    """With its folders; a second one of that name is refused."""

    async def story():
        handle = await World().made()
        assert await handle.records.children(handle.path) == sorted([*paths.PARTS, "lease"])
        manifest = new_manifest("orders", "0" * 32, "e0", {}).encode()
        again = create_log(handle.records, paths.name_path("orders"), "0" * 32, manifest, b"", b"", {})
        await failing(again, RecordExists)

    run(story)


def test_an_edit_is_done_once():
    """It is written with its id first among the recent ones; asked again with that id it changes nothing."""

    async def story():
        world = World()
        handle = await world.made()
        done = await handle.edit(Update({"a": 1}), "e1")
        assert done.done
        assert done.manifest.recent == ("e1", "e0")
        again = await world.handle().edit(Update({"a": 2}), "e1")
        assert again.done
        assert again.manifest.settings == {"a": 1}
        unwanted = await handle.edit(Update({"a": 1}))
        assert not unwanted.done

    run(story)


def test_edits_that_meet_lose_nothing():
    """Twenty at once from four handles: all of them are there, and each knows that it is."""

    async def story():
        world = World()
        handles = [await world.made(), *(world.handle() for _ in range(3))]
        waiting = [
            Deferred.fromCoroutine(handles[number % 4].edit(Update({f"s{number}": number}))) for number in range(20)
        ]
        while not all(each.called for each in waiting):
            world.clock.advance(0.05)
        assert all([(await each).done for each in waiting])
        assert len((await content(handles[0])).settings) == 20

    run(story)


def test_a_refusal_of_an_old_value_is_looked_at_again():
    """A handle that knows an older manifest reads before it says no."""

    async def story():
        world = World()
        handle, other = await world.made(), world.handle()
        await handle.read()
        await other.edit(Claim(Owner("mine", 0)))
        assert (await handle.edit(Resign(Me("mine", 1)))).done
        await failing(Deferred.fromCoroutine(other.edit(Resign(Me("mine", 1)))), LogFenced)
        await other.edit(Update({"a": 1}))
        assert (await handle.edit(Update({"a": 0}))).done
        assert handle.counters.edits == {("resign", "done"): 1, ("settings", "done"): 1}
        assert other.counters.edits == {("claim", "done"): 1, ("resign", "refused"): 1, ("settings", "done"): 1}
        assert handle.counters.edit_conflicts == 1
        assert handle.counters.manifest_bytes == len((await content(handle)).encode())

    run(story)


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_answer(lost):
    """Its outcome is unknown to the caller; the same edit again finds out, and is there once."""

    async def story():
        world = World()
        handle, other = await world.made(), world.handle()
        handle.faults.append(LOST if lost else NOT_DONE)
        await failing(Deferred.fromCoroutine(handle.edit(Claim(Owner("mine", 0)), "e1")), MetaStore)
        await other.edit(Update({"between": 1}))
        done = await handle.edit(Claim(Owner("mine", 0)), "e1")
        assert done.done
        found = await content(other)
        assert (found.epoch, found.owner.token) == (1, "mine")
        assert found.recent.count("e1") == 1

    run(story)


def test_a_late_effect_lands_once_or_never():
    """The request that was given up lands before the second try, or meets a moved version."""

    async def story():
        for wait_first in (True, False):
            world = World()
            handle = await world.made()
            handle.faults.append(LATE)
            await failing(Deferred.fromCoroutine(handle.edit(Claim(Owner("mine", 0)), "e1")), MetaStore)
            if wait_first:
                world.clock.advance(5)
            assert (await handle.edit(Claim(Owner("mine", 0)), "e1")).done
            world.clock.advance(5)
            found = await content(handle)
            assert (found.epoch, found.recent) == (1, ("e1", "e0"))

    run(story)


def test_an_edit_that_never_gets_through_fails():
    """A hundred conflicts are enough."""

    async def story():
        world = World()
        handle, other = await world.made(), world.handle()
        multi = handle.records.multi

        async def beaten(steps):
            await other.edit(Hold())
            return await multi(steps)

        handle.records.multi = lambda steps: Deferred.fromCoroutine(beaten(steps))
        waiting = Deferred.fromCoroutine(handle.edit(Update({"a": 1})))
        while not waiting.called:
            world.clock.advance(0.05)
        assert str(CONFLICTS_MAX) in str(await failing(waiting, MetaStore))

    run(story)


def test_steps_beside_the_manifest():
    """They change with it or not at all; an error of one of them is the caller's, not a conflict."""

    async def story():
        world = World()
        handle = await world.made()
        claim = f"{handle.path}/owner"
        await handle.edit(Update({"a": 1}), beside=lambda before, after: [Create(claim, b"x")])
        assert (await handle.records.read(claim)).value == b"x"
        for step, error in ((Create(claim, b"y"), RecordExists), (Check("nowhere"), NoRecord)):
            await failing(
                Deferred.fromCoroutine(handle.edit(Update({"a": 2}), beside=lambda *_, step=step: [step])), error
            )
        assert (await content(handle)).settings == {"a": 1}

    run(story)


async def filled(world, handle):
    """With so many segments that the next edit moves most of them into a chunk."""
    await handle.edit(Claim(Owner("mine", 0)))
    segments = tuple(Segment(n, 100 + n, 1, 10 * n, 10 * n, 10, 10, 1, (n, n)) for n in range(edits.SEGMENTS_MAX))
    manifest = replace((await handle.read()).value, segments=segments, next=edits.SEGMENTS_MAX)
    await handle.records.write(handle.path, manifest.encode(), handle.known.version)
    return await handle.read()


def test_chunks_are_there_before_they_are_named():
    """The edit that makes one too many writes them first; a chunk that is named is read once."""

    async def story():
        world = World()
        handle = await world.made()
        await filled(world, handle)
        done = await handle.edit(OpenSegment(Me("mine", 1), 9000))
        (line,) = done.manifest.chunks
        other = world.handle()
        chunk = await other.chunk(line.c)
        assert [each.n for each in chunk.segments] == list(range(edits.SEGMENTS_MAX + 1 - edits.SEGMENTS_KEPT))
        await handle.records.delete(paths.chunk_path(LOG, line.c), ANY)
        assert await other.chunk(line.c) is chunk
        await failing(Deferred.fromCoroutine(handle.chunk(line.c)), NoRecord)

    run(story)


def test_a_chunk_whose_edit_lost_goes():
    """Once the version has moved it can't be named any more; the second try makes another."""

    async def story():
        world = World()
        handle, other = await world.made(), world.handle()
        await filled(world, handle)
        await other.read()
        done = await handle.edit(CloseSegment(10**6, Counts(1, 1, 1, 1), Me("mine", 1)))
        assert not done.done
        await other.edit(Hold())
        done = await handle.edit(OpenSegment(Me("mine", 1), 9000))
        names = await handle.records.children(f"{handle.path}/chunk")
        assert names == [line.c for line in done.manifest.chunks]

    run(story)


def test_what_an_edit_names_is_looked_up():
    """With each value that it is tried upon, after that was read, but the one that is said to be known; no ends it."""

    async def story():
        world = World()
        handle = await world.made()
        other = world.handle()
        seen = []

        async def look_up(manifest):
            seen.append(dict(manifest.settings))
            return len(seen) < 3

        first = await handle.read()
        assert (await handle.edit(Update({"a": 1}), look_up=look_up, looked=first.version)).done
        assert seen == []
        await other.edit(Update({"b": 2}))
        assert (await handle.edit(Update({"c": 3}), look_up=look_up)).done
        assert seen == [{"a": 1}, {"a": 1, "b": 2}]
        done = await handle.edit(Update({"d": 4}), look_up=look_up, looked=first.version)
        assert not done.done
        assert (await content(handle)).settings == {"a": 1, "b": 2, "c": 3}

    run(story)


def test_a_chunk_that_upkeep_removed_is_made_again():
    """The multi checks that it is there; without it the edit begins anew."""

    async def story():
        world = World()
        handle = await world.made()
        await filled(world, handle)
        create, removed = handle.records.create, []

        async def create_and_lose(path, data, **options):
            version = await create(path, data, **options)
            if not removed:
                removed.append(path)
                await handle.records.delete(path, version)
            return version

        handle.records.create = lambda *args, **options: Deferred.fromCoroutine(create_and_lose(*args, **options))
        waiting = Deferred.fromCoroutine(handle.edit(OpenSegment(Me("mine", 1), 9000)))
        world.clock.advance(1)
        done = await waiting
        (line,) = done.manifest.chunks
        assert paths.chunk_path(LOG, line.c) not in removed
        assert (await handle.chunk(line.c)).segments

    run(story)


def test_a_log_that_is_gone():
    """`NoSuchLog`, also for a handle that still knows it."""

    async def story():
        world = World()
        handle = await world.made()
        await handle.read()
        await handle.records.delete(f"{handle.path}/lease", ANY)
        for part in paths.PARTS:
            await handle.records.delete(f"{handle.path}/{part}", ANY)
        await handle.records.delete(handle.path, ANY)
        for edit in (Rename("x"), Terminate(None, 1)):
            await failing(Deferred.fromCoroutine(handle.edit(edit)), NoSuchLog)
        await failing(Deferred.fromCoroutine(world.handle().read()), NoSuchLog)

    run(story)
