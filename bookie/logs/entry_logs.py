"""
The entry logs of one ledger directory: appended, rotated, read, made whole by compaction, removed.

Knows: files and offsets (`format` has the bytes).  Does not know: which entries are needed (the index does), sums (the
index holds them).
Safety: a log that an earlier process began is never appended to; an id is never used twice while any trace of it
exists.
"""

import errno
import os
import threading
from collections import OrderedDict
from contextlib import suppress

from quire.bookie.layout import OPEN_LOGS_MAX
from quire.bookie.logs.format import (
    HEADER,
    HEADER_BYTES,
    ID_MAX,
    LAST_ID,
    MAGIC,
    SUFFIX,
    UNFINISHED,
    ledgers_map,
    log_id,
    log_name,
    newest_id,
)
from quire.rows.files import FULL, Files, NotBegun

# SPDX-License-Identifier: Apache-2.0
# a log with so many ends, however small it is: its map stays in memory until then, about 150 bytes for each
LEDGERS_MAX = 50_000
WRITE_BYTES = 1 << 20  # so much is gathered before it is written
PREALLOCATED_BYTES = 16 << 20  # on the disk ahead of what is written, once a log is larger than `WRITE_BYTES`
UNLIMITED = 1 << 62


class Reader:
    """One log open for reading, by `users` threads right now."""

    __slots__ = ("gone", "handle", "users")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.users = 0
        self.gone = False  # the log was removed: the last user closes it


