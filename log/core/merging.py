"""
Runs of small segments that become one large segment: which, how their entries are rewritten, and how a manifest comes
to name it.

An entry is copied as it is but for its place: records and bytes of the ledger before it, and the stamp where its
segment has one for all.  So batches stay whole, and nothing of a record changes: not its index, position, stamp, key,
time, headers, producer, nor how its batch is compressed.

Knows: which segments may be merged and when that is worth it, what of an entry says where it is, chunks.
Does not know: ledgers, who merges, how fast.

Safety: the edit replaces segments only where they stand as they were read; what they were made of is doomed in the same
edit, and goes only after it.  A segment that an owner may still have to settle, the one with the newest table of
producers, and what has or gets a copy elsewhere, stay as they are.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from quire.log.core.edits import check_exists, cut, is_doomed
from quire.log.core.frame import HEADER_BYTES, Kind, unpack_header
from quire.log.core.manifest import Chunk, Manifest
from quire.log.core.upkeep_edits import DOOMED_MAX, TRIMMED_MAX, too_many_doomed
from quire.log.core.values import FORMAT, Counts, Doomed, Line, Segment
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

MERGED_MAX = TRIMMED_MAX  # segments that one edit takes out
RUN_MIN = 8
SMALL = 0.75  # of the size that is wanted: what has as much stays as it is
PLACE = struct.Struct(">QQQ")  # ordinal, offset and stamp, in an entry's header
PLACE_AT = 8


# -- what is merged ---------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """`bytes` of values that a merged segment is to have; a run has at least so many segments."""

    bytes: int
    run_min: int = RUN_MIN

    def check(self) -> None:
        """`ValueError`."""
        if type(self.bytes) is not int or type(self.run_min) is not int or self.bytes < 1 or self.run_min < 2:
            raise ValueError(
                f"at least 2 segments become one of at least 1 byte, not {self.run_min!r} one of {self.bytes!r}"
            )


class Run(NamedTuple):
    """Segments that are to become one: the numbers of both ends, how many, the first index, and what they hold."""

    first: int
    last: int
    segments: int
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    records: int
    bytes: int

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Run":
        """Describes these, which follow each other."""
        first, last = segments[0], segments[-1]
        return cls(first.n, last.n, len(segments), first.first, last.end - first.first, last.end_at - first.at)

    def of_these(self, segments: Sequence[Segment]) -> tuple[Segment, ...] | None:
        """Finds those that are meant, if they still stand as when the run was planned."""
        found = tuple(each for each in segments if self.first <= each.n <= self.last)
        return found if found and Run.of(found) == self else None


def may_be_small(line: Line, limits: Limits) -> bool:
    """True if a chunk with that line may have small segments: it is not worth a look where most are large."""
    count = line.count or line.n[1] - line.n[0] + 1
    return line.bytes - line.lost < SMALL * limits.bytes * count


def planned(manifest: Manifest, segments: Sequence[Segment | None], limits: Limits) -> list[Run]:
    """The runs that are worth it, of a manifest's segments in order; None in the place of those that were not read."""
    known = [each for each in segments if each is not None]
    owners = [each.n for each in known if each.txn is None and not each.raw and each.merged is None]
    kept = {manifest.table, *owners[-1:]}
    found: list[Run] = []
    group: list[Segment] = []
    for each in [*segments, None]:
        fits = each is not None and len(group) < MERGED_MAX and _bytes(group) + (each.bytes or 0) <= limits.bytes
        may = each is not None and each.n not in kept and _may_be_merged(manifest, each, limits)
        if not (fits and may):
            found += map(Run.of, _worth(group, limits))
            group = []
        if each is not None and may:
            group.append(each)
    return found


def _may_be_merged(manifest: Manifest, each: Segment, limits: Limits) -> bool:
    """True if it is small, closed, framed, with the bookies alone, and not trimmed."""
    return (
        not (each.is_open or each.raw or each.lost or each.extra)
        and each.offload is None
        and (each.bytes or 0) < SMALL * limits.bytes
        and each.end > manifest.begin.index
    )


def _worth(group: Sequence[Segment], limits: Limits) -> Iterator[Sequence[Segment]]:
    """
    Long enough, and no segment has more than half of the bytes: so what is merged again and again at least doubles
    each time.
    """
    if len(group) < limits.run_min:
        return
    largest = max(group, key=lambda each: each.bytes or 0)
    if 2 * (largest.bytes or 0) <= _bytes(group):
        yield group
        return
    at = group.index(largest)
    yield from _worth(group[:at], limits)
    yield from _worth(group[at + 1 :], limits)


def _bytes(group: Sequence[Segment]) -> int:
    return group[-1].end_at - group[0].at if group else 0


# -- entries ----------------------------------------------------------------------------------------------------------


