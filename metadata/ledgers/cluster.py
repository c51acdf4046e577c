"""
The cluster in a tree: made, found and destroyed as a whole.

Knows: the nodes that every cluster has, and its layout, which is read once.
Does not know: ledgers, cookies, registrations beyond which are listed.

Safety: what makes it a cluster is made in one transaction, and removed last, in one.
"""

from random import Random
from uuid import UUID

from quire.metadata.bookies.registry import BookieRegistry
from quire.metadata.ledgers.buckets import BucketIds
from quire.metadata.ledgers.ids import LedgerIds
from quire.metadata.ledgers.layout import (
    BUCKETS,
    HEALTH_CHECK_SWITCH,
    UUIDS,
    Layout,
    LedgerPaths,
    is_special,
    parse_layout,
    records_root,
)
from quire.metadata.store import ANY, Cluster, ClusterExists, WrongCluster, no_cluster
from quire.metadata.tree import Create, Delete, NodeExists, NoNode, NotEmpty, Tree

# SPDX-License-Identifier: Apache-2.0

LAST = ("available/readonly", "available", "INSTANCEID", "LAYOUT")  # to go together when a cluster is destroyed
DELETIONS = "deletions"
OF_APACHE_ETCD = ("cookies", UUIDS, BUCKETS)  # directories that are as old as the cluster there


class TreeCluster:
    """The cluster below `root`.  `wanted` is the layout that the URI names, if it names one."""

    def __init__(
        self,
        tree: Tree,
        root: str,
        wanted: Layout | None,
        registry: BookieRegistry,
        random: Random,
    ) -> None:
        self._tree = tree
        self._uri = tree.uri
        self._root = root
        self._wanted = wanted
        self._registry = registry
        self._random = random
        # its version counts the ledgers that were deleted; programs of others would not count theirs
        self.deletions = None if tree.has_strangers else f"{root}/{DELETIONS}"
        self._known: tuple[LedgerPaths, LedgerIds | BucketIds] | None = None  # once LAYOUT was read

    def forget(self) -> None:
        """Reads LAYOUT again before the next call that needs it."""
        self._known = None

    async def init(self) -> str:
        """Makes the nodes of a cluster and returns its instance id; `ClusterExists`."""
        instance = str(UUID(int=self._random.getrandbits(128), version=4))
        root, layout = self._root, self._wanted or Layout.HIERARCHICAL
        nodes = [
            Create(root),
            Create(f"{root}/available"),
            Create(f"{root}/available/readonly"),
            Create(f"{root}/INSTANCEID", instance.encode()),
            Create(f"{root}/LAYOUT", layout.text),
        ]
        if self.deletions is not None:
            nodes.append(Create(self.deletions))
        if layout is Layout.APACHE_ETCD:
            nodes += [Create(f"{root}/{name}") for name in OF_APACHE_ETCD]
        await self._tree.make()
        try:
            await self._tree.make_parents(root)
            await self._tree.transact(nodes)
        except NodeExists:
            found = await self.instance_id()
            if found != instance:  # else it was our own, by a try whose answer was lost
                raise ClusterExists(f"{self._uri} holds the cluster {found or '(without an id)'} already") from None
        self._known = None
        return instance

    async def instance_id(self) -> str:
        """Empty when the cluster has none; `NoCluster`."""
        try:
            return (await self._tree.get(f"{self._root}/INSTANCEID"))[0].decode("utf-8", "replace")
        except NoNode:
            if await self._tree.exists(self._root) is None:
                raise no_cluster(self._uri) from None
            return ""

    async def describe(self) -> Cluster:
        """The instance id and the layout; `NoCluster`, and the errors of `layout`."""
        instance = await self.instance_id()
        paths, _ = await self.layout()
        return Cluster(instance, paths.layout.text.decode())

    async def layout(self) -> tuple[LedgerPaths, LedgerIds | BucketIds]:
        """
        Reads LAYOUT, which the first open of a cluster without one decides (metadata-rules.md 1.2); read once.
        `NoCluster`; `MetaStore` when it isn't the one that the URI insists on.
        """
        if self._known is None:
            path = f"{self._root}/LAYOUT"
            try:
                data, _ = await self._tree.get(path)
            except NoNode:
                data = (self._wanted or Layout.HIERARCHICAL).text
                try:
                    await self._tree.create(path, data)
                except NodeExists:
                    data, _ = await self._tree.get(path)
                except NoNode:
                    raise no_cluster(self._uri) from None
            layout = parse_layout(data, self._wanted)
            await self._registry.make_read_only_list()
            self._known = LedgerPaths(self._root, layout), self._ids(layout)
        return self._known

    def _ids(self, layout: Layout) -> LedgerIds | BucketIds:
        if layout is Layout.APACHE_ETCD:
            return BucketIds(self._tree, self._root, self._random)
        return LedgerIds(self._tree, self._root, layout, self._random)

    async def destroy(self, instance_id: str) -> None:
        """
        Removes every node of the cluster; `WrongCluster` when the id is another's, bookies are registered, or there
        are nodes of other programs.
        """
        found = await self.instance_id()
        if found != instance_id:
            raise WrongCluster(f"{self._uri} holds the cluster {found or '(without an id)'}, not {instance_id}")
        paths, _ = await self.layout()
        listed = await self._registry.bookies()
        alive = sorted({*listed.writable, *listed.read_only})
        if alive:
            raise WrongCluster(f"{self._uri}: stop its bookies first: {', '.join(alive)}")
        names = await self._tree.children(self._root)
        foreign = [
            name
            for name in names
            if not (is_special(name) or paths.is_ledger_top(name) or name in {HEALTH_CHECK_SWITCH, DELETIONS})
        ]
        if foreign:
            raise WrongCluster(f"{self._uri} has children that are no ledgers: {', '.join(sorted(foreign))}")
        if paths.layout is Layout.APACHE_ETCD:
            names += OF_APACHE_ETCD
        # What makes it a cluster goes last, so that a destruction that was cut short can be begun again.
        for name in sorted(set(names) - set(LAST)):
            await self._tree.remove(f"{self._root}/{name}")
        await self._tree.remove(records_root(self._root))
        await self._remove_last()
        self._known = None

    async def _remove_last(self) -> None:
        """Removes all that is left, in one transaction; `WrongCluster` when somebody uses the cluster meanwhile."""
        paths = [*(f"{self._root}/{name}" for name in LAST), self._root]
        there = [path for path in paths if await self._tree.exists(path) is not None]
        try:
            await self._tree.transact([Delete(path, ANY) for path in there])
        except (NoNode, NotEmpty) as error:
            if await self._tree.exists(self._root) is None:  # by a try whose answer was lost
                return
            raise WrongCluster(
                f"{self._uri} is used while it is destroyed: stop its bookies and clients, then destroy it again"
            ) from error
