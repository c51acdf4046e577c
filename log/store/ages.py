"""
How old something is, as far as clocks can be believed.

Knows: the store's clock, this machine's time of day, and one that is never set; that nothing is old when they differ.
Does not know: what goes by age.
"""

from collections.abc import Callable

from twisted.logger import Logger

from quire.metadata.clock import Boottime
from quire.metadata.records import Records

# SPDX-License-Identifier: Apache-2.0

log = Logger()

APART_MS = 60_000


class Ages:
    """
    `now` is the time of day in seconds, `boottime` a clock that is never set.  One for all rounds of a process, for a
    jump shows between two of them.
    """

    def __init__(self, now: Callable[[], float], boottime: Boottime) -> None:
        self._now = now
        self.boottime = boottime
        self._before: float | None = None  # time of day less the time since the machine was started, in ms

    async def now_ms(self, records: Records, newest_ms: int = 0) -> int | None:
        """
        The lower of both times of day; None, with a warning, when they are a minute apart, when this machine's was set,
        or when `newest_ms`, a stamp that is there, lies in the future.
        """
        here = self._now() * 1000
        apart = here - self.boottime() * 1000
        before, self._before = self._before, apart
        store = await records.clock()
        lower = min(int(here), store)
        wrong = ""
        if abs(here - store) > APART_MS:
            wrong = f"the metadata store's time of day is {store} ms, this machine's {int(here)} ms"
        elif before is not None and abs(apart - before) > APART_MS:
            wrong = f"this machine's time of day was set by {int(apart - before)} ms"
        elif newest_ms > lower + APART_MS:
            wrong = f"the newest stamp is {newest_ms} ms, and the time of day {lower} ms"
        if not wrong:
            return lower
        log.warn("nothing goes by its age: {wrong}: `timedatectl` shows this machine's clock", wrong=wrong)
        return None
