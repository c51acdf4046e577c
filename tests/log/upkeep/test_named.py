"""All that a log names, in the order in which ledgers move."""

import pytest

from quire.log.core.edits import Publish, Published
from quire.log.core.publishing import Intent
from quire.log.store import paths
from quire.log.upkeep.orphans import named_by
from quire.protocol.log_errors import LogDamaged
from tests.log.store.test_editing import LOG, World
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def published(handle, ledgers):
    """Segments of those ledgers; more than 512 move into chunks."""
    return await handle.edit(Publish([Published(ledger, 1, 1, 1) for ledger in ledgers], 1))


async def intended(handle, name, *ledgers):
    """An intent of that name in the folder `t`."""
    await handle.records.folder(f"{handle.path}/intents/t")
    await handle.records.create(f"{handle.path}/intents/t/{name}", Intent("run", 1, ledgers, 0).encode())


def test_everything_is_read():
    """Intents, cursors, segments, chunks, doomed."""

    async def story():
        world = World()
        handle = await world.made()
        await published(handle, range(1000, 1600))
        await intended(handle, "0-0-0-a", 7, 8)
        await intended(handle, "0-1-0-b", 9)
        value = '{"quire":"cursor","format":1,"name":"n","edit":"e","ledger":20,"mark":0,"state":"open","doomed":[]}'
        await handle.records.create(f"{handle.path}/cursor/c1", value.encode())
        named = await named_by(world.handle())
        assert (await handle.read()).value.chunks
        assert named.ledgers == {*range(1000, 1600), 7, 8, 9, 20}
        assert named.cursors == {"c1"}
        assert not named.gone

    run(story)


def test_a_log_that_is_gone():
    """Its intents and cursors are, too."""

    async def story():
        world = World()
        handle = await world.made()
        for part in (*paths.PARTS, "lease"):
            await handle.records.delete(f"{handle.path}/{part}", -1)
        await handle.records.delete(handle.path, -1)
        named = await named_by(world.handle())
        assert named.gone
        assert named.ledgers == set()

    run(story)


def test_a_ledger_that_moves_meanwhile():
    """From its intent into the manifest, right after the intents were read: it is named."""

    async def story():
        world = World()
        handle, other = await world.made(), world.handle()
        await intended(handle, "0-0-0-a", 7)
        children = handle.records.children

        async def moves(path, after="", limit=1000):
            if path.endswith("/intents/t"):
                if after == "":
                    await other.records.delete(f"{path}/0-0-0-a", -1)
                    await published(other, [7])
                return []
            return await children(path, after, limit)

        handle.records.children = moves
        assert (await named_by(handle)).ledgers == {7}

    run(story)


def test_a_chunk_that_is_gone():
    """Of a manifest of before: the newer one is read; else the log is damaged and nothing is judged."""

    async def story():
        world = World()
        handle = await world.made()
        await published(handle, range(1000, 1600))
        named = await named_by(world.handle())
        (line,) = (await handle.read()).value.chunks
        await handle.records.delete(paths.chunk_path(LOG, line.c), -1)
        assert await named.read_chunks((await handle.read()).value)
        with pytest.raises(LogDamaged, match="chunk"):
            await named_by(world.handle())

    run(story)
