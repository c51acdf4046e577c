"""
The writer of one journal directory: gathers what is queued, writes it as one group, syncs once, hands it back once.

Knows: the order of groups, the queue between the reactor and the journal thread, when the next segment is needed.
Does not know: how segments are made and freed (`segments.py`); ledgers: a queued item is bytes of blocks, a token that
comes back, and perhaps a call after the sync.

Two threads meet here: the reactor calls `append`, `force`, `end`, the journal thread runs `_run`.  They share the
queue, under one lock.  With `threaded` false nothing runs by itself: each append asks the clock for one `step`, which
does the same work (tests, simulation).

Safety:
* a group is handed back only after the sync that covers it; with `sync` off, after the write, except a forced one;
* a group is begun only after the sync of the one before it, so at most one group is ever unsynced and a bad group with
  a good later one behind it is damage, never a torn tail.  Hence the seal: an idle journal writes one empty group and
  syncs it;
* any failed write or sync is final: nothing is handed back any more, nothing is tried again.  `NoRoom` is no such
  failure: nothing was written, so the group waits;
* a write that syncs itself proves nothing of what was written before it, so it is used only where all before it is
  synced (`_write`).

Long: two threads share each line of it, so it is read as one.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from quire.bookie.journal.format import BLOCK, END, FOOT_BYTES, GROUP, Position, Staging, padded
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.segments import NoRoom, Segment, Segments
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor
from quire.metrics.histogram import Histogram
from quire.rows.files import AGAIN_SECONDS, AGAIN_TRIES, Files, StorageError

# SPDX-License-Identifier: Apache-2.0

SEAL_SECONDS = 0.010  # an idle journal is sealed after this time
ONE_CALL_BYTES_MAX = 64 << 10  # a larger group is written and then synced: one call less is nothing beside it
SYNC_OFF_SECONDS_MAX = 1.0  # with sync off: the longest time between two syncs while there is traffic
RESERVE_PART = 8  # this part of the queue is added for what ledger recovery and repair write
SEGMENTS_MIN = 4  # a backlog may always have so many: a checkpoint frees whole segments only


class Group:
    """The blocks that are queued for one group."""

    __slots__ = ("begun", "blocks", "bytes", "end", "entries", "sync", "tokens", "when_synced")

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.bytes = self.entries = 0
        self.begun = 0.0  # when its first entries came
        self.tokens: list[object] = []
        self.when_synced: list[Callable[[], None]] = []  # called when the group is durable
        self.sync = False
        self.end = False


@dataclass(frozen=True)
class JournalOptions:
    """Sizes and times of one journal, as the bookie's options name them."""

    segment_bytes: int
    group_bytes_max: int
    queue_bytes_max: int
    backlog_bytes_max: int = 1 << 62
    group_wait_seconds: float = 0.0  # so long at most a group that is not full waits for more
    sync: bool = True

    @classmethod
    def of(cls, options: BookieOptions) -> Self:
        """The options of each journal of a bookie."""
        return cls(
            segment_bytes=options.journal_segment_bytes,
            group_bytes_max=options.journal_group_bytes_max,
            queue_bytes_max=options.journal_queue_bytes_max,
            backlog_bytes_max=options.journal_backlog_bytes_max,
            group_wait_seconds=options.journal_group_wait_ms_max / 1000,
            sync=options.journal_sync_data,
        )


class JournalEvents(Protocol):
    """The reports of a journal, on the reactor thread."""

    def group_durable(self, group: Group) -> None:
        """In the order of the groups; with sync off a group is reported after its write."""
        ...

    def journal_failed(self, reason: str) -> None:
        """Once: no further group becomes durable."""
        ...

    def disk_full_changed(self) -> None:
        """`disk_full` has another value, or another try to make a segment found the disk still full."""
        ...


