"""
Reading entries back: where to look, in which order.

Knows: active half of the write cache, flushing half, windows read ahead, then index and entry log, on the storage pool
except for one entry by itself that the system has in memory; a half is dropped only after the index holds its entries
durably, so an entry that is in none of them is not here.
And when a big read may begin beside adds (`CatchUp`).
Does not know: journal, requests.

Safety: what is missing is "no such entry" only for a ledger that is not in limbo, else "unknown"; what can't be read or
fails its checksum is EIO.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.directory.records import BATCH_ENTRY, BATCH_START
from quire.bookie.index.run import RUN_BYTES_MAX, RUN_ENTRIES_MAX
from quire.bookie.storage.ledgers import StoredLedger
from quire.bookie.storage.parts import StorageCounters, StorageParts
from quire.bookie.storage.write_cache import ReadAhead
from quire.metadata.clock import Clock
from quire.protocol.errors import Status
from quire.protocol.messages import LAST_ENTRY
from quire.rows.files import StorageError, status_of

# SPDX-License-Identifier: Apache-2.0

log = Logger()
T = TypeVar("T")
QUIET_S = 60.0  # after a line, for its text
FAULTS_MAX = 1000
OTHER_FAULTS = "more that can't be read"
AT_ONCE_BYTES_MAX = 64 << 10  # of an entry that is read on the reactor's thread
PIPELINED_MAX = 8 * RUN_ENTRIES_MAX  # a reader that asks so far ahead of a window being read counts as sequential
# measured: with 1 appends beside a reader, flushes and compaction took 1.6 times as long as alone, with 4 1.29 times,
# with 9 they take 1.15 to 1.2 times
RESTS = 9
BESIDE_BYTES = 128 << 10  # measured: p99 of appends beside a repair 1.3 times that alone; with 512 KiB 1.5 to 2.1 times
REST_S_MAX = 0.01  # a slow disk is no reason to read from it less often


class CatchUp:
    """
    The turns of one bookie's big reads from the disk while entries are added: they may take a tenth of the time, and as
    much again for the answers.  Catch-up reading and appending share one interpreter lock, and a reader that is behind
    asks again as soon as it was answered.  So a big read is followed by a rest of `RESTS` times as long as it took,
    `REST_S_MAX` at most, in which no other begins; and it brings no more than `BESIDE_BYTES`, for beside a larger one,
    and what is done with its answer, appends wait for as long as all of that takes.  Without adds there are no rests,
    and no such limit; what a recovery or a repair adds does not count.
    """

    def __init__(self, reactor: Clock, counters: StorageCounters) -> None:
        self._reactor = reactor
        self._counters = counters
        self._waiting: deque[Deferred[None]] = deque()
        self._rested_at = 0.0  # when the rest after the last read ends
        self._adds = 0  # as many had been taken when it began
        self._timer: Any = None

    async def read(self, job: Callable[[int], Awaitable[T]], bytes_max: int) -> T:
        """Does a big read in its turn; the job is told of how many bytes at most, `bytes_max` or fewer."""
        if self._waiting or self._resting() > 0:
            turn: Deferred[None] = Deferred()
            self._waiting.append(turn)
            self._go_on()
            await turn
        began = self._reactor.seconds()
        most = min(bytes_max, BESIDE_BYTES) if self._beside_adds() else bytes_max
        self._adds = self._adds_now()
        try:
            return await job(most)
        finally:
            now = self._reactor.seconds()
            self._rested_at = now + min(RESTS * (now - began), REST_S_MAX)
            self._go_on()

    def _resting(self) -> float:
        """Seconds to the next turn; none while nothing is added."""
        return self._rested_at - self._reactor.seconds() if self._beside_adds() else 0.0

    def _beside_adds(self) -> bool:
        return self._adds_now() != self._adds

    def _adds_now(self) -> int:
        return self._counters.adds - self._counters.recovery_adds

    def _go_on(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._reactor.callLater(max(0.0, self._resting()), self._next)

    def _next(self) -> None:
        self._timer = None
        if self._resting() > 0:  # another read ended meanwhile
            self._go_on()
            return
        turns = 1 if self._beside_adds() else len(self._waiting)
        for _ in range(turns):
            self._waiting.popleft().callback(None)


class ReadFaults:
    """
    The log lines about what can't be read: one a minute for each text, which names file and offset, then how many more
    reads met it.  A client may read a damaged entry as often as it likes, and the log is on a disk.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        # text -> when its line was written, how many were not since; oldest first
        self._told: dict[str, list[float]] = {}

    def tell(self, text: str) -> None:
        """A read met this."""
        now = self._seconds()
        self._sum_up(now)
        if text not in self._told and len(self._told) >= FAULTS_MAX:
            text = OTHER_FAULTS
        if text in self._told:
            self._told[text][1] += 1
            return
        self._told[text] = [now, 0]
        log.error("storage: {error}", error=text)

    def _sum_up(self, now: float) -> None:
        while self._told:
            text, (since, more) = next(iter(self._told.items()))
            if now - since < QUIET_S:
                return
            del self._told[text]
            if more:
                log.error("storage: {more:.0f} more reads met this: {error}", more=more, error=text)


