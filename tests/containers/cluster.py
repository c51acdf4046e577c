"""
Clusters of the image that runs this checkout: `ContainerCluster`, with what that image lacks.

Knows: the mounts that its containers need, and how ZooKeeper is started of pyspark's jars.
Does not know: faults; tests bring them about by the containers.
"""

from collections.abc import Mapping

from testcontainers.core.container import DockerContainer

from quire.testing.containers import ZOOKEEPER, ZOOKEEPER_PORT, ContainerCluster, Prepare, as_it_is
from quire.tools.local_cluster.zookeeper import HEAP, MAIN, jars, java
from tests.containers.image import mounts

# SPDX-License-Identifier: Apache-2.0

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
