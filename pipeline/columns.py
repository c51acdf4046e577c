"""
Arrow batches, column by column: made with one buffer of data and one of offsets, and no object for each row; and taken
apart into lists that the client takes.

Knows: how Arrow keeps binary columns, which columns a sink has, and that text is written as UTF-8.
Does not know: where the values come from, where rows go.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quire.log.api import Packed, unpack_headers

# SPDX-License-Identifier: Apache-2.0

STAMP = pa.timestamp("us", tz="UTC")
NO_TIME = -(1 << 63)
STAMP_MS_MIN, STAMP_MS_MAX = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999, as Spark's type
PAIR = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.struct(PAIR))

# As Arrow has them: of a number it looks for pandas each time.
ZERO, NONE = (pa.scalar(each, pa.uint32()) for each in (0, Packed.NONE))
FIRST_MS, LAST_MS, NO_MS, THOUSAND = (pa.scalar(each, pa.int64()) for each in (STAMP_MS_MIN, STAMP_MS_MAX, None, 1000))

Column = Callable[[], Any]  # makes one column of a batch, when it is wanted


def binary(values: Sequence[bytes]) -> Any:
    """Makes a column of payloads: a copy of each, and nothing else."""
    return of_sizes(array("I", map(len, values)), b"".join(values))


def of_numbers(kind: Any, found: "array[int]") -> Any:
    """Makes a column of a type whose values are numbers, of these as they lie there."""
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


def of_sizes(lengths: "array[int]", data: bytes | memoryview, missing: int = 0) -> Any:
    """Makes a column of bytes that lie one behind the other; `missing`: so many have the length `Packed.NONE`."""
    there = None
    if missing:
        sizes = of_numbers(pa.uint32(), lengths)
        known = pc.not_equal(sizes, NONE)
        lengths, there = of_buffer("I", pc.if_else(known, sizes, ZERO)), known.buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [there, offsets(lengths), pa.py_buffer(data)])


def offsets(sizes: "array[int]") -> Any:
    """Makes the buffer of where each begins that has one of these sizes, and the end of the last."""
    return pc.cumulative_sum(of_numbers(pa.uint32(), array("I", [0]) + sizes)).buffers()[1]


def packed(pieces: Iterable[tuple[Packed[Any] | None, int]]) -> Any:
    """Makes a column of bytes of pieces as they lie in batches; None: so many rows that have none."""
    lengths, parts, missing = array("I"), list[memoryview](), 0
    for found, count in pieces:
        lengths.extend(array("I", [Packed.NONE]) * count if found is None else found.lengths)
        missing += count if found is None else found.missing
        if found is not None:
            parts.append(found.data)
    if missing == len(lengths):
        return pa.nulls(missing, pa.binary())
    return of_sizes(lengths, parts[0] if len(parts) == 1 else b"".join(parts), missing)


def integers(values: Iterable[int]) -> Any:
    """Makes a column of 64-bit integers; an array of them is taken as it is."""
    return of_numbers(pa.int64(), values if isinstance(values, array) else array("q", values))


def repeated(pieces: Iterable[tuple[int, int]]) -> Any:
    """Makes a column of numbers, each of them in so many rows."""
    return integers(_repeated(pieces))


def _repeated(pieces: Iterable[tuple[int, int]]) -> "array[int]":
    found = array("q")
    for value, count in pieces:
        found.extend(array("q", [value]) * count)
    return found


def runs(pieces: Iterable[tuple[int, int]]) -> Any:
    """Makes a column of consecutive numbers, so many from each of these on."""
    steps, at = array("q"), 0
    for first, count in pieces:
        if count:
            steps.append(first - at)
            steps.extend(array("q", [1]) * (count - 1))
            at = first + count - 1
    return pc.cumulative_sum(integers(steps))


def sums(pieces: Iterable[tuple[int, Iterable[int]]]) -> Any:
    """Makes a column of what was added up to each row, its own number included, from each of these numbers on."""
    steps, at = array("q"), 0
    for start, values in pieces:
        some = array("q", values)
        end = start + sum(some)
        if some:
            some[0] += start - at
            steps.extend(some)
            at = end
    return pc.cumulative_sum(integers(steps))


def stamps(milliseconds: Iterable[int | None]) -> Any:
    """Makes a column of times in ms since 1970, or none."""
    return timestamps(array("q", [NO_TIME if each is None else each for each in milliseconds]))


def repeated_stamps(pieces: Iterable[tuple[int, int]]) -> Any:
    """Makes a column of times in ms since 1970, each of them in so many rows."""
    return timestamps(_repeated(pieces))


def times(pieces: Iterable[tuple["array[int] | None", int]]) -> Any:
    """Makes a column of times in ms since 1970, -2^63 for none; with None, so many rows that have none."""
    found, known = array("q"), False
    for some, count in pieces:
        found.extend(array("q", [NO_TIME]) * count if some is None else some)
        known = known or some is not None
    return timestamps(found) if known else pa.nulls(len(found), STAMP)


def timestamps(milliseconds: "array[int]") -> Any:
    """Makes a column of times; none where Spark's type has not such a one."""
    found = integers(milliseconds)
    bounds = pc.min_max(found)
    if milliseconds and not STAMP_MS_MIN <= bounds["min"].as_py() <= bounds["max"].as_py() <= STAMP_MS_MAX:
        known = pc.and_(pc.greater_equal(found, FIRST_MS), pc.less_equal(found, LAST_MS))
        found = pc.if_else(known, found, NO_MS)
    return pc.multiply(found, THOUSAND).view(STAMP)


