"""Names on a command line."""

import pytest

from quire.tools.commands.log import shared

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("orders", "orders"),
        ("orders/eu", "orders/eu"),
        ("orders%2Feu", "orders/eu"),
        ("a%20b", "a b"),
        ("100%", "100%"),
        ("100%25", "100%"),
        ("a/b%2Fc", "a/b%2Fc"),
        ("a%252Fb", "a%2Fb"),
        ("%E2%82%AC", "\u20ac"),
    ],
)
def test_a_name_is_given_encoded_or_not(given: str, meant: str) -> None:
    """What is an encoded name to the letter is one; a name that only looks like one has to be encoded."""
    assert shared.name_of(given) == meant
