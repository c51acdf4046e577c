"""How far a run is: shares of its bytes, with something for each ledger."""

import pytest

from quire.replication.freeing.run import FreeingProgress
from quire.replication.scrub.run import ScrubProgress

# SPDX-License-Identifier: Apache-2.0


def test_totals_are_whole_once_all_ledgers_were_seen() -> None:
    """A run that has nothing to look at is at its end."""
    assert ScrubProgress().surveyed
    assert not ScrubProgress(ledgers_total=2, ledgers_seen=1).surveyed
    assert ScrubProgress(ledgers_total=2, ledgers_seen=2).surveyed


@pytest.mark.parametrize("kind", [FreeingProgress, ScrubProgress])
def test_nothing_to_do_is_done(kind: type[FreeingProgress] | type[ScrubProgress]) -> None:
    """So it is for both kinds of runs."""
    assert kind().share == 1.0


def test_a_scrub_deals_with_all_ledgers() -> None:
    """Half of the ledgers and half of the bytes are half of the time; more than was planned is no more than all."""
    assert ScrubProgress(ledgers_total=4, ledgers_done=2, bytes=500, bytes_total=1000).share == 0.5
    assert ScrubProgress(ledgers_total=4, ledgers_done=4, bytes=2000, bytes_total=1000).share == 1.0


def test_freeing_deals_with_those_that_name_a_lost_bookie() -> None:
    """A ledger costs as much as some bytes, so that many small ones count."""
    made = FreeingProgress(ledgers_total=1000, ledgers_seen=1000, ledgers_named=10, ledgers_done=5, bytes_total=0)
    assert (made.ledgers_to_do, made.share) == (10, 0.5)
