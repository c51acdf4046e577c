"""
New ledger ids from ZooKeeper's sequential nodes (metadata-rules.md 3.1, 3.2).

    flat              R/ID-%010d              31 bits, then LedgerIdOverflow
    hierarchical,     R/idgen/ID-%010d        31 bits, then the long ones:
    longhierarchical  R/idgen-long/HOB-h/ID-n -> (h << 32) | n

Knows: which node to make, and when to go on to the next.  Does not know: whether a caller has chosen that id himself;
see the store.

Safety: the directories of the long ids are listed again for each id.  With an old list a deleted directory would
be made again, whose numbers begin at 0: ids would repeat.  None is ever deleted here.

Numbers can't be set, only used up: a raise makes and removes nodes, 2,000 in one transaction.  Where that would take
too long, in a directory of long ids, the next directory is made instead.
"""

import re

from twisted.logger import Logger

from quire.metadata.records import Create, Delete
from quire.metadata.store import ANY, LEDGER_ID_MAX, no_cluster
from quire.metadata.zk.answers import NodeExists, NoNode
from quire.metadata.zk.layout import Layout
from quire.metadata.zk.session import ZooKeeperSession
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SHORT_END = (1 << 31) - 1  # the first number that is none
USED_UP_AT_ONCE = 2000  # numbers, in one transaction: 200 kB of the 1 MiB that a server takes
USED_UP_MAX = 10_000_000  # numbers of one directory of long ids; beyond that the next directory is made
HIGH_HALF = re.compile(r"HOB-(\d{1,10})", re.ASCII)


class LedgerIds:
    """The generator of one cluster."""

    def __init__(self, session: ZooKeeperSession, root: str, layout: Layout) -> None:
        self._session = session
        self._root = root
        self._layout = layout
        self._long: bool | None = None  # whether the short ids are used up; None: not looked at yet

    async def next(self) -> int:
        """`LedgerIdOverflow`, `NoCluster`."""
        if self._layout is Layout.FLAT:
            found = await self._sequence(f"{self._root}/ID-")
            if found is None:
                raise LedgerIdOverflow(f"{self._session.uri} has no ledger ids left: a flat cluster has 2^31 - 1")
            return found
        if self._long is None:
            # "No" is never asked again: short ids stay unique until this generator meets their end itself.
            self._long = await self._session.exists(f"{self._root}/idgen-long") is not None
        if not self._long:
            found = await self._sequence(f"{self._root}/idgen/ID-")
            if found is not None:
                return found
            await self._make(f"{self._root}/idgen-long")
            self._long = True
        return await self._next_long()

    async def position(self) -> int:
        """The id that is drawn next, unless another client draws one meanwhile; this draws none.  `NoCluster`."""
        if self._layout is Layout.FLAT:
            return await self._used(self._root)
        if await self._session.exists(f"{self._root}/idgen-long") is None:
            used = await self._used(f"{self._root}/idgen")
            return used if used < SHORT_END else 1 << 32
        while high := await self._high():
            used = await self._used(self._directory(high))
            # else an Apache client has just dropped that directory for a newer one
            if used or await self._high() == high:
                return high << 32 | used
        return 1 << 32

    async def _used(self, path: str) -> int:
        """How many children were ever made below a znode: ZooKeeper's counter of their comings and goings says that."""
        stat = await self._session.exists(path)
        if stat is None:
            if path == self._root or await self._session.exists(self._root) is None:
                raise no_cluster(self._session.uri)
            return 0
        return int((stat.cversion + stat.numChildren) % (1 << 32)) >> 1

    async def raise_to(self, first: int) -> None:
        """
        No id below `first` is drawn after this.  A client that draws short ids continues to do so: it looks once
        whether there are long ones.  `LedgerIdOverflow`, `NoCluster`.
        """
        if (first > SHORT_END and self._layout is Layout.FLAT) or first > LEDGER_ID_MAX:
            raise LedgerIdOverflow(f"{self._session.uri} has no ledger ids from {first} on")
        if first > SHORT_END and (first < 1 << 32 or first % (1 << 32) >= SHORT_END):
            first = ((first >> 32) + 1) << 32  # those between are never drawn
        while (at := await self.position()) < first:
            if self._layout is Layout.FLAT:
                parent = self._root
            elif first <= SHORT_END:
                parent = f"{self._root}/idgen"
                await self._make(parent)
            else:
                high = first >> 32 if at >> 32 < first >> 32 or first - at <= USED_UP_MAX else (at >> 32) + 1
                parent = self._directory(high)
                await self._make(f"{self._root}/idgen-long")
                await self._make(parent)
                self._long = True
                if high != at >> 32:
                    continue
            await self._use_up(f"{parent}/ID-quire", min(first - at, USED_UP_AT_ONCE))

    async def _use_up(self, path: str, count: int) -> None:
        """Makes a znode and removes it again `count` times: so many numbers of its parent are used up."""
        await self._session.transact([Create(path), Delete(path, ANY)] * count)

    async def _high(self) -> int:
        """The number of the last directory of long ids; 0 when there is none."""
        names = await self._session.children(f"{self._root}/idgen-long")
        return max((int(found.group(1)) for found in map(HIGH_HALF.fullmatch, names) if found), default=0)

    async def _next_long(self) -> int:
        while True:
            high = await self._high()
            if high == 0:
                await self._make(self._directory(1))
                continue
            if high >= 1 << 31:
                raise LedgerIdOverflow(f"{self._session.uri} has no ledger ids left")
            try:
                low = await self._number(f"{self._directory(high)}/ID-")
            except NoNode:
                continue  # an Apache client has just dropped that directory for a newer one
            if low is None:
                await self._make(self._directory(high + 1))
                continue
            ledger = high << 32 | low
            if ledger > LEDGER_ID_MAX:
                raise LedgerIdOverflow(f"{self._session.uri} has no ledger ids left")
            return ledger

    def _directory(self, high: int) -> str:
        return f"{self._root}/idgen-long/HOB-{high:010d}"

    async def _make(self, path: str) -> None:
        try:
            await self._session.create(path)
        except NodeExists:
            return
        except NoNode:
            raise no_cluster(self._session.uri) from None

    async def _sequence(self, prefix: str) -> int | None:
        """The next number below `prefix`, whose parent is made if it is missing; None when they are used up."""
        while True:
            try:
                return await self._number(prefix)
            except NoNode:
                parent = prefix.rpartition("/")[0]
                if parent == self._root:
                    raise no_cluster(self._session.uri) from None
                await self._make(parent)

    async def _number(self, prefix: str) -> int | None:
        made = await self._session.create(prefix, ephemeral=True, sequence=True)
        # A node that stays costs nothing: it goes with the session.
        self._session.delete(made).addErrback(
            lambda failure: log.debug("{path} stays until the session ends: {why}", path=made, why=failure.value)
        )
        digits = made[len(prefix) :]
        try:
            number = int(digits)
        except ValueError:
            raise MetaStore(f"{self._session.uri}: {made} is no sequential node") from None
        return number if 0 <= number < SHORT_END else None
