"""
New ledger ids as Apache's driver for etcd draws them: 128 counters, each of which has 56 bits of an id for itself.

    R/buckets/NNN           how often it was put is the lower part of the id, NNN the upper one

Knows: which counter comes next.  Does not know: whether a caller has chosen that id himself; see the store.

Safety: a counter is put for each id, and never removed, so no id comes twice.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

from quire.metadata.ledgers.ids import Block
from quire.metadata.ledgers.layout import BUCKETS
from quire.metadata.position import Position
from quire.metadata.store import ANY, at_once, no_cluster
from quire.metadata.tree import Check, Create, NodeExists, NoNode, Step, Tree, Write
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

BUCKETS_MAX = 0x80
BITS = 56
COUNT_MAX = (1 << BITS) - 1
FIRST = 1  # count that a counter gives
PASSED_MAX = 10_000_000  # ids; beyond that it would take hours
TOGETHER = 64  # counters in one transaction: etcd takes 128 changes
AT_ONCE = 32  # transactions that are under way


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

    async def position(self) -> Position:
        """The next id of each counter, unless somebody draws one meanwhile; this draws none.  `NoCluster`."""
        if await self._tree.exists(self._cluster) is None:
            raise no_cluster(self._tree.uri)
        counters = await self._tree.get_each([self._path(bucket) for bucket in range(BUCKETS_MAX)])
        counts = [0 if node is None else node[1].version + 1 for node in counters]
        return Position((bucket << BITS) + FIRST + count for bucket, count in enumerate(counts))

    async def raise_to(self, position: Position) -> None:
        """
        No id that the position has is drawn after this.  Each that lacks is a put of its counter, as if it were drawn;
        whoever draws or raises at the same time makes it more.  `NoCluster`; `MetaStore` for too many.
        """
        now, wanted = await self.position(), position.over(BUCKETS_MAX)
        if (count := now.lacks(wanted)) > PASSED_MAX:
            raise MetaStore(
                f"{self._tree.uri}: {count} ledger ids are too many to pass over: in Apache's layout of etcd each is a "
                f"put of a counter, and {PASSED_MAX} are allowed"
            )
        new = [bucket for bucket in range(BUCKETS_MAX) if now[bucket] == FIRST + (bucket << BITS) < wanted[bucket]]
        await at_once([self._counted(self._path(bucket)) for bucket in new])
        while missing := (await self.position()).lacking(wanted):
            puts = rounds({self._path(low >> BITS): high - low for low, high in missing})
            while some := list(islice(puts, AT_ONCE)):
                try:
                    await at_once([self._put(paths) for paths in some])
                except NoNode:
                    raise no_cluster(self._tree.uri) from None

    async def _put(self, paths: Sequence[str]) -> None:
        await self._tree.transact([Check(self._cluster), *(Write(path, b"", ANY) for path in paths)])


def rounds(missing: dict[str, int]) -> Iterator[list[str]]:
    """Counters to put together until each was put as often as it is to be; etcd takes a key once in a transaction."""
    while missing:
        paths = list(missing)
        for start in range(0, len(paths), TOGETHER):
            yield paths[start : start + TOGETHER]
        missing = {path: count - 1 for path, count in missing.items() if count > 1}
