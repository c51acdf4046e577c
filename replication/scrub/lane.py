"""
The first look: shares of one bookie, several at a time.

Knows: that the metadata is read anew, and that what it says now is what counts.
Does not know: how shares were put into lanes; what is made of what it sees (`judge`).
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby

from quire.client.api import Client
from quire.protocol.errors import MetadataSerialization, NoSuchLedgerExistsOnMetadataServer
from quire.replication.concurrently import each_of
from quire.replication.scrub.examine import Manner, Subject
from quire.replication.scrub.judge import Seen
from quire.replication.scrub.plan import Share

# SPDX-License-Identifier: Apache-2.0

SHARES_AT_ONCE = 3  # one is being read while another's digests are checked


async def looked_at(client: Client, lane: Sequence[Share], manner: Manner, by_lists: bool = False) -> list[Seen]:
    """
    What is seen of each share, in no order; nothing of a ledger that is not there.  `by_lists`: by the bookie's lists
    of what it has, without reading.
    """
    found: list[Seen] = []

    async def one(given: tuple[Share, Subject]) -> None:
        share, subject = given
        if subject.metadata.fragment_at(share.first).bookies[share.index] != share.bookie:
            found.append(Seen(share, [], {}, 0, moved=True))
            return
        examination = subject.examination(share.bookie, manner)
        if by_lists:
            missing = await examination.present(share.index, share.first, share.last)
            found.append(Seen(share, missing, {}, 0))
            return
        sums = subject.sums()
        missing = await examination.run(share.index, share.first, share.last, sums)
        found.append(Seen(share, missing, sums.found, examination.read_bytes))

    await each_of(_with_subjects(client, lane), one, SHARES_AT_ONCE)
    return found


async def _with_subjects(client: Client, lane: Iterable[Share]) -> AsyncIterator[tuple[Share, Subject]]:
    for ledger, shares in groupby(lane, key=lambda share: share.ledger):
        try:
            subject = Subject(client.pool, ledger, (await client.store.read_ledger(ledger)).value)
        except (NoSuchLedgerExistsOnMetadataServer, MetadataSerialization):
            continue  # deleted meanwhile; or the plan has a finding for it
        for share in shares:
            yield share, subject
