"""
Moving copies of closed ledgers to where the placement wants them.

Knows: which index of an ensemble to move, and that it is copied before it is named.
Does not know: who asked for it.
"""

from quire.client.api import Client
from quire.client.core.quorum import Domains, Quorums
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import NotEnoughBookies
from quire.replication.copier import FragmentCopier, Moved
from quire.replication.core.fragments import HeldFragment
from quire.replication.scrub.ledgers import known

# SPDX-License-Identifier: Apache-2.0


async def put_right(client: Client, lock: RepairLock, moved: Moved) -> list[str]:
    """Why fragments of the lock's ledger are still where they should not be; nothing when all are right."""
    about = await known(client)
    record = LedgerRecord(client.store, lock.ledger, await client.store.read_ledger(lock.ledger))
    quorums = Quorums.of(record.metadata)
    left: list[str] = []
    if about.domains is None:
        return left
    for first, last, bookies in record.metadata.fragment_ranges():
        if last is None or about.domains.serve(quorums, bookies):
            continue
        found = await _better(client, record, about.domains, bookies)
        if found is None:
            left.append(f"ledger {lock.ledger}, entries from {first} on: {about.domains.lack(bookies)}")
            continue
        index, bookie = found
        copier = FragmentCopier(client.pool, record, HeldFragment(first, last, bookies, (index,)), frozenset(), moved)
        await copier.copy(index, bookie)
        if await client.store.repairs.holds(lock) and await copier.name({index: bookie}):
            await copier.keep(index, bookie)
    return left


async def _better(
    client: Client, record: LedgerRecord, domains: Domains, bookies: tuple[str, ...]
) -> tuple[int, str] | None:
    """An index, and a bookie in place of the one there, by which each write set is in enough domains."""
    for index in range(len(bookies)):
        try:
            bookie = await client.choice.spare(bookies, index, [], record.metadata)
        except NotEnoughBookies:
            return None
        after = [bookie if at == index else each for at, each in enumerate(bookies)]
        if domains.serve(Quorums.of(record.metadata), after):
            return index, bookie
    return None
