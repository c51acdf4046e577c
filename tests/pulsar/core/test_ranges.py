"""Topics in pieces: each wanted entry is in one of them, in order."""

from hypothesis import given, settings
from hypothesis import strategies as some

from quire.pulsar.core.managed import CursorPlace
from quire.pulsar.core.positions import EARLIEST, Position
from quire.pulsar.core.ranges import Segment, Window, cut, end_of

# SPDX-License-Identifier: Apache-2.0

PLACES = some.builds(Position, some.integers(0, 9), some.integers(-1, 9))


@settings(max_examples=60)
@given(
    some.lists(some.tuples(some.integers(-1, 8), some.integers(0, 500)), max_size=6),
    PLACES,
    PLACES,
    some.integers(1, 300),
    some.lists(some.tuples(PLACES, some.integers(0, 4)), max_size=3),
)
def test_any_cut(ledgers, start, end, split, gone):
    """Beside a look at each entry."""
    segments = [Segment(2 * number, last, size) for number, (last, size) in enumerate(ledgers)]
    ranges = tuple(sorted((low.place, (low.ledger, low.entry + count)) for low, count in gone))
    place = CursorPlace(Position(2, 1), ranges, {(4, 3): (6,)})
    for subscription in (None, place):
        found = cut("t", segments, Window(start, end, subscription), split)
        entries = [(each.ledger, entry) for each in found for entry in range(each.first, each.last + 1)]
        assert entries == [
            (segment.ledger, entry)
            for segment in segments
            for entry in range(segment.last + 1)
            if start.place <= (segment.ledger, entry) <= end.place
            and not (subscription and ((segment.ledger, entry) <= (2, 1) or covered(ranges, segment.ledger, entry)))
        ]
        assert all(dict(each.bits) == ({3: 6} if holds(each, 4, 3) and subscription else {}) for each in found)


def covered(ranges, ledger, entry):
    return any(low < (ledger, entry) <= high for low, high in ranges)


def holds(part, ledger, entry):
    return part.ledger == ledger and part.first <= entry <= part.last


def test_pieces():
    """Of about equally many entries; a message within the first one is kept."""
    segments = [Segment(1, 9, 1000), Segment(2, -1, 0), Segment(3, 0, 10)]
    found = cut("t", segments, Window(Position(1, 2, 5)), 400)
    assert [(each.ledger, each.first, each.last, each.bytes) for each in found] == [
        (1, 2, 5, 400),
        (1, 6, 9, 400),
        (3, 0, 0, 10),
    ]
    assert [each.start for each in found] == [Position(1, 2, 5), EARLIEST, EARLIEST]
    assert {each.end for each in found} == {Position(3, 0)}
    assert (end_of(segments), end_of([])) == (Position(3, 0), EARLIEST)
