"""
Records in memory: their state and the effect of each operation, and the handle of one store.

Knows: the contract (`records`), with versions that begin again when a path is deleted and created.
Does not know: when an operation takes effect (`store`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail

from quire.metadata.records import (
    PAGE,
    Check,
    ChildrenWatcher,
    Create,
    Delete,
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
    parent_of,
)
from quire.metadata.store import ANY, Versioned, Watch, WrongCluster, notify
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class Record(NamedTuple):
    data: bytes
    version: int
    session: int | None  # of a claim


@dataclass(slots=True)
class RecordTree:
    """What all handles share.  `changed` is called after each change."""

    uri: str
    changed: Callable[[], None]
    instance_id: str | None = None  # of the cluster whose records these are; None: there are none
    records: dict[str, Record] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=lambda: {"": set()})  # the children of each path

    def belong_to(self, instance_id: str) -> None:
        """`WrongCluster` when the records are those of another cluster."""
        if self.instance_id not in {None, instance_id}:
            raise WrongCluster(
                f"{self.uri} has records of the former cluster {self.instance_id}: remove them with "
                f"`quire log purge --of {self.instance_id}`"
            )
        self.instance_id = instance_id

    def read(self, path: str) -> Versioned[bytes]:
        """`NoRecord`."""
        record = self.records.get(path)
        if record is None:
            raise NoRecord(f"{self.uri} has no record {path}")
        return Versioned(record.data, record.version)

    def children(self, path: str, after: str, limit: int) -> list[str]:
        """A page of names; `NoRecord`."""
        if path not in self.records:
            raise NoRecord(f"{self.uri} has no record {path}")
        return page_of(list(self.names.get(path, ())), after, limit)

    def multi(self, steps: Sequence[Step], session: int) -> list[int]:
        """All of the steps or none, and the version that each leaves; the error of the first that can't be done."""
        undo: list[tuple[str, Record | None]] = []
        versions: list[int] = []
        try:
            for number, step in enumerate(steps):
                before = self.records.get(step.path)
                after, version = self._after(step, before, session, number)
                if not isinstance(step, Check):
                    undo.append((step.path, before))
                    self._put(step.path, after)
                versions.append(version)
        except RecordError:
            for path, before in reversed(undo):
                self._put(path, before)
            raise
        if undo:
            self.changed()
        return versions

    def _after(self, step: Step, record: Record | None, session: int, number: int) -> tuple[Record | None, int]:
        error: RecordError | None = None
        if isinstance(step, Create):
            parent = parent_of(step.path)
            above = self.records.get(parent)
            if record is not None:
                error = RecordExists(f"{self.uri} has a record {step.path} already")
            elif parent and (above is None or above.session is not None):
                error = NoRecord(f"{self.uri} has no record {parent} that can have children")
        elif record is None:
            error = NoRecord(f"{self.uri} has no record {step.path}")
        elif step.version not in {ANY, record.version}:
            error = RecordChanged(f"{self.uri}: record {step.path} is at version {record.version}, not {step.version}")
        elif isinstance(step, Delete) and self.names.get(step.path):
            error = RecordHasChildren(f"{self.uri}: record {step.path} has children")
        if error is not None:
            error.step = number
            raise error
        if isinstance(step, Create):
            return Record(step.data, 0, session if step.claim else None), 0
        if isinstance(step, Write):
            assert record is not None
            return Record(step.data, record.version + 1, record.session), record.version + 1
        return None, ANY

    def _put(self, path: str, record: Record | None) -> None:
        parent, _, name = path.rpartition("/")
        if record is None:
            self.records.pop(path, None)
            self.names[parent].discard(name)
        else:
            self.records[path] = record
            self.names.setdefault(parent, set()).add(name)

    def end_session(self, session: int) -> None:
        """Removes the claims of a session."""
        for path in [path for path, record in self.records.items() if record.session == session]:
            self._put(path, None)

    def clear(self) -> None:
        """Removes everything."""
        self.records.clear()
        self.names = {"": set()}
        self.instance_id = None
        self.changed()


class Runner(Protocol):
    """Applies an operation of that name, now or as a fault has it."""

    def __call__(self, name: str, effect: Callable[..., T], /, *args: object) -> Deferred[T]: ...


class MemoryRecords(Records):
    """The records through one store.  `instance_id()` raises `NoCluster`; `session()` is the store's of now."""

    def __init__(
        self,
        tree: RecordTree,
        run: Runner,
        watch: Callable[[Callable[[], None]], Watch],
        instance_id: Callable[[], str],
        session: Callable[[], int],
        milliseconds: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._run = run
        self._watch = watch
        self._instance_id = instance_id
        self._session = session
        self._milliseconds = milliseconds

    def _checked(self) -> RecordTree:
        self._tree.belong_to(self._instance_id())
        return self._tree

    def read(self, path: str) -> Deferred[Versioned[bytes]]:
        try:
            check_path(path)
        except IncorrectParameter as error:
            return fail(error)
        return self._run("record_read", lambda path: self._checked().read(path), path)

    def multi(self, steps: Sequence[Step]) -> Deferred[list[int]]:
        try:
            check_multi(steps)
        except IncorrectParameter as error:
            return fail(error)
        session = self._session()

        def apply(*steps: Step) -> list[int]:
            tree = self._checked()
            if self._session() != session:
                raise MetaStore(f"{tree.uri}: the session ended before the records were changed")
            return tree.multi(steps, session)

        return self._run("record_multi", apply, *steps)

    def children(self, path: str, after: str = "", limit: int = PAGE) -> Deferred[list[str]]:
        try:
            check_children(path, limit)
        except IncorrectParameter as error:
            return fail(error)
        return self._run("record_children", lambda *args: self._checked().children(*args), path, after, limit)

    def sync(self) -> Deferred[None]:
        def synced() -> None:
            self._checked()

        return self._run("record_sync", synced)

    def clock(self) -> Deferred[int]:
        return self._run("record_clock", lambda: (self._checked(), self._milliseconds())[1])

    def watch(self, path: str, fn: RecordWatcher) -> Watch:
        check_path(path)
        return self._follow(lambda: self._value(path), fn)

    def _value(self, path: str) -> Versioned[bytes] | None:
        record = self._tree.records.get(path)
        return None if record is None else Versioned(record.data, record.version)

    def watch_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        check_path(path)
        return self._follow(lambda: self._names(path), fn)

    def _names(self, path: str) -> list[str] | None:
        return sorted(self._tree.names.get(path, ())) if path in self._tree.records else None

    def _follow(self, value: Callable[[], T], fn: Callable[[T], None]) -> Watch:
        heard: list[T] = []

        def look() -> None:
            found = value()
            if heard != [found]:
                heard[:] = [found]
                notify(fn, found)

        return self._watch(look)

    def purge(self, instance_id: str) -> Deferred[None]:
        def purged(instance_id: str) -> None:
            found = self._tree.instance_id
            if instance_id == self._instance_id() or found not in {None, instance_id}:
                raise WrongCluster(
                    f"{self._tree.uri}: its records are those of {found or 'no cluster'}, and those of the present "
                    f"cluster are not purged; not {instance_id}"
                )
            self._tree.clear()

        return self._run("record_purge", purged, instance_id)
