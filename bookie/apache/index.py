"""
Where an Apache bookie's entries lie, by its own indexes: RocksDB `locations` of its DbLedgerStorage, or one `.idx` file for each ledger of its
SortedLedgerStorage and InterleavedLedgerStorage (storage-order.md 9.4).

    location      i64: log id << 32 | offset of the entry's body in the log (its size field lies 4 bytes before)
    `locations`   key i64 ledger, i64 entry; value i64 location
    `.idx`        1024 bytes: "BKLE", i32 version, i32 key length, master key, i32 state (bit 0: fenced), version 1: i32 length and bytes of the explicit LAC;
                  then location of entry e at 1024 + 8 * e, 0 for none.  Its path: `<next lowest byte>/<lowest byte>/<ledger>.idx`, lower-case hex

A location has neither size nor checksum: both are taken from the entry log, where the record must bear the ledger and entry asked for.
Knows: these bytes.  Does not know: our own index.
Safety: what is indexed and can't be read there is an error, never absent.
"""

import itertools
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from crc32c import crc32c

from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.rows import BATCH_BYTES_MAX, Row, Rows
from quire.bookie.index.run_index import Run, encode_run
from quire.bookie.logs.entry_logs import IDS, SIZE, log_name

# SPDX-License-Identifier: Apache-2.0

ENTRY = struct.Struct(">qq")
LOCATION = struct.Struct(">q")
ENTRY_MAX = (1 << 63) - 1
RUN_ENTRIES_MAX = 256
REGION_BYTES_MAX = 1 << 20  # so much of a log is read for one run

IDX_SUFFIX = ".idx"
IDX_MAGIC = b"BKLE"
IDX_HEAD = struct.Struct(">4sii")
IDX_HEADER_BYTES = 1024
IDX_PAGE_BYTES = 8192
FENCED = 1
HEX = "0123456789abcdef"

ReadLog = Callable[[int, int, int], bytes]  # (log, offset, count)


def location(log: int, record: int) -> int:
    """Of the entry whose record (its size field) is at offset `record`."""
    return log << 32 | (record + SIZE.size)


