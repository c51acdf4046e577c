"""A ledger that is gone, and one that a publisher settled: what the manifest says decides."""

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.edits import Publish
from quire.log.core.upkeep_edits import Clear
from quire.log.core.values import Counts
from quire.log.store.editing import LogRecords
from quire.protocol.log_errors import AppendUnknown, LogFenced, NoSuchLog, NotOwner, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def records_of(logs):
    """The log's records, for edits by hand."""
    return LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, (await logs.info("a")).id, "a")


def test_an_open_ledger_that_is_deleted_by_hand(tmp_path):
    """The owner ends and says which segment is lost, and the command that goes on; so does a takeover."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"one")
            lost = Deferred()
            owner.on_lost = lambda: lost.callback(None)
            await other.bk.delete_ledger((await logs.info("a")).ledger)
            await lost
            error = await failing(owner.append(b"two"), SegmentLost, AppendUnknown)
            assert "quire log give-up a 0" in str(error)
            error = await failing(Deferred.fromCoroutine(other.own("a")), SegmentLost)
            assert "segment 0" in str(error)

    run(story)


@pytest.mark.parametrize("empty", [False, True])
def test_a_publisher_that_settles_the_open_segment(tmp_path, empty):
    """It recovers the ledger and closes or dooms the segment in its edit; the owner goes on behind it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            count = 0
            if not empty:
                await owner.append(b"one")
                count = 1
            else:
                await owner.barrier()  # opens a segment without a record
            info = await logs.info("a")
            records = await records_of(other)
            await other.bk.recover_ledger(info.ledger)
            counts = Counts(count, 3 * count, 1, 5)
            assert (await records.edit(Publish([], 5, (0, counts)))).done
            if empty:
                await other.bk.delete_ledger(info.ledger)
                assert (await records.edit(Clear([info.ledger]))).done
            assert (await owner.append(b"two")).index == count
            assert (await logs.info("a")).epoch == 1
            assert await values(await logs.read("a"), count + 1) == [*[b"one"][:count], b"two"]

    run(story)


def test_a_log_that_is_gone_with_its_ledger(tmp_path):
    """What was sent fails as unknown at once: nothing will ever say what was in it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(append_ms=600_000), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"one")
            for bookie in world.bookies[:2]:
                await bookie.stop()
            waiting = owner.append(b"two")
            await other.delete("a")
            await other.tidy(abandon=True)
            await failing(waiting, AppendUnknown)

    run(story)


@pytest.mark.parametrize("appended", [False, True])
def test_an_owner_whose_manifest_somebody_missed(tmp_path, appended):
    """Upkeep of the same process looked for the log in vain: what is appended is answered, by the log or its end."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(append_ms=1000), await world.logs()
            await logs.create("a", roll_records=1)
            owner = await logs.own("a")
            if appended:
                await owner.append(b"0")
            owner.records.known = None
            assert (await owner.append(b"next")).index == appended
            await other.delete("a")
            await other.tidy()
            owner.records.known = None
            await failing(owner.append(b"late"), NoSuchLog, LogFenced, NotOwner)

    run(story)
