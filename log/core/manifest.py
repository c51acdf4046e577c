"""
The manifest of a log: the one small value that says what the log consists of; and its chunks, to which old segments
move.

JSON in UTF-8, keys in the order of `ManifestJson`, each element of a list on a line of its own, so that an operator can
read it with any ZooKeeper shell.  Members that this version does not know are kept, at any depth.  Both are drawn in
docs/log-design.md, "The manifest".

Knows: the members, what must hold among them, and how a segment is found by number, index or time.
Does not know: who changes a manifest and why (`edits`), where it is kept.
Safety: `Manifest.check` holds in every value that is read or made: at most one segment is open, it is the last, and
each begins where the one before ends.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from quire.log.core.values import (
    FORMAT,
    Begin,
    Compacted,
    Doomed,
    Line,
    LostRecords,
    Moved,
    Origin,
    Owner,
    Segment,
    Snapshot,
    Transfer,
    Value,
    defaults_of,
    from_json,
    to_json,
)
from quire.protocol.log_errors import LogDamaged, LogMoved, LogTrimmed, SegmentLost, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

VALUE_BYTES_MAX = 768 << 10
RECENT_MAX = 64
USE = "use"  # needed of a version that opens the log: it must refuse whoever does not name the log's use
MIRROR = "mirror"  # likewise, and the use that a mirror names: the log is a copy, and takes its appends alone
UNDERSTOOD_NEEDS = frozenset({USE, MIRROR})
PARTITIONS = "partitions"  # the setting, and the use, of a log whose records are in its partitions

OPEN, TERMINATED, DELETING = "open", "terminated", "deleting"


@dataclass(frozen=True, slots=True)
class Manifest(Value):
    """One version of a log.  `check` holds."""

    what = "log"
    inner: ClassVar[Mapping[str, type[Value]]] = {
        "owner": Owner,
        "transfer": Transfer,
        "begin": Begin,
        "chunks": Line,
        "segments": Segment,
        "doomed": Doomed,
        "snapshots": Snapshot,
        "compacted": Compacted,
        "origins": Origin,
        "moved": Moved,
    }
    format: int
    needs: tuple[str, ...]
    name: str
    id: str
    state: str
    edit: str
    recent: tuple[str, ...]
    settings: Mapping[str, Any]
    epoch: int
    owner: Owner | None
    transfer: Transfer | None
    begin: Begin
    next: int
    table: int | None
    chunks: tuple[Line, ...]
    segments: tuple[Segment, ...]
    doomed: tuple[Doomed, ...]
    snapshots: tuple[Snapshot, ...]
    compacted: Compacted | None
    end: int | None = None
    origins: tuple[Origin, ...] = ()
    moved: Moved | None = None

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def open_segment(self) -> Segment | None:
        """The one that is still written, if any."""
        return self.segments[-1] if self.segments and self.segments[-1].is_open else None

    @property
    def mirrored(self) -> Origin | None:
        """The log that it is a copy of, if it is one."""
        return self.origins[-1] if self.origins and self.origins[-1].end is None else None

    @property
    def last_closed(self) -> Segment | Line | None:
        """The newest closed segment, or the newest chunk where that is in one."""
        for segment in reversed(self.segments[-2:]):
            if not segment.is_open:
                return segment
        return self.chunks[-1] if self.chunks else None

    @property
    def closed_end(self) -> tuple[int, int]:
        """Index and byte position after the last record of a closed segment."""
        last = self.last_closed
        return (self.begin.index, self.begin.at) if last is None else (last.end, last.end_at)

    @property
    def last_stamp(self) -> int:
        """The stamp of the last record of a closed segment, or of the last that was trimmed."""
        last = self.last_closed
        return last.t[1] if last is not None and last.t is not None else self.begin.stamp

    @property
    def standing(self) -> Compacted | None:
        """The last compaction; None without one, and once records behind its horizon were trimmed, which it lacks."""
        done = self.compacted
        return None if done is None or done.horizon + 1 < self.begin.index else done

    @property
    def lost_bytes(self) -> int:
        """How many of the positions it counts were of segments that were given up; trimmed ones of a chunk, too."""
        lost = sum(segment.bytes or 0 for segment in self.segments if segment.lost)
        return lost + sum(line.lost for line in self.chunks)

    @property
    def segment_count(self) -> int:
        """How many segments it names; of a chunk that lacks some at least what is left of it."""
        numbers = ((line, line.n[1] - max(line.n[0], self.begin.n) + 1) for line in self.chunks)
        return len(self.segments) + sum(min(line.count or left, left) for line, left in numbers)

    def segment(self, number: int) -> Segment | None:
        """The segment of that number, if it is not in a chunk."""
        at = bisect_right(self.segments, number, key=lambda each: each.n) - 1
        found = self.segments[at] if at >= 0 else None
        return found if found is not None and found.n == number else None

    def is_merged(self, number: int) -> bool:
        """True if what a segment of that number had is in a larger one, in no chunk, which may have its number."""
        at = bisect_left(self.segments, number, key=lambda each: each.n)
        found = self.segments[at] if at < len(self.segments) else None
        return found is not None and found.merged is not None and found.lowest <= number

    def line(self, number: int) -> Line | None:
        """The chunk that holds the segment of that number, if one does."""
        at = bisect_right(self.chunks, number, key=lambda line: line.n[0]) - 1
        found = self.chunks[at] if at >= 0 else None
        return found if found is not None and found.n[0] <= number <= found.n[1] else None

    def first(self, holds: Holds) -> Segment | Line | None:
        """The first chunk, or segment outside of chunks, for which something holds that then holds for all behind."""
        for parts in (self.chunks, self.segments):
            at = bisect_left(parts, True, key=holds)  # once it holds, it does for all behind
            if at < len(parts):
                return parts[at]
        return None

    def named_ledgers(self) -> set[int]:
        """The ledgers that it names itself: those in chunks are not among them."""
        found = {segment.ledger for segment in self.segments}
        found |= {doomed.ledger for doomed in self.doomed}
        found |= {snapshot.ledger for snapshot in self.snapshots}
        if self.compacted is not None:
            found |= {each.ledger for each in self.compacted.ledgers}
        return found

    # -- bytes -----------------------------------------------------------------------------------------------------

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """`LogDamaged`; `UnknownFormat` when a newer version of quire is needed."""
        found = from_json(data, "log")
        needs = found.get("needs", [])
        if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
            raise LogDamaged(f"a log has the needs {str(needs)[:80]!r}")
        unknown = [need for need in needs if need not in UNDERSTOOD_NEEDS]
        if unknown:
            raise UnknownFormat(f"the log needs {', '.join(unknown)}, which a newer quire knows: use that one")
        del found["quire"]
        manifest = cls.parse(found)
        manifest.check()
        return manifest

    def encode(self) -> bytes:
        """`ValueError` when it is larger than a value may be."""
        members = [f'"quire":{to_json("log")}']
        for name, _default in defaults_of(Manifest):
            value = getattr(self, name)
            if name in OPTIONAL and value in (None, ()):
                continue
            if name in LISTS:
                lines = ",".join(f"\n  {to_json(part)}" for part in value)
                members.append(f'"{name}":[{lines}]')
            else:
                members.append(f'"{name}":{to_json(value)}')
        members += [f"{to_json(name)}:{to_json(value)}" for name, value in self.extra.items()]
        text = ""
        for member in members:
            separator = "" if not text else ",\n " if member.split(":", 1)[0].strip('"') in BREAKS else ","
            text += separator + member
        return f"{{{text}}}".encode()

    def check(self) -> None:
        """`LogDamaged` that names what does not hold."""
        wrong = next(self._wrong(), None)
        if wrong is not None:
            raise LogDamaged(
                f"the manifest of the log {self.name!r} ({self.id}): {wrong}; `quire log check` looks further"
            )

    def _wrong(self) -> Iterator[str]:
        if self.state not in {OPEN, TERMINATED, DELETING}:
            yield f"its state is {self.state!r}"
        parts: Sequence[Segment | Line] = (*self.chunks, *self.segments)
        number = -1
        index: int | None = None
        at = 0
        for part in parts:
            low, high = (part.n, part.n) if isinstance(part, Segment) else part.n
            if not number < low <= high < self.next:
                yield f"segment {low} follows {number}, and the next is {self.next}"
            if index is not None and (part.first, part.at) != (index, at):
                yield f"segment {low} begins at {part.first}, byte {part.at}, the one before ends at {index}, byte {at}"
            if isinstance(part, Segment):
                counts = (part.records, part.bytes, part.entries, part.t)
                if part.is_open:
                    if part is not parts[-1] or counts != (None,) * 4:
                        yield f"segment {low} is open, and it is not the last or has counts"
                elif None in counts or part.records == 0:
                    yield f"segment {low} is closed without all its counts, or empty"
            if part.end < part.first or part.end_at < part.at:
                yield f"segment {low} ends at {part.end}, byte {part.end_at}, before it begins"
            number, index, at = high, part.end, part.end_at
        if parts:
            first = parts[0]
            if not (first.first <= self.begin.index and first.at <= self.begin.at):
                yield f"it begins at {self.begin.index}, before its first segment at {first.first}"
            if self.begin.index > parts[-1].end:
                yield f"it begins at {self.begin.index}, behind its last segment at {parts[-1].end}"
        if self.owner is not None and self.owner.epoch != self.epoch:
            yield f"its owner has epoch {self.owner.epoch}, it has {self.epoch}"
        if any(origin.end is None for origin in self.origins[:-1]):
            yield "it is a copy of several logs"
        if self.state == TERMINATED and (self.end is None or self.open_segment is not None):
            yield "it is terminated without an end, or has an open segment"


LISTS = frozenset({"chunks", "segments", "doomed", "snapshots", "origins"})
OPTIONAL = frozenset({"end", "origins", "moved"})  # left out where they say nothing
BREAKS = frozenset({"settings", "epoch", "begin", *LISTS, "compacted"})


# -- what is looked for ----------------------------------------------------------------------------------------------

Holds = Callable[[Any], bool]  # of a segment or the line of a chunk


def to_index(index: int) -> Holds:
    """Finds parts that end behind the record, or are still written."""
    return lambda part: part.is_open or part.end > index


def to_position(position: int) -> Holds:
    """Finds parts that end behind the byte, or are still written."""
    return lambda part: part.is_open or part.end_at > position


def to_time(stamp: int) -> Holds:
    """Finds parts whose last stamp is not below, or that are still written."""
    return lambda part: part.t is None or part.t[1] >= stamp


def above(number: int) -> Holds:
    """Finds parts that have a segment with a higher number."""
    return lambda part: part.last > number


# -- what has moved --------------------------------------------------------------------------------------------------


def moved_error(name: str, to: Moved) -> LogMoved:
    """The error of a log that goes on in another cluster."""
    error = LogMoved(
        f"the log {name!r} goes on in the cluster {to.cluster}, at {to.uri}: the URI directory+{to.directory} leads to "
        "it, there and wherever it goes; this is not in the log"
    )
    error.cluster, error.uri, error.directory = to.cluster, to.uri, to.directory
    return error


# -- what is missing -------------------------------------------------------------------------------------------------


def trimmed(manifest: Manifest, index: int) -> LogTrimmed:
    """The error of a record that the log no longer has."""
    what = f"index {index}" if index >= 0 else "this part"
    error = LogTrimmed(
        f"the log {manifest.name!r} begins at index {manifest.begin.index}: {what} was trimmed; read from 'begin', or "
        "with on_trim='skip'"
    )
    error.begin = manifest.begin.index
    return error


def lost(manifest: Manifest, segment: Segment) -> SegmentLost:
    """The error of a segment whose ledger is gone."""
    which = f"from index {segment.first} " + ("on" if segment.is_open else f"to {segment.end - 1}")
    return SegmentLost(
        f"segment {segment.n} of the log {manifest.name!r}, ledger {segment.ledger}, is gone, and with it its records "
        f"{which}: `quire log read --on-loss skip` passes over them, `quire log give-up {manifest.name} {segment.n}` "
        "goes on without them"
    )


def uncompacted(manifest: Manifest, part: LostRecords) -> SegmentLost:
    """The error of records that a compaction lacks, for they were gone."""
    return SegmentLost(
        f"segment {part.n} of the log {manifest.name!r} was given up, and with it its records {part.first} to "
        f"{part.end - 1}: what a compaction left may have older values of keys, and keys that were removed; "
        f"`quire log read {manifest.name} --compacted --on-loss skip` reads it as it is"
    )


# -- chunks and names ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk(Value):
    """An immutable record of segments that moved out of the manifest of the log with that id."""

    what = tag = "chunk"
    inner: ClassVar[Mapping[str, type[Value]]] = {"segments": Segment}
    format: int
    log: str
    edit: str
    at: int
    segments: tuple[Segment, ...]

    def encode(self) -> bytes:
        """Each segment on a line of its own."""
        lines = ",".join(f"\n {to_json(segment)}" for segment in self.segments)
        head = to_json({"quire": "chunk", "format": self.format, "log": self.log, "edit": self.edit, "at": self.at})
        rest = "".join(f",{to_json(name)}:{to_json(value)}" for name, value in self.extra.items())
        return f'{head[:-1]},"segments":[{lines}]{rest}}}'.encode()

    def line(self, name: str) -> Line:
        """Makes the chunk's line in the manifest, under that name."""
        first, last = self.segments[0], self.segments[-1]
        count = len(self.segments)
        stamps = [segment.t for segment in self.segments if segment.t is not None]
        return Line(
            name,
            (first.lowest, last.n),
            first.first,
            first.at,
            last.end - first.first,
            last.end_at - first.at,
            (stamps[0][0], stamps[-1][1]),
            sum(segment.bytes or 0 for segment in self.segments if segment.lost),
            0 if count == last.n - first.lowest + 1 else count,
        )


