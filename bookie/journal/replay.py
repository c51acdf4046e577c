"""
Reading a journal directory after a start: which groups come after the mark, and where the journal ends.

Knows: the difference of a torn tail (the one group that was never synced) and damage (a bad group with a good later one
behind it, or a segment that is missing).
Does not know: what blocks mean; `groups` gives them out in order.

Safety: nothing after damage is ever returned as if it followed; damage raises `StorageError` with file and offset.
With `synced` false (the journal ran with sync off) what comes after the first bad group may be torn too and is cut
off.
"""

import os
from collections.abc import Iterator

from quire.bookie.files import TEMPORARY, Files, StorageError
from quire.bookie.journal.format import (
    ALIGNMENT,
    FOOT_BYTES,
    SPARE,
    START,
    SUFFIX,
    Position,
    begun,
    later_group,
    padded,
    salt_of,
    segment_name,
    segment_start,
    sequence_at,
    whole,
)
from quire.bookie.journal.segments import Segment, fill

# SPDX-License-Identifier: Apache-2.0


class Replay:
    """
    One pass over a journal directory.  After `groups` is exhausted: `position`, `segments`, `spares` are what `Journal`
    needs.
    """

    def __init__(self, files: Files, directory: str, mark: Position | None, synced: bool = True) -> None:
        """`mark`: everything before it is stored elsewhere.  None: read all that is there."""
        self.position = mark or START
        self.segments: list[Segment] = []
        self.spares: list[str] = []
        self.torn: str | None = None  # file and offset of a torn tail, for the log
        self._files = files
        self._directory = directory
        self._mark = mark
        self._synced = synced
        self._list()

    def _list(self) -> None:
        files = self._files
        for name in files.names(self._directory):
            path = os.path.join(self._directory, name)
            start = segment_start(name)
            if start is not None:
                handle = files.open(path)
                try:
                    size = files.size(handle)
                finally:
                    files.close(handle)
                if size == 0 or size % ALIGNMENT:
                    raise StorageError(
                        f"journal segment {path} has {size} bytes, which is no multiple of {ALIGNMENT}: it was cut "
                        "or replaced"
                    )
                self.segments.append(Segment(path, start, size, 0))
            elif name.startswith(SPARE) and name.endswith(SUFFIX):
                self.spares.append(path)
            elif name.endswith(SUFFIX + TEMPORARY):
                files.unlink(path)
        self.segments.sort(key=lambda segment: segment.start)
        mark = self._mark
        if mark is None:
            return
        below = [segment for segment in self.segments if segment.stop <= mark.start]
        self.segments = self.segments[len(below) :]
        if self.segments and self.segments[0].start <= mark.start:
            self.spares += [segment.path for segment in below]
        elif below and below[-1].stop == mark.start:
            # The mark is at the very end of a segment; the next one may not have been made yet.
            self.spares += [segment.path for segment in below[:-1]]
            self.segments.insert(0, below[-1])
        elif mark != START or self.segments:
            raise StorageError(
                f"journal {self._directory}: the segment that holds position {mark.start} (group {mark.sequence}) "
                "is missing; "
                f"put it back; or remove {self._directory} and `quire bookie start --conf FILE --restore`, which "
                "copies what it held from other bookies"
            )

    def groups(self) -> Iterator[tuple[bytes, int, int]]:
        """
        (bytes of a segment, offset of a whole group in it, its length), in order.  Raises `StorageError` on damage,
        `OSError`.
        """
        if not self.segments:
            return
        for segment in self.segments:
            self._read_foot(segment)
        sequence = self._mark.sequence if self._mark is not None else None
        number = 0
        offset = self._mark.start - self.segments[0].start if self._mark is not None else 0
        while True:
            segment = self.segments[number]
            data = self._read(segment)
            while length := whole(data, offset, segment.start, segment.salt, sequence):
                if sequence is None:
                    sequence = sequence_at(data, offset)
                yield data, offset, length
                sequence += 1
                offset += padded(length)
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            # the first group ever may have been larger than the first segment
            wanted = 1 if sequence is None else sequence
            if (
                following is not None
                and following.start == segment.stop
                and whole(self._head(following, wanted), 0, following.start, following.salt, wanted)
            ):
                sequence = wanted
                number += 1
                offset = 0
                continue
            break
        self._finish(number, offset, data, sequence)

    def _finish(self, number: int, offset: int, data: bytes, sequence: int | None) -> None:
        """The good groups end at `offset` of segment `at`: is it the tail, or damage?"""
        segment = self.segments[number]
        wanted = sequence if sequence is not None else 1
        later: str | None = None
        if (later_offset := later_group(data, offset, segment.start, segment.salt, wanted)) is not None:
            later = f"{segment.path} at offset {later_offset}"
        else:
            for other in self.segments[number + 1 :]:
                if (later_offset := later_group(self._read(other), 0, other.start, other.salt, wanted)) is not None:
                    later = f"{other.path} at offset {later_offset}"
                    break
        if later is not None and self._synced:
            missing = ""
            if number + 1 < len(self.segments) and self.segments[number + 1].start != segment.stop:
                missing = f"; segment {segment_name(segment.stop)} is missing"
            raise StorageError(
                f"journal damage: {segment.path} has no whole group {wanted} at offset {offset}, yet a later group "
                f"is whole in {later}{missing}; "
                "acknowledged entries may be lost here"
            )
        if begun(data, offset, segment.start, segment.salt):
            self.torn = f"{segment.path} at offset {offset}"
        if later is not None:
            # Sync was off: what is cut off now must never look like the continuation of what will be written here.
            handle = self._files.open(segment.path)
            try:
                fill(self._files, handle, offset, segment.size - FOOT_BYTES)
                self._files.sync(handle)
            finally:
                self._files.close(handle)
            for other in self.segments[number + 1 :]:
                self._files.unlink(other.path)
        else:
            self.spares += [other.path for other in self.segments[number + 1 :]]
        self.segments = self.segments[: number + 1]
        self.position = Position(wanted, segment.start + offset)

    def _read_foot(self, segment: Segment) -> None:
        """Learns the segment's salt.  It was durable before the file had its name, so a bad foot is damage."""
        offset = segment.size - FOOT_BYTES
        handle = self._files.open(segment.path)
        try:
            salt = salt_of(self._files.read(handle, FOOT_BYTES, offset), segment.start)
        finally:
            self._files.close(handle)
        if salt is None:
            raise StorageError(
                f"journal damage: {segment.path} at offset {offset}: the segment's foot is not that of a segment that "
                f"begins at {segment.start}"
            )
        segment.salt = salt

    def _read(self, segment: Segment) -> bytes:
        handle = self._files.open(segment.path)
        try:
            data = self._files.read(handle, segment.size, 0)
        finally:
            self._files.close(handle)
        if len(data) != segment.size:
            raise StorageError(f"journal segment {segment.path}: {len(data)} of {segment.size} bytes could be read")
        return data

    def _head(self, segment: Segment, sequence: int) -> bytes:
        """The segment's bytes if its first group could be the next one, else nothing: saves reading unused segments."""
        handle = self._files.open(segment.path)
        try:
            head = self._files.read(handle, ALIGNMENT, 0)
        finally:
            self._files.close(handle)
        return self._read(segment) if len(head) == ALIGNMENT and sequence_at(head, 0) == sequence else b""
