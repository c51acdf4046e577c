"""
Where an Apache bookie's entries are, by its own indexes: the contract, and RocksDB `locations` of its DbLedgerStorage
(storage-order.md 9.4).

    location      i64: log id << 32 | offset of the entry's body in the log (its size field is the 4 bytes before it)
    `locations`   key i64 ledger, i64 entry; value i64 location

A location has neither size nor checksum: both are taken from the entry log, where the record must bear the ledger and
entry asked for.
Knows: these bytes.  Does not know: our own index.
Safety: what is indexed and can't be read there is an error, never absent.
"""

import itertools
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from crc32c import crc32c

from quire.bookie.index.run import ENTRY_MAX, RUN_BYTES_MAX, RUN_ENTRIES_MAX, Run, encode_run
from quire.bookie.logs.format import IDS, SIZE, ReadLog, log_name
from quire.rows.contract import BATCH_BYTES_MAX, Row, Rows
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

ENTRY = struct.Struct(">qq")
LOCATION = struct.Struct(">q")


def location(log: int, record: int) -> int:
    """The location of the entry whose record (its size field) is at offset `record`."""
    return log << 32 | (record + SIZE.size)


def record_at(place: int, ledger: int, entry: int) -> tuple[int, int]:
    """Log and offset of the record that an entry's location names; `StorageError` when no record can be there."""
    log, record = place >> 32, (place & 0xFFFFFFFF) - SIZE.size
    if log < 0 or record < 0:
        raise StorageError(f"Apache's index says that entry {entry} of ledger {ledger} is at {place:#x}: nothing is")
    return log, record


class ApacheIndex(ABC):
    """The locations of one ledger directory, given out as runs of our own index."""

    def __init__(self, read_log: ReadLog) -> None:
        self._read_log = read_log

    @abstractmethod
    def locations(self, ledger: int, first: int, count: int) -> list[int]:
        """The locations of `first` and those behind it without a gap, at most `count`; empty without `first`."""

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
        """Adds (ledger, first entry, locations from it on), in place of others: how many.  Durable after `sync`."""

    @abstractmethod
    def delete(self, ledger: int) -> None:
        """Forgets a ledger."""

    @abstractmethod
    def sync(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def find(self, ledger: int, entry: int, count: int = 1) -> Run | None:
        """A run that begins with the entry, or None.  `StorageError`: its log differs; `FileNotFoundError`: is gone."""
        places = self.locations(ledger, entry, min(count, RUN_ENTRIES_MAX))
        if not places or not places[0]:
            return None
        log, start = record_at(places[0], ledger, entry)
        sizes = [after - before - SIZE.size for before, after in itertools.pairwise(places)]
        wanted = 0
        total = 0
        for size in sizes:  # as far as the records may follow each other in this log
            if size < IDS.size or total + size + SIZE.size > RUN_BYTES_MAX:
                break
            total += size + SIZE.size
            wanted += 1
        data = self._read_log(log, start, total) if wanted else b""
        found: list[int] = []
        sums: list[int] = []
        at = 0
        for number in range(wanted):
            body = data[at + SIZE.size : at + SIZE.size + sizes[number]]
            if (
                len(body) != sizes[number]
                or SIZE.unpack_from(data, at)[0] != sizes[number]
                or IDS.unpack_from(body) != (ledger, entry + number)
            ):
                break  # another ledger's record is between them
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
        if (
            size >= IDS.size
            and len(head) == SIZE.size + IDS.size
            and IDS.unpack_from(head, SIZE.size) == (ledger, entry)
        ):
            body = self._read_log(log, start + SIZE.size, size)
            if len(body) == size:
                return size, crc32c(body)
        raise StorageError(
            f"{log_name(log)} at offset {start} has no whole record of entry {entry} of ledger {ledger}, which "
            "Apache's index says is there"
        )

    def runs(self, ledger: int, first: int, last: int) -> Iterator[Run]:
        """The runs of what it has from `first` to `last`, ascending."""
        at = self.following(ledger, first)
        while at is not None and at <= last:
            run = self.find(ledger, at, min(RUN_ENTRIES_MAX, last - at + 1))
            if run is None:
                return
            yield run
            at = self.following(ledger, run.last + 1)


def _unpack(form: struct.Struct, data: bytes) -> int:
    """The last number of a key or value; `StorageError` when it has another size."""
    if len(data) != form.size:
        raise StorageError(f"Apache's index has a row with {data.hex()[:80]}: {len(data)} bytes, not {form.size}")
    return int(form.unpack(data)[-1])


class Locations(ApacheIndex):
    """DbLedgerStorage's `locations`."""

    def __init__(self, rows: Rows, read_log: ReadLog) -> None:
        super().__init__(read_log)
        self._rows = rows

    def locations(self, ledger: int, first: int, count: int) -> list[int]:
        if count == 1:
            value = self._rows.get(ENTRY.pack(ledger, first))
            return [_unpack(LOCATION, value)] if value is not None else []
        found: list[int] = []
        for key, value in self._rows.scan(ENTRY.pack(ledger, first), ENTRY.pack(ledger, min(first + count, ENTRY_MAX))):
            if _unpack(ENTRY, key) != first + len(found):
                break
            found.append(_unpack(LOCATION, value))
        return found

    def last(self, ledger: int) -> int:
        row = self._rows.floor(ENTRY.pack(ledger, ENTRY_MAX))
        if row is None or len(row[0]) != ENTRY.size:
            return -1
        found, entry = ENTRY.unpack(row[0])
        return entry if found == ledger else -1

    def following(self, ledger: int, first: int) -> int | None:
        for key, _value in self._rows.scan(ENTRY.pack(ledger, first), ENTRY.pack(ledger + 1, 0)):
            return _unpack(ENTRY, key)
        return None

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        for key, _value in self._rows.scan(ENTRY.pack(ledger, 0), ENTRY.pack(ledger + 1, 0)):
            yield _unpack(ENTRY, key), 1

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
