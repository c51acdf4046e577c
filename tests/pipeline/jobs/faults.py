"""Ledgers with any faults, on real bookies: metadata made by hand, entries sent to one bookie after another."""

from collections.abc import Mapping, Sequence
from typing import Any

from quire.client.handles.ledger_record import digest_of
from quire.metadata.ledger import LedgerMetadata
from quire.pipeline.clients import Cluster
from quire.protocol.digest import Digest, DigestType
from quire.replication.replicas import Target

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
Bodies = dict[int, bytes]


def here(work: Any, tasks: Sequence[Any]) -> list[Any]:
    """Runs tasks one after another in this process, as Spark would."""
    return [found for task in tasks for found in work(task)]


def payload(entry: int) -> bytes:
    return b"entry %06d" % entry


def good(ledger: int, entries: int) -> Bodies:
    """What each bookie should have."""
    size = len(payload(0))
    return {
        entry: DIGEST.entry(ledger, entry, entry - 1, size * (entry + 1), payload(entry)) for entry in range(entries)
    }


def damaged(body: bytes) -> bytes:
    """One bit flipped."""
    return body[:-1] + bytes([body[-1] ^ 1])


def wrong_copies(ledger: int) -> Bodies:
    """One of each kind: damaged, stale, another one, with a head that can't be."""
    size = len(payload(0))
    return {
        7: damaged(good(ledger, 8)[7]),
        30: DIGEST.entry(ledger, 30, 3, size * 31, payload(30)),
        40: DIGEST.entry(ledger, 40, 39, size * 41, b"entry xxxxxx"),
        50: DIGEST.entry(ledger, 50, 99_999, size * 51, payload(50)),
    }


async def send(ours: Cluster, ledger: int, bookie: str, bodies: Mapping[int, bytes]) -> None:
    """Puts entries onto a bookie as they are."""
    metadata = await ours.client.metadata(ledger)
    target = Target(ours.client.pool, bookie, ledger, digest_of(ledger, metadata).master_key)
    code = await target.store([(entry, [body]) for entry, body in sorted(bodies.items())])
    target.close()
    assert code == 0


def made(ours: Cluster, bookies: Sequence[str], entries: int, close: bool = True, length: int | None = None) -> int:
    """A ledger on these bookies that no bookie has anything of yet."""

    async def story() -> int:
        ledger = await ours.client.store.new_ledger_id()
        stored = await ours.client.store.create_ledger(
            ledger, LedgerMetadata.new(len(bookies), len(bookies), 2, bookies, DigestType.CRC32C, b"")
        )
        if close:
            end = stored.value.closed(entries - 1, entries * len(payload(0)) if length is None else length)
            await ours.client.store.write_ledger(ledger, end, stored.version)
        return ledger

    return ours.wait(story)


def filled(ours: Cluster, bookies: Sequence[str], entries: int) -> int:
    """A ledger in order."""
    ledger = made(ours, bookies, entries)

    async def story() -> None:
        for bookie in bookies:
            await send(ours, ledger, bookie, good(ledger, entries))

    ours.wait(story)
    return ledger


def faulty(ours: Cluster, bookies: Sequence[str], entries: int = 5000) -> tuple[int, list[tuple[str, str, int, int]]]:
    """A ledger with a fault of each kind on bookies in turn, and (kind, bookie, first, last) of what is to be found."""
    ledger = made(ours, bookies, entries)
    one, two, three = bookies[:3]
    have = {bookie: good(ledger, entries) for bookie in bookies}
    wrong = wrong_copies(ledger)
    for entry, bookie in ((7, one), (30, three), (40, one), (50, two)):
        have[bookie][entry] = wrong[entry]
    del have[two][entries - 150]
    for entry in range(entries - 100, entries):
        del have[three][entry]

    async def story() -> None:
        for bookie in bookies:
            await send(ours, ledger, bookie, have[bookie])

    ours.wait(story)
    return ledger, sorted(
        [
            ("damaged", one, 7, 7),
            ("missing", two, entries - 150, entries - 150),
            ("missing", three, entries - 100, entries - 1),
            ("stale", three, 30, 30),
            ("differs", one, 40, 40),
            ("head", two, 50, 50),
        ]
    )


def rows(findings: Sequence[Any]) -> list[tuple[str, str, int, int]]:
    """(kind, bookie, first, last), sorted."""
    return sorted((each.kind, each.bookie, each.first, each.last) for each in findings)
