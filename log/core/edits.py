"""
The edits of a manifest: of each what it needs, and what it changes.

An edit is a value with one pure method: `apply(manifest)` gives the changed manifest, or None when it is not wanted
(any more): it was done already, or what it is about has gone.  A refusal is an error.  `made` then gives the manifest
its edit id, and moves old segments into chunks when there are too many.

Knows: predicates and changes (docs/log-design.md, "Edits"), how many segments a manifest holds.
Does not know: tries, versions, other records that change in the same step (`store.editing`).
Safety: an owner's edits need its token and epoch; a segment is closed only with counts that are given; a number, an
index or a ledger is never used twice, and no ledger is named that is doomed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from quire.log.core.manifest import DELETING, RECENT_MAX, TERMINATED, VALUE_BYTES_MAX, Chunk, Manifest, moved_error
from quire.log.core.uses import check_mirror
from quire.log.core.values import FORMAT, Counts, Doomed, Owner, Segment, Transfer, to_json
from quire.protocol.log_errors import LogFenced, LogFull, LogTerminated, NoSuchLog, NotOwner, PublishRefused

# SPDX-License-Identifier: Apache-2.0

SEGMENTS_MAX = 512
SEGMENTS_KEPT = 64  # by a spill
CHUNK_SEGMENTS_MAX = 1000
CHUNK_BYTES_MAX = 256 << 10
LINES_MAX = 4000


class Edit(Protocol):
    """`name` is the edit's in metrics and logs."""

    @property
    def name(self) -> str: ...

    def apply(self, manifest: Manifest) -> Manifest | None: ...


def terminated(manifest: Manifest) -> LogTerminated:
    """The error of a log that takes nothing more."""
    error = LogTerminated(
        f"the log {manifest.name!r} was terminated at index {manifest.end}: read it, or append to another one"
    )
    error.end = -1 if manifest.end is None else manifest.end
    return error


def owner_of(manifest: Manifest) -> str:
    """In words."""
    owner = manifest.owner
    return "nobody" if owner is None else f"epoch {owner.epoch} at {owner.address or owner.host or 'elsewhere'}"


def not_owned(name: str, manifest: Manifest | None) -> NotOwner:
    """The error of a handle that waited long enough."""
    now = "another one" if manifest is None else owner_of(manifest)
    error = NotOwner(f"the log {name!r} is owned by {now}: append there, wait longer, or take it with force")
    if manifest is not None and manifest.owner is not None:
        error.address = manifest.owner.address
    return error


def check_exists(manifest: Manifest) -> None:
    """`NoSuchLog` when the log is being deleted; as `LogMoved` when it goes on in another cluster."""
    if manifest.moved is not None and manifest.moved.done:
        raise moved_error(manifest.name, manifest.moved)
    if manifest.state == DELETING:
        raise NoSuchLog(f"the log {manifest.name!r} is being deleted: `quire log list` shows those that are there")


def check_open(manifest: Manifest) -> None:
    """`NoSuchLog`, `LogMoved`, `LogTerminated`."""
    check_exists(manifest)
    if manifest.state == TERMINATED:
        raise terminated(manifest)


def deposed(manifest: Manifest, epoch: int) -> LogFenced:
    """The error of an owner whose place another one has."""
    now = owner_of(manifest)
    return LogFenced(f"the log {manifest.name!r} is owned by {now}, no longer by epoch {epoch} here: own it again")


@dataclass(frozen=True, slots=True)
class Me:
    """An owner, as its edits name it."""

    token: str
    epoch: int

    def owns(self, manifest: Manifest) -> bool:
        """True if the log is this handle's."""
        owner = manifest.owner
        return owner is not None and owner.token == self.token and manifest.epoch == self.epoch

    def check(self, manifest: Manifest) -> None:
        """`LogFenced` when another one owns the log."""
        if not self.owns(manifest):
            raise deposed(manifest, self.epoch)


