"""Ledger ids as users write them."""

import pytest

from quire.pipeline.core.selection import LEDGER_MAX, Selection

# SPDX-License-Identifier: Apache-2.0


def test_ids_and_ranges() -> None:
    """In any order, overlapping ones joined."""
    found = Selection.parse("9-12, 7,11-20")
    assert found.ranges == [(7, 7), (9, 20)]
    assert list(found) == [7, *range(9, 21)]
    assert found.count == 13
    assert 7 in found
    assert 8 not in found


def test_all() -> None:
    """Every id that a ledger can have."""
    assert Selection.parse(" ALL ").ranges == [(0, LEDGER_MAX)]


@pytest.mark.parametrize("text", ["", "x", "7,", "-3", "9-7", "1-", f"{1 << 63}", "7;9", "1-2-3"])
def test_what_is_no_selection_is_named(text: str) -> None:
    """With the piece that is wrong."""
    with pytest.raises(ValueError, match=r"ledger id|a range goes|a range of ledgers"):
        Selection.parse(text)
