"""
The segment files of one journal directory: the current one, those before it that are kept, the next one, and spares.

Knows: how a segment is made, or made of a freed one, so that it is durable before it has its name; which segment is
current; which can be freed.
Does not know: groups and syncs of groups; when a checkpoint frees (`storage/checkpoint.py`).

Segments are written past the page cache: what a journal holds is read again only at a start, and filling fresh pages of
the cache is a large part of the processor time of a large append.

Three threads meet here: the journal thread rolls, the storage pool prepares the next segment, and a checkpoint frees.
One lock (`_growing`) covers all three, so that no file is made twice; the list of segments has a lock of its own, held
briefly.

Safety:
* a segment has its name when it is whole, with its foot: one for a group that is larger than a segment is made larger
  before;
* the note of the newest segment (`extent.py`) names a segment before it is written to, and never one that is not there;
* a full disk, or a call that was not begun (`NotBegun`), where the next segment is to be made is `NoRoom`: nothing was
  written, so the group can be tried again.  Any other failure of a roll is final for the journal.
"""

import os
import threading
from collections import deque
from collections.abc import Sequence

from quire.bookie.journal.extent import write_extent
from quire.bookie.journal.format import (
    FOOT_BYTES,
    SPARE,
    SUFFIX,
    Position,
    padded,
    segment_foot,
    segment_name,
    segment_start,
)
from quire.bookie.layout import EXTENT
from quire.rows.files import FULL, TEMPORARY, Files, NotBegun, memory

# SPDX-License-Identifier: Apache-2.0

FIRST_SEGMENT_BYTES = 4 << 20  # segments double from here to the configured size, so that a small bookie starts fast
SPARES_MAX = 16  # freed segments kept for reuse, about what a loaded bookie fills between two checkpoints
ZERO_CHUNK = memoryview(memory(1 << 20))  # at the beginning of a page, as a direct write needs it
FILL_SYNC_BYTES = (
    4 << 20
)  # a new segment is synced in such pieces: all at once delays a group by 20 ms, not 2 (measured)


class NoRoom(Exception):
    """There is no next segment; nothing was written.  `disk_full`, or else something was short that is no disk's."""

    def __init__(self, reason: str, disk_full: bool) -> None:
        super().__init__(reason)
        self.disk_full = disk_full


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


