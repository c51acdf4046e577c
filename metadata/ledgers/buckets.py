"""
New ledger ids as Apache's driver for etcd draws them: 128 counters, each of which has 56 bits of an id for itself.

    R/buckets/NNN           how often it was put is the lower part of the id, NNN the upper one

Knows: which counter comes next.  Does not know: whether a caller has chosen that id himself; see the store.

Safety: a counter is put for each id, and never removed, so no id comes twice.
"""

from random import Random

from quire.metadata.ledgers.ids import Block
from quire.metadata.ledgers.layout import BUCKETS
from quire.metadata.store import ANY, no_cluster
from quire.metadata.tree import Check, Create, NodeExists, NoNode, Step, Tree, Write
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

BUCKETS_MAX = 0x80
BITS = 56
COUNT_MAX = (1 << BITS) - 1


class BucketIds:
    """The generator of one cluster, with the methods of `LedgerIds`; `dice` say where the round begins."""

    def __init__(self, tree: Tree, root: str, dice: Random) -> None:
        self._tree = tree
        self._root = root
        self._bucket = dice.randrange(BUCKETS_MAX)
        self._cluster = f"{root}/INSTANCEID"

    def _path(self, bucket: int) -> str:
        return f"{self._root}/{BUCKETS}/{bucket:03d}"

    async def next(self) -> int:
        """`LedgerIdOverflow`, `NoCluster`."""
        for _ in range(BUCKETS_MAX):
            self._bucket = (self._bucket + 1) % BUCKETS_MAX
            bucket = self._bucket
            count = await self._counted(self._path(bucket))
            if count <= COUNT_MAX:
                return bucket << BITS | count
        raise LedgerIdOverflow(f"{self._tree.uri} has no ledger ids left")

    async def _counted(self, path: str) -> int:
        there: Step = Write(path, b"", ANY)
        while True:
            try:
                done = await self._tree.transact([Check(self._cluster), there])
            except NodeExists:
                there = Write(path, b"", ANY)
            except NoNode as error:
                if error.step == 0 or isinstance(there, Create):
                    raise no_cluster(self._tree.uri) from None
                there = Create(path)
            else:
                return done[1].version + 1

    async def take(self) -> tuple[int, Block]:
        """An id to be used together with a check that the cluster is still there."""
        ledger = await self.next()
        return ledger, Block(self._cluster, ledger, ledger + 1, 1)

    def used(self, block: Block) -> None:
        """Nothing is left of it."""

    def drop(self, block: Block) -> None:
        """Nothing is kept of it."""

    async def position(self) -> int:
        """One more than the highest id that was drawn; lower ones may be drawn later.  `NoCluster`."""
        if await self._tree.exists(self._cluster) is None:
            raise no_cluster(self._tree.uri)
        counters = await self._tree.get_each([self._path(bucket) for bucket in range(BUCKETS_MAX)])
        drawn = [bucket << BITS | node[1].version + 1 for bucket, node in enumerate(counters) if node is not None]
        return max(drawn, default=-1) + 1

    async def raise_to(self, first: int) -> None:
        """`MetaStore`: of 128 counters none can pass over what the others draw."""
        if first > await self.position():
            raise MetaStore(
                f"{self._tree.uri}: no ledger ids can be passed over in Apache's layout of etcd, whose counters nobody "
                "can set: move the cluster to etcd:// (quire's layout), zk:// or sqlite://"
            )
