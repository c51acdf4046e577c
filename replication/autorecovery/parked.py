"""
Ledgers that could not be repaired now, and when each is tried again (protocol-rules.md 5.4).

Knows: that a ledger whose entries are gone is tried once an hour, and any other sooner, twice as late each time; that
a bookie which comes, or a new mark, may change all that.
Does not know: why a repair failed, who asks.

A ledger that nobody parks again for long was repaired by another worker, and is forgotten.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush

from quire.metadata.repairs import Shortage
from quire.replication.core.outlook import Outlook

# SPDX-License-Identifier: Apache-2.0

GONE_PAUSE_S = 3600.0
FORGOTTEN_S = 3600.0
FOR_LONG = (Outlook.GONE, Outlook.TOO_LARGE)  # a next try is in vain unless something changes


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds: after the first try, and at most; for a ledger that is gone always `gone_s`."""

    first_s: float
    most_s: float
    gone_s: float = GONE_PAUSE_S


@dataclass(slots=True)
class Stay:
    """Of one ledger.  `until` None: it may be taken."""

    tries: int = 0
    until: float | None = None
    outlook: Outlook | None = None
    missing: tuple[str, ...] = ()
    mark: int = 0  # the version of what the queue said of it


class Parked:
    """By ledger.  Times are seconds of any clock that is never set.  `ledger in parked`: it is not to be taken now."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self.arrivals = 0  # how often bookies came
        self._came: dict[str, int] = {}  # of each the number of its last arrival
        self._stays: dict[int, Stay] = {}
        self._times: list[tuple[float, int]] = []  # a heap: when there is something to do about which ledger

    def __contains__(self, ledger: object) -> bool:
        stay = self._stays.get(ledger)  # type: ignore[call-overload]
        return stay is not None and stay.until is not None

    def __len__(self) -> int:
        return sum(stay.until is not None for stay in self._stays.values())

    def tries(self, ledger: int) -> int:
        """How often it was parked since it was repaired, if ever."""
        return self._stays[ledger].tries if ledger in self._stays else 0

    def put(self, mark: Shortage, outlook: Outlook | None, now: float) -> float:
        """Its ledger is not to be taken before the time that comes back, or one of the bookies that are missing."""
        stay = self._stays.setdefault(mark.ledger, Stay())
        stay.tries += 1
        pauses = self._pauses
        if outlook in FOR_LONG:
            pause = pauses.gone_s
        else:
            pause = min(pauses.most_s, pauses.first_s * 2.0 ** min(stay.tries - 1, 30))
        self.hold(mark, outlook, now + pause)
        return now + pause

    def hold(self, mark: Shortage, outlook: Outlook | None, until: float) -> None:
        """The same with a time that is given, whatever its tries say."""
        stay = self._stays.setdefault(mark.ledger, Stay())
        stay.outlook, stay.missing, stay.mark, stay.until = outlook, mark.missing, mark.version, until
        heappush(self._times, (until, mark.ledger))

    def done(self, ledger: int) -> None:
        """It was repaired, or it is not in the queue any more."""
        self._stays.pop(ledger, None)

    def wake(self, now: float) -> None:
        """Those whose time has come may be taken."""
        while self._times and self._times[0][0] <= now:
            time, ledger = heappop(self._times)
            stay = self._stays.get(ledger)
            if stay is None:
                continue
            if stay.until is None:
                del self._stays[ledger]
            elif stay.until == time:
                stay.until = None
                heappush(self._times, (now + FORGOTTEN_S, ledger))

    def bookies_came(self, bookies: Collection[str]) -> None:
        """These are there now: who waits for one of them need not wait longer."""
        came = frozenset(bookies)
        self.arrivals += 1
        self._came.update(dict.fromkeys(came, self.arrivals))
        for stay in self._stays.values():
            if not came.isdisjoint(stay.missing):
                stay.until = None

    def spares_came(self) -> None:
        """Bookies are writable that were not: who waits for a spare need not wait longer."""
        for stay in self._stays.values():
            if stay.outlook is Outlook.WAITS_FOR_SPARE:
                stay.until = None

    def gone(self) -> list[int]:
        """The ledgers that are parked for long, because entries are gone or the metadata is too large."""
        return [ledger for ledger, stay in self._stays.items() if stay.outlook in FOR_LONG and stay.until is not None]

    def marked(self, ledger: int, version: int) -> None:
        """The queue's mark has that version now: another one than before may name what can be repaired."""
        stay = self._stays.get(ledger)
        if stay is not None and stay.mark != version:
            stay.until = None

    def came_since(self, arrivals: int, bookies: Collection[str]) -> bool:
        """Whether one of these came when there had been so many `arrivals`: a try begun then may have missed it."""
        return any(self._came.get(bookie, 0) > arrivals for bookie in bookies)

    @property
    def due(self) -> float | None:
        """When `wake` has something to do; None: never."""
        return self._times[0][0] if self._times else None

    def counts(self) -> Counter[Outlook | None]:
        """How many are parked, by what is next for them; None: a try failed, and nobody knows."""
        return Counter(stay.outlook for stay in self._stays.values() if stay.until is not None)