class Segments:
    """The files of one journal directory (`<dir>/current`).  `segment_bytes`: the size to which they grow."""

    def __init__(
        self,
        files: Files,
        directory: str,
        position: int,
        segments: Sequence[Segment],
        spares: Sequence[str],
        segment_bytes: int,
        following: Segment | None = None,
        noted: int | None = None,
    ) -> None:
        """`position`: of the next group.  Replay found `segments`, `spares`, one made ahead (`following`), `noted`."""
        self.directory = directory
        # Attributes, not properties: the journal reads them for each append and each group.
        self.current = segments[-1] if segments else Segment("", position, 0, 0)  # without any, `open` makes the first
        self.oldest = segments[0].start if segments else position  # where the oldest segment begins
        self.handle = -1  # of the current segment
        self.size_max = padded(segment_bytes)
        self._files = files
        self._segments = list(segments)
        self._spares = deque(spares)
        self._spare_serial = 0
        self._lock = threading.Lock()  # of the list
        self._growing = threading.Lock()  # held by the caller that makes, frees or closes a segment
        self._next = following
        self._noted = -1 if noted is None else noted  # where the newest segment begins, by the note; -1: not known

    @property
    def kept(self) -> list[Segment]:
        """The oldest first, the current one last."""
        with self._lock:
            return list(self._segments)

    def open(self) -> None:
        """Opens the current segment, or makes the first, also on a full disk while nothing is set back.  `OSError`."""
        if self._segments:
            self._note(self._next or self.current)  # before what replay found unused behind it goes
        self._drop_spares()
        if not self._segments:
            self.current = self._make_segment(self.current.start, min(FIRST_SEGMENT_BYTES, self.size_max))
            self._segments.append(self.current)
            self._note(self.current)
        self.handle = self._files.open(self.current.path)
        self._files.set_direct(self.handle)
        # What replay accepted, also a name, may be in memory only: it becomes durable before anything follows it.
        self._files.datasync(self.handle)
        self._files.sync_directory(self.directory)

    def close(self) -> None:
        """Closes the current segment, after the next one if that is being made.  Raises `OSError`."""
        with self._growing:
            if self.handle >= 0:
                self._files.close(self.handle)
                self.handle = -1

    def roll(self, space: int) -> None:
        """Makes the next segment, with room for a group of `space` bytes, the current one.  `NoRoom`, `OSError`."""
        files = self._files
        # Locked to the end: `prepare` must see this segment and its size, or it makes another of the same name.
        with self._growing:
            try:
                if self._next is not None and self._next.size < space + FOOT_BYTES:  # a group larger than a segment
                    self._note(self.current)
                    self._spares.appendleft(self._to_spare(self._next))
                    self._next = None
                segment = self._next = self._next or self._make_next(space + FOOT_BYTES)
                self._note(segment)
                handle = files.open(segment.path)
                files.set_direct(handle)
            except OSError as error:
                if error.errno in FULL or isinstance(error, NotBegun):
                    raise self._no_room(error) from error
                raise
            self._next = None
            files.close(self.handle)
            self.handle = handle
            with self._lock:
                self._segments.append(segment)
                self.current = segment

    def prepare(self) -> bool:
        """
        Has the next segment ready before it is needed (storage pool).  False: there is one, or nothing was begun.
        Raises `NoRoom` when the disk is full; any other failure is left to the roll: there is room for groups now.
        """
        with self._growing:
            if self.handle < 0 or (self._next is not None and self._noted == self._next.start):
                return False
            try:
                self._next = self._next or self._make_next()
                self._note(self._next)
            except NotBegun:
                return False
            except OSError as error:
                if error.errno in FULL:
                    raise self._no_room(error) from error
            return True

    def free(self, position: int) -> None:
        """Gives back the segments that end at or below `position` (any thread).  Raises `OSError`."""
        with self._growing:
            for segment in [segment for segment in self.kept[:-1] if segment.stop <= position]:
                if len(self._spares) >= SPARES_MAX or segment.size < self.size_max:
                    self._files.unlink(segment.path)
                else:
                    self._spares.append(self._to_spare(segment))
                with self._lock:  # after each: a call that was not begun leaves the rest to the next checkpoint
                    self._segments = self._segments[1:]
                    self.oldest = self._segments[0].start

    def _note(self, segment: Segment) -> None:
        """Says durably that this is the newest segment, unless the note says so."""
        if self._noted != segment.start:
            self._noted = -1  # until it is written: after an error it may say either
            write_extent(self._files, self.directory, segment.start)
            self._noted = segment.start

    def _no_room(self, error: OSError) -> NoRoom:
        reason = f"no room for the next segment of the journal {self.directory} ({error.strerror})"
        return NoRoom(reason, disk_full=not isinstance(error, NotBegun))

    def _make_next(self, size_min: int = 0) -> Segment:
        last = self.current
        size = min(max(last.size * 2, FIRST_SEGMENT_BYTES), self.size_max)
        return self._make_segment(last.stop, max(size, size_min), size_min)

    def _make_segment(self, start: int, size: int, size_min: int = 0) -> Segment:
        """A zero-filled (`size`) or reused file, durable under its new name, so that groups need a data sync only."""
        files = self._files
        path = os.path.join(self.directory, segment_name(start))
        old = self._spares.popleft() if self._spares else path + TEMPORARY
        spare = old != path + TEMPORARY
        try:
            if spare:
                # It is durably a spare: a torn foot under a segment's name would be damage to the next start.
                files.sync_directory(self.directory)
                segment = reused_segment(files, old, start, size_min)
            else:
                files.unlink(old)
                segment = empty_segment(files, old, start, size)
            files.rename_durably(old, path)
        except NotBegun:
            if spare:
                self._spares.appendleft(old)
            raise
        except OSError:
            files.unlink(old)  # half a segment would occupy room on a full disk
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
        Removes the spares above the bound, and those that replay found unused under a segment's name: the journal may
        make a segment of that name, and a crash amid a rename may have left a spare under both of its names.  Then one
        file would be two.
        """
        kept: deque[str] = deque()
        dropped = []
        for path in self._spares:
            if len(kept) < SPARES_MAX and segment_start(os.path.basename(path)) is None:
                kept.append(path)
            else:
                dropped.append(path)
        for path in sorted(dropped, reverse=True):
            # The newest first, each durably: a gap behind the current segment would be damage to the next start.
            self._files.unlink(path)
            self._files.sync_directory(self.directory)
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
        offset = files.write_aligned(handle, ZERO_CHUNK[:size], offset)
        if offset - synced >= FILL_SYNC_BYTES:
            files.datasync(handle)
            synced = offset


def write_foot(files: Files, handle: int, start: int, size: int) -> int:
    """Ends a segment file of `size` bytes with a foot, and syncs it; returns its new salt."""
    salt = files.salt()
    page = memoryview(memory(FOOT_BYTES))
    page[:] = segment_foot(start, salt)
    files.write_aligned(handle, page, size - FOOT_BYTES)
    files.sync(handle)
    return salt


def reused_segment(files: Files, path: str, start: int, size_min: int) -> Segment:
    """Makes a segment of one that was freed, of at least `size_min` bytes; synced, its name in the directory not."""
    with files.closing(files.open(path)) as handle:
        files.set_direct(handle)
        size = padded(files.size(handle))  # a crash may have cut it off while it was made larger
        if size < size_min:
            fill(files, handle, size - FOOT_BYTES, size_min - FOOT_BYTES)
            size = size_min
        return Segment(path, start, size, write_foot(files, handle, start, size))


def empty_journal(files: Files, directory: str, position: Position | None) -> None:
    """
    The journal of a directory (`<dir>/current`) whose content is lost: one segment without a group, that begins at this
    position; None: no segment.  Of an earlier try nothing is left.  Synced; `OSError`.
    """
    for name in files.names(directory):
        if name.endswith((SUFFIX, SUFFIX + TEMPORARY)) or name == EXTENT:
            files.unlink(os.path.join(directory, name))
    if position is not None:
        path = os.path.join(directory, segment_name(position.start))
        empty_segment(files, path, position.start, FIRST_SEGMENT_BYTES)
    files.sync_directory(directory)
    if position is not None:
        write_extent(files, directory, position.start)


def empty_segment(files: Files, path: str, start: int, size: int) -> Segment:
    """Makes a segment without any group; synced, its name in the directory not."""
    with files.closing(files.open(path, create=True)) as handle:
        files.set_direct(handle)
        fill(files, handle, 0, size - FOOT_BYTES)
        return Segment(path, start, size, write_foot(files, handle, start, size))
