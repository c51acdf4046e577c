"""
Watches over the SQLite driver: look, compare, notify.

Knows: when to look (after a commit of ours at once, otherwise every `poll_s` while there are watches), at what, and
which watcher knows what.  A commit of ours says what it changed, and only that is looked at.  One of another process
does not: then the versions of all that is watched are asked for, without the values, and only what has a new one is
read.  Does not know: threads; `run` takes a look to the store's thread.

Safety: the change counter is read before the values, so a change that comes between is seen by the next look; and a
bookie whose process died is taken off the list by the first look.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, Timer
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.tables import Connection
from quire.metadata.store import BookieList, BookieWatcher, LedgerWatcher, Versioned, Watch, notify
from quire.protocol.errors import LedgerError, MetadataSerialization, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

BOOKIES = -1  # as a change, beside ids of ledgers: of the registrations
EVERYTHING = -2


class Runner(Protocol):
    """Runs work on the store's thread."""

    def __call__(self, work: Callable[[Connection], T], /) -> Deferred[T]: ...


@dataclass(eq=False, slots=True)
class LedgerSubscription:
    watch: Watch
    fn: LedgerWatcher
    heard: int | None = None  # the version that it was called with last


@dataclass(eq=False, slots=True)
class BookieSubscription:
    watch: Watch
    fn: BookieWatcher
    heard: BookieList | None = None


@dataclass(slots=True)
class Sight:
    """
    The result of one look: of the ledgers only those that are new to us or gone, the bookies only when they changed.
    """

    change: int
    behind: bool = False  # others have committed something, and it was not looked for
    dead: list[str] = field(default_factory=list)
    ledgers: dict[int, Versioned[LedgerMetadata] | None] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)  # of those that are there, also where they can't be read
    rows: list[tuple[str, int, Any, str]] | None = None  # of the bookies, as they are stored


@dataclass(frozen=True, slots=True)
class Look:
    """The things to look at; `versions` of ledgers, where None is one that is reported in any version."""

    everything: bool
    versions: Mapping[int, int | None]
    bookies: bool
    dead: bool


