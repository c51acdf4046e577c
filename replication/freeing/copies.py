"""
Making the copies of one fragment on bookies that are chosen for them.

Knows: that another bookie is tried when one fails, and how many are.
Does not know: how entries are read and stored (`copier`), when the metadata names the new bookies (`naming`).
"""

from collections.abc import Callable
from dataclasses import replace

from quire.client.handles.ledger_record import LedgerRecord
from quire.protocol.errors import Replication
from quire.replication.copier import Copied, FragmentCopier, TargetFailed, Unread
from quire.replication.core.fragments import HeldFragment, bookies_before, copies_of
from quire.replication.freeing.naming import Moved
from quire.replication.freeing.run import Run

# SPDX-License-Identifier: Apache-2.0

TARGETS_MAX = 3  # new bookies tried for one fragment


def copier_of(
    run: Run, record: LedgerRecord, fragment: HeldFragment, done: Callable[[Copied], None] = lambda _step: None
) -> FragmentCopier:
    """The copier of a fragment, by the settings of a run, which hears what it copies, as `done` does."""

    def count(step: Copied) -> None:
        run.count(entries=step.entries, bytes=step.bytes)
        done(step)

    return FragmentCopier(
        run.client.pool,
        record,
        fragment,
        run.dead,
        count,
        wrong=run.wrong,
        pace=run.pace,
        memory=run.memory,
        gone=run.accepted.get(record.ledger, ()),
    )


async def copies(run: Run, record: LedgerRecord, fragment: HeldFragment) -> Moved:
    """
    What lost bookies held of a fragment, on others.  Of a closed ledger the part before an entry that can't be read,
    and the reason, so that no try copies it again.  `Replication`; `NotEnoughBookies`.
    """
    size = 0

    def count(step: Copied) -> None:
        nonlocal size
        size += step.bytes

    copier = copier_of(run, record, fragment, count)
    bookies: dict[int, str] = {}
    unread: Unread | None = None
    before = bookies_before(record.metadata, fragment)
    entries = copies_of(record.metadata, fragment) // len(fragment.indexes)
    first = fragment.first
    # the index of the first entry first: where that can't be read nothing is copied
    for index in sorted(fragment.indexes, key=lambda each: record.quorums.next_of(each, first - 1)):
        failed: list[str] = []
        while True:
            ensemble = [bookies.get(at, each) for at, each in enumerate(fragment.bookies)]
            excluded = sorted({*run.lost, *failed})
            bookie = await run.spare(ensemble, index, excluded, record.metadata, before.get(index))
            run.getting[bookie] += entries
            try:
                try:
                    await copier.copy(index, bookie)
                except Unread as error:
                    if not record.metadata.is_closed or error.entry <= first:
                        raise
                    unread, fragment = error, replace(fragment, last=error.entry - 1)
                    copier.end_at(error.entry - 1)
                if run.verify:
                    await copier.verify(index, bookie)
                break
            except TargetFailed as error:
                failed.append(bookie)
                if len(failed) == TARGETS_MAX:
                    raise Replication(f"ledger {record.ledger}, entries from {fragment.first} on: {error}") from error
            finally:
                run.getting[bookie] -= entries
        bookies[index] = bookie
    return Moved(fragment, bookies, copier, size, unread)