@dataclass(frozen=True, slots=True)
class Adopted(Value):
    """The record of a plain ledger that a log took in: as segment `n`, with the records from `first` to `end` - 1."""

    what = "adopted ledger"
    tag = "adopted"
    log: str
    n: int
    first: int
    end: int
    edit: str


def encode_name(log: str, moved: Moved | None = None) -> bytes:
    """The record of a name, which points at the log with that id; `moved`: that is gone, for it went on elsewhere."""
    told = {} if moved is None else {"moved": moved}
    return to_json({"quire": "name", "format": FORMAT, "log": log, **told}).encode()


def decode_name(data: bytes) -> str:
    """The id of the log; `LogDamaged`, `UnknownFormat`."""
    found = from_json(data, "name").get("log")
    if not isinstance(found, str):
        raise LogDamaged(f"a name points at {found!r}")
    return found


def decode_moved(data: bytes) -> Moved | None:
    """Where the log of a name went on, in another cluster; None: it did not.  The errors of `decode_name`."""
    found = from_json(data, "name").get("moved")
    return None if found is None else Moved.parse(found)


FROM_START = Begin(0, 0, 0)


def needs_of(settings: Mapping[str, Any], origins: Sequence[Origin]) -> tuple[str, ...]:
    """Says what a version has to understand that opens such a log."""
    is_mirror = any(origin.end is None for origin in origins)
    return (*((USE,) if settings.get(USE) else ()), *((MIRROR,) if is_mirror else ()))


def new_manifest(
    name: str,
    log: str,
    edit: str,
    settings: Mapping[str, Any],
    begin: Begin = FROM_START,
    origins: tuple[Origin, ...] = (),
) -> Manifest:
    """A log without records, whose first one will be at `begin`."""
    return Manifest(
        format=FORMAT,
        needs=needs_of(settings, origins),
        name=name,
        id=log,
        state=OPEN,
        edit=edit,
        recent=(edit,),
        settings=settings,
        epoch=0,
        owner=None,
        transfer=None,
        begin=begin,
        next=0,
        table=None,
        chunks=(),
        segments=(),
        doomed=(),
        snapshots=(),
        compacted=None,
        origins=origins,
    )
