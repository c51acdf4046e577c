"""Repair on real bookies: a bookie dies with its disks, its copies are made again, and every replica is read back."""

import pytest

from quire.client import ClientOptions
from quire.client.api import connect
from quire.protocol.errors import IllegalOp
from quire.replication.checker import check_ledger
from quire.replication.decommission import decommission
from quire.replication.lost_bookies import recover_bookies
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster


@pytest.mark.parametrize(("protocol", "ensemble", "write"), [("v2", 3, 3), ("v3", 3, 3), ("v2", 4, 2)])
def test_decommission_leaves_every_ledger_with_all_its_copies(tmp_path, protocol, ensemble, write):
    """
    Closed and open ledgers; refused while the bookie is up; the cookie goes; the metadata doesn't name it any more.
    """
    payloads = [b"%05d " % number + b"x" * (number % 100) for number in range(3000)]
    with RealCluster(tmp_path, 5) as cluster:

        async def story() -> None:
            client = await connect(reactor, cluster.uri, ClientOptions(protocol=protocol))
            ledgers = []
            for kind in ("closed", "open", "closed"):
                writer = await client.create_ledger(
                    ensemble_size=ensemble, write_quorum=write, ack_quorum=2, password=b"secret"
                )
                for at in range(0, len(payloads), 500):
                    await writer.append_many(payloads[at : at + 500])
                if kind == "closed":
                    await writer.close()
                ledgers.append(writer)
            lost = ledgers[1].metadata.last_fragment.bookies[0]
            with pytest.raises(IllegalOp):
                await decommission(client, lost)
            await cluster.killed(lost)
            done = await decommission(client, lost)
            assert done.progress.ledgers_recovered == 1
            assert lost not in await client.store.cookies()
            for writer in ledgers:
                metadata = await client.metadata(writer.id)
                assert metadata.is_closed
                assert lost not in metadata.bookies()
                check = await check_ledger(client, writer.id)
                assert check.complete, check.missing
                assert check.copies_expected == 3000 * write
                reader = await client.open_ledger(writer.id, b"secret")
                assert [entry.data for entry in await reader.read(0, 2999)] == payloads
            await client.close()

        run(story)


def test_a_check_sees_a_bookie_that_is_down_and_a_repair_ends_it(tmp_path):
    """Processes: check, dry run, repair of 5,000 entries, and a check that finds nothing."""
    with RealCluster(tmp_path, 4) as cluster:

        async def story() -> None:
            client = await connect(reactor, cluster.uri)
            writer = await client.create_ledger(ack_quorum=3)
            await writer.append_many([b"x" * 1000] * 5000)
            await writer.close()
            assert (await check_ledger(client, writer.id)).complete
            lost = writer.metadata.last_fragment.bookies[2]
            await cluster.killed(lost)
            check = await check_ledger(client, writer.id)
            assert [(each.bookie, each.first, each.entries) for each in check.missing] == [(lost, 0, 5000)]
            dry = await recover_bookies(client, [lost], dry_run=True)
            assert (dry.progress.entries, dry.progress.fragments) == (5000, 1)
            done = await recover_bookies(client, [lost])
            assert done.complete
            assert done.progress.entries == 5000
            assert (await check_ledger(client, writer.id)).complete
            await client.close()

        run(story)
