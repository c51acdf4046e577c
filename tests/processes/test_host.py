"""Hosts of two bookies each over a real ZooKeeper: copies lie on different hosts while bookies are killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.client.api import Client, connect
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import NotEnoughBookies
from quire.replication.lost_bookies import recover_bookies
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.reactor import between_looks, reactor, run
from tests.tools.command import ok
from tests.tools.host.process import HostProcess

# SPDX-License-Identifier: Apache-2.0

HOSTS = ("a", "b", "c")
BATCHES, BATCH = 60, 50


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HostProcess]]:
    """Three of them, two bookies each."""
    directory = tmp_path_factory.mktemp("hosts")
    zookeeper = ZooKeeper(directory / "zookeeper", tick_ms=250)
    made = [HostProcess(directory / name, zookeeper.uri, name, zkTimeout="2000") for name in HOSTS]
    try:
        ok("metadata", "init", "--metadata", zookeeper.uri)
        for each in made:
            each.begin()
        for each in made:
            each.ready()
        yield made
    finally:
        for each in made:
            each.end()
        zookeeper.stop()


def on_different_hosts(metadata: LedgerMetadata) -> bool:
    """Whether no entry has two copies on one host, fragment by fragment and entry by entry of a round."""
    size, write = metadata.ensemble_size, metadata.write_quorum
    return all(
        len({fragment.bookies[(entry + step) % size].split("-")[0] for step in range(write)}) == write
        for fragment in metadata.fragments
        for entry in range(size)
    )


def uri_of(hosts: list[HostProcess]) -> str:
    return hosts[0].keys["metadataServiceUri"]


@pytest.mark.parametrize(("size", "write"), [(2, 2), (3, 3), (4, 2)])
def test_a_bookie_is_killed_while_entries_come(hosts: list[HostProcess], size: int, write: int) -> None:
    """
    The writer goes on, with the other bookie of a host or on another one; the killed bookie comes back; every entry is
    read back, and no two copies of one are on one host.
    """

    async def story() -> None:
        client: Client = await connect(reactor, uri_of(hosts))
        writer = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=write - 1)
        for number in range(BATCHES):
            if number == BATCHES // 3:
                victim = (await client.metadata(writer.id)).fragments[-1].bookies[-1]
                process = next(each["pid"] for host in hosts for each in children(host) if each["bookie"] == victim)
                os.kill(int(process), signal.SIGKILL)
            await writer.append_many([b"%d of %d" % (each, number) for each in range(BATCH)])
        await writer.close()
        metadata = await client.metadata(writer.id)
        assert on_different_hosts(metadata), metadata.fragments
        reader = await client.open_ledger(writer.id)
        entries = [entry.data async for batch in reader.stream() for entry in batch]
        assert entries == [b"%d of %d" % (each, number) for number in range(BATCHES) for each in range(BATCH)]
        await client.close()

    run(story)
    while any(host.get("/healthz")[0] != 200 for host in hosts):
        between_looks()


def children(host: HostProcess) -> list[dict[str, str]]:
    """Its bookies and their processes as they are now, from the processes' own ready lines in its log."""
    found = []
    for number in (0, 1):
        conf = str(host.directory / "journal" / f"bookie-{number}" / "bookie.conf").encode()
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                try:
                    words = (process / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if conf in words:
                    found.append({"bookie": f"{host.directory.name}-{number}", "pid": process.name})
    return found


def test_a_lost_bookie_s_copies_go_to_its_own_host_or_to_a_free_one(hosts: list[HostProcess]) -> None:
    """With a copy on each host there is one place only: the other bookie of the lost one's host."""

    async def story() -> None:
        client: Client = await connect(reactor, uri_of(hosts))
        writer = await client.create_ledger()
        await writer.append_many([b"entry %d" % number for number in range(10)])
        await writer.close()
        lost = (await client.metadata(writer.id)).fragments[0].bookies[0]
        done = await recover_bookies(client, {lost}, writer.id, even_if_registered=True)
        assert done.complete, done.failed
        metadata = await client.metadata(writer.id)
        assert lost not in metadata.fragments[0].bookies
        assert on_different_hosts(metadata)
        with pytest.raises(NotEnoughBookies, match="2 on a, 2 on b, 2 on c"):
            await client.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=2)
        await client.close()

    run(story)