class ReadWindow:
    """Entries of one ledger that are being read ahead, from `first` on."""

    __slots__ = ("first", "old", "waiters")

    def __init__(self, first: int) -> None:
        self.first = first
        self.waiters: list[Deferred[None]] = []
        self.old = False


def _tried(job: Callable[..., T], *args: Any) -> T | StorageError | OSError:
    """
    Returns what a job gives, or its error: raised on a thread it would be in a ring with its own frames, fifty objects
    for the collector, and who reads a damaged entry again and again would stop the reactor for as long as thousands of
    them take.
    """
    try:
        return job(*args)
    except (StorageError, OSError) as error:
        return error.with_traceback(None)


class Lookup:
    """All of it belongs to the reactor thread; most of what `directories` do is done on the storage pool."""

    def __init__(
        self,
        parts: StorageParts,
        catch_up: CatchUp,
        seconds: Callable[[], float],
        *,
        ahead_bytes_max: int,
        batch_bytes_max: int,
    ) -> None:
        self._ledgers = parts.ledgers
        self._cache = parts.cache
        self._directories = parts.directories
        self._workers = parts.workers
        self._counters = parts.counters
        self._catch_up = catch_up
        self._faults = ReadFaults(seconds)
        self._batch_bytes_max = batch_bytes_max
        self.ahead = ReadAhead(ahead_bytes_max)
        self._windows: dict[int, ReadWindow] = {}

    def forget(self, ledger: int) -> None:
        """Marks what was, or is being, read ahead as old: the ledger was deleted, or entries were written again."""
        if self.ahead.bytes:  # each add to a ledger that was there before the start comes by here
            self.ahead.forget(ledger)
        if ledger in self._windows:
            self._windows[ledger].old = True

    def read(self, ledger: int, entry: int, alone: bool = False) -> "bytes | Status | Deferred[bytes | Status]":
        """
        One entry body; `entry` -1: the highest stored one.  ENOLEDGER, ENOENTRY, EUNKNOWNLEDGERSTATE, EIO.  `alone`:
        nothing else is read with it, so it is not handed to a thread if the system has it in memory.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        if entry == LAST_ENTRY:
            return self._read_last(state)
        body = self._cache.get(ledger, entry)
        if body is None:
            body = self.ahead.get(ledger, entry)
        if body is not None:
            self._counters.reads_cached += 1
            return body
        if not self._may_be_stored(state, entry):
            return _missing(state)
        if alone and (body := self._read_in_memory(state, entry)) is not None:
            return body
        return Deferred.fromCoroutine(self._read_stored(state, entry))

    def read_run(
        self, ledger: int, first: int, count_max: int, bytes_max: int
    ) -> "list[bytes] | Status | Deferred[list[bytes] | Status]":
        """
        Consecutive bodies from `first` on, by the rules of a batch read (wire.md 2.4): at least one, at most
        `count_max` (<= 0: no limit), within the smaller of `bytes_max` and the configured limit.  A status only when
        `first` can't be had.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        room = min(bytes_max, self._batch_bytes_max) - BATCH_START
        bodies: list[bytes] = []
        self._take_cached(ledger, first, count_max, room, bodies)
        if bodies:
            self._counters.reads_cached += 1
            return bodies
        if not self._may_be_stored(state, first):
            return _missing(state)
        return Deferred.fromCoroutine(self._read_run_stored(state, first, count_max, room))

    def lac(self, ledger: int) -> "int | Deferred[int]":
        """The highest LAC that this bookie knows of the ledger; -1 for none or an unknown ledger."""
        state = self._ledgers.get(ledger)
        if state is None:
            return -1
        if state.surveyed:
            return state.lac
        return Deferred.fromCoroutine(self._surveyed_lac(state))

    # From memory

    def _take_cached(self, ledger: int, first: int, count_max: int, room: int, bodies: list[bytes]) -> None:
        """Appends cached bodies that follow entry `first` + len(bodies) - 1; `room` counts all of them."""
        following = self._cache.following
        while count_max <= 0 or len(bodies) < count_max:
            some = following(ledger, first + len(bodies))
            if not some:
                return
            if count_max > 0:
                some = some[: count_max - len(bodies)]
            size = sum(map(len, some)) + BATCH_ENTRY * len(some)
            if size > room:
                for body in some:
                    room -= len(body) + BATCH_ENTRY
                    if room < 0 and bodies:
                        return
                    bodies.append(body)
                return
            room -= size
            bodies += some

    def _may_be_stored(self, state: StoredLedger, entry: int) -> bool:
        return entry >= 0 and not state.index_stale and not (state.surveyed and entry > state.last)

    def _read_in_memory(self, state: StoredLedger, entry: int) -> bytes | None:
        """Reads an entry that is none of a sequence; where the index asks the disk, it keeps the interpreter."""
        if entry == state.read_next or state.id in self._windows:
            return None
        body = self._directories.of(state.id).read_in_memory(state.id, entry, AT_ONCE_BYTES_MAX)
        if body is not None:
            self._counters.reads_stored += 1
            state.read_next = entry + 1
        return body

    # From the disk

    async def _stored(self, job: Callable[..., T], *args: Any) -> T | Status:
        """Runs a reading job; EIO with a line in the log (`ReadFaults`); ETOOMANYREQUESTS if it could not begin."""
        found: T | StorageError | OSError = await self._workers.run(_tried, job, *args)
        if isinstance(found, StorageError | OSError):
            self._counters.read_errors += 1
            self._faults.tell(str(found))
            return status_of(found)
        return found

    async def _read_stored(self, state: StoredLedger, entry: int) -> bytes | Status:
        ledger = state.id
        window = self._windows.get(ledger)
        if window is not None and window.first <= entry < window.first + PIPELINED_MAX:
            # This window or one of the next will hold it: wait, then look again.
            waiter: Deferred[None] = Deferred()
            window.waiters.append(waiter)
            await waiter
            again = self.read(ledger, entry)
            return await again if isinstance(again, Deferred) else again
        self._counters.reads_stored += 1
        body: bytes | Status | None
        if entry == state.read_next and window is None:
            body = await self._read_window(state, entry)
        else:
            if window is None:
                state.read_next = entry + 1
            body = await self._stored(self._directories.of(ledger).read, ledger, entry)
        if body is None:  # not indexed; it may have come meanwhile
            body = self._cache.get(ledger, entry)
        return body if body is not None else _missing(state)

    async def _read_window(self, state: StoredLedger, entry: int) -> bytes | Status | None:
        """A sequential reader: fetches what it will ask for next, too."""
        ledger = state.id
        window = self._windows[ledger] = ReadWindow(entry)
        state.read_next = -1
        try:
            bodies = await self._catch_up.read(
                lambda most: self._stored(self._directories.of(ledger).window, ledger, entry, most), RUN_BYTES_MAX
            )
            if not isinstance(bodies, Status) and bodies:
                state.read_next = entry + len(bodies)
                if not window.old:
                    self.ahead.put(ledger, entry, bodies[: self._cache.free_of(ledger, entry, len(bodies))])
        finally:
            del self._windows[ledger]
            for waiter in window.waiters:
                waiter.callback(None)
        return bodies if isinstance(bodies, Status) else (bodies[0] if bodies else None)

    async def _read_run_stored(
        self, state: StoredLedger, first: int, count_max: int, room: int
    ) -> list[bytes] | Status:
        self._counters.reads_stored += 1
        bodies = await self._catch_up.read(
            lambda most: self._stored(self._directories.of(state.id).read_run, state.id, first, count_max, most),
            room + BATCH_START,
        )
        if isinstance(bodies, Status):
            return bodies
        if bodies:
            bodies = bodies[: max(1, self._cache.free_of(state.id, first, len(bodies)))]  # newer copies are in memory
        room -= sum(map(len, bodies)) + BATCH_ENTRY * len(bodies)
        if room > 0 or not bodies:
            self._take_cached(state.id, first, count_max, room, bodies)  # it may go on in memory
        return bodies or _missing(state)

    def _read_last(self, state: StoredLedger) -> "bytes | Status | Deferred[bytes | Status]":
        if state.limbo:
            return Status.EUNKNOWNLEDGERSTATE  # a higher one may be lost
        if not state.surveyed:
            return Deferred.fromCoroutine(self._read_surveyed_last(state))
        return _missing(state) if state.last < 0 else self.read(state.id, state.last)

    async def _read_surveyed_last(self, state: StoredLedger) -> bytes | Status:
        if (status := await self._survey(state)) is not Status.EOK:
            return status
        body = self._read_last(state)
        return await body if isinstance(body, Deferred) else body

    async def _surveyed_lac(self, state: StoredLedger) -> int:
        await self._survey(state)
        return state.lac

    async def _survey(self, state: StoredLedger) -> Status:
        """Learns a ledger's last entry and LAC after a start, or why its last entry can't be read."""
        directory = self._directories.of(state.id)
        index = directory.index
        survey = await self._stored(directory.survey, state.id)
        if isinstance(survey, Status):
            return survey
        if directory.index is not index:  # rebuilt meanwhile: it may have more
            return await self._survey(state)
        last, lac = survey
        state.last = max(state.last, last)
        if not state.surveyed:
            state.surveyed = True
            if lac > state.lac:
                state.lac = lac
                state.wake()
        return Status.EOK


def _missing(state: StoredLedger) -> Status:
    return Status.EUNKNOWNLEDGERSTATE if state.limbo else Status.ENOENTRY