# -- ownership -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A new owner; `owner.epoch` is not looked at.  `mirrors`: it will append copies of another log's records alone."""

    owner: Owner
    mirrors: bool = False
    name = "claim"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_open(manifest)
        check_mirror(manifest, self.mirrors)
        if manifest.owner is not None and manifest.owner.token == self.owner.token:
            return None
        epoch = manifest.epoch + 1
        return replace(manifest, epoch=epoch, owner=replace(self.owner, epoch=epoch), transfer=None)


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """The owner's next segment, leased while leases are on.  `ends`: number and counts of an open one before."""

    me: Me
    ledger: int
    ends: tuple[int, Counts] | None = None

    @property
    def name(self) -> str:
        return "open" if self.ends is None else "roll"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_open(manifest)
        self.me.check(manifest)
        found = manifest.open_segment
        if (found is not None and found.ledger == self.ledger) or is_doomed(manifest, self.ledger):
            return None
        if found is not None and self.ends is not None and found.n == self.ends[0]:
            manifest = closed(manifest, self.ends[1])
        elif found is not None:
            raise LogFenced(
                f"segment {found.n} of the log {manifest.name!r} is open, and not by this owner's doing: own it again"
            )
        index, at = manifest.closed_end
        leased = bool(manifest.settings.get("lease_ms", 0))
        segment = Segment(manifest.next, self.ledger, manifest.epoch, index, at, leased=leased)
        return replace(manifest, segments=(*manifest.segments, segment), next=manifest.next + 1)


@dataclass(frozen=True, slots=True)
class CloseSegment:
    """Ends the open segment with that number.  `me`: by its owner; None: by one that has settled it."""

    n: int
    counts: Counts
    me: Me | None = None
    resign: bool = False
    now_ms: int = 0
    name = "close"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        if self.me is not None:
            self.me.check(manifest)
        found = manifest.open_segment
        mine = found is not None and found.n == self.n
        if not mine and not self.resign:
            return None
        if mine:
            manifest = closed(manifest, self.counts, self.now_ms)
        return replace(manifest, owner=None) if self.resign else manifest


@dataclass(frozen=True, slots=True)
class Resign:
    """The owner leaves; to whom it hands over, if to anybody, stays until the next claim."""

    me: Me
    name = "resign"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        self.me.check(manifest)
        return replace(manifest, owner=None)


@dataclass(frozen=True, slots=True)
class Announce:
    """The owner says to whom it hands over.  Not wanted once it has left: its resignation does not wait for this."""

    me: Me
    transfer: Transfer
    name = "announce"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_open(manifest)
        if not self.me.owns(manifest) or manifest.transfer == self.transfer:
            return None
        return replace(manifest, transfer=self.transfer)


def is_doomed(manifest: Manifest, ledger: int) -> bool:
    """True if the ledger is being deleted: upkeep may have fenced it already."""
    return any(each.ledger == ledger for each in manifest.doomed)


def closed(manifest: Manifest, counts: Counts, now_ms: int = 0) -> Manifest:
    """Closes its open segment; an empty one is doomed for good.  With `dedup` it has the newest table of producers."""
    found = manifest.segments[-1]
    if counts.records == 0:
        return replace(
            manifest,
            segments=manifest.segments[:-1],
            doomed=(*manifest.doomed, Doomed(found.ledger, "empty", now_ms)),
        )
    table = found.n if manifest.settings.get("dedup") else manifest.table
    segments = (*manifest.segments[:-1], found.closed(counts, manifest.last_stamp))
    return replace(manifest, segments=segments, table=table)