class Rewriting:
    """The entries of one segment after another, with their places in one ledger.  `begin` each, and `end` it."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._ordinal = self._offset = 0  # of the next record, in its own ledger
        self._base = 0, 0  # records and bytes of the segments before
        self._parts: list[bytes] = []  # of a large batch that is not complete
        self._stamp = 0
        self.entries = 0  # that were given

    @property
    def counts(self) -> Counts:
        """Counts what the new ledger holds so far."""
        return Counts(self._base[0] + self._ordinal, self._base[1] + self._offset, self.entries, self._stamp)

    def begin(self, segment: Segment) -> None:
        """The next segment."""
        self._segment = segment

    def feed(self, entry: bytes) -> list[bytes]:
        """Gives what an entry of it becomes; a part of a large batch, once that is complete.  `LogDamaged`."""
        assert self._segment is not None, "a segment was begun"
        header = unpack_header(entry)
        if (header.ordinal, header.offset) != (self._ordinal, self._offset):
            raise LogDamaged(
                f"it begins at record {header.ordinal}, byte {header.offset}; the entries before end at record "
                f"{self._ordinal}, byte {self._offset}"
            )
        stamp = self._segment.stamp
        self._stamp = header.stamp if stamp is None else stamp
        place = PLACE.pack(self._base[0] + header.ordinal, self._base[1] + header.offset, self._stamp)
        self._parts.append(entry[:PLACE_AT] + place + entry[PLACE_AT + PLACE.size :])
        if header.kind == Kind.PART and not header.records:
            return []
        self._ordinal += header.records
        self._offset += header.bytes
        made, self._parts = self._parts, []
        self.entries += len(made)
        return made

    def end(self) -> None:
        """Ends the segment; half a large batch at its end has no records.  `LogDamaged` where some are missing."""
        segment = self._segment
        assert segment is not None, "a segment was begun"
        if (self._ordinal, self._offset) != (segment.records, segment.bytes):
            raise LogDamaged(
                f"ledger {segment.ledger} holds {self._ordinal} records of {self._offset} bytes, its segment "
                f"{segment.n} says {segment.records} of {segment.bytes}"
            )
        self._base = self._base[0] + self._ordinal, self._base[1] + self._offset
        self._ordinal = self._offset = 0
        self._segment, self._parts = None, []


assert PLACE_AT + PLACE.size <= HEADER_BYTES


# -- the manifest -----------------------------------------------------------------------------------------------------


def merged(before: Sequence[Segment], ledger: int, entries: int) -> Segment:
    """
    The segment that takes their place.  Its number is the last one's, so that a reader who has done with one of them
    finds what comes next.
    """
    first, last = before[0], before[-1]
    stamps = [each.t for each in before if each.t is not None]
    return Segment(
        last.n,
        ledger,
        last.epoch,
        first.first,
        first.at,
        last.end - first.first,
        last.end_at - first.at,
        entries,
        (min(each[0] for each in stamps), stamps[-1][1]),
        merged=(first.lowest, last.place + (last.entries or 0)),
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """
    One segment in the place of several, upon the version of the manifest that it was made from.  `lines`: of all chunks
    from then on, `segments`: those that are in none.
    """

    before: tuple[Segment, ...]
    segment: Segment
    lines: tuple[Line, ...]
    segments: tuple[Segment, ...]
    now_ms: int
    name = "merge"

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        chunked: Mapping[str, Sequence[Segment]],
        before: tuple[Segment, ...],
        segment: Segment,
        edit: str,
        now_ms: int,
    ) -> "tuple[Merge, list[tuple[str, Chunk]]] | None":
        """
        The edit with that id, and the chunks to be made before; None: not all of them stand as they were read.
        `chunked`: the segments of the chunks that have some of them.
        """
        lines = touched(manifest, before[0].n, before[-1].n)
        old = [each for line in lines for each in chunked[line.c] if each.n >= manifest.begin.n]
        whole = [*old, *manifest.segments]
        at = next((at for at, each in enumerate(whole) if each.n == before[0].n), len(whole))
        end = at + len(before)
        if tuple(whole[at:end]) != before:
            return None
        if end <= len(old):
            into, segments = [*old[:at], segment, *old[end:]], manifest.segments
        else:
            into, segments = old[:at], (*whole[len(old) : at], segment, *whole[end:])
        made = []
        for part in cut(into):
            chunk = Chunk(FORMAT, manifest.id, edit, now_ms, tuple(part))
            made.append((f"{part[0].n:012d}-{edit[:8]}", chunk))
        here = manifest.chunks.index(lines[0]) if lines else 0
        new = (chunk.line(name) for name, chunk in made)
        all_lines = (*manifest.chunks[:here], *new, *manifest.chunks[here + len(lines) :])
        return cls(before, segment, all_lines, tuple(segments), now_ms), made

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        if is_doomed(manifest, self.segment.ledger):
            return None
        if len(manifest.doomed) > DOOMED_MAX:
            raise too_many_doomed(manifest)
        begin = manifest.begin
        if self.segment.lowest <= begin.n < self.segment.n:
            begin = replace(begin, n=self.segment.n)
        doomed = (Doomed(each.ledger, "merged", self.now_ms) for each in self.before)
        return replace(
            manifest, begin=begin, chunks=self.lines, segments=self.segments, doomed=(*manifest.doomed, *doomed)
        )


def touched(manifest: Manifest, first: int, last: int) -> list[Line]:
    """The chunks that have some of the segments with these numbers, in order."""
    return [line for line in manifest.chunks if line.n[0] <= last and first <= line.n[1]]
