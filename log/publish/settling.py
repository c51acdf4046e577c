"""
What every publisher does with an owner's open segment before its ledgers come behind it; and what it is told.

Knows: how long a fresh segment is left alone, and that another publisher may settle the same one.
Does not know: what is published.

Safety: a segment is closed only with the counts of its closed ledger.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from quire.log.core.manifest import Manifest
from quire.log.core.values import Counts
from quire.log.store.context import LogContext
from quire.log.store.settling import settled
from quire.metadata.clock import pause

# SPDX-License-Identifier: Apache-2.0

FRESH_S = 0.2  # that an owner's segment is left to carry something before a publisher fences it


Tidied = Callable[[int, int], Awaitable[None]]  # waited for after a publication: the newest stamp before and with it


class Receipt(NamedTuple):
    """
    What was published: indexes from `first` to `end` - 1, in those segments.  `batch`: of a txn, -1 for ledgers that
    were adopted.  `again`: it was published before.
    """

    batch: int
    first: int
    end: int
    segments: tuple[int, ...]
    again: bool


class Settling:
    """The open segments that one publisher to a log meets."""

    def __init__(self, context: LogContext) -> None:
        self._clock = context.client.reactor
        self._log = context.log
        self._ledgers = context.ledgers
        self._reached = context.reached
        self._seen = (-1, 0.0)  # the newest open segment, and when it was seen first

    async def wait(self, manifest: Manifest) -> bool:
        """Leaves an open segment the time to carry something; False: the manifest has changed, look at it again."""
        segment = manifest.open_segment
        if segment is None:
            return True
        now = self._clock.seconds()
        if self._seen[0] != segment.n:
            self._seen = segment.n, now
        left = self._seen[1] + FRESH_S - now
        if left > 0:
            await pause(self._clock, left)
            return (await self._log.read()).value.open_segment == segment
        return True

    async def end(self, manifest: Manifest) -> tuple[int, Counts] | None:
        """
        Brings an open segment to its end: its number and what it holds; None: there is none, or it is another one now.
        `SegmentLost`.
        """
        found = await settled(self._log, self._ledgers, manifest)
        if found is not None:
            self._reached("publish.settled")
        return found
