"""
Walks over the ledgers' trees on a pretended ZooKeeper, whose server is behind the others until a sync.
"""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.metadata.ledgers.layout import Layout, LedgerPaths
from quire.metadata.ledgers.scan import LedgerScan
from quire.metadata.tree import NoNode

# SPDX-License-Identifier: Apache-2.0


class Behind:
    """A server that knows the `old` ledgers, and after a sync the `new` ones too."""

    uri = "zk://pretended/r"

    def __init__(self, paths: LedgerPaths, old: set[int], new: set[int]) -> None:
        self._paths = paths
        self._known = set(old)
        self._new = new
        self.syncs = 0

    def sync(self, path: str) -> Deferred[None]:
        self.syncs += 1
        self._known |= self._new
        return succeed(None)

    async def children(self, path: str) -> list[str]:
        below = {
            found[len(path) + 1 :].partition("/")[0]
            for ledger in self._known
            if (found := self._paths.path_of(ledger)).startswith(f"{path}/")
        }
        if not below and path != "/r":
            raise NoNode(path)
        return list(below)

    async def page(self, path: str, after: str, limit: int) -> list[str]:
        return sorted(name for name in await self.children(path) if name > after)[:limit]


@pytest.mark.parametrize("layout", Layout)
def test_a_server_that_is_behind_hides_no_ledger(layout: Layout) -> None:
    """
    Also one whose directories, on any level, did not exist for it yet: a bookie that lost its disks asks which ledgers
    it had.
    """
    paths = LedgerPaths("/r", layout)
    old, new = {0, 7}, {8, 10_000, 20_000_000, 1_000_000_000, 1 << 31, 1 << 62}
    for after in (-1, 7, 9, 999_999_999):
        session = Behind(paths, old, new)
        found: list[object] = []
        # pretended
        scan = LedgerScan(session, paths, after, 1000)  # type: ignore[arg-type]
        Deferred.fromCoroutine(scan.run()).addBoth(found.append)
        assert found == [sorted(ledger for ledger in old | new if ledger > after)]
        assert session.syncs == 1
