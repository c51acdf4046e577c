"""
The plugin of pytest: fixtures that start a cluster for one test, and end it.

    quire_cluster            in this process, metadata in memory
    quire_process_cluster    processes, as `quire local` starts them
    quire_container_cluster  containers, of the image that --quire-image names

Knows: how a test says what it wants of its cluster, by its mark `quire`.
Does not know: clusters; each kind is imported only by the tests that ask for it, so that others do not pay for it.

While such a test runs, QUIRE_METADATA names its cluster: a program that is told of none finds this one.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from quire.testing.cluster import Cluster
    from quire.testing.containers import ContainerCluster
    from quire.testing.in_process import InProcessCluster
    from quire.testing.processes import ProcessCluster

# SPDX-License-Identifier: Apache-2.0

C = TypeVar("C", bound="Cluster")
MARK = "quire"
METADATA, IMAGE, ZOOKEEPER_IMAGE = "QUIRE_METADATA", "QUIRE_IMAGE", "QUIRE_ZOOKEEPER_IMAGE"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("quire", "clusters of quire")
    group.addoption(
        "--quire-image",
        default=os.environ.get(IMAGE),
        help=f"the image of quire that containers of tests are of; else {IMAGE}",
    )
    group.addoption(
        "--quire-zookeeper-image",
        default=os.environ.get(ZOOKEEPER_IMAGE, "zookeeper:3.9"),
        help=f"the image of their ZooKeeper; else {ZOOKEEPER_IMAGE}, else zookeeper:3.9",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "quire(bookies=4, options={}, ...): what the test's cluster is made with (docs/testing.md)"
    )


@pytest.fixture
def quire_cluster(request: pytest.FixtureRequest) -> "Iterator[InProcessCluster]":
    """Four bookies in this process, in a tenth of a second."""
    from quire.testing.in_process import InProcessCluster

    yield from running(request, InProcessCluster)


@pytest.fixture
def quire_process_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[ProcessCluster]":
    """Four bookies as processes, in some seconds; their files and logs are in the test's directory."""
    from quire.testing.processes import ProcessCluster

    yield from running(request, ProcessCluster, directory=tmp_path / "quire")


@pytest.fixture
def quire_container_cluster(request: pytest.FixtureRequest) -> "Iterator[ContainerCluster]":
    """Four bookies and a ZooKeeper in containers, in some ten seconds."""
    image = request.config.getoption("--quire-image")
    if not image:
        raise pytest.UsageError(f"no image of quire is named: give --quire-image, or set {IMAGE} (docs/testing.md)")
    try:
        from quire.testing.containers import ContainerCluster
    except ImportError as missing:
        from quire.conf.extras import installs

        pytest.fail(f"{missing.name} is not here: {installs('testing')}", pytrace=False)
    zookeeper = request.config.getoption("--quire-zookeeper-image")
    yield from running(request, ContainerCluster, image=image, zookeeper_image=zookeeper)


def running(request: pytest.FixtureRequest, kind: Callable[..., C], **given: object) -> Iterator[C]:
    """A cluster as the test's mark wants it, named in the environment, until the test ends."""
    mark = request.node.get_closest_marker(MARK)
    if mark is not None and mark.args:
        raise pytest.UsageError(f"the mark {MARK} takes names: @pytest.mark.{MARK}(bookies=3)")
    wanted = {**given, **(mark.kwargs if mark is not None else {})}
    try:
        cluster = kind(**wanted)
    except TypeError as error:
        raise pytest.UsageError(f"the mark {MARK}: {error}") from error
    with cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv(METADATA, cluster.uri)
        yield cluster
