"""
The repair queue in the SQLite file: the operations on its tables.

Knows: the statements; that a lock counts only while its session's row exists and its owner lives; that versions come
from one counter, so that none is ever seen twice.
Does not know: threads, how a session is kept.

Safety: each operation is one transaction; a lock of a session that died is removed with that session, by whoever
contends for it or looks at the queue.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial
from random import Random

from twisted.internet.defer import Deferred, fail

from quire.metadata.formats import repair_text
from quire.metadata.ledger import LedgerMetadata, check_ledger_id, check_page
from quire.metadata.repairs import CANDIDATES_MAX, PAGE, RepairLock, Repairs, Shortage, check_missing
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.repair_watches import Bury, RepairWatches
from quire.metadata.sqlite.session import Runner, Session, living
from quire.metadata.sqlite.tables import DISABLED, Connection
from quire.metadata.store import Versioned, Watch
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

NEWS = "repairs"  # a counter of all that may give somebody something to take


class SQLiteRepairs(Repairs):
    """The queue through one store.  `host` is what its locks say; `bury(names)` removes ended sessions."""

    def __init__(
        self,
        uri: str,
        host: str,
        random: Random,
        run: Runner,
        session: Session,
        watches: RepairWatches,
        bury: Bury,
    ) -> None:
        super().__init__(random)
        self._uri = uri
        self._host = repair_text.encode_owner(host)
        self._run = run
        self._session = session
        self._watches = watches
        self._bury = bury

    def _change(self, work: Callable[[Connection], bool], *ledgers: int) -> Deferred[bool]:
        """
        Runs a change, which says whether it may give somebody something to take; of the queue, and of these ledgers.
        """

        def change(connection: Connection) -> bool:
            tables.cluster(connection, self._uri)
            done = work(connection)
            if done:
                tables.count(connection, NEWS)
            return done

        def changed(done: bool) -> bool:
            self._watches.look()
            return done

        return self._run(change, writes=True, changes=ledgers).addCallback(changed)

    # -- the queue -------------------------------------------------------------------------------------------------

    def mark(
        self, ledger: int, missing: Sequence[str], since_ms: int | None, *, afresh: bool = False
    ) -> Deferred[None]:
        try:
            check_missing(ledger, missing)
        except IncorrectParameter as error:
            return fail(error)
        return self._change(partial(_mark, ledger, missing, since_ms, afresh)).addCallback(lambda _: None)

    def shortage(self, ledger: int) -> Deferred[Shortage | None]:
        try:
            check_ledger_id(ledger)
        except IncorrectParameter as error:
            return fail(error)

        def read(connection: Connection) -> Shortage | None:
            tables.cluster(connection, self._uri)
            return _shortage(ledger, connection)

        return self._run(read)

    def shortages(self, after: int = -1, limit: int = PAGE) -> Deferred[list[Shortage]]:
        try:
            check_page(after, limit)
        except IncorrectParameter as error:
            return fail(error)

        def page(connection: Connection) -> list[Shortage]:
            tables.cluster(connection, self._uri)
            rows = connection.execute(
                "SELECT ledger, data, version FROM shortages WHERE ledger > ? ORDER BY ledger LIMIT ?", (after, limit)
            )
            return [
                Shortage(ledger, *repair_text.decode_shortage(ledger, data), version)
                for ledger, data, version in rows.fetchall()
            ]

        return self._run(page)

    def watch(self, fn: Callable[[], None]) -> Watch:
        def read(connection: Connection) -> tuple[object, int]:
            # the end of a session takes its locks without counting that as news
            news = tables.scalar(connection, "SELECT value FROM counters WHERE name = ?", NEWS)
            return news, tables.scalar(connection, "SELECT count(*) FROM repair_locks")

        return self._watches.add(read, lambda _: fn())

    def enabled(self) -> Deferred[bool]:
        def read(connection: Connection) -> bool:
            tables.cluster(connection, self._uri)
            return tables.scalar(connection, "SELECT 1 FROM counters WHERE name = ?", DISABLED) is None

        return self._run(read)

    def set_enabled(self, enabled: bool) -> Deferred[None]:
        def switch(connection: Connection) -> bool:
            if enabled:
                connection.execute("DELETE FROM counters WHERE name = ?", (DISABLED,))
            else:
                connection.execute("INSERT OR IGNORE INTO counters VALUES (?, 1)", (DISABLED,))
            return True

        return self._change(switch).addCallback(lambda _: None)

    # -- locks -----------------------------------------------------------------------------------------------------

    def worker(self, ledger: int) -> Deferred[str | None]:
        return Deferred.fromCoroutine(self._worker(ledger))

    async def _worker(self, ledger: int) -> str | None:
        def look(connection: Connection) -> tuple[list[str], bytes | None]:
            tables.cluster(connection, self._uri)
            held = "SELECT data FROM repair_locks JOIN sessions ON session = name WHERE ledger = ?"
            return self._session.dead(connection), tables.scalar(connection, held, ledger)

        data = await living(self._run, self._bury, look)
        return None if data is None else repair_text.decode_owner(data)

    async def _session_now(self) -> str:
        return await self._session.name()

    async def _look(self, skip: Container[int]) -> list[int]:
        def look(connection: Connection) -> list[int]:
            tables.cluster(connection, self._uri)
            self._session.bury(self._session.dead(connection), connection)
            rows = connection.execute(
                "SELECT ledger FROM shortages WHERE ledger NOT IN (SELECT ledger FROM repair_locks JOIN sessions ON "
                "session = name) ORDER BY ledger"
            )
            found: list[int] = []
            while len(found) < CANDIDATES_MAX and (row := rows.fetchone()) is not None:
                if row[0] not in skip:
                    found.append(row[0])
            return found

        return await self._run(look, writes=True)

    async def _take_lock(self, ledger: int, session: int | str) -> bool:
        name = str(session)
        taken = await self._run(partial(self._try_lock, ledger, name), writes=True)
        if taken is None:
            await self._session.lost(name)
            raise MetaStore(f"{self._uri}: the session ended before the repair lock of ledger {ledger} was taken")
        return taken

    def _try_lock(self, ledger: int, name: str, connection: Connection) -> bool | None:
        """On the thread; None when this handle's own session was ended."""
        tables.cluster(connection, self._uri)
        timeouts = dict(tables.sessions(connection))
        if name not in timeouts:
            return None
        holder = tables.scalar(connection, "SELECT session FROM repair_locks WHERE ledger = ?", ledger)
        if holder in timeouts and holder != name:
            if self._session.is_alive(holder, timeouts[holder]):
                return False
            self._session.bury([holder], connection)
        connection.execute("INSERT OR REPLACE INTO repair_locks VALUES (?, ?, ?)", (ledger, name, self._host))
        return True

    async def _drop_lock(self, ledger: int, session: int | str) -> None:
        await self._change(partial(_drop_lock, ledger, str(session)))

    async def _extend(self, shortage: Shortage) -> int | None:
        version: int | None = None

        def extend(connection: Connection) -> bool:
            nonlocal version
            known = _shortage(shortage.ledger, connection)
            if known is None or known.version != shortage.version:
                return False
            version = _put(shortage, connection)
            return True

        await self._change(extend)
        return version

    async def _settle(self, shortage: Shortage, session: int | str) -> bool:
        gone = False

        def settle(connection: Connection) -> bool:
            nonlocal gone
            if not _drop_lock(shortage.ledger, str(session), connection):
                raise self._lost(shortage)
            connection.execute(
                "DELETE FROM shortages WHERE ledger = ? AND version = ?", (shortage.ledger, shortage.version)
            )
            gone = _shortage(shortage.ledger, connection) is None
            return True

        await self._change(settle)
        return gone

    async def _write_under(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool
    ) -> Versioned[LedgerMetadata] | None:
        ledger, session, shortage = lock.ledger, str(lock.session), lock.shortage if last else None
        stored: Versioned[LedgerMetadata] | None = None

        def write(connection: Connection) -> bool:
            nonlocal stored
            held = "SELECT 1 FROM repair_locks JOIN sessions ON session = name WHERE ledger = ? AND session = ?"
            if tables.scalar(connection, held, ledger, session) is None:
                raise self._lost(lock)
            if shortage is not None and _shortage(ledger, connection) != shortage:
                return False
            stored = tables.change_ledger(connection, self._uri, ledger, metadata, version)
            if last:
                _drop_lock(ledger, session, connection)
                connection.execute(
                    "DELETE FROM shortages WHERE ledger = ? AND version = ?",
                    (ledger, shortage.version if shortage is not None else None),
                )
            return last

        await self._change(write, ledger)
        return stored


