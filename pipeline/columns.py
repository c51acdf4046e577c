"""
Arrow batches, column by column: made with one buffer of data and one of offsets, and no object for each row; and taken
apart into lists that the client takes.

Knows: how Arrow keeps binary columns, which columns a sink has, and that text is written as UTF-8.
Does not know: where the values come from, where rows go.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

# SPDX-License-Identifier: Apache-2.0

STAMP = pa.timestamp("us", tz="UTC")
STAMP_MS_MIN, STAMP_MS_MAX = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999, as Spark's type
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

Column = Callable[[], Any]  # makes one column of a batch, when it is wanted


def binary(values: Sequence[bytes]) -> Any:
    """Makes a column of payloads: a copy of each, and nothing else."""
    offsets = array("i", accumulate(map(len, values), initial=0))
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def nullable_binary(values: Sequence[bytes | None]) -> Any:
    """Makes a column of keys."""
    return pa.array(values, pa.binary())


def integers(values: Iterable[int]) -> Any:
    """Makes a column of 64-bit integers."""
    numbers = array("q", values)
    return pa.Int64Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def constant(value: int, count: int) -> Any:
    """Makes a column with the same number in each row."""
    return integers(array("q", [value]) * count)


def stamps(milliseconds: Sequence[int | None]) -> Any:
    """Times in ms since 1970, or none; none also for one that Spark's type has not."""
    return pa.array(
        [each * 1000 if each is not None and STAMP_MS_MIN <= each <= STAMP_MS_MAX else None for each in milliseconds],
        STAMP,
    )


def headers(values: Iterable[Iterable[tuple[str, bytes]]]) -> Any:
    """Makes a column of records' headers: pairs in their order."""
    return pa.array([[{"key": key, "value": value} for key, value in each] for each in values], HEADERS)


def joined(batches: Sequence[Any]) -> Any:
    """Joins several batches."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def batch(names: Sequence[str], columns: dict[str, Column], types: dict[str, Any]) -> Any:
    """Makes a batch of the columns that are wanted, in that order."""
    schema = pa.schema([pa.field(name, types[name]) for name in names])
    return pa.RecordBatch.from_arrays([columns[name]() for name in names], schema=schema)


VALUE = ("value", "payload")
LOG_COLUMNS = (
    *("value", "payload", "key", "time", "headers", "index", "stamp"),
    *("topic", "partition", "offset", "timestamp", "timestampType"),
)
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