class Journal:
    """
    One journal directory (`<dir>/current`), open for appending where its replay ended.

    Long: two threads share each line of it, so it is read as one.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        reactor: Reactor,
        replay: Replay,
        options: JournalOptions,
        events: JournalEvents,
        *,
        threaded: bool = True,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`replay`: read to its end.  `spawn` runs a job elsewhere; without it no segment is made ahead."""
        position = replay.position
        self.directory = directory
        self.position = position  # the next group's; only the writing side moves it
        self.synced = position  # everything before it is on stable storage; one tuple, so any thread may read it
        self.queued_bytes = self.queued_entries = 0  # reactor only: appended and not yet handed back
        self.add_times, self.sync_times, self.creation_times = Histogram(), Histogram(), Histogram()
        self.queue_times = Histogram()  # of entries, until their group is written
        self.groups = self.seals = self.syncs = self.bytes_written = 0
        self.failure: str | None = None
        self.disk_full: str | None = None  # why no next segment can be made: what is left is the current one
        self._files = files
        self._events = events
        self._reactor = reactor
        made = (replay.segments, replay.spares, options.segment_bytes, replay.following, replay.extent)
        self._segments = segments = Segments(files, directory, position.start, *made)
        self._staging = Staging()
        self._group_bytes_max = options.group_bytes_max
        self._queue_bytes_max = options.queue_bytes_max
        self._backlog_bytes_max = max(options.backlog_bytes_max, SEGMENTS_MIN * segments.size_max)
        self._group_wait = options.group_wait_seconds
        self._sync = options.sync
        self._threaded = threaded
        self._spawn = spawn
        self._lock = threading.Lock()
        self._full: deque[Group] = deque()
        self._open = Group()
        self._filled = threading.Event()  # a group has all that it may hold
        self._waiting = False  # the journal thread sleeps on _wake
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopped = self._ending = self._stepping = False
        self._room = threading.Event()  # set at the end, so that nothing waits for room then
        self._unsealed = self._unsynced = False
        self._one_call = False  # a write may sync itself
        self._synced_at = 0.0
        self._tries = 0  # to have a next segment, that were not begun
        self._asked_for_next = False
        self._thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        """No more should be appended until groups came back."""
        return self.queued_bytes >= self._queue_bytes_max or self.backlog_full

    @property
    def backlog(self) -> int:
        """Bytes from the oldest segment that is kept to the next group: what a start would have to read."""
        return self.position.start - self._segments.oldest

    @property
    def backlog_full(self) -> bool:
        """Nothing more should be appended before a checkpoint has freed segments; one that begins now leaves one."""
        return self._backlog_reaches(self._backlog_bytes_max)

    def _backlog_reaches(self, size: int) -> bool:
        """False with the current segment alone: no checkpoint can free it, and a large group may exceed any bound."""
        return self.backlog >= size and self._segments.oldest < self._segments.current.start

    @property
    def reserve_full(self) -> bool:
        """Not even what recovers ledgers should be appended."""
        queue, backlog = self._queue_bytes_max, self._backlog_bytes_max
        queue_is_full = self.queued_bytes >= queue + queue // RESERVE_PART
        return queue_is_full or self._backlog_reaches(backlog + backlog // RESERVE_PART)

    @property
    def has_room(self) -> bool:
        """At most half full: refused callers may try again."""
        return self.queued_bytes <= self._queue_bytes_max // 2 and not self.backlog_full

    @property
    def full_groups(self) -> int:
        """How many groups wait that are full."""
        return len(self._full)

    # The reactor's side

    def start(self) -> None:
        """Opens the current segment, or makes the first one, and begins to write.  `StorageError`, `OSError`."""
        self._segments.open()
        self._one_call = self._files.syncs_writes(self._segments.handle)
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name=f"journal {self.directory}", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                raise StorageError(
                    f"journal {self.directory}: {error}; see the limit of processes (ulimit -u)"
                ) from error

    def append(
        self,
        blocks: Sequence[bytes],
        size: int,
        token: object = None,
        when_synced: Callable[[], None] | None = None,
        entries: int = 0,
    ) -> None:
        """
        Queues blocks of together `size` bytes; `token` (if not None) comes back with its group, in order.
        A group with a `when_synced` is synced also with sync off.  `entries`: as many adds wait for this.
        """
        self.queued_bytes += size
        self.queued_entries += entries
        with self._lock:
            group = self._open
            if group.bytes and group.bytes + size > self._group_bytes_max:
                self._full.append(group)
                self._filled.set()
                group = self._open = Group()
            group.blocks += blocks
            group.bytes += size
            if entries:
                if not group.entries:
                    group.begun = self._reactor.seconds()
                group.entries += entries
            if token is not None:
                group.tokens.append(token)
            if when_synced is not None:
                group.when_synced.append(when_synced)
                group.sync = True
            if self._waiting:
                self._waiting = False
                self._wake.release()
        if not self._threaded:
            self._ask_step(0)

    def force(self, token: object) -> None:
        """`token` comes back once all that was appended before is synced, also with sync off."""
        with self._lock:
            self._open.sync = True
            self._open.tokens.append(token)
            if self._waiting:
                self._waiting = False
                self._wake.release()
        if not self._threaded:
            self._ask_step(0)

    def end(self) -> None:
        """Queues a mark of a clean stop, synced; nothing may be appended after it.  Its group has `end` set."""
        block = BLOCK.pack(END, 0, 0, 0)
        with self._lock:
            self._ending = True  # the thread waits for room no longer
            group = self._open
            group.blocks.append(block)
            group.bytes += len(block)
            group.end = group.sync = True
        self._room.set()
        self.append((), 0)
        self.queued_bytes += len(block)

    def join(self) -> None:
        """Waits for the thread after `end` was handed back, or after a failure; closes the segment."""
        self._room.set()
        with self._lock:
            self._stopped = True
            if self._waiting:
                self._waiting = False
                self._wake.release()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._segments.close()

    def free(self, position: int) -> None:
        """Gives back the segments that end at or below `position` (any thread).  Raises `OSError`."""
        self._segments.free(position)

    @property
    def segments(self) -> list[Segment]:
        """The segments that a start would read, the oldest first."""
        return self._segments.kept

    # The writing side

    def step(self) -> None:
        """Commits everything queued, then seals; what the thread does, one call at a time (not threaded)."""
        self._stepping = False
        while self.failure is None and not self._stopped:
            group = self._take()
            if group is None:
                if self._unsealed:
                    self._ask_step(SEAL_SECONDS, seal=True)
                return
            if not self._commit_or_fail(group):
                return

    def _ask_step(self, delay: float, seal: bool = False) -> None:
        if seal:
            self._reactor.callLater(delay, self._seal_step)
        elif not self._stepping:
            self._stepping = True
            self._reactor.callLater(delay, self.step)

    def _seal_step(self) -> None:
        if self._unsealed and not self._stepping and not self._stopped and self.failure is None:
            self._commit_or_fail(Group())

    def _take(self) -> Group | None:
        with self._lock:
            if self._full:
                return self._full.popleft()
            if not (self._open.blocks or self._open.tokens):
                return None
            group, self._open = self._open, Group()
            return group

    def _run(self) -> None:
        """The journal thread."""
        while self.failure is None:
            group = self._take()
            if group is None:
                with self._lock:
                    if self._stopped:
                        return
                    if self._open.blocks or self._open.tokens:
                        continue
                    self._waiting = True
                if not self._wake.acquire(timeout=SEAL_SECONDS if self._unsealed else -1):
                    with self._lock:
                        idle, self._waiting = self._waiting, False
                    if idle:
                        self._commit_or_fail(Group())
                    else:
                        self._wake.acquire()  # an append came between: take the release that it left
                elif self._group_wait and not self._full:
                    self._gather_longer()
                continue
            if not self._commit_or_fail(group) and self._stopped:
                return

    def _gather_longer(self) -> None:
        """Waits once for more to come, at most the configured time or until a whole group is full."""
        self._filled.clear()
        if not self._full:
            self._filled.wait(self._group_wait)

    def _commit_or_fail(self, group: Group) -> bool:
        """False: the group waits for room, or the journal has failed."""
        try:
            self._commit(group)
        except NoRoom as error:
            short = not error.disk_full and self._tries < AGAIN_TRIES
            self._tries += 1
            if self._ending and not short:
                self._fail(error)
            else:
                self._wait_for_room(group, None if short else str(error))
        except Exception as error:  # poisons the journal: nothing may be acknowledged after any error
            self._fail(error)
        else:
            return True
        return False

    def _fail(self, error: Exception) -> None:
        where = f"group {self.position.sequence} at position {self.position.start}"
        self.failure = f"journal {self.directory}: {type(error).__name__}: {error} ({where})"
        self._hop(self._events.journal_failed, self.failure)

    def _wait_for_room(self, group: Group, reason: str | None) -> None:
        """No byte of it was written; it is tried again.  `reason`: why other writes are refused; None: not yet."""
        if group.blocks or group.tokens:
            with self._lock:
                self._full.appendleft(group)
        if reason is not None:
            self._set_disk_full(reason)
        if self._threaded:
            (threading.Event() if self._ending else self._room).wait(AGAIN_SECONDS)
        else:
            self._ask_step(AGAIN_SECONDS)

    def _hop(self, function: Callable[..., None], *args: object) -> None:
        if self._threaded:
            self._reactor.callFromThread(function, *args)
        else:
            function(*args)

    def _commit(self, group: Group) -> None:
        segments = self._segments
        seal = not group.blocks and not group.tokens
        began = self._reactor.seconds()
        to_sync = self._sync or seal or group.sync or self._sync_is_due()
        if group.blocks or seal:
            length = GROUP.size + group.bytes
            space = padded(length)
            if self.position.start + space > segments.current.stop - FOOT_BYTES:
                self._roll(space)
            position = self.position
            segment = segments.current
            staged = self._staging.group(group.blocks, length, position, segment.salt)
            self._write(staged, position.start - segment.start, to_sync)
            self.position = Position(position.sequence + 1, position.start + space)
            self.bytes_written += space
            self.seals += seal
            self.groups += not seal
            if group.entries:
                self.queue_times.observe(began - group.begun, group.entries)
        if to_sync:
            if self._unsynced:
                self._datasync()
            self.synced = self.position
        self._unsealed = not seal and not group.end and (self._unsealed or bool(group.blocks))
        if seal:
            return
        self._hop(self._hand_back, group)
        if not self._asked_for_next and self._spawn is not None:
            segment = segments.current
            if self.position.start - segment.start > segment.size // 4:
                self._asked_for_next = True
                self._spawn(self._prepare)

    def _write(self, staged: memoryview, at: int, to_sync: bool) -> None:
        """
        Writes a group to the current segment.  A small one that is to be synced syncs itself where it may, which is one
        call instead of two.  That covers this write and no earlier one, so nothing unsynced may be before it; name,
        length and room of the file are durable since before the segment had its name, and what is written over was
        written before, so there is no more to sync than these bytes.
        """
        files, handle = self._files, self._segments.handle
        if to_sync and self._one_call and not self._unsynced and len(staged) <= ONE_CALL_BYTES_MAX:
            began = self._reactor.seconds()
            try:
                files.write_aligned(handle, staged, at, synced=True)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._one_call = False  # this kernel knows no such write
            else:
                self._note_sync(began)
                return
        files.write_aligned(handle, staged, at)
        self._unsynced = True

    def _datasync(self) -> None:
        began = self._reactor.seconds()
        self._files.datasync(self._segments.handle)
        self._unsynced = False
        self._note_sync(began)

    def _note_sync(self, began: float) -> None:
        self.syncs += 1
        self._synced_at = self._reactor.seconds()
        self.sync_times.observe(self._synced_at - began)

    def _sync_is_due(self) -> bool:
        return self._reactor.seconds() - self._synced_at >= SYNC_OFF_SECONDS_MAX

    def _hand_back(self, group: Group) -> None:
        """On the reactor thread."""
        self.queued_bytes -= group.bytes
        if group.entries:
            self.queued_entries -= group.entries
            self.add_times.observe(self._reactor.seconds() - group.begun, group.entries)
        self._events.group_durable(group)

    # Segments

    def _roll(self, space: int) -> None:
        """Makes the next segment the current one."""
        segments = self._segments
        if self._unsynced:
            self._datasync()
        segments.roll(space)  # all before it is synced
        self.position = self.synced = Position(self.position.sequence, segments.current.start)
        self._asked_for_next, self._tries = False, 0
        self._set_disk_full(None)

    def _prepare(self) -> None:
        """Has the next segment ready before it is needed (storage pool)."""
        began = self._reactor.seconds()
        try:
            if self._segments.prepare():
                self.creation_times.observe(self._reactor.seconds() - began)
                self._set_disk_full(None)
        except NoRoom as error:
            self._set_disk_full(str(error))

    def _set_disk_full(self, reason: str | None) -> None:
        if reason is not None or self.disk_full is not None:
            self.disk_full = reason
            self._hop(self._events.disk_full_changed)

    def make_room(self) -> None:
        """Tries again to have the next segment, where that failed for want of room (reactor)."""
        if self.disk_full is not None and self.failure is None and self._spawn is not None:
            self._spawn(self._prepare)
