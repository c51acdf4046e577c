"""
An owner's window: what was taken and is not answered, and when of what waits the next entry may go.

Knows: the limits of a window and of all together, the rates of the log and of the process, that a quota refuses or
holds appends.
Does not know: what is appended, why the quota says so.

Nothing is dropped and nothing changes places: what may not go yet waits, as it does while much is under way.
"""

from collections import deque
from collections.abc import Callable
from random import Random

from twisted.internet.defer import Deferred

from quire.conf.log import LogOptions, LogSettings
from quire.log.core.streams.rates import Rate, Together
from quire.metadata.clock import Clock, Timer
from quire.protocol.errors import LedgerError, TooManyRequests

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 0.5  # at most, until rates are looked at again: others may be set meanwhile
SOON_S = 0.001  # below which nothing waits: what goes early is debt
ENTRY_S = 0.02  # of a rate: how much an entry has at most, so that it is kept over short times, too


class Window:
    """
    The window of one owner.  `settings` are those of now; `together` is shared by all owners; `go_on` is called when an
    entry may go that might not.  `refusal`: what appends fail with; `held`: they wait.
    """

    def __init__(
        self,
        options: LogOptions,
        clock: Clock,
        random: Random,
        settings: Callable[[], LogSettings],
        together: Together,
        go_on: Callable[[], object],
    ) -> None:
        self.records = 0
        self.bytes = 0
        self.refusal: LedgerError | None = None
        self._held = False
        self._options = options
        self._clock = clock
        self._random = random
        self._settings = settings
        self._rate = Rate()
        self.together = together
        self._go_on = go_on
        self._ready: deque[tuple[int, int, Deferred[None]]] = deque()  # records and bytes that each waits for
        self._timer: Timer | None = None
        self._ended = False
        self.waited = False  # whether what goes next had to wait for a rate or a quota

    # -- room ------------------------------------------------------------------------------------------------------

    def fits(self, count: int, size: int) -> bool:
        """True if it takes so much, and all owners together do; an empty one takes any append: others may be held."""
        return not self.records or (self._has_room(count, size) and self.together.fits(size))

    def _has_room(self, count: int, size: int) -> bool:
        records, most = self._options.window_records, self._options.window_bytes
        return self.records + count <= records and self.bytes + size <= most

    def admit(self, log: str, count: int, size: int, has_room: bool = False) -> None:
        """Takes so much, or raises a quota's refusal or `TooManyRequests`.  `has_room`: it was taken before."""
        if self.refusal is not None and not has_room:
            raise self.refusal.with_traceback(None)  # else each append that is refused makes it longer
        if not has_room and not self.fits(count, size):
            under_way = f"{self.records} records of {self.bytes} bytes are under way in the log {log!r}"
            of_all = f"{self.together.bytes} bytes of all logs"
            raise TooManyRequests(f"{under_way}, {of_all}: `ready()` tells when there is room")
        self.take(count, size)

    def take(self, count: int, size: int) -> None:
        """Notes that so much was taken; below 0: is over."""
        self.records += count
        self.bytes += size
        if not self._ended:
            self.together.bytes += size

    def ready(self, count: int, size: int) -> "Deferred[None]":
        """Fires when it takes so much, in the order of the calls."""
        ready: Deferred[None] = Deferred()
        if not self._ready and self.fits(count, size):
            ready.callback(None)
        else:
            self._ready.append((count, size, ready))
            self._wait_for_others()
        return ready

    def wake(self) -> None:
        """Answers waiting calls for which there is room now, or all where nothing more is taken."""
        while self._ready and (self._ended or self.fits(*self._ready[0][:2])):
            self.together.waiting.pop(self.wake, None)  # the next one waits behind those of others
            self._ready.popleft()[2].callback(None)
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        """Or not, where nobody waits, or for what is under way here."""
        if self._ready and self._has_room(*self._ready[0][:2]):
            self.together.waiting.setdefault(self.wake)
        else:
            self.together.waiting.pop(self.wake, None)

    def over(self) -> None:
        """Appends were answered: there is room for those who wait elsewhere for bytes of others, and who wait here."""
        self.together.wake()
        self.wake()

    # -- pace ------------------------------------------------------------------------------------------------------

    @property
    def entry_most(self) -> tuple[int, int] | None:
        """Records and bytes that the next entry is to have at most; None: as many as an entry takes."""
        settings, options = self._settings(), self._options
        records = _lower(settings.rate_records, options.rate_records)
        size = _lower(settings.rate_bytes, options.rate_bytes)
        if records < 0 and size < 0:
            return None
        return (
            max(1, int(records * ENTRY_S)) if records >= 0 else 1 << 30,
            max(1, int(size * ENTRY_S)) if size >= 0 else 1 << 30,
        )

    def may_go(self) -> bool:
        """True if the next entry may go now; if not, `go_on` is called when to ask again."""
        if self._held:
            self.waited = True
            return False
        now, settings, options = self._clock.seconds(), self._settings(), self._options
        wait_s = max(
            self._rate.wait_s(now, settings.rate_records, settings.rate_bytes),
            self.together.rate.wait_s(now, options.rate_records, options.rate_bytes),
        )
        if wait_s < SOON_S:
            return True
        self.waited = True
        if self._timer is None or not self._timer.active():
            turn_s = self._random.uniform(0, ENTRY_S)  # of several owners each comes first at times
            self._timer = self._clock.callLater(min(wait_s, LOOK_S) + turn_s, self._go_on)
        return False

    def went(self, count: int, size: int) -> None:
        """An entry of so many records and bytes."""
        self._rate.take(count, size)
        self.together.rate.take(count, size)

    def hold(self, held: bool) -> None:
        """Appends wait, or go on."""
        before, self._held = self._held, held
        if before and not held:
            self._go_on()

    def end(self) -> None:
        """Nothing goes any more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if not self._ended:
            self._ended = True
            self.together.bytes -= self.bytes
        self.over()


def _lower(one: int, other: int) -> int:
    """Gives the lower of two rates, of which -1 is none."""
    return max(one, other) if -1 in (one, other) else min(one, other)
