"""
One task's copying: ranges of entries from bookies, each into a file of its own.

Knows: how entries are read whole, with the digest checked.  Does not know: what is written down of the files.

Safety: a file has a name that nothing had before, so no task harms what another wrote.  Each entry's digest was
checked.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from quire.client.api import Client, Reader
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.client.handles.range_reader import PayloadRun, ReaderNotes
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import File
from quire.pipeline.copies.places import Place
from quire.pipeline.core.ranges import Range
from quire.pipeline.offload.requests import Problem, Reached, nothing
from quire.protocol.digest import Digest
from quire.protocol.errors import LedgerError, NoSuchEntry

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


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Ranges that one task copies, and to where."""

    metadata: str
    to: str
    ranges: tuple[Range, ...]


def copy(task: CopyTask, reached: Reached = nothing) -> list[tuple[Range, File | Problem]]:
    """A file of each range, or why there is none."""
    ours, place = cluster(task.metadata), Place(task.to)
    made: list[tuple[Range, File | Problem]] = []
    for each in task.ranges:
        try:
            made.append((each, copied(ours, place, each, reached)))
        except (LedgerError, OSError) as error:  # the others may do
            made.append((each, Problem(each.ledger, f"{type(error).__name__}: {error}")))
    return made


def copied(ours: Cluster, place: Place, wanted: Range, reached: Reached) -> File:
    """Copies one range into a file.  `LedgerError`, `OSError`."""
    from quire.pipeline.copies.entries import GROUP_BYTES, EntryWriter

    record = ours.wait(lambda: opened(ours.client, wanted.ledger))
    name = f"part-{wanted.first}-{ours.new_id()[:16]}.parquet"
    coming = place.begin(f"{wanted.ledger}/{name}")
    writer = EntryWriter(coming, wanted.ledger, overhead_of(record))
    for run in ours.each(lambda: whole_entries(ours.client, record, wanted, GROUP_BYTES)):
        writer.add(run.first, run.payloads)
        reached("copy.group")
    writer.end()
    coming.end()
    reached("copy.written")
    coming.name()
    reached("copy.named")
    return File(name, wanted.first, wanted.last, writer.bytes, coming.size, writer.sum, coming.sum)
