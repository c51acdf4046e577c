"""Which fragments name a bookie and which entries they put on it, against the schedule spelled out."""

from itertools import pairwise
from random import Random

import pytest

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.fragments import count_on, fragments_naming, runs_on, writer_depends_on

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
