"""
Which bookies are away and not lost yet, as one worker saw them leave (protocol-rules.md 5.3).

Knows: when each of them left, the delay of lost bookies, that a mark which is younger comes from who counts it as lost.
Does not know: what is done about a bookie that is lost.
"""

from collections.abc import Collection

from quire.client.api import Client
from quire.metadata.repairs import Shortage
from quire.metadata.store import BookieList

# SPDX-License-Identifier: Apache-2.0


class Absent:
    """Those of one worker, on a clock that is never set."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._here: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}

    def see(self, listed: BookieList) -> None:
        """The bookies that are there now."""
        now, here = self._client.reactor.seconds(), frozenset((*listed.writable, *listed.read_only))
        self._since.update(dict.fromkeys(self._here - here, now))
        for bookie in here & self._since.keys():
            del self._since[bookie]
        self._here = here

    async def inside(self, bookies: Collection[str], shortage: Shortage) -> set[str]:
        """
        Those of the bookies that are inside the delay: none that had left before this worker looked, or whose mark says
        no time, or one since then.  `MetaStore`.
        """
        marked_ms = shortage.since_ms
        seen = {bookie: self._since[bookie] for bookie in bookies if bookie in self._since}
        delay_s = await self._client.store.auditing.delay() if seen and marked_ms is not None else 0
        if not delay_s or marked_ms is None:
            return set()
        now_ms, now = await self._client.store.records.clock(), self._client.reactor.seconds()
        away_s = {bookie: now - since for bookie, since in seen.items()}
        return {each for each, s in away_s.items() if s < delay_s and marked_ms < now_ms - 1000 * s}
