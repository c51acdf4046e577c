"""
One task's copying: ranges of entries from bookies, each into a file of its own.

Knows: how entries are read whole, with the digest checked.  Does not know: what is written down of the files.

Safety: a file has a name that nothing had before, so no task harms what another wrote.
"""

from dataclasses import dataclass

from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.manifest import File
from quire.pipeline.copies.places import Place
from quire.pipeline.core.ranges import Range
from quire.pipeline.offload.whole import opened, overhead_of, whole_entries
from quire.pipeline.offload.wishes import Problem, Reached, nothing
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What one task copies to where."""

    metadata: str
    to: str
    ranges: tuple[Range, ...]


def copy(task: CopyTask, reached: Reached = nothing) -> list[tuple[Range, File | Problem]]:
    """A file of each range, or why there is none."""
    ours, place = cluster(task.metadata), Place(task.to)
    made: list[tuple[Range, File | Problem]] = []
    for each in task.ranges:
        try:
            made.append((each, copied(ours, place, each, reached)))
        except (LedgerError, OSError) as error:  # the others may do
            made.append((each, Problem(each.ledger, f"{type(error).__name__}: {error}")))
    return made


def copied(ours: Cluster, place: Place, wanted: Range, reached: Reached) -> File:
    """Of one range.  `LedgerError`, `OSError`."""
    from quire.pipeline.copies.entries import GROUP_BYTES, EntryWriter

    record = ours.wait(lambda: opened(ours.client, wanted.ledger))
    name = f"part-{wanted.first}-{ours.new_id()[:16]}.parquet"
    coming = place.begin(f"{wanted.ledger}/{name}")
    writer = EntryWriter(coming, wanted.ledger, overhead_of(record))
    for run in ours.each(lambda: whole_entries(ours.client, record, wanted, GROUP_BYTES)):
        writer.add(run.first, run.payloads)
        reached("copy.group")
    writer.end()
    coming.end()
    reached("copy.written")
    coming.name()
    reached("copy.named")
    return File(name, wanted.first, wanted.last, writer.bytes, coming.size, writer.sum, coming.sum)
