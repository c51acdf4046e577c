"""
Naming a bookie's new id in the ledgers that name its old one.

Knows: that the same directories have the new id, so nothing is copied; that a writer or a repair may change a ledger
meanwhile.
Does not know: why the id changed, how directories get it (`bookie/lifecycle/cookie_changes.py`).

Safety: the old id is not registered, the cluster has a cookie of the new one, and no ensemble names both: two copies on
one bookie are one.  Metadata changes by compare-and-set.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.errors import IllegalOp, LedgerError
from quire.replication.concurrently import about_one
from quire.replication.freeing.run import OPERATIONS_MAX, read_each
from quire.replication.lost_bookies import refuse_registered

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class Renamed:
    """How many ledgers named the old id, how many name the new one now, and the rest with the reason."""

    issued: int = 0
    updated: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)


async def rename_in_ledgers(
    client: Client,
    before: str,
    after: str,
    *,
    per_second: float,
    limit: int | None = None,
    seen: Callable[[int], object] = lambda _count: None,
) -> Renamed:
    """
    Names `after` where ledgers name `before`, in at most `limit` ledgers; `seen` hears how many were looked at.  To be
    called again after an interruption.  `IllegalOp` while `before` is up, or when the cluster does not know `after`.
    """
    await refuse_registered(client, [before])
    if before == after or after not in await client.store.cookies():
        raise IllegalOp(f"{after} has no cookie, so it can't have what {before} had: see `quire bookie list`")
    done, last = Renamed(), -1
    while page := await client.ledger_ids(last):
        for start in range(0, len(page), OPERATIONS_MAX):
            some = page[start : start + OPERATIONS_MAX]
            found = await read_each(client, some, lambda ledger, reason: done.failed.append((ledger, reason)))
            for ledger, stored in zip(some, found, strict=True):
                if stored is None or before not in stored.value.bookies():
                    continue
                if done.issued == limit:
                    return done
                done.issued += 1
                await _rename(client, ledger, stored, before, after, done)
                await pause(client.reactor, 1 / per_second)
            seen(len(some))
        last = page[-1]
    return done


async def _rename(
    client: Client, ledger: int, stored: Versioned[LedgerMetadata], before: str, after: str, done: Renamed
) -> None:
    def changed(metadata: LedgerMetadata) -> LedgerMetadata:
        for fragment in metadata.fragments:
            if before in fragment.bookies:
                if after in fragment.bookies:
                    raise IllegalOp(f"the fragment at entry {fragment.first} names {before} and {after}: they are two")
                named = [after if bookie == before else bookie for bookie in fragment.bookies]
                metadata = metadata.replace_bookies(fragment.first, named)
        return metadata

    try:
        await LedgerRecord(client.store, ledger, stored).edit(lambda now: before in now.bookies(), changed)
    except LedgerError as error:
        await about_one(client.store, error)
        done.failed.append((ledger, str(error)))
    else:
        done.updated += 1
