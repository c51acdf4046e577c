"""The ledgers of each bookie as passes read them: found as they were read, in little memory."""

from random import Random

import pytest

from quire.replication.core import known_copies
from quire.replication.core.known_copies import ANY_BOOKIE, Gaps, KnownCopies, Marked

# SPDX-License-Identifier: Apache-2.0

BOOKIES = [f"b{number}" for number in range(30)]


def ledgers(random, count, at=0):
    """Ascending ids, with three bookies each, or any where it is open."""
    found = []
    for _ in range(count):
        at += random.choice((1, 1, 2, 200, 40_000, 1 << 40))
        found.append((at, (ANY_BOOKIE,) if random.random() < 0.1 else tuple(random.sample(BOOKIES, 3))))
    return found


def learnt(known, some, after, page=7):
    """Pages of a pass above `after`."""
    some = [each for each in some if each[0] > after]
    for start in range(0, len(some), page):
        pages = some[start : start + page]
        known.learn(after, pages, pages[-1][0])
        after = pages[-1][0]
    known.reached(after, None)


def expected(some, bookies):
    return [ledger for ledger, names in some if not {*bookies, ANY_BOOKIE}.isdisjoint(names)]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_read_is_found(seed):
    """Of one bookie and of several, as a search through all of it finds; after another pass what that read."""
    random = Random(seed)
    known = KnownCopies()
    for _ in range(3):
        some = ledgers(random, random.randrange(100), at=-1)
        learnt(known, some, -1)
        assert known.last == (some[-1][0] if some else known.last)
        for bookies in ([], BOOKIES[:1], BOOKIES[5:12]):
            if some:
                assert list(known.ledgers_of(bookies)) == expected(some, bookies)


def test_a_pass_in_a_circle_adds_what_is_new_and_begins_anew_at_the_first():
    """New ledgers are known at once; the rest is replaced once all of it was read again."""
    random = Random(1)
    first = ledgers(random, 50, at=-1)
    more = ledgers(random, 20, at=first[-1][0])
    known = KnownCopies()
    learnt(known, first, -1)
    learnt(known, first + more, known.last)
    assert list(known.ledgers_of(BOOKIES)) == [ledger for ledger, _names in first + more]
    moved = [(ledger, (BOOKIES[0],)) for ledger, _names in first]
    known.learn(-1, moved, moved[-1][0])
    assert list(known.ledgers_of(BOOKIES[1:2])) == expected(first + more, BOOKIES[1:2])
    known.learn(moved[-1][0], more, more[-1][0])
    assert list(known.ledgers_of(BOOKIES[:2])) == expected(moved + more, BOOKIES[:2])


def test_a_gap_is_no_reading():
    """Pages behind ledgers that nobody read are not taken in."""
    known = KnownCopies()
    known.learn(10, [(11, BOOKIES[:1])], 11)
    known.reached(11, None)
    assert known.last == -1
    assert not list(known.ledgers_of(BOOKIES))


def test_pages_that_are_read_twice_count_once():
    """A pass that another loss holds up reads its page again."""
    known = KnownCopies()
    some = [(ledger, BOOKIES[:1]) for ledger in range(10)]
    known.learn(-1, some[:5], 4)
    known.learn(4, some[5:], 9)
    known.learn(4, some[5:], 9)
    assert list(known.ledgers_of(BOOKIES[:1])) == list(range(10))


def test_memory_has_a_bound(monkeypatch):
    """Some five bytes for a ledger of three copies among a thousand bookies; beyond the bound none is taken in."""
    random = Random(2)
    monkeypatch.setattr(known_copies, "BYTES_MAX", 20_000)
    names = [f"b{number}" for number in range(1000)]
    known = KnownCopies()
    for start in range(0, 50_000, 500):
        page = [(ledger, random.sample(names, 3)) for ledger in range(start, start + 500)]
        known.learn(start - 1, page, start + 499)
    assert 20_000 / 6 < known.last < 20_000 / 3
    assert max(known.ledgers_of(names)) == known.last


def test_ids_of_63_bits_are_kept():
    """The largest step that there is."""
    gaps = Gaps()
    ids = [0, 127, 128, 129, 1 << 35, (1 << 63) - 1]
    size = sum(map(gaps.add, ids))
    assert list(gaps) == ids
    assert size <= 20


def test_what_was_marked_is_told_along_a_pass():
    """Each ledger with the bookies that are asked about, once; none of those that the pass has behind it."""
    marked = Marked()
    marked.begin(["b1", "b2"])
    marked.begin(["b3"])
    for ledger, some in ((3, ["b1"]), (5, ["b1", "b2"]), (900, ["b2"])):
        marked.add(ledger, some)
    marked.add(4, ["b3"])
    along = marked.along(["b1", "b2", "unknown"])
    assert along.up_to(4) == {(3, "b1")}
    assert along.up_to(899) == {(5, "b1"), (5, "b2")}
    assert along.up_to(900) == {(900, "b2")}
    assert along.up_to(1 << 62) == set()
    assert marked.along(["b1", "b2"], 5).up_to(1000) == {(900, "b2")}
    marked.begin(["b2"])
    assert marked.along(["b2"]).up_to(1000) == set()
