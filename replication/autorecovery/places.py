"""
Moving copies of closed ledgers to where the placement wants them.

Knows: which index of an ensemble to move, one after the other as long as each brings write sets further apart, and that
it is copied before it is named.
Does not know: who asked for it.
"""

from quire.client.api import Client
from quire.client.core.quorum import Domains
from quire.client.handles.ledger_record import LedgerRecord
from quire.protocol.errors import NotEnoughBookies, Replication
from quire.replication.core.fragments import HeldFragment
from quire.replication.freeing.moving import move
from quire.replication.mending import Mended, Mending
from quire.replication.scrub.ledgers import domains_of
from quire.replication.scrub.second_look import Look

# SPDX-License-Identifier: Apache-2.0


async def put_right(look: Look, how: Mending, done: Mended) -> None:
    """Moves what is in the wrong place; `done.left` has why a fragment is still there.  `how.lock` is held."""
    client, ledger = look.client, look.record.ledger
    domains = await domains_of(client, await client.store.known_bookies())
    if domains is None:
        return  # the placement promises nothing that could be kept
    assert how.lock is not None, "it was taken from the queue"
    await look.holds()
    record = look.record
    for first, last, bookies in record.metadata.fragment_ranges():
        while last is not None and not domains.serve(record.quorums, bookies):
            index, bookie = await _better(client, record, domains, bookies)
            if index < 0:
                done.left.append(f"ledger {ledger}, entries from {first} on: {domains.lack(bookies)}")
                break
            part = HeldFragment(first, last, bookies, (index,))
            try:
                await move(client, how.lock, record, part, bookie, done.copied, how.pace)
            except Replication as error:
                done.left.append(str(error))
                break
            bookies = replaced(bookies, index, bookie)


async def _better(client: Client, record: LedgerRecord, domains: Domains, bookies: tuple[str, ...]) -> tuple[int, str]:
    """An index, and a bookie in place of the one there, by which write sets are furthest apart; -1: none is better."""
    quorums = record.quorums
    best, found = domains.spread(quorums, bookies), (-1, "")
    for index in range(len(bookies)):
        try:
            bookie = await client.choice.spare(bookies, index, [], record.metadata)
        except NotEnoughBookies:
            break
        spread = domains.spread(quorums, replaced(bookies, index, bookie))
        if spread > best:
            best, found = spread, (index, bookie)
    return found


def replaced(bookies: tuple[str, ...], index: int, bookie: str) -> tuple[str, ...]:
    """The ensemble with another bookie at an index."""
    return (*bookies[:index], bookie, *bookies[index + 1 :])
