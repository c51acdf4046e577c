"""
Votes and settings of auditors in the SQLite file: the operations on their tables.

Knows: the statements; that a vote counts only while its session's row exists and its owner lives; that the numbers of
votes come from a counter, so that who votes again is behind all others.
Does not know: threads, how a session is kept.
"""

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred, fail

from quire.metadata.auditing import Auditing, Election, Periodic, check_delay
from quire.metadata.formats import repair_text
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.repair_watches import Bury, RepairWatches
from quire.metadata.sqlite.session import Runner, Session, living
from quire.metadata.sqlite.tables import DELAY, DELAYS, Connection
from quire.metadata.store import Watch
from quire.protocol.errors import IncorrectParameter

# SPDX-License-Identifier: Apache-2.0


class SQLiteAuditing(Auditing):
    """Those of one store.  `bury(names)` removes ended sessions."""

    def __init__(self, uri: str, run: Runner, session: Session, watches: RepairWatches, bury: Bury) -> None:
        self._uri = uri
        self._run = run
        self._session = session
        self._watches = watches
        self._bury = bury

    def vote(self, bookie: str) -> Deferred[int]:
        return Deferred.fromCoroutine(self._vote(bookie))

    async def _vote(self, bookie: str) -> int:
        while True:
            name = await self._session.name()
            number = await self._run(partial(self._cast, name, bookie), writes=True)
            if number is not None:
                self._watches.look()
                return number
            await self._session.lost(name)

    def _cast(self, name: str, bookie: str, connection: Connection) -> int | None:
        """On the thread; None when this handle's own session was ended."""
        tables.cluster(connection, self._uri)
        if not tables.has_session(connection, name):
            return None
        cast = tables.scalar(connection, "SELECT number FROM votes WHERE session = ?", name)
        if cast is not None:
            return int(cast)
        number = tables.count(connection, "votes")
        connection.execute("INSERT INTO votes VALUES (?, ?, ?)", (number, name, repair_text.encode_owner(bookie)))
        return number

    def withdraw(self) -> Deferred[None]:
        name = self._session.current

        def withdraw(connection: Connection) -> None:
            connection.execute("DELETE FROM votes WHERE session = ?", (name,))

        return self._run(withdraw, writes=True).addCallback(lambda _: self._watches.look())

    def election(self) -> Deferred[Election]:
        def look(connection: Connection) -> tuple[list[str], Election]:
            tables.cluster(connection, self._uri)
            return self._session.dead(connection), _election(connection)

        return Deferred.fromCoroutine(living(self._run, self._bury, look))

    def watch_election(self, fn: Callable[[Election], None]) -> Watch:
        return self._watches.add(_election, fn)

    def delay(self) -> Deferred[int | None]:
        def read(connection: Connection) -> int | None:
            tables.cluster(connection, self._uri)
            return _counter(DELAY, connection)

        return self._run(read)

    def set_delay(self, seconds: int, *, unless_set: bool = False) -> Deferred[None]:
        try:
            check_delay(seconds)
        except IncorrectParameter as error:
            return fail(error)

        def write(connection: Connection) -> None:
            tables.cluster(connection, self._uri)
            if not (unless_set and _counter(DELAY, connection) is not None):
                connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (DELAY, seconds))
                tables.count(connection, DELAYS)

        return self._run(write, writes=True).addCallback(lambda _: self._watches.look())

    def watch_delay(self, fn: Callable[[int | None], None]) -> Watch:
        def read(connection: Connection) -> tuple[int | None, int | None]:
            return _counter(DELAY, connection), _counter(DELAYS, connection)

        return self._watches.add(read, lambda found: fn(found[0]))

    def checked(self, check: Periodic) -> Deferred[int | None]:
        def read(connection: Connection) -> int | None:
            tables.cluster(connection, self._uri)
            return _counter(check.value, connection)

        return self._run(read)

    def set_checked(self, check: Periodic, time_ms: int) -> Deferred[None]:
        def write(connection: Connection) -> None:
            tables.cluster(connection, self._uri)
            connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (check.value, time_ms))

        return self._run(write, writes=True)


# -- on the thread ---------------------------------------------------------------------------------------------------


def _election(connection: Connection) -> Election:
    rows = connection.execute(
        "SELECT number, data FROM votes JOIN sessions ON session = name ORDER BY number"
    ).fetchall()
    return Election(tuple(row[0] for row in rows), repair_text.decode_owner(rows[0][1]) if rows else None)


def _counter(name: str, connection: Connection) -> int | None:
    value = tables.scalar(connection, "SELECT value FROM counters WHERE name = ?", name)
    return None if value is None else int(value)
