"""
The repair of one ledger that was taken from the queue.

Knows: in which order what it is short of is made good, and when a writer that seems gone loses its ledger.
Does not know: the queue, when a ledger is tried again; how copies are made (`lost_bookies`, `mending`).

| a bookie that the mark names | then |
|---|---|
| the ledger does not name it any more | nothing is left to do for it |
| it is gone | what it held is copied to others; an open ledger is closed first when its writer does not replace it |
| it is there | what it lacks is found by its list, or by reading, and copied to it |

Safety: an open ledger is recovered, never merely copied, and only after its last add confirmed stood still for the
grace, while its last ensemble names a bookie that is gone.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import NoSuchLedgerExistsOnMetadataServer, Read
from quire.replication.autorecovery.places import put_right
from quire.replication.copier import Copied
from quire.replication.core.fragments import fragments_naming, writer_depends_on
from quire.replication.core.outlook import Outlook, outlook, short_fragments, short_of
from quire.replication.lost_bookies import recover_bookies
from quire.replication.mending import Mending, mend
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import MENDED_BY_COPIES, Suspicion
from quire.replication.scrub.ledgers import end_of
from quire.replication.scrub.pace import Pace
from quire.replication.scrub.second_look import second_look

# SPDX-License-Identifier: Apache-2.0

UNREADABLE = -2  # in place of a last add confirmed that can't be had


class Outcome(NamedTuple):
    """What became of a try.  `reasons`: why it is not whole; `due_s`: when to look again, if that is known."""

    reasons: tuple[str, ...] = ()
    outlook: Outlook | None = None
    due_s: float | None = None

    @property
    def done(self) -> bool:
        return not self.reasons


@dataclass(slots=True)
class Graces:
    """Which last add confirmed each open ledger had, and since when, on a clock that is never set."""

    seconds: float
    seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    def left(self, ledger: int, confirmed: int, now: float) -> float:
        """Seconds until its writer counts as gone, if nothing moves."""
        if ledger not in self.seen or self.seen[ledger][0] != confirmed:
            self.seen[ledger] = confirmed, now
        return self.seen[ledger][1] + self.seconds - now

    def over(self, ledger: int) -> None:
        self.seen.pop(ledger, None)


@dataclass(frozen=True, slots=True)
class How:
    """How ledgers are repaired: `moved` hears what was copied."""

    graces: Graces
    moved: Callable[[Copied], None]
    pace: Pace | None = None


async def repaired(client: Client, lock: RepairLock, how: How, full: bool = False) -> Outcome:
    """
    One try.  `full`: all that bookies which are there have is read, for a scrub found a wrong copy.  `LedgerError` for
    what is not this ledger's fault.
    """
    assert lock.shortage is not None, "it was taken from the queue"
    ledger = lock.ledger
    try:
        metadata = (await client.store.read_ledger(ledger)).value
        listed = await client.store.bookies()
        marked = short_of(metadata, lock.shortage.missing)
        gone = [bookie for bookie in marked if listed.find(bookie) is None]
        here = [bookie for bookie in marked if bookie not in gone]
        reasons: list[str] = []
        due_s = None
        lost = False
        if gone:
            due_s = await _grace(client, ledger, metadata, gone, how)
            freed = await recover_bookies(
                client,
                gone,
                fence=due_s is not None and due_s <= 0,
                even_if_registered=True,
                ledgers=[ledger],
                lock=lock,
                pace=how.pace,
            )
            how.moved(Copied(freed.progress.entries, freed.progress.bytes))
            reasons += [each.reason for each in freed.failed]
        if here:
            lost = await _mend(client, lock, here, how, full, reasons)
        if not lock.shortage.missing:
            reasons += await put_right(client, lock, how.moved)
        if not reasons:
            how.graces.over(ledger)
            return Outcome()
        after = (await client.store.read_ledger(ledger)).value
    except NoSuchLedgerExistsOnMetadataServer:
        return Outcome()
    found = Outlook.GONE if lost else outlook(short_fragments(after, gone, listed.writable))
    waiting = due_s if found is Outlook.WAITS_FOR_WRITER and due_s is not None and due_s > 0 else None
    return Outcome(tuple(reasons), found, waiting)


async def _grace(
    client: Client, ledger: int, metadata: LedgerMetadata, gone: Collection[str], how: How
) -> float | None:
    """Seconds until an open ledger that depends on bookies that are gone is to be closed; None for any other."""
    if not writer_depends_on(metadata, gone):
        return None
    try:
        confirmed, _metadata = await end_of(client, ledger, metadata)
    except Read:
        confirmed = UNREADABLE
    return how.graces.left(ledger, confirmed, client.reactor.seconds())


async def _mend(
    client: Client, lock: RepairLock, here: Collection[str], how: How, full: bool, reasons: list[str]
) -> bool:
    """Copies what bookies that are there lack; whether some entry has no copy at all."""
    metadata = (await client.store.read_ledger(lock.ledger)).value
    suspicion = Suspicion(lock.ledger, -1)
    for fragment in fragments_naming(metadata, here):
        if fragment.last is not None and fragment.last >= fragment.first:
            suspicion.last = max(suspicion.last, fragment.last)
            suspicion.copies += [(index, fragment.first, fragment.last) for index in fragment.indexes]
            if full:
                suspicion.differing.add((fragment.first, fragment.last))
    findings = await second_look(client, suspicion, Manner(how.pace), by_lists=not full)
    wrong = [each for each in findings if each.kind in MENDED_BY_COPIES]
    reasons += [
        f"ledger {lock.ledger}, entries {each.first} to {each.last}: {each.bookie}: {each.detail}"
        for each in findings
        if each.kind not in MENDED_BY_COPIES
    ]
    if not wrong:
        return False
    done = await mend(client, lock.ledger, wrong, Mending(lock=lock))
    how.moved(Copied(done.entries, done.bytes))
    reasons += done.left
    return bool(done.left) and any(each.kind == "lost" for each in wrong)
