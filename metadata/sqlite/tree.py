"""
The tree in one SQLite file: several processes of one machine, no server.

Knows: that every change is one transaction, synced before it is answered (WAL, synchronous=FULL: with less, a power
loss can undo the close of a ledger that a writer got an answer for).  Changes that wait together share one transaction
and one sync.  Every statement runs on the tree's one thread.  A session is a row plus a locked file (`session_file`);
a claim exists only while its session's row exists and its owner lives.
Does not know: other machines (WAL needs shared memory, so the file must be on a local file system), statements
(`nodes`), what a node means.

Safety: nothing is answered before it is committed; a commit that fails fails every change in it.  A claim that is read,
listed, watched or contended for is one whose owner lives, and a dead session is removed first.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.clock import Boottime, Reactor, Timer, time_of_day
from quire.metadata.sqlite import nodes, tables
from quire.metadata.sqlite.file import Job, SQLiteFile
from quire.metadata.sqlite.session import Session
from quire.metadata.sqlite.tables import Connection
from quire.metadata.sqlite.watches import Change, Sight, Watched, Watches
from quire.metadata.store import SESSION_TIMEOUT_MS, StoreClosed
from quire.metadata.tree import Create, Done, NoNode, SessionId, SessionOver, Stat, Step, Tree, Wake, Write, counted
from quire.metadata.worker import Worker
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

POLL_S = 0.05  # how late a change made by another process may be seen
GRACE_S = 1.0  # beyond twice the session timeout: then an operation on a stuck disk gives up
RETIRE_S = 5.0  # how long close() waits for the thread's last job


class SQLiteTree(Tree):
    """A connection on a thread of its own, and a session once something is claimed."""

    def __init__(
        self, reactor: Reactor, path: str, *, boottime: Boottime, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self.uri = f"sqlite://{quote(path)}"
        self.timeout_s = session_timeout_ms / 1000
        self._reactor = reactor
        self._file = SQLiteFile(path, self.uri, self.timeout_s)
        self._worker: Worker[Job] = Worker(f"metadata {os.path.basename(path)}", self._perform)
        self._closed = False
        self._closing: Deferred[None] | None = None
        self._answered_in_s = 2 * self.timeout_s + GRACE_S  # twice, for so long the lock of the database is waited for
        self._waiting: deque[Job] = deque()  # as they were asked; those in front have no answer
        self._late: Timer | None = None
        directory = f"{path}-sessions"
        self._session = Session(
            reactor, self.uri, directory, session_timeout_ms, boottime, self.run, lost=self._expired
        )
        self._watches = Watches(reactor, self.uri, POLL_S, self._see, self.bury)

    def _expired(self) -> None:
        self.on_expired()

    # -- how an operation runs -------------------------------------------------------------------------------------

    def _perform(self, jobs: list[Job]) -> None:
        """On the thread."""
        self._file.perform(jobs)
        self._reactor.callFromThread(self._answer, jobs)

    def _answer(self, jobs: list[Job]) -> None:
        if any(job.writes and job.answer.called for job in jobs):  # its caller has given up
            self._watches.forget()
        for job in jobs:
            if job.answer.called:
                continue
            if job.error is not None:
                job.answer.errback(job.error)
            else:
                job.answer.callback(job.result)
        while self._waiting and self._waiting[0].answer.called:
            self._waiting.popleft()

    def run(
        self, work: Callable[[Connection], T], *, writes: bool = False, creates: bool = False, single: bool = False
    ) -> Deferred[T]:
        """
        Runs `work(connection)` on the thread; in a transaction if it writes, and `single` if a refused one has changed
        nothing.  It always ends: a disk that hangs is `MetaStore`.
        """
        if self._closed:
            return fail(StoreClosed())
        answer: Deferred[T] = Deferred()
        job = Job(work, answer, writes, creates, single, self._reactor.seconds())
        self._waiting.append(job)
        if self._late is None:
            self._late = self._reactor.callLater(self._answered_in_s, self._give_up)
        self._worker.submit(job)
        return answer

    def _give_up(self) -> None:
        """Ends what has waited too long, and looks again when the next one will have: one timer for all."""
        now, waiting = self._reactor.seconds(), self._waiting
        self._late = None
        while waiting and (waiting[0].answer.called or waiting[0].begun + self._answered_in_s <= now):
            answer = waiting.popleft().answer
            if not answer.called:
                answer.errback(
                    MetaStore(f"{self.uri}: no answer in {self._answered_in_s:g} s; whether it was done is unknown")
                )
        if waiting:
            self._late = self._reactor.callLater(waiting[0].begun + self._answered_in_s - now, self._give_up)

    def close(self) -> Deferred[None]:
        if self._closing is not None:
            answered: Deferred[None] = Deferred()
            self._closing.addBoth(lambda _: answered.callback(None))
            return answered
        self._closed = True
        self._watches.end()
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
            if self._late is not None and self._late.active():
                self._late.cancel()
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

    def make(self) -> Deferred[None]:
        """Makes the file and its tables."""
        return self.run(lambda _: None, writes=True, creates=True)

    @property
    def session(self) -> str | None:
        return self._session.current or None

    async def session_now(self) -> str:
        return await self._session.name()

    # -- changing --------------------------------------------------------------------------------------------------

    @counted
    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        if session is not None or any(isinstance(step, Create) and step.claim for step in steps):
            return Deferred.fromCoroutine(self._transact_in_session(steps, session))
        done = self.run(partial(self._apply, steps, ""), writes=True, single=len(steps) == 1)
        return done.addCallback(self._changed, steps)

    async def use_up(self, path: str, count: int) -> None:
        await self.run(partial(nodes.use_up, path=path, count=count, uri=self.uri), writes=True)

    async def _transact_in_session(self, steps: Sequence[Step], session: SessionId | None) -> list[Done]:
        while True:
            name = str(session) if session is not None else await self._session.name()
            done = await self.run(partial(self._apply_in_session, steps, name), writes=True)
            if done is not None:
                return self._changed(done, steps)
            await self._session.lost(name)
            if session is not None:
                raise SessionOver(f"{self.uri}: the session that {steps[0].path} belonged to has ended")

    def _apply_in_session(self, steps: Sequence[Step], session: str, connection: Connection) -> list[Done] | None:
        """None: that session was ended."""
        return self._apply(steps, session, connection) if tables.has_session(connection, session) else None

    def _apply(self, steps: Sequence[Step], session: str, connection: Connection) -> list[Done]:
        """On the thread, in a transaction."""
        return nodes.apply(connection, self.uri, steps, session, partial(self._ended, connection))

    def _ended(self, connection: Connection, session: str) -> bool:
        if session == self._session.current:
            return False
        dead = self._dead(connection, [session])
        self._session.bury(dead, connection)
        return bool(dead)

    def _changed(self, done: list[Done], steps: Sequence[Step]) -> list[Done]:
        """Looks at what the steps have changed, as far as it is watched."""
        if self._watches.armed:
            watched: set[Watched] = set()
            for step, each in zip(steps, done, strict=True):
                if isinstance(step, Write):
                    watched.add((each.path, False))
                else:  # a check is looked at in vain
                    watched |= {(each.path, False), (each.path, True), (nodes.split(each.path)[0], True)}
            self._watches.changed(watched)
        return done

    def _dead(self, connection: Connection, sessions: Iterable[str]) -> list[str]:
        """On the thread: those of the sessions whose owners are gone."""
        names = sorted(sessions)
        timeouts = dict(tables.sessions(connection)) if names else {}
        return [name for name in names if name not in timeouts or not self._session.is_alive(name, timeouts[name])]

    # -- reading ---------------------------------------------------------------------------------------------------

    def _look(self, work: Callable[[Connection], tuple[T, Collection[SessionId]]]) -> Deferred[T]:
        """Returns the result of `work` once no claim that it met is a dead session's."""

        def look(connection: Connection) -> tuple[T, list[str]]:
            found, met = work(connection)
            return found, self._dead(connection, map(str, met)) if met else []

        def looked(answer: tuple[T, list[str]]) -> T | Deferred[T]:
            found, dead = answer
            return self.bury(dead).addCallback(lambda _: self._look(work)) if dead else found

        return self.run(look).addCallback(looked)

    @counted
    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        def read(found: list[tuple[bytes, Stat] | None]) -> tuple[bytes, Stat]:
            (node,) = found
            if node is None:
                raise NoNode(f"{self.uri}: there is no node {path}")
            if watch is not None:
                self._watches.arm((path, False), watch, nodes.token(node[1], False))
            return node

        return self._get_each([path]).addCallback(read)

    @counted
    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        return self._get_each(paths)

    def _get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        def read(connection: Connection) -> tuple[list[tuple[bytes, Stat] | None], set[SessionId]]:
            found = nodes.read(connection, paths)
            return [found.get(path) for path in paths], {each.owner for _, each in found.values() if each.owner}

        return self._look(read)

    @counted
    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        def look(connection: Connection) -> tuple[Stat | None, list[SessionId]]:
            found = nodes.stat(connection, path)
            return found, [found.owner] if found is not None and found.owner else []

        def looked(found: Stat | None) -> Stat | None:
            if watch is not None:
                self._watches.arm((path, False), watch, nodes.token(found, False))
            return found

        return self._look(look).addCallback(looked)

    @counted
    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        return self._listing(path, watch)

    def _listing(
        self, path: str, watch: Wake | None, after: str = "", limit: int = -1
    ) -> Deferred[tuple[list[str], Stat]]:
        def look(connection: Connection) -> tuple[tuple[list[str], Stat] | None, list[str]]:
            found = nodes.listing(connection, path, after, limit)
            return (None, []) if found is None else (found[:2], found[2])

        def looked(found: tuple[list[str], Stat] | None) -> tuple[list[str], Stat]:
            if found is None:
                raise NoNode(f"{self.uri}: there is no node {path}")
            if watch is not None:
                self._watches.arm((path, True), watch, nodes.token(found[1], True))
            return found

        return self._look(look).addCallback(looked)

    @counted
    def page(self, path: str, after: str, limit: int) -> Deferred[list[str]]:
        return self._listing(path, None, after, limit).addCallback(lambda found: found[0])

    def sync(self, path: str) -> Deferred[None]:
        """Each read sees the last commit anyway."""
        return fail(StoreClosed()) if self._closed else succeed(None)

    def changes(self) -> Deferred[int]:
        return self.run(tables.changes)

    def clock(self, path: str) -> Deferred[int]:
        return self.sync(path).addCallback(lambda _: int(time_of_day() * 1000))

    # -- watching --------------------------------------------------------------------------------------------------

    def disarm(self, watch: Wake) -> bool:
        self._watches.disarm(watch)
        return True

    def _see(self, fresh: Collection[Watched], every: Collection[Watched], since: Change | None) -> Deferred[Sight]:
        """The counter of changes, sessions whose owners are gone, and the states of what may be new."""

        def see(connection: Connection) -> Sight:
            # commits of other connections, and what ours did beside the transactions that were asked for
            change = tables.scalar(connection, "PRAGMA data_version"), nodes.ended_sessions(connection)
            watched = fresh if change == since else every
            return change, self._session.dead(connection), nodes.tokens(connection, watched)

        return self.run(see)

    def bury(self, names: Sequence[str]) -> Deferred[None]:
        """Removes sessions that were found dead; names are never used again, so this can't hit a living one."""
        return self.run(partial(self._session.bury, names), writes=True)
