"""
An owner that keeps its log: it tidies it now and then, and can trim and end it.

Knows: how often.  Does not know: what a round does.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.log.owner.appending.appends import Position
from quire.log.owner.handle import Owner
from quire.log.store.kept import Kept
from quire.log.streams.quota import Quota
from quire.log.upkeep.ending import terminate
from quire.log.upkeep.tidying import TidyReport, tidy_log
from quire.log.upkeep.trims import trim
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

log = Logger()

ALL_MS = 3600_000  # between two rounds with all steps


class KeptOwner(Owner):
    """
    A log that this process owns, and keeps in order.  It ends for good when the ownership is lost.  `on_acknowledged`,
    if set, is given what was acknowledged, in order, after those were answered who appended it.
    """

    def __init__(self, kept: Kept, name: str, **options: Any) -> None:
        found = kept.client, kept.log, kept.ledgers, kept.options, name
        super().__init__(*found, together=kept.together, reached=kept.reached, boottime=kept.ages.boottime, **options)
        self.on_acknowledged: Callable[[Sequence[Any]], None] | None = None
        self._kept = kept
        self._random = kept.client.random
        self._tidy_no_more: Callable[[], None] = lambda: None
        self._all_at = 0.0
        self._quota = Quota(kept, self.window, lambda: self.end[:2])

    async def trim(self, before: int) -> int:
        """As `Logs.trim`."""
        return await trim(self._kept, before)

    async def terminate(self) -> Position:
        """Stores what was appended, and then the log takes nothing more; where it ends."""
        await self.close()
        end = await terminate(self._kept)
        self._error = self.records.ended()
        return end

    def owner(self, epoch: int) -> None:
        super().owner(epoch)
        self._all_at = self._clock.seconds() + ALL_MS / 1000
        self._tidy_later()
        self._quota.begin()

    def released(self, items: Sequence[Any]) -> None:
        super().released(items)
        if self.on_acknowledged is not None:
            self.on_acknowledged(items)

    def over(self, error: LedgerError | None) -> None:
        self._tidy_no_more()
        self._quota.end()
        super().over(error)

    def _tidy_later(self) -> None:
        wait_s = self._options.tidy_ms / 1000 * self._random.uniform(0.9, 1.1)
        timer = self._clock.callLater(wait_s, self.tidy)
        self._tidy_no_more = lambda: timer.cancel() if timer.active() else None

    def tidy(self) -> None:
        """A round now, and others later."""

        def failed(failure: Any) -> None:
            log.failure("a bug in the upkeep of the log {name}", failure, name=self.name)

        Deferred.fromCoroutine(self._tidy()).addErrback(failed)

    async def _tidy(self) -> None:
        brief, report = self._clock.seconds() < self._all_at, TidyReport()
        try:
            await tidy_log(self._kept, report, brief=brief)
        except LedgerError as error:
            report.failed[self.name] = str(error)
        finally:
            if not brief:
                self._all_at = self._clock.seconds() + ALL_MS / 1000
            if not self._over:
                self._tidy_later()
        for reason in report.failed.values():
            log.warn("the log {name} could not be tidied: {reason}", name=self.name, reason=reason)
