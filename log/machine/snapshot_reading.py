"""
A snapshot that is read back, whole.

Knows: how a damaged snapshot differs from one that can't be read now.
Does not know: what the data mean, which snapshot is chosen.

Safety: nobody is given a part of one whose count and sum are not those of the manifest.
"""

from crc32c import crc32c

from quire.log.core.machine.snapshot_ledger import Content, End, Head, check_end, check_head
from quire.log.core.values import Snapshot
from quire.log.machine.snapshot_naming import is_whole
from quire.log.store.context import LogContext
from quire.protocol.errors import DigestMatch, NoSuchEntry, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

DAMAGE = (DigestMatch, LogDamaged, UnknownFormat, NoSuchEntry, NoSuchLedger)  # that reading again does not mend


async def read_snapshot(context: LogContext, snapshot: Snapshot) -> list[bytes]:
    """
    The data, in the entries in which they were written.  Any of `DAMAGE` when it can't be read ever; other errors
    of reading a ledger.
    """
    metadata = await context.client.metadata(snapshot.ledger)
    if not is_whole(metadata, snapshot):
        raise LogDamaged(f"ledger {snapshot.ledger} is {metadata.state.name} at entry {metadata.last_entry}")
    ledger = await context.client.open_ledger(snapshot.ledger, metadata.password or b"", recover=False)
    content, found = Content(crc32c), list[bytes]()
    try:
        async for some in ledger.stream(0, metadata.last_entry):
            for entry in some:
                if entry.entry_id == 0:
                    check_head(Head.decode(entry.data), context.log.log, snapshot)
                elif entry.entry_id == metadata.last_entry:
                    check_end(End.decode(entry.data), content, snapshot)
                else:
                    found.append(content.add(entry.data))
    finally:
        await ledger.close()
    return found