# -- publishing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """A closed ledger that becomes a segment."""

    ledger: int
    records: int
    bytes: int
    entries: int
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Closed ledgers behind the log's end.  `settled`: the segment that was open; none may be open still."""

    ledgers: Sequence[Published]
    stamp: int  # the publisher's; the segments' is no lower than the log's end
    settled: tuple[int, Counts] | None = None
    txn: str | None = None
    batch: int | None = None
    raw: bool = False
    now_ms: int = 0

    @property
    def name(self) -> str:
        return "adopt" if self.raw else "publish"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_open(manifest)
        check_publishable(manifest)
        found = manifest.open_segment
        if found is not None:
            if self.settled is None or self.settled[0] != found.n:
                return None
            manifest = closed(manifest, self.settled[1], self.now_ms)
        doomed = {each.ledger for each in manifest.doomed}.intersection(each.ledger for each in self.ledgers)
        if doomed:
            raise PublishRefused(f"ledger {min(doomed)} is being deleted by the log {manifest.name!r}")
        stamp = max(self.stamp, manifest.last_stamp)
        index, at = manifest.closed_end
        segments = []
        for number, each in enumerate(self.ledgers, manifest.next):
            segments.append(
                Segment(
                    number,
                    each.ledger,
                    manifest.epoch,
                    index,
                    at,
                    each.records,
                    each.bytes,
                    each.entries,
                    (stamp, stamp),
                    self.txn,
                    self.batch,
                    each.part,
                    self.raw,
                )
            )
            index, at = index + each.records, at + each.bytes
        return replace(manifest, segments=(*manifest.segments, *segments), next=manifest.next + len(segments))


def check_publishable(manifest: Manifest) -> None:
    """`PublishRefused` when the log takes no published ledgers; `LogIsMirror`."""
    check_mirror(manifest, False)
    if not manifest.settings.get("publish", True) or manifest.settings.get("lease_ms", 0):
        raise PublishRefused(
            f"the log {manifest.name!r} takes no published ledgers: "
            f"`quire log set {manifest.name} publish=true lease_ms=0` lets it"
        )


# -- what every edit does --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """A new manifest, and the chunks that it names and that have to be made before: name and content."""

    manifest: Manifest
    chunks: Sequence[tuple[str, Chunk]] = ()


def made(manifest: Manifest, edit: str, now_ms: int, unique: Callable[[], str]) -> Made:
    """
    The edit's id first among the recent ones, and old segments in chunks when there are too many; `unique()` gives 8
    random hex digits.  `LogFull` when there are too many chunks, or the value is too large.
    """
    recent = (edit, *(each for each in manifest.recent if each != edit))[:RECENT_MAX]
    manifest = replace(manifest, edit=edit, recent=recent)
    chunks: list[tuple[str, Chunk]] = []
    if len(manifest.segments) > SEGMENTS_MAX:
        old, kept = manifest.segments[:-SEGMENTS_KEPT], manifest.segments[-SEGMENTS_KEPT:]
        for part in cut(old):
            chunk = Chunk(FORMAT, manifest.id, edit, now_ms, tuple(part))
            chunks.append((f"{part[0].n:012d}-{unique()}", chunk))
        lines = (*manifest.chunks, *(chunk.line(name) for name, chunk in chunks))
        if len(lines) > LINES_MAX:
            raise LogFull(
                f"the log {manifest.name!r} would have {len(lines)} chunks of segments, at most {LINES_MAX} are "
                f"possible: `quire log trim {manifest.name} --before N` makes room, a larger roll_bytes needs less"
            )
        manifest = replace(manifest, chunks=lines, segments=kept)
    manifest.check()
    return Made(manifest, chunks)


def encoded(manifest: Manifest) -> bytes:
    """Encodes a manifest; `LogFull` when it has more bytes than a value may have."""
    data = manifest.encode()
    if len(data) > VALUE_BYTES_MAX:
        raise LogFull(
            f"the manifest of the log {manifest.name!r} would have {len(data)} bytes, at most {VALUE_BYTES_MAX} are "
            f"possible: `quire log tidy {manifest.name}` and a trim make room"
        )
    return data


def cut(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Cuts segments into as many as a chunk may have."""
    parts: list[list[Segment]] = []
    size = CHUNK_BYTES_MAX
    for segment in segments:
        length = len(to_json(segment)) + 2
        if size + length > CHUNK_BYTES_MAX or len(parts[-1]) >= CHUNK_SEGMENTS_MAX:
            parts.append([])
            size = 200
        parts[-1].append(segment)
        size += length
    return parts
