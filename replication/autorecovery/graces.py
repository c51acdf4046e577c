"""
How long one worker waits: for bookies that are away to come back, and for the writers of open ledgers to replace those
that are lost (protocol-rules.md 5.3, 5.4).

Knows: when each bookie left, the delay of lost bookies, that a younger mark comes from a process that counts it as
lost; which last add confirmed an open ledger had, under which mark, and since when.
Does not know: what is done when the time is over.

Safety: a grace is over only when nothing moved during all of it, for this very mark: another mark, or another bookie
that is gone, begins another one.
"""

from collections.abc import Collection

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import Shortage
from quire.metadata.store import BookieList, BookieWatcher, Watch
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedgerExistsOnMetadataServer
from quire.replication.core.fragments import writer_depends_on
from quire.replication.scrub.ledgers import end_of

# SPDX-License-Identifier: Apache-2.0

UNREADABLE = -2  # in place of a last add confirmed that can't be had
FIRST_LOOK_S = 0.1  # between two looks whether the bookies were listed
KEPT_MAX = 10_000  # ledgers; the grace of the first one begins again


class Graces:
    """Those of writers, on a clock that is never set."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._seen: dict[int, tuple[object, float]] = {}

    async def left(
        self, ledger: int, metadata: LedgerMetadata, gone: Collection[str], shortage: Shortage
    ) -> float | None:
        """Seconds until an open ledger that depends on bookies that are gone is to be closed; None for any other."""
        if not writer_depends_on(metadata, gone):
            return None
        try:
            confirmed, _metadata = await end_of(self._client, ledger, metadata)
        except (MetaStore, NoSuchLedgerExistsOnMetadataServer):
            raise
        except LedgerError:
            confirmed = UNREADABLE
        now = self._client.reactor.seconds()
        state = confirmed, shortage, frozenset(gone)
        if ledger not in self._seen or self._seen[ledger][0] != state:
            self._seen.pop(ledger, None)
            self._seen[ledger] = state, now
        if len(self._seen) > KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        return self._seen[ledger][1] + self._seconds - now

    def over(self, ledger: int) -> None:
        """It is closed, or none of its bookies is gone."""
        self._seen.pop(ledger, None)


class Absent:
    """
    The bookies that left, on the same clock, as a watch reports them.  `delay_s` of lost bookies holds until one is
    said in the store; `arrivals`: how often bookies came.
    """

    def __init__(self, client: Client, delay_s: float = 0.0) -> None:
        self.arrivals = 0
        self._client = client
        self._delay_s = delay_s
        self._watch: Watch | None = None
        self._listed: BookieList | None = None  # as it was reported last
        self._here: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}

    def watch(self, then: BookieWatcher = lambda _listed: None) -> Watch:
        """Follows the lists until that is cancelled; `then` is called with each, after it was seen."""

        def heard(listed: BookieList) -> None:
            self.see(listed)
            then(listed)

        self._watch = self._client.store.watch_bookies(heard)
        return self._watch

    async def listed(self) -> BookieList:
        """Both lists as they were reported last; the store is not asked."""
        if self._watch is None:
            self.watch()
        while self._listed is None:
            await pause(self._client.reactor, FIRST_LOOK_S)
        return self._listed

    def see(self, listed: BookieList) -> None:
        """The bookies that are there now."""
        now, here = self._client.reactor.seconds(), frozenset((*listed.writable, *listed.read_only))
        follows = self._listed is not None and listed.follows(self._listed)
        if not follows:  # one that is away may have been back, and left just now
            self._since = dict.fromkeys(self._since, now)
        self.arrivals += not (follows and here <= self._here)
        self._listed = listed
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
        if not seen or marked_ms is None:
            return set()
        said = await self._client.store.auditing.delay()
        delay_s = self._delay_s if said is None else said
        if not delay_s:
            return set()
        now_ms, now = await self._client.store.records.clock(), self._client.reactor.seconds()
        away_s = {bookie: now - since for bookie, since in seen.items()}
        return {each for each, s in away_s.items() if s < delay_s and marked_ms < now_ms - 1000 * s}
