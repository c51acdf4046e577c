"""
The tree of versioned nodes in which metadata is kept: what a driver supplies (ZooKeeper, a SQLite file, memory).

Knows: nodes and their versions, transactions of steps, claims that go with a session, numbered nodes, watches, and the
errors of all that.
Does not know: what a node means; its path is absolute, and whose it is, is decided above (`records`, `auditing`,
`repairs`).

A path is made of names after slashes, and a node needs its parent; "" is above all and always there.  A node's
version is 0 when it is made and grows by one with each write; it begins again when the node was removed and made
again, which `Stat.made` and `Stat.changed` show.  A claim has no children.  The name of a numbered node ends in ten
digits: how many children its parent has had so far.  Of one change the watch of a node is called before that of its
parent's children.

Every operation returns a Deferred that fires on the reactor's thread; it fails with a `NodeError`, or with `MetaStore`
(which names the store) within the session timeout: never a hang.

Safety: an operation that fails with plain `MetaStore` may have been done, and may still be done later, until the
version that it named has moved or its path is gone.  A driver may try again by itself: the error of a later try then
carries `retried`, and the caller reads again before it decides.  A call that is bound to a session is carried out in
that one or never.  A transaction is durable before it is answered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from quire.metadata.counters import SessionCounters
from quire.metadata.store import ANY
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
P = ParamSpec("P")
Wake = Callable[[], None]
SessionId = int | str

REMOVALS_MAX = 100  # nodes under removal at once, per parent
USED_UP_AT_ONCE = 2000  # numbers, in one transaction: 200 kB of the 1 MiB that ZooKeeper takes


class NodeError(MetaStore):
    """
    An operation that a node's state refuses.  `retried`: an earlier try may have been done, its answer was lost;
    `step`: which step of a transaction failed, from 0.
    """

    retried = False
    step = 0


class NoNode(NodeError):
    """The node, or the parent of the one to be made, does not exist, or that parent can't have children."""


class NodeExists(NodeError):
    """The node exists already."""


class BadVersion(NodeError):
    """The node has another version."""


class NotEmpty(NodeError):
    """The node has children."""


class SessionOver(NodeError):
    """The session that a call was bound to has ended, and its claims with it."""


@dataclass(frozen=True, slots=True)
class Create:
    """
    A step: the node must not exist, its parent must.  `claim`: it goes with the session; `numbered`: digits are added
    to its name; `shared`: others may change it, however the store restricts who changes what.
    """

    path: str
    data: bytes = field(default=b"", repr=False)  # secrets may be in it
    claim: bool = False
    numbered: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A step: replaces the value of that version (`ANY`: of whichever)."""

    path: str
    data: bytes = field(repr=False)
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A step: removes the node of that version (`ANY`: of whichever), which has no children."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """A step: the node has that version; `ANY`: it exists."""

    path: str
    version: int = ANY


Step = Create | Write | Delete | Check


class Done(NamedTuple):
    """The result of a step: the node's path, with its number, and its version (`ANY` for `Delete` and `Check`)."""

    path: str
    version: int


CALLS_OF_ONE = {Create: "create", Write: "write", Delete: "delete"}  # a transaction of one step


def counted(call: Callable[P, "Deferred[T]"]) -> Callable[P, "Deferred[T]"]:
    """Marks an operation of a driver whose calls are counted, under its name, where the tree has `counters`."""

    @wraps(call)
    def asked(*args: P.args, **kwargs: P.kwargs) -> "Deferred[T]":
        tree, subject = cast("tuple[Tree, Any]", args[:2])
        answer = call(*args, **kwargs)
        if tree.counters is None:
            return answer
        name = call.__name__
        if name == "transact" and len(subject) == 1:
            name = CALLS_OF_ONE.get(type(subject[0]), name)
        return tree.counters.counting(name, answer)

    return asked


class Stat(NamedTuple):
    """
    The facts about a node beside its value.  `owner`: the session of a claim.  `made`, `changed`, `children_changed`:
    the store's count of changes when it was made, written, and when a child was made or removed (etcd: made); `family`:
    how often a child was made or removed.
    """

    version: int
    owner: SessionId | None
    made: int
    changed: int
    children: int
    family: int
    children_changed: int


