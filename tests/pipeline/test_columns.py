"""Arrow batches out of lists."""

from array import array
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.api import Packed
from quire.pipeline import columns
from quire.pipeline.columns import HEADERS, LEDGER_COLUMNS, LOG_COLUMNS, NO_TIME, ROWS_MAX, check, rows

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
    assert columns.repeated([(7, len(values)), (8, 1)]).to_pylist() == [7] * len(values) + [8]


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
    given_ = [NO_TIME if each is None else each for each in times]
    found = columns.times([(array("q", given_), len(times)), (array("q", [first, last, first - 1, last + 1]), 4)])
    found.validate(full=True)
    assert [None if each is None else each.year for each in found.to_pylist()[-4:]] == [1, 9999, None, None]
    numbers = found.cast(pa.int64()).to_pylist()[:-4]
    assert numbers == [None if each is None or not first <= each <= last else each * 1000 for each in times]


def test_times_keys_and_headers() -> None:
    """With nothing where there is none."""
    made = [
        columns.times([(array("q", [1_500]), 1), (None, 1)]),
        columns.repeated_stamps([(1_500, 1), (NO_TIME, 1)]),
        columns.stamps([1_500, None]),
    ]
    for each in made:
        first, second = each.to_pylist()
        assert (first.isoformat(), second) == ("1970-01-01T00:00:01.500000+00:00", None)
    keys = Packed[bytes | None].of([b"k", None, b""])
    assert columns.packed([(keys, 3), (None, 1)]).to_pylist() == [b"k", None, b"", None]
    nothing = columns.packed([(None, 2)]), columns.times([(None, 2)])
    assert [each.to_pylist() for each in nothing] == [[None, None]] * 2
    assert columns.headers([(None, 2)]).to_pylist() == [[], []]
    assert columns.repeated_stamps([]).to_pylist() == []


def test_runs_of_numbers() -> None:
    """Each run begins where it is to, whatever came before it."""
    assert columns.runs([(5, 2), (7, 1), (9, 0), (20, 2), (0, 1)]).to_pylist() == [5, 6, 7, 20, 21, 0]
    assert columns.sums([(100, [1, 0, 5]), (9, []), (7, [2, 3])]).to_pylist() == [101, 101, 106, 9, 12]
    assert columns.runs([]).to_pylist() == columns.sums([]).to_pylist() == []


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
            assert found.times == array("q", [int(time.timestamp() * 1000), NO_TIME])
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


TYPES = [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()]


@given(st.lists(st.none() | st.text(max_size=5), max_size=9), st.sampled_from(TYPES), st.integers(0, 9))
def test_columns_are_taken_as_they_lie(texts: list[str | None], kind: pa.DataType, start: int) -> None:
    """Also a part of one, of bytes and of text, with rows that have none."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    given_ = [None if each is None else each if text else each.encode() for each in texts]
    found = columns.packed_of(pa.array(given_, kind)[start:])
    assert list(found) == [None if each is None else each.encode() for each in texts[start:]]
    assert columns.packed([(found, len(found))]).to_pylist() == list(found)


def test_bytes_that_lie_below_no_row() -> None:
    """Are not taken: Arrow lets a row without a value have some."""
    ends, known = pa.array([0, 1, 3, 4], pa.int32()), pa.array([True, False, True])
    column = pa.BinaryArray.from_buffers(pa.binary(), 3, [known.buffers()[1], ends.buffers()[1], pa.py_buffer(b"axxb")])
    assert list(columns.packed_of(column)) == [b"a", None, b"b"]


def test_values_of_another_type() -> None:
    """Are refused."""
    with pytest.raises(ValueError, match="a column of int64 can't be written: cast it to binary or to string"):
        list(rows(pa.RecordBatch.from_arrays([pa.array([1])], names=["value"])))


@given(st.lists(st.none() | st.integers(-(1 << 50), 1 << 50), min_size=1, max_size=9))
def test_times_are_of_whole_milliseconds(micros: list[int | None]) -> None:
    """The one before, also before 1970."""
    found = columns.milliseconds(pa.array(micros, pa.timestamp("us", tz="UTC")))
    assert list(found) == [NO_TIME if each is None else each // 1000 for each in micros]


@pytest.mark.parametrize("name", ["index", "offset"])
def test_rows_of_an_insert(name: str) -> None:
    """Have no index: those that have one were read from a table, to which Spark would have them written again."""
    new = pa.RecordBatch.from_pydict({name: pa.array([None, None], pa.int64()), "value": [b"a", b"b"]})
    assert columns.fresh(new) is new
    read = pa.RecordBatch.from_pydict({name: pa.array([None, 7], pa.int64()), "value": [b"a", b"b"]})
    with pytest.raises(ValueError, match=rf"a row has an {name} already.* INSERT INTO t \(key, value\)"):
        columns.fresh(read)
