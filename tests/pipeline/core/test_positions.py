"""Positions of queries of Pulsar's topics."""

import pytest

from quire.pipeline.core.positions import (
    NOWHERE,
    advanced,
    after,
    before,
    begin,
    grouped,
    is_lost,
    moved,
    named,
    offsets_of,
    onward,
    up_to,
)
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.positions import Position
from quire.pulsar.core.ranges import TopicRange

# SPDX-License-Identifier: Apache-2.0

T, U = "persistent://public/default/t", "persistent://public/default/u-partition-1"


def one(ledger: int, first: int, last: int) -> TopicRange:
    return TopicRange(T, ledger, first, last, Position(8, 4), bytes=100 * (last - first + 1))


RANGES = [one(5, 2, 9), one(8, 0, 4)]


def test_places_by_text() -> None:
    """One for all topics, or one for each, by any form of its name or by that of all its partitions."""
    assert named(offsets_of("earliest", "startingOffsets"), T, "startingOffsets") == "earliest"
    given = offsets_of('{"t":"12:0","public/default/u":"latest"}', "startingOffsets")
    assert (named(given, T, "o"), named(given, U, "o")) == ("12:0", "latest")
    with pytest.raises(ValueError, match=r"option 'o' has no position of .*/v"):
        named(given, "persistent://public/default/v", "o")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("begin", r"'begin' is not `earliest`"),
        ("[1]", r"is not `earliest`"),
        ('{"t":5}', r"5 of t is not `earliest`"),
        ('{"t":"5"}', r"t: '5' is no position"),
    ],
)
def test_what_is_no_place(text: str, said: str) -> None:
    """It is named with its option."""
    with pytest.raises(ValueError, match=f"option 'endingOffsets': .*{said}" if "{" not in text else said):
        offsets_of(text, "endingOffsets")


def test_the_begin_of_a_plan() -> None:
    """Within a batch if it is so; behind the end where nothing is left, and at 0:0 of a topic without entries."""
    assert begin(RANGES, Position(8, 4)) == Position(5, 2)
    within = Position(5, 2, 3)
    assert begin([RANGES[0]._replace(start=within)], Position(8, 4)) == within
    assert begin([], Position(8, 4)) == after(Position(8, 4)) == Position(8, 5)
    assert begin([], Position(-1, -1)) == Position(0, 0)
    assert before(Position(8, 0)) == Position(8, -1)


def test_one_batch_of_a_stream() -> None:
    """All that is there, or each topic's share of a limit; the one that is behind most goes on, and none goes back."""
    planned = {T: RANGES, U: [one(6, 0, 999)]}
    lasts = {T: Position(8, 4), U: Position(6, 999)}
    starts = {T: Position(5, 2), U: Position(6, 0)}
    for most in (None, 1013):
        assert advanced(starts, planned, lasts, most) == {T: Position(8, 5), U: Position(6, 1000)}
    assert advanced(starts, planned, lasts, 200) == {T: Position(5, 4), U: Position(6, 197)}
    assert advanced(starts, planned, lasts, 1) == {T: Position(5, 2), U: Position(6, 1)}
    assert advanced({}, planned, lasts, 1) == {T: Position(5, 2), U: Position(6, 1)}
    ahead = {T: Position(9, 3), U: Position(6, 1000)}
    assert advanced(ahead, {T: [], U: []}, lasts, None) == ahead == advanced(ahead, {T: [], U: []}, lasts, 5)


def test_counting_over_ranges() -> None:
    """A place behind any number of entries has just those before it."""
    for count in range(1, 14):
        place = moved(RANGES, count)
        assert sum(each.entries for each in up_to(RANGES, place)) == count
    assert up_to(RANGES, Position(9, 0)) == RANGES
    assert up_to(RANGES, Position(5, 2)) == up_to(RANGES, Position(4, 7)) == []
    with pytest.raises(ValueError, match="fewer"):
        moved(RANGES, 14)


def test_a_place_within_a_batch() -> None:
    """What is before it in its entry is read; nothing where the range begins there or behind it."""
    end = Position(8, 2, 3)
    *_, last = up_to(RANGES, end)
    assert (last[1:4], last.stop, before(end)) == ((8, 0, 2), end, Position(8, 2))
    (_, whole) = up_to(RANGES, Position(8, 2, 0))
    assert (whole[1:4], whole.stop) == ((8, 0, 1), NOWHERE)
    (beyond,) = up_to(RANGES, Position(5, 30, 3))
    assert (beyond[1:4], beyond.stop) == ((5, 2, 9), NOWHERE)
    for index, found in ((2, 1), (3, 0), (4, 0)):
        assert len(up_to([one(8, 2, 4)._replace(start=Position(8, 2, index))], end)) == found
    (kept,) = up_to([RANGES[0]._replace(compacted=True)], end)
    assert (kept.end, kept.stop) == (Position(8, 2), end)


@pytest.mark.parametrize("split", [1, 500, 1 << 30])
def test_any_division_has_each_entry_once(split: int) -> None:
    """In their order, with what a range knows besides."""
    groups = grouped(RANGES, split, 5, 2)
    assert 1 <= len(groups) <= 5
    flat = [(each.ledger, entry) for group in groups for each in group for entry in range(each.first, each.last + 1)]
    assert flat == [(each.ledger, entry) for each in RANGES for entry in range(each.first, each.last + 1)]
    assert {each.topic for group in groups for each in group} == {T}


def test_the_next_ledger() -> None:
    """A place goes on where all of a closed ledger is behind it, or its own was taken out as an empty one."""
    closed, empty, last = LedgerPart(5, 10, 99, 1), LedgerPart(6, 0, 0, 1), LedgerPart(8, 0, 0, 0)
    for ledgers, places in (
        ([closed, empty, last], {(5, 9): (5, 9), (5, 10): (8, 0), (6, 0): (8, 0), (7, 2): (8, 0), (8, 3): (8, 3)}),
        ([closed, empty], {(5, 10): (6, 0), (6, 0): (6, 0), (7, 0): (7, 0)}),
        ([closed, LedgerPart(8, 4, 9, 1)], {(5, 10): (8, 0), (8, 3): (8, 3), (8, 4): (8, 4), (9, 1): (9, 1)}),
        ([LedgerPart(5, 0, 0, 0), last], {(5, 10): (5, 10)}),
        ([last], {(0, 0): (0, 0), (5, 10): (5, 10), (8, 0): (8, 0)}),
        ([], {(0, 0): (0, 0), (5, 10): (5, 10)}),
    ):
        for place, expected in places.items():
            assert onward(Position(*place), ledgers) == Position(*expected)
    assert onward(Position(5, 9, 3), [closed, last]) == Position(5, 9, 3)


def test_what_may_be_lost() -> None:
    """A place whose ledger is gone while later ones are there, unless the topic had none at all then."""
    assert is_lost([5, 7, 8], Position(4, 17))
    assert not any(is_lost([5, 7, 8], Position(*at)) for at in ((0, 0), (5, 0), (6, 3), (9, 0)))
    assert not is_lost([], Position(4, 17))
