"""
The parts of a storage that all others rest on, the numbers that they count, and the workers that do its slow work: a
small pool of threads, or, in tests and simulation, the caller itself.

Knows: which parts these are, how a job gets a Deferred, and how a long job leaves the interpreter to the reactor every
half millisecond.
Does not know: what the parts and the jobs do.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from quire.bookie.directory.directories import Directories
from quire.bookie.storage.ledgers import Ledgers
from quire.bookie.storage.write_cache import WriteCache
from quire.metadata.clock import Reactor
from quire.metrics.histogram import Histogram
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
SLICE_SECONDS = 0.0004  # a job computes so long, then rests
REST_SECONDS = 0.0001
THREADS_MAX = 4  # one flush, one segment in the making, the rest for reads


class Workers(Protocol):
    """`threaded`: jobs run beside the reactor, so a journal has a thread of its own too."""

    threaded: bool

    @property
    def queue_times(self) -> Sequence[Histogram]:
        """Times of jobs until a thread takes them."""
        ...

    @property
    def work_times(self) -> Sequence[Histogram]: ...
    @property
    def waiting(self) -> int: ...
    def run(self, job: Callable[..., T], *args: Any) -> "Deferred[T]": ...
    def spawn(self, job: Callable[[], None]) -> None: ...
    def pause(self) -> None: ...
    def stop(self) -> None: ...


class PoolWorkers:
    """Threads.  `run`'s Deferred fires on the reactor thread."""

    threaded = True

    def __init__(self, reactor: Reactor) -> None:
        """Raises `StorageError`."""
        self._reactor = reactor
        # all at once, so that none is refused later
        self._pool = ThreadPool(THREADS_MAX, THREADS_MAX, name="storage")
        try:
            self._pool.start()
        except RuntimeError as error:
            with suppress(RuntimeError):  # it waits for those that did not start, too
                self._pool.stop()
            raise StorageError(
                f"the threads of the storage can't be started ({error}); see the limit of processes (ulimit -u)"
            ) from error
        self._rested = threading.local()
        self._times = threading.local()  # each thread observes in its own
        self.queue_times: list[Histogram] = []
        self.work_times: list[Histogram] = []
        self._never = threading.Event()

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread."""
        return self._pool.q.qsize()

    def run(self, job: Callable[..., T], *args: Any) -> "Deferred[T]":
        reactor = cast(IReactorFromThreads, self._reactor)
        return deferToThreadPool(reactor, self._pool, self._timed, self._reactor.seconds(), job, *args)

    def _timed(self, asked: float, job: Callable[..., T], *args: Any) -> T:
        """On a thread."""
        began = self._reactor.seconds()
        times = getattr(self._times, "both", None)
        if times is None:
            times = self._times.both = Histogram(), Histogram()
            self.queue_times.append(times[0])
            self.work_times.append(times[1])
        times[0].observe(began - asked)
        try:
            return job(*args)
        finally:
            times[1].observe(self._reactor.seconds() - began)

    def spawn(self, job: Callable[[], None]) -> None:
        self._pool.callInThread(job)

    def pause(self) -> None:
        """Sleeps when a long job's slice is used up, so that reactor and journal get the interpreter."""
        seconds = self._reactor.seconds
        now = seconds()
        since = getattr(self._rested, "at", None)
        if since is None:
            self._rested.at = now
        elif not 0 <= now - since < SLICE_SECONDS:
            self._never.wait(REST_SECONDS)
            self._rested.at = seconds()

    def stop(self) -> None:
        """Waits for the jobs that run."""
        self._pool.stop()


@dataclass(slots=True)
class StorageCounters:
    """Plain numbers that only rise; `/metrics` reads them."""

    adds: int = 0
    add_bytes: int = 0
    batches: int = 0
    checkpoints: int = 0
    directories_lost: int = 0
    fences: int = 0
    flushed_bytes: int = 0
    flushed_entries: int = 0
    flushes: int = 0
    gc_bytes_compacted: int = 0
    gc_bytes_moved: int = 0
    gc_bytes_removed: int = 0
    gc_compactions: int = 0
    gc_entries_moved: int = 0
    gc_ledgers_deleted: int = 0
    gc_logs_removed: int = 0
    gc_rounds: int = 0
    journal_bytes: int = 0
    journal_groups: int = 0
    journal_seals: int = 0
    journal_syncs: int = 0
    parked: int = 0
    read_errors: int = 0
    reads_cached: int = 0
    reads_stored: int = 0
    recovery_adds: int = 0
    replayed_entries: int = 0
    replayed_groups: int = 0


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The parts of one storage, made once; each other part takes from them what it needs."""

    files: Files
    workers: Workers
    counters: StorageCounters
    directories: Directories
    cache: WriteCache
    ledgers: Ledgers
