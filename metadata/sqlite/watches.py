"""
The watches of the tree in the SQLite file: look, compare, call.

Knows: when to look: after a commit of ours at what that changed, otherwise every `poll_s` while anything is watched.
After a commit of another process the states of all that is watched are asked for, without the values.
Does not know: threads, statements (`see` looks).

Safety: the counters of changes are read before the states, so a change that comes between is seen by the next look.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, Timer
from quire.metadata.sqlite.nodes import Token
from quire.metadata.store import notify
from quire.metadata.tree import Wake

# SPDX-License-Identifier: Apache-2.0

log = Logger()

Watched = tuple[str, bool]  # a path, and whether its children
Change = tuple[int, int]  # counters of changes
Sight = tuple[Change, list[str], dict[Watched, Token]]  # what was counted, ended sessions, states
See = Callable[[Collection[Watched], Collection[Watched], Change | None], Deferred[Sight]]


class Watches:
    """The watches of one store, with the state in which each was read."""

    def __init__(
        self,
        clock: Clock,
        uri: str,
        poll_s: float,
        see: See,
        bury: Callable[[Sequence[str]], Deferred[None]],
    ) -> None:
        self._clock = clock
        self._uri = uri
        self._poll_s = poll_s
        self._see = see
        self._bury = bury
        self._armed: dict[Watched, dict[Wake, Token]] = {}
        self._fresh: set[Watched] = set()  # to be looked at, whatever the counter says
        self._change: Change | None = None  # at the last look
        self._timer: Timer | None = None
        self._looking = False
        self._again = False  # to be looked again right after the look under way
        self._ended = False
        self._complained = False

    def arm(self, watched: Watched, wake: Wake, token: Token) -> None:
        """Calls `wake` once the state is not `token` any more."""
        if not self._ended:
            self._armed.setdefault(watched, {})[wake] = token
            self._fresh.add(watched)
            self._look_after(self._poll_s)

    @property
    def armed(self) -> bool:
        """True if anything is watched."""
        return bool(self._armed)

    def disarm(self, wake: Wake) -> None:
        """Forgets a watch."""
        for watched in [watched for watched, wakes in self._armed.items() if wake in wakes]:
            self._drop(watched, wake)

    def _drop(self, watched: Watched, wake: Wake) -> None:
        del self._armed[watched][wake]
        if not self._armed[watched]:
            del self._armed[watched]

    def end(self) -> None:
        """Ends the watches."""
        self._ended = True
        self._armed.clear()
        self._cancel()

    def changed(self, watched: Iterable[Watched]) -> None:
        """We have changed these: looks at those that are watched, now, or right after the look under way."""
        fresh = self._armed.keys() & watched
        if fresh:
            self._fresh |= fresh
            self._look_now()

    def forget(self) -> None:
        """Something of ours has changed, unknown what: looks at everything again."""
        self._fresh.update(self._armed)
        self._look_now()

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _look_after(self, seconds: float) -> None:
        if self._armed and not self._looking and not self._ended and not (self._timer and self._timer.active()):
            self._timer = self._clock.callLater(seconds, self._look_now)

    def _look_now(self) -> None:
        if self._looking:
            self._again = True
        elif self._armed and not self._ended:
            self._cancel()
            self._looking = True
            Deferred.fromCoroutine(self._look())

    async def _look(self) -> None:
        fresh, self._fresh, self._again = self._fresh, set(), False
        pause = self._poll_s
        try:
            change, dead, found = await self._see(fresh, list(self._armed), self._change)
            if dead:
                await self._bury(dead)
                self._fresh.update(self._armed)
                self._again = True
        except Exception as error:  # a look that fails ends no watch
            self._fresh |= fresh
            self._missed(error)
            pause *= 4
        else:
            self._complained = False
            self._change = change
            for watched, token in sorted(found.items(), key=lambda each: each[0][1]):
                for wake, seen in list(self._armed.get(watched, {}).items()):
                    if seen != token:
                        self._drop(watched, wake)
                        notify(wake)
        self._looking = False
        if self._again and pause == self._poll_s:
            self._look_now()
        else:
            self._look_after(pause)

    def _missed(self, error: Exception) -> None:
        if not self._complained and not self._ended:
            self._complained = True
            log.warn("{uri}: can't look for changes, will go on trying: {error!r}", uri=self._uri, error=error)