class EntryLogs:
    """The entry logs of a directory.  One thread appends; any reads; one makes and removes whole logs beside it."""

    def __init__(self, files: Files, directory: str, bytes_max: int, open_max: int = OPEN_LOGS_MAX) -> None:
        """Raises `OSError`."""
        self._files = files
        self._directory = directory
        self._bytes_max = bytes_max
        self._open_max = open_max
        for name in files.names(directory):
            if name.endswith(SUFFIX + UNFINISHED):
                files.unlink(os.path.join(directory, name))
        self._ids = {found for name in files.names(directory) if (found := log_id(name)) is not None}
        self._newest = newest_id(list(self._ids), self._read_last_id())
        if self._newest in self._ids:
            self._trim_left()
        self._log = -1  # the log being written; -1: none yet
        self._handle = -1
        self._position = 0  # where the next record goes, gathered ones counted
        self._gathered: list[bytes] = []
        self._gathered_at = 0  # where they go
        self._reserved = UNLIMITED  # up to here nothing is preallocated, or has been
        self._preallocates = True  # until the file system says that it can't
        self._map: dict[int, int] = {}
        self._unsynced: dict[int, int] = {}  # log -> handle; the current one among them
        self._readers: OrderedDict[int, Reader] = OrderedDict()
        self._fresh: set[int] = set()  # logs that index rows are still to name: they must not count as unneeded
        self._making: set[int] = set()  # the same of those that compaction makes
        self._reading = threading.Lock()
        self._naming = threading.Lock()

    @property
    def current(self) -> int:
        """The id of the log being written; -1 when none is."""
        return self._log

    def _read_last_id(self) -> int | None:
        text = self._files.read_file(os.path.join(self._directory, LAST_ID))
        try:
            return int(text or b"", 16)
        except ValueError:
            return None

    # Writing

    def append(self, ledger: int, records: bytes) -> tuple[int, int]:
        """Takes records (with size fields) of one ledger; returns (log, first offset).  Readable after `write_out`."""
        size = len(records)
        if (
            self._handle < 0
            or (self._position + size > self._bytes_max and self._position > HEADER_BYTES)
            or len(self._map) >= LEDGERS_MAX
        ):
            self.rotate()
            self._begin()
        offset = self._position
        self._gathered.append(records)
        self._position = offset + size
        self._map[ledger] = self._map.get(ledger, 0) + size
        if self._position - self._gathered_at >= WRITE_BYTES:
            self.write_out()
        return self._log, offset

    def write_out(self) -> None:
        """Hands what was gathered to the system."""
        if self._gathered:
            if self._position > self._reserved:
                self._preallocate()
            self._write(self._handle, self._gathered, self._gathered_at)
            self._gathered = []
            self._gathered_at = self._position

    def _write(self, handle: int, records: list[bytes], at: int) -> None:
        """Gives them to the disk at once, for a sync of a whole log would delay the journal's."""
        end = self._files.write(handle, records, at)
        self._files.begin_writing(handle, at, end - at)

    def _preallocate(self) -> None:
        """Spares the file system decisions: a third of the time of writes, a sixth of syncs (ext4)."""
        size = max(min(PREALLOCATED_BYTES, self._bytes_max - self._reserved), self._position - self._reserved)
        try:
            self._preallocates = self._files.preallocate(self._handle, self._reserved, size)
        except OSError as error:
            if error.errno not in FULL and not isinstance(error, NotBegun):
                raise
            self._reserved = UNLIMITED  # if there is no room the write will say it
        else:
            self._reserved = self._reserved + size if self._preallocates else UNLIMITED

    def _trim_left(self) -> None:
        """Trims what a killed process had preallocated for its last log."""
        with self._files.closing(self._files.open(os.path.join(self._directory, log_name(self._newest)))) as handle:
            self._files.trim(handle)

    def abandon(self) -> None:
        """A flush failed half-way: whatever it wrote is garbage, and the next flush begins a log of its own."""
        self._trim_quietly()
        self._gathered = []
        self._log = -1
        self._handle = -1
        self._map = {}

    def _trim_quietly(self) -> None:
        if self._handle >= 0:
            with suppress(OSError):  # a disk that is dead has no room to give back
                self._files.trim(self._handle)

    def _begin(self) -> None:
        log, handle = self._create("")
        self._log = log
        self._handle = handle
        self._unsynced[log] = handle
        self._position = self._gathered_at = HEADER_BYTES
        self._reserved = WRITE_BYTES if self._preallocates else UNLIMITED
        self._map = {}

    def _create(self, suffix: str) -> tuple[int, int]:
        """(id, handle) of a new file with header, its name and id durable.  Flush and compaction may come together."""
        with self._naming:
            log = self._newest
            while True:
                log = log + 1 if log < ID_MAX else 0
                if log not in self._ids:
                    break
            path = os.path.join(self._directory, log_name(log) + suffix)
            handle = self._files.open(path, create=True)
            try:
                self._files.write(handle, [HEADER.pack(MAGIC, 1, 0, 0).ljust(HEADER_BYTES, b"\0")], 0)
                # syncs the directory, and so the log's name too
                self._files.replace(os.path.join(self._directory, LAST_ID), f"{log:x}\n".encode())
            except OSError:
                self._files.close(handle)
                if suffix:
                    self._files.unlink(path)
                raise
            (self._making if suffix else self._fresh).add(log)
            self._ids.add(log)
            self._newest = log
        return log, handle

    def rotate(self) -> None:
        """Ends the current log with its ledgers map; it is synced and closed at the next `sync`."""
        if self._handle < 0:
            return
        self.write_out()
        at = self._position
        self._files.write(self._handle, ledgers_map(self._map), at)
        self._files.write(self._handle, [HEADER.pack(MAGIC, 1, at, len(self._map))], 0)
        with suppress(NotBegun):  # the log has its end, so it must count as ended
            self._files.trim(self._handle)
        self._unsynced[self._log] = self._handle
        self._log = -1
        self._handle = -1
        self._map = {}

    def sync(self) -> None:
        """Puts all that was appended on stable storage.  Raises `OSError`; then it may not be tried again."""
        self.write_out()
        for log, handle in list(self._unsynced.items()):
            self._files.datasync(handle)
            del self._unsynced[log]
            if log != self._log:
                self._files.close(handle)
        if self._log >= 0:
            self._unsynced[self._log] = self._handle

    # Whole logs

    def begin_whole(self) -> tuple[int, int]:
        """(id, handle) of a log under a name that is never read; `finish_whole` or `drop_whole` ends it."""
        return self._create(UNFINISHED)

    def write_whole(self, handle: int, records: list[bytes], at: int) -> None:
        """Writes records to an unfinished log."""
        self._write(handle, records, at)

    def finish_whole(self, log: int, handle: int, at: int, ledgers: dict[int, int]) -> None:
        """Ends it at `at` with map and name: durable and readable on return.  With `NotBegun` it is gone."""
        try:
            self._files.write(handle, ledgers_map(ledgers), at)
            self._files.write(handle, [HEADER.pack(MAGIC, 1, at, len(ledgers))], 0)
            self._files.sync(handle)
        except OSError:
            self.drop_whole(log, handle)
            raise
        self._files.close(handle)
        path = os.path.join(self._directory, log_name(log))
        try:
            self._files.rename_durably(path + UNFINISHED, path)
        except NotBegun:
            self._drop_closed(log)
            raise
        except OSError as error:
            if self._files.exists(path + UNFINISHED):  # a full disk has no room for a name
                self._drop_closed(log)
                raise
            raise OSError(errno.EIO, f"its name may not last: {error}", path) from error

    def drop_whole(self, log: int, handle: int) -> None:
        """Throws an unfinished one away."""
        self._files.close(handle)
        self._drop_closed(log)

    def _drop_closed(self, log: int) -> None:
        self._files.unlink(os.path.join(self._directory, log_name(log) + UNFINISHED))
        self._ids.discard(log)
        self._making.discard(log)

    def finished(self) -> list[int]:
        """The ids, ascending, of logs that nothing writes to, and that no flush or compaction is still to name."""
        return sorted(set(self._ids) - self._fresh - self._making)

    def settle(self) -> None:
        """Notes that durable index rows name what was appended, or never will.  Between two flushes only."""
        self._fresh = {self._log} if self._log >= 0 else set()

    def settle_whole(self, log: int) -> None:
        """Settles a log that `begin_whole` gave."""
        self._making.discard(log)

    def remove(self, log: int) -> None:
        """Removes a finished log.  Reads in progress complete; later ones raise `FileNotFoundError`."""
        with self._reading:
            self._files.unlink(os.path.join(self._directory, log_name(log)))
            reader = self._readers.pop(log, None)
            if reader is not None and not reader.users:
                self._files.close(reader.handle)
            elif reader is not None:
                reader.gone = True
        self._ids.discard(log)

    # Reading

    def read(self, log: int, offset: int, count: int) -> bytes:
        """`count` bytes of a log, fewer when it ends before.  `FileNotFoundError` when there is no such log."""
        reader = self._borrow(log)
        try:
            return self._files.read(reader.handle, count, offset)
        finally:
            self._give_back(reader)

    def read_in_memory(self, log: int, offset: int, count: int) -> bytes | None:
        """Reads without waiting for the disk or another thread: None when that would be needed, or the log ends."""
        if not self._reading.acquire(blocking=False):
            return None
        try:
            reader = self._readers.get(log)
            if reader is None:
                return None
            self._readers.move_to_end(log)
            return self._files.pread_in_memory(reader.handle, count, offset)
        finally:
            self._reading.release()

    def size(self, log: int) -> int:
        """Bytes of a log's file.  `FileNotFoundError` when there is no such log."""
        reader = self._borrow(log)
        try:
            return self._files.size(reader.handle)
        finally:
            self._give_back(reader)

    def _borrow(self, log: int) -> Reader:
        with self._reading:
            reader = self._readers.get(log)
            if reader is None:
                reader = self._readers[log] = Reader(self._files.open(os.path.join(self._directory, log_name(log))))
                if len(self._readers) > self._open_max:
                    self._close_one()
            self._readers.move_to_end(log)
            reader.users += 1
        return reader

    def _give_back(self, reader: Reader) -> None:
        with self._reading:
            reader.users -= 1
            if reader.gone and not reader.users:
                self._files.close(reader.handle)

    def _close_one(self) -> None:
        """Closes the reader that was not used for the longest time, of those not in use."""
        for log, reader in self._readers.items():
            if not reader.users:
                self._files.close(reader.handle)
                del self._readers[log]
                return

    def ids(self) -> list[int]:
        """The ids of all logs that are there, ascending."""
        return sorted(self._ids)

    def close(self) -> None:
        self._trim_quietly()
        handles = (
            {reader.handle for reader in self._readers.values()}
            | set(self._unsynced.values())
            | ({self._handle} if self._handle >= 0 else set())
        )
        for handle in handles:
            self._files.close(handle)
        self._readers.clear()
        self._unsynced.clear()
        self._handle = -1
        self._log = -1
