"""
Watches of records in the SQLite file: look, compare, call.

Knows: when to look (after a commit of ours at what that changed, otherwise every `poll_s` while anything is watched),
and what each watcher was called with.  After a commit of another process the versions of all that is watched are asked
for, and only what has a new one is read.
Does not know: threads, how a claim of a dead session is removed (`records`).

Safety: the change counter is read before the values, so a change that comes between is seen by the next look.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, Timer
from quire.metadata.records import ChildrenWatcher, RecordWatcher, parent_of
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.tables import VALUES_MAX, Connection
from quire.metadata.store import Versioned, Watch, notify

# SPDX-License-Identifier: Apache-2.0

log = Logger()

UNHEARD: Any = object()


def value(path: str, connection: Connection) -> tuple[Versioned[bytes] | None, set[str]]:
    """On the thread: a record, or None; and the session of a claim."""
    row = connection.execute("SELECT data, version, session FROM records WHERE path = ?", (path,)).fetchone()
    if row is None:
        return None, set()
    return Versioned(row[0], row[1]), set() if row[2] is None else {row[2]}


def names(path: str, after: str, limit: int, connection: Connection) -> tuple[list[str] | None, set[str]]:
    """On the thread: at most `limit` children (-1: all) above `after`, or None; and the sessions of claims of them."""
    if tables.scalar(connection, "SELECT 1 FROM records WHERE path = ?", path) is None:
        return None, set()
    rows = connection.execute(
        "SELECT path, session FROM records WHERE parent = ? AND path > ? ORDER BY path LIMIT ?",
        (path, f"{path}/{after}", limit),
    ).fetchall()
    start = len(path) + 1
    return [row[0][start:] for row in rows], {row[1] for row in rows if row[1] is not None}


@dataclass(eq=False, slots=True)
class Subscription:
    path: str
    children: bool
    fn: Callable[[Any], None]
    watch: Watch
    heard: Any = UNHEARD


@dataclass(slots=True)
class Sight:
    """What one look found: of each watch whose value may be new the value; the sessions of all claims that it met."""

    change: int
    found: list[tuple[Subscription, Any]]
    claims: set[str]


# Runs a look on the thread until no claim that it met is of a dead session.
Looker = Callable[[Callable[[Connection], tuple[Sight, set[str]]]], Awaitable[Sight]]


class RecordWatches:
    """The record watches of one store."""

    def __init__(self, clock: Clock, uri: str, poll_s: float, look: Looker) -> None:
        self._clock = clock
        self._uri = uri
        self._poll_s = poll_s
        self._look = look
        self._subscriptions: dict[tuple[str, bool], dict[Subscription, None]] = {}
        self._change: int | None = None  # data_version at the last look at everything
        self._claims: set[str] = set()  # sessions of the claims that are watched
        self._stale: set[tuple[str, bool]] = set()  # look at these, whatever the counter says
        self._timer: Timer | None = None
        self._looking = False
        self._ended = False
        self._complained = False

    def add(self, path: str, fn: RecordWatcher) -> Watch:
        """Calls `fn` with the record, or None, now and after changes."""
        return self._add(path, False, fn)

    def add_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        """Calls `fn` with the names of the children, or None, now and after changes."""
        return self._add(path, True, fn)

    def _add(self, path: str, children: bool, fn: Callable[[Any], None]) -> Watch:
        subscription = Subscription(path, children, fn, Watch(lambda: self._drop(subscription)))
        self._subscriptions.setdefault((path, children), {})[subscription] = None
        self._look_soon((path, children))
        return subscription.watch

    def _drop(self, subscription: Subscription) -> None:
        key = subscription.path, subscription.children
        subscriptions = self._subscriptions.get(key, {})
        subscriptions.pop(subscription, None)
        if not subscriptions:
            self._subscriptions.pop(key, None)

    def end(self) -> None:
        """Ends the watches."""
        self._ended = True
        self._subscriptions.clear()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def wrote(self, path: str, family: bool) -> None:
        """We have changed a record; `family`: created or deleted it, so its parent has other children."""
        keys = [(path, False)]
        if family:
            keys += [(path, True), (parent_of(path), True)]
        watched = [key for key in keys if key in self._subscriptions]
        if watched:
            self._look_soon(*watched)

    def _look_soon(self, *stale: tuple[str, bool]) -> None:
        self._stale.update(stale)
        if not self._looking:
            self._look_now()

    def _look_now(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._ended or self._looking or not self._subscriptions:
            return
        self._looking = True
        stale, self._stale = self._stale, set()
        subscriptions = [subscription for key in stale for subscription in self._subscriptions.get(key, ())]
        every = [subscription for subscriptions in self._subscriptions.values() for subscription in subscriptions]
        looked: Deferred[Sight] = Deferred.fromCoroutine(
            _story(self._look(partial(self._see, [subscriptions], every, self._change)))
        )
        looked.addCallback(self._saw).addErrback(self._failed)

    def _see(
        self,
        first: list[Sequence[Subscription]],
        every: Sequence[Subscription],
        since: int | None,
        connection: Connection,
    ) -> tuple[Sight, set[str]]:
        """
        On the thread: looks at those in `first`, or at `every` one if others have changed anything, or when called
        again, after a dead session was removed.
        """
        sight = Sight(tables.scalar(connection, "PRAGMA data_version"), [], set())
        subscriptions, claims = first.pop() if first else every, set(self._claims)
        if sight.change != since or subscriptions is every:
            subscriptions = every
            claims.clear()
        versions = _versions(
            [subscription.path for subscription in subscriptions if not subscription.children], connection
        )
        for subscription in subscriptions:
            if subscription.children:
                found, met = names(subscription.path, "", -1, connection)
                sight.found.append((subscription, found))
                claims |= met
                continue
            version, session = versions.get(subscription.path, (None, None))
            if session is not None:
                claims.add(session)
            heard = None if subscription.heard is UNHEARD or subscription.heard is None else subscription.heard.version
            if subscription.heard is UNHEARD or version != heard:
                sight.found.append((subscription, value(subscription.path, connection)[0]))
        sight.claims = claims
        return sight, claims

    def _saw(self, sight: Sight) -> None:
        self._looking = False
        self._complained = False
        self._change, self._claims = sight.change, sight.claims
        for subscription, found in sight.found:
            if (
                not subscription.watch.cancelled
                and not self._ended
                and (subscription.heard is UNHEARD or subscription.heard != found)
            ):
                subscription.heard = found
                notify(subscription.fn, found)
        self._again(self._poll_s)

    def _failed(self, failure: Failure) -> None:
        self._looking = False
        self._stale.update(self._subscriptions)
        if not self._complained and not self._ended:
            self._complained = True
            log.warn(
                "{uri}: can't look for changed records, will try again: {failure}",
                uri=self._uri,
                failure=failure.getErrorMessage(),
            )
        self._again(self._poll_s * 4, slowly=True)

    def _again(self, seconds: float, slowly: bool = False) -> None:
        if self._ended or self._looking:
            return
        if self._stale and not slowly:
            self._look_now()
        elif self._subscriptions:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            self._timer = self._clock.callLater(seconds, self._look_now)


async def _story(look: Awaitable[Sight]) -> Sight:
    return await look


def _versions(paths: Sequence[str], connection: Connection) -> dict[str, tuple[int, str | None]]:
    """Version and session of those that exist."""
    found: dict[str, tuple[int, str | None]] = {}
    for start in range(0, len(paths), VALUES_MAX):
        some = paths[start : start + VALUES_MAX]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(f"SELECT path, version, session FROM records WHERE path IN ({marks})", some)
        found.update((row[0], (row[1], row[2])) for row in rows.fetchall())
    return found
