"""
One task's verifying: files read back and held against what is written down of them, each entry against its digest.

Knows: what a good file is.  Does not know: who wrote it, what follows from the answer.

Safety: what is written down is read back, too; nothing is taken from the task that wrote.
"""

from dataclasses import dataclass

from crc32c import crc32c

from quire.client.handles.ledger_record import digest_of
from quire.pipeline.copies.manifest import CopyDamaged, File, Manifest
from quire.pipeline.copies.places import Place
from quire.pipeline.copies.reading import manifest_of
from quire.pipeline.offload.requests import Problem

# SPDX-License-Identifier: Apache-2.0

READ_BYTES = 4 << 20


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
        while data := stream.read(READ_BYTES):
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
