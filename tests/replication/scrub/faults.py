"""Faults in entry logs of bookies that run: a bit flipped, sectors never written, a wrong id; and missing copies."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from quire.bookie.logs.format import IDS, SIZE
from quire.bookie.logs.walk import UNLIMITED, LogWalk
from quire.client.api import Client
from quire.client.handles.ledger_record import digest_of
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import HEADER, DigestType
from quire.replication.replicas import PASSING, Target
from tests.pipeline.jobs.faults import good, payload

# SPDX-License-Identifier: Apache-2.0

ENTRIES = 100
KINDS = ("flip", "cut", "wrong id", "missing")


class Copy(NamedTuple):
    """An entry on a bookie."""

    ledger: int
    bookie: str
    entry: int


async def closed(client: Client, bookies: Sequence[str], lacking: Iterable[Copy] = ()) -> int:
    """A closed ledger, each of whose entries is on all its bookies, but for some copies."""
    ledger = await client.store.new_ledger_id()
    metadata = LedgerMetadata.new(len(bookies), len(bookies), 2, bookies, DigestType.CRC32C, b"")
    stored = await client.store.create_ledger(ledger, metadata)
    end = stored.value.closed(ENTRIES - 1, ENTRIES * len(payload(0)))
    await client.store.write_ledger(ledger, end, stored.version)
    for bookie in bookies:
        bodies = good(ledger, ENTRIES)
        for copy in lacking:
            if copy.bookie == bookie:
                del bodies[copy.entry]
        target = Target(client.pool, bookie, ledger, digest_of(ledger, metadata).master_key)
        code = await target.store([(entry, [body]) for entry, body in bodies.items()])
        target.close()
        assert code == 0
    return ledger


async def with_faults(client: Client, bookies: Sequence[str], count: int, dice: Random) -> dict[Copy, str]:
    """
    Closed ledgers with so many copies, of each entry one at most, that are to be bad, by how; those that are to be
    missing are so already.
    """
    faults: dict[Copy, str] = {}
    each = 10 if count < 200 else 50
    for number in range(count // each):
        three = [bookies[(number + step) % len(bookies)] for step in range(3)]
        bad = [Copy(0, dice.choice(three), entry) for entry in dice.sample(range(ENTRIES), each)]
        kinds = {copy: KINDS[at % len(KINDS)] for at, copy in enumerate(bad)}
        ledger = await closed(client, three, [copy for copy in bad if kinds[copy] == "missing"])
        faults |= {copy._replace(ledger=ledger): kind for copy, kind in kinds.items()}
    assert len(faults) == count
    return faults


def spoil(directories: Mapping[str, Path], faults: Mapping[Copy, str], dice: Random) -> None:
    """Puts the faults into the entry logs, which have all entries; `directories` of ledgers by bookie."""
    for bookie, directory in directories.items():
        records = offsets(directory)
        for copy, kind in faults.items():
            if copy.bookie == bookie and kind != "missing":
                damage(*records[copy.ledger, copy.entry], kind, dice)


def offsets(directory: Path) -> dict[tuple[int, int], tuple[Path, int, int]]:
    """Of each record: the file, where it begins, the size of its body."""
    found = {}
    for path in sorted(directory.rglob("*.log")):
        with path.open("rb", buffering=0) as file:

            def read(at: int, count: int, number: int = file.fileno()) -> bytes:
                return os.pread(number, count, at)

            walk = LogWalk(read, path.stat().st_size, str(path), UNLIMITED)
            for ledger, entry, at, size in walk.heads():
                found[ledger, entry] = path, at, size
    return found


def damage(path: Path, at: int, size: int, kind: str, dice: Random) -> None:
    """Puts a fault into the record of an entry, in place."""
    with path.open("r+b", buffering=0) as file:
        record = bytearray(os.pread(file.fileno(), SIZE.size + size, at))
        if kind == "flip":
            record[SIZE.size + dice.randrange(HEADER.size, size)] ^= 1 << dice.randrange(8)
        elif kind == "cut":
            lost = dice.randrange(1, len(payload(0)))
            record[-lost:] = bytes(lost)
        else:
            ledger, entry = IDS.unpack_from(record, SIZE.size)
            IDS.pack_into(record, SIZE.size, ledger, entry + dice.randrange(1, 1000))
        os.pwrite(file.fileno(), record, at)


async def held(client: Client, ledger: int) -> list[dict[int, bytes]]:
    """What each bookie of a ledger has of it, up to the first entry that it has not."""
    found = []
    for bookie in (await client.metadata(ledger)).last_fragment.bookies:
        bodies: list[bytes] = []
        while len(bodies) < ENTRIES:  # a busy bookie may give some of them, or no answer in time
            answer = await client.pool.batch_read(bookie, ledger, len(bodies), ENTRIES - len(bodies), 1 << 20)
            if not answer.bodies and answer.code not in PASSING:
                break
            bodies += map(bytes, answer.bodies)
        found.append(dict(enumerate(bodies)))
    return found
