"""
The numbers that a process counts of one log, as plain numbers: of a batch, an edit or a segment at a time, never of
each record.

Knows: names.  Does not know: who counts, who shows it (`log.store.metrics`).
"""

from bisect import bisect_left
from collections.abc import Callable

from quire.log.core.manifest import Manifest

# SPDX-License-Identifier: Apache-2.0

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
RECORDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class Histogram:
    """How many observations were at most each of `bounds`, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """The text of each bound and the observations up to it; the last has all."""
        found, total = [], 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return found


class LogCounters:
    """The plain numbers of one log in one process; or of all logs that have no label."""

    def __init__(self) -> None:
        self.appends = 0  # records that were acknowledged
        self.append_bytes = 0
        self.append_seconds = Histogram(SECONDS)  # of an entry, from when it was handed over to its acknowledgement
        self.batch_records = Histogram(RECORDS)
        self.rolls: dict[tuple[str, ...], int] = {}  # by why
        self.hook_slow = 0
        self.duplicates = 0
        self.fences = 0
        self.takeovers = 0
        self.takeover_seconds = Histogram(SECONDS)
        self.edits: dict[tuple[str, ...], int] = {}  # by edit and outcome
        self.edit_conflicts = 0
        self.manifest_bytes = 0
        self.segments = 0
        self.doomed = 0
        self.publishes: dict[tuple[str, ...], int] = {}  # by outcome
        self.published_ledgers = 0
        self.janitor_ledgers = 0
        self.read_records = 0
        self.cache_bytes = 0  # of what readers find without asking bookies
        self.cache_hits = 0  # entries that readers were given without asking for them, and others
        self.cache_misses = 0
        self.cursor_persist_bytes = 0
        self.cursor_backlogs: dict[str, tuple[int, int]] = {}  # by cursor: records and bytes
        self.tail_lag_records = 0
        self.tail_lag_seconds = 0.0
        self.applied_index = 0
        self.snapshot_seconds = Histogram(SECONDS)
        self.reads: dict[tuple[str, ...], int] = {}  # by mode and outcome
        self.lease: Callable[[], float] = float  # seconds left of this process's owner's

    @property
    def lease_seconds_left(self) -> float:
        """How long this owner's lease counts still."""
        return self.lease()

    def appended(self, records: int, size: int, seconds: float) -> None:
        """An entry of an owner is acknowledged."""
        self.appends += records
        self.append_bytes += size
        self.append_seconds.observe(seconds)
        self.batch_records.observe(records)

    def rolled(self, why: str) -> None:
        """A segment ends: `records`, `bytes`, `age`, `request` or `settings`."""
        self.rolls[(why,)] = self.rolls.get((why,), 0) + 1

    def edited(self, edit: str, outcome: str) -> None:
        """An edit is `done`, `unwanted`, `refused`, or its outcome `unknown`."""
        self.edits[edit, outcome] = self.edits.get((edit, outcome), 0) + 1

    def known(self, manifest: Manifest, size: int) -> None:
        """A newer manifest, and its bytes."""
        self.manifest_bytes = size
        self.segments = manifest.segment_count
        self.doomed = len(manifest.doomed)

    def published(self, outcome: str, ledgers: int = 0) -> None:
        """A commit is `done`, `again`, `refused`, or its outcome `unknown`."""
        self.publishes[(outcome,)] = self.publishes.get((outcome,), 0) + 1
        self.published_ledgers += ledgers

    @property
    def cursor_backlog_records(self) -> int:
        """How far the slowest cursor that is held here is behind, in records."""
        return max((records for records, _bytes in self.cursor_backlogs.copy().values()), default=0)

    @property
    def backlog_bytes(self) -> int:
        """How far the slowest cursor that is held here is behind, in bytes."""
        return max((size for _records, size in self.cursor_backlogs.copy().values()), default=0)

    def read(self, mode: str, outcome: str) -> None:
        """A read of a replica is `answered`, `stale`, or `failed`."""
        self.reads[mode, outcome] = self.reads.get((mode, outcome), 0) + 1

    def tailed(self, records: int, seconds: float) -> None:
        """A tail gave out a batch: how far it is behind the closed segments, and how old the batch is."""
        self.tail_lag_records = max(0, records)
        self.tail_lag_seconds = max(0.0, seconds)
