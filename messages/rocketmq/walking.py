"""
A walk through the files of one source, up to where it ends.

The end is behind the last valid record or entry, whatever a checkpoint says.  Only zeros behind it are a clean end.  Of
anything else each place with a magic and its own offset is tried: if a valid value begins at one, the middle is
damaged; if none does, the tail is torn.  An entry there of a term below the last valid one is left over from a
truncation, and does not count.

Knows: in which order the files are read, and what the end is.
Does not know: what values say, queues, other replicas.
Safety: nothing behind a place that is not valid is taken for a part of the log; what is left out is named.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from quire.messages.core.layout import FILLER_BYTES
from quire.messages.core.scan import CANDIDATE_BYTES, VALUE_BYTES_MAX, Seen, Walk, candidates
from quire.messages.rocketmq.source import LogFile, Source, Tree
from quire.protocol.message_errors import ImportRefused

# SPDX-License-Identifier: Apache-2.0

WINDOW_BYTES = 8 << 20
TRIED_BYTES = 64 << 10  # that are read first where a value may begin
SKIP_BYTES_MAX = (1 << 32) - 1 - VALUE_BYTES_MAX  # together with a value it has to fit 32 bits in an entry of a log


class WalkedFile(NamedTuple):
    """A file of the log: where its last value ends, CRC-32C of its bytes up to there, and how many values it has."""

    file: LogFile
    end: int
    crc: int
    records: int


class Window(NamedTuple):
    """Some bytes of a file, the offset of the first one, and the values that are whole in it."""

    file: LogFile
    data: bytes
    place: int
    values: Iterator[Seen]


@dataclass(frozen=True, slots=True)
class Tail:
    """The bytes behind the end: the first byte that is not zero, if any, and the first valid value, if any."""

    dirty: tuple[LogFile, int] | None = None
    valid: tuple[LogFile, int] | None = None


class Walker:
    """
    One source.  `windows` is gone through once, and the values of each window before the next.  `stop`: from there on
    nothing is looked at.  `told(bytes)`: as they are read.
    """

    def __init__(
        self, tree: Tree, source: Source, stop: int | None = None, told: Callable[[int], None] = lambda _bytes: None
    ) -> None:
        self._tree = tree
        self._source = source
        self._stop = stop
        self._told = told
        self.walked: list[WalkedFile] = []
        self.end = source.files[0].begin  # behind the last value
        self.sealed = -1  # the end of the file whose filler was seen last behind that; -1: none was
        self.last = (-1, -1)  # index and term of the last entry
        self.stopped = source.files[0], source.files[0].begin  # where no value and no filler begins
        self.tail = Tail()

    def windows(self) -> Iterator[Window]:
        """`ImportRefused`: Unsupported, SourceChanged.  `ValueError`: `stop` is inside a value."""
        for number, file in enumerate(self._source.files):
            if not file.size or (self._stop is not None and file.begin >= self._stop):
                break
            walk = Walk(file.rule, file.begin, file.end, self.last, self._stop)
            yield from self._file(file, walk)
            self.last = walk.index, walk.term
            head = self._tree.read(file.path, walk.place - file.begin, FILLER_BYTES)
            if walk.filler(head, 0):
                self.sealed = file.end
                continue
            self.stopped = file, walk.place
            if self._stop is not None:
                self._check_stop(file, walk)
            self.tail = self._behind(number, walk.place)
            break
        while self.walked and not self.walked[-1].records:
            self.walked.pop()

    def check_tail(self, accept_tail: bool) -> int | None:
        """
        The first byte behind the end that is not zero and is left out; None: there is none.  `ImportRefused`:
        DamagedMiddle, TornTail.
        """
        if self.tail.valid is not None:
            (bad, stopped), (file, place) = self.stopped, self.tail.valid
            raise ImportRefused(
                "DamagedMiddle",
                f"no valid record begins there, and the next one is at {place} in {file.path}: import another copy of "
                f"the store; if all that is behind is known to be old, --end {stopped} takes what is below",
                file=bad.path,
                offset=stopped,
            )
        if self.tail.dirty is None:
            return None
        file, place = self.tail.dirty
        if not accept_tail:
            raise ImportRefused(
                "TornTail",
                f"the log ends at {self.end}, and behind that are bytes that are not zeros and no record: a record "
                "that was not written to its end, or damage. Import another copy of the store, or leave them out with "
                "--accept-tail",
                file=file.path,
                offset=place,
            )
        return place

    def _file(self, file: LogFile, walk: Walk) -> Iterator[Window]:
        crc, begin = 0, file.begin
        while walk.needed:
            place = walk.place
            data = self._tree.read(file.path, place - begin, max(WINDOW_BYTES, walk.needed))
            if len(data) < walk.needed:
                raise changed(file, f"it ends at byte {place - begin + len(data)} and had {file.size} bytes")
            yield Window(file, data, place, walk.values(data))
            used = walk.place - place
            crc = crc32c(memoryview(data)[:used], crc)
            self._told(used)
            if used and place == begin and begin - self.end > SKIP_BYTES_MAX:
                raise ImportRefused(
                    "Unsupported",
                    f"{begin - self.end} bytes of fillers are before it: at most {SKIP_BYTES_MAX} can be skipped",
                    file=file.path,
                    offset=begin,
                )
            if used:
                self.end, self.sealed = walk.place, -1
        self._check_supported(file, walk)
        self.walked.append(WalkedFile(file, walk.place, crc, walk.records))

    def _check_supported(self, file: LogFile, walk: Walk) -> None:
        if walk.is_too_large:
            why = f"the value that begins there is larger than {VALUE_BYTES_MAX} bytes, the most that a log can have"
        elif walk.is_foreign:
            why = "the entry that begins there has another magic than 1: only DLedger up to 0.3.1.2 is known"
        else:
            return
        raise ImportRefused("Unsupported", f"{why}; nothing was imported", file=file.path, offset=walk.place)

    def _check_stop(self, file: LogFile, walk: Walk) -> None:
        """A value must not reach over the end that was asked for."""
        assert self._stop is not None
        if walk.place < self._stop and self._valid_at(file, walk.place, (walk.index, walk.term)):
            raise ValueError(
                f"the end {self._stop} is inside the value that begins at {walk.place}: give that offset as the end"
            )

    def _behind(self, number: int, place: int) -> Tail:
        dirty = None
        for file in self._source.files[number:]:
            place = max(place, file.begin)
            end = file.end if self._stop is None else min(file.end, self._stop)
            found = self._first_dirty(file, place, end)
            if found is None:
                continue
            dirty = dirty or (file, found)
            valid = self._first_valid(file, max(place, self.end), end)
            if valid is not None:
                return Tail(dirty, (file, valid))
        return Tail(dirty)

    def _first_dirty(self, file: LogFile, place: int, end: int) -> int | None:
        """The first byte that is not zero."""
        while place < end:
            data = self._tree.read(file.path, place - file.begin, min(WINDOW_BYTES, end - place))
            if not data:
                raise changed(file, f"it ends at byte {place - file.begin} and had {file.size} bytes")
            if data != bytes(len(data)):
                return place + len(data) - len(data.lstrip(b"\0"))
            place += len(data)
        return None

    def _first_valid(self, file: LogFile, place: int, end: int) -> int | None:
        """The first place below `end` where a valid value begins, whatever index it has."""
        while place < end:
            data = self._tree.read(file.path, place - file.begin, WINDOW_BYTES + CANDIDATE_BYTES)
            for at in candidates(file.rule, data, place, 0):
                if place + at < end and self._valid_at(file, place + at, (-1, self.last[1])):
                    return place + at
            place += WINDOW_BYTES
        return None

    def _valid_at(self, file: LogFile, place: int, last: tuple[int, int]) -> bool:
        walk = Walk(file.rule, place, file.end, last)
        count = TRIED_BYTES
        while walk.needed:
            data = self._tree.read(file.path, place - file.begin, max(count, walk.needed))
            if len(data) < walk.needed:
                return False
            if next(walk.values(data), None) is not None:
                return True
        return False


def changed(file: LogFile, how: str) -> ImportRefused:
    """The refusal of a file that is not as it was."""
    return ImportRefused(
        "SourceChanged",
        f"{how}: import from a directory that nobody writes to; an import that was begun goes on only with the source "
        "as it was, or is given up with `quire messages delete`",
        file=file.path,
        offset=file.begin,
    )
