"""
Clusters of the image that runs this checkout: `ContainerCluster`, with what that image lacks.

Knows: the mounts that its containers need, and how ZooKeeper is started of pyspark's jars.
Does not know: faults; tests bring them about by the containers.
"""

from collections.abc import Mapping
from typing import Any

import docker
from testcontainers.core.container import DockerContainer, ExecConfig
from testcontainers.core.network import Network
from twisted.internet.task import deferLater

from quire.metadata.uri import open_store
from quire.testing.containers import ZOOKEEPER, ZOOKEEPER_PORT, ContainerCluster, Prepare, as_it_is
from quire.tools.local_cluster.zookeeper import HEAP, MAIN, jars, java
from tests.containers.image import mounts
from tests.reactor import LOOK_S, reactor, run

# SPDX-License-Identifier: Apache-2.0

SESSION_MS = 60_000  # a ZooKeeper that comes back on a busy machine takes its time
SERVER = f"""
mkdir -p /var/lib/zookeeper && cd /var/lib/zookeeper
printf '%s\\n' clientPort={ZOOKEEPER_PORT} dataDir=/var/lib/zookeeper tickTime=1000 forceSync=no \\
    admin.enableServer=false maxClientCnxns=0 > zookeeper.cfg
exec {{java}} {HEAP} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.admin.enableServer=false -cp {{jars}} \\
    {MAIN} zookeeper.cfg
"""


def mounted(container: DockerContainer, **more: object) -> DockerContainer:
    """The container with what the image lacks, and more of what Docker is told."""
    for path in mounts():
        container.with_volume_mapping(path, path, "ro")
    return container.with_kwargs(**more)


def network_of(network: Network) -> Any:
    """Docker's own object of a network, which can take a container off it."""
    return docker.from_env().networks.get(network.id)


def listed(made: ContainerCluster) -> None:
    """Waits until every bookie may be written to."""

    async def story() -> None:
        store = await open_store(reactor, made.uri, session_timeout_ms=SESSION_MS)  # type: ignore[arg-type]  # Twisted's own
        try:
            while set((await store.bookies()).writable) != set(made.ids):
                await deferLater(reactor, LOOK_S)  # type: ignore[arg-type]
        finally:
            await store.close()

    run(story)


def in_it(made: ContainerCluster, bookie: str, *words: str) -> str:
    """Runs a command in a bookie's container; its output."""
    code, output = made.container(bookie).exec(ExecConfig([*words]))
    assert code == 0, output.decode()
    return output.decode()


def cluster(
    image: str, bookies: int = 4, options: Mapping[str, str] | None = None, prepare: Prepare = as_it_is
) -> ContainerCluster:
    """A cluster of that image; `prepare` comes last."""

    def prepared(name: str, container: DockerContainer) -> None:
        if name == ZOOKEEPER:
            server = SERVER.format(java=java(), jars=":".join(map(str, jars())))
            mounted(container).with_command(["sh", "-c", server])
        else:
            mounted(container, entrypoint=["quire"], cap_add=["NET_ADMIN"])
        prepare(name, container)

    return ContainerCluster(image, image, bookies, options, prepared)
