"""
Entries as bookies keep them: with head and digest.

Knows: how a reader is made to leave entries whole.  Does not know: what is done with them.

Safety: each entry's digest was checked.
"""

from collections.abc import AsyncGenerator, Sequence

from quire.client.api import Client, Reader
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.client.handles.range_reader import PayloadRun, ReaderNotes
from quire.pipeline.core.ranges import Range
from quire.protocol.digest import Digest

# SPDX-License-Identifier: Apache-2.0

READ_BYTES = 2 << 20  # asked for at a time


class Whole(Digest):
    """Checks entries as their digest does, and leaves them whole."""

    __slots__ = ()

    def open_run(self, ledger: int, first: int, bodies: Sequence[bytes]) -> list[bytes]:
        return list(bodies[: len(super().open_run(ledger, first, bodies))])


async def opened(client: Client, ledger: int) -> LedgerRecord:
    """The metadata of a closed ledger, from which it is read without its password."""
    return LedgerRecord(client.store, ledger, await client.store.read_ledger(ledger))


def overhead_of(record: LedgerRecord) -> int:
    """Bytes of an entry before its payload."""
    return digest_of(record.ledger, record.metadata).overhead


async def whole_entries(client: Client, record: LedgerRecord, wanted: Range) -> AsyncGenerator[PayloadRun, None]:
    """The entries of a range with head and digest, checked."""
    digest = Whole(digest_of(wanted.ledger, record.metadata).kind, record.metadata.password or b"")
    notes = ReaderNotes(wanted.ledger, client.health)
    reader = Reader(client.reactor, client.pool, record, digest, client.options, notes, client.handles.discard)
    client.handles.add(reader)
    reader.read_ahead(READ_BYTES)
    try:
        async for run in reader.runs(wanted.first, wanted.last):
            yield run
    finally:
        await reader.close()
