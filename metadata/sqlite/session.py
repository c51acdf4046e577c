"""
A store's session: made when it is first needed, kept by heartbeats, made again when others ended it.

Knows: the session's row and its locked file (`session_file`).
Does not know: what is claimed in it, the thread.

Safety: others end a session only when its file says that its owner is dead or hangs.
"""

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Boottime, Clock, Timer
from quire.metadata.sqlite import nodes, tables
from quire.metadata.sqlite.session_file import SessionFile, forget, is_alive
from quire.metadata.sqlite.tables import Connection, DatabaseError
from quire.metadata.store import StoreClosed

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

HEARTBEATS_PER_TIMEOUT = 3


class Runner(Protocol):
    """Runs work on the store's thread."""

    def __call__(self, work: Callable[[Connection], T], /, *, writes: bool = ...) -> Deferred[T]: ...


class Session:
    """
    The session of one tree, which has none until `name` is first asked for.  `directory` holds the files of all
    sessions.  `lost` is called when others have ended it and the next one is there, if one can be made.
    """

    def __init__(
        self,
        clock: Clock,
        uri: str,
        directory: str,
        timeout_ms: int,
        boottime: Boottime,
        run: Runner,
        lost: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._uri = uri
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._boottime = boottime
        self._run = run
        self._file: SessionFile | None = None
        self._opening: list[Deferred[str]] = []  # callers that wait for the session that is being made
        self._heartbeat: Timer | None = None
        self._closed = False
        self._on_lost = lost

    @property
    def current(self) -> str:
        """The session's name; empty when there is none."""
        return self._file.name if self._file is not None else ""

    async def name(self) -> str:
        """The name of the session, which is made when there is none; the store's error when that fails."""
        if self._file is not None:
            return self._file.name
        waiting: Deferred[str] = Deferred()
        self._opening.append(waiting)
        if len(self._opening) == 1:
            Deferred.fromCoroutine(self._open())
        return await waiting

    async def _open(self) -> None:
        def make(connection: Connection) -> SessionFile:
            if self._closed:
                raise StoreClosed
            made = SessionFile(self._directory, self._boottime)
            try:
                tables.add_session(connection, made.name, self._timeout_ms)
            except DatabaseError:
                made.close()
                raise
            return made

        try:
            session = await self._run(make, writes=True)
            if self._closed:
                session.close()  # its row is a dead session's, which the next look removes
                raise StoreClosed
        except Exception as error:  # the callers': none may wait for ever
            opening, self._opening = self._opening, []
            for waiting in opening:
                waiting.errback(error)
            return
        self._file = session
        self._beat_later()
        opening, self._opening = self._opening, []
        for waiting in opening:
            waiting.callback(session.name)

    def close(self) -> SessionFile | None:
        """
        Ends the heartbeats and hands over the session's file, for the caller to close after its row was removed; None
        when there is none.
        """
        self._closed = True
        if self._heartbeat is not None and self._heartbeat.active():
            self._heartbeat.cancel()
        session, self._file = self._file, None
        return session

    def _beat_later(self) -> None:
        seconds = self._timeout_ms / 1000 / HEARTBEATS_PER_TIMEOUT
        self._heartbeat = self._clock.callLater(seconds, lambda: Deferred.fromCoroutine(self._beat()))

    async def _beat(self) -> None:
        session = self._file
        if session is None or self._closed:
            return

        def beat(connection: Connection) -> bool:
            session.beat()
            return tables.has_session(connection, session.name)

        try:
            alive = await self._run(beat)
        except Exception as error:  # without the next beat others would end a session that lives
            self._missed("heartbeat failed", error)
            alive = True  # nothing says otherwise
        if not alive:
            await self._lose(session)
        elif not self._closed and self._file is session:
            self._beat_later()

    def _missed(self, what: str, error: Exception) -> None:
        log.error("{uri}: {what}: {error!r}", uri=self._uri, what=what, error=error)

    async def lost(self, name: str) -> None:
        """
        Others ended the session of that name: makes a new one, then reports that.  Does nothing when it is not
        the current one.
        """
        if self._file is not None and self._file.name == name:
            await self._lose(self._file)

    async def _lose(self, session: SessionFile) -> None:
        if self._file is not session or self._closed:
            return
        log.warn("{uri}: the session expired, its registrations are gone", uri=self._uri)
        self._file = None
        try:
            session.close()
            await self.name()
        except Exception as error:  # who registers again makes one
            self._missed("no new session", error)
        if not self._closed:
            self._on_lost()

    def is_alive(self, name: str, timeout_ms: int) -> bool:
        """On the thread: whether the owner of a session lives."""
        return is_alive(os.path.join(self._directory, name), self._boottime(), timeout_ms / 1000)

    def dead(self, connection: Connection) -> list[str]:
        """On the thread: the sessions whose owners are dead or hang."""
        return [name for name, timeout_ms in tables.sessions(connection) if not self.is_alive(name, timeout_ms)]

    def bury(self, names: Sequence[str], connection: Connection) -> None:
        """On the thread: removes sessions, their claims and their files."""
        nodes.end_sessions(connection, names)
        for name in names:
            forget(os.path.join(self._directory, name))
