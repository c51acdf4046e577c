"""
Records in ZooKeeper: a znode each, in a tree beside the ledgers' root.

Knows: where they are, claims as ephemeral znodes, a multi as one transaction, and that a write proves what `sync`
has to prove: that this server has seen all that a quorum answered before.  (ZooKeeper's own `sync` is answered by a
leader that has lost its quorum, too.)
Does not know: what a value means.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.metadata.clock import Reactor
from quire.metadata.records import (
    PAGE,
    ChildrenWatcher,
    Create,
    NoRecord,
    RecordChanged,
    RecordError,
    RecordExists,
    RecordHasChildren,
    Records,
    RecordWatcher,
    Step,
    Write,
    check_children,
    check_multi,
    check_path,
    page_of,
)
from quire.metadata.store import ANY, Versioned, Watch, WrongCluster, no_cluster
from quire.metadata.zk.calls.answers import BadVersion, NodeError, NodeExists, NoNode, NotEmpty
from quire.metadata.zk.calls.session import ZooKeeperSession
from quire.metadata.zk.cluster import ZooKeeperCluster
from quire.metadata.zk.scan import remove_tree
from quire.metadata.zk.watches import Reading, Watches

# SPDX-License-Identifier: Apache-2.0

ERRORS: tuple[tuple[type[NodeError], type[RecordError], str], ...] = (
    (NodeExists, RecordExists, "exists already"),
    (NoNode, NoRecord, "or the record above it does not exist, or can't have children"),
    (BadVersion, RecordChanged, "does not have the version that was named"),
    (NotEmpty, RecordHasChildren, "has children"),
)


class ZooKeeperRecords(Records):
    """The records of one store; `forget` after each new session."""

    def __init__(
        self, reactor: Reactor, session: ZooKeeperSession, uri: str, root: str, cluster: ZooKeeperCluster
    ) -> None:
        self._session = session
        self._uri = uri
        self._root = root
        self._cluster = cluster
        self._ready = False  # the root is there, and of this cluster
        self._asked: list[Deferred[int]] = []  # who waits for the next write of the clock
        self._touching = False
        self._values: Watches[str, Versioned[bytes]] = Watches(reactor, self._read_value)
        self._names: Watches[str, list[str]] = Watches(reactor, self._read_names)

    def forget(self) -> None:
        """Looks again whose records these are before the next operation."""
        self._ready = False

    def end(self) -> None:
        """Ends the watches."""
        self._values.end()
        self._names.end()

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    async def _prepare(self) -> None:
        """Makes the root; `NoCluster`; `WrongCluster` when these are the records of a former cluster."""
        if self._ready:
            return
        instance = await self._cluster.instance_id()
        found = await self._owner()
        if found is None:
            try:
                await self._session.create(self._root, instance.encode())
            except NodeExists:
                found = await self._owner()
            except NoNode:
                raise no_cluster(self._uri) from None
            else:
                found = instance
        if found != instance:
            raise WrongCluster(
                f"{self._uri} has records of the former cluster {found}: remove them with "
                f"`quire log purge --of {found}`"
            )
        self._ready = True

    async def _owner(self) -> str | None:
        """The id of the cluster that the records belong to; None when there are none."""
        try:
            return (await self._session.get(self._root))[0].decode("utf-8", "replace")
        except NoNode:
            return None

    def _error(self, path: str, error: NodeError) -> RecordError:
        for theirs, ours, text in ERRORS:
            if isinstance(error, theirs):
                made = ours(f"{self._uri}: record {path} {text}")
                made.step = error.step
                return made
        raise error

    # -- operations ------------------------------------------------------------------------------------------------

    def read(self, path: str) -> Deferred[Versioned[bytes]]:
        return Deferred.fromCoroutine(self._read(path))

    async def _read(self, path: str) -> Versioned[bytes]:
        check_path(path)
        await self._prepare()
        try:
            data, stat = await self._session.get(self._path(path))
        except NoNode as error:
            raise self._error(path, error) from None
        return Versioned(data, stat.version)

    def multi(self, steps: Sequence[Step]) -> Deferred[list[int]]:
        return Deferred.fromCoroutine(self._multi(steps))

    async def _multi(self, steps: Sequence[Step]) -> list[int]:
        check_multi(steps)
        await self._prepare()

        nodes = [replace(step, path=self._path(step.path)) for step in steps]
        try:
            results = await self._session.transact(nodes)
        except NodeError as error:
            raise self._error(steps[error.step].path, error) from None
        return [
            0 if isinstance(step, Create) else result.version if isinstance(step, Write) else ANY
            for step, result in zip(steps, results, strict=True)
        ]

    def children(self, path: str, after: str = "", limit: int = PAGE) -> Deferred[list[str]]:
        return Deferred.fromCoroutine(self._children(path, after, limit))

    async def _children(self, path: str, after: str, limit: int) -> list[str]:
        check_children(path, limit)
        await self._prepare()
        try:
            return page_of(await self._session.children(self._path(path)), after, limit)
        except NoNode as error:
            raise self._error(path, error) from None

    def sync(self) -> Deferred[None]:
        return self.clock().addCallback(lambda _: None)

    def clock(self) -> Deferred[int]:
        answer: Deferred[int] = Deferred()
        self._asked.append(answer)
        if not self._touching:
            self._touching = True
            Deferred.fromCoroutine(self._touch())
        return answer

    async def _touch(self) -> None:
        """One write for all that have asked before it is sent."""
        while self._asked:
            asked, self._asked = self._asked, []
            outcome: int | Exception
            try:
                await self._prepare()
                try:
                    stat = await self._session.set(self._path("clock"), b"", ANY)
                except NoNode:
                    with suppress(NodeExists):
                        await self._session.create(self._path("clock"))
                    stat = await self._session.set(self._path("clock"), b"", ANY)
                outcome = stat.mtime
            except Exception as error:
                outcome = error
            for answer in asked:
                if answer.called:
                    continue
                if isinstance(outcome, int):
                    answer.callback(outcome)
                else:
                    answer.errback(outcome)
        self._touching = False

    def purge(self, instance_id: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._purge(instance_id))

    async def _purge(self, instance_id: str) -> None:
        found = await self._owner()
        if found is None:
            return
        if found != instance_id or found == await self._cluster.instance_id():
            raise WrongCluster(
                f"{self._uri}: its records are those of {found}, and those of the present cluster are not purged; not "
                f"{instance_id}"
            )
        await remove_tree(self._session, self._root)

    # -- watches ---------------------------------------------------------------------------------------------------

    def watch(self, path: str, fn: RecordWatcher) -> Watch:
        check_path(path)
        return self._values.add(path, fn)

    def watch_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        check_path(path)
        return self._names.add(path, fn)

    async def _read_value(self, path: str, wake: Callable[[], None]) -> Reading[Versioned[bytes]]:
        while True:
            try:
                data, stat = await self._session.get(self._path(path), wake)
            except NoNode:
                if await self._session.exists(self._path(path), wake) is None:
                    return Reading(None, None)
            else:
                return Reading(stat.mzxid, Versioned(data, stat.version))

    async def _read_names(self, path: str, wake: Callable[[], None]) -> Reading[list[str]]:
        while True:
            try:
                names = sorted(await self._session.children(self._path(path), wake))
            except NoNode:
                if await self._session.exists(self._path(path), wake) is None:
                    return Reading(None, None)
            else:
                return Reading(tuple(names), names)
