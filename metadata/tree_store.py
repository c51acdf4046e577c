"""
A metadata store on a tree: what is written once for all of them, above what a driver supplies.

Knows: which parts there are, that they share one tree and one session, and what is reported when that has ended.
Does not know: how a tree is kept.
"""

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from quire.metadata.auditing import Auditing
from quire.metadata.bookies.registry import BookieRegistry
from quire.metadata.clock import Clock
from quire.metadata.cookies import BookieCookies
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.ledgers.cluster import TreeCluster
from quire.metadata.ledgers.layout import Layout, records_root
from quire.metadata.ledgers.store import Ledgers
from quire.metadata.records import Records, RecordStore
from quire.metadata.repairs import Repairs
from quire.metadata.store import (
    ANY,
    BookieList,
    BookieWatcher,
    Cluster,
    LedgerWatcher,
    Progress,
    ServiceInfo,
    Versioned,
    Watch,
    notify,
)
from quire.metadata.tree import NoNode, SessionId, Step, Tree

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
P = ParamSpec("P")
PLACES = "bookies"  # Pulsar's node, beside the ledgers' root


class TreeStore(RecordStore):
    """
    One handle on the cluster at `root` of a tree.  `layout` is the one that the address insists on, if any; `random`
    draws instance ids, tokens, and the order of tries.  `inner` is the tree on which ledgers, registrations and the
    cluster are kept, where that is another view of the same nodes than `tree`.
    """

    def __init__(
        self,
        clock: Clock,
        tree: Tree,
        root: str,
        random: Random,
        *,
        layout: Layout | None = None,
        inner: Tree | None = None,
    ) -> None:
        self.uri = tree.uri
        self.tree = tree
        inner = inner or tree
        self._root = root
        self._inner = inner
        self._registry = BookieRegistry(clock, inner, root, self._tell_lost)
        self._cluster = TreeCluster(inner, root, layout, self._registry, random)
        self._ledgers = Ledgers(clock, inner, root, self._cluster, random)
        self.records = Records(clock, tree, records_root(root), self._cluster.instance_id)
        self.repairs = Repairs(clock, tree, root, random, self._write_with)
        self.auditing = Auditing(clock, tree, root)
        self._cookies = BookieCookies(tree, root, self._cluster.instance_id)
        self._lost: list[Callable[[], None]] = []
        tree.on_expired = self._expired
        tree.on_connected = self._registry.reconnected

    def _call(
        self, name: str, story: Callable[P, Coroutine[Deferred[Any], Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Runs an operation, of which `name` is the one that callers know."""
        return Deferred.fromCoroutine(story(*args, **kwargs))

    def close(self) -> Deferred[None]:
        self._registry.end()
        self._ledgers.end()
        self.records.end()
        self.repairs.end()
        self.auditing.end()
        return self.tree.close()

    def on_session_lost(self, fn: Callable[[], None]) -> None:
        self._lost.append(fn)

    def _expired(self) -> None:
        self.records.forget()
        self._registry.expired()
        self._tell_lost()

    def _tell_lost(self) -> None:
        for fn in list(self._lost):
            notify(fn)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def init_cluster(self) -> Deferred[str]:
        return self._call("init_cluster", self._cluster.init)

    def cluster(self) -> Deferred[Cluster]:
        return self._call("cluster", self._cluster.describe)

    def destroy_cluster(self, instance_id: str) -> Deferred[None]:
        return self._call("destroy_cluster", self._cluster.destroy, instance_id)

    def progress(self) -> Deferred[Progress]:
        return self._call("progress", self._progress)

    async def _progress(self) -> Progress:
        _, ids = await self._cluster.layout()
        await self._inner.sync(self._root)
        position = await ids.position()
        return Progress(await self._inner.changes(), position)

    def places(self) -> Deferred[bytes | None]:
        return self._call("places", self._places)

    async def _places(self) -> bytes | None:
        try:
            return (await self._inner.get(f"{self._root.rpartition('/')[0]}/{PLACES}"))[0]
        except NoNode:
            return None

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def new_ledger_id(self) -> Deferred[int]:
        return self._call("new_ledger_id", self._ledgers.new_id)

    def raise_ledger_ids(self, first: int) -> Deferred[None]:
        return self._call("raise_ledger_ids", self._raise_ledger_ids, first)

    async def _raise_ledger_ids(self, first: int) -> None:
        _, ids = await self._cluster.layout()
        await ids.raise_to(first)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("create_ledger", self._ledgers.create, ledger, metadata)

    def create_new_ledger(self, metadata: LedgerMetadata) -> Deferred[tuple[int, Versioned[LedgerMetadata]]]:
        return self._call("create_new_ledger", self._ledgers.create_new, metadata)

    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("read_ledger", self._ledgers.read, ledger)

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        return self._call("read_ledgers", self._ledgers.read_each, ledgers)

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        return self._call("absent_ledgers", self._ledgers.absent, ledgers)

    def ledger_deletions(self) -> Deferred[int | None]:
        return self._call("ledger_deletions", self._ledgers.deletions)

    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("write_ledger", self._ledgers.write, ledger, metadata, version)

    def _write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId
    ) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("write_ledger", self._ledgers.write_with, ledger, metadata, version, steps, session)

    def delete_ledger(self, ledger: int) -> Deferred[None]:
        return self._call("delete_ledger", self._ledgers.delete, ledger)

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        return self._call("ledger_ids", self._ledgers.page, after, limit)

    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        return self._ledgers.watch(ledger, fn)

    # -- bookies ---------------------------------------------------------------------------------------------------

    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> Deferred[None]:
        return self._call("register_bookie", self._registry.register, bookie, info, read_only)

    def unregister_bookie(self, bookie: str, read_only: bool = False) -> Deferred[None]:
        return self._call("unregister_bookie", self._registry.unregister, bookie, read_only)

    def bookies(self) -> Deferred[BookieList]:
        return self._call("bookies", self._registry.bookies)

    def known_bookies(self) -> Deferred[BookieList]:
        return self._call("bookies", self._registry.known)

    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        return self._registry.watch(fn)

    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        return self._call("service_info", self._registry.service_info, bookie)

    # -- cookies ---------------------------------------------------------------------------------------------------

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
