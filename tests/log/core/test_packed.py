"""Pieces that lie one behind the other: the same sequence as a list of them."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.core.packed import NONE, Packed, numbers, stored

# SPDX-License-Identifier: Apache-2.0

PIECES = st.lists(st.none() | st.binary(max_size=9), max_size=12)


@given(PIECES, st.data())
def test_it_is_the_sequence_of_its_pieces(pieces: list[bytes | None], data: st.DataObject) -> None:
    """In order, by number, and any slice of them."""
    made = Packed[bytes | None].of(pieces)
    assert list(made) == pieces
    assert [made[at] for at in range(len(made))] == pieces
    assert made.sizes() == [len(each or b"") for each in pieces]
    assert made.missing == pieces.count(None)
    assert made == pieces
    part = data.draw(st.slices(len(pieces)))
    assert list(made[part]) == pieces[part]


def test_lengths_that_do_not_fit() -> None:
    """Make no sequence."""
    for lengths, data in (([1, 2], b"ab"), ([], b"a"), ([NONE, 1], b"")):
        with pytest.raises(ValueError, match=f"{len(lengths)} pieces have . bytes, and there are {len(data)}"):
            Packed(array("I", lengths), data)
    with pytest.raises(IndexError):
        _ = Packed.of([b"a"])[1]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_numbers_are_in_network_order(values: list[int]) -> None:
    """And come back."""
    made = stored("q", values)
    assert made == b"".join(each.to_bytes(8, "big", signed=True) for each in values)
    assert numbers("q", made).tolist() == values
