"""
The ledgers of the queue that one worker does not try now: parked for itself, and noted for people and other workers.

Knows: that what a scrub found, before a try or during it, stays noted until the ledger is whole, that who finds entries
gone speaks for all until the ledger is marked anew.
Does not know: the queue, how a ledger is repaired.
"""

import socket
from contextlib import suppress

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.repairs import Shortage
from quire.protocol.errors import MetaStore
from quire.replication.autorecovery.ledger import Outcome
from quire.replication.autorecovery.notes import FOUND, Note, Notes
from quire.replication.autorecovery.parked import FOR_LONG, GONE_PAUSE_S, Parked, Pauses
from quire.replication.concurrently import all_of
from quire.replication.core.outlook import Outlook

# SPDX-License-Identifier: Apache-2.0

MARKS_LOOK_S = 60.0  # between two looks at the marks of ledgers that are gone
MARKS_MAX = 1000  # that are read in one look; the others' turn is in the next
MARKS_AT_ONCE = 100
LEAST_S = 0.1  # a worker that is told to wait no time at all does not spin
WORDS = {
    Outlook.REPAIRABLE: "tried again",
    Outlook.WAITS_FOR_SPARE: "waits for a spare bookie",
    Outlook.WAITS_FOR_WRITER: "waits for its writer",
    Outlook.GONE: "gone: entries without a copy",
    Outlook.TOO_LARGE: "waits for an operator: its metadata is too large for the store",
    None: "tried again",
}


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
        """What is noted of it, if anything."""
        return await self._notes.read_one(ledger)

    async def look_at_marks(self) -> None:
        """Once a minute: what is parked as gone and was marked anew may be taken; what was repaired is forgotten."""
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
        Whether a worker found its entries gone, or its metadata too large, within the hour, and neither a bookie came
        nor the ledger was marked anew since; it is parked then.
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
        """It left the queue; what is noted goes, unless it was noted since."""
        self.parked.done(ledger)
        if note is not None:
            with suppress(MetaStore):  # then an auditor removes it
                await self._notes.drop(note)

    async def park(self, mark: Shortage, outcome: Outcome, note: Note | None, arrivals: int) -> None:
        """
        It could not be repaired as the queue had it; `note` is what was noted of it before, `arrivals`: how many when
        the try began.
        """
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
