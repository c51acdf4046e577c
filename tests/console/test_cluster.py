"""What the console looks at in the background, of real bookies."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.console.cluster import Cluster
from quire.log.api import Logs
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import NEW, ServiceInfo
from tests.reactor import run
from tests.tools.commands.doctor.conftest import World

# SPDX-License-Identifier: Apache-2.0


def looked_at(world: World, story: Callable[[Cluster], Awaitable[None]]) -> None:
    """A cluster whose looks are made by the story."""

    async def whole() -> None:
        client = await world.client()
        try:
            await story(Cluster(client))
        finally:
            await client.close()

    run(whole)


async def look(cluster: Cluster) -> None:
    """Makes each look once."""
    for each in cluster.rounds:
        await each.start()
    await cluster.stop()


def test_bookies_and_what_is_wrong(world: World) -> None:
    """All are writable; one that is known and away is down; one that is listed and does not answer is silent."""

    async def story(cluster: Cluster) -> None:
        await look(cluster)
        found = cluster.bookies.value
        assert found is not None
        assert (found.counts, list(found.racks)) == ({"writable": 3}, ["/default-rack"])
        assert cluster.findings == []
        assert {row.version for row in found.rows} != {None}
        assert all(row.total for row in found.rows)
        await world.store.write_cookie("lost:1", b"cookie", NEW)
        await world.store.register_bookie("mute:1", ServiceInfo.of("127.0.0.1", 1))
        try:
            await look(cluster)
        finally:
            await world.store.unregister_bookie("mute:1")
            await world.store.remove_cookie("lost:1")
        found = cluster.bookies.value
        assert (found.states["lost:1"], found.states["mute:1"]) == ("down", "silent")
        assert {each.about for each in cluster.findings} == {"lost:1", "mute:1"}

    looked_at(world, story)


def test_racks_are_those_of_the_client_s_configuration(world: World, tmp_path: Path) -> None:
    """As placement knows them."""
    places = tmp_path / "places"
    places.write_text("b0 /east/r1\nb2 /west/r1\n")

    async def story() -> None:
        client = await world.client(ClientOptions(topology="file", topology_file=str(places)))
        try:
            cluster = Cluster(client)
            await look(cluster)
            assert cluster.bookies.value is not None
            racks = {rack: [row.bookie for row in rows] for rack, rows in cluster.bookies.value.racks.items()}
            assert racks == {"/default-rack": ["b1"], "/east/r1": ["b0"], "/west/r1": ["b2"]}
        finally:
            await client.close()

    run(story)


def test_rates_come_with_the_second_look(world: World) -> None:
    """Of what was appended between the two."""

    async def story(cluster: Cluster) -> None:
        await look(cluster)
        found = cluster.bookies.value
        assert found is not None
        assert found.total("adds") is None
        writer = await cluster.client.create_ledger(ack_quorum=3)
        await writer.append_many([b"x"] * 100)
        await look(cluster)
        found = cluster.bookies.value
        assert (found.total("adds") or 0) > 0
        assert (found.total("bytes") or 0) > 0
        assert (found.most("latency") or 0) > 0
        assert found.total("nothing of that name") is None
        await writer.close()
        await cluster.client.delete_ledger(writer.id)

    looked_at(world, story)


def test_ledgers_are_counted(world: World) -> None:
    """With the highest ids, behind which new ones are shown."""

    async def story(cluster: Cluster) -> None:
        ids = [10**12 + number for number in range(3)]
        for each in ids:
            await world.store.create_ledger(each, LedgerMetadata.new(1, 1, 1, ["b0"]))
        await look(cluster)
        for each in ids:
            await world.store.delete_ledger(each)
        assert cluster.ledgers.value is not None
        assert cluster.ledgers.value.newest[-3:] == ids
        assert cluster.ledgers.value.total >= 3

    looked_at(world, story)


def test_logs_and_their_takeovers(world: World) -> None:
    """A log whose epoch has grown between two looks was taken over."""

    async def story(cluster: Cluster) -> None:
        logs = Logs(cluster.client, LogOptions())
        await logs.create("orders")
        try:
            await look(cluster)
            assert cluster.logs.value is not None
            assert list(cluster.logs.value.states) == ["orders"]
            assert list(cluster.takeovers) == []
            owner = await logs.own("orders", address="here:1")
            await look(cluster)
            (seen,) = cluster.takeovers
            assert (seen.log, seen.owner, seen.epoch) == ("orders", "here:1", owner.epoch)
            await owner.close()
        finally:
            await logs.delete("orders")
            await logs.close()

    looked_at(world, story)
