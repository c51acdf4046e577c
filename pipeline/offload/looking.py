"""
Which ledgers there are to be offloaded: by number, or the segments of a log.

Knows: metadata, segments, and what can't be offloaded.  Does not know: marks' meaning, ages, copies.

Safety: an open ledger is never taken, nor a log's by its number: only its log decides what becomes of it.
"""

from collections.abc import AsyncGenerator

from quire.log.store.belonging import log_id_of
from quire.metadata.records import RecordStore
from quire.metadata.store import at_once
from quire.pipeline.clients import Cluster
from quire.pipeline.offload.marks import Subject, is_coming
from quire.pipeline.offload.wishes import Done, Wish
from quire.pipeline.reading.ledgers import AT_ONCE, selected
from quire.protocol.errors import NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


async def of_ledgers(cluster: Cluster, wish: Wish, done: Done) -> AsyncGenerator[Subject, None]:
    """Those that are named by number."""
    ids = await selected(cluster.client, wish.selection)
    for start in range(0, len(ids), AT_ONCE):
        for each in await at_once([of_ledger(cluster, ledger) for ledger in ids[start : start + AT_ONCE]]):
            if isinstance(each, Subject):
                yield each
            else:
                done.leave(each)


async def of_ledger(cluster: Cluster, ledger: int) -> Subject | str:
    """Or why it is left alone."""
    try:
        metadata = await cluster.client.metadata(ledger)
    except NoSuchLedger:
        return "not there"
    store = cluster.client.store
    assert isinstance(store, RecordStore), "this metadata store keeps no records"
    if await log_id_of(store.records, ledger, metadata) is not None:
        return "of a log: give its name with --log"
    if not metadata.is_closed:
        return "not closed"
    if is_coming(metadata):
        return "being restored"
    return Subject.plain(ledger, metadata)


async def of_log(cluster: Cluster, log: str, done: Done) -> AsyncGenerator[Subject, None]:
    """The closed segments of a log that bookies have."""
    async for segment in cluster.logs.segments(log):
        if segment.is_open or segment.lost or segment.is_moved:
            done.leave("not closed" if segment.is_open else "lost" if segment.lost else "deleted before")
            continue
        try:
            metadata = await cluster.client.metadata(segment.ledger)
        except NoSuchLedger:  # trimmed meanwhile, or lost: `quire log check` says which
            done.leave("not there")
            continue
        if not metadata.is_closed:
            done.leave("not closed")
            continue
        stamp = segment.t[1] if segment.t is not None else 0
        yield Subject(segment.ledger, metadata, segment.offload, stamp, segment.n)
