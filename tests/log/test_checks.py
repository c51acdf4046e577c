"""A log held against its rules: nothing is found in a sound one, each fault in one that is not, and nothing changes."""

from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_orphans import used
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def findings(logs):
    return [each async for each in logs.check("a")]


async def rewritten(logs, id_, change):
    """The manifest with some bytes exchanged."""
    records, path = logs.bk.store.records, f"logs/{id_[:2]}/{id_}"
    data, version = await records.read(path)
    await records.write(path, change(data), version)


def test_a_sound_log(tmp_path):
    """With adopted, published and owned segments, one of them open; the owner goes on."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            id_ = await used(logs)
            before = await logs.bk.store.records.read(f"logs/{id_[:2]}/{id_}")
            assert await findings(other) == []
            assert [segment.n async for segment in other.segments("a")] == [0, 1, 2]
            assert await logs.bk.store.records.read(f"logs/{id_[:2]}/{id_}") == before
            ledger = (await logs.info("a")).ledger
            assert not (await logs.bk.metadata(ledger)).is_closed

    run(story)


def test_what_is_found(tmp_path):
    """A ledger that is gone, counts that are not the last entry's, a ledger named twice."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            id_ = await used(logs)
            adopted, published, _owned = [segment async for segment in logs.segments("a")]
            await logs.bk.delete_ledger(published.ledger)
            (found,) = await findings(other)
            assert found[:2] == (1, published.ledger)
            assert "is gone" in found.what
            await rewritten(
                other,
                id_,
                lambda data: data.replace(b'"ledger":%d' % published.ledger, b'"ledger":%d' % adopted.ledger),
            )
            assert ["that of segment 0" in each.what for each in await findings(other)] == [True, False]
            await rewritten(other, id_, lambda data: data.replace(b'"state":"open"', b'"state":"odd"'))
            (found,) = await findings(other)
            assert found[:2] == (None, None)
            assert "odd" in found.what

    run(story)
