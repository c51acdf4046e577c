"""
The durable part of each ledger's state: Apache BookKeeper's `ledgers` table itself (storage-order.md 9.3), so that a
fence survives a move in either direction.

Key: the ledger id, i64 big-endian.  Value: the protobuf message LedgerData (proto2), unset optional fields left out:

    1 exists bool required | 2 fenced bool required | 3 masterKey bytes required | 4 explicitLac bytes | 5 limbo bool
    1000 dropped bool: ours alone, others pass it over

Rows with a negative key are Apache's storage flags; they are left alone.

Knows: the bytes of a row.  Does not know: which ledgers are in memory, when rows are written.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from quire.protocol import varint
from quire.rows.contract import BATCH_BYTES_MAX, OnRows, Row, Rows
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

KEY = struct.Struct(">q")
DROPPED = 1000
PAGE_ROWS = 512  # the interpreter is held for about 0.1 ms
SHARED_MAX = 1000
LOWEST, ABOVE = KEY.pack(0), b"\x80" + bytes(7)  # negative ids sort above all others


class LedgerRow(NamedTuple):
    """One ledger as it is on disk."""

    key: bytes
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool = False
    dropped: bool = False  # its entries went, and none came since: what entry logs still have of it is not needed

    def __repr__(self) -> str:
        """All but the key, which opens the ledger's fence to whoever knows it."""
        shown = f"fenced={self.fenced}, explicit_lac={self.explicit_lac!r}, limbo={self.limbo}, dropped={self.dropped}"
        return f"LedgerRow({shown})"


def encode(row: LedgerRow) -> bytes:
    parts = [b"\x08\x01\x10\x01\x1a" if row.fenced else b"\x08\x01\x10\x00\x1a", varint.encode(len(row.key)), row.key]
    if row.explicit_lac is not None:
        parts += [b"\x22", varint.encode(len(row.explicit_lac)), row.explicit_lac]
    if row.limbo:
        parts.append(b"\x28\x01")
    if row.dropped:
        parts.append(b"\xc0\x3e\x01")
    return b"".join(parts)


def decode(ledger: int, data: bytes) -> LedgerRow:
    """Raises `StorageError` when the bytes are not LedgerData."""
    fields: dict[int, int | bytes] = {}
    offset = 0
    try:
        while offset < len(data):
            tag, offset = varint.decode(data, offset)
            if tag & 7 == 0:
                fields[tag >> 3], offset = varint.decode(data, offset)
            elif tag & 7 == 2:
                size, offset = varint.decode(data, offset)
                if offset + size > len(data):
                    raise ValueError
                fields[tag >> 3] = data[offset : offset + size]
                offset += size
            else:
                raise ValueError
    except ValueError:
        raise StorageError(
            f"ledger table: the row of ledger {ledger} is cut off or damaged at byte {offset} of {len(data)}"
        ) from None
    key, explicit_lac = fields.get(3), fields.get(4)
    if not isinstance(key, bytes) or isinstance(explicit_lac, int):
        raise StorageError(f"ledger table: the row of ledger {ledger} has no master key")
    return LedgerRow(key, bool(fields.get(2)), explicit_lac, bool(fields.get(5)), bool(fields.get(DROPPED)))


class LedgerTable(OnRows):
    """The table of one ledger directory, on some `Rows`."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._shared: dict[bytes, LedgerRow] = {}  # most ledgers have one of few rows: it is decoded and kept once

    def get(self, ledger: int) -> LedgerRow | None:
        data = self._rows.get(KEY.pack(ledger))
        if data is None:
            return None
        row = self._shared.get(data)
        if row is None:
            row = decode(ledger, data)
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared[data] = row
        return row

    def write(self, changes: Mapping[int, LedgerRow | None]) -> None:
        """Stores rows (None: removes them), in batches; durable after `sync`."""
        puts: list[Row] = []
        deletes: list[bytes] = []
        size = 0
        for ledger, row in changes.items():
            if row is None:
                deletes.append(KEY.pack(ledger))
                size += 32
            else:
                data = encode(row)
                puts.append((KEY.pack(ledger), data))
                size += len(data) + 32
            if size >= BATCH_BYTES_MAX - 4096:
                self._rows.write(puts, deletes)
                puts, deletes, size = [], [], 0
        if puts or deletes:
            self._rows.write(puts, deletes)

    def ids(self) -> Iterator[int]:
        """All ledgers, ascending."""
        for some in self.pages():
            yield from some

    def sorted_ids(self, pause: Callable[[], None]) -> "array[int]":
        """The ledgers, ascending; `pause` is called between pages."""
        ledgers = array("q")
        for some in self.pages():
            ledgers += some
            pause()
        return ledgers

    def pages(self) -> "Iterator[array[int]]":
        """Yields all ledgers in arrays of some hundred: each sees the rows of its moment."""
        low = LOWEST
        while True:
            keys = [key for key, _value in self._rows.page(low, ABOVE, PAGE_ROWS)]
            whole = array("q", b"".join([key for key in keys if len(key) == KEY.size]))
            if sys.byteorder == "little":
                whole.byteswap()
            yield whole
            if len(keys) < PAGE_ROWS:
                return
            low = keys[-1] + b"\0"

    def rows(self) -> Iterator[tuple[int, LedgerRow]]:
        """All ledgers with their rows, ascending.  `StorageError` for a damaged one."""
        for key, value in self._rows.scan(LOWEST, ABOVE):
            if len(key) == KEY.size:
                ledger = KEY.unpack(key)[0]
                yield ledger, decode(ledger, value)
