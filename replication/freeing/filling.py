"""
Making the copies that bookies lack of a ledger that was just closed: what was above the ack quorum and did not arrive,
or was refused for the fence.

Knows: that lists are asked for first; the share of a bookie that takes none, or can't be asked, goes to another.
Does not know: why the ledger was closed.

Safety: what can't be made good is in the repair queue, for a second run would not look at it again.
"""

from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import NotEnoughBookies, Replication
from quire.replication.copier import TargetFailed
from quire.replication.core.fragments import HeldFragment, fragments_naming
from quire.replication.freeing.copies import copier_of, copies
from quire.replication.freeing.naming import keep, name
from quire.replication.freeing.run import Run
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Suspicion
from quire.replication.scrub.second_look import Look

# SPDX-License-Identifier: Apache-2.0

LACKING = frozenset(("missing", "lost"))  # findings of copies that are not there


async def fill(run: Run, lock: RepairLock, record: LedgerRecord, first: int) -> None:
    """
    What is lacking of a closed ledger from entry `first` on.  `Replication`; `NotEnoughBookies`.
    """
    copies_of_it = [
        (index, max(first, begin), last)
        for begin, last, bookies in record.metadata.fragment_ranges()
        for index in range(len(bookies))
        if last is not None and last >= first
    ]
    suspicion = Suspicion(record.ledger, record.metadata.last_entry, copies_of_it)
    look = Look(run.client, record)
    lacking = await look.confirmed(suspicion, Manner(run.pace), by_lists=True)
    if not lacking:
        return
    record = look.record
    listed = await run.client.store.bookies()
    lacking = [found for found in lacking if listed.find(found.bookie) is not None]  # others are lost as a whole
    unable = {found.bookie for found in lacking if found.kind == "unreachable"}
    try:
        for found in lacking:
            if found.kind in LACKING and found.bookie not in unable:
                bookies = record.metadata.fragment_at(found.first).bookies
                part = HeldFragment(found.first, found.last, bookies, (found.index,))
                try:
                    await copier_of(run, record, part).copy(found.index, found.bookie)
                except TargetFailed:
                    unable.add(found.bookie)
        for fragment in fragments_naming(record.metadata, unable):
            if fragment.last is not None and fragment.last >= first:
                moved = await copies(run, record, fragment)
                named = (await name(run.client.store, lock, record, [moved])).moved
                run.count(fragments=len(named))
                await keep(run.client.store, named, record.ledger)
                if moved.unread is not None:
                    raise moved.unread
    except (Replication, NotEnoughBookies):
        short = sorted({found.bookie for found in lacking})
        await run.client.store.repairs.mark(record.ledger, short, None, afresh=True)
        raise
