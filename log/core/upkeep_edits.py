"""
The edits that are not about appending: trims and deletes, marks and holds, names and settings, the end of a log.

Knows: predicates and changes (docs/log-design.md, "Edits").
Does not know: tries, versions, other records that change in the same step.
Safety: only whole closed segments are trimmed, and `begin` never moves back; a ledger leaves a manifest only into
`doomed`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.log.core.edits import check_exists, closed
from quire.log.core.manifest import DELETING, TERMINATED, Chunk, Manifest
from quire.log.core.moving import check_held_here
from quire.log.core.streams.compaction import dismissed
from quire.log.core.values import Begin, Counts, Doomed, Line, Segment, to_json
from quire.protocol.log_errors import LogError, LogFull, PublishRefused, SegmentLost

# SPDX-License-Identifier: Apache-2.0

DOOMED_MAX = 500  # that trims and orphans may add to
TRIMMED_MAX = 500  # segments that one edit takes out
MARK_BYTES_MAX = 400  # so that a chunk in which each segment has one is no larger than a record may be
MARKS = ("copying", "complete")
LOST_RECORDS = 1 << 32  # of an open segment whose ledger is gone: nobody was told an index above that, whatever is set
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
    Lets the log begin at `index`, in segment `n`, at the byte position `at`; when more than 500 segments are before
    that, or more than those whose chunks are given in `chunked` (by name), at the first that is left.  The segments
    before it go into `doomed`, and a chunk's line goes with the last of its segments.  The last segment stays.  The
    caller has read the holds after the version that is replaced.  `begin` never moves back.  What was compacted goes
    once the log begins behind the first record that it lacks, which is possible while `compaction` is off.
    """

    n: int
    index: int
    at: int
    now_ms: int
    chunked: Mapping[str, Sequence[Segment]]
    name = "trim"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        before, segments = manifest.begin, manifest.segments
        if (self.index, self.n) <= (before.index, before.n) or not segments or self.n > segments[-1].n:
            return None
        begin = Begin(self.n, self.index, self.at)
        out: list[Segment] = []
        for part in self._parts(manifest):
            number = part.n if isinstance(part, Segment) else part.n[0]
            if number >= self.n:
                break
            if isinstance(part, Line) or len(out) == TRIMMED_MAX:
                begin = Begin(number, part.first, part.at) if number > before.n else before
                break
            if number >= before.n:
                out.append(part)
        if (begin.n, begin.index) == (before.n, before.index):
            return None
        stamps = [each.t[1] for each in out if each.t is not None]
        begin = replace(begin, stamp=max([before.stamp, *stamps]))
        if out and len(manifest.doomed) > DOOMED_MAX:
            raise too_many_doomed(manifest)
        doomed = (
            Doomed(each.ledger, "trimmed", self.now_ms, each.raw) for each in out if not (each.lost or each.is_moved)
        )
        after = replace(
            manifest,
            begin=begin,
            chunks=tuple(line for line in manifest.chunks if line.n[1] >= begin.n),
            segments=tuple(each for each in segments if each.n >= begin.n),
            doomed=(*manifest.doomed, *doomed),
        )
        return dismissed(after, self.now_ms)

    def _parts(self, manifest: Manifest) -> Iterator[Segment | Line]:
        """All segments, in order; for a chunk that is not known its line."""
        for line in manifest.chunks:
            yield from self.chunked.get(line.c, (line,))
        yield from manifest.segments


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
    """
    The offload mark of a closed segment, if it is the expected one.  `ledger`: what was copied.  `SegmentLost` when the
    segment is gone, or is another ledger; `PublishRefused` for another mark, once the bookies' copies are deleted, and
    without `ledger` for a segment that was merged, for the copy may be of one of before.
    """

    n: int
    value: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    now_ms: int
    ledger: int | None = None
    name = "mark"

    def change(self, manifest: Manifest, found: Segment) -> Segment | None:
        """The segment with its mark; None: it has it."""
        if found.is_open:
            raise SegmentLost(f"segment {self.n} of the log {manifest.name!r} is open: only closed ones are marked")
        if self.ledger is None and found.merged is not None:
            raise PublishRefused(
                f"segment {self.n} of the log {manifest.name!r} was merged from smaller ones: name the ledger that is "
                "meant, as `ledger=`"
            )
        if self.ledger not in (None, found.ledger):
            raise SegmentLost(
                f"segment {self.n} of the log {manifest.name!r} is ledger {found.ledger} by now, not {self.ledger}: "
                "`quire log show --segments` lists them"
            )
        if found.offload == self.value:
            return None
        if found.offload != self.expected:
            raise PublishRefused(
                f"segment {self.n} of the log {manifest.name!r} is marked {to_json(found.offload)}, not "
                f"{to_json(self.expected)}: read it again"
            )
        marked = replace(found, offload=self.value)
        if found.is_moved and not marked.is_moved:
            raise PublishRefused(f"the bookies no longer have segment {self.n} of the log {manifest.name!r}")
        return marked

    def apply(self, manifest: Manifest) -> Manifest | None:
        return _changed(manifest, self.n, self.change, self.now_ms)


