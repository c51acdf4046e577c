"""
Ordered rows in RocksDB, through rocksdict: the only module that imports it.

RocksDB holds the interpreter lock in put, get, seek and open and gives it up in `flush_wal` and compaction.  So a write
is kept to `BATCH_BYTES_MAX`, never written with sync=True, and made durable by `flush_wal(True)`.  Nor does it wait in
RocksDB for tables that are being written: it would stop the whole process, and on a full disk for good, because the
next try of those tables waits for that write.  Tables have format version 5, which Java's RocksDB of BookKeeper opens
too.

Knows: how RocksDB says that a disk is full or dead, and how it is opened again afterwards.  Does not know: what keys
and values mean.
Safety: a sync that failed is never tried again, unless nothing had begun.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock, RLock
from typing import cast
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    CompactOptions,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from quire.rows import rocks_check
from quire.rows.contract import Row, Rows, StorePiece
from quire.rows.files import DESCRIPTORS, FULL, SHORT, Files, NotBegun, StorageError, is_dead

# SPDX-License-Identifier: Apache-2.0

REOPEN_BYTES = 16 << 20  # what RocksDB may write when it opens: both write buffers as tables
FULL_WORDS = {os.strerror(number): number for number in FULL}  # the words of its errors
SHORT_WORDS = {os.strerror(number): number for number in SHORT}
OPEN_WORDS = {os.strerror(number): number for number in DESCRIPTORS}
DAMAGED = "Corruption: "  # a block of a table differs from its sum
STALLED = "Write stall"  # both write buffers are full, or there are too many tables: the same write can be done later
STALL_LOOK_S = 0.001  # between two tries of a write that was stalled
STALL_S = 1.0  # a stall that lasts longer is a full disk if there is too little room
FILES_MAX = 256  # that it keeps open, unless fewer are given
PUT_BACK = "put it back from a copy"  # where the opener knows nothing better


def _at_once() -> WriteOptions:
    options = WriteOptions()
    options.no_slowdown = True
    return options


def _beside_others() -> CompactOptions:
    options = CompactOptions()
    options.set_exclusive_manual_compaction(False)
    return options


AT_ONCE = _at_once()  # fails with `STALLED` where RocksDB would wait
BESIDE_OTHERS = _beside_others()  # a compaction that keeps RocksDB's own ones from nothing


def rocks_error(text: str, words: Mapping[str, int], what_to_do: str) -> OSError:
    """RocksDB's error, with the number of one of the words that is in its text; of a damaged file with what to do."""
    if DAMAGED in text:
        text += f"; {what_to_do}"
    number = next((number for word, number in words.items() if word in text), None)
    return OSError(text) if number is None else NotBegun(number, text) if number in SHORT else OSError(number, text)


def again(stuck: OSError, text: str) -> OSError:
    """An error of the same kind."""
    return NotBegun(stuck.errno, text) if isinstance(stuck, NotBegun) else OSError(stuck.errno, text)


class Scan(Iterator[Row]):
    """Rows of RocksDB that are being read.  It keeps the store open until its last row was taken, or `end`."""

    def __init__(self, at: RdictIter, high: bytes, path: str, what_to_do: str) -> None:
        self._at: RdictIter | None = at
        self._high = high
        self._path = path
        self._what_to_do = what_to_do
        self._over = False

    def __next__(self) -> Row:
        # No local name for the iterator: the frame of a call that failed may be kept for long.
        if self._at is None:
            if self._over:
                raise StopIteration
            raise NotBegun(errno.EAGAIN, f"RocksDB {self._path} was closed in the midst of a scan")
        try:
            if self._at.valid():
                key = self._at.key()
                if key < self._high:
                    row = key, self._at.value()
                    self._at.next()
                    return row
            self._at.status()
        except Exception as error:
            self._at = None
            raise rocks_error(f"RocksDB {self._path}: {error}", SHORT_WORDS, self._what_to_do) from error
        self._at, self._over = None, True
        raise StopIteration

    def end(self) -> None:
        self._at = None


