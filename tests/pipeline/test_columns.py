"""Arrow batches out of lists."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline import columns

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