class Watches:
    """
    The watches of one store.  `dead(connection)` names sessions whose owners are gone, `bury(names)` removes them.
    """

    def __init__(
        self,
        reactor: Clock,
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
        self._ledgers: dict[int, dict[LedgerSubscription, None]] = {}  # in their order, as those of bookies
        self._versions: dict[int, int] = {}  # of watched ledgers, as they were seen last
        self._bookies: dict[BookieSubscription, None] = {}
        self._rows: list[tuple[str, int, Any, str]] | None = None  # of the bookies, as they were seen last
        self._listed = BookieList({}, {})  # what they say
        self._change: int | None = None  # data_version at the last look at everything
        self._stale: set[int] = set()  # look at these, whatever the counter says
        self._buried = 0.0  # when it was last looked for ended sessions
        self._looking = False
        self._timer: Timer | None = None
        self._ended = False
        self._complained = False

    def add_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        """Calls `fn` with the ledger's metadata, now and after each change, and with None when it is deleted."""
        subscription = LedgerSubscription(Watch(lambda: self._drop(ledger, subscription)), fn)
        self._ledgers.setdefault(ledger, {})[subscription] = None
        self._versions.pop(ledger, None)
        self._look_soon(ledger)
        return subscription.watch

    def _drop(self, ledger: int, subscription: LedgerSubscription) -> None:
        subscriptions = self._ledgers.get(ledger, {})
        subscriptions.pop(subscription, None)
        if not subscriptions:
            self._ledgers.pop(ledger, None)
            self._versions.pop(ledger, None)

    def add_bookies(self, fn: BookieWatcher) -> Watch:
        """Calls `fn` with the bookies, now and after each change."""
        subscription = BookieSubscription(Watch(lambda: self._bookies.pop(subscription, None)), fn)
        self._bookies[subscription] = None
        self._rows = None
        self._look_soon(BOOKIES)
        return subscription.watch

    def end(self) -> None:
        """Stops looking."""
        self._ended = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def wrote(self, changes: Collection[int]) -> None:
        """We have changed these, as far as they are watched: look at them now (or right after the look under way)."""
        watched = [
            each
            for each in changes
            if each in self._ledgers or each == EVERYTHING or (each == BOOKIES and self._bookies)
        ]
        if watched:
            self._look_soon(*watched)

    def _look_soon(self, *stale: int) -> None:
        self._stale.update(stale)
        if not self._looking:
            self._look()

    def _look(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._ended or self._looking or not (self._ledgers or self._bookies):
            return
        self._looking = True
        stale, self._stale = self._stale, set()
        everything = EVERYTHING in stale or self._change is None
        now = self._reactor.seconds()
        look = Look(
            everything,
            {
                ledger: self._versions.get(ledger)
                for ledger in (self._ledgers if everything else stale)
                if ledger in self._ledgers
            },
            bool(self._bookies) and (everything or BOOKIES in stale),
            bool(self._bookies) and (not stale or now >= self._buried + self._poll_s),
        )
        if look.dead:
            self._buried = now
        looked = self._run(partial(self._see, look, self._change))
        looked.addCallback(self._saw, look).addErrback(self._failed)  # also what can't be made of what was seen

    def _see(self, look: Look, since: int | None, connection: Connection) -> Sight:
        """On the thread."""
        sight = Sight(tables.scalar(connection, "PRAGMA data_version"))
        sight.behind = sight.change != since and not look.everything
        if look.dead:
            sight.dead = self._dead(connection)
        found = tables.versions(connection, look.versions) if look.versions else {}
        for ledger, known in look.versions.items():
            if ledger not in found:
                sight.ledgers[ledger] = None
            elif found[ledger] != known:
                sight.versions[ledger] = found[ledger]
                try:
                    sight.ledgers[ledger] = ledger_codec.decode_stored(
                        ledger, *tables.read_ledger(connection, self._uri, ledger)
                    )
                except NoSuchLedgerExistsOnMetadataServer:
                    sight.ledgers[ledger] = None
                except MetadataSerialization as error:
                    log.error("{uri}: a watched ledger can't be read: {error}", uri=self._uri, error=str(error))
        if look.bookies:
            sight.rows = tables.bookie_rows(connection)
        return sight

    def _saw(self, sight: Sight, look: Look) -> None:
        self._looking = False
        self._complained = False
        if self._ended:
            return
        if look.everything:
            self._change = sight.change
        elif sight.behind:
            self._stale.add(EVERYTHING)
        if sight.dead:
            Deferred.fromCoroutine(self._bury_now(sight.dead))
        self._versions.update(
            (ledger, version) for ledger, version in sight.versions.items() if ledger in self._ledgers
        )
        for ledger, found in sight.ledgers.items():
            for subscription in list(self._ledgers.get(ledger, ())):
                self._notify_ledger(subscription, found)
        if sight.rows is not None:
            self._tell_bookies(sight.rows)
        self._again()

    def _tell_bookies(self, rows: list[tuple[str, int, Any, str]]) -> None:
        if rows == self._rows:
            return
        self._rows = rows
        self._listed = tables.listed(rows)
        for subscription in list(self._bookies):
            if not (self._listed.repeats(subscription.heard) or subscription.watch.cancelled):
                subscription.heard = self._listed
                notify(subscription.fn, self._listed)

    async def _bury_now(self, dead: list[str]) -> None:
        try:
            await self._bury(dead)
        except LedgerError as error:  # the next look finds them again
            log.warn("{uri}: can't remove ended sessions yet: {error}", uri=self._uri, error=str(error))

    def _notify_ledger(self, subscription: LedgerSubscription, found: Versioned[LedgerMetadata] | None) -> None:
        if subscription.watch.cancelled:
            return
        if found is None:
            subscription.watch.cancel()
            notify(subscription.fn, None)
        elif subscription.heard != found.version:
            subscription.heard = found.version
            notify(subscription.fn, found)

    def _failed(self, failure: Failure) -> None:
        self._looking = False
        self._stale.add(EVERYTHING)
        if not self._complained and not self._ended:
            self._complained = True
            log.warn(
                "{uri}: can't look for changes, will go on trying: {failure}",
                uri=self._uri,
                failure=failure.getErrorMessage(),
            )
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
