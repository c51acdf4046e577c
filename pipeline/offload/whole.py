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
from quire.protocol.errors import NoSuchEntry

# SPDX-License-Identifier: Apache-2.0

READ_BYTES = 2 << 20  # asked for at a time


class Whole(Digest):
    """Checks entries as their digest does, and leaves them whole."""

    __slots__ = ()

    def open_run(self, ledger: int, first: int, bodies: Sequence[bytes]) -> list[bytes]:
        return list(bodies[: self.intact(ledger, first, bodies)])


async def opened(client: Client, ledger: int) -> LedgerRecord:
    """The metadata of a closed ledger, from which it is read without its password."""
    return LedgerRecord(client.store, ledger, await client.store.read_ledger(ledger))


def overhead_of(record: LedgerRecord) -> int:
    """Bytes of an entry before its payload."""
    return digest_of(record.ledger, record.metadata).overhead


async def whole_entries(
    client: Client, record: LedgerRecord, wanted: Range, bytes_each: int = READ_BYTES
) -> AsyncGenerator[PayloadRun, None]:
    """The entries of a range with head and digest, in runs of about so many bytes.  `NoSuchEntry` for a gap."""
    digest = Whole(digest_of(wanted.ledger, record.metadata).kind, record.metadata.password or b"")
    notes = ReaderNotes(wanted.ledger, client.health)
    reader = Reader(client.reactor, client.pool, record, digest, client.options, notes, client.handles.discard)
    client.handles.add(reader)
    reader.read_ahead(READ_BYTES)
    first, bodies, size = wanted.first, list[bytes](), 0
    try:
        async for run in reader.runs(wanted.first, wanted.last):
            if run.first != first + len(bodies):
                raise gap(wanted, first + len(bodies))
            bodies += run.payloads
            size += sum(map(len, run.payloads))
            if size >= bytes_each:
                yield PayloadRun(first, bodies)
                first, bodies, size = first + len(bodies), [], 0
    finally:
        await reader.close()
    if first + len(bodies) != wanted.last + 1:
        raise gap(wanted, first + len(bodies))
    if bodies:
        yield PayloadRun(first, bodies)


def gap(wanted: Range, entry: int) -> NoSuchEntry:
    """The error of an entry that did not come."""
    return NoSuchEntry(f"ledger {wanted.ledger}: entry {entry} is missing: `quire ledger check` finds out why")