def headers(pieces: Iterable[tuple[Packed[bytes] | None, int]]) -> Any:
    """Makes a column of records' headers, pairs in their order, which are packed; with None, so many have none."""
    counts, names, values = array("I"), list[str](), list[bytes]()
    for found, count in pieces:
        if found is None or not found.data:
            counts.extend(array("I", [0]) * count)
            continue
        for pairs in map(unpack_headers, found):
            counts.append(len(pairs))
            names += [name for name, _value in pairs]
            values += [value for _name, value in pairs]
    each = pa.StructArray.from_arrays([pa.array(names, pa.string()), binary(values)], fields=PAIR)
    return pa.Array.from_buffers(HEADERS, len(counts), [None, offsets(counts)], children=[each])


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
    """Records of one append, without an object for each; None where there is no such column."""

    values: Packed[bytes]
    keys: Packed[bytes | None] | None
    times: "array[int] | None"
    headers: list[list[tuple[str, bytes]]] | None


def check(names: Sequence[str], allowed: Sequence[str]) -> None:
    """`ValueError` names the column that a sink can't write, or the one that it misses."""
    if sum(name in VALUE for name in names) != 1:
        raise ValueError(f"a row has one column `value` of bytes or text (or `payload`), not {', '.join(names)}")
    other = [name for name in names if name not in allowed]
    if other:
        raise ValueError(f"column {other[0]!r} can't be written: there are {', '.join(allowed)}; drop it, or rename it")


def fresh(batch: Any) -> Any:
    """
    Returns a batch of an INSERT as it is.  `ValueError` for rows that have an index: with all columns as a log has
    them, Spark tells the options of the table that they were read from, and not of the one they are to go to.
    """
    for name in ("index", "offset"):
        if name in batch.schema.names and batch.column(name).null_count < batch.num_rows:
            raise ValueError(
                f"a row has an {name} already, as one that was read: name the columns without it, as in INSERT INTO t "
                "(key, value) SELECT key, value FROM …"
            )
    return batch


def rows(batch: Any) -> Iterator[Rows]:
    """Yields the rows of a RecordBatch, at most `ROWS_MAX` at a time.  `ValueError` names the row without a value."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        part = batch.slice(start, ROWS_MAX)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        value = columns["value" if "value" in columns else "payload"]
        if value.null_count:
            raise ValueError("a row has no value: filter it out, or give an empty one")
        yield Rows(
            packed_of(value),
            packed_of(columns["key"]) if "key" in columns else None,
            milliseconds(columns["time"]) if "time" in columns else None,
            pairs_of(columns["headers"]) if "headers" in columns else None,
        )


def packed_of(column: Any) -> Packed[Any]:
    """A column of bytes, or of text as UTF-8, as it lies there.  `ValueError` for another type."""
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary())
    if not pa.types.is_binary(column.type) and not pa.types.is_string(column.type):
        raise ValueError(f"a column of {column.type} can't be written: cast it to binary or to string")
    sizes = pc.fill_null(pc.binary_length(column).cast(pa.uint32()), pa.scalar(Packed.NONE, pa.uint32()))
    there = column.drop_null() if column.null_count else column
    _valid, ends, data = there.buffers()
    if data is None or not len(there):
        return Packed(of_buffer("I", sizes), b"")
    bounds = memoryview(ends).cast("i")
    return Packed(of_buffer("I", sizes), memoryview(data)[bounds[there.offset] : bounds[there.offset + len(there)]])


def of_buffer(letter: str, column: Any) -> "array[int]":
    """The numbers of a column, which has no row without one."""
    numbers = array(letter)
    begin, size = column.offset * numbers.itemsize, len(column) * numbers.itemsize
    numbers.frombytes(memoryview(column.buffers()[1])[begin : begin + size])
    return numbers


def as_bytes(value: bytes | str) -> bytes:
    """Text as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def milliseconds(column: Any) -> "array[int]":
    """A column of timestamps, since 1970; `NO_TIME` for none.  `ValueError` for numbers: it is not known of what."""
    if pa.types.is_integer(column.type):
        raise ValueError("column 'time' is of numbers: make it a timestamp, as by timestamp_millis(time)")
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).cast(pa.timestamp("us"))
    millis = pc.floor_temporal(micros, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())
    return of_buffer("q", pc.fill_null(millis, NO_TIME))


def pairs_of(column: Any) -> list[list[tuple[str, bytes]]] | None:
    """
    A column of headers, structs or maps; null is empty, None where all are.  `ValueError` for another type, or a
    missing key.
    """
    kind = column.type
    structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    names = [field.name for field in kind.value_type] if structs else []
    if not pa.types.is_map(kind) and names != ["key", "value"]:
        raise ValueError(
            f"column 'headers' is {kind}: make it array(struct(… as key, … as value), …), or a map from text to bytes"
        )
    if not len(column) or column.offsets[0] == column.offsets[-1]:
        return None
    found = [
        [(each["key"], each["value"]) if structs else each for each in headers or ()] for headers in column.to_pylist()
    ]
    if any(key is None for headers in found for key, _value in headers):
        raise ValueError("a header has no key: filter it out, or give an empty one")
    return [[(key, as_bytes(value or b"")) for key, value in headers] for headers in found]
