"""
New ledger ids from ZooKeeper's sequential nodes (spec metadata-layout.md 3.1, 3.2).

    flat              R/ID-%010d              31 bits, then LedgerIdOverflow
    hierarchical,     R/idgen/ID-%010d        31 bits, then the long ones:
    longhierarchical  R/idgen-long/HOB-h/ID-n -> (h << 32) | n

Knows: which node to make, and when to go on to the next.  Does not know: whether a caller has chosen that id himself; see the store.

Safety: the directories of the long ids are listed again for each id.  One who trusts an old list makes a deleted directory
anew, whose numbers begin at 0 again: ids would repeat.  None is ever deleted here.
"""

import re

from twisted.logger import Logger

from quire.metadata.layout import Layout
from quire.metadata.store import LEDGER_ID_MAX, no_cluster
from quire.metadata.zk_session import NodeExists, NoNode, ZooKeeperSession
from quire.protocol.errors import LedgerIdOverflow, MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SHORT_END = (1 << 31) - 1  # the first number that is none
HIGH_HALF = re.compile(r"HOB-(\d{1,10})", re.ASCII)


class LedgerIds:
    """The generator of one cluster."""

    def __init__(self, session: ZooKeeperSession, root: str, layout: Layout) -> None:
        self._session = session
        self._root = root
        self._layout = layout
        self._long: bool | None = None  # whether the short ids are used up; None: nobody has looked yet

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

    async def _next_long(self) -> int:
        while True:
            names = await self._session.children(f"{self._root}/idgen-long")
            high = max((int(found.group(1)) for found in map(HIGH_HALF.fullmatch, names) if found), default=0)
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
        self._session.delete(made).addErrback(lambda failure: log.debug("{path} stays until the session ends: {why}", path=made, why=failure.value))
        digits = made[len(prefix) :]
        try:
            number = int(digits)
        except ValueError:
            raise MetaStore(f"{self._session.uri}: {made} is no sequential node") from None
        return number if 0 <= number < SHORT_END else None
