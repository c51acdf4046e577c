"""
The part of a log that may go by age and size, and what a backlog above its quota means.

Knows: the limits, that the oldest segments go first and the last one stays, that nothing goes that a hold needs.
Does not know: clocks, where holds and backlogs come from, how something is deleted.

Safety: without a time that can be believed nothing goes by its age; the begin that is proposed is never above a hold,
nor above the first record of the log's last segment.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from quire.log.core.values import Line, Segment

# SPDX-License-Identifier: Apache-2.0

UNLIMITED = -1


class Limits(NamedTuple):
    """
    In ms and bytes; -1: without limit.  A closed segment goes when its newest record is older, or when the closed
    bytes from it on are more, without those of segments that were given up, which are not there.  0 in either: nothing
    is kept that need not be.
    """

    ms: int
    bytes: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Limits":
        """Reads the limits from a manifest's settings."""
        return cls(int(settings.get("retention_ms", UNLIMITED)), int(settings.get("retention_bytes", UNLIMITED)))

    @property
    def any(self) -> bool:
        """True if anything can go by these limits."""
        return self.ms != UNLIMITED or self.bytes != UNLIMITED

    def may_take(self, part: Segment | Line, size: int, now_ms: int) -> bool:
        """True if the first segment of a part may go, as far as the whole tells.  `size`: closed bytes from it on."""
        return (
            0 in self
            or (self.bytes != UNLIMITED and size > self.bytes)
            or (self.ms != UNLIMITED and part.t is not None and now_ms - part.t[0] > self.ms)
        )

    def reason(self, segment: Segment, size: int, now_ms: int | None) -> str:
        """Why a closed segment goes, if it does: "age", "size"; `size` is that of the closed bytes from it on."""
        if 0 in self:
            return "age" if self.ms == 0 else "size"
        if self.bytes != UNLIMITED and size > self.bytes:
            return "size"
        if self.ms != UNLIMITED and now_ms is not None and segment.t is not None and now_ms - segment.t[1] > self.ms:
            return "age"
        return ""


class Verdict(NamedTuple):
    """Where the log is to begin, and why what is before goes: "age", "size"; of several reasons the last."""

    begin: int
    why: str


def verdict(
    segments: Iterable[Segment], last: int, size: int, limits: Limits, now_ms: int | None, hold: int | None = None
) -> Verdict | None:
    """
    Judges the segments in order from the first on; None: nothing goes.  `last`: the number of the log's last segment,
    which stays.  `size`: the closed bytes from the first on, without those of segments that were given up.  `now_ms`
    None: no age is known.  `hold`: the lowest index that something needs, inside a segment, too.
    """
    found: Verdict | None = None
    for segment in segments:
        if segment.n == last or segment.is_open or (hold is not None and hold <= segment.first):
            break
        why = limits.reason(segment, size, now_ms)
        if not why:
            break
        size -= 0 if segment.lost else segment.bytes or 0
        found = Verdict(segment.end if hold is None else min(hold, segment.end), why)
    return found


class Backlog(NamedTuple):
    """The part of a log before a cursor: records, bytes of their values and skips, age of the oldest in ms."""

    records: int
    bytes: int
    ms: int


def over_quota(settings: Mapping[str, Any], backlog: Backlog) -> str:
    """By what a backlog is above the quota, in words; empty: it is not."""
    most_bytes, most_ms = int(settings.get("quota_bytes", UNLIMITED)), int(settings.get("quota_ms", UNLIMITED))
    if most_bytes != UNLIMITED and backlog.bytes > most_bytes:
        return f"{backlog.bytes} bytes, quota_bytes is {most_bytes}"
    if most_ms != UNLIMITED and backlog.ms > most_ms:
        return f"{backlog.ms} ms, quota_ms is {most_ms}"
    return ""


def has_quota(settings: Mapping[str, Any]) -> bool:
    """True if a log has a quota."""
    return any(settings.get(name, UNLIMITED) != UNLIMITED for name in ("quota_bytes", "quota_ms"))
