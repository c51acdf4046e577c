"""
The index of Apache's SortedLedgerStorage and InterleavedLedgerStorage: one `.idx` file for each ledger
(storage-order.md 9.4).

    0       4   "BKLE"
    4       4   version, 0 or 1
    8       4   length of the master key, then the key
    …       4   state (bit 0: fenced)
    …       4   version 1: length of the explicit LAC, then the LAC; zeros up to 1024
    1024    …   location (`index`) of entry e at 1024 + 8 * e, 0 for none; in pages of 8192 bytes

Its path below `current/`: `<next lowest byte>/<lowest byte>/<ledger>.idx`, lower-case hex.

Knows: these bytes.  Does not know: our own index.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from quire.bookie.apache.index import LOCATION, ApacheIndex
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.logs.format import SIZE, ReadLog
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

IDX_SUFFIX = ".idx"
IDX_MAGIC = b"BKLE"
IDX_HEAD = struct.Struct(">4sii")
IDX_HEADER_BYTES = 1024
IDX_PAGE_BYTES = 8192
FENCED = 1
HEX = "0123456789abcdef"


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
    parts = (
        IDX_HEAD.pack(IDX_MAGIC, 1, len(row.key)),
        row.key,
        SIZE.pack(FENCED if row.fenced else 0),
        SIZE.pack(len(lac)),
        lac,
    )
    return b"".join(parts).ljust(IDX_HEADER_BYTES, b"\0")


def decode_idx_header(path: str, data: bytes) -> LedgerRow:
    """Raises `StorageError` that names the file."""
    try:
        magic, version, length = IDX_HEAD.unpack_from(data)
        if (
            magic != IDX_MAGIC
            or version not in (0, 1)
            or not 0 <= length <= IDX_HEADER_BYTES - IDX_HEAD.size - 2 * SIZE.size
        ):
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
        with self._files.closing(handle):
            return self._files.read(handle, count, offset)

    def header(self, ledger: int) -> LedgerRow:
        """Raises `StorageError` when the header is damaged."""
        return decode_idx_header(
            os.path.join(self._directory, idx_path(ledger)), self._read(ledger, 0, IDX_HEADER_BYTES) or b""
        )

    def cut_off(self) -> Iterator[int]:
        """The ledgers whose files end neither with a page nor with the header.  Raises `OSError`."""
        for ledger in idx_ledgers(self._files, self._directory):
            with self._files.closing(self._files.open(os.path.join(self._directory, idx_path(ledger)))) as handle:
                size = self._files.size(handle)
            if (size - IDX_HEADER_BYTES) % IDX_PAGE_BYTES:
                yield ledger

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
        with self._files.closing(handle):
            entries = (self._files.size(handle) - IDX_HEADER_BYTES) // LOCATION.size
            while entries > 0:  # whole pages are written: back to the last that is not zero
                start = max(0, entries - IDX_PAGE_BYTES // LOCATION.size)
                data = self._files.read(
                    handle, (entries - start) * LOCATION.size, IDX_HEADER_BYTES + start * LOCATION.size
                )
                kept = len(data.rstrip(b"\0"))
                if kept:
                    return start + (kept - 1) // LOCATION.size
                entries = start
            return -1

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
            with self._files.closing(self._files.open(path)) as handle:
                end = first + len(places)
                self._files.write(
                    handle, [struct.pack(f">{len(places)}q", *places)], IDX_HEADER_BYTES + first * LOCATION.size
                )
                size = self._files.size(handle)
                whole = IDX_HEADER_BYTES + -(-end * LOCATION.size // IDX_PAGE_BYTES) * IDX_PAGE_BYTES
                if size < whole:
                    self._files.write(handle, [bytes(whole - size)], size)
            count += len(places)
        return count

    def store_header(self, ledger: int) -> None:
        """Writes key, fence and explicit LAC as the row has them."""
        row = self._row(ledger)
        if row is None:
            return
        path = self._made(ledger)
        with self._files.closing(self._files.open(path)) as handle:
            if self._files.read(handle, IDX_HEADER_BYTES, 0) != (header := encode_idx_header(row)):
                self._files.write(handle, [header], 0)

    def _made(self, ledger: int) -> str:
        """The path of the ledger's file, which is there afterwards; it is synced at the next `sync`."""
        path = os.path.join(self._directory, idx_path(ledger))
        self._unsynced.add(path)
        if not self._files.exists(path):
            self._files.make_directories(os.path.dirname(path))
            with self._files.closing(self._files.open(path, create=True)) as handle:
                self._files.write(handle, [encode_idx_header(self._row(ledger) or LedgerRow(b""))], 0)
        return path

    def delete(self, ledger: int) -> None:
        self._files.unlink(os.path.join(self._directory, idx_path(ledger)))

    def sync(self) -> None:
        for path in self._unsynced:
            with self._files.closing(self._files.open(path)) as handle:
                self._files.sync(handle)
            self._files.sync_directory(os.path.dirname(path))
        self._unsynced.clear()

    def close(self) -> None:
        """Files are open only while they are read."""