class Tree(ABC):
    """
    One handle on the tree, with one session.  `uri` names the store.  `on_expired` is called when the session has
    ended and the next one is there; `on_connected` when all watches were lost with a connection, and it is back.
    """

    uri: str
    timeout_s: float  # of an operation, and of a session
    has_strangers = False  # programs of others write in it, too, and by steps of their own
    counts_children = True  # `Stat.family` and `children_changed` know of all that come and go, whoever makes them
    counters: SessionCounters | None = None  # of calls; for the store that uses it to set
    on_expired: Wake = staticmethod(lambda: None)
    on_connected: Wake = staticmethod(lambda: None)

    @abstractmethod
    def close(self) -> Deferred[None]:
        """Ends the session, whose claims go, and the watches; operations under way fail with `MetaStore`."""

    @property
    def outlives_s(self) -> float:
        """How long a session may outlive its process, in seconds."""
        return self.timeout_s

    def make(self) -> Deferred[None]:
        """Makes what an empty tree is kept in, where that is missing."""
        return succeed(None)

    @property
    @abstractmethod
    def session(self) -> SessionId | None:
        """The present session; None while there is none."""

    @abstractmethod
    async def session_now(self) -> SessionId:
        """The session in which the next claim is made, which is begun if there is none."""

    @abstractmethod
    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        """
        Carries out all steps or none.  Fails as the first step that can't be done, with `.step`; `SessionOver` where it
        is bound to a session that has ended.
        """

    @abstractmethod
    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        """`NoNode`.  `watch` is called once: the node changes or goes, or the watch is lost."""

    @abstractmethod
    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        """The nodes in their order, each read by itself; None where there is no node."""

    @abstractmethod
    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        """`watch` is called once: the node appears, changes or goes, or the watch is lost."""

    @abstractmethod
    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        """
        The names of the children, in no order, and what the node was at that moment.  `NoNode`.  `watch` is called
        once: a child is made or goes, the node goes, or the watch is lost.
        """

    @abstractmethod
    def sync(self, path: str) -> Deferred[None]:
        """Makes reads after this see each write that was answered before it, whichever server answers them."""

    @abstractmethod
    def changes(self) -> Deferred[int]:
        """
        Reads the store's count of changes, which grows with each transaction; none that this handle has seen is
        missing in it.
        """

    @abstractmethod
    def clock(self, path: str) -> Deferred[int]:
        """
        The store's time of day, in ms since 1970.  A read that is asked after the answer sees every write that was
        answered before this was asked, which a store of several servers proves by a write of this node.
        """

    def disarm(self, watch: Wake) -> bool:
        """Forgets a watch if the store can; False: it may still be called."""
        return False

    def page(self, path: str, after: str, limit: int) -> Deferred[list[str]]:
        """The next at most `limit` names of children above `after`, ascending.  `NoNode`."""
        return self.children(path).addCallback(lambda names: sorted(name for name in names if name > after)[:limit])

    def children(self, path: str, watch: Wake | None = None) -> Deferred[list[str]]:
        """The names of `listing`."""
        return self.listing(path, watch).addCallback(lambda found: found[0])

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        claim: bool = False,
        numbered: bool = False,
        shared: bool = False,
        session: SessionId | None = None,
    ) -> Deferred[str]:
        """Makes a node and returns its path.  `NodeExists`, `NoNode` (no parent), `SessionOver`."""
        made = self.transact([Create(path, data, claim, numbered, shared)], session=session)
        return made.addCallback(lambda done: done[0].path)

    def set(self, path: str, data: bytes, version: int, *, session: SessionId | None = None) -> Deferred[int]:
        """Replaces a value and returns the new version.  `NoNode`, `BadVersion`, `SessionOver`."""
        return self.transact([Write(path, data, version)], session=session).addCallback(lambda done: done[0].version)

    def delete(self, path: str, version: int = ANY, *, session: SessionId | None = None) -> Deferred[None]:
        """`NoNode`, `BadVersion`, `NotEmpty`, `SessionOver`."""
        return self.transact([Delete(path, version)], session=session).addCallback(lambda _: None)

    def delete_own(self, path: str, session: SessionId) -> Deferred[None]:
        """
        Removes a claim that this session made, and never another's: within a session no other client puts one in its
        place, and in the next session nothing is done.  `NoNode`: there is none of ours, which may have gone with its
        session.
        """
        return Deferred.fromCoroutine(self._delete_own(path, session))

    async def _delete_own(self, path: str, session: SessionId) -> None:
        found = await self.exists(path)
        if found is None or found.owner != session:
            raise NoNode(f"{self.uri}: {path} is not this session's")
        try:
            await self.delete(path, session=session)
        except SessionOver as over:
            raise NoNode(str(over)) from None

    async def use_up(self, path: str, count: int) -> None:
        """Uses up so many numbers of a node's children, at least.  `NoNode`."""
        name = f"{path}/ID-quire"
        while count > 0:
            await self.transact([Create(name), Delete(name, ANY)] * min(count, USED_UP_AT_ONCE))
            count -= USED_UP_AT_ONCE

    async def remove(self, path: str) -> None:
        """Removes a node and all below it; what is gone already is fine."""
        await _remove(self, path)

    async def holds(self, path: str, data: bytes, version: int) -> bool:
        """True if a node has these bytes at this version: after a retried write, that an earlier try was done."""
        try:
            found, stat = await self.get(path)
        except NoNode:
            return False
        return stat.version == version and found == data

    async def ensure(self, path: str, data: bytes = b"", *, shared: bool = False) -> bool:
        """Makes a node where there is none; True if it was made, False also after an answer that was lost.  `NoNode`"""
        with suppress(NodeExists):
            await self.create(path, data, shared=shared)
            return True
        return False

    async def make_parents(self, path: str) -> None:
        """Makes the nodes above a path that are missing, the highest first."""
        parts = path.split("/")[1:-1]
        for depth in range(len(parts)):
            await self.ensure("/" + "/".join(parts[: depth + 1]))


async def _remove(tree: Tree, path: str) -> None:
    while True:
        try:
            await tree.delete(path)
        except NoNode:
            return
        except NotEmpty:
            try:
                names = await tree.children(path)
            except NoNode:
                return
            for start in range(0, len(names), REMOVALS_MAX):
                some = names[start : start + REMOVALS_MAX]
                await together([Deferred.fromCoroutine(_remove(tree, f"{path}/{name}")) for name in some])
        else:
            return


async def together(deferreds: "Sequence[Deferred[T]]") -> list[T]:
    """All results, in order; the first failure, once every one has ended."""
    results = await DeferredList(deferreds, consumeErrors=True)
    values: list[T] = []
    for _, value in results:
        if isinstance(value, Failure) and isinstance(value.value, BaseException):
            raise value.value
        values.append(value)
    return values
