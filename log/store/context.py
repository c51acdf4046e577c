"""
The context of all work on one log: its records, the client, options, and how old something is, as far as clocks can be
believed.

Knows: these parts; the store's clock, this machine's time of day, and one that is never set; that nothing is old when
they differ.
Does not know: what is done with the log, what goes by age.
"""

from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from quire.client.api import Client
from quire.conf.log import LogOptions
from quire.log.core.streams.rates import Together
from quire.log.store.editing import LogRecords
from quire.log.store.leases import Leases
from quire.log.store.ledgers import LogLedgers
from quire.metadata.clock import Boottime
from quire.metadata.records import Records
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

APART_MS = 60_000
DOUBTED_MS = 3600_000  # for which a clock that was set is not believed: all rounds of all logs, and time to look at it


class Ages:
    """`now`: time of day in seconds, `boottime`: a clock never set.  One for all rounds, for jumps show between two."""

    def __init__(self, now: Callable[[], float], boottime: Boottime) -> None:
        self._now = now
        self.boottime = boottime
        self._apart = self._now_apart()  # time of day less the time since the machine was started, in ms
        self._set_by = 0.0
        self._believed_from = 0.0  # by the time since the machine was started

    def _now_apart(self) -> float:
        return (self._now() - self.boottime()) * 1000

    async def now_ms(self, records: Records, newest_ms: int = 0) -> int | None:
        """
        The lower of both times of day; None, with a warning, when they are a minute apart, for an hour after it shows
        that this machine's was set, or when `newest_ms`, a stamp that is there, lies in the future.
        """
        here, boot = self._now() * 1000, self.boottime() * 1000
        before, self._apart = self._apart, self._now_apart()
        if abs(self._apart - before) > APART_MS:
            self._set_by, self._believed_from = self._apart - before, boot + DOUBTED_MS
        store = await records.clock()
        lower = min(int(here), store)
        wrong = ""
        if abs(here - store) > APART_MS:
            wrong = f"the metadata store's time of day is {store} ms, this machine's {int(here)} ms"
        elif boot < self._believed_from:
            wrong = f"this machine's time of day was set by {int(self._set_by)} ms less than an hour ago"
        elif newest_ms > lower + APART_MS:
            wrong = f"the newest stamp is {newest_ms} ms, and the time of day {lower} ms"
        if not wrong:
            return lower
        log.warn("nothing goes by its age: {wrong}: `timedatectl` shows this machine's clock", wrong=wrong)
        return None


TRIES_MAX = 100  # each upon a manifest that changed meanwhile


class LogContext(NamedTuple):
    """`ages`, `together`: one for all logs of a process.  `reached(name)` is called right after each step."""

    client: Client
    log: LogRecords
    ledgers: LogLedgers
    options: LogOptions
    ages: Ages
    reached: Callable[[str], None]
    together: Together | None = None

    @property
    def leases(self) -> Leases:
        """The log's lease, for work that ends it."""
        return Leases(self.log, self.client.reactor, self.ages.boottime, self.reached)

    def too_many_conflicts(self) -> MetaStore:
        """The error of work during which the manifest changed too often."""
        return MetaStore(f"the manifest of the log {self.log.log} changed {TRIES_MAX} times meanwhile: try it again")
