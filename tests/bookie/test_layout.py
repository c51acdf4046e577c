"""Where the files of a bookie are, and which directories belong together."""

# SPDX-License-Identifier: Apache-2.0

from quire.bookie.layout import LOST, Pair, current, pairs, share_of
from tests.bookie.fakes.disk import options_of


def test_the_data_of_a_directory_is_in_current() -> None:
    """With or without the names of a file in it."""
    assert current("/d") == "/d/current"
    assert current("/d", LOST) == "/d/current/quire.lost"


def test_without_index_directories_the_index_is_beside_the_entry_logs() -> None:
    """As most bookies have it."""
    assert pairs(options_of("/d", ledgers=2)) == [
        Pair("/d/ledgers0", "/d/ledgers0"),
        Pair("/d/ledgers1", "/d/ledgers1"),
    ]


def test_index_directories_belong_to_ledger_directories_in_their_order() -> None:
    """The first to the first; each has its data in `current`."""
    first, second = pairs(options_of("/d", ledgers=2, index_directories=("/x", "/y")))
    assert (first.logs, first.rows) == ("/d/ledgers0/current", "/x/current")
    assert (second.logs, second.rows) == ("/d/ledgers1/current", "/y/current")


def test_consecutive_ledgers_belong_to_different_directories() -> None:
    """In turn, by their ids."""
    assert [share_of(ledger, 3) for ledger in range(6)] == [0, 1, 2, 0, 1, 2]
