"""
A store directory on which an unmodified broker starts, from a range of a message store's log.

    export = Export(directory, Source("orders", log, descriptor, begin, end, table))
    for offset, value in …:  # those of the log from export.start up to export.end, in order
        export.take(offset, value)
    report = export.finish(progress)

Files of the log have their values at their places, fillers between them, and zeros behind the last.  A broker makes
consume queues and index itself, as long as there is neither an index nor a complete queue file; a queue file is written
only for a queue whose first position it would not find in the records (docs/messages.md, "Export"),
and for plain files before those of DLedger, with their index.

Each file is `<name>.part`, sparse, until it is whole and synced.  `quire-export.json` says whose export the directory
is, its range and whether it is complete; while it is not, also what the files so far said of queues.  The same export
again goes on at the first file of the log that is missing; its range stays as it was.

Knows: the bytes of each file.
Does not know: logs, where values and progress come from.  Calls block on the disk, and come one at a time.
Safety: nothing is written into a directory that is neither empty nor the same export, unfinished, or that another
export of this machine has locked; the state is `complete` only when all is on stable storage.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import ClassVar, NoReturn, Self

from quire.log.core.values import Value
from quire.messages.core.layout import (
    BLANK_UNIT,
    FILLER_BYTES,
    UNIT,
    Rule,
    file_name,
    filler,
    record_of,
    rule_of,
)
from quire.messages.core.record import Record, unpack
from quire.messages.descriptor import READY
from quire.messages.progress import Consumed, Progress
from quire.messages.rocketmq.building import Building, Sizes
from quire.messages.rocketmq.configuration import broker_settings, completed_offsets, completed_topics
from quire.messages.rocketmq.documents import OFFSETS, TOPICS
from quire.messages.rocketmq.part import Part
from quire.messages.rocketmq.ranges import Source, range_of, shape_of
from quire.messages.rocketmq.source import Tree, open_source
from quire.messages.rocketmq.walking import Walker
from quire.protocol.log_errors import LogDamaged, UnknownFormat
from quire.protocol.message_errors import ExportRefused, NotAMessage, StoreDamaged, StoreImporting
from quire.rows.files import TEMPORARY, Files

# SPDX-License-Identifier: Apache-2.0

MARKER = "quire-export.json"
UNFINISHED, COMPLETE = "unfinished", "complete"


@dataclass(frozen=True, slots=True)
class Queue(Value):
    """
    A queue as far as files are written.  `next`: its next position at the end of the range; `first`: that of its first
    row in the range, -1 without one; `shifted`: True if a broker would put that row elsewhere; `batch`: it has inner
    batches.
    """

    what = "queue of an export"
    topic: str
    queue: int
    next: int
    first: int = -1
    shifted: bool = False
    batch: bool = False

    def with_record(self, record: Record, position: int | None, batch: bool) -> Queue:
        """`position`: of the record; None: it is a double, which a broker would give its own position."""
        if position is None:
            return replace(self, shifted=True)
        shifted = self.shifted or position != record.queue_offset
        return replace(self, first=position, shifted=shifted, batch=batch)

    @property
    def begin(self) -> int | None:
        """Where a file has to begin it; None: a broker finds that by itself."""
        if self.first < 0:
            return self.next or None
        return self.first if self.shifted else None


@dataclass(frozen=True, slots=True)
class Marker(Value):
    """The export that a directory is of: store, range and state."""

    what = "export"
    tag: ClassVar[str] = "messages-export"
    inner: ClassVar[Mapping[str, type[Value]]] = {"queues": Queue}
    name: str
    log: str
    begin: int
    end: int
    state: str
    queues: tuple[Queue, ...] = ()


@dataclass(slots=True)
class Report:
    """
    Results of an export: the range; files of the log, records and bytes of this call.  `unkept`: queues whose position
    a broker will not go on from (topic, queue, next position).  `as_found`: documents that could not be understood, and
    so were not given what they may lack.  `settings`: lines for `broker.conf`.
    """

    begin: int
    end: int
    files: int = 0
    records: int = 0
    bytes: int = 0
    topics: list[str] = field(default_factory=list)  # that topics.json lacked
    unkept: list[tuple[str, int, int]] = field(default_factory=list)
    as_found: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)


class Export:
    """
    One export, begun or gone on with.  `start`, `end`: which values of the log it needs, none if they are equal;
    `complete`: an earlier call has ended it.
    """

    def __init__(
        self,
        directory: str,
        source: Source,
        start: int | None = None,
        below: int = 0,
        *,
        sizes: Sizes = Sizes(),
        files: Files | None = None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """
        `start`: what `--from` says; `below`: the records of the log below `first_border`.  `ExportRefused`,
        `StoreImporting`.
        """
        self._directory = os.path.abspath(directory)
        self._descriptor = source.descriptor
        self._placing = source.descriptor.placing
        self._settings = source.descriptor.store_settings
        self._sizes = sizes
        self._files = files or Files()
        self._reached = reached
        if source.descriptor.state != READY:
            raise StoreImporting(f"the import of {source.name!r} has not ended: `quire messages import` ends it")
        self._lock: int | None = None  # on the directory itself, so that nothing lies in it that a broker would meet
        try:
            self._marker = self._begun(source, start, below)
            self._lay_out()
        except BaseException:
            self._unlock()
            raise

    def _lay_out(self) -> None:
        """Sets what follows from the marker, and from the files that are there."""
        self._group = shape_of(self._descriptor, self._marker.begin, self._marker.end)
        self._queues = {(each.topic, each.queue): each for each in self._marker.queues}
        self.complete = self._marker.state == COMPLETE
        self.end = self._marker.end
        self._sealed = self.end  # or where the file after a sealed one begins
        if self._group is None:
            self._sealed = next((each.begin for each in self._descriptor.regions if each.begin > self.end), self.end)
        self.start = self._sealed if self.complete else self._first_missing()
        self.at = self.start  # up to here, all is written or gathered
        self._file: Part | None = None
        self._layout: Rule = "plain"  # of that file
        self._noted = False  # something of a queue that the marker does not have
        self.report = Report(self._marker.begin, self.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes a file that is not whole, and leaves it; another one may go on with the directory."""
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            self._files.close(lock)

    @property
    def _size(self) -> int:
        return self._settings.file_bytes

    def _begun(self, source: Source, start: int | None, below: int) -> Marker:
        """The marker in the directory, which is locked, or a new one in an empty directory.  `ExportRefused`."""
        path = self._under(MARKER)
        if not self._files.is_directory(self._directory):  # it is made only for what can be exported
            shape_of(source.descriptor, *range_of(source, start, below))
        try:
            self._files.make_directories(self._directory)
            self._lock = self._files.lock(self._directory)
        except (FileExistsError, NotADirectoryError):
            self._refuse("it is no directory")
        except BlockingIOError:
            raise ExportRefused(
                "DirectoryInUse",
                "another export writes into it now: let that one end, or stop it, and give the same command again",
                file=self._directory,
            ) from None
        names = self._files.names(self._directory)
        found = self._files.read_file(path)
        if found is None:
            if set(names) - {MARKER + TEMPORARY}:
                self._refuse(f"it has {names[0]!r}, and no {MARKER}")
            begin, end = range_of(source, start, below)
            shape_of(source.descriptor, begin, end)
            table = source.table
            queues = [Queue(topic, *each) for topic in table.topics() for each in table.queues(topic).items()]
            marker = Marker(source.name, source.log, begin, end, UNFINISHED, tuple(queues))
            self._files.replace(path, marker.encode())
            self._reached("export.begun")
            return marker
        try:
            marker = Marker.decode(found)
        except (LogDamaged, UnknownFormat) as error:
            self._refuse(f"its {MARKER} can't be read: {error}")
        if marker.log != source.log:
            self._refuse(f"it has an export of another store, {marker.name!r}")
        if start is not None and start != marker.begin:
            self._refuse(f"it has an export that begins at {marker.begin}, not at {start}")
        if marker.state == UNFINISHED and marker.begin < source.begin:
            self._refuse(f"its export begins at {marker.begin}, and the log was trimmed up to {source.begin} meanwhile")
        return marker

    def _refuse(self, why: str) -> NoReturn:
        raise ExportRefused(
            "DirectoryInUse", f"{why}: give an empty directory, or one to be made", file=self._directory
        )

    def _first_missing(self) -> int:
        """Where the first file of the log that is missing begins; behind the range, if none is."""
        begins = range(self._marker.begin, self._sealed, self._size)
        return next((at for at in begins if not self._files.exists(self._path(at))), self._sealed)

    # -- values of the log

    def take(self, offset: int, value: bytes) -> None:
        """The next value of the log; `StoreDamaged` for what can't be at that place."""
        self._fill(offset)
        head, raw = record_of(value)
        try:
            record = unpack(raw)
        except NotAMessage as error:
            raise StoreDamaged(f"at {offset} of the log is no message: {error}") from None
        if record.offset != offset + head:
            raise StoreDamaged(f"the record at {offset + head} of the log says that it is at {record.offset}")
        if len(value) + FILLER_BYTES > self._size - offset % self._size:
            raise StoreDamaged(f"the value at {offset} of the log reaches beyond its file of {self._size} bytes")
        part = self._part()
        if rule_of(value) != self._layout:
            raise StoreDamaged(f"the value at {offset} of the log has another layout than its region")
        self._note(record)
        part.write(offset % self._size, value)
        self.at = offset + len(value)
        self.report.records += 1
        self.report.bytes += len(value)

    def _note(self, record: Record) -> None:
        """Keeps what the first row of a queue says."""
        key = record.topic, record.queue
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(*key, 0)
        if queue.first < 0 and record.in_queue():
            properties = record.properties
            place = self._placing.place(record, record.offset)
            position = place.position if place else None
            self._queues[key] = queue.with_record(record, position, "INNER_BASE" in properties)
            self._noted = True

    def _fill(self, offset: int) -> None:
        """Goes on to the place of the next value: the rest of each file up to there is a filler."""
        if offset < self.at:
            raise StoreDamaged(f"the value at {offset} of the log comes behind that which ends at {self.at}")
        while self.at < offset:
            end = self.at - self.at % self._size + self._size
            if end > offset or end - self.at < FILLER_BYTES:
                raise StoreDamaged(f"between {self.at} and {offset} of the log is a hole that is no filler")
            self._part().write(self.at % self._size, filler(self._layout, end - self.at))
            self.at = end
            self._close()

    def _part(self) -> Part:
        """The file that has `at`."""
        if self._file is None:
            self._file = Part(self._files, self._path(self.at))
            self._layout = self._descriptor.region_at(self.at).layout
        return self._file

    def _path(self, offset: int) -> str:
        """Gives the path of the file that has this offset."""
        region = self._descriptor.region_at(offset)
        folder = ("commitlog",) if region.layout == "plain" else (region.group, "data")
        return self._under(*folder, file_name(offset - offset % self._size))

    def _under(self, *names: str) -> str:
        return os.path.join(self._directory, *names)

    def _close(self) -> None:
        """Ends a file of the log; what it says of queues is kept before it has its name."""
        if self._file is not None:
            self._file.sync(self._size)
            self._reached("export.written")
            if self._noted:
                self._mark(UNFINISHED)
                self._noted = False
            self._file.rename()
            self._file = None
            self.report.files += 1
            self._reached("export.renamed")

    # -- what is beside the log

    def finish(self, progress: Progress) -> Report:
        """
        Writes what is beside the log, when all its values were given: documents, consumer offsets, queue files.
        `StoreDamaged` if the log ended too early, or a document is.
        """
        if not self.complete:
            if self.at < self.end:
                raise StoreDamaged(f"the log gave values up to {self.at}, and can be read up to {self.end}")
            self._fill(self._sealed)
            self._close()
            for name in progress.documents():
                if name not in (TOPICS, OFFSETS):
                    self._write(name, progress.document(name))
            self._write_completed(progress)
            built = self._built()
            for key, queue in self._queues.items():
                if key not in built:
                    self._write_queue(queue)
            self._reached("export.documents")
            self._mark(COMPLETE)
            self._reached("export.done")
            self.complete = True
        group = self._group.group if self._group else ""
        self.report.settings = broker_settings(self._directory, self._settings, self._sizes, group)
        return self.report

    def _built(self) -> Container[tuple[str, int]]:
        """
        The queues that have rows before DLedger's files, which are written, the key index, too: a broker in DLedger
        mode builds what it needs of DLedger's files only.
        """
        building = Building(self._files, self._directory, self._placing, self._sizes)
        if self._group is not None and self._group.begin > self._marker.begin:
            tree = Tree()
            try:
                for window in Walker(tree, open_source(tree, self._directory), self._group.begin).windows():
                    for at, size, *_ in window.values:
                        building.take(unpack(window.data[at : at + size]))
            finally:
                tree.close()
            building.finish()
        return building.queues

    def _write_completed(self, progress: Progress) -> None:
        """The two documents that get what they lack."""
        names = [name for name in (TOPICS, OFFSETS) if name in progress.heads]
        found: dict[str, bytes | None] = {name: b"".join(progress.document(name)) for name in names}
        queues: dict[str, int] = {}
        for topic, number in self._queues:
            queues[topic] = max(queues.get(topic, 1), number + 1)
        batch = {queue.topic for queue in self._queues.values() if queue.batch}
        with self._understood(TOPICS):
            found[TOPICS], self.report.topics = completed_topics(found.get(TOPICS), queues, batch)
        with self._understood(OFFSETS):
            found[OFFSETS] = completed_offsets(found.get(OFFSETS), self._within(progress.offsets))
        for name, data in found.items():
            if data is not None:
                self._write(name, [data])

    @contextmanager
    def _understood(self, name: str) -> Iterator[None]:
        """Leaves a document as it was found, and reports it, if it can't be understood."""
        try:
            yield
        except ValueError as error:
            self.report.as_found.append(f"{name}: {error}")

    def _within(self, offsets: Mapping[Consumed, int]) -> dict[Consumed, int]:
        """Consumers that went on behind the range meanwhile are at its end."""
        found = {}
        for consumed, position in offsets.items():
            queue = self._queues.get((consumed.topic, consumed.queue))
            found[consumed] = min(position, queue.next) if queue else position
        return found

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        """A whole file beside the log."""
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise StoreDamaged(f"a document of the store has the name {name!r}, which is no path below a directory")
        part = Part(self._files, self._under(*parts))
        try:
            size = 0
            for piece in pieces:
                if piece.count(0) < len(piece):
                    part.write(size, piece)
                size += len(piece)
            part.sync(size)
        finally:
            part.close()
        part.rename()

    def _write_queue(self, queue: Queue) -> None:
        """The one file of a queue that has to begin with a position; blank units are before it."""
        begin = queue.begin
        if begin is None:
            return
        # The unit before points below the first file of the log, and ends there: what begins where a unit ends is taken
        # for dispatched.
        below = self._marker.begin - 2
        if queue.batch or (begin and below < 0) or "/" in queue.topic or queue.topic in (".", ".."):
            self.report.unkept.append((queue.topic, queue.queue, queue.next))
            return
        last = max(0, begin - 1) * UNIT.size
        at = last - last % self._sizes.queue_file_bytes
        units = BLANK_UNIT * ((last - at) // UNIT.size) + (UNIT.pack(below, 1, 0) if begin else b"")
        name = f"consumequeue/{queue.topic}/{queue.queue}/{file_name(at)}"
        self._write(name, [units, bytes(self._sizes.queue_file_bytes - len(units))])

    def _mark(self, state: str) -> None:
        queues = tuple(self._queues.values()) if state == UNFINISHED else ()
        self._files.replace(self._under(MARKER), replace(self._marker, state=state, queues=queues).encode())
