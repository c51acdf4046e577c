"""What a consumer is done with, against a set of integers."""

import tracemalloc
from itertools import chain, pairwise
from random import Random

import pytest

from quire.log.core.streams.marks import PAGE, Marks, runs_of
from quire.protocol.errors import TooManyRequests

# SPDX-License-Identifier: Apache-2.0

WIDE = 1 << 20


def spread(runs):
    """The indexes of runs."""
    return list(chain.from_iterable(range(start, stop) for start, stop in runs))


@pytest.mark.parametrize("seed", range(200))
def test_as_a_set_has_it(seed):
    """The mark is the first that is not done, runs are as long as can be, what is new is told once."""
    dice = Random(seed)
    marks, done, stored = Marks(5, WIDE), set(range(5)), set(range(5))
    for _ in range(dice.randrange(60)):
        what, first = dice.random(), dice.randrange(1500)
        if what < 0.6:
            marks.add(first)
            done.add(first)
        elif what < 0.8:
            some = range(first, first + dice.randrange(600))
            marks.add_many([some, first])
            done.update(some, [first])
        elif what < 0.85:
            marks.rise(first // 5)
            done.update(range(first // 5))
        else:
            taken = marks.take() if what < 0.95 else marks.take_all()
            stored |= {*range(taken.mark), *spread(taken.runs())}
            assert stored == done
            assert not marks.changed
        mark = next(index for index in range(5000) if index not in done)
        assert marks.mark == mark
        assert spread(marks.runs()) == sorted(index for index in done if index > mark)
        runs = list(marks.runs())
        assert all(before[1] < after[0] for before, after in pairwise(runs))
        assert marks.count() == sum(index > mark for index in done)
        assert marks.changed == (done != stored)
        stop = first + dice.randrange(900)
        assert spread(marks.missing(first, stop)) == [index for index in range(first, stop) if index not in done]
        assert (first in marks) == (first in done)


def test_the_mark_moves_over_completed_holes():
    """At once, over full pages too; nothing is held then."""
    marks = Marks(0, WIDE)
    marks.add_many([range(1, 3 * PAGE), 3 * PAGE + 1])
    assert (marks.mark, marks.pages) == (0, 4)
    marks.add(0)
    assert (marks.mark, marks.pages, marks.count()) == (3 * PAGE, 1, 1)
    marks.add(3 * PAGE)
    assert marks.mark == 3 * PAGE + 2
    marks.rise(1 << 60)
    assert (marks.mark, marks.pages) == (1 << 60, 0)
    marks.add(7)
    assert marks.mark == 1 << 60


def test_room_for_pages():
    """What touches more is refused as a whole; what is at the mark, or in a page that is there, is taken always."""
    marks = Marks(0, 2)
    marks.add_many([PAGE, range(3 * PAGE, 3 * PAGE + 4)])
    for refused in (5 * PAGE, 1, range(3 * PAGE, 5 * PAGE), range(1 << 50)[1:], range(5, 6 * PAGE)):
        with pytest.raises(TooManyRequests, match="2 pages"):
            marks.add_many([refused])
    assert list(marks.runs()) == [(PAGE, PAGE + 1), (3 * PAGE, 3 * PAGE + 4)]
    marks.add_many([PAGE + 9, 0])
    assert marks.mark == 1
    marks.add_run(1, PAGE)
    assert marks.mark == PAGE + 1
    marks.add(PAGE + 1)
    with pytest.raises(TooManyRequests):
        marks.add(4 * PAGE)
    marks.rise(2 * PAGE)
    marks.add(4 * PAGE)


def test_runs_of_pages():
    """Runs go over the borders of pages; what is below the mark is left out."""
    assert list(runs_of({0: 0b1011 | 1 << 255, 1: 1, 3: 2}, 1)) == [(1, 2), (3, 4), (255, 257), (769, 770)]
    assert list(runs_of({0: 3, 1: 4}, 257)) == [(258, 259)]
    assert list(runs_of({}, 0)) == []


@pytest.mark.parametrize(
    ("indexes", "pages", "bytes_max"),
    [
        (range(PAGE - 1, PAGE << 12, PAGE), 1 << 12, 200 << 12),  # a page each: 10^6 of them take 200 MB
        (range(1, 1 << 16, 2), (1 << 16) // PAGE, 200 * ((1 << 16) // PAGE)),
        ([range(1, 10**6)], 10**6 // PAGE + 1, 800_000),
    ],
)
def test_memory_of_pages(indexes, pages, bytes_max):
    """At most 200 bytes each, whether one record of it is acknowledged or all, with what is to be stored."""
    marks = Marks(0, WIDE)
    some = list(indexes)
    Random(1).shuffle(some)
    tracemalloc.start()
    try:
        marks.add_many(some)
        there = marks.pages
        before, _most = tracemalloc.get_traced_memory()
        del marks
        after, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert there == pages
    assert pages * 30 < before - after <= bytes_max
