"""
What PostgreSQL's plugin `pgoutput` says of transactions (its protocol, version 1): bytes to rows.

    B, C      a transaction begins, ends: the end of its commit, its time, its number
    R         a table: the names and types of the columns of its rows that follow
    I, U, D   a row was inserted, updated, deleted: its old values, its new ones
    T         tables were emptied
    M         a message: of ours, a row that the snapshot found

Knows: this format, and what texts of PostgreSQL's types mean.  Does not know: connections, sequences, keys.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from envelope import Row

# SPDX-License-Identifier: Apache-2.0

EPOCH_MS = 946_684_800_000  # 2000-01-01, where PostgreSQL's time begins
KEPT = object()  # a large value that an update did not change, and that is not sent again
VALUES: dict[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    17: lambda text: bytes.fromhex(text[2:]),
    **dict.fromkeys((20, 21, 23, 26), int),
    **dict.fromkeys((700, 701), float),
}  # by the number of a type; all others are text, as PostgreSQL writes them

Columns = list[tuple[str, int]]


class Transaction(NamedTuple):
    """A committed transaction: (op, before, after) of each row, in order."""

    end: int  # the LSN behind its commit
    ts_ms: int
    xid: int
    rows: list[tuple[str, Row | None, Row | None]]


def value_of(type_number: int, text: str | None) -> Any:
    """The value of a text of PostgreSQL."""
    return None if text is None else VALUES.get(type_number, str)(text)


def transactions(messages: Iterable[bytes], table: int, prefix: str) -> Iterator[Transaction]:
    """What happened to the table of that number; messages with that prefix are rows of its snapshot."""
    columns: Columns = []
    rows: list[tuple[str, Row | None, Row | None]] = []
    xid = 0
    for message in messages:
        kind, ours = message[:1], message[1:5] == struct.pack(">I", table)
        if kind == b"B":
            rows, xid = [], struct.unpack_from(">I", message, 17)[0]
        elif kind == b"C":
            _commit, end, time_us = struct.unpack_from(">QQq", message, 2)
            yield Transaction(end, EPOCH_MS + time_us // 1000, xid, rows)
        elif kind == b"R" and ours:
            columns = _columns(message)
        elif kind in (b"I", b"U", b"D") and ours:
            rows.append(_row(kind, message, columns))
        elif kind == b"T" and table in struct.unpack_from(f">{struct.unpack_from('>I', message, 1)[0]}I", message, 6):
            rows.append(("t", None, None))
        elif kind == b"M":
            name, at = _text(message, 10)
            if name == prefix:
                read = json.loads(message[at + 4 :])
                rows.append(("r", None, {column: value_of(number, text) for column, number, text in read}))


def _text(message: bytes, at: int) -> tuple[str, int]:
    """Text up to its zero byte, and the place behind that."""
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def _columns(message: bytes) -> Columns:
    _schema, at = _text(message, 5)
    _name, at = _text(message, at)
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    found = []
    for _column in range(count):
        name, at = _text(message, at + 1)
        found.append((name, struct.unpack_from(">I", message, at)[0]))
        at += 8
    return found


def _row(kind: bytes, message: bytes, columns: Columns) -> tuple[str, Row | None, Row | None]:
    found: dict[str, Row] = {}
    at = 5
    while at < len(message):
        which = message[at : at + 1].decode()
        if which == "K":
            raise ValueError("a change has only the key of the row before it: the replica identity has to be FULL")
        found[which], at = _values(message, at + 1, columns)
    before, after = found.get("O"), found.get("N")
    if kind == b"U" and before is None:
        raise ValueError("an update has nothing of the row before it: the replica identity has to be FULL")
    if before and after:
        after = {name: before[name] if value is KEPT else value for name, value in after.items()}
    return {b"I": "c", b"U": "u", b"D": "d"}[kind], before, after


def _values(message: bytes, at: int, columns: Columns) -> tuple[Row, int]:
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    row: Row = {}
    for name, number in columns[:count]:
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            (length,) = struct.unpack_from(">I", message, at)
            row[name] = value_of(number, message[at + 4 : at + 4 + length].decode())
            at += 4 + length
        else:
            row[name] = KEPT if kind == b"u" else None
    return row, at
