"""
One task's copying, ranges of entries from bookies, each into a file of its own; and one task's verifying, files read
back and held against what is written down of them, each entry against its digest.

Knows: how entries are read whole, with the digest checked; what a good file is.
Does not know: what is written down of the files, what follows from a bad one.

Safety: a file has a name that nothing had before, so no task harms what another wrote.  Each entry's digest was
checked.  What is written down is read back, too; nothing is taken from the task that wrote.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from quire.client.api import Client, Reader
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.client.handles.range_reader import PayloadRun, ReaderNotes
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import CopyDamaged, File, Manifest
from quire.pipeline.copies.places import Place
from quire.pipeline.copies.reading import manifest_of
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
    notes = ReaderNotes(wanted.ledger, client.health, client.counters)
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


HASHED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Files by their ledgers and names; None: only that the ledger's manifest can be read."""

    at: str
    files: tuple[tuple[int, str | None], ...]


def verify(task: VerifyTask) -> list[Problem]:
    """Lists what is wrong with the files of a task; a copy counts if that is []."""
    place = Place(task.at)
    problems = []
    for ledger, name in task.files:
        try:
            check(place, ledger, name)
        except (CopyDamaged, OSError) as error:
            problems.append(Problem(ledger, str(error)))
    return problems


def check(place: Place, ledger: int, name: str | None) -> None:
    """`CopyDamaged`, `OSError`."""
    manifest = manifest_of(place, ledger)
    if manifest is None:
        raise CopyDamaged(f"there is no manifest of ledger {ledger} any more")
    if name is None:
        return
    file = next((each for each in manifest.files if each.name == name), None)
    if file is None:
        raise CopyDamaged(f"the manifest of ledger {ledger} no longer names {name}")
    check_bytes(place, manifest, file)
    check_entries(place, manifest, file)


def check_bytes(place: Place, manifest: Manifest, file: File) -> None:
    """Size and sum of the whole file."""
    size = found = 0
    with place.open(f"{manifest.ledger}/{file.name}") as stream:
        while data := stream.read(HASHED_BYTES):
            size += len(data)
            found = crc32c(data, found)
    if (size, found) != (file.size, file.file_sum):
        raise CopyDamaged(
            f"{file.name} of ledger {manifest.ledger}: {size} bytes with the sum {found}, not what was written"
        )


def check_entries(place: Place, manifest: Manifest, file: File) -> None:
    """Each entry is there, with its digest, and the payloads have their sum."""
    from quire.pipeline.copies.entries import EntryFile

    digest = digest_of(manifest.ledger, manifest.closed)
    following = file.first
    size = found = 0
    with place.open(f"{manifest.ledger}/{file.name}") as stream:
        for first, bodies in EntryFile(file.name, stream, file.first).groups():
            payloads = digest.open_run(manifest.ledger, following, bodies)
            if first != following or len(payloads) < len(bodies):
                raise CopyDamaged(
                    f"{file.name} of ledger {manifest.ledger}: entry {following + len(payloads)} is not what was copied"
                )
            for payload in payloads:
                found = crc32c(payload, found)
                size += len(payload)
            following += len(bodies)
    if (following, size, found) != (file.last + 1, file.bytes, file.payload_sum):
        raise CopyDamaged(
            f"{file.name} of ledger {manifest.ledger}: {following - file.first} entries of {size} bytes, not what was "
            "written"
        )
