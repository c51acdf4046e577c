"""The segments of a log in order: those in chunks, those of the manifest, and over a trim meanwhile."""

import pytest

from quire.log.checks import segments_of
from quire.log.core.upkeep_edits import Clear, Trim
from quire.log.store import paths
from quire.protocol.log_errors import LogDamaged
from tests.log.store.test_editing import LOG, World
from tests.log.upkeep.test_named import published
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def numbers(lists):
    return [segment.n async for some in lists for segment in some]


def test_all_of_them():
    """Over chunks and the manifest, each once, in order; also from the one that holds an index on."""

    async def story():
        world = World()
        handle = await world.made()
        assert await numbers(segments_of(world.handle())) == []
        await published(handle, range(1000, 3500))
        await published(handle, range(4000, 4400))
        assert len((await handle.read()).value.chunks) == 3
        assert await numbers(segments_of(world.handle())) == list(range(2900))
        every = [segment async for some in segments_of(world.handle()) for segment in some]
        for number in (0, 1, 999, 1000, 2850):
            for index in (every[number].first, every[number].end - 1):
                assert await numbers(segments_of(world.handle(), index)) == list(range(number, 2900))
        assert await numbers(segments_of(world.handle(), every[-1].end)) == []

    run(story)


def test_a_trim_meanwhile():
    """Its chunk is gone: the newer manifest is read, and what is left goes on; a chunk that is named is missed."""

    async def story():
        world = World()
        handle, mine = await world.made(), world.handle()
        await published(handle, range(1000, 3500))
        known = (await mine.read()).value
        reading = segments_of(mine)
        assert [segment.n for segment in await anext(reading)] == list(range(1000))
        second = await handle.chunk(known.chunks[1].c)
        chunked = {line.c: (await handle.chunk(line.c)).segments for line in known.chunks[:2]}
        for _ in range(4):  # an edit takes 500 out
            done = await handle.edit(Trim(2000, 2000, 2000, 1, chunked))
            await handle.edit(Clear([each.ledger for each in done.manifest.doomed]))
        for line in known.chunks[:2]:
            await handle.records.delete(paths.chunk_path(LOG, line.c), -1)
        assert second.segments[0].n == 1000
        left = (await handle.read()).value.begin.n
        assert left == 2000
        assert await numbers(reading) == list(range(left, 2500))
        last = (await handle.read()).value.chunks[-1]
        await handle.records.delete(paths.chunk_path(LOG, last.c), -1)
        with pytest.raises(LogDamaged, match="chunk"):
            await numbers(segments_of(world.handle()))

    run(story)
