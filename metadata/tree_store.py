"""
A metadata store on a tree: what is written once for all of them, above what a driver supplies.

Knows: the operations, their results and errors; which parts there are, that they share one tree and one session, and
what is reported when that has ended.
Does not know: how a tree is kept.

Every operation returns a Deferred that fires on the reactor's thread.  A store that can't be used fails it with
`MetaStore`, which names the store's address, within the session timeout: never a hang.  Watches and session listeners
are called on the reactor's thread, never from inside the call that caused them.

Safety: a ledger's metadata changes only by compare-and-set on the version that was read with it.
"""

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from quire.metadata.auditing import Auditing
from quire.metadata.bookies.registry import BookieRegistry
from quire.metadata.clock import Clock
from quire.metadata.cookies import BookieCookies
from quire.metadata.counters import SessionCounters
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.ledgers.cluster import TreeCluster
from quire.metadata.ledgers.layout import Layout, records_root
from quire.metadata.ledgers.store import Ledgers
from quire.metadata.position import Position
from quire.metadata.records import Records
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


class MetadataStore:
    """
    One handle on the cluster at `root` of a tree; it owns one session, which the registrations made through it live in.
    Ledger ids are 0 to 2^63 - 2 (`IncorrectParameter` otherwise).

    `layout` is the one that the address insists on, if any; `random`
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
        self.root = root
        self.layout = layout
        self._inner = inner
        self._registry = BookieRegistry(clock, inner, root, self._tell_lost)
        self._cluster = TreeCluster(inner, root, layout, self._registry, random)
        self._ledgers = Ledgers(clock, inner, root, self._cluster, random)
        self.records = Records(clock, tree, records_root(root), self._cluster.instance_id)
        self.repairs = Repairs(clock, tree, root, random, self._write_with)
        self.auditing = Auditing(clock, tree, root)
        self._cookies = BookieCookies(tree, root, self._cluster.instance_id)
        self._lost: list[Callable[[], None]] = []
        self.counters = tree.counters = inner.counters = SessionCounters(clock.seconds)
        tree.on_expired = self._expired
        tree.on_connected = self._connected

    def _call(
        self, name: str, story: Callable[P, Coroutine[Deferred[Any], Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Runs an operation, of which `name` is the one that callers know."""
        return Deferred.fromCoroutine(story(*args, **kwargs))

    def close(self) -> Deferred[None]:
        """
        Ends the session (its registrations go), the watches and the driver's threads; operations under way fail with
        `MetaStore`.
        """
        self._registry.end()
        self._ledgers.end()
        self.records.end()
        self.repairs.end()
        self.auditing.end()
        return self.tree.close()

    def on_session_lost(self, fn: Callable[[], None]) -> None:
        """
        Calls `fn` when registrations made through this handle are gone: after the session expired, once a new one is
        there to make them again; or because one was removed from outside while the session lives.
        """
        self._lost.append(fn)

    def _connected(self) -> None:
        self.counters.connections += 1
        self._registry.reconnected()

    def _expired(self) -> None:
        self.counters.expired += 1
        self.records.forget()
        self._registry.expired()
        self._tell_lost()

    def _tell_lost(self) -> None:
        for fn in list(self._lost):
            notify(fn)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def init_cluster(self) -> Deferred[str]:
        """Makes an empty cluster and returns its new instance id.  `ClusterExists` if there is one."""
        return self._call("init_cluster", self._cluster.init)

    def cluster(self) -> Deferred[Cluster]:
        """`NoCluster` (its text names `quire metadata init`) when there is none."""
        return self._call("cluster", self._cluster.describe)

    def destroy_cluster(self, instance_id: str) -> Deferred[None]:
        """
        Removes all metadata.  `WrongCluster` when the id differs, a bookie is registered, or foreign nodes are found;
        `NoCluster`.
        """
        return self._call("destroy_cluster", self._cluster.destroy, instance_id)

    def progress(self) -> Deferred[Progress]:
        """Reads the present progress: nothing that was answered before is missing in it.  `NoCluster`."""
        return self._call("progress", self._progress)

    async def _progress(self) -> Progress:
        _, ids = await self._cluster.layout()
        await self._inner.sync(self.root)
        position = await ids.position()
        return Progress(await self._inner.changes(), position)

    def places(self) -> Deferred[bytes | None]:
        """
        The mapping of bookies to racks that Pulsar's tools keep beside the ledgers, as it is stored; None where there
        is none.
        """
        return self._call("places", self._places)

    async def _places(self) -> bytes | None:
        try:
            return (await self._inner.get(f"{self.root.rpartition('/')[0]}/{PLACES}"))[0]
        except NoNode:
            return None

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def new_ledger_id(self) -> Deferred[int]:
        """
        An id that was never given before and never will be again, 0 to 2^63 - 2; gaps are normal, and order is not
        promised. `LedgerIdOverflow`; `LedgerExist`: callers chose too many in a row, the next call goes on behind them.
        """
        return self._call("new_ledger_id", self._ledgers.new_id)

    def raise_ledger_ids(self, first: Position | int) -> Deferred[None]:
        """
        From now on no id is given that the position has; a number is that of the range of ids that it is in.  A store
        that is further already stays as it is.  `NoCluster`.
        """
        return self._call("raise_ledger_ids", self._raise_ledger_ids, first)

    async def _raise_ledger_ids(self, first: Position | int) -> None:
        _, ids = await self._cluster.layout()
        await ids.raise_to(Position([first]) if isinstance(first, int) else first)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        """Stores new metadata and returns what was stored (with the creation token).  `LedgerExist`."""
        return self._call("create_ledger", self._ledgers.create, ledger, metadata)

    def create_new_ledger(self, metadata: LedgerMetadata) -> Deferred[tuple[int, Versioned[LedgerMetadata]]]:
        """Creates a ledger under an id as `new_ledger_id` would give now, which comes back too; the errors of both."""
        return self._call("create_new_ledger", self._ledgers.create_new, metadata)

    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        """`NoSuchLedgerExistsOnMetadataServer`; `MetadataSerialization` when the bytes can't be read."""
        return self._call("read_ledger", self._ledgers.read, ledger)

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        """
        Reads the metadata of many ledgers, in their order; None for one that definitely does not exist.  Each is read
        by itself, not all at one moment.
        """
        return self._call("read_ledgers", self._ledgers.read_each, ledgers)

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        """
        Lists those of a few ledgers that definitely do not exist: each is read by itself, and anything but a definite
        word about one of them fails.
        """
        return self._call("absent_ledgers", self._ledgers.absent, ledgers)

    def ledger_deletions(self) -> Deferred[int | None]:
        """
        How many ledgers were ever deleted, so that a caller that saw the same number twice need list nothing; None:
        this store doesn't count them.
        """
        return self._call("ledger_deletions", self._ledgers.deletions)

    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        """
        Compare-and-set: stores only if the version is still the one given.  `MetadataVersion` if it is not (also
        possible after a success whose answer was lost: read again before deciding),
        `NoSuchLedgerExistsOnMetadataServer`, `IncorrectParameter` for ANY and NEW.
        """
        return self._call("write_ledger", self._ledgers.write, ledger, metadata, version)

    def _write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId
    ) -> Deferred[Versioned[LedgerMetadata]]:
        return self._call("write_ledger", self._ledgers.write_with, ledger, metadata, version, steps, session)

    def delete_ledger(self, ledger: int) -> Deferred[None]:
        """Removes the metadata whatever its state; a missing ledger is success."""
        return self._call("delete_ledger", self._ledgers.delete, ledger)

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        """
        The next at most `limit` ids above `after`, ascending; [] at the end and only there: trouble fails, it never
        shortens the list.  `IncorrectParameter` for a limit below 1.
        """
        return self._call("ledger_ids", self._ledgers.page, after, limit)

    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        """
        Calls `fn` with the current value, then with newer ones as they are seen (not with every one in between); None
        when the ledger is deleted or missing, and then never again.
        """
        return self._ledgers.watch(ledger, fn)

    # -- bookies ---------------------------------------------------------------------------------------------------

    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> Deferred[None]:
        """
        Lists the bookie in one of the two lists while this session lives, then takes it off the other one (so one call
        also changes its mode).  When another session holds the id, waits up to the session timeout for that one to end,
        then `BookieRegistered`.  `NoCluster`.
        """
        return self._call("register_bookie", self._registry.register, bookie, info, read_only)

    def unregister_bookie(self, bookie: str, read_only: bool = False) -> Deferred[None]:
        """Takes what this session registered off one list; another's is never touched.  `NotRegistered`."""
        return self._call("unregister_bookie", self._registry.unregister, bookie, read_only)

    def bookies(self) -> Deferred[BookieList]:
        """The bookies that are registered now."""
        return self._call("bookies", self._registry.bookies)

    def known_bookies(self) -> Deferred[BookieList]:
        """
        The registered bookies as far as this handle knows, which may be behind by a moment: to choose from, never as
        evidence.
        """
        return self._call("bookies", self._registry.known)

    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        """Calls `fn` with the current lists, then whenever they changed, if only to what they were."""
        return self._registry.watch(fn)

    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        """Reads the announcement of a registered bookie; None when it is not registered."""
        return self._call("service_info", self._registry.service_info, bookie)

    # -- cookies ---------------------------------------------------------------------------------------------------

    def read_set_back(self) -> Deferred[bytes]:
        """
        Reads the notes of bookies and an operator about a store that was set back; empty when there never was a note.
        """
        return Deferred.fromCoroutine(self._cookies.note())

    def swap_set_back(self, old: bytes, new: bytes) -> Deferred[bool]:
        """Notes something else, unless it is not `old` any more what is noted: then False."""
        return Deferred.fromCoroutine(self._cookies.swap_note(old, new))

    def read_cookie(self, bookie: str) -> Deferred[Versioned[bytes]]:
        """`CookieNotFound`."""
        return Deferred.fromCoroutine(self._cookies.read(bookie))

    def write_cookie(self, bookie: str, data: bytes, version: int) -> Deferred[int]:
        """
        The new version.  NEW: it must not exist (`CookieExists`); ANY or a number: it must (`CookieNotFound`,
        `CookieChanged`).
        """
        return Deferred.fromCoroutine(self._cookies.write(bookie, data, version))

    def remove_cookie(self, bookie: str, version: int = ANY) -> Deferred[None]:
        """`CookieNotFound`, `CookieChanged`."""
        return Deferred.fromCoroutine(self._cookies.remove(bookie, version))

    def cookies(self) -> Deferred[list[str]]:
        """Every bookie the cluster has ever known and not forgotten, sorted."""
        return Deferred.fromCoroutine(self._cookies.bookies())
