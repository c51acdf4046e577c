"""Ledgers that are being deleted: fenced first, forgotten last; those that can't be recovered stay."""

from quire.conf.log import LogSettings
from quire.log.core.manifest import Adopted
from quire.log.core.upkeep_edits import Doom
from quire.log.store.ledgers import Tags
from quire.log.store.paths import adopted_path
from quire.log.upkeep.deleting import clear_doomed, delete_ledgers, is_adopted
from quire.metadata.records import NoRecord
from quire.protocol.errors import LedgerFenced, NoSuchLedger
from tests.log.fakes.cluster import cluster
from tests.log.upkeep.test_trims import kept_of, records_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

TAGS = Tags("log-segment", "6f1c", "orders", "c0ffee")


async def doomed_ledger(logs, kept, **settings):
    """A ledger with an entry, among the doomed of the log, and its writer."""
    writer = await kept.ledgers.create(LogSettings.made(**settings), TAGS)
    await writer.append(b"x")
    await kept.log.edit(Doom([writer.id], "orphan", 1))
    return writer


def test_in_order(tmp_path):
    """Fenced, deleted, forgotten; its writer can't go on; twice is nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            points = []
            logs = await world.logs()
            await logs.create("a")
            kept = await kept_of(logs, points.append)
            writer = await doomed_ledger(logs, kept)
            points.clear()
            done = await clear_doomed(kept)
            assert (done.gone, done.stayed) == ({writer.id}, {})
            assert points == ["trim.fenced", "trim.deleted", "trim.cleared"]
            await failing(logs.bk.metadata(writer.id), NoSuchLedger)
            await failing(writer.append(b"y"), LedgerFenced, NoSuchLedger)
            assert (await logs.info("a")).doomed == 0
            assert (await clear_doomed(kept)).gone == set()
            assert (await delete_ledgers(kept, [writer.id, 10**6], "x", "y")).gone == {writer.id, 10**6}

    run(story)


def test_one_that_can_t_be_recovered(tmp_path):
    """For want of bookies it stays and is named; it goes with `abandon` only, and the others go beside it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            kept = await kept_of(logs)
            good = await doomed_ledger(logs, kept)
            await good.close()
            bad = await doomed_ledger(logs, kept)
            for bookie in world.bookies[:2]:
                await bookie.stop()
            report = await logs.tidy("a")
            assert report.deleted == [good.id]
            assert list(report.stayed) == [bad.id]
            assert (await logs.info("a")).doomed == 1
            report = await logs.tidy("a", abandon=True)
            assert (report.deleted, report.stayed) == ([bad.id], {})
            assert (await logs.info("a")).doomed == 0

    run(story)


def test_one_that_the_log_had_taken_in(tmp_path):
    """The record of that goes in the step that forgets it; another log's record stays."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            kept = await kept_of(logs)
            mine, theirs = await doomed_ledger(logs, kept), await doomed_ledger(logs, kept)
            for writer, log in ((mine, kept.log.log), (theirs, "another")):
                path = adopted_path(writer.id)
                await kept.log.records.folder(path.rpartition("/")[0])
                await kept.log.records.create(path, Adopted(log, 0, 0, 1, "e").encode())
            await kept.log.edit(Raw())
            assert await is_adopted(kept, mine.id)
            assert not await is_adopted(kept, theirs.id)
            await clear_doomed(kept)
            await failing(kept.log.records.read(adopted_path(mine.id)), NoRecord)
            await kept.log.records.read(adopted_path(theirs.id))
            assert (await (await records_of(logs)).read()).value.doomed == ()

    run(story)


class Raw:
    """All doomed ledgers become ones that were taken in."""

    name = "raw"

    def apply(self, manifest):
        from dataclasses import replace

        return replace(manifest, doomed=tuple(replace(each, raw=True) for each in manifest.doomed))
