"""
The ledgers of the queue that one worker does not try now: parked for itself, and noted for people and other workers
(protocol-rules.md 5.4).

Knows: that a ledger whose entries are gone is tried once an hour, and any other sooner, twice as late each time; that a
bookie which comes, or a new mark, may change all that; that what a scrub found, before a try or during it, stays noted
until the ledger is whole, and that one worker which finds entries gone speaks for all until the ledger is marked again.
Does not know: the queue, why a repair failed, how a ledger is repaired.

A ledger that nobody parks again for long was repaired by another worker, and is forgotten.
"""

import socket
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.repair_queue import Shortage
from quire.protocol.errors import MetaStore
from quire.replication.autorecovery.ledger import Outcome
from quire.replication.autorecovery.notes import FOUND, Note, Notes
from quire.replication.concurrently import all_of
from quire.replication.core.fragments import Outlook

# SPDX-License-Identifier: Apache-2.0

GONE_PAUSE_S = 3600.0
FORGOTTEN_S = 3600.0
FOR_LONG = (Outlook.GONE, Outlook.TOO_LARGE)  # a next try is in vain unless something changes
MARKS_LOOK_S = 60.0  # between two looks at the marks of ledgers that are gone
MARKS_MAX = 1000  # that are read in one look; the others' turn is in the next
MARKS_AT_ONCE = 100
LEAST_S = 0.1  # a worker whose pauses are zero does not spin
WORDS = {
    Outlook.REPAIRABLE: "tried again",
    Outlook.WAITS_FOR_SPARE: "waits for a spare bookie",
    Outlook.WAITS_FOR_WRITER: "waits for its writer",
    Outlook.GONE: "gone: entries without a copy",
    Outlook.TOO_LARGE: "waits for an operator: its metadata is too large for the store",
    None: "tried again",
}


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds: after the first try, and at most; for a ledger that is gone always `gone_s`."""

    first_s: float
    most_s: float
    gone_s: float = GONE_PAUSE_S


@dataclass(slots=True)
class Stay:
    """The wait of one ledger.  `until` None: it may be taken."""

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
        """Parks a ledger until the time that comes back, or until one of the bookies that are missing does."""
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
        """Parks a ledger until a given time, whatever its tries say."""
        stay = self._stays.setdefault(mark.ledger, Stay())
        stay.outlook, stay.missing, stay.mark, stay.until = outlook, mark.missing, mark.version, until
        heappush(self._times, (until, mark.ledger))

    def done(self, ledger: int) -> None:
        """Forgets a ledger that was repaired, or is not in the queue any more."""
        self._stays.pop(ledger, None)

    def wake(self, now: float) -> None:
        """Releases ledgers whose time has come."""
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
        """Releases ledgers that wait for one of these bookies, which are there now."""
        came = frozenset(bookies)
        self.arrivals += 1
        self._came.update(dict.fromkeys(came, self.arrivals))
        for stay in self._stays.values():
            if not came.isdisjoint(stay.missing):
                stay.until = None

    def spares_came(self) -> None:
        """Bookies are writable that were not: ledgers that wait for a spare may be taken."""
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
        """True if one of these came after so many `arrivals`: a try begun then may have missed it."""
        return any(self._came.get(bookie, 0) > arrivals for bookie in bookies)

    @property
    def due(self) -> float | None:
        """When `wake` has something to do; None: never."""
        return self._times[0][0] if self._times else None

    def counts(self) -> Counter[Outlook | None]:
        """How many are parked, by what is next for them; None: a try failed, and nobody knows."""
        return Counter(stay.outlook for stay in self._stays.values() if stay.until is not None)


class Waiting:
    """One worker's.  Seconds: after the first try, and at most."""

    log = Logger(namespace="quire.autorecovery")

    def __init__(self, client: Client, first_s: float, most_s: float) -> None:
        self.parked = Parked(Pauses(max(LEAST_S, first_s), max(LEAST_S, most_s)))
        self._client = client
        self._clock = client.reactor
        self._notes = Notes(client.store.records)
        self._unlooked: list[int] = []  # gone ledgers whose turn to have their mark read has not come
        self._look_at = client.reactor.seconds() + MARKS_LOOK_S

    async def note(self, ledger: int) -> Note | None:
        """Returns the note of a ledger, if there is one."""
        return await self._notes.read_one(ledger)

    async def look_at_marks(self) -> None:
        """Once a minute: what is parked as gone and was marked again may be taken; what was repaired is forgotten."""
        if self._clock.seconds() < self._look_at:
            return
        self._look_at = self._clock.seconds() + MARKS_LOOK_S
        self._unlooked = self._unlooked or self.parked.gone()
        some, self._unlooked = self._unlooked[:MARKS_MAX], self._unlooked[MARKS_MAX:]
        for start in range(0, len(some), MARKS_AT_ONCE):
            await all_of([self._look_at_mark(ledger) for ledger in some[start : start + MARKS_AT_ONCE]])

    async def _look_at_mark(self, ledger: int) -> None:
        shortage = await self._client.store.repairs.shortage(ledger)
        if shortage is None:
            self.parked.done(ledger)
        else:
            self.parked.marked(ledger, shortage.version)

    async def is_early(self, note: Note | None, mark: Shortage) -> bool:
        """
        True if a worker found its entries gone, or its metadata too large, within the hour, and neither a bookie came
        nor the ledger was marked again since; it is parked then.
        """
        if note is None or note.mark not in (None, mark.version):
            return False
        found = next((each for each in FOR_LONG if each.name == note.outlook), None)
        if found is None:
            return False
        left_ms = note.due_ms - await self._client.store.records.clock()
        if left_ms <= 0:
            return False
        listed = await self._client.store.known_bookies()
        if any(listed.find(bookie) is not None for bookie in mark.missing):
            return False
        until = self._clock.seconds() + min(left_ms / 1000, GONE_PAUSE_S)
        self.parked.hold(mark, found, until)
        return True

    async def over(self, ledger: int, note: Note | None) -> None:
        """Drops the note of a ledger that left the queue, unless it was written since."""
        self.parked.done(ledger)
        if note is not None:
            with suppress(MetaStore):  # then an auditor removes it
                await self._notes.drop(note)

    async def park(self, mark: Shortage, outcome: Outcome, note: Note | None, arrivals: int) -> None:
        """Parks a ledger as the queue had it; `note` of it before, `arrivals` when the try began."""
        ledger = mark.ledger
        if self.parked.came_since(arrivals, mark.missing):  # what was found may not hold any more
            outcome = outcome._replace(outlook=None, due_s=None)
        now = self._clock.seconds()
        until = self.parked.put(mark, outcome.outlook, now)
        if outcome.due_s is not None:
            until = now + outcome.due_s
            self.parked.hold(mark, outcome.outlook, until)
        tries = self.parked.tries(ledger)
        tell = self.log.warn if tries == 1 else self.log.debug
        tell(
            "ledger {ledger} {words}, next try in {seconds:.0f} s: {reason}",
            ledger=ledger,
            words=WORDS[outcome.outlook],
            seconds=until - now,
            reason="; ".join(outcome.reasons[:3]),
        )
        found = outcome.outlook.name if outcome.outlook is not None else "FAILED"
        if note is not None and note.is_of_a_scrub:
            found = FOUND  # all is to be read by the next try as well
        with suppress(MetaStore):  # for people only
            now_ms = await self._client.store.records.clock()
            due_ms = now_ms + int((until - now) * 1000)
            reason = "; ".join(outcome.reasons)
            here = socket.gethostname()
            new = Note(ledger, found, reason, tries, now_ms, due_ms, here, mark=mark.version)
            await self._notes.replace(note, new)
