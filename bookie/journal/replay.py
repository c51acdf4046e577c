"""
Reading a journal directory after a start: which groups come after the mark, and where the journal ends.

Knows: the difference of a torn tail (the one group that was never synced) and damage (a bad group with a good later one
behind it, or a segment that is missing: at the beginning by the marks, between two others by their positions, at the
end by the note of the newest one).
Does not know: what blocks mean; `groups` gives them out in order.

Safety: nothing after damage is ever returned as if it followed; damage raises `StorageError` with file and offset.
With `synced` false (the journal ran with sync off) what comes after the first bad group may be torn too and is cut
off.
"""

import os
from collections.abc import Iterator

from quire.bookie.journal.extent import read_extent, way_out
from quire.bookie.journal.format import (
    ALIGNMENT,
    FOOT_BYTES,
    SPARE,
    START,
    SUFFIX,
    Position,
    begun,
    is_noted,
    later_group,
    padded,
    salt_of,
    segment_name,
    segment_start,
    sequence_at,
    whole,
)
from quire.bookie.journal.segments import Segment, fill
from quire.bookie.layout import DIRTY, EXTENT
from quire.rows.files import TEMPORARY, Files, StorageError

# SPDX-License-Identifier: Apache-2.0


class Replay:
    """One pass over a journal directory.  After `groups`, its attributes are what `Journal` needs."""

    def __init__(
        self,
        files: Files,
        directory: str,
        mark: Position | None,
        synced: bool = True,
        reach: Position | None = None,
        ran: bool = False,
    ) -> None:
        """
        `mark`: everything before it is stored elsewhere.  None: read all that is there; `reach`: the journal must begin
        there or before it; None: at the mark.  `ran`: a bookie ran on it that did not end cleanly, so it can't be
        empty.  `StorageError` where a segment is missing, `OSError`.
        """
        self.position = mark or START
        self.segments: list[Segment] = []
        self.following: Segment | None = None  # the one that was made ahead, behind the last of `segments`
        self.spares: list[str] = []
        self.extent = read_extent(files, directory)  # where the newest segment begins, by its note
        self.torn: str | None = None  # file and offset of a torn tail, for the log
        self._files = files
        self._directory = directory
        self._mark = mark
        self._reach = reach if reach is not None else mark
        self._noted = False  # a segment was made by a bookie that notes the newest one
        self._synced = synced
        self._list()
        if ran and not self.segments:
            raise StorageError(
                f"journal {directory} is empty, and a bookie ran here that did not end cleanly (its note {DIRTY} is "
                f"there): {way_out(files, directory)}"
            )

    def _list(self) -> None:
        files = self._files
        for name in files.names(self._directory):
            path = os.path.join(self._directory, name)
            start = segment_start(name)
            if start is not None:
                with files.closing(files.open(path)) as handle:
                    size = files.size(handle)
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
        self._drop_left_over()
        mark = self._mark
        if mark is not None:
            below = [segment for segment in self.segments if segment.stop <= mark.start]
            if below and below[-1].stop == mark.start and len(below) == len(self.segments):
                # The mark is at the very end of a segment; the next one may not have been made yet.
                below.pop()
            self.spares += [segment.path for segment in below]
            self.segments = self.segments[len(below) :]
        reach, extent = self._reach, self.extent
        if reach is not None and (
            self.segments[0].start > reach.start or self.segments[-1].stop < reach.start
            if self.segments
            else reach != START
        ):
            raise StorageError(
                f"journal {self._directory}: the segment that holds position {reach.start} (group {reach.sequence}) "
                f"is missing: {way_out(self._files, self._directory)}"
            )
        if extent is not None and (not self.segments or self.segments[-1].start < extent):
            first = segment_name(self.segments[-1].stop if self.segments else 0)
            until = "" if first == segment_name(extent) else f", like all up to {segment_name(extent)}"
            raise StorageError(
                f"journal {self._directory}: segment {first} is missing{until}: it was made, and may hold what was "
                f"acknowledged; {way_out(self._files, self._directory)}"
            )

    def _drop_left_over(self) -> None:
        """
        Leaves those segments that follow each other up to the newest one.  Others were freed, and a power loss brought
        their names back; behind the place that a journal must reach back to, a gap is damage.
        """
        segments = self.segments
        gap = next(
            (at for at in range(len(segments) - 1, 0, -1) if segments[at - 1].stop != segments[at].start),
            0,
        )
        if gap and (self._reach is None or segments[gap].start > self._reach.start):
            before, after = segments[gap - 1], segments[gap]
            raise StorageError(
                f"journal {self._directory}: segment {segment_name(before.stop)} is missing: {before.path} ends there, "
                f"and {after.path} is the next one; {way_out(self._files, self._directory)}"
            )
        self.spares += [segment.path for segment in segments[:gap]]
        self.segments = segments[gap:]

    def groups(self) -> Iterator[tuple[bytes, int, int]]:
        """(bytes of a segment, offset of a whole group in it, its length), in order.  `StorageError`, `OSError`."""
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
            if following is not None and whole(
                self._head(following, wanted), 0, following.start, following.salt, wanted
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
        if self.extent is None and self._noted and wanted != START.sequence:
            # it is there before the first group is, and nothing removes it
            raise StorageError(
                f"{os.path.join(self._directory, EXTENT)} is missing, so the last files of the journal may be missing "
                f"unseen; {way_out(self._files, self._directory)}"
            )
        later: str | None = None
        if (later_offset := later_group(data, offset, segment.start, segment.salt, wanted)) is not None:
            later = f"{segment.path} at offset {later_offset}"
        else:
            for other in self.segments[number + 1 :]:
                if (later_offset := later_group(self._read(other), 0, other.start, other.salt, wanted)) is not None:
                    later = f"{other.path} at offset {later_offset}"
                    break
        if later is not None and self._synced:
            raise StorageError(
                f"journal damage: {segment.path} has no whole group {wanted} at offset {offset}, yet a later group "
                f"is whole in {later}; acknowledged entries may be lost here"
            )
        if begun(data, offset, segment.start, segment.salt):
            self.torn = f"{segment.path} at offset {offset}"
        if later is not None:
            # Sync was off: what is cut off now must never look like the continuation of what will be written here.
            with self._files.closing(self._files.open(segment.path)) as handle:
                fill(self._files, handle, offset, segment.size - FOOT_BYTES)
                self._files.sync(handle)
        behind = self.segments[number + 1 :]
        if later is None and len(behind) == 1 and behind[0].start == self.extent:
            # Its name was durable before it was noted, so no spare is the same file.
            self.following = behind[0]
        else:
            # They stay until the note is set back (`Segments.open`): a start that is cut off needs what it names.
            self.spares += [other.path for other in behind]
        self.segments = self.segments[: number + 1]
        self.position = Position(wanted, segment.start + offset)

    def _read_foot(self, segment: Segment) -> None:
        """Learns the segment's salt.  It was durable before the file had its name, so a bad foot is damage."""
        offset = segment.size - FOOT_BYTES
        with self._files.closing(self._files.open(segment.path)) as handle:
            foot = self._files.read(handle, FOOT_BYTES, offset)
        salt = salt_of(foot, segment.start)
        if salt is None:
            raise StorageError(
                f"journal damage: {segment.path} at offset {offset}: the segment's foot is not that of a segment that "
                f"begins at {segment.start}"
            )
        segment.salt = salt
        self._noted = self._noted or is_noted(foot)

    def _read(self, segment: Segment) -> bytes:
        with self._files.closing(self._files.open(segment.path)) as handle:
            data = self._files.read(handle, segment.size, 0)
        if len(data) != segment.size:
            raise StorageError(f"journal segment {segment.path}: {len(data)} of {segment.size} bytes could be read")
        return data

    def _head(self, segment: Segment, sequence: int) -> bytes:
        """The segment's bytes if its first group could be the next one, else nothing: saves reading unused segments."""
        with self._files.closing(self._files.open(segment.path)) as handle:
            head = self._files.read(handle, ALIGNMENT, 0)
        return self._read(segment) if len(head) == ALIGNMENT and sequence_at(head, 0) == sequence else b""
