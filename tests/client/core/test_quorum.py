"""Quorums against slow twins, for every E, WQ, AQ up to 7, and against protocol-rules.md 1.2 to 1.4."""

from itertools import combinations, product
from random import Random

import pytest

from quire.client.core.quorum import Quorums, merge

SHAPES = [Quorums(e, w, a) for e in range(1, 8) for w in range(1, e + 1) for a in range(1, w + 1)]
SMALL = [q for q in SHAPES if q.ensemble <= 5]


def subsets(size):
    return (set(chosen) for count in range(size + 1) for chosen in combinations(range(size), count))


def test_wrong_quorums_are_refused():
    """Sizes that break 1 <= ack <= write <= ensemble raise `ValueError`."""
    for e, w, a in [(3, 4, 2), (3, 2, 3), (0, 0, 0), (3, 3, 0)]:
        with pytest.raises(ValueError, match="1 <= ack <= write <= ensemble"):
            Quorums(e, w, a)


def test_write_sets_of_five_bookies():
    """Write sets are consecutive and wrap around the ensemble."""
    q = Quorums(5, 3, 2)
    assert [q.write_set(entry) for entry in (0, 1, 3, 4)] == [[0, 1, 2], [1, 2, 3], [3, 4, 0], [4, 0, 1]]


@pytest.mark.parametrize("q", SHAPES, ids=str)
def test_each_index_holds_write_of_each_ensemble_consecutive_ids(q):
    """Each bookie holds as many of them as the write quorum, also near the limits of integers."""
    for start in (0, 5, (1 << 31) - 3, (1 << 32) - 3, (1 << 62)):
        for index in range(q.ensemble):
            held = [entry for entry in range(start, start + q.ensemble) if q.has(entry, index)]
            assert len(held) == q.write
            assert held == [entry for entry in range(start, start + q.ensemble) if index in q.write_set(entry)]


@pytest.mark.parametrize("size", [3, 4])
def test_s32_ids_around_2_to_31_and_32_keep_their_place(size):
    """S32, D10: the index of an id does not narrow to 32 bits."""
    q = Quorums(size, 2, 2)
    for base in (1 << 31, 1 << 32):
        for entry in range(base - 3, base + 4):
            expected = [(entry + step) % size for step in range(2)]
            assert q.write_set(entry) == expected
            assert [index for index in range(size) if q.has(entry, index)] == sorted(expected)
            assert all(entry in q.entries_of(index, entry - 2, entry + 2) for index in expected)


@pytest.mark.parametrize("q", SHAPES, ids=str)
def test_next_and_entries_of_agree_with_walking(q):
    """They give the ids that a search through write sets finds."""
    for index in range(q.ensemble):
        for entry in range(-1, 15):
            walked = next(later for later in range(entry + 1, entry + 20) if index in q.write_set(later))
            assert q.next_of(index, entry) == walked
        assert list(q.entries_of(index, 3, 17)) == [entry for entry in range(3, 18) if index in q.write_set(entry)]


def covered_by_definition(q, heard):
    """No AQ-sized subset of any write set lies outside `heard`."""
    for start in range(q.ensemble):
        write_set = [(start + step) % q.ensemble for step in range(q.write)]
        if any(not heard & set(chosen) for chosen in combinations(write_set, q.ack)):
            return False
    return True


@pytest.mark.parametrize("q", SHAPES, ids=str)
def test_covered_is_the_definition_and_never_stricter_than_the_count(q):
    """Facts (a), (b), (c) and (f) of 1.4."""
    verdicts = {}
    for heard in subsets(q.ensemble):
        verdict = q.covered(heard)
        assert verdict == covered_by_definition(q, heard)
        verdicts.setdefault(len(heard), set()).add(verdict)
    assert verdicts[q.fence] == {True}
    if q.fence:
        assert False in verdicts[q.fence - 1]
    if not q.striped:  # (d): then it is the count
        assert all(verdict == {count >= q.fence} for count, verdict in verdicts.items())


