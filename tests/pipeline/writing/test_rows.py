"""Columns of Arrow batches as lists that the client takes."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from quire.pipeline.columns import HEADERS
from quire.pipeline.writing.rows import LEDGER_COLUMNS, LOG_COLUMNS, ROWS_MAX, check, rows

# SPDX-License-Identifier: Apache-2.0


def test_values_alone() -> None:
    """Bytes, or text as UTF-8; `payload` is another name."""
    for name, column in (("value", pa.array([b"a", b""])), ("payload", pa.array(["a", ""]))):
        (found,) = rows(pa.RecordBatch.from_arrays([column], names=[name]))
        assert found == ([b"a", b""], None, None, None)


def test_all_columns() -> None:
    """Times in any unit, headers as structs or as a map; nothing where there is none."""
    time = datetime(2026, 1, 31, 8, tzinfo=UTC)
    structs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    maps = pa.map_(pa.string(), pa.binary())
    texts = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    for headers in (
        pa.array([[{"key": "h", "value": "1"}, {"key": "h", "value": "2"}], None], texts),
        pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}], None], structs),
        pa.array([[("h", b"1"), ("h", b"2")], None], maps),
    ):
        for unit in ("s", "ms", "us", "ns"):
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([b"a", b"b"]),
                    pa.array(["k", None]),
                    pa.array([time, None], pa.timestamp(unit, tz="UTC")),
                    headers,
                    pa.array([7, 8]),
                ],
                names=["value", "key", "time", "headers", "index"],
            )
            (found,) = rows(batch)
            assert found.keys == [b"k", None]
            assert found.times == [int(time.timestamp() * 1000), None]
            assert found.headers == [[("h", b"1"), ("h", b"2")], []]


def test_large_batches_come_in_pieces() -> None:
    """So that one append is bounded."""
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"] * (2 * ROWS_MAX + 1))], names=["value"])
    assert [len(found.values) for found in rows(batch)] == [ROWS_MAX, ROWS_MAX, 1]


def test_a_row_without_a_value() -> None:
    """Is an error."""
    with pytest.raises(ValueError, match="a row has no value"):
        list(rows(pa.RecordBatch.from_arrays([pa.array([b"a", None])], names=["value"])))


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (pa.array([{"key": "h", "value": b"1"}]), r"column 'headers' is struct<.*: make it array\(struct"),
        (pa.array([[{"k": "h", "v": b"1"}]]), r"column 'headers' is list<.*: make it array\(struct"),
        (pa.array(["h"]), r"column 'headers' is string: make it array\(struct"),
        (pa.array([[{"key": None, "value": b"1"}]], HEADERS), "a header has no key"),
    ],
)
def test_headers_that_can_not_be(headers: pa.Array, said: str) -> None:
    """They are named, with what to write instead."""
    with pytest.raises(ValueError, match=said):
        list(rows(pa.RecordBatch.from_arrays([pa.array([b"a"]), headers], names=["value", "headers"])))


def test_times_are_no_numbers() -> None:
    """Milliseconds were taken for microseconds."""
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([1_700_000_000_000])], names=["value", "time"])
    with pytest.raises(ValueError, match=r"'time' is of numbers: make it a timestamp, as by timestamp_millis\(time\)"):
        list(rows(batch))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["key"], "one column `value`"),
        (["value", "payload"], "one column `value`"),
        (["value", "colour"], "'colour' can't be written: there are value, payload, key"),
    ],
)
def test_columns_that_can_not_be_written(names: list[str], said: str) -> None:
    """Are named."""
    check(["value", "key"], LOG_COLUMNS)
    check(["payload", "entry_id"], LEDGER_COLUMNS)
    with pytest.raises(ValueError, match=said):
        check(names, LOG_COLUMNS)
