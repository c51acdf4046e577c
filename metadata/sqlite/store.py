"""
Metadata in one SQLite file: several processes of one machine, no server.

Knows: that every change is one transaction, synced before it is answered (WAL, synchronous=FULL: with less, a power
loss can undo the close of a ledger that a writer got an answer for).  Changes that wait together share one transaction
and one sync.  Every statement runs on the store's one thread.  Does not know: other machines.  WAL needs shared memory,
so the file must be on a local file system.

A session is a row plus a locked file (`session_file`): every look at the bookies removes sessions whose owner is
dead or hangs.  Watches poll SQLite's data_version, which moves with every commit of another connection.

Safety: nothing is answered before it is committed; a commit that fails fails every change in it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TypeVar
from urllib.parse import quote
from uuid import UUID

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from quire.metadata.clock import Boottime, Reactor, pause
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata, check_bookie_id, check_ledger_id, check_page
from quire.metadata.sqlite import nodes, tables
from quire.metadata.sqlite.file import Job, SQLiteFile
from quire.metadata.sqlite.session import Session, living
from quire.metadata.sqlite.tables import Connection
from quire.metadata.sqlite.tree import SQLiteTree
from quire.metadata.sqlite.watches import BOOKIES, EVERYTHING, Watches
from quire.metadata.store import (
    CTOKEN_MAX,
    SESSION_TIMEOUT_MS,
    BookieList,
    BookieRegistered,
    BookieWatcher,
    Cluster,
    LedgerWatcher,
    Progress,
    ServiceInfo,
    StoreClosed,
    Versioned,
    Watch,
)
from quire.metadata.tree import Create, Done, SessionId, SessionOver, Step
from quire.metadata.tree_store import TreeStore
from quire.metadata.worker import Worker
from quire.protocol.errors import IncorrectParameter, LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

POLL_S = 0.05  # how late a change made by another process may be seen
GRACE_S = 1.0  # beyond the session timeout: then a waiting registration, or an operation on a stuck disk, gives up
ROOT = "/ledgers"  # of the cluster's nodes
RETIRE_S = 5.0  # how long close() waits for the thread's last job


class SQLiteStore(TreeStore):
    """
    One handle: a connection on a thread of its own, a session once something is registered, and the watches made
    through it.
    """

    tree: SQLiteTree

    def __init__(
        self,
        reactor: Reactor,
        path: str,
        *,
        random: Random,
        boottime: Boottime,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.uri = f"sqlite://{quote(path)}"
        self._reactor = reactor
        self._random = random
        self._timeout = session_timeout_ms / 1000
        self._file = SQLiteFile(path, self.uri, self._timeout)
        self._worker: Worker[Job] = Worker(f"metadata {os.path.basename(path)}", self._perform)
        self._closed = False
        self._closing: Deferred[None] | None = None
        self._session = Session(reactor, self.uri, f"{path}-sessions", session_timeout_ms, boottime, self.run)
        self._watches = Watches(reactor, self.uri, POLL_S, self.run, self._session.dead, self.bury)
        self.tree = SQLiteTree(reactor, self.uri, POLL_S, self.run, self._session, self.bury)
        super().__init__(reactor, self.tree, ROOT, random)

    # -- how an operation runs ------------------------------------------------------------------------------------

    def _perform(self, jobs: list[Job]) -> None:
        """On the thread."""
        self._file.perform(jobs)
        self._reactor.callFromThread(self._answer, jobs)

    def _answer(self, jobs: list[Job]) -> None:
        self._watches.wrote({each for job in jobs for each in job.changes})
        for job in jobs:
            if job.error is not None:
                job.answer.errback(job.error)
            else:
                job.answer.callback(job.result)

    def run(
        self,
        work: Callable[[Connection], T],
        *,
        writes: bool = False,
        creates: bool = False,
        changes: tuple[int, ...] = (),
    ) -> Deferred[T]:
        """
        Runs `work(connection)` on the thread; in a transaction if it writes.  It always ends: a disk that hangs is
        `MetaStore`.
        """
        if self._closed:
            return fail(StoreClosed())
        answer: Deferred[T] = Deferred()
        self._worker.submit(Job(work, answer, writes, creates, changes))
        return self._bounded(answer)

    def _bounded(self, answer: Deferred[T]) -> Deferred[T]:
        # Twice: the lock of the database may be waited for until the session timeout.
        late = self._reactor.callLater(2 * self._timeout + GRACE_S, answer.cancel)

        def settle(result: T) -> T:
            if not late.active():
                raise MetaStore(
                    f"{self.uri}: no answer in {2 * self._timeout + GRACE_S:g} s; whether it was done is unknown"
                )
            late.cancel()
            return result

        return answer.addBoth(settle)

    def close(self) -> Deferred[None]:
        if self._closing is not None:
            answered: Deferred[None] = Deferred()
            self._closing.addBoth(lambda _: answered.callback(None))
            return answered
        self._closed = True
        self._watches.end()
        self._end_watches()
        self.tree.end()
        closing: Deferred[None] = Deferred()
        self._closing = closing
        session = self._session.close()

        def leave(connection: Connection) -> None:
            nodes.end_sessions(connection, [session.name] if session else [])

        def retire(_: object) -> None:
            if session is not None:
                session.close()
            self._worker.submit(Job(lambda _: self._file.close(), ended))
            self._worker.end()

        def gone(_: object) -> None:
            self._worker.join(RETIRE_S)
            closing.callback(None)

        ended: Deferred[None] = Deferred()
        ended.addBoth(gone)
        left: Deferred[None] = Deferred()
        left.addBoth(retire)
        if session is not None:
            self._worker.submit(Job(leave, left, writes=True))
        else:
            left.callback(None)
        return self.close()

    def on_session_lost(self, fn: Callable[[], None]) -> None:
        self._session.on_lost(fn)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def init_cluster(self) -> Deferred[str]:
        instance = str(UUID(int=self._random.getrandbits(128), version=4))

        def init(connection: Connection) -> str:
            tables.init_cluster(connection, self.uri, instance)
            self.tree.apply([Create(ROOT)], "", connection)
            return instance

        return self.run(init, writes=True, creates=True)

    def cluster(self) -> Deferred[Cluster]:
        return self.run(lambda connection: tables.cluster(connection, self.uri))

    def destroy_cluster(self, instance_id: str) -> Deferred[None]:
        def destroy(connection: Connection) -> None:
            self._session.bury(self._session.dead(connection), connection)
            tables.destroy_cluster(connection, self.uri, instance_id)

        return self.run(destroy, writes=True, changes=(EVERYTHING,))

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def new_ledger_id(self) -> Deferred[int]:
        return self.run(lambda connection: tables.new_ledger_id(connection, self.uri), writes=True)

    def progress(self) -> Deferred[Progress]:
        return self.run(lambda connection: tables.progress(connection, self.uri))

    def raise_ledger_ids(self, first: int) -> Deferred[None]:
        return self.run(lambda connection: tables.raise_ledger_ids(connection, self.uri, first), writes=True)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        if metadata.ctoken == 0 and metadata.format_version >= 3:
            metadata = replace(metadata, ctoken=self._random.randrange(1, CTOKEN_MAX))
        try:
            check_ledger_id(ledger)
            data = ledger_codec.encode(metadata)
        except LedgerError as error:
            return fail(error)

        def create(connection: Connection) -> Versioned[LedgerMetadata]:
            tables.create_ledger(connection, self.uri, ledger, data)
            return Versioned(metadata, 0)

        return self.run(create, writes=True, changes=(ledger,))

    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        try:
            check_ledger_id(ledger)
        except LedgerError as error:
            return fail(error)
        return self.run(
            lambda connection: ledger_codec.decode_stored(ledger, *tables.read_ledger(connection, self.uri, ledger))
        )

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        try:
            for ledger in ledgers:
                check_ledger_id(ledger)
        except LedgerError as error:
            return fail(error)

        def read(connection: Connection) -> list[Versioned[LedgerMetadata] | None]:
            stored = tables.read_ledgers(connection, self.uri, ledgers)
            return [
                None if ledger not in stored else ledger_codec.decode_stored(ledger, *stored[ledger])
                for ledger in ledgers
            ]

        return self.run(read)

    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        try:
            check_ledger_id(ledger)
            if version < 0:
                raise IncorrectParameter(
                    f"ledger {ledger}: metadata is written with the version that was read, not {version}"
                )
        except LedgerError as error:
            return fail(error)

        return self.run(
            lambda connection: tables.change_ledger(connection, self.uri, ledger, metadata, version),
            writes=True,
            changes=(ledger,),
        )

    def _write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId
    ) -> Deferred[Versioned[LedgerMetadata]]:
        return Deferred.fromCoroutine(self._do_write_with(ledger, metadata, version, steps, str(session)))

    async def _do_write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: str
    ) -> Versioned[LedgerMetadata]:
        def write(connection: Connection) -> tuple[list[Done], Versioned[LedgerMetadata]] | None:
            done = self.tree.apply(steps, session, connection)
            if done is None:
                return None
            return done, tables.change_ledger(connection, self.uri, ledger, metadata, version)

        written = await self.run(write, writes=True, changes=(ledger,))
        if written is None:
            await self._session.lost(session)
            raise SessionOver(f"{self.uri}: the session ended before ledger {ledger} was written")
        self.tree.changed(steps, written[0])
        return written[1]

    def delete_ledger(self, ledger: int) -> Deferred[None]:
        try:
            check_ledger_id(ledger)
        except LedgerError as error:
            return fail(error)
        return self.run(lambda connection: tables.delete_ledger(connection, ledger), writes=True, changes=(ledger,))

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        try:
            check_page(after, limit)
        except LedgerError as error:
            return fail(error)
        return self.run(lambda connection: tables.ledger_ids(connection, self.uri, after, limit))

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        return self.run(lambda connection: tables.absent_ledgers(connection, self.uri, ledgers))

    def ledger_deletions(self) -> Deferred[int | None]:
        return self.run(lambda connection: tables.ledger_deletions(connection, self.uri))

    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        return self._watches.add_ledger(ledger, fn)

    # -- bookies ---------------------------------------------------------------------------------------------------

    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> Deferred[None]:
        try:
            check_bookie_id(bookie)
        except ValueError as error:
            return fail(IncorrectParameter(str(error)))
        return Deferred.fromCoroutine(self._register(bookie, info, read_only))

    async def _register(self, bookie: str, info: ServiceInfo, read_only: bool) -> None:
        deadline = self._reactor.seconds() + self._timeout + GRACE_S
        while True:
            name = await self._session.name()
            outcome = await self.run(
                partial(self._try_register, name, bookie, info, read_only), writes=True, changes=(BOOKIES,)
            )
            if outcome == "done":
                self._session.registered[bookie] = name, read_only
                return
            if outcome == "lost":
                await self._session.lost(name)
            elif outcome == "held":
                if self._reactor.seconds() > deadline:
                    raise BookieRegistered(f"{self.uri}: another live process is registered as {bookie}")
                await pause(self._reactor, POLL_S)

    def _try_register(self, name: str, bookie: str, info: ServiceInfo, read_only: bool, connection: Connection) -> str:
        """
        On the thread: "done", "held" by the live session of another, or "lost" when this handle's own session was
        ended.
        """
        tables.cluster(connection, self.uri)
        if not tables.has_session(connection, name):
            return "lost"
        timeouts = dict(tables.sessions(connection))
        others = tables.holders(connection, bookie) - {name}
        dead = [other for other in others if not self._session.is_alive(other, timeouts.get(other, 0))]
        self._session.bury(dead, connection)
        if len(dead) < len(others):
            return "held"
        tables.register(connection, bookie, read_only, name, info)
        return "done"

    def unregister_bookie(self, bookie: str, read_only: bool = False) -> Deferred[None]:
        session = self._session.current
        if self._session.registered.get(bookie) == (session, read_only):
            del self._session.registered[bookie]
        return self.run(
            lambda connection: tables.unregister(connection, self.uri, session, bookie, read_only),
            writes=True,
            changes=(BOOKIES,),
        )

    def bookies(self) -> Deferred[BookieList]:
        def look(connection: Connection) -> tuple[list[str], BookieList]:
            tables.cluster(connection, self.uri)
            return self._session.dead(connection), tables.bookies(connection)

        return Deferred.fromCoroutine(living(self.run, self.bury, look))

    def bury(self, names: Sequence[str]) -> Deferred[None]:
        """Removes sessions that were found dead; names are never used again, so this can't hit a living one."""
        return self.run(partial(self._session.bury, names), writes=True, changes=(BOOKIES,))

    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        return self._watches.add_bookies(fn)

    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        return self.bookies().addCallback(lambda found: found.find(bookie))