# -- on the thread ---------------------------------------------------------------------------------------------------


def _shortage(ledger: int, connection: Connection) -> Shortage | None:
    row = connection.execute("SELECT data, version FROM shortages WHERE ledger = ?", (ledger,)).fetchone()
    return None if row is None else Shortage(ledger, *repair_text.decode_shortage(ledger, row[0]), row[1])


def _mark(ledger: int, missing: Sequence[str], since_ms: int | None, afresh: bool, connection: Connection) -> bool:
    known = _shortage(ledger, connection)
    if known is None:
        found: Shortage | None = Shortage(ledger, tuple(missing), since_ms, 0)
    else:
        found = known.with_more(missing, since_ms, afresh)
    if found is not None:
        _put(found, connection)
    return found is not None


def _put(shortage: Shortage, connection: Connection) -> int:
    """Stores it; the version that it has now."""
    version = tables.count(connection, "shortages")
    data = repair_text.encode_shortage(shortage.missing, shortage.since_ms)
    connection.execute("INSERT OR REPLACE INTO shortages VALUES (?, ?, ?)", (shortage.ledger, version, data))
    return version


def _drop_lock(ledger: int, session: str, connection: Connection) -> bool:
    done = connection.execute("DELETE FROM repair_locks WHERE ledger = ? AND session = ?", (ledger, session)).rowcount
    return done == 1
