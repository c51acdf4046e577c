"""
Watches of the repair queue and of auditors in the SQLite file: look, compare, call.

Knows: when to look (after a commit of ours at once, otherwise every `poll_s` while anything is watched), what each
watcher was called with, and that a lock or vote whose owner died is news although nobody committed anything.
Does not know: threads, what is watched (`read`).

Safety: the change counter is read before the values, so a change that comes between is seen by the next look.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, Timer
from quire.metadata.sqlite import tables
from quire.metadata.sqlite.session import Runner
from quire.metadata.sqlite.tables import Connection
from quire.metadata.store import Watch, notify

# SPDX-License-Identifier: Apache-2.0

V = TypeVar("V")
log = Logger()

UNHEARD: Any = object()
Bury = Callable[[Sequence[str]], Deferred[None]]


@dataclass(eq=False, slots=True)
class Subscription:
    watch: Watch
    read: Callable[[Connection], Any]
    fn: Callable[[Any], None]
    heard: Any = UNHEARD


class RepairWatches:
    """
    The watches of one store.  `dead(connection)` names sessions whose owners are gone, `bury(names)` removes them.
    """

    def __init__(
        self,
        clock: Clock,
        uri: str,
        poll_s: float,
        run: Runner,
        dead: Callable[[Connection], list[str]],
        bury: Bury,
    ) -> None:
        self._clock = clock
        self._uri = uri
        self._poll_s = poll_s
        self._run = run
        self._dead = dead
        self._bury = bury
        self._subscriptions: list[Subscription] = []
        self._change: tuple[int, int] | None = None  # what counted commits at the last look at everything
        self._stale = False  # look at everything, whatever the counter says
        self._timer: Timer | None = None
        self._looking = False
        self._ended = False
        self._complained = False

    def add(self, read: Callable[[Connection], V], fn: Callable[[V], None]) -> Watch:
        """Calls `fn` with what `read` finds, now and whenever that is something else."""
        subscription = Subscription(Watch(lambda: self._drop(subscription)), read, fn)
        self._subscriptions.append(subscription)
        self.look()
        return subscription.watch

    def _drop(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def end(self) -> None:
        """Ends the watches."""
        self._ended = True
        self._subscriptions.clear()
        self._cancel()

    def look(self) -> None:
        """We have changed something, or there is a new watch: looks now, or right after the look under way."""
        self._stale = True
        if not self._looking:
            self._begin()

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _begin(self) -> None:
        self._cancel()
        if self._subscriptions and not self._ended:
            self._looking = True
            Deferred.fromCoroutine(self._look())

    async def _look(self) -> None:
        stale, self._stale = self._stale, False
        watched = list(self._subscriptions)

        def see(connection: Connection) -> tuple[tuple[int, int], list[str], list[Any] | None]:
            # of other connections, and of those that count theirs
            change = tables.scalar(connection, "PRAGMA data_version"), tables.changes(connection)
            new = stale or change != self._change
            return change, self._dead(connection), [each.read(connection) for each in watched] if new else None

        pause = self._poll_s
        try:
            change, dead, found = await self._run(see)
            if dead:
                await self._bury(dead)
                self._stale = True
        except Exception as error:  # a look that fails ends no watch
            self._missed(error)
            pause *= 4
        else:
            self._complained = False
            self._change = change
            for each, value in zip(watched, found or (), strict=False):
                if each.heard != value and not each.watch.cancelled and not self._ended:
                    each.heard = value
                    notify(each.fn, value)
        self._looking = False
        if self._ended:
            return
        if self._stale and pause == self._poll_s:
            self._begin()
        elif self._subscriptions:
            self._cancel()
            self._timer = self._clock.callLater(pause, self._begin)

    def _missed(self, error: Exception) -> None:
        self._stale = True
        if not self._complained and not self._ended:
            self._complained = True
            log.warn("{uri}: can't look at repairs, will go on trying: {error!r}", uri=self._uri, error=error)
