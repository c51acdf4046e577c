"""
Small versioned records beside the ledgers, for what is built on ledgers: a tree of paths, each with a value that
changes by compare-and-set, and claims, which go with the session that made them.

Knows: the operations, their bounds, results and errors (metadata-rules.md 10); that all records are below one node of
the tree beside the ledgers, which says whose they are.
Does not know: how a tree is kept, what a value means.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: an operation that fails with plain `MetaStore` may have taken effect, and may still do so, until the version
that it named has moved or its path is gone.  A driver may try again by itself, so `RecordChanged`, `RecordExists` and
`NoRecord` may be the echo of its own first try: callers decide by the content of a record, never by the error alone.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock
from quire.metadata.store import ANY, Versioned, Watch, WrongCluster, no_cluster
from quire.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Step,
    Tree,
    Wake,
    Write,
)
from quire.metadata.watches import Reading, Watches, names, value
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

VALUE_BYTES_MAX = 768 << 10
MULTI_BYTES_MAX = 896 << 10  # of paths, values and the frames of the steps: below ZooKeeper's packet of 1,048,575 bytes
MULTI_STEPS_MAX = 5000
STEP_BYTES = 64  # of one step beside its path and value, at most
DEPTH_MAX = 10
COMPONENT = re.compile(r"[A-Za-z0-9._%-]{1,200}")
PAGE = 1000


class RecordError(MetaStore):
    """An operation that the state of a record refuses.  `step`: which step of a multi failed, from 0."""

    step = 0


class NoRecord(RecordError):
    """The record, or the parent of the one to be created, does not exist."""


class RecordExists(RecordError):
    """There is a record at this path."""


class RecordChanged(RecordError):
    """The record does not have the version that was named."""


class RecordHasChildren(RecordError):
    """A record with children can't be deleted."""


RecordWatcher = Callable[[Versioned[bytes] | None], None]
ChildrenWatcher = Callable[[list[str] | None], None]


def check_path(path: str) -> None:
    """`IncorrectParameter` for a path that no record can have."""
    names = path.split("/")
    if len(names) > DEPTH_MAX or not all(COMPONENT.fullmatch(name) and name not in {".", ".."} for name in names):
        raise IncorrectParameter(
            f"{path[:250]!r} is no path of a record: 1 to {DEPTH_MAX} names of 1 to 200 of A-Z a-z 0-9 . _ - %, "
            "separated by /"
        )


def check_step(step: Step) -> None:
    """`IncorrectParameter` for a step that no store takes."""
    check_path(step.path)
    if isinstance(step, Create | Write) and len(step.data) > VALUE_BYTES_MAX:
        raise IncorrectParameter(
            f"record {step.path}: the value has {len(step.data)} bytes, at most {VALUE_BYTES_MAX} are allowed"
        )
    if not isinstance(step, Create) and (step.version < ANY or (step.version == ANY and isinstance(step, Write))):
        raise IncorrectParameter(
            f"record {step.path}: a {type(step).__name__.lower()} names the version that was read, not {step.version}"
        )


def check_multi(steps: Sequence[Step]) -> None:
    """`IncorrectParameter` for steps that can't be one multi."""
    for step in steps:
        check_step(step)
    size = sum(
        len(step.path) + STEP_BYTES + (len(step.data) if isinstance(step, Create | Write) else 0) for step in steps
    )
    if not steps or len(steps) > MULTI_STEPS_MAX or size > MULTI_BYTES_MAX:
        raise IncorrectParameter(
            f"a multi has 1 to {MULTI_STEPS_MAX} steps of {MULTI_BYTES_MAX} bytes together, not {len(steps)} of {size}"
        )


def parent_of(path: str) -> str:
    """The path above; empty for a record at the top."""
    return path.rpartition("/")[0]


def check_children(path: str, limit: int) -> None:
    """`IncorrectParameter` for a page that can't be asked for: an empty one means the end."""
    check_path(path)
    if limit < 1:
        raise IncorrectParameter(f"a page of the children of {path} has at least 1, not {limit}")


