"""A cluster of which one bookie has a small disk, and another one a clock that is an hour ahead."""

import time
from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer, ExecConfig

from quire.testing.containers import FILES, ContainerCluster
from tests.containers.cluster import cluster, in_it, listed
from tests.containers.load import Load
from tests.requirements import FAKETIME, need

# SPDX-License-Identifier: Apache-2.0

SMALL, AHEAD = "bookie-0", "bookie-1"
HOUR = 3600
DISK = {"diskCheckInterval": "500", "diskUsageThreshold": "0.9", "diskUsageWarnThreshold": "0.85"}


@pytest.fixture(scope="module")
def odd(image: str) -> Iterator[ContainerCluster]:
    def prepare(name: str, container: DockerContainer) -> None:
        if name == SMALL:
            container.with_tmpfs_mount(FILES, "size=64m")
        if name == AHEAD and FAKETIME.is_file():
            container.with_envs(
                LD_PRELOAD=str(FAKETIME), FAKETIME=f"+{HOUR}", FAKETIME_DONT_FAKE_MONOTONIC="1", NO_FAKE_STAT="1"
            )

    with cluster(image, 4, DISK, prepare) as made:
        yield made


def test_a_full_disk(odd: ContainerCluster) -> None:
    """It becomes read-only and is left; when there is room again, it is written to again; all is read."""
    with Load(odd) as load:
        load.reaches(SMALL)
        odd.container(SMALL).exec(ExecConfig(["dd", "if=/dev/zero", f"of={FILES}/full", "bs=1M"]))
        load.leaves(SMALL)
        in_it(odd, SMALL, "rm", f"{FILES}/full")
        listed(odd)
        load.goes_on()
    load.judge()


def test_a_clock_an_hour_ahead(odd: ContainerCluster) -> None:
    """It serves like the others, through a kill, too."""
    need("faketime")
    assert abs(int(in_it(odd, AHEAD, "date", "+%s")) - time.time() - HOUR) < HOUR / 2
    with Load(odd) as load:
        load.reaches(AHEAD)
        odd.kill(AHEAD)
        load.leaves(AHEAD)
        odd.start(AHEAD)
        load.goes_on()
    load.judge()
