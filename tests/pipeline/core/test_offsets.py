"""How far one batch of a stream goes."""

from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline.core.offsets import Position, advanced, encoded, position_of, positions_in, shared, within_bytes

# SPDX-License-Identifier: Apache-2.0

positions = st.dictionaries(st.integers(0, 12).map(str), st.integers(0, 30), max_size=5)


@given(positions, positions, st.none() | st.integers(1, 40))
def test_a_batch_keeps_its_limit_and_never_goes_back(
    start: dict[str, int], ends: dict[str, int], limit: int | None
) -> None:
    """And takes as much as it may."""
    after = advanced(start, ends, limit)
    taken = sum(after[ledger] - start.get(ledger, 0) for ledger in after)
    there = sum(max(ends.get(ledger, 0) - start.get(ledger, 0), 0) for ledger in ends)
    assert all(after[ledger] >= start.get(ledger, 0) for ledger in after)
    assert taken == (there if limit is None else min(there, limit))


def test_ledgers_are_read_in_the_order_of_their_numbers() -> None:
    """Not of their text."""
    assert advanced({"9": 0, "10": 0}, {"9": 5, "10": 5}, 6) == {"9": 5, "10": 1}


def test_a_limit_in_bytes() -> None:
    """Records between two marks count as equal; one record is taken however large it is."""
    marks = [(0, 0), (10, 1000), (20, 1100)]
    assert position_of(5, marks) == 500
    assert within_bytes(0, 20, marks, 300) == 3
    assert within_bytes(9, 20, marks, 110) == 11
    assert within_bytes(0, 20, marks, 1) == 1
    assert within_bytes(0, 20, marks, 10_000) == 20


def test_how_an_offset_is_written_down() -> None:
    """By log and partition, or short of the only one; both are read, by the logs' ids."""
    a, b = Position("orders", 0, "0a", 42), Position("orders", 1, "0b", 7)
    assert encoded([a, b], False) == {"orders": {"0": {"index": 42, "log": "0a"}, "1": {"index": 7, "log": "0b"}}}
    assert positions_in(encoded([a, b], False)) == {"0a": a, "0b": b}
    assert encoded([a], True) == {"index": 42, "log": "0a"}
    assert positions_in(encoded([a], True)) == {"0a": Position("", 0, "0a", 42)}
    assert positions_in(encoded([Position("index", 0, "0c", 1)], False))["0c"].topic == "index"
    assert positions_in(encoded([], False)) == {}


def test_a_batch_is_shared_by_what_each_log_has() -> None:
    """None waits for ever beside a large one; what is there and fits is taken."""
    assert shared({"a": 3, "b": 4}, 7) == {"a": 3, "b": 4}
    assert shared({"a": 300, "b": 100, "c": 0}, 8) == {"a": 6, "b": 2, "c": 0}
    assert shared({"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}
