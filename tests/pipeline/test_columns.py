"""Arrow batches out of lists."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline import columns
from quire.pipeline.columns import HEADERS, LEDGER_COLUMNS, LOG_COLUMNS, ROWS_MAX, check, rows

# SPDX-License-Identifier: Apache-2.0


@given(st.lists(st.binary(max_size=20), max_size=30))
def test_binary(values: list[bytes]) -> None:
    """Empty values and empty batches, too."""
    found = columns.binary(values)
    found.validate(full=True)
    assert found.to_pylist() == values


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=30))
def test_integers(values: list[int]) -> None:
    """Of 64 bits."""
    found = columns.integers(values)
    found.validate(full=True)
    assert found.to_pylist() == values
    assert columns.constant(7, len(values)).to_pylist() == [7] * len(values)


def test_a_batch_has_the_columns_wanted() -> None:
    """In their order, and the others are not made."""
    makers = {"a": lambda: columns.integers([1, 2]), "b": lambda: columns.binary([b"x", b""]), "c": lambda: 1 / 0}
    found = columns.batch(["b", "a"], makers, {"a": pa.int64(), "b": pa.binary(), "c": pa.int64()})
    assert found.schema.names == ["b", "a"]
    assert found.to_pylist() == [{"b": b"x", "a": 1}, {"b": b"", "a": 2}]


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=30))
def test_times_that_spark_has_not(times: list[int | None]) -> None:
    """Are none: a writer may give any number of 64 bits, such as nanoseconds."""
    first, last = -62_135_596_800_000, 253_402_300_799_999  # of the year 1, and of 9999
    found = columns.stamps([*times, first, last, first - 1, last + 1])
    found.validate(full=True)
    assert [None if each is None else each.year for each in found.to_pylist()[-4:]] == [1, 9999, None, None]
    numbers = found.cast(pa.int64()).to_pylist()[:-4]
    assert numbers == [None if each is None or not first <= each <= last else each * 1000 for each in times]


def test_times_keys_and_headers() -> None:
    """With nothing where there is none."""
    assert [None if each is None else each.isoformat() for each in columns.stamps([1_500, None]).to_pylist()] == [
        "1970-01-01T00:00:01.500000+00:00",
        None,
    ]
    assert columns.nullable_binary([b"k", None]).to_pylist() == [b"k", None]
    assert columns.headers([[("a", b"1"), ("a", b"2")], []]).to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}],
        [],
    ]


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
