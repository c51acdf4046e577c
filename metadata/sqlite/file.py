"""
The SQLite file as the store's thread uses it: one connection, and transactions that neighbouring jobs share.

Knows: how the file is opened and made, that it has a write-ahead log and syncs every commit, and which job an
error belongs to.
Does not know: what a job does, threads, sessions.

Safety: a job has its result only after its transaction is committed; a commit that fails fails every job in it.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred

from quire.metadata.sqlite import tables
from quire.metadata.sqlite.tables import Connection, DatabaseError
from quire.metadata.store import no_cluster
from quire.protocol.errors import LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class Job:
    """One call on the store's thread.  Jobs that write share a transaction with their neighbours."""

    work: Callable[[Connection], Any]
    answer: Deferred[Any]
    writes: bool = False
    creates: bool = False  # may make the file
    single: bool = False  # a refused one has changed nothing
    begun: float = 0.0  # when it was asked for, on the reactor's clock
    result: Any = None
    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Makes `error` the outcome."""
        self.error = error


class SQLiteFile:
    """The thread's side: one connection, and the transactions on it."""

    def __init__(self, path: str, uri: str, busy_s: float) -> None:
        self._path = path
        self._uri = uri
        self._busy_s = busy_s
        self._connection: Connection | None = None

    def perform(self, jobs: Sequence[Job]) -> None:
        """Does the jobs in order, and leaves in each its result or its error."""
        start = 0
        while start < len(jobs):
            end = start + 1
            while jobs[start].writes and end < len(jobs) and jobs[end].writes:
                end += 1
            group = jobs[start:end]
            try:
                connection = self._open(any(job.creates for job in group))
                if group[0].writes:
                    self._transaction(connection, group)
                else:
                    self._attempt(connection, group[0])
            except Exception as error:  # the thread goes on, whatever it was
                foreseen = isinstance(error, DatabaseError | OSError)
                broken = (
                    error
                    if isinstance(error, LedgerError)
                    else MetaStore(f"{self._uri}: {error if foreseen else repr(error)}")
                )
                for job in group:
                    job.fail(broken)
            start = end

    def _attempt(self, connection: Connection, job: Job) -> None:
        """Runs one job: its errors are its own, and only those of the database itself concern the whole group."""
        try:
            job.result = job.work(connection)
        except DatabaseError:
            raise
        except Exception as error:
            if job.single and not isinstance(error, LedgerError):
                raise
            job.fail(MetaStore(f"{self._uri}: {error}") if isinstance(error, OSError) else error)

    def _transaction(self, connection: Connection, group: Sequence[Job]) -> None:
        try:
            connection.begin()
            for job in group:
                apart = len(group) > 1 and not job.single  # what it has changed can be undone without the others
                if apart:
                    connection.execute("SAVEPOINT job")
                self._attempt(connection, job)
                if apart:
                    if job.error is not None:
                        connection.execute("ROLLBACK TO job")
                    connection.execute("RELEASE job")
            connection.execute("COMMIT" if len(group) > 1 or group[0].error is None else "ROLLBACK")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _make_directory(self, directory: str) -> None:
        """Makes the last part of a path only: where more is missing, the path is mistyped, rather."""
        above = os.path.dirname(directory)
        if not os.path.isdir(above):
            raise FileNotFoundError(
                f"there is no directory {above}: see whether the path is right, then make it with `mkdir -p {above}`"
            )
        with suppress(FileExistsError):
            os.mkdir(directory)

    def _open(self, create: bool) -> Connection:
        if self._connection is not None:
            return self._connection
        if create:
            self._make_directory(os.path.dirname(self._path))
            # SQLite gives the files beside it the same mode; passwords of ledgers are in them.  One that is there stays
            # closed: the locks that this process has on it would go with the close.
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660))
        elif not os.path.exists(self._path):
            raise no_cluster(self._uri)
        mode = "rwc" if create else "rw"
        connection = Connection(
            f"file:{quote(self._path)}?mode={mode}", uri=True, timeout=self._busy_s, isolation_level=None
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
            if create and tables.is_empty(connection):
                self._keep_log(connection)
                connection.execute("BEGIN IMMEDIATE")  # a process that waited for another's finds nothing to be done
                tables.make_tables(connection)
                connection.execute("COMMIT")
            tables.check_tables(connection, self._uri)
            self._keep_log(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _keep_log(self, connection: Connection) -> None:
        """
        WAL, whatever the file has: one that was copied by VACUUM INTO or from a dump has a rollback journal, whose
        removal is not synced (not by synchronous=FULL either), so that a power loss could bring it back and undo what
        was answered.
        """
        if tables.scalar(connection, "PRAGMA journal_mode") == "wal":
            return
        try:
            mode = tables.scalar(connection, "PRAGMA journal_mode=WAL")
        except DatabaseError as error:
            mode = str(error)
        if mode != "wal":
            next_step = (
                "put the file where this process may write, on a local file system, see that no other "
                "program holds it, and try again"
            )
            raise MetaStore(
                f"{self._uri} has no write-ahead log and can't be given one ({mode}), without which a power loss "
                "may "
                f"undo a change: {next_step}"
            )

    def close(self) -> None:
        """Closes the connection; the next job opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
