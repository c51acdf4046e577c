"""Repair on real bookies: a bookie dies with its disks, its copies are made again, and every replica is read back."""

import pytest

from quire.client import ClientOptions
from quire.client.api import connect
from quire.protocol.errors import IllegalOp
from quire.replication.checker import check_ledger
from quire.replication.decommission import decommission
from quire.replication.lost_bookies import recover_bookies
from tests.client.whole.test_rights import PASSWORD, SHAPE, World, rights
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster


@pytest.mark.parametrize(("protocol", "ensemble", "write"), [("v2", 3, 3), ("v3", 3, 3), ("v2", 4, 2)])
def test_decommission_leaves_every_ledger_with_all_its_copies(tmp_path, protocol, ensemble, write):
    """
    Closed and open ledgers; refused while the bookie is up; the cookie goes; the metadata doesn't name it any more.
    """
    payloads = [b"%05d " % number + b"x" * (number % 100) for number in range(1000)]
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
            await cluster.halted(lost)
            done = await decommission(client, lost)
            assert done.progress.ledgers_recovered == 1
            assert lost not in await client.store.cookies()
            for writer in ledgers:
                metadata = await client.metadata(writer.id)
                assert metadata.is_closed
                assert lost not in metadata.bookies()
                check = await check_ledger(client, writer.id)
                assert check.complete, check.missing
                assert check.copies_expected == 1000 * write
                reader = await client.open_ledger(writer.id, b"secret")
                assert [entry.data for entry in await reader.read(0, 999)] == payloads
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
            await cluster.halted(lost)
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


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_repair_needs_to_read_and_to_fence_and_no_more(tmp_path, protocol):
    """With both copies are made of closed and open ledgers; without fence the ledgers stay as they are, and go on."""
    world = World(tmp_path, rights_file=rights(tmp_path, "role Maker all\nrole System read,fence\nrole Reader read\n"))
    kept = []

    async def written(client):
        for kind in ("closed", "open"):
            writer = await client.create_ledger(**SHAPE)
            await writer.append_many([b"x" * 100] * 500)
            if kind == "closed":
                await writer.close()
            kept.append((writer.id, writer.metadata.last_fragment.bookies))

    async def refused(client):
        done = await recover_bookies(client, [lost], even_if_registered=True)
        assert not done.complete

    async def repaired(client):
        done = await recover_bookies(client, [lost])
        assert done.complete
        for ledger, _bookies in kept:
            assert lost not in (await client.metadata(ledger)).bookies()
            assert (await check_ledger(client, ledger)).complete
            assert len(await (await client.open_ledger(ledger, PASSWORD)).read(0, 499)) == 500

    with world.cluster:
        world.go("Maker", written, protocol)
        lost = next(iter(set(kept[0][1]) & set(kept[1][1])))
        world.cluster.kill(lost)
        world.go("Reader", refused, protocol)
        world.go("System", repaired, protocol)
