"""
The metadata of a ledger that is brought back: there from the beginning, with a mark that sends readers to the copy.

Knows: when a ledger may be brought back, and when it is.  Does not know: entries.

Safety: the ledger is closed from the first moment on, so nobody recovers half of it; the mark goes once each copy on
each bookie has been read back.  A ledger that is there is never touched.
"""

from dataclasses import replace

from quire.client.api import Client
from quire.client.handles.copies import RESTORING
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.placement.choice import wish_of
from quire.metadata.ledger import Fragment
from quire.pipeline.copies.manifest import Manifest
from quire.protocol.errors import LedgerExist, NoSuchLedger, Replication
from quire.replication.checker import check_ledger

# SPDX-License-Identifier: Apache-2.0


class NothingToDo(Exception):
    """The ledger needs no restoring; the text says why."""


async def claimed(client: Client, manifest: Manifest) -> LedgerRecord:
    """The ledger's metadata with new bookies and the mark; what an earlier attempt stored is taken up."""
    wanted, ledger = manifest.closed, manifest.ledger
    try:
        found = await client.store.read_ledger(ledger)
    except NoSuchLedger:
        bookies = await client.choice.ensemble(wanted.ensemble_size, wish_of(wanted))
        moved = replace(wanted, fragments=(Fragment(0, tuple(bookies)),)).with_custom(RESTORING, b"true")
        found = await client.store.create_ledger(ledger, moved)
    if found.value.identity != wanted.identity:
        raise LedgerExist(f"there is another ledger {ledger}, and an entry has its ledger's number in it")
    if RESTORING not in found.value.custom:
        raise NothingToDo("on bookies")
    return LedgerRecord(client.store, ledger, found)


async def check(client: Client, ledger: int) -> None:
    """`Replication` unless each bookie gives each entry that it should have."""
    found = await check_ledger(client, ledger)
    if not found.complete:
        raise Replication(
            f"ledger {ledger}: {found.copies_missing} of {found.copies_expected} copies are not on their bookies yet: "
            "restore it again"
        )


async def release(record: LedgerRecord) -> None:
    """Readers go to the bookies from now on."""
    await record.edit(lambda found: RESTORING in found.custom, lambda found: found.with_custom(RESTORING, None))
