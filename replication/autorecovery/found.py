"""
What a scrub found, handed to the repair queue.

Knows: which findings copies make good, that the note comes before the mark, and that a mark which names nothing new is
made afresh: a repair that is under way began without the note.
Does not know: how they came about, who repairs.
"""

from collections.abc import Sequence
from itertools import groupby
from socket import gethostname

from quire.client.api import Client
from quire.replication.autorecovery.notes import FOUND, Note, Notes
from quire.replication.scrub.judge import MENDED_BY_COPIES, Finding

# SPDX-License-Identifier: Apache-2.0


async def queued(client: Client, findings: Sequence[Finding]) -> int:
    """How many ledgers were marked, each with a note by which its copies are read before it leaves the queue."""
    store, notes = client.store, Notes(client.store.records)
    wanted = sorted((each for each in findings if each.kind in MENDED_BY_COPIES), key=lambda each: each.ledger)
    count = 0
    for ledger, some in groupby(wanted, key=lambda each: each.ledger):
        ours = list(some)
        now_ms = await store.records.clock()
        kinds = ", ".join(sorted({each.kind for each in ours}))
        await notes.write(Note(ledger, FOUND, f"a scrub found: {kinds}", 0, now_ms, now_ms, gethostname()))
        await store.repairs.mark(ledger, sorted({each.bookie for each in ours}), now_ms, afresh=True)
        count += 1
    return count
