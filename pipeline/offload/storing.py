"""
The entries of a copy on their way to bookies, bit for bit.

Knows: which entries belong to which place of an ensemble, how much a bookie is given at a time.
Does not know: the ledger's metadata as it changes, when it is complete.

Safety: an entry counts as stored once its bookie says so, which it does after its disk did.
"""

from collections.abc import Iterable, Sequence

from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.metadata.store import at_once
from quire.pipeline.clients import Cluster
from quire.pipeline.copies.reading import OffloadedLedger
from quire.pipeline.offload.wishes import Reached
from quire.protocol.errors import Write
from quire.replication.core.fragments import runs_on
from quire.replication.target import Target, WritePool

# SPDX-License-Identifier: Apache-2.0

BATCH_BYTES = 2 << 20  # to each bookie at a time


def store_copy(ours: Cluster, copy: OffloadedLedger, record: LedgerRecord, reached: Reached) -> None:
    """All its entries to all bookies that are to have them.  `CopyDamaged`, `Write`."""
    for first, bodies in copy.groups():
        ours.wait(lambda first=first, bodies=bodies: store(ours.client.pool, record, first, bodies))  # type: ignore[misc]  # binds this turn's
        reached("group")


async def store(pool: WritePool, record: LedgerRecord, first: int, bodies: Sequence[bytes]) -> None:
    """Consecutive entries, to each bookie its own."""
    key = digest_of(record.ledger, record.metadata).master_key
    ensemble = record.metadata.fragments[0].bookies
    await at_once(
        [
            to_bookie(
                Target(pool, bookie, record.ledger, key),
                runs_on(record.quorums, index, first, first + len(bodies) - 1),
                first,
                bodies,
            )
            for index, bookie in enumerate(ensemble)
        ]
    )


async def to_bookie(target: Target, runs: Iterable[tuple[int, int]], first: int, bodies: Sequence[bytes]) -> None:
    """Of entries from `first` on those in runs (first id, count), some at a time."""
    pieces: list[tuple[int, list[bytes]]] = []
    size = 0
    try:
        for start, count in runs:
            for entry in range(start, start + count):
                body = bodies[entry - first]
                if pieces and pieces[-1][0] + len(pieces[-1][1]) == entry:
                    pieces[-1][1].append(body)
                else:
                    pieces.append((entry, [body]))
                size += len(body)
                if size >= BATCH_BYTES:
                    await stored(target, pieces)
                    pieces, size = [], 0
        if pieces:
            await stored(target, pieces)
    finally:
        target.close()


async def stored(target: Target, pieces: list[tuple[int, list[bytes]]]) -> None:
    """`Write` when the bookie does not have them on its disk."""
    code = await target.store(pieces)
    if code:
        raise Write(f"ledger {target.ledger}: bookie {target.bookie} could not store entries (code {code})")
