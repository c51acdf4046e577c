"""
Arrow batches, column by column: one buffer of data and one of offsets, and no object for each row.

Knows: how Arrow keeps binary columns.  Does not know: where the values come from.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

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
