"""What a segment's ledger is to hold: whose it is, how it ends, and what its last entry says."""

from dataclasses import replace

from twisted.internet.defer import fail

from quire.log.checks import SegmentLedgers
from quire.log.store.ledgers import LogLedgers
from quire.protocol.errors import MetaStore, NotEnoughBookies
from tests.log.fakes.cluster import cluster
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import story_of
from tests.log.upkeep.test_orphans import used
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_what_does_not_hold(tmp_path):
    """Each of the ways in which a ledger is not what its segment says."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = await used(logs)
            client, records = logs.bk, logs.bk.store.records
            held = SegmentLedgers(client, records, LogLedgers(client, b""), id_)
            adopted, published, owned = [segment async for segment in logs.segments("a")]
            for segment in (adopted, published, owned):
                assert await held.wrong(segment) is None
            theirs = await plain(logs, b"theirs")
            closed = replace(owned, records=1, bytes=5, entries=1, t=(1, 1))
            for segment, text in (
                (replace(published, records=2), "it has 2 records of 9 bytes, its last entry says 1 of 9"),
                (replace(published, bytes=10), "1 records of 10 bytes"),
                (replace(adopted, bytes=8), "its last entry says 1 of 7"),
                (replace(published, entries=2), "it has 2 entries, its ledger ends at entry 0"),
                (closed, "its ledger is not closed"),
                (replace(published, ledger=theirs), "its ledger is of no log"),
                (replace(published, ledger=10_000), "is gone"),
            ):
                assert text in await held.wrong(segment)
            for segment in (
                replace(published, ledger=10_000, lost=True),
                replace(published, ledger=10_000, offload={"bookies": "deleted"}),
            ):
                assert await held.wrong(segment) is None
            other = SegmentLedgers(client, records, LogLedgers(client, b""), "0" * 32)
            assert f"the log with the id {id_}" in await other.wrong(published)
            client.open_ledger = lambda *_, **__: fail(NotEnoughBookies("none"))
            assert "can't be read: NotEnoughBookies" in await held.wrong(published)
            client.metadata = lambda _: fail(MetaStore("away"))
            await failing(story_of(held.wrong(published)), MetaStore)

    run(story)
