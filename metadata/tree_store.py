"""
A metadata store on a tree: what is written once for all of them, above what a driver supplies.

Knows: which parts there are, and that they share one tree and one session.
Does not know: how a tree is kept.
"""

from abc import abstractmethod
from collections.abc import Sequence
from random import Random

from twisted.internet.defer import Deferred

from quire.metadata.auditing import Auditing
from quire.metadata.clock import Clock
from quire.metadata.cookies import BookieCookies
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import Records, RecordStore
from quire.metadata.repairs import Repairs
from quire.metadata.store import ANY, Versioned
from quire.metadata.tree import SessionId, Step, Tree

# SPDX-License-Identifier: Apache-2.0


class TreeStore(RecordStore):
    """One handle on the cluster at `root` of a tree."""

    def __init__(self, clock: Clock, tree: Tree, root: str, random: Random) -> None:
        self.uri = tree.uri
        self.records = Records(clock, tree, f"{root}-quire", self._instance_id)
        self.repairs = Repairs(clock, tree, root, random, self._write_with)
        self.auditing = Auditing(clock, tree, root)
        self._cookies = BookieCookies(tree, root, self._instance_id)

    def _end_watches(self) -> None:
        self.records.end()
        self.repairs.end()
        self.auditing.end()

    async def _instance_id(self) -> str:
        return (await self.cluster()).instance_id

    @abstractmethod
    def _write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId
    ) -> Deferred[Versioned[LedgerMetadata]]:
        """As `Repairs` asks for it."""

    def read_set_back(self) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self._cookies.note())

    def swap_set_back(self, old: bytes, new: bytes) -> Deferred[bool]:
        return Deferred.fromCoroutine(self._cookies.swap_note(old, new))

    def read_cookie(self, bookie: str) -> Deferred[Versioned[bytes]]:
        return Deferred.fromCoroutine(self._cookies.read(bookie))

    def write_cookie(self, bookie: str, data: bytes, version: int) -> Deferred[int]:
        return Deferred.fromCoroutine(self._cookies.write(bookie, data, version))

    def remove_cookie(self, bookie: str, version: int = ANY) -> Deferred[None]:
        return Deferred.fromCoroutine(self._cookies.remove(bookie, version))

    def cookies(self) -> Deferred[list[str]]:
        return Deferred.fromCoroutine(self._cookies.bookies())
