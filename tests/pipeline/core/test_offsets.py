"""How far one batch of a stream goes."""

from hypothesis import given
from hypothesis import strategies as st

from quire.pipeline.core.offsets import advanced, position_of, within_bytes

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
