"""
Ledgers that may be offloaded, and their marks: a plain one's is in its custom metadata, that of a log's segment in the
log's manifest.

Knows: both forms of the mark, changed by compare-and-set; the order of a deletion; what can't be offloaded.
Does not know: ages, whether a copy is good.

Safety: an open ledger is never taken, nor a log's by its number: only its log decides what becomes of it.  A mark takes
the place of the one that was read, or of none, and only of the very ledger that was read; a ledger goes only once its
mark says so, and when no log has taken it in until then.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from quire.client.handles.copies import MARK, RESTORING, Mark, mark_of
from quire.client.handles.ledger_record import LedgerRecord
from quire.log.core.upkeep_edits import check_mark
from quire.log.store.ledgers import log_id_of
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import at_once
from quire.pipeline.clients import Cluster
from quire.pipeline.offload.requests import OffloadRequest, OffloadResult, Reached
from quire.pipeline.reading.ledgers import AT_ONCE, selected
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import NoSuchLog, PublishRefused, SegmentLost

# SPDX-License-Identifier: Apache-2.0

SUM_MAX = (1 << 32) - 1
Look = Callable[[Cluster, int], Awaitable["Subject | str"]]


class MarkMoved(Exception):
    """The mark is not what was read before, or what it is on has gone."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A closed ledger that may be offloaded, as it was found.  `segment`: its number in the log, if it is a log's."""

    ledger: int
    metadata: LedgerMetadata
    mark: Mark | None
    at_ms: int  # how old it is goes by this
    segment: int | None = None

    @classmethod
    def plain(cls, ledger: int, metadata: LedgerMetadata) -> "Subject":
        """Makes the subject of a ledger that is no log's."""
        return cls(ledger, metadata.with_custom(MARK, None), mark_of(metadata), metadata.ctime_ms or 0)


def is_coming(metadata: LedgerMetadata) -> bool:
    """True if the ledger is just being brought back."""
    return RESTORING in metadata.custom


def complete(run: str, uri: str, sum_: int, at_ms: int) -> dict[str, Any]:
    """The mark of a ledger whose copy is verified.  `sum`: the manifest's."""
    return {"id": run, "state": "complete", "uri": uri, "sum": sum_, "at": at_ms, "bookies": "kept"}


def check_length(run: str, uri: str, at_ms: int) -> None:
    """`ValueError` when a manifest's URI leaves no room in the mark of a segment."""
    try:
        check_mark({**complete(run, uri, SUM_MAX, at_ms), "bookies": "deleted"})
    except ValueError as error:
        raise ValueError(f"{uri} is too long for a log's segments: {error}: give a shorter one") from None


async def put(cluster: Cluster, log: str | None, subject: Subject, mark: Mark | None) -> None:
    """Puts a mark in place of the one that was read.  `MarkMoved`."""
    if subject.segment is not None:
        assert log is not None, "a segment is one of a log"
        try:
            await cluster.logs.mark(log, subject.segment, mark, subject.mark, subject.ledger)
        except (PublishRefused, SegmentLost, NoSuchLog) as error:
            raise MarkMoved(str(error)) from None
        return

    def needs(metadata: LedgerMetadata) -> bool:
        if metadata.identity != subject.metadata.identity:
            raise MarkMoved(f"ledger {subject.ledger} is another one by now")
        found = mark_of(metadata)
        if found not in (mark, subject.mark):
            raise MarkMoved(f"ledger {subject.ledger} was marked by another run")
        return found != mark

    value = None if mark is None else json.dumps(mark).encode()
    store = cluster.client.store
    try:
        record = LedgerRecord(store, subject.ledger, await store.read_ledger(subject.ledger))
        await record.edit(needs, lambda metadata: metadata.with_custom(MARK, value))
    except NoSuchLedger:
        raise MarkMoved(f"ledger {subject.ledger} was deleted meanwhile") from None


async def delete(cluster: Cluster, log: str | None, subject: Subject, look: Look, reached: Reached) -> None:
    """
    Bookies lose a ledger that has a verified copy.  Of a log's the log's upkeep deletes it, once it is marked.
    `look`: whether a plain one may still be deleted.  `MarkMoved`.
    """
    assert subject.mark is not None, "only what is offloaded is deleted"
    gone = {**subject.mark, "bookies": "deleted"}
    await put(cluster, log, subject, gone)
    reached("mark.deleted")
    if subject.segment is None:
        why = await look(cluster, subject.ledger)
        if isinstance(why, str):
            await put(cluster, None, replace(subject, mark=gone), subject.mark)
            raise MarkMoved(why)
        await cluster.client.delete_ledger(subject.ledger)
        reached("deleted")


async def of_ledgers(cluster: Cluster, request: OffloadRequest, done: OffloadResult) -> AsyncGenerator[Subject, None]:
    """Yields ledgers that are named by number."""
    ids = await selected(cluster.client, request.selection)
    for start in range(0, len(ids), AT_ONCE):
        for each in await at_once([of_ledger(cluster, ledger) for ledger in ids[start : start + AT_ONCE]]):
            if isinstance(each, Subject):
                yield each
            else:
                done.leave(each)


async def of_ledger(cluster: Cluster, ledger: int) -> Subject | str:
    """Looks at a ledger; returns the reason where it is left alone."""
    try:
        metadata = await cluster.client.metadata(ledger)
    except NoSuchLedger:
        return "not there"
    store = cluster.client.store
    if await log_id_of(store.records, ledger, metadata) is not None:
        return "of a log: give its name with --log"
    if not metadata.is_closed:
        return "not closed"
    if is_coming(metadata):
        return "being restored"
    return Subject.plain(ledger, metadata)


async def of_log(cluster: Cluster, log: str, done: OffloadResult) -> AsyncGenerator[Subject, None]:
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
