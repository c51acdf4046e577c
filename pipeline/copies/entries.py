"""
Entries in Parquet files: whole, so that each can be checked by its digest and put back bit for bit.

Knows: the columns (docs/formats.md), and that an entry's head is its ids, the last add confirmed
and the ledger's length, then the digest.
Does not know: where files lie, what is written down of them.

A row group is a few MiB, and the unit of reading.
"""

import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from pyarrow import parquet

from quire.pipeline import columns
from quire.pipeline.copies.manifest import CopyDamaged
from quire.pipeline.copies.places import Coming
from quire.protocol.digest import HEADER, LAC_OFFSET

# SPDX-License-Identifier: Apache-2.0

SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in ("ledger_id", "entry_id", "lac", "length")),
        *(pa.field(name, pa.binary(), nullable=False) for name in ("digest", "payload")),
    ]
)
NUMBERS = ("ledger_id", "entry_id", "lac", "length")
GROUP_BYTES = 8 << 20
GROUP_ROWS_MAX = 1 << 20  # of 8 MiB and what came last with them; an entry has a head of 32 bytes at least
LEVEL = -5  # of zstd: a higher one costs a third of the speed of copying; sums are of whole files
GROUPS_KEPT = 2
UNREADABLE = pa.ArrowException, OSError, ValueError  # what PyArrow raises for a damaged file; names may be no UTF-8


class EntryWriter:
    """Entries of one ledger, in order; `overhead`: bytes of an entry before its payload."""

    def __init__(self, coming: Coming, ledger: int, overhead: int) -> None:
        self._ledger = ledger
        self._overhead = overhead
        self._writer = parquet.ParquetWriter(
            pa.PythonFile(coming, mode="w"),
            SCHEMA,
            compression="zstd",
            compression_level=LEVEL,
            use_dictionary=False,
            write_statistics=["ledger_id", "entry_id"],
            column_encoding=dict.fromkeys(NUMBERS, "DELTA_BINARY_PACKED"),
        )
        self.bytes = 0  # of payloads
        self.sum = 0  # CRC32C of them

    def add(self, first: int, bodies: Sequence[bytes]) -> None:
        """One row group."""
        start = self._overhead
        payloads = columns.binary([body[start:] for body in bodies])
        data = payloads.buffers()[2]
        self.sum = crc32c(data, self.sum)
        self.bytes += data.size
        numbers = array("q", b"".join([body[LAC_OFFSET : HEADER.size] for body in bodies]))
        if sys.byteorder == "little":
            numbers.byteswap()
        made = [
            columns.repeated([(self._ledger, len(bodies))]),
            columns.integers(range(first, first + len(bodies))),
            columns.integers(numbers[0::2]),
            columns.integers(numbers[1::2]),
            columns.binary([body[HEADER.size : start] for body in bodies]),
            payloads,
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(made, schema=SCHEMA), row_group_size=len(bodies))

    def end(self) -> None:
        """The foot of the file."""
        self._writer.close()


class EntryFile:
    """
    A file of entries from `first` on, opened for reading; from several threads at once.  Its foot is believed in how
    many rows a group has, up to what a group can have, for PyArrow takes memory for as many; it ends the process when
    it is asked for a column there that is not what it should be.
    """

    def __init__(self, name: str, file: Any, first: int) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._kept: dict[int, list[bytes]] = {}  # row groups, the one used last at the end
        try:
            self._parquet = parquet.ParquetFile(file)
            is_ours = self._parquet.schema_arrow.equals(SCHEMA)
            groups = range(self._parquet.num_row_groups)
            counts = [self._parquet.metadata.row_group(group).num_rows for group in groups]
        except UNREADABLE as error:
            raise CopyDamaged(f"{name} can't be read as a Parquet file: {error}") from None
        if not is_ours or not all(1 <= count <= GROUP_ROWS_MAX for count in counts):
            raise CopyDamaged(f"{name} is no file of entries")
        self._firsts = list(accumulate(counts[:-1], initial=first)) if counts else []

    def bodies(self, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Whole entries from one on, at least that one, of one row group.  `CopyDamaged`, `OSError`."""
        group = bisect_right(self._firsts, first) - 1
        found = [] if group < 0 else self._group(group)
        start = first - self._firsts[group] if found else 0
        if not 0 <= start < len(found):
            raise CopyDamaged(f"{self._name} has no entry {first}")
        end, size = start, 0
        while end < min(len(found), start + count_max) and (end == start or size + len(found[end]) <= bytes_max):
            size += len(found[end])
            end += 1
        return found[start:end]

    def groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """(first entry, whole entries) of each row group."""
        for group, first in enumerate(self._firsts):
            yield first, self._read(group)

    def _group(self, group: int) -> list[bytes]:
        with self._lock:
            found = self._kept.pop(group, None)
            if found is None:
                found = self._read(group)
            self._kept[group] = found
            if len(self._kept) > GROUPS_KEPT:
                del self._kept[next(iter(self._kept))]
            return found

    def _read(self, group: int) -> list[bytes]:
        try:
            table = self._parquet.read_row_group(group, columns=SCHEMA.names, use_threads=False)
            ledgers, entries, lacs, lengths, digests, payloads = (column.to_pylist() for column in table.columns)
        except UNREADABLE as error:
            raise CopyDamaged(f"{self._name} can't be read: {error}") from None
        pack = HEADER.pack
        return [
            pack(ledger, entry, lac, length) + digest + payload
            for ledger, entry, lac, length, digest, payload in zip(
                ledgers, entries, lacs, lengths, digests, payloads, strict=True
            )
        ]
