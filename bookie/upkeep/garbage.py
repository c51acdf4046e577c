"""
Garbage collection: when ledgers of this bookie are deleted and disk space is got back.

A round, every `gcWaitTime` or when it is forced: ledgers that the metadata store does not have any more are deleted
here (`deletions`); then a pass over the entry logs (`space`) removes those that are not needed, and compacts, when a
minor or a major compaction is due, those that are mostly dead.

Knows: that order, the intervals.  Does not know: what is evidence, files, index rows.
Safety: entry logs are looked at also where ledgers could not be.
"""

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.upkeep.deletions import Deletions, Doubt
from quire.bookie.upkeep.space import DirectorySpace, Space
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerError
from quire.rows.files import FULL, Files, StorageError

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage

# SPDX-License-Identifier: Apache-2.0

log = Logger()


class CompactionKind:
    """Minor or major compaction."""

    __slots__ = ("_clock", "_since", "count", "interval", "name", "seconds_max", "suspended", "threshold")

    def __init__(self, clock: Clock, name: str, threshold: float, interval: int, ms_max: int) -> None:
        self.name = name
        self.threshold = threshold if 0 < threshold <= 1 else 0.0
        self.interval = interval
        self.seconds_max = max(ms_max, 0) / 1000
        self.suspended = False
        self.count = 0
        self._clock = clock
        self._since = clock.seconds()

    @property
    def on(self) -> bool:
        return self.threshold > 0 and self.interval > 0

    @property
    def age(self) -> float:
        """Seconds since the last one, or the start."""
        return abs(self._clock.seconds() - self._since)

    @property
    def due(self) -> bool:
        return self.on and self.age >= self.interval

    def done(self) -> None:
        self._since = self._clock.seconds()


