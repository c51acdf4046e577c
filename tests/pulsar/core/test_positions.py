"""Positions, as text and in order."""

import pytest

from quire.pulsar.core.positions import EARLIEST, LATEST, Position, parse_position

# SPDX-License-Identifier: Apache-2.0


def test_their_order():
    """By ledger, entry and message; all are between the two ends."""
    places = [EARLIEST, Position(0, 0), Position(0, 0, 1), Position(0, 2), Position(1, 0), LATEST]
    assert sorted(set(places)) == places
    assert Position(3, 4, 5).place == (3, 4)


def test_positions():
    """As text, there and back; anything else is refused."""
    for given in ("0:0", "12:3", "12:3:4"):
        assert str(parse_position(given)) == given
    for given in ("", "1", "1:", "1:-1", "1:2:3:4", "a:b", "9223372036854775808:0", "²:1"):
        with pytest.raises(ValueError, match="LEDGER:ENTRY"):
            parse_position(given)
