"""
A cluster of processes on this machine, as `quire local` starts it: a bookie here dies as one does in production.

Knows: which of its processes a test means.  Does not know: how they are started and ended; `LocalCluster` does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from quire.testing.cluster import BOOKIES, Cluster
from quire.tools.local_cluster.cluster import LocalCluster, Store

__all__ = ["ProcessCluster"]

# SPDX-License-Identifier: Apache-2.0

SMALL = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.999",
}


class ProcessCluster(Cluster):
    """
    `directory`: new or empty; logs of the bookies are there, too.  `options`: of each bookie, by BookKeeper's keys.
    `metadata`: sqlite or zookeeper, which needs the extra of that name; `autorecovery`: a process of it beside them.
    """

    def __init__(
        self,
        directory: Path,
        bookies: int = BOOKIES,
        options: Mapping[str, str] | None = None,
        metadata: Store = "sqlite",
        autorecovery: bool = False,
    ) -> None:
        super().__init__()
        self.local = LocalCluster(directory, bookies, metadata, {**SMALL, **(options or {})}, autorecovery=autorecovery)

    @property
    def ids(self) -> Sequence[str]:
        return self.local.ids

    @property
    def running(self) -> Sequence[str]:
        return [bookie.id for bookie in self.local.bookies if bookie.pid is not None]

    def add(self) -> str:
        return self.local.add().id

    def _begin(self) -> None:
        self.local.start()
        self.uri = self.local.uri  # a ZooKeeper has its port now

    def _end(self) -> None:
        self.local.stop()

    def _kill(self, bookie: str) -> None:
        self.local.kill(bookie)

    def _stop(self, bookie: str) -> None:
        self.local.stop_bookie(bookie)

    def _start(self, bookie: str) -> None:
        self.local.restart(bookie)
