"""Which fragments name a bookie and which entries they put on it, against the schedule spelled out."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.protocol import availability
from quire.replication.core.fragments import (
    LOOKED_AT_ONCE,
    count_on,
    fragments_naming,
    missing,
    runs_on,
    runs_without,
    writer_depends_on,
)

A, B, C, D, E = "a:1", "b:1", "c:1", "d:1", "e:1"


def ledger(*fragments: tuple[int, list[str]], write: int = 3) -> LedgerMetadata:
    (_, bookies), *others = fragments
    made = LedgerMetadata.new(len(bookies), write, 2, bookies)
    for first, ensemble in others:
        made = made.with_ensemble(first, ensemble)
    return made


def test_the_last_fragment_of_an_open_ledger_is_not_settled():
    """Its end is its writer's affair; the ones before it end right below their successors."""
    metadata = ledger((0, [A, B, C]), (10, [A, B, D]))
    first, last = fragments_naming(metadata, {A})
    assert (first.first, first.last, first.settled, first.indexes) == (0, 9, True, (0,))
    assert (last.first, last.last, last.settled) == (10, None, False)
    assert fragments_naming(metadata, {E}) == []


def test_every_fragment_of_a_closed_ledger_is_settled_and_a_trailing_one_may_be_empty():
    """A trailing fragment ends before its first entry."""
    metadata = ledger((0, [A, B, C]), (10, [D, B, C])).closed(9, 100)
    held = fragments_naming(metadata, {D, C})
    assert [(each.first, each.last, each.indexes) for each in held] == [(0, 9, (2,)), (10, 9, (0, 2))]


def test_only_an_unclosed_ledger_whose_last_ensemble_names_it_depends_on_a_bookie():
    """Nothing else may ever be fenced for a repair."""
    metadata = ledger((0, [A, B, C]), (10, [D, B, C]))
    assert not writer_depends_on(metadata, {A})
    assert writer_depends_on(metadata, {D})
    assert writer_depends_on(metadata.recovering(), {D})
    assert not writer_depends_on(metadata.closed(12, 1), {D})


@pytest.mark.parametrize("seed", range(40))
def test_runs_agree_with_the_schedule_spelled_out(seed):
    """The slow twin asks each entry's write set."""
    random = Random(seed)
    ensemble = random.randint(1, 7)
    quorums = Quorums(ensemble, random.randint(1, ensemble), 1)
    first = random.randint(0, 1 << random.choice((4, 40)))
    last = first + random.randint(-1, 40)
    for index in range(ensemble):
        expected = [
            entry
            for entry in range(first, last + 1)
            if index in [(entry + step) % ensemble for step in range(quorums.write)]
        ]
        runs = list(runs_on(quorums, index, first, last))
        assert [start + i for start, count in runs for i in range(count)] == expected
        assert all(before[0] + before[1] < after[0] for before, after in pairwise(runs))
        assert count_on(quorums, index, first, last) == len(expected)


@given(st.integers(1, 5), st.data())
def test_what_is_missing_against_the_slow_way(ensemble: int, data: st.DataObject) -> None:
    """The ranges hold exactly the entries of the index that are not held, ascending, none twice."""
    quorums = Quorums(ensemble, data.draw(st.integers(1, ensemble)), 1)
    index = data.draw(st.integers(0, ensemble - 1))
    first, last = data.draw(st.integers(0, 10)), data.draw(st.integers(-1, 40))
    has = data.draw(st.sets(st.integers(0, 45)))
    runs: list[tuple[int, int]] = []
    for entry in sorted(has):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry, 1))
    held = availability.runs_of(availability.encode(runs))
    found = [
        entry
        for start, end in filter(None, missing(quorums, index, first, last, held))
        for run, count in runs_on(quorums, index, start, end)
        for entry in range(run, run + count)
    ]
    assert found == [entry for entry in range(first, last + 1) if quorums.has(entry, index) and entry not in has]


@pytest.mark.parametrize("striped", [False, True])
def test_what_is_missing_is_looked_for_in_many_turns(striped: bool) -> None:
    """A ledger of any length lets the others of its reactor work."""
    quorums = Quorums(3, 2, 2) if striped else Quorums(3, 3, 2)
    held = availability.encode(runs_on(Quorums(3, 2, 2), 0, 0, 29_999))
    found = list(missing(quorums, 0, 0, 30_000, availability.runs_of(held)))
    assert found.count(None) >= 10_000 // LOOKED_AT_ONCE
    if striped:
        assert [each for each in found if each is not None] == [(30_000, 30_000)]


@given(st.data(), st.integers(1, 5))
def test_what_is_given_up_is_left_out(data: st.DataObject, ensemble: int) -> None:
    """Against the slow way; ranges may reach over runs, gaps and both ends."""
    quorums = Quorums(ensemble, data.draw(st.integers(1, ensemble)), 1)
    index = data.draw(st.integers(0, ensemble - 1))
    edges = sorted(data.draw(st.sets(st.integers(0, 60), max_size=12)))
    gone = [(first, last - 1) for first, last in zip(edges[::2], edges[1::2], strict=False)]
    out = {entry for first, last in gone for entry in range(first, last + 1)}
    runs = list(runs_without(runs_on(quorums, index, 5, 50), gone))
    found = [entry for first, count in runs for entry in range(first, first + count)]
    assert found == [entry for entry in range(5, 51) if quorums.has(entry, index) and entry not in out]
    assert all(count > 0 for _first, count in runs)
