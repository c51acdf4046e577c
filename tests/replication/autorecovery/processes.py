"""Processes of AutoRecovery on the clients' fake cluster, each with a session of its own."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import succeed

from quire.client.api import Client
from quire.client.placement.topology import Topology
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetaStore
from quire.replication.autorecovery.running import AutoRecovery
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]
OPTIONS = AutoRecoveryOptions(metadata_uri="zk://nowhere/ledgers", copies_check_interval_s=0, scrub_interval_s=0)
AWAY = Fault(error=MetaStore("the store is away"))


def options(**changed: object) -> AutoRecoveryOptions:
    return OPTIONS.model_copy(update=changed)


def joined(cluster: FakeCluster) -> Client:
    """A client whose store has a session of its own."""
    client = cluster.client()
    client.store = MemoryStore(cluster.clock, cluster.shared)
    return client


def in_racks(cluster: FakeCluster) -> Client:
    """A client that wants two racks: `THREE` are in one, the others in another."""
    client = cluster.client(placement="rack-aware")
    client.store = MemoryStore(cluster.clock, cluster.shared)
    client.topology = Topology(
        cluster.clock.seconds,
        lambda hosts: succeed({bookie: "/one" if bookie in THREE else "/two" for bookie in hosts}),
    )
    return client


def store_of(client: Client) -> MemoryStore:
    assert isinstance(client.store, MemoryStore)
    return client.store


def faulty(client: Client, faults: Callable[[str, tuple[Any, ...]], Fault | None]) -> None:
    store_of(client).faults = lambda *asked: faults(*stored.meaning(*asked))


def healing(
    cluster: FakeCluster, bookie: str = "a1:3181", client: Client | None = None, **changed: object
) -> AutoRecovery:
    """One more process, at work."""
    made = AutoRecovery(client or joined(cluster), bookie, options(**changed))
    made.start()
    return made


def queue(cluster: FakeCluster) -> list[int]:
    return list(stored.shortages(cluster.shared))


def locks(cluster: FakeCluster) -> list[int]:
    return list(stored.locks(cluster.shared))


def mark(cluster: FakeCluster, ledger: int, *bookies: str) -> None:
    cluster.succeed(cluster.store.repairs.mark(ledger, bookies, None))
