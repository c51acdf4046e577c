"""
Records that two logs have in common, and the edits by which a log becomes a copy of another one, or ceases to be one.

A log that was a copy, of whichever log, says so in its manifest for good (`origins`): up to which index its records are
those of that log.  So two logs that were copies of each other, or of a third one, in any order, know up to where they
are the same without a look at their records.

Knows: what is written down of copies, and what follows from it.
Does not know: how records are copied, where logs are.
Safety: a log becomes a copy only where all that it has is in the other log at the same indexes, by a handle that owns
it, with nothing open: so no owner of before appends to it any more.  It ceases to be one likewise, at its end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from quire.log.core.edits import Me, check_open, closed
from quire.log.core.manifest import MIRROR, TERMINATED, Manifest, needs_of
from quire.log.core.values import Counts, Origin
from quire.protocol.log_errors import LogError, LogFenced, MirrorDiverged

# SPDX-License-Identifier: Apache-2.0

EVER = 1 << 63  # above every index
ORIGINS_MAX = 64


class Lineage(NamedTuple):
    """A log's id, and what it says of the logs that it was a copy of."""

    log: str
    origins: tuple[Origin, ...]

    def shares(self) -> dict[str, int]:
        """Below which index its records are those of each log, itself among them."""
        found = {self.log: EVER}
        for origin in self.origins:
            end = EVER if origin.end is None else origin.end
            found[origin.log] = max(end, found.get(origin.log, 0))
        return found

    @property
    def closed(self) -> "Lineage":
        """Without the log that it is a copy of now."""
        return Lineage(self.log, tuple(origin for origin in self.origins if origin.end is not None))

    @property
    def mirrored(self) -> Origin | None:
        """The log that it is a copy of now."""
        return self.origins[-1] if self.origins and self.origins[-1].end is None else None


def in_common(one: Lineage, other: Lineage) -> int | None:
    """Below which index both have the same records, as far as they have any; None: they have nothing to do."""
    mine, theirs = one.shares(), other.shares()
    return max((min(mine[log], theirs[log]) for log in mine.keys() & theirs.keys()), default=None)


def check_copy(copy: Lineage, name: str, end: int, source: Lineage) -> None:
    """`MirrorDiverged` where the log has records, up to `end`, that the one it is to be a copy of does not have."""
    now = copy.mirrored
    continues = now is not None and now.log == source.log
    own = now.start if continues and now is not None else end
    common = in_common(copy.closed if continues else copy, source)
    if common is None and continues and own == 0:
        return
    if common is None or common < own:
        raise diverged(name, 0 if common is None else common, own)


def promoted_at(copy: Lineage, source: Lineage) -> int | None:
    """
    Tells at which index a log ceased to be a copy of another one; None: it was none last, or is one now, or the other
    one was a copy of it since.
    """
    last = copy.origins[-1] if copy.origins else None
    if last is None or last.end is None or last.log != source.log:
        return None
    back = [EVER if origin.end is None else origin.end for origin in source.origins if origin.log == copy.log]
    return last.end if max(back, default=-1) <= last.end else None


def diverged(name: str, first: int, end: int) -> MirrorDiverged:
    """The error of records that the other log does not have."""
    error = MirrorDiverged(
        f"the log {name!r} has records {first} to {end - 1} that the log it is to be a copy of does not have at these "
        "indexes: nothing was changed; `quire log mirror --set-aside NEW` keeps it under another name, and begins a "
        "copy in its place"
    )
    error.first, error.end = first, end
    return error


def unchecked(_manifest: Manifest) -> None:
    """Takes any log."""


@dataclass(frozen=True, slots=True)
class BecomeCopy:
    """
    The log's owner makes it a copy, from its end on, which is `origin.start`.  `check` is given the manifest, and may
    refuse.
    """

    me: Me
    origin: Origin
    check: Callable[[Manifest], object] = unchecked
    name = "mirror"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_open(manifest)
        self.check(manifest)
        of = manifest.mirrored
        if of is not None and of.log == self.origin.log:
            return None
        self.me.check(manifest)
        end = _closed_end(manifest)
        if end != self.origin.start:
            raise LogFenced(f"the log {manifest.name!r} ends at {end} by now, not at {self.origin.start}")
        origins = (*_ended(manifest.origins, end), self.origin)
        return replace(manifest, origins=origins[-ORIGINS_MAX:], needs=needs_of(manifest.settings, origins))


@dataclass(frozen=True, slots=True)
class Promote:
    """
    The log's mirror makes it a log of its own, from its end on, and leaves it; it then stays, if it was on its way to
    another cluster.  `ends`: number and counts of the open segment.  `terminated`: the log that it was a copy of takes
    no records any more, and neither does this one.
    """

    me: Me
    ends: tuple[int, Counts] | None = None
    now_ms: int = 0
    terminated: bool = False
    name = "promote"

    def apply(self, manifest: Manifest) -> Manifest | None:
        if MIRROR not in manifest.needs:
            return None
        self.me.check(manifest)
        found = manifest.open_segment
        if found is not None and self.ends is not None and found.n == self.ends[0]:
            manifest = closed(manifest, self.ends[1], self.now_ms)
        end = _closed_end(manifest)
        origins = _ended(manifest.origins, end)
        log = replace(manifest, owner=None, origins=origins, needs=needs_of(manifest.settings, origins), moved=None)
        return replace(log, state=TERMINATED, end=end, transfer=None) if self.terminated else log


def _closed_end(manifest: Manifest) -> int:
    if manifest.open_segment is not None:
        raise LogError(f"a segment of the log {manifest.name!r} is open: it changes its part with none open")
    return manifest.closed_end[0]


def _ended(origins: tuple[Origin, ...], end: int) -> tuple[Origin, ...]:
    """With what its records behind `end` will be: those of none of these logs."""
    return tuple(replace(each, end=end if each.end is None else min(each.end, end), held=False) for each in origins)
