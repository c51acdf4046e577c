"""
A cluster in containers: a ZooKeeper, and each bookie in a container of its own, on a network of their own.

Knows: how they are started one after the other, and when a bookie serves; which container a bookie is, so that a test
may pause it, cut its network or run a command in it.
Does not know: how images are made, or Docker; testcontainers does.

Bookies have fixed ids, `bookie-0` and so on, and are reached at the addresses of their containers, as a program on the
same Linux machine can.

Safety: only containers and the network that were made here are touched, and none is left at the end.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from quire.client.background import running_reactor
from quire.client.threads import reactor_thread
from quire.metadata.uri import open_store
from quire.protocol.errors import MetaStore
from quire.testing.cluster import BOOKIES, Cluster
from quire.tools.local_cluster.process import NotStarted

__all__ = ["ContainerCluster"]

# SPDX-License-Identifier: Apache-2.0

ZOOKEEPER, ZOOKEEPER_PORT = "zookeeper", 2181
ZOOKEEPER_IMAGE = "zookeeper:3.9"
START_S = 120.0  # on a busy machine, too
STOP_S = 30
LOOK_S = 0.05
READY = b"ready "  # what the process of a bookie says on its standard output when it serves
LOG_LINES_TOLD = 15
COMMAND = ["bookie", "start"]  # of `quire`, which the image begins with
FILES = "/quire/data"
OPTIONS = {
    "journalDirectories": f"{FILES}/journal",
    "ledgerDirectories": f"{FILES}/ledgers",
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.999",
    "zkTimeout": "4000",  # a bookie that was killed waits so long for its old self to be forgotten
}

Prepare = Callable[[str, DockerContainer], object]


def as_it_is(_name: str, _container: DockerContainer) -> None:
    """Changes nothing."""


class ContainerCluster(Cluster):
    """
    `image`: of quire, as `Dockerfile` makes it: its first process is `quire` with the command that it is given.
    `zookeeper_image`: of a ZooKeeper that serves port 2181.  `options`: of each bookie, by BookKeeper's keys.
    `prepare`: called with the name of each container (`zookeeper`, or a bookie's id) before it is made, to give it
    mounts, limits or another command.
    """

    def __init__(
        self,
        image: str,
        zookeeper_image: str = ZOOKEEPER_IMAGE,
        bookies: int = BOOKIES,
        options: Mapping[str, str] | None = None,
        prepare: Prepare = as_it_is,
    ) -> None:
        super().__init__()
        self._image = image
        self._zookeeper_image = zookeeper_image
        self._count = bookies
        self._options = {**OPTIONS, **(options or {})}
        self._prepare = prepare
        self._ids: list[str] = []
        self._containers: dict[str, DockerContainer] = {}
        self.network: Network | None = None

    @property
    def ids(self) -> Sequence[str]:
        return self._ids

    @property
    def running(self) -> Sequence[str]:
        return [bookie for bookie in self._ids if bookie in self._containers and self._status(bookie) == "running"]

    def container(self, name: str) -> DockerContainer:
        """The container of a bookie, or of `zookeeper`."""
        return self._containers[name]

    def address(self, name: str) -> str:
        """The address of a container on its network, the first of several; empty while it does not run."""
        networks = self._attributes(name)["NetworkSettings"]["Networks"].values()
        return next((str(network["IPAddress"]) for network in networks), "")

    def add(self) -> str:
        (added,) = self._add(1)
        return added

    # -- how

    def _begin(self) -> None:
        try:
            self.network = Network()
        except Exception as failure:  # of docker, whose errors have no types here
            raise NotStarted(f"Docker does not answer ({failure}); start it, or set DOCKER_HOST") from failure
        self.network.create()
        self._run(ZOOKEEPER, DockerContainer(self._zookeeper_image))
        self.uri = f"zk://{self.address(ZOOKEEPER)}:{ZOOKEEPER_PORT}/ledgers"
        self._make_cluster()
        self._add(self._count)

    def _end(self) -> None:
        while self._containers:
            self._containers.popitem()[1].stop()
        if self.network is not None:
            self.network.remove()

    def _make_cluster(self) -> None:
        """Waits for ZooKeeper, and makes the cluster in it."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                return reactor_thread().wait(self._init)
            except MetaStore as failure:
                if self._status(ZOOKEEPER) == "exited" or time.monotonic() > deadline:
                    raise self._not_started(ZOOKEEPER) from failure

    async def _init(self) -> None:
        store = await open_store(running_reactor(), self.uri)
        try:
            await store.init_cluster()
        finally:
            await store.close()

    def _add(self, count: int) -> Sequence[str]:
        """Starts more bookies, all at once; their ids."""
        added = [f"bookie-{len(self._ids) + number}" for number in range(count)]
        for bookie in added:
            container = DockerContainer(self._image).with_command(COMMAND)
            keys = {
                "metadataServiceUri": f"zk://{ZOOKEEPER}:{ZOOKEEPER_PORT}/ledgers",
                "bookieId": bookie,
                **self._options,
            }
            container.with_envs(**{f"BK_{key}": value for key, value in keys.items()})
            self._run(bookie, container)
            self._ids.append(bookie)
        for bookie in added:
            self._ready(bookie, 0)
        return added

    def _run(self, name: str, container: DockerContainer) -> None:
        assert self.network is not None
        container.with_network(self.network).with_network_aliases(name)
        self._prepare(name, container)
        self._containers[name] = container
        container.start()

    def _wrapped(self, name: str) -> Any:
        return self._containers[name].get_wrapped_container()

    def _attributes(self, name: str) -> Any:
        wrapped = self._wrapped(name)
        wrapped.reload()
        return wrapped.attrs

    def _status(self, name: str) -> str:
        return str(self._attributes(name)["State"]["Status"])

    def _times_ready(self, bookie: str) -> int:
        said: bytes = self._wrapped(bookie).logs(stderr=False)
        return sum(line.startswith(READY) for line in said.splitlines())

    def _ready(self, bookie: str, before: int) -> None:
        """Waits until a bookie has said once more than `before` times that it serves."""
        deadline = time.monotonic() + START_S
        while self._times_ready(bookie) <= before:
            if self._status(bookie) == "exited" or time.monotonic() > deadline:
                raise self._not_started(bookie)
            time.sleep(LOOK_S)

    def _not_started(self, name: str) -> NotStarted:
        said = self._wrapped(name).logs(tail=LOG_LINES_TOLD).decode(errors="replace")
        return NotStarted(f"the container of {name} ({self._status(name)}) does not serve; its log ends with:\n{said}")

    def _kill(self, bookie: str) -> None:
        wrapped = self._wrapped(bookie)
        wrapped.kill()
        wrapped.wait()

    def _stop(self, bookie: str) -> None:
        self._wrapped(bookie).stop(timeout=STOP_S)

    def _start(self, bookie: str) -> None:
        before = self._times_ready(bookie)
        self._wrapped(bookie).start()
        self._ready(bookie, before)
