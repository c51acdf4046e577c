"""
The holds that keep a log from being trimmed: durable cursors, kept snapshots, compaction, the table of producers, a
move that is to bring these.

Knows: from which index on each needs the log.  Does not know: what is trimmed.

Safety: whoever adds a hold, or moves one back, moves the manifest in the same step.  So the holds are read after the
version of the manifest that a trim replaces, and none is overlooked.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from quire.log.core.manifest import Chunk, Manifest
from quire.log.core.streams.cursors import DELETING, CursorValue
from quire.log.core.values import Segment
from quire.log.store.editing import LogRecords
from quire.metadata.records import NoRecord, RecordChanged
from quire.metadata.store import Versioned, at_once
from quire.protocol.log_errors import PublishRefused

# SPDX-License-Identifier: Apache-2.0

READ_AT_ONCE = 100


class Hold(NamedTuple):
    """`what` needs the records from `index` on."""

    what: str
    needs: int


async def holds(log: LogRecords, manifest: Manifest) -> list[Hold]:
    """All of them.  `LogDamaged` for a cursor that can't be understood; `NoRecord` for a chunk that has gone."""
    cursors = [Hold(f"the cursor {name!r}", mark) for name, mark in await open_marks(log)]
    of = manifest.mirrored
    moves = [] if of is None or not of.held else [Hold("the move to this cluster", manifest.begin.index)]
    return [*cursors, *moves, *await own_holds(log, manifest)]


async def own_holds(log: LogRecords, manifest: Manifest) -> list[Hold]:
    """Gives holds without cursors: of an owner, replica or round of upkeep.  `NoRecord`: a chunk has gone."""
    found: list[Hold] = []
    settings = manifest.settings
    if settings.get("needs_snapshot"):
        kept = min((each.index for each in manifest.snapshots), default=0)
        found.append(Hold("the oldest kept snapshot" if kept else "the first snapshot, which is not there yet", kept))
    if settings.get("compaction"):
        done = manifest.standing
        found.append(Hold("the compaction by key", 0 if done is None else done.horizon + 1))
    if settings.get("dedup") and manifest.table is not None:
        table = await segment_of(log, manifest, manifest.table)
        found.append(Hold("the table of producers", manifest.begin.index if table is None else table.first))
    return found


async def open_marks(log: LogRecords) -> list[Hold]:
    """Gives the marks of all cursors that are not being deleted, by name; the lowest mark first."""
    found = [value for _id, (value, _version) in await cursors(log) if value.state != DELETING]
    return sorted((Hold(value.name, value.mark) for value in found), key=lambda each: each.needs)


async def cursors(log: LogRecords) -> list[tuple[str, Versioned[CursorValue]]]:
    """The values of all cursors, by id."""
    folder = f"{log.path}/cursor"
    names = await log.names(folder)
    found: list[tuple[str, Versioned[CursorValue]]] = []

    async def one(name: str) -> None:
        try:
            data, version = await log.records.read(f"{folder}/{name}")
        except NoRecord:
            return
        found.append((name, Versioned(CursorValue.decode(data), version)))

    for start in range(0, len(names), READ_AT_ONCE):
        await at_once([one(name) for name in names[start : start + READ_AT_ONCE]])
    return sorted(found, key=lambda each: each[0])


async def segment_of(log: LogRecords, manifest: Manifest, number: int) -> Segment | None:
    """The segment of that number, wherever it is; None where the manifest does not name it.  `NoRecord`."""
    line = manifest.line(number)
    if line is None:
        return manifest.segment(number)
    return next((each for each in (await log.chunk(line.c)).segments if each.n == number), None)


async def given_up(manifest: Manifest, chunk: Callable[[str], Awaitable[Chunk]]) -> list[Segment]:
    """The segments that were given up, in order, which have no records; asks for chunks with such only."""
    chunked = [each for line in manifest.chunks if line.lost for each in (await chunk(line.c)).segments]
    return [each for each in (*chunked, *manifest.segments) if each.lost and each.n >= manifest.begin.n]


async def check_holds(log: LogRecords, manifest: Manifest, before: int) -> None:
    """`ValueError` names the lowest hold when it is below that index."""
    lowest = min(await holds(log, manifest), key=lambda hold: hold.needs, default=None)
    if lowest is not None and before > lowest.needs:
        raise ValueError(
            f"the log {manifest.name!r} can't be trimmed before index {before}: {lowest.what} needs it from index "
            f"{lowest.needs} on"
        )


async def check_unneeded(log: LogRecords, manifest: Manifest, number: int) -> None:
    """`PublishRefused` when an owner, a replica or a round of upkeep may read the segment of that number."""
    segment = await segment_of(log, manifest, number)
    lowest = min(await own_holds(log, manifest), key=lambda hold: hold.needs, default=None)
    if segment is not None and not segment.is_moved and lowest is not None and lowest.needs < segment.end:
        raise PublishRefused(
            f"the bookies keep segment {number} of the log {manifest.name!r}: {lowest.what} needs the log from index "
            f"{lowest.needs} on; mark it once `quire log show {manifest.name}` says that this has moved on"
        )


async def move_cursors(log: LogRecords, index: int) -> None:
    """The marks of all cursors that are lower move there."""
    for name, _found in await cursors(log):
        path = f"{log.path}/cursor/{name}"
        with suppress(NoRecord):  # it is deleted
            while True:
                data, version = await log.records.read(path)
                value = CursorValue.decode(data)
                if value.mark >= index:
                    break
                with suppress(RecordChanged):  # by its holder: looked at again
                    moved = replace(value, mark=index, edit=log.new_id())
                    await log.records.write(path, moved.encode(), version)
