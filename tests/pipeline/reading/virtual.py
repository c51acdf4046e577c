"""A cluster on virtual time in the place of the pipeline's, whose bookies know different last adds confirmed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar, cast

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.pipeline.clients import Cluster
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class VirtualCluster:
    """One process's view of the bookies of `fake`."""

    def __init__(self, fake: FakeCluster) -> None:
        self.uri = "fake"
        self.fake = fake
        self.client = fake.client(explicit_lac_interval_ms=0)
        self.logs = Logs(self.client, LogOptions())

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        return cast("T", self.fake.succeed(work()))

    def each(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        async def collected() -> list[T]:
            return [each async for each in begin()]

        return iter(self.wait(collected))


def process(fake: FakeCluster) -> Cluster:
    """Another one, such as that of a task."""
    return cast("Cluster", VirtualCluster(fake))


def only_first_learns(fake: FakeCluster, ledger: int) -> tuple[str, str]:
    """
    From now on adds reach the first bookie of a ledger alone, so it alone knows the last add confirmed that they carry,
    and nobody is told it otherwise: it, and another one.
    """
    first, *_, last = fake.metadata(ledger).last_fragment.bookies
    fake.judge = lambda request: (
        "drop" if request.op == "write lac" else "hold" if request.op == "add" and request.bookie != first else "pass"
    )
    return first, last
