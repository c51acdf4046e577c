"""
The writer of one journal directory: gathers what is queued, writes it as one group, syncs once, hands the group back once.

Knows: segments, the order of groups, the queue between the reactor and the journal thread.
Does not know: ledgers; a queued item is bytes of blocks, a token that comes back, and perhaps who else must hear of the sync.

Two threads meet here.  The reactor calls `append`, `force`, `end`; the journal thread runs `_run`.  They share the queue, under one lock.
With `threaded` false nothing runs by itself: each append asks the clock for one `step`, which does the same work (tests, simulation).

Safety:
* a group is handed back only after the sync that covers it; with `sync` off, after the write, except a forced one;
* a group is begun only after the sync of the one before it, so at most one group is ever unsynced and a bad group with a good
  later one behind it is damage, never a torn tail.  Hence the seal: an idle journal writes one empty group and syncs it;
* any failed write or sync is final: nothing is handed back any more, nothing is tried again.  A full disk where the next segment is to be made is none, nor
  is what was not begun there (`NotBegun`): nothing was written, so the group waits;
* a segment has its name when it is whole, with its foot: one for a group that is larger than a segment is made larger before.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from quire.bookie.files import AGAIN_SECONDS, AGAIN_TRIES, FULL, TEMPORARY, Files, NotBegun, StorageError
from quire.bookie.journal.format import (
    ALIGNMENT,
    BLOCK,
    END,
    FOOT_BYTES,
    GROUP,
    SPARE,
    SUFFIX,
    Place,
    group_header,
    padded,
    segment_foot,
    segment_name,
    segment_start,
)
from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0

SEAL_SECONDS = 0.010  # an idle journal is sealed after this time
SYNC_OFF_SECONDS_MAX = 1.0  # with sync off: the longest time between two syncs while there is traffic
FIRST_SEGMENT_BYTES = 4 << 20  # segments double from here to the configured size, so that a small bookie starts fast
RESERVE_PART = 8  # this part of the queue is added for what ledger recovery and repair write
SEGMENTS_MIN = 4  # a backlog may always have so many: a checkpoint frees whole segments only
SPARES_MAX = 16  # freed segments kept for reuse, about what a loaded bookie fills between two checkpoints; more are removed
ZEROS = bytes(ALIGNMENT)
ZERO_CHUNK = bytes(1 << 20)
FILL_SYNC_BYTES = 4 << 20  # a new segment is synced in such pieces: all of it at once held up the syncs of groups for 20 ms instead of 2 (measured)


class NoRoom(Exception):
    """There is no next segment: the disk is full, or something was short.  Nothing was written."""


class Group:
    """What is queued for one group."""

    __slots__ = ("blocks", "bytes", "end", "sync", "tokens", "when_synced")

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.bytes = 0
        self.tokens: list[object] = []
        self.when_synced: list[Callable[[], None]] = []  # whoever must hear of it by themselves, and not by a token
        self.sync = False
        self.end = False


class Segment:
    """One segment file: positions start to start + size of the journal, its foot included."""

    __slots__ = ("path", "salt", "size", "start")

    def __init__(self, path: str, start: int, size: int, salt: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.salt = salt

    @property
    def stop(self) -> int:
        return self.start + self.size


class Journal:
    """One journal directory (`<dir>/current`), open for appending at `place`, which lies in `segments[-1]` if there is one."""

    def __init__(
        self,
        files: Files,
        directory: str,
        reactor: Reactor,
        segments: Sequence[Segment],
        spares: Sequence[str],
        place: Place,
        *,
        segment_bytes: int,
        group_bytes_max: int,
        queue_bytes_max: int,
        backlog_bytes_max: int = 1 << 62,
        group_wait: float = 0.0,
        sync: bool = True,
        threaded: bool = True,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.directory = directory
        self.place = place  # the next group's; only the writing side moves it
        self.synced = place  # everything before it is on stable storage; one tuple, so any thread may read it
        self.queued_bytes = 0  # reactor only: appended and not yet handed back
        self.groups = self.seals = self.syncs = self.bytes_written = 0
        self.failure: str | None = None
        self.crowded: str | None = None  # the disk is full: what is left is the current segment
        # The reactor side, set by the owner before `start`.
        self.crowding: Callable[[], None] = lambda: None  # `crowded` has changed, or was found to be as before
        self.durable: Callable[[Group], None] = lambda group: None
        self.failed: Callable[[str], None] = lambda reason: None
        self._files = files
        self._reactor = reactor
        self._segments = list(segments)
        self._spares = deque(spares)
        self._spare_serial = 0
        self._segment_bytes = padded(segment_bytes)
        self._group_bytes_max = group_bytes_max
        self._queue_bytes_max = queue_bytes_max
        self._backlog_bytes_max = max(backlog_bytes_max, SEGMENTS_MIN * self._segment_bytes)
        self._oldest = segments[0].start if segments else place.position  # where the oldest segment begins
        self._current = segments[-1].start if segments else place.position  # and where the newest does
        self._group_wait = group_wait
        self._sync = sync
        self._threaded = threaded
        self._spawn = spawn
        self._lock = threading.Lock()
        self._full: deque[Group] = deque()
        self._open = Group()
        self._filled = threading.Event()  # a group has all that it may hold
        self._waiting = False  # the journal thread sleeps on _wake
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopped = False
        self._ending = False
        self._room = threading.Event()  # set at the end, so that nobody waits for room then
        self._stepping = False
        self._unsealed = False
        self._unsynced = False
        self._synced_at = 0.0
        self._handle = -1
        self._tries = 0  # to have a next segment, that were not begun
        self._growing = threading.Lock()  # held by whoever makes the next segment
        self._next: Segment | None = None
        self._asked_for_next = False
        self._thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        """No more should be appended until groups came back."""
        return self.queued_bytes >= self._queue_bytes_max or self.backlog_full

    @property
    def backlog(self) -> int:
        """Bytes from the oldest segment that is kept to the next group: what a start would have to read."""
        return self.place.position - self._oldest

    @property
    def backlog_full(self) -> bool:
        """Nothing more should be appended before a checkpoint has freed segments: one that begins now frees all but the newest."""
        return self._backlog_reaches(self._backlog_bytes_max)

    def _backlog_reaches(self, size: int) -> bool:
        """Never of the segment alone that is being written, which no checkpoint can free: one made for a large group may be larger than any bound."""
        return self.backlog >= size and self._oldest < self._current

    @property
    def brimful(self) -> bool:
        """Not even what recovers ledgers should be appended."""
        part = self._queue_bytes_max // RESERVE_PART
        return self.queued_bytes >= self._queue_bytes_max + part or self._backlog_reaches(self._backlog_bytes_max + self._backlog_bytes_max // RESERVE_PART)

    @property
    def relaxed(self) -> bool:
        """At most half full: those who were sent away may try again."""
        return self.queued_bytes <= self._queue_bytes_max // 2 and not self.backlog_full

    # The reactor's side

    def start(self) -> None:
        """Opens the segment at `place`, making the first one if there is none, and begins to write.  Raises `StorageError`, `OSError`."""
        self._drop_spares()
        if not self._segments:
            self._segments.append(self._make_segment(self.place.position, min(FIRST_SEGMENT_BYTES, self._segment_bytes)))
        self._handle = self._files.open(self._segments[-1].path)
        # What replay accepted, a segment's name too, may be in memory only; nothing may be built on it before it is durable.
        self._files.datasync(self._handle)
        self._files.sync_directory(self.directory)
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name=f"journal {self.directory}", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                raise StorageError(f"journal {self.directory}: {error}; see the limit of processes (ulimit -u)") from error

    def append(self, blocks: Sequence[bytes], size: int, token: object | None = None, when_synced: Callable[[], None] | None = None) -> None:
        """Queues blocks of together `size` bytes; `token` (if not None) comes back by `durable`, in order.  What `when_synced` hears of is synced always."""
        self.queued_bytes += size
        with self._lock:
            group = self._open
            if group.bytes and group.bytes + size > self._group_bytes_max:
                self._full.append(group)
                self._filled.set()
                group = self._open = Group()
            group.blocks += blocks
            group.bytes += size
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
        """The journal ends with a mark of a clean stop, synced; nothing may be appended after it.  Its group has `end` set."""
        block = BLOCK.pack(END, 0, 0, 0)
        with self._lock:
            self._ending = True  # who waits for room now waits no longer
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
        with self._growing:  # a next segment may just be in the making
            if self._handle >= 0:
                self._files.close(self._handle)
                self._handle = -1

    def free(self, position: int) -> None:
        """Gives back the segments that end at or below `position` (any thread).  Raises `OSError`."""
        with self._growing:
            for segment in [segment for segment in self.segments[:-1] if segment.stop <= position]:
                if len(self._spares) >= SPARES_MAX or segment.size < self._segment_bytes:
                    self._files.unlink(segment.path)
                else:
                    self._spares.append(self._to_spare(segment))
                with self._lock:  # what was not begun is left to the next one
                    self._segments = self._segments[1:]
                    self._oldest = self._segments[0].start

    @property
    def segments(self) -> list[Segment]:
        with self._lock:
            return list(self._segments)

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
            group = self._open
            if group.blocks or group.tokens:
                self._open = Group()
                return group
            return None

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
            short = isinstance(error.__cause__, NotBegun) and self._tries < AGAIN_TRIES
            self._tries += 1
            if self._ending and not short:
                self._fail(error)
            else:
                self._wait_for_room(group, None if short else str(error))
        except Exception as error:  # poisons the journal: whatever it was, nothing may be acknowledged after it
            self._fail(error)
        else:
            return True
        return False

    def _fail(self, error: Exception) -> None:
        self.failure = f"journal {self.directory}: {type(error).__name__}: {error} (group {self.place.sequence} at position {self.place.position})"
        self._hop(self.failed, self.failure)

    def _wait_for_room(self, group: Group, reason: str | None) -> None:
        """Nothing of the group was written: it is tried again, and nobody hears of it meanwhile.  None: it is not yet a reason to refuse anything."""
        if group.blocks or group.tokens:
            with self._lock:
                self._full.appendleft(group)
        if reason is not None:
            self._set_crowded(reason)
        if self._threaded:
            (threading.Event() if self._ending else self._room).wait(AGAIN_SECONDS)
        else:
            self._ask_step(AGAIN_SECONDS)

    def _hop(self, function: Callable[..., None], *args: Any) -> None:
        if self._threaded:
            self._reactor.callFromThread(function, *args)
        else:
            function(*args)

    def _commit(self, group: Group) -> None:
        files = self._files
        seal = not group.blocks and not group.tokens
        if group.blocks or seal:
            length = GROUP.size + group.bytes
            space = padded(length)
            if self.place.position + space > self._segments[-1].stop - FOOT_BYTES:
                self._roll(space)
            place = self.place
            segment = self._segments[-1]
            buffers = [group_header(length, place, segment.salt, group.blocks), *group.blocks, ZEROS[: space - length]]
            files.write(self._handle, buffers, place.position - segment.start)
            self.place = Place(place.sequence + 1, place.position + space)
            self.bytes_written += space
            self._unsynced = True
            if seal:
                self.seals += 1
            else:
                self.groups += 1
        if self._unsynced and (self._sync or seal or group.sync or self._sync_is_due()):
            files.datasync(self._handle)
            self.syncs += 1
            self._unsynced = False
            self._synced_at = self._reactor.seconds()
            self.synced = self.place
        self._unsealed = not seal and not group.end and (self._unsealed or bool(group.blocks))
        if seal:
            return
        self._hop(self._hand_back, group)
        if not self._asked_for_next and self._next is None and self._spawn is not None:
            segment = self._segments[-1]
            if self.place.position - segment.start > segment.size // 4:
                self._asked_for_next = True
                self._spawn(self._prepare)

    def _sync_is_due(self) -> bool:
        return self._reactor.seconds() - self._synced_at >= SYNC_OFF_SECONDS_MAX

    def _hand_back(self, group: Group) -> None:
        """On the reactor thread."""
        self.queued_bytes -= group.bytes
        self.durable(group)

    # Segments

    def _roll(self, space: int) -> None:
        """Makes the next segment the current one."""
        files = self._files
        if self._unsynced:
            files.datasync(self._handle)
            self.syncs += 1
            self._unsynced = False
        with self._growing:  # to the end: whoever prepares another one must see this one and its size, or it takes the same name
            try:
                if self._next is not None and self._next.size < space + FOOT_BYTES:  # one group larger than a segment
                    self._spares.appendleft(self._to_spare(self._next))
                    self._next = None
                segment = self._next = self._next or self._make_next(space + FOOT_BYTES)
                handle = files.open(segment.path)
            except OSError as error:
                if error.errno in FULL or isinstance(error, NotBegun):
                    raise NoRoom(self._no_room(error)) from error
                raise
            self._next = None
            files.close(self._handle)
            self._handle = handle
            with self._lock:
                self._segments.append(segment)
                self._current = segment.start
            self.place = self.synced = Place(self.place.sequence, segment.start)  # all before it was synced, by then or just now
            self._asked_for_next = False
        self._tries = 0
        self._set_crowded(None)

    def _prepare(self) -> None:
        """Has the next segment ready before it is needed (storage pool)."""
        crowded = None
        with self._growing:
            if self._next is not None or self._handle < 0:
                return
            try:
                self._next = self._make_next()
            except NotBegun:
                return  # the roll tries again
            except OSError as error:
                # Not yet a fault: there is room in the current segment.  When that is used up the roll tries again.
                if error.errno in FULL:
                    crowded = self._no_room(error)
        self._set_crowded(crowded)

    def _no_room(self, error: OSError) -> str:
        return f"no room for the next segment of the journal {self.directory} ({error.strerror})"

    def _set_crowded(self, reason: str | None) -> None:
        if reason is not None or self.crowded is not None:
            self.crowded = reason
            self._hop(self.crowding)

    def make_room(self) -> None:
        """Tries again to have the next segment, where that failed for want of room (reactor)."""
        if self.crowded is not None and self.failure is None and self._spawn is not None:
            self._spawn(self._prepare)

    def _make_next(self, size_min: int = 0) -> Segment:
        last = self._segments[-1]
        return self._make_segment(last.stop, max(min(max(last.size * 2, FIRST_SEGMENT_BYTES), self._segment_bytes), size_min), size_min)

    def _make_segment(self, start: int, size: int, size_min: int = 0) -> Segment:
        """A zero-filled or used-again file under its new name, durable, so that its first group needs nothing but a data sync.  `size`: of a new one."""
        files = self._files
        path = os.path.join(self.directory, segment_name(start))
        old = self._spares.popleft() if self._spares else path + TEMPORARY
        spare = old != path + TEMPORARY
        try:
            if spare:
                files.sync_directory(self.directory)  # it is a spare for good: a foot that is torn under a segment's name would be damage to the next start
                segment = used_again(files, old, start, size_min)
            else:
                files.unlink(old)
                segment = empty_segment(files, old, start, size)
            files.rename_durably(old, path)
        except NotBegun:
            if spare:
                self._spares.appendleft(old)
            raise
        except OSError:
            files.unlink(old)  # on a full disk half a segment takes what others could use
            raise
        segment.path = path
        return segment

    def _to_spare(self, segment: Segment) -> str:
        """Under another name, so that a replay that lost its mark does not begin with it."""
        spare = self._spare_path()
        self._files.rename(segment.path, spare)
        return spare

    def _drop_spares(self) -> None:
        """
        What replay found unused under a segment's name goes: such a segment may be going to be made, and a crash amid a rename may have left a spare under both
        of its names.  Then one file would be two.
        """
        kept: deque[str] = deque()
        for path in self._spares:
            if len(kept) < SPARES_MAX and segment_start(os.path.basename(path)) is None:
                kept.append(path)
            else:
                self._files.unlink(path)
        self._spares = kept

    def _spare_path(self) -> str:
        while True:
            path = os.path.join(self.directory, f"{SPARE}{self._spare_serial}{SUFFIX}")
            self._spare_serial += 1
            if not self._files.exists(path):
                return path


def fill(files: Files, handle: int, offset: int, end: int) -> None:
    """Writes zeros from `offset` to `end`, and leaves little of them to be synced."""
    synced = offset
    while offset < end:
        size = min(len(ZERO_CHUNK), end - offset)
        offset = files.write(handle, [ZERO_CHUNK if size == len(ZERO_CHUNK) else ZERO_CHUNK[:size]], offset)
        if offset - synced >= FILL_SYNC_BYTES:
            files.datasync(handle)
            synced = offset


def write_foot(files: Files, handle: int, start: int, size: int) -> int:
    """Ends a segment file of `size` bytes with a foot, and syncs it; returns its new salt."""
    salt = files.salt()
    files.write(handle, [segment_foot(start, salt)], size - FOOT_BYTES)
    files.sync(handle)
    return salt


def used_again(files: Files, path: str, start: int, size_min: int) -> Segment:
    """The same of a file that was one before, made larger if it is smaller than `size_min`."""
    handle = files.open(path)
    try:
        size = padded(files.size(handle))  # a crash may have cut it off while it was made larger
        if size < size_min:
            fill(files, handle, size - FOOT_BYTES, size_min - FOOT_BYTES)
            size = size_min
        return Segment(path, start, size, write_foot(files, handle, start, size))
    finally:
        files.close(handle)


def empty_segment(files: Files, path: str, start: int, size: int) -> Segment:
    """Makes a segment without any group; synced, its name in the directory not."""
    handle = files.open(path, create=True)
    try:
        fill(files, handle, 0, size - FOOT_BYTES)
        return Segment(path, start, size, write_foot(files, handle, start, size))
    finally:
        files.close(handle)
