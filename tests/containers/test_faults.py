"""
A cluster of containers whose bookies are hit, one way after another, while writers and the owner of a log go on: what
was acknowledged is read at the end of each, and compared.
"""

from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer, ExecConfig

from quire.testing.containers import ZOOKEEPER, ContainerCluster
from tests.containers.cluster import cluster, in_it, listed, mounted, network_of
from tests.containers.load import Load

# SPDX-License-Identifier: Apache-2.0

FIVE = 5


@pytest.fixture(scope="module")
def five(image: str) -> Iterator[ContainerCluster]:
    with cluster(image, FIVE) as made:
        yield made


@pytest.fixture
def load(five: ContainerCluster) -> Iterator[Load]:
    """Goes on when the test begins; the test ends it, judges it and leaves every bookie running."""
    with Load(five) as load:
        load.goes_on()
        yield load
        listed(five)
        load.goes_on()
    load.judge()


def used(load: Load) -> str:
    """A bookie that a writer writes to now."""
    return min(load.written_to()[0])


def test_killed(five: ContainerCluster, load: Load) -> None:
    """SIGKILL; the bookie comes back on its files."""
    hit = used(load)
    five.kill(hit)
    load.leaves(hit)
    five.start(hit)


def test_paused(five: ContainerCluster, load: Load) -> None:
    """The freezer: its connections stand and nothing answers."""
    hit = used(load)
    wrapped = five.container(hit).get_wrapped_container()
    wrapped.pause()
    load.leaves(hit)
    wrapped.unpause()


@pytest.mark.parametrize("way", ["OUTPUT", "INPUT"])
def test_cut_off_one_way(five: ContainerCluster, load: Load, way: str) -> None:
    """It hears and is not heard, or the other way round; its session ends meanwhile."""
    hit = used(load)
    in_it(five, hit, "iptables", "-A", way, "-j", "DROP")
    load.leaves(hit)
    in_it(five, hit, "iptables", "-D", way, "-j", "DROP")


def test_cut_off_both_ways(five: ContainerCluster, load: Load) -> None:
    """Its network is taken away, its name with it, and given back."""
    hit = used(load)
    before, container = five.address(hit), five.container(hit)
    assert five.network is not None
    network_of(five.network).disconnect(container.get_container_id())
    load.leaves(hit)
    five.network.connect(container.get_container_id(), [hit])
    assert five.address(hit) == before


def test_slow(five: ContainerCluster, load: Load) -> None:
    """Its answers come at 64 kbit/s."""
    hit = used(load)
    device = in_it(five, hit, "ip", "route", "show", "default").split()[-1]
    in_it(five, hit, *f"tc qdisc add dev {device} root tbf rate 64kbit burst 4kb latency 2s".split())
    load.goes_on(50)
    in_it(five, hit, "tc", "qdisc", "del", "dev", device, "root")


def test_rolled(five: ContainerCluster, load: Load, image: str) -> None:
    """One after the other, clean, each at a new address under its old id."""
    before = {bookie: five.address(bookie) for bookie in five.ids}
    others = []
    try:
        for bookie in five.ids:
            five.stop(bookie)
            load.leaves(bookie)
            other = mounted(DockerContainer(image)).with_command(["sleep", "infinity"])
            others.append(other.with_network(five.network))  # takes the address
            other.start()
            five.start(bookie)
            load.goes_on()
    finally:
        for other in others:
            other.stop()
    after = {bookie: five.address(bookie) for bookie in five.ids}
    assert not before.items() & after.items()


def test_out_of_memory(five: ContainerCluster, load: Load) -> None:
    """The kernel kills it, for its container has too little."""
    hit = used(load)
    wrapped = five.container(hit).get_wrapped_container()
    eater = "echo 1000 > /proc/1/oom_score_adj; exec python -c 'bytes([1]) * (1 << 30)'"
    wrapped.update(mem_limit="200m", memswap_limit="200m")
    five.container(hit).exec(ExecConfig(["sh", "-c", eater]))
    wrapped.wait(timeout=60)
    wrapped.reload()
    assert wrapped.attrs["State"]["OOMKilled"]
    load.leaves(hit)
    five.start(hit)


def test_zookeeper_killed(five: ContainerCluster, load: Load) -> None:
    """And started again on its files: sessions go on, or are begun anew."""
    before, wrapped = five.address(ZOOKEEPER), five.container(ZOOKEEPER).get_wrapped_container()
    wrapped.kill()
    wrapped.wait()
    wrapped.start()
    assert five.address(ZOOKEEPER) == before
    listed(five)
    load.goes_on(50)