ERRORS: tuple[tuple[type[NodeError], type[RecordError], str], ...] = (
    (NodeExists, RecordExists, "exists already"),
    (NoNode, NoRecord, "or the record above it does not exist, or can't have children"),
    (BadVersion, RecordChanged, "does not have the version that was named"),
    (NotEmpty, RecordHasChildren, "has children"),
)


class Records:
    """
    The records of one handle, below `root`: they share its session.  `instance_id` is that of the cluster.
    `WrongCluster` when they are those of a former cluster.
    """

    def __init__(self, clock: Clock, tree: Tree, root: str, instance_id: Callable[[], Awaitable[str]]) -> None:
        self._tree = tree
        self._root = root
        self._instance_id = instance_id
        self._ready = False  # the root is there, and of this cluster
        self._asked: list[Deferred[int]] = []  # who waits for the next answer of the clock
        self._touching = False
        self._values: Watches[str, Versioned[bytes]] = Watches(clock, tree, self._read_value)
        self._names: Watches[str, list[str]] = Watches(clock, tree, self._read_names)

    def forget(self) -> None:
        """Looks again whose records these are before the next operation."""
        self._ready = False

    def end(self) -> None:
        """Ends the watches."""
        self._values.end()
        self._names.end()

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    async def cluster(self) -> str:
        """The id of the cluster that these are of.  `NoCluster`, `WrongCluster`."""
        await self._prepare()
        return await self._instance_id()

    async def _prepare(self) -> None:
        """Makes the root; `NoCluster`; `WrongCluster` when these are the records of a former cluster."""
        if self._ready:
            return
        instance = await self._instance_id()
        found = await self._owner()
        if found is None:
            found = instance if await self._make(instance) else await self._owner()
        if found != instance:
            raise WrongCluster(
                f"{self._tree.uri} has records of the former cluster {found}: remove them with "
                f"`quire log purge --of {found}`"
            )
        self._ready = True

    async def _make(self, instance: str) -> bool:
        """
        Makes the root; False: it is there.  In etcd Apache's programs make no nodes above a cluster.  `NoCluster`.
        """
        with suppress(NoNode):
            return await self._tree.ensure(self._root, instance.encode())
        if instance:
            with suppress(NoNode):
                await self._tree.make_parents(self._root)
                return await self._tree.ensure(self._root, instance.encode())
        raise no_cluster(self._tree.uri)

    async def _owner(self) -> str | None:
        """The id of the cluster that the records belong to; None when there are none."""
        try:
            return (await self._tree.get(self._root))[0].decode("utf-8", "replace")
        except NoNode:
            return None

    def _error(self, path: str, error: NodeError) -> NodeError | RecordError:
        for theirs, ours, text in ERRORS:
            if isinstance(error, theirs):
                made = ours(f"{self._tree.uri}: record {path} {text}")
                made.step = error.step
                return made
        return error

    # -- operations ------------------------------------------------------------------------------------------------

    def read(self, path: str) -> Deferred[Versioned[bytes]]:
        """`NoRecord`."""
        return Deferred.fromCoroutine(self._read(path))

    async def _read(self, path: str) -> Versioned[bytes]:
        check_path(path)
        await self._prepare()
        try:
            data, stat = await self._tree.get(self._path(path))
        except NoNode as error:
            raise self._error(path, error) from None
        return Versioned(data, stat.version)

    def multi(self, steps: Sequence[Step]) -> Deferred[list[int]]:
        """
        All of the steps or none; the version that each leaves (`ANY` for `Delete` and `Check`).  Fails as the first
        step that can't be done: `NoRecord`, `RecordExists`, `RecordChanged`, `RecordHasChildren`, with `.step`;
        `IncorrectParameter` before anything is sent.
        """
        return Deferred.fromCoroutine(self._multi(steps))

    async def _multi(self, steps: Sequence[Step]) -> list[int]:
        check_multi(steps)
        await self._prepare()
        try:
            done = await self._tree.transact([replace(step, path=self._path(step.path)) for step in steps])
        except NodeError as error:
            raise self._error(steps[error.step].path, error) from None
        return [each.version for each in done]

    def create(self, path: str, data: bytes, *, claim: bool = False) -> Deferred[int]:
        """Makes a record and returns its version.  `RecordExists`, `NoRecord` (no parent)."""
        return self.multi([Create(path, data, claim)]).addCallback(lambda versions: versions[0])

    def write(self, path: str, data: bytes, version: int) -> Deferred[int]:
        """The new version.  `RecordChanged`, `NoRecord`."""
        return self.multi([Write(path, data, version)]).addCallback(lambda versions: versions[0])

    def delete(self, path: str, version: int) -> Deferred[None]:
        """`NoRecord`, `RecordChanged`, `RecordHasChildren`."""
        return self.multi([Delete(path, version)]).addCallback(lambda _: None)

    def children(self, path: str, after: str = "", limit: int = PAGE) -> Deferred[list[str]]:
        """
        The next at most `limit` names above `after`, ascending; [] at the end and only there.  `NoRecord`.  Works up to
        20,000 children.
        """
        return Deferred.fromCoroutine(self._children(path, after, limit))

    async def _children(self, path: str, after: str, limit: int) -> list[str]:
        check_children(path, limit)
        await self._prepare()
        try:
            return await self._tree.page(self._path(path), after, limit)
        except NoNode as error:
            raise self._error(path, error) from None

    def folder(self, path: str) -> Deferred[None]:
        """Makes the empty records down to `path` that are missing."""
        return Deferred.fromCoroutine(self._folder(path))

    async def _folder(self, path: str) -> None:
        check_path(path)
        try:
            await self.create(path, b"")
        except RecordExists:
            return
        except NoRecord:
            if parent_of(path):
                await self._folder(parent_of(path))
            try:
                await self.create(path, b"")
            except RecordExists:
                return

    def sync(self) -> Deferred[None]:
        """A read that is asked after the answer sees every write that was answered before this was asked."""
        return self.clock().addCallback(lambda _: None)

    def clock(self) -> Deferred[int]:
        """The store's time of day, in ms since 1970: of ZooKeeper's server, otherwise of this machine."""
        answer: Deferred[int] = Deferred()
        self._asked.append(answer)
        if not self._touching:
            self._touching = True
            Deferred.fromCoroutine(self._touch())
        return answer

    async def _touch(self) -> None:
        """One answer for all that have asked before it is asked for."""
        while self._asked:
            asked, self._asked = self._asked, []
            outcome: int | Exception
            try:
                await self._prepare()
                outcome = await self._tree.clock(self._path("clock"))
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
        """Removes the records of the former cluster with that id.  `WrongCluster` when they are those of another."""
        return Deferred.fromCoroutine(self._purge(instance_id))

    async def _purge(self, instance_id: str) -> None:
        found = await self._owner()
        if found is None:
            return
        if found != instance_id or found == await self._instance_id():
            raise WrongCluster(
                f"{self._tree.uri}: its records are those of {found}, and those of the present cluster are not purged; "
                f"not {instance_id}"
            )
        await self._tree.remove(self._root)

    # -- watches ---------------------------------------------------------------------------------------------------

    def watch(self, path: str, fn: RecordWatcher) -> Watch:
        """
        Calls `fn` with the current value, then with newer ones as they are seen (not with every one in between); None
        while there is none.
        """
        check_path(path)
        return self._values.add(path, fn)

    def watch_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        """Calls `fn` with the children's names, ascending, then whenever they changed; None while `path` is missing."""
        check_path(path)
        return self._names.add(path, fn)

    async def _read_value(self, path: str, wake: Wake) -> Reading[Versioned[bytes]]:
        found = await value(self._tree, self._path(path), wake)
        return (
            Reading(None, None) if found is None else Reading(found[1].changed, Versioned(found[0], found[1].version))
        )

    async def _read_names(self, path: str, wake: Wake) -> Reading[list[str]]:
        found = await names(self._tree, self._path(path), wake)
        return Reading(None if found is None else tuple(found), found)


async def put(records: Records, path: str, data: bytes) -> None:
    """Makes this the value of a record, whatever it was, and the record with its folder where there is none."""
    while True:
        try:
            await records.write(path, data, (await records.read(path)).version)
            return
        except NoRecord:
            with suppress(RecordExists):
                await records.folder(parent_of(path))
                await records.create(path, data)
                return
        except RecordChanged:
            continue
