"""
Free disk as weights for placement (docs/placement.md).

Knows: what bookies reported last about their disks, and for how long to believe it; the cap at a multiple of the
median.
Does not know: who is chosen.
"""

from collections.abc import Callable, Sequence
from statistics import median

from twisted.internet.defer import Deferred

from quire.client.connections.answers import InfoAnswer
from quire.protocol.errors import OK

# SPDX-License-Identifier: Apache-2.0

RETRY_SECONDS = 60.0  # a bookie that did not answer is asked again after that


def capped(free: Sequence[int], multiple: int) -> list[float]:
    """A bookie with nothing reported gets the smallest weight of all; none more than `multiple` medians (0: any)."""
    known = sorted(each for each in free if each > 0)
    if not known:
        return [1.0] * len(free)
    most = multiple * median(known) if multiple else float("inf")
    return [min(float(each if each > 0 else known[0]), most) for each in free]


class Weights:
    """`info` asks a bookie; `seconds` is the clock."""

    def __init__(
        self, seconds: Callable[[], float], info: Callable[[str], Deferred[InfoAnswer]], multiple: int, interval_ms: int
    ) -> None:
        self._seconds = seconds
        self._info = info
        self._multiple = multiple
        self._interval = interval_ms / 1000
        self._free: dict[str, int] = {}
        self._due: dict[str, float] = {}  # when each is asked again

    def weigh(self, bookies: Sequence[str]) -> list[float] | None:
        return capped([self._free.get(bookie, 0) for bookie in bookies], self._multiple)

    async def learn(self, bookies: Sequence[str]) -> None:
        """Asks those of whom nothing is known, or nothing new; one that does not answer waits for `RETRY_SECONDS`."""
        now = self._seconds()
        due = [bookie for bookie in sorted(bookies) if self._due.get(bookie, now) <= now]
        for one in [self._info(bookie).addCallback(self._heard, bookie, now) for bookie in due]:
            await one

    def _heard(self, answer: InfoAnswer, bookie: str, asked: float) -> None:
        """At once: who chooses may not wait for all others."""
        if answer.code == OK:
            self._free[bookie] = answer.free_bytes or 0
            self._due[bookie] = asked + self._interval
        else:
            self._due[bookie] = asked + min(self._interval, RETRY_SECONDS)
