"""An open segment is brought to its end by another than its owner; one that is gone is judged by the manifest."""

from twisted.internet.defer import Deferred

from quire.log.core.edits import CloseSegment
from quire.log.core.values import Counts
from quire.log.publish.settling import settled
from quire.log.store.ledgers import LogLedgers
from quire.protocol.log_errors import SegmentLost
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def opened(world):
    """A log whose segment is open, as another process sees it."""
    logs, other = await world.logs(), await world.logs()
    await logs.create("a")
    owner = await logs.own("a")
    await owner.append_many([b"one", b"two"])
    records = await records_of(other)
    return records, LogLedgers(other.bk, b""), (await records.read()).value


def test_it_is_fenced_and_counted(tmp_path):
    """Whatever the owner is doing; where none is open there is nothing to settle."""

    async def story():
        async with cluster(tmp_path) as world:
            records, ledgers, manifest = await opened(world)
            number, counts = await settled(records, ledgers, manifest)
            assert (number, counts.records, counts.bytes) == (0, 2, 6)
            assert await settled(records, ledgers, CloseSegment(0, counts).apply(manifest)) is None

    run(story)


def test_its_ledger_is_gone(tmp_path):
    """Lost while the manifest says that it is open; closed by another one meanwhile: not."""

    async def story():
        async with cluster(tmp_path) as world:
            records, ledgers, manifest = await opened(world)
            await ledgers.delete(manifest.open_segment.ledger)
            error = await failing(Deferred.fromCoroutine(settled(records, ledgers, manifest)), SegmentLost)
            assert "from index 0 on" in str(error)
            await records.edit(CloseSegment(0, Counts(2, 6, 1, 1)))
            assert await settled(records, ledgers, manifest) is None

    run(story)
