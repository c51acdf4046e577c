"""
The columns of Arrow batches as lists that the client takes.

Knows: which columns a sink has, and that text is written as UTF-8.
Does not know: where rows go.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

VALUE = ("value", "payload")
LOG_COLUMNS = ("value", "payload", "key", "time", "headers", "index", "stamp")
LEDGER_COLUMNS = ("value", "payload", "ledger_id", "entry_id", "length")
ROWS_MAX = 10_000  # of one append


class Rows(NamedTuple):
    """Records of one append; None where there is no such column."""

    values: list[bytes]
    keys: list[bytes | None] | None
    times: list[int | None] | None
    headers: list[list[tuple[str, bytes]]] | None


def check(names: Sequence[str], allowed: Sequence[str]) -> None:
    """`ValueError` names the column that a sink can't write, or the one that it misses."""
    if sum(name in VALUE for name in names) != 1:
        raise ValueError(f"a row has one column `value` of bytes or text (or `payload`), not {', '.join(names)}")
    other = [name for name in names if name not in allowed]
    if other:
        raise ValueError(f"column {other[0]!r} can't be written: there are {', '.join(allowed)}; drop it, or rename it")


def rows(batch: Any) -> Iterator[Rows]:
    """Yields the rows of a RecordBatch, at most `ROWS_MAX` at a time.  `ValueError` names the row without a value."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        part = batch.slice(start, ROWS_MAX)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        value = columns["value" if "value" in columns else "payload"]
        if value.null_count:
            raise ValueError("a row has no value: filter it out, or give an empty one")
        yield Rows(
            [as_bytes(each) for each in value.to_pylist()],
            [None if each is None else as_bytes(each) for each in columns["key"].to_pylist()]
            if "key" in columns
            else None,
            milliseconds(columns["time"]) if "time" in columns else None,
            pairs_of(columns["headers"]) if "headers" in columns else None,
        )


def as_bytes(value: bytes | str) -> bytes:
    """Text as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def milliseconds(column: Any) -> list[int | None]:
    """A column of timestamps, since 1970.  `ValueError` for numbers: of what they are is not known."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        raise ValueError("column 'time' is of numbers: make it a timestamp, as by timestamp_millis(time)")
    numbers: list[int | None] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if each is None else each // 1000 for each in numbers]


def pairs_of(column: Any) -> list[list[tuple[str, bytes]]]:
    """A column of headers, structs or maps; null is empty.  `ValueError` for another type, or a missing key."""
    import pyarrow as pa

    kind = column.type
    structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    names = [field.name for field in kind.value_type] if structs else []
    if not pa.types.is_map(kind) and names != ["key", "value"]:
        raise ValueError(
            f"column 'headers' is {kind}: make it array(struct(… as key, … as value), …), or a map from text to bytes"
        )
    found = [
        [(each["key"], each["value"]) if structs else each for each in headers or ()] for headers in column.to_pylist()
    ]
    if any(key is None for headers in found for key, _value in headers):
        raise ValueError("a header has no key: filter it out, or give an empty one")
    return [[(key, as_bytes(value or b"")) for key, value in headers] for headers in found]