def check_mark(value: Mapping[str, Any] | None) -> None:
    """`ValueError` for what can't be meant."""
    if value is None:
        return
    complete = value.get("state") == "complete"
    if value.get("state") not in MARKS or (complete and not value.get("uri")):
        raise ValueError(f"a mark is of state copying, or complete with a uri, not {to_json(value)}")
    if value.get("bookies", "kept") not in ({"kept", "deleted"} if complete else {"kept"}):
        raise ValueError(f"the bookies' copies are kept, or deleted once another one is complete, not {to_json(value)}")
    if len(to_json(value)) > MARK_BYTES_MAX:
        raise ValueError(f"a mark has at most {MARK_BYTES_MAX} bytes of JSON, not {len(to_json(value))}")


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

    def change(self, manifest: Manifest, found: Segment) -> Segment | None:
        """The segment as a lost one; None: it is."""
        if found.lost:
            return None
        if found != self.segment:
            raise SegmentLost(f"segment {found.n} of the log {manifest.name!r} has changed: look at it again")
        given = replace(found, lost=True, extra={**found.extra, "given-up": {"by": self.by, "at": self.now_ms}})
        if not found.is_open:
            return given
        last = manifest.last_stamp
        return replace(given, records=self.records, bytes=LOST_BYTES, entries=0, t=(last, max(last, self.now_ms)))

    def apply(self, manifest: Manifest) -> Manifest | None:
        return _changed(manifest, self.segment.n, self.change, self.now_ms)


Change = Callable[[Manifest, Segment], Segment | None]


def _changed(manifest: Manifest, number: int, change: Change, now_ms: int) -> Manifest | None:
    """With one segment changed; None when it is as it should be.  `SegmentLost` when it is gone."""
    check_exists(manifest)
    found = manifest.segment(number)
    changed = change(manifest, present(manifest, number, found))
    if found is None or changed is None:
        return None
    segments = tuple(changed if each is found else each for each in manifest.segments)
    return replace(manifest, segments=segments, doomed=(*manifest.doomed, *_moved(found, changed, now_ms)))


def present(manifest: Manifest, number: int, found: Segment | None) -> Segment:
    """`SegmentLost` when there is no such segment (any more)."""
    if found is None or number < manifest.begin.n:
        raise SegmentLost(f"the log {manifest.name!r} has no segment {number}: `quire log show --segments` lists them")
    return found


def _moved(before: Segment, after: Segment, now_ms: int) -> tuple[Doomed, ...]:
    """The segment's ledger, once the bookies' copies may go."""
    return (Doomed(before.ledger, "offloaded", now_ms, before.raw),) if after.is_moved and not before.is_moved else ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """Another chunk in the place of one: the same segments, of which one changed, upon the version it was made from."""

    old: str
    line: Line  # of the new one
    doomed: tuple[Doomed, ...]
    name: str  # of the change

    @classmethod
    def of(
        cls, edit: Mark | GiveUp, manifest: Manifest, line: Line, chunk: Chunk, name: str
    ) -> tuple["Exchange", Chunk] | None:
        """The edit of a segment that is in a chunk, and the chunk to be made before; None: it is as it should be."""
        number = edit.n if isinstance(edit, Mark) else edit.segment.n
        found = present(manifest, number, next((each for each in chunk.segments if each.n == number), None))
        changed = edit.change(manifest, found)
        if changed is None:
            return None
        segments = tuple(changed if each is found else each for each in chunk.segments)
        made = replace(chunk, segments=segments, at=edit.now_ms)
        return cls(line.c, made.line(name), _moved(found, changed, edit.now_ms), edit.name), made

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        chunks = tuple(self.line if each.c == self.old else each for each in manifest.chunks)
        if chunks == manifest.chunks:
            return None
        return replace(manifest, chunks=chunks, doomed=(*manifest.doomed, *self.doomed))


def check_stays(manifest: Manifest) -> None:
    """`LogError` while the log is on its way to another cluster, where it has this name."""
    to = manifest.moved
    if to is not None:
        raise LogError(
            f"the log {manifest.name!r} is being moved to the cluster {to.cluster}: run `quire log move "
            f"{manifest.name} {to.cluster}` to its end first, or with --abort"
        )


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name; the records of both names change in the same step."""

    new: str
    name = "rename"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        check_stays(manifest)
        return None if manifest.name == self.new else replace(manifest, name=self.new)


def agreed(_settings: Mapping[str, Any]) -> None:
    """Takes any settings, for a change that can contradict nothing."""


@dataclass(frozen=True, slots=True)
class Update:
    """
    Other settings.  `check` fails with a `ValueError` for members that contradict each other: it is given all that the
    manifest then has, so two changes at once, of which each alone would do, can't make what no owner understands.
    """

    settings: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], object] = agreed
    name = "settings"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_held_here(manifest)
        settings = {**manifest.settings, **self.settings}
        if settings == manifest.settings:
            return None
        self.check(settings)
        return replace(manifest, settings=settings, table=manifest.table if settings.get("dedup") else None)


@dataclass(frozen=True, slots=True)
class Terminate:
    """No more records.  `settled`: the number and counts of the segment that was open; another one is not."""

    settled: tuple[int, Counts] | None
    now_ms: int
    name = "terminate"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        found = manifest.open_segment
        if manifest.state == TERMINATED:
            return None
        if found is not None:
            if self.settled is None or self.settled[0] != found.n:
                return None
            manifest = closed(manifest, self.settled[1], self.now_ms)
        return replace(manifest, state=TERMINATED, end=manifest.closed_end[0], owner=None, transfer=None)


@dataclass(frozen=True, slots=True)
class Delete:
    """The name goes in the same step; the rest is upkeep."""

    name = "delete"

    def apply(self, manifest: Manifest) -> Manifest | None:
        if manifest.state == DELETING:
            return None
        check_stays(manifest)
        return replace(manifest, state=DELETING, owner=None, transfer=None)
