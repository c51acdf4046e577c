"""
Watches of a tree: one reader for each followed thing, for all its followers.

Knows: what each watcher was called with; that a store may keep a watch until it fires, with no way to take it back, so
that it is used again.
Does not know: what is followed and how it is read (`read`), why a connection went.

Safety: an event may overtake the answer that armed its watch, so what was read while an event came is read again.
Something is read when it changed, when the watch was lost, and when a new follower comes; the end or change of another
one costs nothing.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, pause
from quire.metadata.store import Watch, notify
from quire.metadata.tree import NoNode, Stat, Tree, Wake
from quire.protocol.errors import MetaStore, MetaStoreRefused

# SPDX-License-Identifier: Apache-2.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
log = Logger()

RETRY_S = 0.2
REFUSED_PAUSE_S = 5.0
UNHEARD: Any = object()


def pause_after(error: Exception, usual_s: float) -> float:
    """How long a caller that goes on trying waits, in seconds: a refusal ends later than a lost connection."""
    return REFUSED_PAUSE_S if isinstance(error, MetaStoreRefused) else usual_s


@dataclass(frozen=True, slots=True)
class Reading(Generic[V]):
    """
    The result of a read.  `mark` says whether it is news: a transaction that is above that of what was read before,
    anything else that differs.  `last`: there will be nothing more to read.
    """

    mark: object
    value: V | None
    last: bool = False

    def is_news(self, heard: object) -> bool:
        """Beside what was read before."""
        if isinstance(self.mark, int) and isinstance(heard, int):
            return heard < self.mark
        return heard != self.mark


@dataclass(eq=False, slots=True)
class Subscription(Generic[V]):
    watch: Watch
    fn: Callable[[V | None], None]
    heard: Any = UNHEARD  # the mark of what was read last


@dataclass(eq=False, slots=True)
class Followed(Generic[K, V]):
    """One thing; it is kept while it has followers or its watcher is armed."""

    key: K
    look: Callable[["Followed[K, V]"], None]
    subscriptions: dict[Subscription[V], None] = field(default_factory=dict)  # in their order
    stale: bool = False  # to be read, perhaps again
    reading: bool = False
    armed: bool = False  # the store has the watch
    spent: bool = False  # it fired while the znode was read

    def fired(self) -> None:
        """The watcher was called or lost: reads the znode again."""
        self.armed = False
        self.spent = True
        self.stale = True
        self.look(self)


class Watches(Generic[K, V]):
    """
    The watches of one kind of one store.  `read(key, wake)` reads what is followed and arms `wake`; None: it can't be
    understood, and is read again when it changes.
    """

    def __init__(self, clock: Clock, tree: Tree, read: Callable[[K, Wake], Awaitable[Reading[V] | None]]) -> None:
        self._clock = clock
        self._tree = tree
        self._read_now = read
        self._followed: dict[K, Followed[K, V]] = {}
        self._ended = False

    def add(self, key: K, fn: Callable[[V | None], None]) -> Watch:
        """Calls `fn` with what is there, now and after each change."""
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = Followed(key, self._look)
        subscription: Subscription[V] = Subscription(Watch(lambda: self._drop(followed, subscription)), fn)
        followed.subscriptions[subscription] = None
        followed.stale = True
        self._clock.callLater(0, self._look, followed)  # never from inside this call
        return subscription.watch

    def _drop(self, followed: Followed[K, V], subscription: Subscription[V]) -> None:
        followed.subscriptions.pop(subscription, None)
        self._look(followed)

    def end(self) -> None:
        """Ends every watch."""
        self._ended = True
        self._followed.clear()

    def _look(self, followed: Followed[K, V]) -> None:
        if followed.reading or self._ended:
            return
        if not followed.subscriptions:
            forgotten = not followed.armed or self._tree.disarm(followed.fired)
            if forgotten and self._followed.get(followed.key) is followed:
                del self._followed[followed.key]
        elif followed.stale:
            followed.reading = True
            Deferred.fromCoroutine(self._read(followed))

    async def _read(self, followed: Followed[K, V]) -> None:
        """Reads and calls, until the watchers were called with the newest."""
        complained = False
        while followed.stale and followed.subscriptions and not self._ended:
            followed.stale = followed.spent = False
            try:
                reading = await self._read_now(followed.key, followed.fired)
            except Exception as error:  # the connection is away, mostly; the watches outlive that
                if (isinstance(error, MetaStoreRefused) or not isinstance(error, MetaStore)) and not complained:
                    log.error("what is watched can't be read, will go on trying: {error!r}", error=error)
                    complained = True
                followed.stale = True
                if not self._ended:
                    await pause(self._clock, pause_after(error, RETRY_S))
                continue
            complained = False
            if reading is None or not reading.last:
                followed.armed = not followed.spent
            if reading is None:
                continue
            for subscription in list(followed.subscriptions):
                if reading.is_news(subscription.heard) and not subscription.watch.cancelled and not self._ended:
                    subscription.heard = reading.mark
                    if reading.last:
                        subscription.watch.cancel()
                    notify(subscription.fn, reading.value)
        followed.reading = False
        self._look(followed)


async def value(tree: Tree, path: str, wake: Wake) -> tuple[bytes, Stat] | None:
    """A node, which is watched; None while there is none."""
    while True:
        try:
            return await tree.get(path, wake)
        except NoNode:
            if await tree.exists(path, wake) is None:
                return None


async def names(tree: Tree, path: str, wake: Wake) -> list[str] | None:
    """The names of a node's children, which are watched, ascending; None while there is no node."""
    while True:
        try:
            return sorted(await tree.children(path, wake))
        except NoNode:
            if await tree.exists(path, wake) is None:
                return None
