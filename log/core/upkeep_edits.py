"""
The edits that are not about appending: trims and deletes, marks and holds, names and settings, the end of a log.

Knows: predicates and changes (docs/logs.md, "Edits").
Does not know: tries, versions, other records that change in the same step.
Safety: only whole closed segments are trimmed, and `begin` never moves back; a ledger leaves a manifest only into
`doomed`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.log.core.edits import Me, check_exists
from quire.log.core.manifest import DELETING, TERMINATED, Manifest
from quire.log.core.values import Begin, Doomed, Segment, to_json
from quire.protocol.log_errors import LogFenced, LogFull, PublishRefused, SegmentLost

# SPDX-License-Identifier: Apache-2.0

DOOMED_MAX = 500  # that trims and orphans may add to
TRIMMED_MAX = 500  # segments that one edit takes out
LOST_BYTES = 1 << 40  # of an open segment whose ledger is gone: nobody was told a position above that


def too_many_doomed(manifest: Manifest) -> LogFull:
    """The error of what would take more ledgers out than may wait."""
    return LogFull(
        f"{len(manifest.doomed)} ledgers of the log {manifest.name!r} wait to be deleted: "
        f"`quire log tidy {manifest.name}` deletes them"
    )


@dataclass(frozen=True, slots=True)
class Trim:
    """
    Lets the log begin at `index`, in segment `n`, at the byte position `at`.  Closed segments before go into `doomed`,
    at most 500, and whole chunks with the segments that `chunked` gives.  The caller has read the holds after the
    manifest.  `begin` never moves back.
    """

    n: int
    index: int
    at: int
    now_ms: int
    chunked: Mapping[str, Sequence[Segment]]  # the content of chunks whose lines may go, by name
    name = "trim"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        if self.index <= manifest.begin.index and self.n <= manifest.begin.n:
            return None
        if len(manifest.doomed) >= DOOMED_MAX:
            raise too_many_doomed(manifest)
        out: list[Segment] = []
        chunks = list(manifest.chunks)
        while chunks and chunks[0].n[1] < self.n and chunks[0].c in self.chunked and len(out) < TRIMMED_MAX:
            out += self.chunked[chunks[0].c]
            chunks.pop(0)
        segments = list(manifest.segments)
        while not chunks and segments and segments[0].n < self.n and not segments[0].is_open and len(out) < TRIMMED_MAX:
            out.append(segments.pop(0))
        doomed = tuple(
            Doomed(each.ledger, "trimmed", self.now_ms) for each in out if not (each.lost or _is_offloaded(each))
        )
        return replace(
            manifest,
            begin=Begin(self.n, self.index, self.at),
            chunks=tuple(chunks),
            segments=tuple(segments),
            doomed=(*manifest.doomed, *doomed),
        )


def _is_offloaded(segment: Segment) -> bool:
    """Whether its ledger was doomed before, when its offloaded copy took its place."""
    return segment.offload is not None and segment.offload.get("bookies") == "deleted"


@dataclass(frozen=True, slots=True)
class Doom:
    """Puts ledgers among those that are deleted, if the manifest does not name them; the caller knows its chunks."""

    ledgers: Collection[int]
    why: str
    now_ms: int
    name = "doom"

    def apply(self, manifest: Manifest) -> Manifest | None:
        named = manifest.named_ledgers()
        doomed = tuple(Doomed(each, self.why, self.now_ms) for each in self.ledgers if each not in named)
        if not doomed:
            return None
        if len(manifest.doomed) >= DOOMED_MAX:
            raise too_many_doomed(manifest)
        return replace(manifest, doomed=(*manifest.doomed, *doomed))


@dataclass(frozen=True, slots=True)
class Clear:
    """Forgets doomed ledgers whose metadata is gone."""

    ledgers: Collection[int]
    name = "clear"

    def apply(self, manifest: Manifest) -> Manifest | None:
        rest = tuple(each for each in manifest.doomed if each.ledger not in self.ledgers)
        return None if len(rest) == len(manifest.doomed) else replace(manifest, doomed=rest)


@dataclass(frozen=True, slots=True)
class Hold:
    """Moves the version, so that a trim that has read the holds before is refused."""

    name = "hold"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        return manifest


@dataclass(frozen=True, slots=True)
class Mark:
    """The offload mark of a closed segment, if it is the expected one.  `SegmentLost` when the segment is gone."""

    n: int
    value: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    now_ms: int
    name = "mark"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        found = manifest.segment(self.n)
        if found is None or found.is_open:
            raise SegmentLost(f"the log {manifest.name!r} has no closed segment {self.n} that can be marked")
        if found.offload == self.value:
            return None
        if found.offload != self.expected:
            raise PublishRefused(
                f"segment {self.n} of the log {manifest.name!r} is marked {to_json(found.offload)}, not "
                f"{to_json(self.expected)}: read it again"
            )
        marked = replace(found, offload=self.value)
        doomed = manifest.doomed
        if _is_offloaded(marked) and not _is_offloaded(found):
            doomed = (*doomed, Doomed(found.ledger, "offloaded", self.now_ms))
        segments = tuple(marked if each.n == self.n else each for each in manifest.segments)
        return replace(manifest, segments=segments, doomed=doomed)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """
    Says that the ledger of a segment is gone.  A closed one keeps its counts; an open one gets `records`, the most that
    anybody can have been told.  `by`: who says so, and when.
    """

    segment: Segment
    records: int
    now_ms: int
    by: str
    name = "give-up"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        found = manifest.segment(self.segment.n)
        if found is None or found.lost:
            return None
        if found != self.segment:
            raise SegmentLost(f"segment {found.n} of the log {manifest.name!r} has changed: look at it again")
        given = replace(found, lost=True, extra={**found.extra, "given-up": {"by": self.by, "at": self.now_ms}})
        if found.is_open:
            given = replace(
                given, records=self.records, bytes=LOST_BYTES, entries=0, t=(manifest.last_stamp, self.now_ms)
            )
        return replace(manifest, segments=tuple(given if each.n == found.n else each for each in manifest.segments))


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name; the records of both names change in the same step."""

    new: str
    name = "rename"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        return None if manifest.name == self.new else replace(manifest, name=self.new)


@dataclass(frozen=True, slots=True)
class Update:
    """Other settings."""

    settings: Mapping[str, Any]
    name = "settings"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        settings = {**manifest.settings, **self.settings}
        return None if settings == manifest.settings else replace(manifest, settings=settings)


@dataclass(frozen=True, slots=True)
class Terminate:
    """No more records; nothing is open."""

    me: Me
    name = "terminate"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        if manifest.state == TERMINATED:
            return None
        self.me.check(manifest)
        if manifest.open_segment is not None:
            raise LogFenced(
                f"segment {manifest.open_segment.n} of the log {manifest.name!r} is open: end it first, then terminate"
            )
        return replace(manifest, state=TERMINATED, end=manifest.closed_end[0], owner=None, transfer=None)


@dataclass(frozen=True, slots=True)
class Delete:
    """The name goes in the same step; the rest is upkeep."""

    name = "delete"

    def apply(self, manifest: Manifest) -> Manifest | None:
        return None if manifest.state == DELETING else replace(manifest, state=DELETING, owner=None, transfer=None)
