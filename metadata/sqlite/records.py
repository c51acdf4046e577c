"""
Records in the SQLite file: the table and the operations on it.

Knows: the statements; that a claim exists only while its session's row exists and its owner lives; that versions come
from one counter, so that none is ever seen twice, at whichever path.
Does not know: threads, how a session is kept.

Safety: who reads, lists, watches or contends for a claim looks whether its owner lives, and removes a dead session.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock, time_of_day
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
    parent_of,
)
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.record_watches import RecordWatches, names, value
from quire.metadata.sqlite.session import Session
from quire.metadata.sqlite.tables import Connection
from quire.metadata.store import ANY, Versioned, Watch, WrongCluster

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class Runner(Protocol):
    """Runs work on the store's thread."""

    def __call__(self, work: Callable[[Connection], T], /, *, writes: bool = ...) -> Deferred[T]: ...


class SQLiteRecords(Records):
    """The records through one store.  `bury(names)` removes ended sessions."""

    def __init__(
        self,
        clock: Clock,
        uri: str,
        poll_s: float,
        run: Runner,
        session: Session,
        bury: Callable[[Sequence[str]], Deferred[None]],
    ) -> None:
        self._uri = uri
        self._run = run
        self._session = session
        self._bury = bury
        self._ready = False  # the records are of this cluster
        self._watches = RecordWatches(clock, uri, poll_s, self._look)

    # -- operations ------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Notes whose records these are; `WrongCluster` when they are those of a former cluster."""
        if not self._ready:
            await self._run(partial(_own, self._uri), writes=True)
            self._ready = True

    async def _look(self, work: Callable[[Connection], tuple[T, set[str]]]) -> T:
        """What `work` finds once no claim that it met is a dead session's."""
        await self._prepare()
        while True:
            found, dead = await self._run(lambda connection: self._living(connection, *work(connection)))
            if not dead:
                return found
            await self._bury(dead)

    def _living(self, connection: Connection, found: T, sessions: set[str]) -> tuple[T, list[str]]:
        """On the thread: with the sessions that have ended."""
        if not sessions:
            return found, []
        timeouts = dict(tables.sessions(connection))
        return found, [
            name for name in sessions if name not in timeouts or not self._session.is_alive(name, timeouts[name])
        ]

    def read(self, path: str) -> Deferred[Versioned[bytes]]:
        return Deferred.fromCoroutine(self._read(path))

    async def _read(self, path: str) -> Versioned[bytes]:
        check_path(path)
        found = await self._look(partial(value, path))
        if found is None:
            raise NoRecord(f"{self._uri} has no record {path}")
        return found

    def children(self, path: str, after: str = "", limit: int = PAGE) -> Deferred[list[str]]:
        return Deferred.fromCoroutine(self._children(path, after, limit))

    async def _children(self, path: str, after: str, limit: int) -> list[str]:
        check_children(path, limit)
        found = await self._look(lambda connection: names(path, after, limit, connection))
        if found is None:
            raise NoRecord(f"{self._uri} has no record {path}")
        return found

    def multi(self, steps: Sequence[Step]) -> Deferred[list[int]]:
        return Deferred.fromCoroutine(self._multi(steps))

    async def _multi(self, steps: Sequence[Step]) -> list[int]:
        check_multi(steps)
        await self._prepare()
        while True:
            claims = any(isinstance(step, Create) and step.claim for step in steps)
            session = await self._session.name() if claims else ""
            versions = await self._run(partial(self._apply, steps, session), writes=True)
            if versions is not None:
                for step in steps:
                    if not isinstance(step, Check):
                        self._watches.wrote(step.path, family=not isinstance(step, Write))
                return versions
            await self._session.lost(session)

    def _apply(self, steps: Sequence[Step], session: str, connection: Connection) -> list[int] | None:
        """On the thread, in a transaction; None when this handle's own session was ended."""
        if session and not tables.has_session(connection, session):
            return None
        versions = []
        for number, step in enumerate(steps):
            try:
                versions.append(self._step(step, session, connection))
            except RecordError as error:
                error.step = number
                raise
        return versions

    def _step(self, step: Step, session: str, connection: Connection) -> int:
        row = self._row(step.path, connection)
        if isinstance(step, Create):
            parent = parent_of(step.path)
            if row is not None:
                raise RecordExists(f"{self._uri} has a record {step.path} already")
            above = self._row(parent, connection) if parent else None
            if parent and (above is None or above[1] is not None):
                raise NoRecord(f"{self._uri} has no record {parent} that can have children")
            version = tables.count(connection, "records")
            connection.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?)",
                (step.path, parent, version, step.data, session if step.claim else None),
            )
            return version
        if row is None:
            raise NoRecord(f"{self._uri} has no record {step.path}")
        if step.version not in {ANY, row[0]}:
            raise RecordChanged(f"{self._uri}: record {step.path} is at version {row[0]}, not {step.version}")
        if isinstance(step, Write):
            version = tables.count(connection, "records")
            connection.execute(
                "UPDATE records SET data = ?, version = ? WHERE path = ?", (step.data, version, step.path)
            )
            return version
        if isinstance(step, Delete):
            if tables.scalar(connection, "SELECT 1 FROM records WHERE parent = ? LIMIT 1", step.path):
                raise RecordHasChildren(f"{self._uri}: record {step.path} has children")
            connection.execute("DELETE FROM records WHERE path = ?", (step.path,))
        return ANY

    def _row(self, path: str, connection: Connection) -> tuple[int, str | None] | None:
        """On the thread, in a transaction: version and session of a record; a claim of a dead session is removed."""
        row = connection.execute("SELECT version, session FROM records WHERE path = ?", (path,)).fetchone()
        if row is None or row[1] is None:
            return row  # type: ignore[no-any-return]
        _, dead = self._living(connection, None, {row[1]})
        if not dead:
            return row[0], row[1]
        self._session.bury(dead, connection)
        return None

    def sync(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._sync())

    async def _sync(self) -> None:
        await self._prepare()
        await self._run(lambda _: None)  # each read sees the last commit anyway

    def clock(self) -> Deferred[int]:
        return self.sync().addCallback(lambda _: int(time_of_day() * 1000))

    def purge(self, instance_id: str) -> Deferred[None]:
        return self._run(partial(_purge, self._uri, instance_id), writes=True)

    def watch(self, path: str, fn: RecordWatcher) -> Watch:
        check_path(path)
        return self._watches.add(path, fn)

    def watch_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        check_path(path)
        return self._watches.add_children(path, fn)

    def end(self) -> None:
        """Ends the watches."""
        self._watches.end()


# -- on the thread ---------------------------------------------------------------------------------------------------


def _own(uri: str, connection: Connection) -> None:
    instance = tables.cluster(connection, uri).instance_id
    connection.execute("INSERT OR IGNORE INTO records VALUES ('', '/', 0, ?, NULL)", (instance.encode(),))
    found = _owner(connection)
    if found != instance:
        raise WrongCluster(
            f"{uri} has records of the former cluster {found}: remove them with `quire log purge --of {found}`"
        )


def _owner(connection: Connection) -> str:
    """The id of the cluster that the records belong to: the value of the record above all others."""
    return str(tables.scalar(connection, "SELECT data FROM records WHERE path = ''") or b"", "utf-8")


def _purge(uri: str, instance_id: str, connection: Connection) -> None:
    present = tables.cluster(connection, uri).instance_id
    found = _owner(connection)
    if instance_id == present or found not in {"", instance_id}:
        raise WrongCluster(
            f"{uri}: its records are those of {found or 'no cluster'}, and those of the present cluster are not "
            f"purged; not {instance_id}"
        )
    connection.execute("DELETE FROM records")
