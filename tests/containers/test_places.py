"""
Three networks with two bookies each, as three racks or as three regions: copies are on different ones, and a whole one
may be cut off.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from quire.testing.containers import ZOOKEEPER
from tests.containers.cluster import cluster, listed, network_of
from tests.containers.load import QUICK, Load

# SPDX-License-Identifier: Apache-2.0

PLACES, EACH = 3, 2


class Places:
    """`networks`, and the cluster of which bookie N is on network N % 3.  ZooKeeper is on all of them."""

    def __init__(self, image: str) -> None:
        self.networks = [Network() for _ in range(PLACES)]
        self._zookeeper: DockerContainer | None = None
        self._addresses: dict[str, str] = {}  # of the bookies that are cut off
        self.cluster = cluster(image, PLACES * EACH, prepare=self._prepare)

    def _prepare(self, name: str, container: DockerContainer) -> None:
        if name == ZOOKEEPER:
            self._zookeeper = container
            return
        assert self._zookeeper is not None
        number = int(name.rpartition("-")[2])
        network = self.networks[number % PLACES]
        if number < PLACES:
            network.connect(self._zookeeper.get_container_id(), [ZOOKEEPER])
        container.with_network(network)

    def of(self, bookie: str) -> int:
        return self.cluster.ids.index(bookie) % PLACES

    def cut(self, place: int) -> list[str]:
        """Takes all bookies off their network; their ids."""
        hit = [bookie for bookie in self.cluster.ids if self.of(bookie) == place]
        self._addresses = {bookie: self.cluster.address(bookie) for bookie in hit}
        for bookie in hit:
            network_of(self.networks[place]).disconnect(self.cluster.container(bookie).get_container_id())
        return hit

    def join(self, place: int) -> None:
        """Gives the bookies their network again, in the order in which they got their addresses."""
        for bookie, before in self._addresses.items():
            self.networks[place].connect(self.cluster.container(bookie).get_container_id(), [bookie])
            assert self.cluster.address(bookie) == before, "it announces that one"


@pytest.fixture(scope="module")
def places(image: str) -> Iterator[Places]:
    made = Places(image)
    with ExitStack() as stack:
        for network in made.networks:
            stack.enter_context(network)
        stack.enter_context(made.cluster)
        yield made


@pytest.mark.parametrize(
    ("policy", "form", "ack"), [("rack-aware", "/place{}", 2), ("region-aware", "/place{}/rack", 3)]
)
def test_a_place_is_cut_off(places: Places, tmp_path: Path, policy: str, form: str, ack: int) -> None:
    """Each ledger has all three places, then the two that are left; it is read while one is away."""
    topology = tmp_path / "places"
    topology.write_text("".join(f"{bookie} {form.format(places.of(bookie))}\n" for bookie in places.cluster.ids))
    said = {"placement": policy, "topology": "file", "topology_file": str(topology)}

    def places_are(count: int) -> None:
        load.until(lambda written: all(len({places.of(each) for each in bookies}) == count for bookies in written))

    with Load(places.cluster, options=QUICK.model_copy(update=said), ack=ack) as load:
        places_are(3)
        hit = places.cut(0)
        load.leaves(*hit)
        places_are(2)
    load.judge()
    places.join(0)
    listed(places.cluster)
