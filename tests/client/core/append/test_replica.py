"""What a writer knows of one bookie: watermark, stragglers, bytes not yet answered."""

from random import Random

import pytest

from quire.client.core.append.ensemble import Replica
from quire.client.core.quorum import Quorums

# SPDX-License-Identifier: Apache-2.0

ALL = Quorums(3, 3, 2)


def replica(sent: int = 9, settled: int = -1) -> Replica:
    """Index 0 after one entry of 10 bytes up to `sent` each."""
    made = Replica(0, "b0", 1, settled)
    for entry in range(settled + 1, sent + 1):
        made.send(entry, 10)
    return made


def test_answers_in_order_move_the_watermark() -> None:
    """What is answered counts as held, and its bytes leave the backlog."""
    made = replica()
    assert made.acknowledge(0, 3, -1, ALL)
    assert (made.watermark, made.backlog, made.stragglers) == (3, 60, set())
    assert made.holds(3)
    assert not made.holds(4)


def test_an_answer_above_a_gap_does_not_move_it() -> None:
    """Its entries are held, those in the gap are not; when the gap is answered the watermark passes them."""
    made = replica()
    assert made.acknowledge(4, 5, -1, ALL)
    assert (made.watermark, made.stragglers, made.backlog) == (-1, {4, 5}, 100)
    assert made.holds(5)
    assert not made.holds(3)
    assert made.acknowledge(0, 3, -1, ALL)
    assert (made.watermark, made.stragglers, made.backlog) == (5, set(), 40)


def test_an_answer_twice_is_no_news() -> None:
    """Below the watermark and among stragglers alike."""
    made = replica()
    made.acknowledge(0, 1, -1, ALL)
    made.acknowledge(5, 5, -1, ALL)
    assert not made.acknowledge(0, 1, -1, ALL)
    assert not made.acknowledge(5, 5, -1, ALL)


def test_a_gap_that_is_settled_no_longer_counts() -> None:
    """When its entries were acknowledged to the caller the watermark moves over it; its bookie owes them."""
    made = replica(5)
    made.acknowledge(4, 5, -1, ALL)
    made.settle(3, ALL)
    assert (made.watermark, made.stragglers, made.backlog, made.owes) == (5, set(), 0, True)
    late = replica(5)
    assert late.acknowledge(4, 5, 3, ALL)
    assert (late.watermark, late.owes) == (5, True)


def test_a_bookie_that_is_late_owes_nothing_when_it_has_answered() -> None:
    """In order, behind what others have settled, and also above it once the gap was answered."""
    made = replica(5)
    assert made.acknowledge(0, 1, 3, ALL)
    assert made.owes
    assert made.acknowledge(2, 5, 3, ALL)
    assert not made.owes
    striped = Replica(1, "b1", 1, -1)
    for entry in (0, 1, 4, 5):
        striped.send(entry, 10)
    for entry, settled in ((1, -1), (0, -1), (4, 3), (5, 4)):
        striped.acknowledge(entry, entry, settled, Quorums(4, 2, 2))
        striped.settle(settled, Quorums(4, 2, 2))
    assert not striped.owes


@pytest.mark.parametrize("quorums", [ALL, Quorums(4, 2, 2), Quorums(5, 3, 2)], ids=str)
def test_any_order_of_answers_holds_what_was_answered(quorums: Quorums) -> None:
    """
    Random single answers: exactly these entries of the index are held at each step, and nothing is left at the end.
    """
    for seed in range(50):
        made = Replica(0, "b0", 1, -1)
        entries = list(quorums.entries_of(0, 0, 30))
        for entry in entries:
            made.send(entry, 1)
        answered: set[int] = set()
        for entry in Random(seed).sample(entries, len(entries)):
            assert made.acknowledge(entry, entry, -1, quorums)
            answered.add(entry)
            assert {each for each in entries if made.holds(each)} == answered
        assert (made.backlog, made.stragglers) == (0, set())