class Garbage:
    """Makes rounds.  `start` sets the timer, `force` makes one at once, `stop` fires when the last has ended."""

    def __init__(
        self,
        clock: Clock,
        options: BookieOptions,
        files: Files,
        storage: "Storage",
        space: Space,
        store: MetadataStore,
        guard: StoreGuard,
    ) -> None:
        self.minor = CompactionKind(
            clock,
            "minor",
            options.minor_compaction_threshold,
            options.minor_compaction_interval_s,
            options.minor_compaction_ms_max,
        )
        self.major = CompactionKind(
            clock,
            "major",
            options.major_compaction_threshold,
            options.major_compaction_interval_s,
            options.major_compaction_ms_max,
        )
        self.problem: str | None = None  # why the last round deleted no ledgers, or not all, or made too little room
        self._clock = clock
        self._options = options
        self._files = files
        self._storage = storage
        self._space = space
        self._deletions = Deletions(clock, options.gc_metadata_reads_per_second, storage, store, guard)
        self._timer: Timer | None = None
        self._running: Deferred[None] | None = None
        self._forced: set[str] = set()  # kinds for the next round
        self._forced_now = False
        self._begun = 0
        self._stopped = False

    def start(self) -> None:
        if self._running is not None or (self._timer is not None and self._timer.active()):
            return  # a forced round was faster
        self._timer = self._clock.callLater(self._options.gc_interval_ms / 1000, self._on_timer)

    async def stop(self) -> None:
        """No more rounds; one that runs ends at its next step."""
        self._stopped = True
        self._deletions.stop()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._running is not None:
            await self._running

    def force(self, minor: bool = True, major: bool = True) -> int:
        """Makes a round now, or right after the one that runs; its number, to compare with `status()["rounds"]`."""
        self._forced |= {name for name, wanted in (("minor", minor), ("major", major)) if wanted} | {"round"}
        if self._running is None and not self._stopped:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            self._run()
            return self._begun
        return self._begun + 1

    @property
    def forced(self) -> bool:
        """True while a forced round runs or waits."""
        return bool(self._forced) or self._forced_now

    def under_pressure(self) -> None:
        """A disk got nearly full."""
        if self._options.gc_when_no_space and not self.forced:
            self.force()

    def status(self) -> dict[str, Any]:
        """For people and programs; the numbers are since the start."""
        counters = self._storage.counters
        return {
            "running": self._running is not None,
            "forced": self.forced,
            "rounds": counters.gc_rounds,
            "ledgers_deleted": counters.gc_ledgers_deleted,
            "logs_removed": counters.gc_logs_removed,
            "bytes_removed": counters.gc_bytes_removed,
            "bytes_moved": counters.gc_bytes_moved,
            "problem": self.problem,
            **{
                kind.name: {
                    "on": kind.on,
                    "suspended": kind.suspended,
                    "count": kind.count,
                    "seconds_ago": round(kind.age),
                }
                for kind in (self.minor, self.major)
            },
            "directories": [
                {
                    "path": space.path,
                    "logs": len(space.uses),
                    "bytes": space.total,
                    "living_bytes": space.live,
                    "left_alone": len(space.left_alone),
                    "problem": space.problem,
                }
                for space in self._space.directories
            ],
        }

    @property
    def directories(self) -> list[DirectorySpace]:
        """Each directory as the last pass over the logs saw it."""
        return self._space.directories

    def gauges(self) -> list[tuple[str, str, float]]:
        """Name, meaning and value of what /metrics shows beside the counters; as the last pass over the logs saw it."""
        spaces = self._space.directories
        return [
            ("entry_logs", "finished entry logs", sum(len(space.uses) for space in spaces)),
            ("entry_log_bytes", "bytes of entries in finished entry logs", sum(space.total for space in spaces)),
            ("entry_log_living_bytes", "those of them that are needed", sum(space.live for space in spaces)),
            (
                "entry_logs_left_alone",
                "entry logs that are not touched because something is wrong",
                sum(len(space.left_alone) for space in spaces),
            ),
            ("gc_running", "1 while a round of garbage collection runs", int(self._running is not None)),
        ]

    def _on_timer(self) -> None:
        if self._running is None:
            self._run()

    def _run(self) -> None:
        self._begun += 1
        forced, self._forced = self._forced, set()
        self._forced_now = bool(forced)
        over: Deferred[None] = Deferred()
        self._running = over
        Deferred.fromCoroutine(self._round(forced)).addBoth(self._ended, over)

    def _ended(self, result: object, over: Deferred[None]) -> None:
        if result is not None:
            # a Failure then
            log.failure("a round of garbage collection failed", failure=result)  # type: ignore[arg-type]
        self._storage.counters.gc_rounds += 1
        self._running = None
        self._forced_now = False
        if self._forced and not self._stopped:
            self._run()
        elif not self._stopped:
            self.start()
        over.callback(None)

    async def _round(self, forced: set[str]) -> None:
        try:
            await self._deletions.delete()
            self.problem = None
        except (Doubt, LedgerError, StorageError, OSError) as doubt:
            self.problem = str(doubt)
            log.warn("garbage collection deletes no more ledgers in this round: {reason}", reason=self.problem)
        kinds = [kind for kind in (self.minor, self.major) if self._wanted(kind, kind.name in forced)]
        if not (self._deletions.unswept or kinds or forced):
            return
        failure = await self._checkpoint()  # index rows of deleted ledgers go with one
        if self._stopped:
            return
        limits = [kind.seconds_max for kind in kinds]
        await self._space.reclaim(
            lambda path: self._threshold(path, kinds), 0 if not all(limits) else max(limits, default=0), bool(forced)
        )
        if failure is not None and not self._stopped:
            failure = await self._checkpoint()  # there may be room for it now
        self._deletions.unswept = failure is not None or any(space.problem for space in self._space.directories)
        if failure is not None:
            why = f"no checkpoint could be made, so what was deleted may still take room: {failure}"
            self.problem = "; ".join(filter(None, (self.problem, why)))
            log.warn("garbage collection: {reason}", reason=why)
        for kind in kinds:
            kind.done()
            kind.count += 1
        if self.major in kinds:
            self.minor.done()

    async def _checkpoint(self) -> str | None:
        """Why none could be made."""
        try:
            await self._storage.flush()
        except (StorageError, OSError) as failure:
            if isinstance(failure, OSError) and failure.errno in FULL:
                return f"{failure}; take other files off that disk or enlarge it, and collect again"
            return str(failure)
        return None

    def _wanted(self, kind: CompactionKind, forced: bool) -> bool:
        if kind.suspended and not (forced and self._options.gc_when_no_space):
            return False
        if forced:
            return kind.on or (self._options.force_allow_compaction and kind.threshold > 0)
        return kind.due

    def _threshold(self, path: str, kinds: list[CompactionKind]) -> float:
        """Returns the threshold for a directory now: a compaction needs room before it gives some back."""
        used = self._files.usage(path)
        part = 1 - used.free / used.total if used.total else 0.0
        allowed = kinds
        if not self._options.gc_when_no_space:
            if part > self._options.disk_usage_threshold:
                allowed = []
            elif part > self._options.disk_usage_warn_threshold:
                allowed = [kind for kind in kinds if kind is not self.major]
        return max((kind.threshold for kind in allowed), default=0.0)
