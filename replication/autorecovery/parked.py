"""
Ledgers that could not be repaired now, and when each is tried again (protocol-rules.md 5.4).

Knows: that a ledger whose entries are gone is tried once an hour, and any other sooner, twice as late each time; that
a bookie which comes may change all that.
Does not know: why a repair failed, who asks.
"""

from collections.abc import Collection
from dataclasses import dataclass

from quire.replication.core.outlook import Outlook

# SPDX-License-Identifier: Apache-2.0

GONE_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds: after the first try, and at most; for a ledger that is gone always `gone_s`."""

    first_s: float
    most_s: float
    gone_s: float = GONE_PAUSE_S


class Parked:
    """By ledger.  Times are seconds of any clock that is never set.  `ledger in parked`: it is not to be taken now."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._tries: dict[int, int] = {}
        self._until: dict[int, float] = {}
        self._outlook: dict[int, Outlook | None] = {}
        self._missing: dict[int, tuple[str, ...]] = {}

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._until

    def __len__(self) -> int:
        return len(self._until)

    def tries(self, ledger: int) -> int:
        """How often it was parked since it was repaired, if ever."""
        return self._tries.get(ledger, 0)

    def put(self, ledger: int, outlook: Outlook | None, missing: tuple[str, ...], now: float) -> float:
        """It is not to be taken before the time that comes back, or one of the bookies that are missing."""
        tries = self._tries[ledger] = self.tries(ledger) + 1
        pauses = self._pauses
        if outlook is Outlook.GONE:
            pause = pauses.gone_s
        else:
            pause = min(pauses.most_s, pauses.first_s * 2.0 ** min(tries - 1, 30))
        self.hold(ledger, outlook, missing, now + pause)
        return now + pause

    def hold(self, ledger: int, outlook: Outlook | None, missing: tuple[str, ...], until: float) -> None:
        """The same with a time that is given, whatever its tries say."""
        self._outlook[ledger] = outlook
        self._missing[ledger] = missing
        self._until[ledger] = until

    def done(self, ledger: int) -> None:
        """It was repaired, or it is not in the queue any more."""
        for each in (self._tries, self._until, self._outlook, self._missing):
            each.pop(ledger, None)

    def wake(self, now: float) -> None:
        """Those whose time has come may be taken."""
        for ledger in [ledger for ledger, until in self._until.items() if until <= now]:
            del self._until[ledger]

    def bookies_came(self, bookies: Collection[str]) -> None:
        """These are there now: who waits for a spare, or for one of them, need not wait longer."""
        for ledger in list(self._until):
            if self._outlook[ledger] is Outlook.WAITS_FOR_SPARE or not set(self._missing[ledger]).isdisjoint(bookies):
                del self._until[ledger]

    @property
    def due(self) -> float | None:
        """When the next may be taken; None: nothing is parked."""
        return min(self._until.values(), default=None)

    def counts(self) -> dict[Outlook | None, int]:
        """How many are parked, by what is next for them; None: a try failed, and nobody knows."""
        found: dict[Outlook | None, int] = {}
        for ledger in self._until:
            outlook = self._outlook.get(ledger)
            found[outlook] = found.get(outlook, 0) + 1
        return found
