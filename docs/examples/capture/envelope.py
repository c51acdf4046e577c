"""
A change of a row as bytes: the envelope of Debezium, without its schema, so that its consumers know it.

    key    {"id":7}
    value  {"op":"u","before":{"id":7,"note":"old"},"after":{"id":7,"note":"new"},
            "source":{"connector":"sqlite","db":"app","table":"items","capture":"9f0c…","snapshot":false,"sequence":41},
            "ts_ms":1764489600000}

Knows: which values of rows JSON has no form for.  Does not know: databases, logs.  The same change gives the same bytes
each time, so `ts_ms` is when the row changed.
"""

import json
import math
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

Row = dict[str, Any]
OPS = {"r": "read by the snapshot", "c": "created", "u": "updated", "d": "deleted", "t": "all rows deleted"}


class Change(NamedTuple):
    """A row that was read, created, updated or deleted; or a table all of whose rows were, which has no key."""

    sequence: int  # its number in its table's history, above that of the change before
    op: str  # of `OPS`
    ts_ms: int
    key: Row
    before: Row | None
    after: Row | None
    source: Row  # where it comes from: connector, table, capture (which one of this table), and what the database says


def row_bytes(row: Row) -> bytes:
    """A row as JSON."""
    return _dumps({name: _plain(value) for name, value in row.items()})


def row_of(text: bytes | str) -> Row:
    """The row that such JSON has."""
    return {name: _value(plain) for name, plain in json.loads(text).items()}


def key_bytes(change: Change) -> bytes:
    """The key of its record: the columns of the primary key, in their order."""
    return row_bytes(change.key)


def value_bytes(change: Change) -> bytes:
    """The value of its record."""
    source = {**change.source, "snapshot": change.op == "r", "sequence": change.sequence}
    rows = {"before": _told(change.before), "after": _told(change.after)}
    return _dumps({"op": change.op, **rows, "source": source, "ts_ms": change.ts_ms})


def change_of(key: bytes | None, value: bytes) -> Change:
    """The change that a record has; `ValueError` for a record that is none."""
    try:
        told = json.loads(value)
        source = dict(told["source"])
        sequence = source.pop("sequence")
        source.pop("snapshot")
        if not {"table", "capture"} <= source.keys():
            raise ValueError(source)
        rows = [_heard(each) for each in (json.loads(key or b"null"), told["before"], told["after"])]
        if told["op"] not in OPS or rows[0] is None or rows[{"t": 0, "d": 1}.get(told["op"], 2)] is None:
            raise ValueError(told["op"])
        return Change(sequence, told["op"], told["ts_ms"], rows[0], rows[1], rows[2], source)
    except (KeyError, TypeError, ValueError) as failure:
        raise ValueError(f"not a change of a row: {value[:80]!r}") from failure


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _told(row: Row | None) -> Row | None:
    return None if row is None else {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Bytes, and numbers that are none, as objects: no column has such."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _heard(row: Any) -> Row | None:
    return None if row is None else {name: _value(value) for name, value in dict(row).items()}


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        return b64decode(plain["base64"]) if "base64" in plain else float(plain["float"])
    return plain
