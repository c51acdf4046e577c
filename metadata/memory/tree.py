"""
The tree in memory: the nodes that all handles share with the effect of each step, and the tree of one handle.

Knows: the contract (`metadata.tree`).  Does not know: when an operation takes effect (`store`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed

from quire.metadata.clock import Clock
from quire.metadata.store import ANY, notify
from quire.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    Done,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionId,
    SessionOver,
    Stat,
    Step,
    Tree,
    Wake,
    Write,
    counted,
)
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Watched = tuple[str, bool]  # a path, and whether its children


class Node(NamedTuple):
    data: bytes
    stat: Stat

    def __repr__(self) -> str:
        return f"Node({len(self.data)} bytes, {self.stat})"  # secrets may be in it


@dataclass(slots=True)
class Nodes:
    """The nodes that all handles share."""

    uri: str
    # Called for each claim that a step removes: its path, whose session made it, and in whose it was removed.
    went: Callable[[str, SessionId, SessionId], None] = field(default=lambda *_: None)
    nodes: dict[str, Node] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=lambda: {"": set()})  # the children of each path
    changes: int = 0
    listeners: list[Callable[[Iterable[Watched]], None]] = field(default_factory=list)  # of every change
    # The handles that watch something, by their numbers: of thousands few watch the same.
    armed: dict[Watched, dict[int, Callable[[Iterable[Watched]], None]]] = field(default_factory=dict)
    handles: int = 0  # that ever were

    def transact(self, steps: Sequence[Step], session: SessionId) -> list[Done]:
        """Carries out all of the steps or none, and returns what each leaves; the error of the first that fails."""
        done, gone = self._transact(steps, session)
        for path, owner in gone:
            self.went(path, owner, session)
        return done

    def _transact(self, steps: Sequence[Step], session: SessionId) -> tuple[list[Done], list[tuple[str, SessionId]]]:
        """Carries out the steps and also returns the claims that are gone."""
        before: dict[str, Node | None] = {}
        gone: list[tuple[str, SessionId]] = []
        touched: set[Watched] = set()
        done: list[Done] = []
        self.changes += 1
        try:
            for number, step in enumerate(steps):
                done.append(self._apply(step, number, session, before, gone))
        except LedgerError:
            for path, node in reversed(before.items()):
                self._put(path, node)
            raise
        for step, each in zip(steps, done, strict=True):
            if isinstance(step, Create | Delete):
                touched |= {(each.path, False), (each.path, True), (_parent(each.path), True)}
            elif isinstance(step, Write):
                touched.add((each.path, False))
        if touched:
            self._tell(touched)
        return done, gone

    def _tell(self, touched: Iterable[Watched]) -> None:
        watching: dict[int, Callable[[Iterable[Watched]], None]] = {}
        for watched in touched:
            watching |= self.armed.pop(watched, {})
        for number in sorted(watching):
            watching[number](touched)
        for listener in list(self.listeners):
            listener(touched)

    def _apply(
        self,
        step: Step,
        number: int,
        session: SessionId,
        before: dict[str, Node | None],
        gone: list[tuple[str, SessionId]],
    ) -> Done:
        path = step.path
        above = self.nodes.get(_parent(path))
        if isinstance(step, Create) and step.numbered and above is not None:
            path += f"{(above.stat.family + above.stat.children) // 2:010d}"
        node = self.nodes.get(path)
        error: NodeError | None = None
        if isinstance(step, Create):
            if node is not None:
                error = NodeExists(f"{self.uri}: NodeExists for {path}")
            elif _parent(path) and (above is None or above.stat.owner is not None):
                error = NoNode(f"{self.uri}: NoNode for {path}")
        elif node is None:
            error = NoNode(f"{self.uri}: NoNode for {path}")
        elif step.version not in {ANY, node.stat.version}:
            error = BadVersion(f"{self.uri}: BadVersion for {path}")
        elif isinstance(step, Delete) and node.stat.children:
            error = NotEmpty(f"{self.uri}: NotEmpty for {path}")
        if error is not None:
            error.step = number
            raise error
        before.setdefault(path, node)
        if isinstance(step, Create):
            owner = session if step.claim else None
            self._put(path, Node(step.data, Stat(0, owner, self.changes, self.changes, 0, 0, self.changes)))
            self._count_child(path, 1, before)
            return Done(path, 0)
        assert node is not None
        if isinstance(step, Write):
            version = node.stat.version + 1
            self._put(path, Node(step.data, node.stat._replace(version=version, changed=self.changes)))
            return Done(path, version)
        if isinstance(step, Delete):
            self._put(path, None)
            self._count_child(path, -1, before)
            if node.stat.owner is not None:
                gone.append((path, node.stat.owner))
        return Done(path, ANY)

    def _count_child(self, path: str, more: int, before: dict[str, Node | None]) -> None:
        parent = _parent(path)
        above = self.nodes.get(parent)
        if above is not None:
            before.setdefault(parent, above)
            counted = above.stat._replace(
                children=above.stat.children + more, family=above.stat.family + 1, children_changed=self.changes
            )
            self._put(parent, above._replace(stat=counted))

    def _put(self, path: str, node: Node | None) -> None:
        parent, _, name = path.rpartition("/")
        if node is None:
            self.nodes.pop(path, None)
            self.names[parent].discard(name)
        else:
            self.nodes[path] = node
            self.names.setdefault(parent, set()).add(name)

    def find(self, path: str) -> Node:
        """`NoNode`."""
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(f"{self.uri}: NoNode for {path}")
        return found

    def use_up(self, path: str, count: int) -> None:
        """Counts children that were never made; `NoNode`."""
        node = self.find(path)
        self.changes += 1
        counted = node.stat._replace(family=node.stat.family + 2 * count, children_changed=self.changes)
        self._put(path, node._replace(stat=counted))

    def end_session(self, session: SessionId) -> None:
        """Removes the claims of a session."""
        claims = [path for path, node in self.nodes.items() if node.stat.owner == session]
        if claims:
            self._transact([Delete(path, ANY) for path in claims], session)

    def clear(self) -> None:
        """Removes everything."""
        touched = {(path, children) for path in self.nodes for children in (False, True)}
        self.nodes.clear()
        self.names = {"": set()}
        self._tell(touched)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class Runner(Protocol):
    """Applies an operation of that name, now or as a fault has it."""

    def __call__(self, name: str, effect: Callable[..., T], /, *args: object) -> Deferred[T]: ...


@dataclass(eq=False, slots=True)
class Event:
    """A change that is on its way to those who watched; `moved`: the node was made or is gone, not just written."""

    path: str
    children: bool
    moved: bool
    wakes: dict[Wake, None]


class MemoryTree(Tree):
    """
    The tree through one store.  `session()` is the store's of now; `milliseconds()` the time of day.  What is watched
    is heard of in the reactor's next turn, or after the `pace()` of each event, in seconds: beside answers, as etcd's
    are.  Then a child's are still told before its parent's, and before a listing shows it.
    """

    pace: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(
        self,
        reactor: Clock,
        nodes: Nodes,
        timeout_s: float,
        run: Runner,
        session: Callable[[], SessionId],
        milliseconds: Callable[[], int],
    ) -> None:
        self.uri = nodes.uri
        self.timeout_s = timeout_s
        self.nodes = nodes
        self._reactor = reactor
        self._run = run
        self._session = session
        self._milliseconds = milliseconds
        self._armed: dict[Watched, dict[Wake, None]] = {}
        self._coming: dict[Event, None] = {}
        self._number = nodes.handles
        nodes.handles += 1

    def close(self) -> Deferred[None]:
        for watched in self._armed:
            self.nodes.armed.get(watched, {}).pop(self._number, None)
        self._armed.clear()
        self._coming.clear()
        return succeed(None)

    @property
    def session(self) -> SessionId:
        return self._session()

    async def session_now(self) -> SessionId:
        return self._session()

    @counted
    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        bound = self._session() if session is None else session

        def apply(*steps: Step) -> list[Done]:
            if self._session() != bound:
                raise SessionOver(f"{self.uri}: the session ended before {steps[0].path} was changed")
            return self.nodes.transact(steps, bound)

        return self._run("transact", apply, *steps)

    async def use_up(self, path: str, count: int) -> None:
        await self._run("use_up", self.nodes.use_up, path, count)

    @counted
    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        return self._run("get", lambda path: self._arm(path, False, watch, self.nodes.find(path)), path)

    @counted
    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        return self._run("get_each", lambda *paths: [self.nodes.nodes.get(path) for path in paths], *paths)

    @counted
    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        def look(path: str) -> Stat | None:
            found = self._arm(path, False, watch, self.nodes.nodes.get(path))
            return None if found is None else found.stat

        return self._run("exists", look, path)

    @counted
    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        def look(path: str) -> tuple[list[str], Stat]:
            self._tell_below(path, written=True)
            found = self._arm(path, True, watch, self.nodes.find(path))
            return sorted(self.nodes.names.get(path, ())), found.stat

        return self._run("listing", look, path)

    @counted
    def sync(self, path: str) -> Deferred[None]:
        return self._run("sync", lambda _path: None, path)

    def changes(self) -> Deferred[int]:
        return self._run("changes", lambda: self.nodes.changes)

    def clock(self, path: str) -> Deferred[int]:
        return self._run("clock", lambda _path: self._milliseconds(), path)

    def _arm(self, path: str, children: bool, watch: Wake | None, found: T) -> T:
        if watch is not None:
            self._armed.setdefault((path, children), {})[watch] = None
            self.nodes.armed.setdefault((path, children), {})[self._number] = self._touched
        return found

    def disarm(self, watch: Wake) -> bool:
        for watched in [watched for watched, wakes in self._armed.items() if watch in wakes]:
            del self._armed[watched][watch]
            if not self._armed[watched]:
                del self._armed[watched]
                self.nodes.armed.get(watched, {}).pop(self._number, None)
        for event in self._coming:
            event.wakes.pop(watch, None)
        return True

    def _touched(self, touched: Iterable[Watched]) -> None:
        touched = set(touched)
        for path, children in sorted(self._armed.keys() & touched, key=lambda each: (each[1], each[0])):
            event = Event(path, children, (path, True) in touched, self._armed.pop((path, children)))
            self._coming[event] = None
            self._reactor.callLater(self.pace(), self._tell, event)

    def _tell(self, event: Event) -> None:
        if event not in self._coming:
            return
        del self._coming[event]
        if event.children:
            self._tell_below(event.path, written=False)
        for wake in event.wakes:
            notify(wake)

    def _tell_below(self, path: str, written: bool) -> None:
        """Tells what is on its way of the node's children that were made or are gone, or also of written ones."""
        for event in [each for each in self._coming if not each.children and _parent(each.path) == path]:
            if written or event.moved:
                self._tell(event)
