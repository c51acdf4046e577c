"""
Watches over the SQLite driver: look, compare, tell.

Knows: when to look (after a commit of ours at once, otherwise every `poll_s` while somebody watches), and who heard what.
Does not know: threads; `run` takes a look to the store's thread.

Safety: the change counter is read before the values, so a change that comes between is seen by the next look; and a bookie
whose process died is taken off the list by whoever looks first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata import sqlite_tables as tables
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.sqlite_tables import Connection
from quire.metadata.store import BookieList, BookieWatcher, LedgerWatcher, ReactorTime, Timer, Versioned, Watch, tell
from quire.protocol.errors import LedgerError, MetadataSerialization, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()


class Runner(Protocol):
    """Runs work on the store's thread."""

    def __call__(self, work: Callable[[Connection], T], /) -> Deferred[T]: ...


@dataclass(slots=True)
class LedgerWish:
    watch: Watch
    fn: LedgerWatcher
    heard: int | None = None  # the version told last


@dataclass(slots=True)
class BookieWish:
    watch: Watch
    fn: BookieWatcher
    heard: BookieList | None = None


@dataclass(slots=True)
class Sight:
    """What one look found; `bookies` and `ledgers` only when something was committed since the last one."""

    change: int
    dead: list[str]
    ledgers: dict[int, Versioned[LedgerMetadata] | None] = field(default_factory=dict)
    bookies: BookieList | None = None


class Watches:
    """
    The watches of one store.  `dead(connection)` names sessions whose owners are gone, `bury(names)` removes them.
    """

    def __init__(
        self,
        reactor: ReactorTime,
        uri: str,
        poll_s: float,
        run: Runner,
        dead: Callable[[Connection], list[str]],
        bury: Callable[[Sequence[str]], Deferred[None]],
    ) -> None:
        self._reactor = reactor
        self._uri = uri
        self._poll_s = poll_s
        self._run = run
        self._dead = dead
        self._bury = bury
        self._ledgers: dict[int, list[LedgerWish]] = {}
        self._bookies: list[BookieWish] = []
        self._change: int | None = None  # data_version at the last look
        self._stale = False  # look at everything, whatever the counter says
        self._looking = False
        self._timer: Timer | None = None
        self._ended = False
        self._complained = False

    def add_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        wish = LedgerWish(Watch(lambda: self._drop(ledger, wish)), fn)
        self._ledgers.setdefault(ledger, []).append(wish)
        self.look_soon()
        return wish.watch

    def _drop(self, ledger: int, wish: LedgerWish) -> None:
        wishes = self._ledgers.get(ledger, [])
        if wish in wishes:
            wishes.remove(wish)
        if not wishes:
            self._ledgers.pop(ledger, None)

    def add_bookies(self, fn: BookieWatcher) -> Watch:
        wish = BookieWish(Watch(lambda: self._bookies.remove(wish) if wish in self._bookies else None), fn)
        self._bookies.append(wish)
        self.look_soon()
        return wish.watch

    def end(self) -> None:
        self._ended = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def look_soon(self) -> None:
        """Something may have changed: look at everything now (or right after the look under way)."""
        self._stale = True
        if not self._looking:
            self._look()

    def _look(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._ended or self._looking or not (self._ledgers or self._bookies):
            return
        self._looking = True
        since = None if self._stale else self._change
        self._stale = False
        ledgers, bookies = list(self._ledgers), bool(self._bookies)
        self._run(lambda connection: self._see(connection, since, ledgers, bookies)).addCallbacks(self._saw, self._failed)

    def _see(self, connection: Connection, since: int | None, ledgers: list[int], bookies: bool) -> Sight:
        """On the thread."""
        sight = Sight(tables.scalar(connection, "PRAGMA data_version"), self._dead(connection) if bookies else [])
        if sight.change == since:
            return sight
        for ledger in ledgers:
            try:
                sight.ledgers[ledger] = tables.decoded(ledger, *tables.read_ledger(connection, self._uri, ledger))
            except NoSuchLedgerExistsOnMetadataServer:
                sight.ledgers[ledger] = None
            except MetadataSerialization as error:
                log.error("{uri}: a watched ledger can't be read: {error}", uri=self._uri, error=str(error))
        if bookies:
            sight.bookies = tables.bookies(connection)
        return sight

    def _saw(self, sight: Sight) -> None:
        self._looking = False
        self._complained = False
        if self._ended:
            return
        self._change = sight.change
        if sight.dead:
            Deferred.fromCoroutine(self._bury_now(sight.dead))
        for ledger, found in sight.ledgers.items():
            for wish in list(self._ledgers.get(ledger, ())):
                self._tell_ledger(wish, found)
        if sight.bookies is not None:
            for listening in list(self._bookies):
                if listening.heard != sight.bookies and not listening.watch.cancelled:
                    listening.heard = sight.bookies
                    tell(listening.fn, sight.bookies)
        self._again()

    async def _bury_now(self, dead: list[str]) -> None:
        try:
            await self._bury(dead)
        except LedgerError as error:  # the next look finds them again
            log.warn("{uri}: can't remove ended sessions yet: {error}", uri=self._uri, error=str(error))

    def _tell_ledger(self, wish: LedgerWish, found: Versioned[LedgerMetadata] | None) -> None:
        if wish.watch.cancelled:
            return
        if found is None:
            wish.watch.cancel()
            tell(wish.fn, None)
        elif wish.heard != found.version:
            wish.heard = found.version
            tell(wish.fn, found)

    def _failed(self, failure: Failure) -> None:
        self._looking = False
        self._stale = True
        if not self._complained and not self._ended:
            self._complained = True
            log.warn("{uri}: can't look for changes, will go on trying: {failure}", uri=self._uri, failure=failure.getErrorMessage())
        self._again(slowly=True)

    def _again(self, slowly: bool = False) -> None:
        if self._ended or self._looking:
            return
        if self._stale and not slowly:
            self._look()
        elif self._ledgers or self._bookies:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            self._timer = self._reactor.callLater(self._poll_s * (4 if slowly else 1), self._look)
