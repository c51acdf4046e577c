"""
Where bookies are: "/rack" or "/region/rack" (docs/placement.md).

Knows: the last known place of each bookie, how old it may get, and how far two places are apart.
Does not know: where places come from (`place_sources`), what placement does with them.

A bookie without a known place is in the default rack.  A source that fails changes nothing: what was known stays known.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from quire.metadata.store import ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable, LedgerError

# SPDX-License-Identifier: Apache-2.0

DEFAULT_RACK = "/default-rack"
STALE_SECONDS = 60.0  # a place is asked for again after that

Source = Callable[
    [Mapping[str, str]], Deferred[Mapping[str, str]]
]  # bookie -> host; bookie -> place of those that it knows


def is_default(place: str) -> bool:
    return place.endswith(DEFAULT_RACK)


def region_of(place: str) -> str:
    """ "/eu/r1" -> "eu"; a place without a region is in the default region."""
    parts = place.strip("/").split("/")
    return parts[0] if len(parts) > 1 else "default-region"


def nearness(ours: str, place: str) -> int:
    """0: our rack, 1: our region, 2: elsewhere.  All the same while ours is unknown."""
    if not ours or place == ours:
        return 0
    return 1 if region_of(place) == region_of(ours) and "/" in ours.strip("/") else 2


def host_of(bookie: str, info: ServiceInfo | None) -> str:
    try:
        return info.bookie_address()[0] if info is not None else bookie.rpartition(":")[0] or bookie
    except BookieHandleNotAvailable:
        return bookie


class Topology:
    """Bookies' places, as far as they are known.  `seconds`: the clock."""

    def __init__(self, seconds: Callable[[], float], source: Source | None) -> None:
        self._seconds = seconds
        self._source = source
        self._places: dict[str, str] = {}
        self._asked: dict[str, float] = {}  # when each was asked for, once that had an outcome
        self._turn = DeferredLock()
        self._log = Logger()

    def place_of(self, bookie: str) -> str:
        return self._places.get(bookie, DEFAULT_RACK)

    async def learn(self, bookies: Mapping[str, ServiceInfo | None] | Sequence[str]) -> None:
        """
        Asks for those whose place is unknown or was learned a while ago, one look-up at a time.  While another caller's
        is under way, who needs a place that was never asked for waits for it; old places serve meanwhile.
        """
        infos = bookies if isinstance(bookies, Mapping) else dict.fromkeys(bookies)
        if self._source is None or not self._stale(infos) or (self._turn.locked and self._asked.keys() >= infos.keys()):
            return
        await self._turn.acquire()
        try:
            await self._ask(self._source, {bookie: host_of(bookie, infos[bookie]) for bookie in self._stale(infos)})
        finally:
            self._turn.release()

    def _stale(self, bookies: Collection[str]) -> list[str]:
        oldest = self._seconds() - STALE_SECONDS
        return [bookie for bookie in sorted(bookies) if self._asked.get(bookie, oldest) <= oldest]

    async def _ask(self, source: Source, hosts: Mapping[str, str]) -> None:
        if not hosts:  # another caller asked for them meanwhile
            return
        now = self._seconds()
        try:
            self._places.update(await source(hosts))
        except (OSError, ValueError, LedgerError) as error:
            self._log.error("the places of {bookies} are not known: {why}", bookies=", ".join(hosts), why=str(error))
        self._asked.update(dict.fromkeys(hosts, now))
