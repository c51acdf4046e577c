"""
Watches of ledgers in ZooKeeper: one reader for each followed znode, for all its followers.

Knows: which follower knows what, and that kazoo keeps a watcher until it fires: there is no way to take one back, so it
is used again.
Does not know: where a ledger's znode is (`path_of`), why the connection went.

Safety: an event may overtake the answer that armed its watch, so what was read while an event came is read again.  A
ledger is read when its own znode changed, when the connection was lost, and when a follower begins; the end
of another follower or a change of another znode costs nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Reactor, pause
from quire.metadata.formats import ledger_codec
from quire.metadata.store import LedgerWatcher, Watch, notify
from quire.metadata.zk.node_errors import NoNode
from quire.metadata.zk.session import ZooKeeperSession
from quire.protocol.errors import MetadataSerialization, MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RETRY_S = 0.2


@dataclass(eq=False, slots=True)
class Subscription:
    watch: Watch
    fn: LedgerWatcher
    heard: int = -1  # the transaction that made what it was called with last


@dataclass(eq=False, slots=True)
class Followed:
    """One ledger; it is kept while it has followers or its watcher is set."""

    ledger: int
    look: Callable[["Followed"], None]
    subscriptions: list[Subscription] = field(default_factory=list)
    stale: bool = False  # to be read, perhaps again
    reading: bool = False
    armed: bool = False  # kazoo has the watcher
    spent: bool = False  # it fired while the ledger was read

    def fired(self) -> None:
        """The watcher was called or lost: reads the ledger again."""
        self.armed = False
        self.spent = True
        self.stale = True
        self.look(self)


class LedgerWatches:
    """The ledger watches of one store."""

    def __init__(self, reactor: Reactor, session: ZooKeeperSession, path_of: Callable[[int], Awaitable[str]]) -> None:
        self._reactor = reactor
        self._session = session
        self._path_of = path_of
        self._followed: dict[int, Followed] = {}
        self._ended = False

    def add(self, ledger: int, fn: LedgerWatcher) -> Watch:
        """Calls `fn` with the ledger's metadata, now and after each change, and with None when it is deleted."""
        followed = self._followed.get(ledger)
        if followed is None:
            followed = self._followed[ledger] = Followed(ledger, self._look)
        subscription = Subscription(Watch(lambda: self._drop(followed, subscription)), fn)
        followed.subscriptions.append(subscription)
        followed.stale = True
        self._look(followed)
        return subscription.watch

    def _drop(self, followed: Followed, subscription: Subscription) -> None:
        if subscription in followed.subscriptions:
            followed.subscriptions.remove(subscription)
        self._look(followed)

    def end(self) -> None:
        """Ends every watch."""
        self._ended = True
        self._followed.clear()

    def _look(self, followed: Followed) -> None:
        if followed.reading or self._ended:
            return
        if not followed.subscriptions:
            if not followed.armed:
                self._followed.pop(followed.ledger, None)
        elif followed.stale:
            followed.reading = True
            Deferred.fromCoroutine(self._read(followed))

    async def _read(self, followed: Followed) -> None:
        """Reads and notifies, until all have the newest."""
        while followed.stale and followed.subscriptions and not self._ended:
            followed.stale = followed.spent = False
            try:
                data, stat = await self._session.get(await self._path_of(followed.ledger), followed.fired)
            except NoNode:
                for subscription in list(followed.subscriptions):
                    subscription.watch.cancel()
                    notify(subscription.fn, None)
                continue
            except MetaStore:  # the connection is away; the watches outlive that
                followed.stale = True
                if not self._ended:
                    await pause(self._reactor, RETRY_S)
                continue
            followed.armed = not followed.spent
            try:
                found = ledger_codec.decode_stored(followed.ledger, data, stat.version)
            except MetadataSerialization as error:
                log.error("{uri}: a watched ledger can't be read: {error}", uri=self._session.uri, error=str(error))
                continue
            for subscription in list(followed.subscriptions):
                if subscription.heard < stat.mzxid and not subscription.watch.cancelled and not self._ended:
                    subscription.heard = stat.mzxid
                    notify(subscription.fn, found)
        followed.reading = False
        self._look(followed)
