"""
Looking at the metadata of all ledgers before anything is copied: which of them name a lost bookie, and how much is to
be copied.

Knows: that ids are counted first and metadata is read many at a time.  Does not know: how a ledger is freed.

Bounded: ids in eight bytes each; of what was read only the metadata of closed ledgers is kept, and of so many.  That of
an unclosed one is read again when its turn comes: its writer may have replaced the bookie, and must not be fenced then.
"""

from array import array
from collections.abc import AsyncIterator, Callable, Iterable

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import LedgerError, NoSuchLedgerExistsOnMetadataServer
from quire.replication.concurrently import about_one
from quire.replication.core.fragments import copies_of, entry_bytes, fragments_naming, writer_depends_on
from quire.replication.freeing.run import OPERATIONS_MAX, Named, Run, Stored

# SPDX-License-Identifier: Apache-2.0

KEPT_MAX = 10_000  # ledgers whose metadata is kept for their turn: some ten megabytes


async def all_ids(client: Client) -> AsyncIterator[int]:
    """Of all ledgers, ascending."""
    after = -1
    while page := await client.ledger_ids(after):
        for ledger in page:
            yield ledger
        after = page[-1]


async def survey(run: Run, ledgers: Iterable[int] | None) -> list[Named]:
    """Those of the ledgers, or of all, that name a lost bookie; what can't be read is noted as failed."""
    ids = array("q", ledgers or ())
    if ledgers is None:
        async for ledger in all_ids(run.client):
            ids.append(ledger)
    run.count(ledgers_total=len(ids))
    found: list[Named] = []
    for start in range(0, len(ids), OPERATIONS_MAX):
        some = ids[start : start + OPERATIONS_MAX].tolist()
        for ledger, stored in zip(some, await read_each(run.client, some, run.fail), strict=True):
            if stored is not None and not stored.value.bookies().isdisjoint(run.lost):
                kept = stored.value.is_closed and len(found) < KEPT_MAX
                found.append(Named(ledger, stored if kept else None, _count(run, ledger, stored.value)))
        run.count(ledgers_seen=len(some))
    return found


async def read_each(client: Client, ledgers: list[int], fail: Callable[[int, str], None]) -> list[Stored | None]:
    """What is stored of each; None of one that is not there, or can't be read: `fail` hears why.  `MetaStore`."""
    try:
        return await client.store.read_ledgers(ledgers)
    except LedgerError:
        return [await _read_one(client, ledger, fail) for ledger in ledgers]


async def _read_one(client: Client, ledger: int, fail: Callable[[int, str], None]) -> Stored | None:
    try:
        return await client.store.read_ledger(ledger)
    except NoSuchLedgerExistsOnMetadataServer:
        return None
    except LedgerError as error:
        await about_one(client.store, error)
        fail(ledger, str(error))
        return None


def _count(run: Run, ledger: int, metadata: LedgerMetadata) -> int:
    """What there is to do for a ledger; how many entries are to be copied."""
    fragments = fragments_naming(metadata, run.lost)
    run.named.append(ledger)
    entries = sum(copies_of(metadata, fragment) for fragment in fragments)
    run.count(ledgers_named=1, entries_total=entries, bytes_total=entries * entry_bytes(metadata))
    if run.dry_run:
        closing = int(writer_depends_on(metadata, run.lost))
        run.count(fragments=len(fragments), entries=entries, ledgers_recovered=closing, ledgers_done=1)
    return entries