class ApacheIndex(ABC):
    """The locations of one ledger directory, given out as runs of our own index."""

    def __init__(self, read_log: ReadLog) -> None:
        self._read_log = read_log

    @abstractmethod
    def locations(self, ledger: int, first: int, count: int) -> list[int]:
        """The locations of `first` and the entries behind it without a gap, at most `count`; empty when it has no `first`."""

    @abstractmethod
    def last(self, ledger: int) -> int:
        """The highest entry; -1 for none."""

    @abstractmethod
    def following(self, ledger: int, first: int) -> int | None:
        """The lowest entry that is not below `first`."""

    @abstractmethod
    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        """(first, count) of all entries, ascending."""

    @abstractmethod
    def store(self, rows: Iterable[tuple[int, int, Sequence[int]]]) -> int:
        """Adds (ledger, first entry, locations of it and those behind it), what was there replaced; returns how many.  Durable after `sync`."""

    @abstractmethod
    def delete(self, ledger: int) -> None:
        """Forgets a ledger."""

    @abstractmethod
    def sync(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def find(self, ledger: int, entry: int, count: int = 1) -> Run | None:
        """
        A run that begins with the entry, of at most `count`; None when it is not indexed.
        Raises `StorageError` when the log has something else there, `FileNotFoundError` when the log is gone.
        """
        places = self.locations(ledger, entry, min(count, RUN_ENTRIES_MAX))
        if not places or not places[0]:
            return None
        log, start = places[0] >> 32, (places[0] & 0xFFFFFFFF) - SIZE.size
        sizes = [after - before - SIZE.size for before, after in itertools.pairwise(places)]
        wanted = 0
        total = 0
        for size in sizes:  # as far as the records may lie one behind the other in this log
            if size < IDS.size or total + size + SIZE.size > REGION_BYTES_MAX:
                break
            total += size + SIZE.size
            wanted += 1
        data = self._read_log(log, start, total) if wanted else b""
        found: list[int] = []
        sums: list[int] = []
        at = 0
        for number in range(wanted):
            body = data[at + SIZE.size : at + SIZE.size + sizes[number]]
            if len(body) != sizes[number] or SIZE.unpack_from(data, at)[0] != sizes[number] or IDS.unpack_from(body) != (ledger, entry + number):
                break  # another ledger's record lies between
            found.append(sizes[number])
            sums.append(crc32c(body))
            at += SIZE.size + sizes[number]
        if not found:
            size, check = self._one(ledger, entry, log, start)
            found, sums = [size], [check]
        return Run(ledger, entry, encode_run(log, start, found, sums))

    def _one(self, ledger: int, entry: int, log: int, start: int) -> tuple[int, int]:
        """Size and sum of one entry from its record."""
        head = self._read_log(log, start, SIZE.size + IDS.size)
        size = SIZE.unpack_from(head)[0] if len(head) >= SIZE.size else -1
        if size >= IDS.size and len(head) == SIZE.size + IDS.size and IDS.unpack_from(head, SIZE.size) == (ledger, entry):
            body = self._read_log(log, start + SIZE.size, size)
            if len(body) == size:
                return size, crc32c(body)
        raise StorageError(f"{log_name(log)} at offset {start} has no whole record of entry {entry} of ledger {ledger}, which Apache's index says is there")

    def runs(self, ledger: int, first: int, last: int) -> Iterator[Run]:
        """The runs of what it has from `first` to `last`, ascending."""
        at = self.following(ledger, first)
        while at is not None and at <= last:
            run = self.find(ledger, at, min(RUN_ENTRIES_MAX, last - at + 1))
            if run is None:
                return
            yield run
            at = self.following(ledger, run.last + 1)


class Locations(ApacheIndex):
    """DbLedgerStorage's `locations`."""

    def __init__(self, rows: Rows, read_log: ReadLog) -> None:
        super().__init__(read_log)
        self._rows = rows

    def locations(self, ledger: int, first: int, count: int) -> list[int]:
        if count == 1:
            value = self._rows.get(ENTRY.pack(ledger, first))
            return [LOCATION.unpack(value)[0]] if value is not None else []
        found: list[int] = []
        for key, value in self._rows.scan(ENTRY.pack(ledger, first), ENTRY.pack(ledger, min(first + count, ENTRY_MAX))):
            if ENTRY.unpack(key)[1] != first + len(found):
                break
            found.append(LOCATION.unpack(value)[0])
        return found

    def last(self, ledger: int) -> int:
        row = self._rows.floor(ENTRY.pack(ledger, ENTRY_MAX))
        if row is None or len(row[0]) != ENTRY.size:
            return -1
        found, entry = ENTRY.unpack(row[0])
        return entry if found == ledger else -1

    def following(self, ledger: int, first: int) -> int | None:
        for key, _value in self._rows.scan(ENTRY.pack(ledger, first), ENTRY.pack(ledger + 1, 0)):
            return int(ENTRY.unpack(key)[1])
        return None

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        for key, _value in self._rows.scan(ENTRY.pack(ledger, 0), ENTRY.pack(ledger + 1, 0)):
            yield ENTRY.unpack(key)[1], 1

    def store(self, rows: Iterable[tuple[int, int, Sequence[int]]]) -> int:
        count = 0
        batch: list[Row] = []
        for ledger, first, places in rows:
            batch += [(ENTRY.pack(ledger, first + number), LOCATION.pack(place)) for number, place in enumerate(places)]
            count += len(places)
            if len(batch) * 40 > BATCH_BYTES_MAX:
                self._rows.write(batch)
                batch = []
        if batch:
            self._rows.write(batch)
        return count

    def delete(self, ledger: int) -> None:
        self._rows.delete_range(ENTRY.pack(ledger, 0), ENTRY.pack(ledger + 1, 0))

    def sync(self) -> None:
        self._rows.sync()

    def close(self) -> None:
        self._rows.close()


# --- .idx files


def idx_path(ledger: int) -> str:
    """Below the index directory's `current`."""
    return os.path.join(f"{ledger >> 8 & 0xFF:x}", f"{ledger & 0xFF:x}", f"{ledger:x}{IDX_SUFFIX}")


def idx_ledgers(files: Files, directory: str) -> Iterator[int]:
    """The ledgers that have an `.idx` file in `directory` (`<dir>/current`)."""
    for high in files.names(directory):
        if not _is_byte(high):
            continue
        for low in files.names(os.path.join(directory, high)):
            for name in files.names(os.path.join(directory, high, low)) if _is_byte(low) else ():
                stem = name.removesuffix(IDX_SUFFIX)
                if stem != name and stem and all(digit in HEX for digit in stem):
                    yield int(stem, 16)


def _is_byte(name: str) -> bool:
    return 1 <= len(name) <= 2 and all(digit in HEX for digit in name)


def encode_idx_header(row: LedgerRow) -> bytes:
    """Version 1; zeros up to 1024."""
    lac = row.explicit_lac or b""
    parts = (IDX_HEAD.pack(IDX_MAGIC, 1, len(row.key)), row.key, SIZE.pack(FENCED if row.fenced else 0), SIZE.pack(len(lac)), lac)
    return b"".join(parts).ljust(IDX_HEADER_BYTES, b"\0")


def decode_idx_header(path: str, data: bytes) -> LedgerRow:
    """Raises `StorageError` that names the file."""
    try:
        magic, version, length = IDX_HEAD.unpack_from(data)
        if magic != IDX_MAGIC or version not in (0, 1) or not 0 <= length <= IDX_HEADER_BYTES - IDX_HEAD.size - 2 * SIZE.size:
            raise ValueError
        at = IDX_HEAD.size
        key = data[at : at + length]
        at += length
        (state,) = SIZE.unpack_from(data, at)
        (size,) = SIZE.unpack_from(data, at + SIZE.size) if version else (0,)
        at += 2 * SIZE.size
        if len(key) < length or not 0 <= size <= len(data) - at:
            raise ValueError
    except (struct.error, ValueError):
        raise StorageError(f"{path}: its first {IDX_HEADER_BYTES} bytes are not the header of an index file") from None
    return LedgerRow(key, bool(state & FENCED), data[at : at + size] if size else None)


class Pages(ApacheIndex):
    """The `.idx` files of one index directory (`<dir>/current`)."""

    def __init__(self, files: Files, directory: str, read_log: ReadLog, row: Callable[[int], LedgerRow | None]) -> None:
        """`row`: key and fence of a ledger, for the header of a file that must be made."""
        super().__init__(read_log)
        self._files = files
        self._directory = directory
        self._row = row
        self._unsynced: set[str] = set()

    def _read(self, ledger: int, offset: int, count: int) -> bytes | None:
        """A part of the ledger's file; None when it has none."""
        try:
            handle = self._files.open(os.path.join(self._directory, idx_path(ledger)))
        except FileNotFoundError:
            return None
        try:
            return self._files.read(handle, count, offset)
        finally:
            self._files.close(handle)

    def header(self, ledger: int) -> LedgerRow:
        """Raises `StorageError` when the header is damaged."""
        return decode_idx_header(os.path.join(self._directory, idx_path(ledger)), self._read(ledger, 0, IDX_HEADER_BYTES) or b"")

    def _pages(self, ledger: int, first: int = 0) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(entry, locations from it on) of each page from that of `first` on; 0 is none."""
        per_page = IDX_PAGE_BYTES // LOCATION.size
        page = first // per_page
        while data := self._read(ledger, IDX_HEADER_BYTES + page * IDX_PAGE_BYTES, IDX_PAGE_BYTES):
            count = len(data) // LOCATION.size
            yield page * per_page, struct.unpack_from(f">{count}q", data)
            page += 1

    def locations(self, ledger: int, first: int, count: int) -> list[int]:
        data = self._read(ledger, IDX_HEADER_BYTES + first * LOCATION.size, count * LOCATION.size) or b""
        found: list[int] = []
        for (place,) in LOCATION.iter_unpack(data[: len(data) // LOCATION.size * LOCATION.size]):
            if not place:
                break
            found.append(place)
        return found

    def last(self, ledger: int) -> int:
        path = os.path.join(self._directory, idx_path(ledger))
        try:
            handle = self._files.open(path)
        except FileNotFoundError:
            return -1
        try:
            entries = (self._files.size(handle) - IDX_HEADER_BYTES) // LOCATION.size
            while entries > 0:  # whole pages are written: back to the last that is not zero
                start = max(0, entries - IDX_PAGE_BYTES // LOCATION.size)
                data = self._files.read(handle, (entries - start) * LOCATION.size, IDX_HEADER_BYTES + start * LOCATION.size)
                kept = len(data.rstrip(b"\0"))
                if kept:
                    return start + (kept - 1) // LOCATION.size
                entries = start
            return -1
        finally:
            self._files.close(handle)

    def following(self, ledger: int, first: int) -> int | None:
        for start, places in self._pages(ledger, first):
            for entry in range(max(first, start), start + len(places)):
                if places[entry - start]:
                    return entry
        return None

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        for start, places in self._pages(ledger):
            yield from ((entry, 1) for entry, place in enumerate(places, start) if place)

    def store(self, rows: Iterable[tuple[int, int, Sequence[int]]]) -> int:
        count = 0
        for ledger, first, places in rows:
            path = self._made(ledger)
            handle = self._files.open(path)
            try:
                end = first + len(places)
                self._files.write(handle, [struct.pack(f">{len(places)}q", *places)], IDX_HEADER_BYTES + first * LOCATION.size)
                size = self._files.size(handle)
                whole = IDX_HEADER_BYTES + -(-end * LOCATION.size // IDX_PAGE_BYTES) * IDX_PAGE_BYTES
                if size < whole:
                    self._files.write(handle, [bytes(whole - size)], size)
            finally:
                self._files.close(handle)
            count += len(places)
        return count

    def store_header(self, ledger: int) -> None:
        """Writes key, fence and explicit LAC as the row has them."""
        row = self._row(ledger)
        if row is None:
            return
        path = self._made(ledger)
        handle = self._files.open(path)
        try:
            if self._files.read(handle, IDX_HEADER_BYTES, 0) != (header := encode_idx_header(row)):
                self._files.write(handle, [header], 0)
        finally:
            self._files.close(handle)

    def _made(self, ledger: int) -> str:
        """The path of the ledger's file, which is there afterwards; it is synced at the next `sync`."""
        path = os.path.join(self._directory, idx_path(ledger))
        self._unsynced.add(path)
        if not self._files.exists(path):
            self._files.make_directories(os.path.dirname(path))
            handle = self._files.open(path, create=True)
            try:
                self._files.write(handle, [encode_idx_header(self._row(ledger) or LedgerRow(b""))], 0)
            finally:
                self._files.close(handle)
        return path

    def delete(self, ledger: int) -> None:
        self._files.unlink(os.path.join(self._directory, idx_path(ledger)))

    def sync(self) -> None:
        for path in self._unsynced:
            handle = self._files.open(path)
            try:
                self._files.sync(handle)
            finally:
                self._files.close(handle)
            self._files.sync_directory(os.path.dirname(path))
        self._unsynced.clear()

    def close(self) -> None:
        """Files are open only while they are read."""