class RocksRows(Rows):
    """
    RocksDB in a directory, made if it is missing.

    A write for which the disk had no room is `OSError` with ENOSPC, one for which a file could not be opened
    `NotBegun`; they may be tried again.  RocksDB itself may refuse every write from then on, so the store is opened
    again before the next one, as soon as that can be done; what was written before is in its log.  `sync` knows these
    two only in that state, when nothing was begun.
    """

    def __init__(
        self,
        path: str,
        write_buffer_bytes: int = 8 << 20,
        cache_bytes: int = 8 << 20,
        *,
        files_max: int = FILES_MAX,
        read_only: bool = False,
        what_to_do: str = PUT_BACK,
    ) -> None:
        """
        `read_only`: it must be there, and is not changed.  `StorageError` names a damaged file, and `what_to_do` then;
        `OSError`.
        """
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_max_open_files(files_max)
        options.set_keep_log_file_num(2)
        options.set_stats_dump_period_sec(0)
        options.set_compression_type(DBCompressionType.lz4())
        table = BlockBasedOptions()
        table.set_format_version(5)
        table.set_block_cache(Cache(cache_bytes))
        table.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(table)
        self.path = path
        self._options = options
        self._read_only = read_only
        self._what_to_do = what_to_do
        self._scans: WeakSet[Scan] = WeakSet()
        self._scans_change = Lock()
        self._kept_open = RLock()  # held while it is compacted, or closed to be opened again
        self._stuck: OSError | None = None  # a write found no room, or no descriptor: RocksDB may refuse all others
        self._db = self._opened()

    def _opened(self) -> Rdict:
        try:
            if not self._read_only:
                rocks_check.cut_torn_end(self.path)
            rocks_check.check(self.path)
        except rocks_check.Torn:
            raise  # nothing is damaged
        except StorageError as error:
            raise StorageError(f"{error}; {self._what_to_do}") from error
        try:
            return (
                Rdict(self.path, self._options, access_type=AccessType.read_only(False))
                if self._read_only
                else Rdict(self.path, self._options)
            )
        except Exception as error:  # rocksdict raises bare Exception
            raise self._error(f"RocksDB {self.path} can't be opened: {error}", SHORT_WORDS) from error

    def _error(self, text: str, words: Mapping[str, int]) -> OSError:
        return rocks_error(text, words, self._what_to_do)

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        if self._stuck is not None:
            self._open_again()

        def write() -> None:
            batch = WriteBatch(raw_mode=True)
            for key in deletes:
                batch.delete(key)
            put = batch.put
            for key, value in puts:
                put(key, value)
            self._db.write(batch, AT_ONCE)

        self._go_on_until_written(write)

    def delete_range(self, low: bytes, high: bytes) -> None:
        if low >= high:
            return  # RocksDB would count an operation that it does not keep
        if self._stuck is not None:
            self._open_again()
        self._go_on_until_written(lambda: self._db.delete_range(low, high, AT_ONCE))

    def _go_on_until_written(self, write: Callable[[], None]) -> None:
        """Tries a write again while RocksDB says that it would have to wait.  Raises `OSError`."""
        stalled_at: float | None = None
        while True:
            try:
                return write()
            except Exception as error:
                now = time.monotonic()
                stalled_at = now if stalled_at is None else stalled_at
                full = now - stalled_at >= STALL_S and Files().usage(self.path).free < REOPEN_BYTES
                if full or STALLED not in str(error):
                    raise self._not_written(error, full) from error
            time.sleep(STALL_LOOK_S)

    def _not_written(self, error: Exception, full: bool = False) -> OSError:
        text = f"RocksDB {self.path}: {error}{f': {os.strerror(errno.ENOSPC)}' if full else ''}"
        raised = self._error(text, OPEN_WORDS | FULL_WORDS)
        if raised.errno is None and self._stuck is not None:
            raised = again(self._stuck, text)  # other writers get other texts from then on
        if raised.errno is not None:
            self._stuck = self._stuck or raised
        return raised

    def _open_again(self) -> None:
        """Opens it after a refused write.  Raises as that did: too little room, or a reader still holds the store."""
        with self._kept_open:
            stuck = self._stuck
            if stuck is None:
                return  # another thread did it
            if (free := Files().usage(self.path).free) < REOPEN_BYTES:
                raise OSError(
                    errno.ENOSPC,
                    f"RocksDB {self.path}: {free} bytes are free, {REOPEN_BYTES} are wanted after a write that failed",
                )
            with suppress(OSError):  # a store that is stuck says so once more
                self.close()
            try:
                self._db = self._opened()
            except OSError as error:
                if isinstance(error, NotBegun) or is_dead(error):
                    raise
                raise again(
                    stuck, f"after a write that was refused ({os.strerror(stuck.errno or 0)}): {error}"
                ) from error
            self._stuck = None

    def _not_read(self, error: Exception) -> OSError:
        raised = self._error(f"RocksDB {self.path}: {error}", SHORT_WORDS)
        # it may just be closed, to be opened again
        return raised if self._stuck is None or is_dead(raised) else again(self._stuck, str(raised))

    def get(self, key: bytes) -> bytes | None:
        try:
            value = self._db.get(key)
        except Exception as error:
            raise self._not_read(error) from error
        return value if value is None else bytes(value)

    def floor(self, key: bytes) -> Row | None:
        iterator = self._iterator()
        try:
            iterator.seek_for_prev(key)
            if iterator.valid():
                return iterator.key(), iterator.value()
            iterator.status()
        except Exception as error:
            raise self._not_read(error) from error
        finally:
            del iterator  # the error's traceback must not keep the store open
        return None

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        iterator = self._iterator()
        try:
            iterator.seek(low)
            scan = Scan(iterator, high, self.path, self._what_to_do)
        except Exception as error:
            raise self._not_read(error) from error
        finally:
            del iterator
        with self._scans_change:
            self._scans.add(scan)
        return scan

    def _iterator(self) -> RdictIter:
        try:
            return self._db.iter()
        except Exception as error:
            raise self._not_read(error) from error

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        rows: list[Row | None] = []
        found: Row | None = None
        above: bytes | None = None  # the key behind what was found; None: it is the last
        iterator = self._iterator()  # to make one takes as long as to move it
        try:
            for key in keys:
                if found is None or key < found[0] or (above is not None and key >= above):
                    iterator.seek_for_prev(key)
                    found, above = self._at(iterator), None
                    if found is not None:
                        iterator.next()
                        behind = self._at(iterator)
                        above = None if behind is None else behind[0]
                rows.append(found)
        except Exception as error:
            raise self._not_read(error) from error
        finally:
            del iterator
        return rows

    @staticmethod
    def _at(iterator: RdictIter) -> Row | None:
        """The row that an iterator is at."""
        if iterator.valid():
            return iterator.key(), iterator.value()
        iterator.status()
        return None

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        try:
            # all are bytes in raw mode
            rows: list[Row] = list(islice(cast(Iterator[Row], self._db.items(from_key=low)), most))
        except Exception as error:
            raise self._not_read(error) from error
        if len(rows) < most:  # the end, or an error, which these iterators don't raise
            rows += islice(self.scan(rows[-1][0] + b"\0" if rows else low, high), most - len(rows))
        while rows and rows[-1][0] >= high:
            rows.pop()
        return rows

    def sync(self) -> None:
        if self._stuck is not None:
            self._open_again()
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: sync failed: {error}") from error

    @property
    def sequence(self) -> int:
        if self._stuck is not None:
            self._open_again()  # it may be closed
        return int(self._db.latest_sequence_number())

    @property
    def is_stuck(self) -> bool:
        return self._stuck is not None

    @property
    def estimate(self) -> int:
        return 0 if self._stuck is not None else int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)

    def pieces(self) -> list[StorePiece]:
        try:
            files = self._db.live_files()
        except Exception as error:
            raise self._not_read(error) from error
        deepest = max((file["level"] for file in files), default=0)
        # A piece ends where a file of the deepest level does, so that it rewrites that one and none beside it.
        ends = sorted((file["end_key"], file["size"]) for file in files if file["level"] == deepest > 0)
        if not ends:
            return [StorePiece(None, None, sum(file["size"] for file in files))]
        highs = [*(end for end, _size in ends[:-1]), None]
        lows = [None, *(end + b"\0" for end, _size in ends[:-1])]
        return [StorePiece(*each) for each in zip(lows, highs, (size for _end, size in ends), strict=True)]

    def compact(self, piece: StorePiece) -> None:
        with self._kept_open:  # a close would wait for it with the interpreter's lock held, which it needs for its end
            if self._stuck is not None:
                raise again(self._stuck, f"RocksDB {self.path} takes no writes")
            try:
                self._db.compact_range(piece.low, piece.high, BESIDE_OTHERS)
            except Exception as error:
                raise self._not_written(error) from error

    def close(self) -> None:
        """
        Closes at once, or behind the piece that is compacted; scans that are left fail.  `OSError`: something could not
        be written, but it is closed.
        """
        with self._kept_open:
            with self._scans_change:
                for scan in self._scans:
                    scan.end()
            try:
                self._db.close()
            except Exception as error:
                raise OSError(f"RocksDB {self.path}: closed with an error: {error}") from error