@pytest.mark.parametrize(
    ("shape", "absent", "fence", "fewest"),
    [
        ((3, 3, 2), 2, 2, 2),
        ((2, 2, 2), 1, 1, 1),
        ((3, 3, 3), 1, 1, 1),
        ((3, 2, 2), 1, 2, 2),
        ((4, 2, 2), 1, 3, 2),
        ((5, 3, 2), 2, 4, 4),
        ((5, 3, 3), 1, 3, 2),
        ((6, 3, 2), 2, 5, 4),
        ((6, 2, 2), 1, 5, 3),
    ],
)
def test_the_table_of_1_4(shape, absent, fence, fewest):
    """How many absences prove an entry missing, and how many answers fence, as in the protocol's table."""
    q = Quorums(*shape)
    assert (q.absent, q.fence) == (absent, fence)
    assert min(len(heard) for heard in subsets(q.ensemble) if q.covered(heard)) == fewest


def test_the_notes_of_the_table():
    """S29 among them: of 4/2/2 the answers {0} and {0, 1} leave an ack quorum unheard, {0, 2} does not."""
    q = Quorums(4, 2, 2)
    assert [q.covered(heard) for heard in ({0}, {0, 1}, {0, 2}, {1, 3})] == [False, False, True, True]
    assert Quorums(5, 3, 3).covered({0, 2})
    assert Quorums(6, 3, 2).covered({0, 1, 3, 4})
    assert Quorums(6, 2, 2).covered({0, 2, 4})


@pytest.mark.parametrize("q", SHAPES, ids=str)
def test_writable_without_is_the_definition(q):
    """A ledger is writable if every write set keeps an ack quorum of bookies that live."""
    for lost in subsets(q.ensemble):
        alive = all(len(set(q.write_set(entry)) - lost) >= q.ack for entry in range(q.ensemble))
        assert q.writable_without(lost) == alive


@pytest.mark.parametrize(
    ("shape", "any_f"),
    [
        ((1, 1, 1), 0),
        ((2, 2, 1), 1),
        ((3, 3, 2), 1),
        ((3, 3, 3), 0),
        ((4, 3, 2), 1),
        ((5, 3, 2), 1),
        ((5, 5, 3), 2),
        ((7, 5, 3), 2),
    ],
)
def test_appends_survive_what_section_10_says(shape, any_f):
    """Any so many lost bookies, and not one more, leave a ledger writable."""
    q = Quorums(*shape)
    survived = [
        count
        for count in range(q.ensemble)
        if all(q.writable_without(set(lost)) for lost in combinations(range(q.ensemble), count))
    ]
    assert max(survived) == any_f


def confirmed_by_walking(q, marks, at_least):
    entry = at_least
    while sum(marks[index] >= entry + 1 for index in q.write_set(entry + 1)) >= q.ack:
        entry += 1
    return entry


@pytest.mark.parametrize("q", SMALL, ids=str)
def test_confirmed_is_the_walk_entry_by_entry(q):
    """The confirmed entry equals that of a naive walk, on random answers."""
    random = Random(str(q))
    for marks in [random.choices(range(-1, 12), k=q.ensemble) for _ in range(60)]:
        for at_least in (-1, 0, 3):
            assert q.confirmed(marks, at_least) == confirmed_by_walking(q, marks, at_least)


def test_confirmed_of_three_is_the_ack_th_largest():
    """With all bookies in each write set it is the ack-th largest answer, and never below the floor."""
    q = Quorums(3, 3, 2)
    assert q.confirmed([9, 4, 7], -1) == 7
    assert q.confirmed([9, -1, -1], -1) == -1
    assert q.confirmed([9, 4, 3], 6) == 6


def test_error_precedence():
    """The examples of 3.2: first other error > unreachable > latest negative."""

    def final(*codes):
        current = 0
        for code in codes:
            current = merge(current, code)
        return current

    assert final(-13, -8) == -8
    assert final(-8, -13) == -8
    assert final(-8, -23) == -23
    assert final(-23, -5) == -23
    assert final(-13, -7) == -7


def test_error_precedence_against_its_rule():
    """
    All sequences of three: the first other error if there is one, else -8 if there is one, else the latest negative.
    """
    for codes in product((-13, -7, -8, -23, -5), repeat=3):
        current = 0
        for code in codes:
            current = merge(current, code)
        others = [code for code in codes if code in (-23, -5)]
        expected = others[0] if others else -8 if -8 in codes else codes[-1]
        assert current == expected, codes
