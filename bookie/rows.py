"""
Ordered rows on disk: the contract that index and ledger table stand on, with two drivers.

`RocksRows` is RocksDB through rocksdict, the only importer of it.  `DictRows` is the slow twin: a dict in memory that loses what came after
the last sync when its disk crashes.

The contract: keys and values are bytes, ordered bytewise.  A `write` is atomic.  What was written before `sync` returned survives a crash;
of what came later any prefix of writes may survive.  All may be called from any thread.
Does not know: what keys and values mean.

RocksDB holds the interpreter lock in put, get, seek and open and gives it up in `flush_wal` and compaction.  So a write is kept to `BATCH_BYTES_MAX`,
never written with sync=True, and made durable by `flush_wal(True)`.  Tables have format version 5, which Java's RocksDB of BookKeeper opens too.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import cast

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

# SPDX-License-Identifier: Apache-2.0

BATCH_BYTES_MAX = 64 << 10
Row = tuple[bytes, bytes]


class Rows(ABC):
    @abstractmethod
    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        """Deletes first, then puts; all or nothing."""

    @abstractmethod
    def delete_range(self, low: bytes, high: bytes) -> None:
        """Removes every key in [low, high)."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def floor(self, key: bytes) -> Row | None:
        """The row with the greatest key that is not above `key`."""

    @abstractmethod
    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        """`floor` of each; ascending keys are found fastest."""

    @abstractmethod
    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        """The first rows of a scan, `most` at most."""

    @abstractmethod
    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        """The rows with keys in [low, high), ascending, as they were when the scan began."""

    @abstractmethod
    def sync(self) -> None:
        """All that was written is on stable storage afterwards.  Raises `OSError`; then nobody knows, and it may not be tried again."""

    @property
    @abstractmethod
    def sequence(self) -> int:
        """The number of the last write; it rises with each, and after a start it is that of the last write found."""

    @abstractmethod
    def close(self) -> None: ...


OpenRows = Callable[[str], Rows]


def open_read_only(path: str) -> Rows:
    """RocksDB in a directory, for looking only."""
    return RocksRows(path, read_only=True)


class RocksRows(Rows):
    """RocksDB in a directory, made if it is missing."""

    def __init__(self, path: str, write_buffer_bytes: int = 8 << 20, cache_bytes: int = 8 << 20, *, read_only: bool = False) -> None:
        """`read_only`: it must be there, and nothing of it is changed.  Raises `OSError`."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        options.set_stats_dump_period_sec(0)
        options.set_compression_type(DBCompressionType.lz4())
        table = BlockBasedOptions()
        table.set_format_version(5)
        table.set_block_cache(Cache(cache_bytes))
        table.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(table)
        self.path = path
        try:
            self._db = Rdict(path, options, access_type=AccessType.read_only(False)) if read_only else Rdict(path, options)
        except Exception as error:  # rocksdict raises bare Exception
            raise OSError(f"RocksDB {path} can't be opened: {error}") from error

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        put = batch.put
        for key, value in puts:
            put(key, value)
        try:
            self._db.write(batch)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error

    def delete_range(self, low: bytes, high: bytes) -> None:
        try:
            self._db.delete_range(low, high)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        try:
            found = self._db.get(key)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error
        return found if found is None else bytes(found)

    def floor(self, key: bytes) -> Row | None:
        try:
            at = self._db.iter()
            at.seek_for_prev(key)
            if at.valid():
                return at.key(), at.value()
            at.status()
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error
        return None

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        try:
            at = self._db.iter()
            at.seek(low)
            while at.valid():
                key = at.key()
                if key >= high:
                    return
                yield key, at.value()
                at.next()
            at.status()
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        found: list[Row | None] = []
        try:
            at = self._db.iter()  # to make one takes as long as to move it
            for key in keys:
                at.seek_for_prev(key)
                if at.valid():
                    found.append((at.key(), at.value()))
                else:
                    at.status()
                    found.append(None)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error
        return found

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        try:
            found: list[Row] = list(islice(cast(Iterator[Row], self._db.items(from_key=low)), most))  # all are bytes in raw mode
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: {error}") from error
        if len(found) < most:  # the end, or an error, which these iterators don't tell
            found += islice(self.scan(found[-1][0] + b"\0" if found else low, high), most - len(found))
        while found and found[-1][0] >= high:
            found.pop()
        return found

    def sync(self) -> None:
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise OSError(f"RocksDB {self.path}: sync failed: {error}") from error

    @property
    def sequence(self) -> int:
        return int(self._db.latest_sequence_number())

    def close(self) -> None:
        self._db.close()


class DictRows(Rows):
    """Rows in memory.  `crash` gives what a disk would have: all that was synced, and the first `kept` writes after that."""

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        self._rows = dict(rows or {})
        self._keys = sorted(self._rows)
        self._synced = dict(self._rows)
        self._since: list[Callable[[DictRows], None]] = []

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        puts, deletes = list(puts), list(deletes)
        self._since.append(lambda rows: rows.write(puts, deletes))
        for key in deletes:
            self._remove(key)
        for key, value in puts:
            if key not in self._rows:
                insort(self._keys, key)
            self._rows[key] = value

    def _remove(self, key: bytes) -> None:
        if self._rows.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._since.append(lambda rows: rows.delete_range(low, high))
        for key in self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]:
            self._remove(key)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def floor(self, key: bytes) -> Row | None:
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            at -= 1
        return (self._keys[at], self._rows[self._keys[at]]) if at >= 0 else None

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        return [self.floor(key) for key in keys]

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        return list(islice(self.scan(low, high), most))

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        keys = self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]
        return iter([(key, self._rows[key]) for key in keys])

    def sync(self) -> None:
        self._synced = dict(self._rows)
        self._since = []

    @property
    def sequence(self) -> int:
        """None is kept: a dict forgets nothing that was synced."""
        return 0

    def close(self) -> None:
        """Nothing to give back; the rows can still be read."""

    def crash(self, kept: int = 0) -> "DictRows":
        after = DictRows(self._synced)
        for change in self._since[:kept]:
            change(after)
        return DictRows(after.as_dict())

    @property
    def unsynced(self) -> int:
        """Writes since the last sync."""
        return len(self._since)

    def as_dict(self) -> dict[bytes, bytes]:
        return dict(self._rows)
