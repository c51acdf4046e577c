"""
A storage in memory with the contract of the real one, and switches for a test: what is synced when, whether there is
room, whether reads have to wait.  It is also the slow twin of the rules: plain dicts, nothing clever.
"""

from array import array
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.storage.journals import StorageEvents
from quire.bookie.upkeep.space import DirectorySpace, Threshold
from quire.metrics.histogram import Histogram
from quire.protocol import availability
from quire.protocol.digest import explicit_lac, last_add_confirmed
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun

# SPDX-License-Identifier: Apache-2.0


class FakeLedger:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.fenced = False
        self.moment = 0  # of the storage, in which the last write was taken
        self.limbo = False
        self.explicit_lac: bytes | None = None
        self.lac = -1
        self.entries: dict[int, bytes] = {}
        self.watchers: list[Callable[[], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def wake(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def raise_lac(self, lac: int) -> None:
        if lac > self.lac:
            self.lac = lac
            self.wake()


class FakeSpace:
    """Entry logs of which no space is reclaimed; `passes` are the thresholds asked for."""

    def __init__(self) -> None:
        self.directories: list[DirectorySpace] = []
        self.passes: list[float] = []
        self.held: Deferred[None] | None = None  # given by passes until upkeep is stopped

    def reclaim(self, threshold: Threshold, seconds_max: float = 0, forced: bool = False) -> Deferred[None]:
        if self.held is not None:
            self.passes.append(0.0)
            return self.held
        self.passes.append(threshold("/ledgers"))
        return succeed(None)


class FakeRebuild:
    """Never has anything to do; `begun` counts."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = False

    def start(self) -> bool:
        self.begun += not self.under_way
        return not self.under_way

    def status(self) -> dict[str, Any]:
        return {"running": self.under_way, "problem": None, "directories": []}


class FakeIndexCompaction:
    """Two stores; `started` has what was asked for."""

    def __init__(self) -> None:
        self.started: list[set[str]] = []

    def start(self, stores: Collection[str]) -> None:
        self.started.append(set(stores))

    def status(self) -> dict[str, bool]:
        return {"/one/runs": bool(self.started), "/two/runs": False}


class FakeUpkeep:
    def __init__(self) -> None:
        self.space = FakeSpace()
        self.rebuild = FakeRebuild()
        self.compaction = FakeIndexCompaction()

    async def stop(self) -> None:
        if self.space.held is not None:
            self.space.held.callback(None)


class FakeCounters:
    __slots__ = ("_hidden", "gc_ledgers_deleted", "gc_rounds", "journal_syncs")

    def __init__(self) -> None:
        self.gc_rounds = self.gc_ledgers_deleted = 0
        self.journal_syncs = 0
        self._hidden = 1


class FakeStorage:
    """`sync` hands the waiting tokens back; with `at_once` every call does.  `room` is how many more runs are taken."""

    def __init__(self, at_once: bool = False) -> None:
        self.events: Any = StorageEvents()
        self.at_once = at_once
        self.room: float = float("inf")
        self.slow = False  # reads give Deferreds, kept in `reading`
        self.alone: list[bool] = []  # of each single read
        self.reading: list[tuple[Deferred[object], object]] = []
        self.tokens: list[object] = []
        self.kept: dict[int, FakeLedger] = {}
        self.taken: list[tuple[int, int, int]] = []  # (ledger, first, count) of each run in the order it was taken
        self.counters = FakeCounters()
        self.journals: list[Any] = []
        self.checkpoints = SimpleNamespace(times=Histogram())
        self.workers = SimpleNamespace(queue_times=[Histogram()], work_times=[Histogram()])
        self.replay_found_limbo = False
        self.given_up: list[tuple[str, str]] = []
        self.stale: list[str] = []
        self.doubted: frozenset[int] = frozenset()
        self.lost: set[int] = set()  # ledgers whose directory has failed, as far as a force cares
        self.arrived: set[int] = set()
        self.moment = 0
        self.started = self.closed = False
        self.start_error: Exception | None = None

    def listen(self, events: Any) -> None:
        self.events = events

    def caught_up(self) -> None:
        self.stale = []

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.started = True

    def close(self) -> Deferred[None]:
        self.closed = True
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    def sync(self) -> None:
        """One group."""
        tokens, self.tokens = self.tokens, []
        self.counters.journal_syncs += 1
        self.events.durable(tokens)

    def _queue(self, token: object) -> None:
        self.tokens.append(token)
        if self.at_once:
            self.sync()

    def _open(self, ledger: int, key: bytes) -> FakeLedger | Status:
        found = self.kept.setdefault(ledger, FakeLedger(key))
        found.moment = self.moment
        return found if found.key == key else Status.EUA

    def add(self, run: AddRun, token: object) -> Status | None:
        found = self._open(run.ledger, run.master_key)
        if isinstance(found, Status):
            return found
        if found.fenced and not run.recovery:
            return Status.EFENCED
        if self.room < 1:
            return None
        self.room -= 1
        self.taken.append((run.ledger, run.first, len(run.bodies)))
        for entry, body in enumerate(run.bodies, run.first):
            found.entries[entry] = body
        self._queue(token)
        found.raise_lac(max(map(last_add_confirmed, run.bodies)))
        return Status.EOK

    def fence(self, ledger: int, master_key: bytes, token: object) -> Status:
        found = self._open(ledger, master_key)
        if isinstance(found, Status):
            return found
        found.fenced = True
        found.wake()
        self._queue(token)
        return Status.EOK

    def write_lac(self, ledger: int, master_key: bytes, body: bytes, token: object) -> Status | None:
        if self.room < 1:
            return None
        found = self._open(ledger, master_key)
        if isinstance(found, Status):
            return found
        found.explicit_lac = body
        found.lac = max(found.lac, explicit_lac(body))
        found.wake()
        self._queue(token)
        return Status.EOK

    def hint_lac(self, ledger: int, master_key: bytes, body: bytes) -> Status:
        found = self.kept.get(ledger)
        if found is None:
            return Status.ENOLEDGER
        if found.key != master_key:
            return Status.EUA
        found.explicit_lac = body
        found.raise_lac(explicit_lac(body))
        return Status.EOK

    def force(self, ledger: int, token: object) -> Status:
        if ledger in self.lost:
            return Status.EUNKNOWNLEDGERSTATE
        self._queue(token)
        return Status.EOK

    def set_limbo(self, ledger: int, limbo: bool, token: object | None = None) -> Status:
        if ledger not in self.kept:
            return Status.ENOLEDGER
        self.kept[ledger].limbo = limbo
        if token is not None:
            self._queue(token)
        return Status.EOK

    async def mark_limbo(self, rows: Mapping[int, LedgerRow]) -> None:
        for ledger, row in rows.items():
            found = self._open(ledger, row.key)
            assert not isinstance(found, Status)
            found.limbo, found.fenced = True, row.fenced

    @property
    def failed_directories(self) -> list[str]:
        return [path for path, _reason in self.given_up]

    def fail_directory(self, path: str, reason: str) -> bool:
        self.given_up.append((path, reason))
        return len(self.given_up) < 2

    def limbo_ledgers(self) -> list[int]:
        return sorted(ledger for ledger, found in self.kept.items() if found.limbo)

    def held(self, ledger: int) -> Deferred[bytes]:
        found = self.kept.get(ledger)
        return succeed(
            availability.encode([(entry, 1) for entry in sorted(found.entries)] if found is not None else [])
        )

    def take_arrived(self) -> set[int]:
        arrived, self.arrived = self.arrived, set()
        return arrived

    def aside(self, job: Callable[..., None], *args: Any) -> Deferred[None]:
        return maybeDeferred(job, *args)

    def stored_ledgers(self) -> "Deferred[array[int]]":
        return succeed(array("q", sorted(self.kept)))

    def flush(self) -> Deferred[None]:
        return succeed(None)

    def idle_seconds(self, ledger: int) -> int:
        return 0

    def drop_copy(self, ledger: int) -> None:
        self.kept[ledger].entries.clear()

    def next_moment(self) -> int:
        self.moment += 1
        return self.moment

    def written_since(self, ledger: int, moment: int) -> bool:
        return ledger in self.kept and self.kept[ledger].moment >= moment

    def delete_ledger(self, ledger: int, remembered: bool = True) -> None:
        if ledger in self.kept:
            self.delete(ledger)

    def delete(self, ledger: int) -> None:
        self.kept.pop(ledger).wake()

    def _later(self, value: object) -> object:
        if not self.slow:
            return value
        waiting: Deferred[object] = Deferred()
        self.reading.append((waiting, value))
        return waiting

    def answer_reads(self) -> None:
        """Every read that waits comes to its end, the last one first."""
        while self.reading:
            waiting, value = self.reading.pop()
            if isinstance(value, Exception):
                waiting.errback(value)
            else:
                waiting.callback(value)

    def _missing(self, found: FakeLedger | None) -> Status:
        if found is None:
            return Status.ENOLEDGER
        return Status.EUNKNOWNLEDGERSTATE if found.limbo else Status.ENOENTRY

    def _read(self, ledger: int, entry: int) -> bytes | Status:
        found = self.kept.get(ledger)
        if found is None:
            return self._missing(found)
        if entry == -1:
            entry = max(found.entries, default=-1)
        return found.entries.get(entry) or self._missing(found)

    def read(self, ledger: int, entry: int, alone: bool = False):  # type: ignore[no-untyped-def]
        self.alone.append(alone)
        return self._later(self._read(ledger, entry))

    def read_run(self, ledger: int, first: int, count_max: int, bytes_max: int):  # type: ignore[no-untyped-def]
        body = self._read(ledger, first)
        if isinstance(body, Status):
            return self._later(body)
        bodies, size = [body], 40 + len(body)
        while len(bodies) < count_max:
            body = self._read(ledger, first + len(bodies))
            if isinstance(body, Status) or size + 4 + len(body) > bytes_max:
                break
            bodies.append(body)
            size += 4 + len(body)
        return self._later(bodies)

    def entries(self, ledger: int):  # type: ignore[no-untyped-def]
        found = self.kept.get(ledger)
        if found is None:
            return Status.ENOLEDGER
        return self._later(availability.encode((entry, 1) for entry in sorted(found.entries)))

    def lac(self, ledger: int):  # type: ignore[no-untyped-def]
        return self.kept[ledger].lac if ledger in self.kept else -1

    def explicit_lac(self, ledger: int) -> bytes | None:
        return self.kept[ledger].explicit_lac if ledger in self.kept else None

    def ledger(self, ledger: int) -> FakeLedger | None:
        return self.kept.get(ledger)

    def disk_usage(self) -> tuple[int, int]:
        return 1000, 500

    def disks(self) -> dict[str, tuple[int, int]]:
        return {"ledgers": self.disk_usage(), "journals": (100, 10)}
