"""
The scrub of an auditor: from time to time every copy of every ledger is read, slowly, and what is wrong is handed to
the repair queue.

Knows: when a scrub is due, its rate, under which name it is gone on with by the next auditor (metadata-rules.md 13.3).
Does not know: how copies are looked at (`replication.scrub`), how they are mended: workers do that.

Safety: nothing is marked while that is not allowed, and only what a second look found.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.replication.autorecovery.notes import queued
from quire.replication.autorecovery.walk import left_s, until_answered
from quire.replication.concurrently import Pace
from quire.replication.scrub.judge import Finding
from quire.replication.scrub.point import AUDITOR, Point, Points
from quire.replication.scrub.run import Judged, ScrubProgress, ScrubRun, Told

# SPDX-License-Identifier: Apache-2.0

NEVER_S = 3600.0  # it looks at the time again so often


class Scrubs:
    """
    One auditor's.  `allowed` returns when ledgers may be marked; `interval_s`: from the start of one scrub to that of
    the next, 0: none; `bytes_per_second` 0: no limit; `ledgers_per_second` bounds how fast metadata is read.
    """

    log = Logger(namespace="quire.autorecovery")

    def __init__(
        self,
        client: Client,
        allowed: Callable[[], Awaitable[None]],
        *,
        interval_s: float,
        bytes_per_second: float,
        ledgers_per_second: float,
    ) -> None:
        self._client = client
        self._clock = client.reactor
        self._allowed = allowed
        self._interval_s = interval_s
        self._rate = bytes_per_second or None
        self._metadata = Pace(client.reactor, ledgers_per_second)
        self._points = Points(client.store.records, AUDITOR, lasting=True)
        self._progress: ScrubProgress | None = None  # of the last one
        self._marked = 0

    @property
    def figures(self) -> dict[str, int]:
        """Counts of the last scrub, also while it is under way, as far as this auditor has come with it."""
        if self._progress is None:
            return {}
        return {
            "scrub_ledgers_total": self._progress.ledgers_total,
            "scrub_ledgers": self._progress.ledgers_done,
            "scrub_bytes": self._progress.bytes,
            "scrub_findings": self._progress.findings,
            "marked_by_scrub": self._marked,
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._interval_s > 0:
            left = await until_answered(self._clock, self._seconds_left)
            if left <= 0:
                await until_answered(self._clock, self._scrub)
            else:
                await pause(self._clock, min(left, NEVER_S))

    async def _seconds_left(self) -> float:
        begun_ms = await self._points.ended()
        return left_s(self._interval_s, begun_ms, await self._client.store.records.clock())

    async def _scrub(self) -> None:
        """One, or what is left of it; when the store does not answer it is begun again, and goes on at its point."""
        self._marked = 0
        told = Told(self._seen, goes_on=self._goes_on)
        pace = Pace(self._clock, self._rate)
        run = ScrubRun(self._client, self._points, told, pace=pace, answer=self._queue, turn=self._turn)
        done = await run.run()
        self.log.info("all ledgers are scrubbed: {counts}", counts=done.counts)

    def _seen(self, progress: ScrubProgress) -> None:
        self._progress = progress

    def _goes_on(self, point: Point) -> None:
        self.log.info("the scrub of all ledgers goes on above ledger {after}", after=point.after)

    async def _turn(self, ledgers: int) -> None:
        await self._metadata.turn()
        await self._allowed()
        self._metadata.read(ledgers)

    async def _queue(self, findings: Sequence[Finding]) -> list[Judged]:
        await self._allowed()
        marked = await queued(self._client, findings)
        self._marked += marked
        self.log.warn(
            "found in ledgers {first} to {last}: {kinds}; {marked} are marked; `quire scrub --ledgers` names all",
            kinds=dict(Counter(each.kind for each in findings)),
            first=min(each.ledger for each in findings),
            last=max(each.ledger for each in findings),
            marked=marked,
        )
        return list(map(Judged, findings))
