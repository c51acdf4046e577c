"""
When an owner acts by itself: how long it waits before it tries again, when a segment is to end, when appends are too
old, when an idle owner says what is confirmed, and how long a handle tries to become the owner and to leave in order.

Knows: these times; the settings of now, and those that the open segment was made with; when the handle began to leave,
and which operation the metadata store did not answer.
Does not know: what is done then, how a segment ends, what a try consists of.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from twisted.logger import Logger

from quire.conf.log import LogOptions, LogSettings
from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.manifest import Manifest
from quire.log.core.ownership import Ownership, State
from quire.log.core.values import Counts
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock, Timer
from quire.metadata.store import StoreClosed
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0

# After a failed create or recovery, or when too few heard what is confirmed: the first wait, doubled up to the last.
RETRY_S = (0.2, 5.0)
FENCE_S = (0.2, 5.0)  # that a publisher has to go first
FENCE_CALM_S = 10.0  # without a fence for so long the wait is short again
CHECKS_PER_APPEND_TIME = 30  # of deadlines
# What no open segment can change.
OF_A_SEGMENT = ("ensemble", "write", "ack", "digest", "compression", "lease_ms", "dedup")


class OwnerTimers:
    """Each timer is set again by its method; `stop` ends all of them."""

    def __init__(self, clock: Clock, random: Random, options: LogOptions) -> None:
        self._clock = clock
        self._random = random
        self._options = options
        self._waits: dict[str, float] = {}
        self._fenced_at = -FENCE_CALM_S
        self._begun_at = 0.0  # the segment
        self._timers: dict[str, Timer] = {}

    def set(self, name: str, seconds: float, fn: Callable[[], object]) -> None:
        self.cancel(name)
        self._timers[name] = self._clock.callLater(seconds, fn)

    def cancel(self, name: str) -> None:
        """Cancels that timer, if it runs."""
        timer = self._timers.pop(name, None)
        if timer is not None and timer.active():
            timer.cancel()

    def stop(self) -> None:
        """All of them."""
        for name in list(self._timers):
            self.cancel(name)

    def again(self, why: str, fn: Callable[[], object], name: str = "") -> None:
        """Sets the timer with that name, or one of its own: each time after twice the wait, until `calm`."""
        low, high = FENCE_S if why == "fence" else RETRY_S
        if why == "fence":
            now = self._clock.seconds()
            if now - self._fenced_at > FENCE_CALM_S:
                self.calm("fence")
            self._fenced_at = now
        seconds = self._waits.get(why, low)
        self._waits[why] = min(seconds * 2, high)
        self.set(name or f"again {why}", seconds, fn)

    def calm(self, why: str) -> None:
        """The next wait for that is short again."""
        self._waits.pop(why, None)

    def patience(self, seconds: float, fn: Callable[[], object]) -> None:
        """When another has had the claim for so long; it goes on if it runs."""
        timer = self._timers.get("patience")
        if timer is None or not timer.active():
            self.set("patience", seconds, fn)

    def deadlines(self, fn: Callable[[], object]) -> None:
        """When appends may be too old the next time."""
        self.set("deadlines", self._options.append_ms / 1000 / CHECKS_PER_APPEND_TIME, fn)

    def roll(self, settings: LogSettings, fn: Callable[[], object], begins: bool = False) -> None:
        """When the segment is old that begins now, or began when this was called last with `begins`."""
        now = self._clock.seconds()
        if begins:
            self._begun_at = now
        age = settings.roll_age_ms / 1000 * self._random.uniform(0.95, 1.05)
        self.set("roll", max(0.0, self._begun_at + age - now), fn)

    def idle(self, fn: Callable[[], object]) -> None:
        """When nothing came for a while after an acknowledgement."""
        self.calm("idle")
        self.set("idle", self._options.lac_ms / 1000, fn)


class Rolling:
    """`end` asks for the end of the open segment; it is asked for once in each."""

    def __init__(self, records: LogRecords, timers: OwnerTimers, end: Callable[[], object]) -> None:
        self._records = records
        self._timers = timers
        self._end = end
        self._settings: tuple[Manifest, LogSettings] | None = None
        self._made_with: LogSettings | None = None
        self._is_open = False
        self._why = ""  # its end was asked for

    @property
    def settings(self) -> LogSettings:
        """The settings of the newest known manifest, checked once for each; the last ones of a log that is gone."""
        known = self._records.known
        if known is not None and (self._settings is None or self._settings[0] is not known.value):
            self._settings = known.value, LogSettings.of(known.value.settings)
        return LogSettings() if self._settings is None else self._settings[1]

    def making(self) -> LogSettings:
        """Gives the settings of the ledger that is made now."""
        self._made_with = self.settings
        return self._made_with

    def begun(self) -> None:
        """A segment is open, with the ledger that was made last."""
        self._is_open, self._why = True, ""
        self._timers.roll(self.settings, lambda: self.roll("age"), begins=True)

    def look(self) -> None:
        """There is a newer manifest."""
        before = self._made_with
        if not self._is_open or before is None or self._records.known is None:
            return
        now = self.settings
        if any(getattr(now, name) != getattr(before, name) for name in OF_A_SEGMENT):
            self.roll("settings")
        elif now.roll_age_ms != before.roll_age_ms:
            self._made_with = now
            self._timers.roll(now, lambda: self.roll("age"))

    def filled(self, counts: Counts) -> None:
        """Ends the segment if so much is enough."""
        settings = self.settings
        if counts.records >= settings.roll_records:
            self.roll("records")
        elif counts.bytes >= settings.roll_bytes:
            self.roll("bytes")

    def roll(self, why: str) -> None:
        """The open segment ends, if there is one; the next append begins another."""
        if self._is_open and not self._why:
            self._why = why
            self._end()

    def ended(self) -> None:
        """Notes that the segment is no longer written, for whatever reason."""
        if self._is_open and self._why:
            self._records.counters.rolled(self._why)
        self._is_open = False
        self._timers.cancel("roll")


log = Logger()

LEAVE_S = 5.0  # in which a store that fails to answer a handle that leaves is asked again
BEGINNING = frozenset({State.WAITING, State.CLAIMING, State.SETTLING})


class Patience:
    """
    The time that one handle has.  Another one's claim is waited for `wait_s`; so long an answer of the store may fail,
    too, and the first that fails later ends the handle.  `look` asks the store for the claim, should nothing else be
    asked then.  A handle that leaves has `LEAVE_S`.
    """

    def __init__(
        self,
        records: LogRecords,
        clock: Clock,
        timers: OwnerTimers,
        machine: Ownership,
        feed: Callable[[m.Input], None],
    ) -> None:
        self._records = records
        self._clock = clock
        self._timers = timers
        self._machine = machine
        self._feed = feed
        self._wait_s: float | None = None
        self._until = 0.0
        self._leave_until: float | None = None

    def begin(self, wait_s: float | None, poll_s: float, look: Callable[[], object]) -> None:
        """`wait_s` None: without end."""
        self._wait_s = wait_s
        if wait_s is not None:
            self._until = self._clock.seconds() + wait_s

            def ask() -> None:
                if self._machine.state is State.WAITING:
                    look()

            self._timers.set("ask", wait_s + poll_s, ask)

    def taken(self) -> None:
        """Another one has the claim."""
        if self._wait_s is not None and self._machine.state is State.WAITING:
            self._timers.patience(self._wait_s, self._give_up)

    def _give_up(self) -> None:
        if self._machine.state is State.WAITING:
            known = self._records.known
            self._feed(m.Deposed(edits.not_owned(self._records.name, None if known is None else known.value)))

    def leave(self, to: str) -> None:
        """The log goes to the candidate with that token; empty: to nobody."""
        self._leave_until = self._clock.seconds() + LEAVE_S
        self._feed(m.Transfer(to))

    def left(self, error: LedgerError | None) -> None:
        """The handle is over; `error`: why it left without what belongs to that."""
        if error is not None:
            log.warn(
                "the owner of the log {name} left without its manifest saying so, for the metadata store did not "
                "answer: {error}; what was acknowledged is in the log, its next owner brings the last segment to its "
                "end, and the claim goes with this session: `quire metadata show` tells whether the store answers",
                name=self._records.name,
                error=str(error),
            )

    def unanswered(self, error: MetaStore | ClientClosed) -> None:
        """The store failed to answer, or this program closed it."""
        if self._leave_until is not None:
            if isinstance(error, StoreClosed | ClientClosed) or self._clock.seconds() >= self._leave_until:
                self._feed(m.GiveUp(error))
            return
        beginning = self._machine.state in BEGINNING
        if beginning and self._wait_s is not None and self._clock.seconds() >= self._until:
            self._feed(m.Deposed(error))


@contextmanager
def name_log_in_errors(name: str) -> Iterator[None]:
    """Has errors of the store name the log that was to be owned, and what to do next."""
    try:
        yield
    except MetaStore as error:
        if type(error) is not MetaStore:  # it says by itself what to do
            raise
        raise MetaStore(
            f"the log {name!r} could not be owned: {error}: own it again once the metadata store answers, which "
            "`quire metadata show` tells"
        ) from error
