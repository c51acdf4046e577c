"""Guards taken away: each mutant still finds its guard, the quickest are caught here, all of them by `make mutants`."""

import pytest

from quire.client.core.quorum import Quorums
from tests.simulation.guards import Edit, Mutant
from tests.simulation.mutants import MUTANTS, hunt, hunted
from tests.simulation.plan import PROFILES

# And the seed to begin with: the first that caught it, where others before it take time.
QUICK = {
    "a stale edit of the metadata is written all the same": 0,
    "nothing is sent again to a replacement": 0,
    "replica indexes are computed in 32 bits": 0,
    "a fence is not written to the journal": 0,
    "adds are acknowledged before the sync": 0,
    "a checkpoint does not sync what it stored": 0,
    "a bookie in limbo says no": 0,
    "the metadata names a bookie before its copies are complete": 0,
    "compaction does not sync the new log": 0,
    "a superfluous copy goes with its fence": 9,
    "a fenced owner sends again what is in its ledger": 35,
    "a commit ignores the abort of its run": 29,
    "lost bookies that were back unseen are marked no more": 4,
    "an entry that is encoded again takes nothing back": 2,
    "a ready store takes published ledgers": 0,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_guard_stands_where_its_mutant_takes_it_away(mutant):
    """Each mutant changes the code of its functions, and restores it."""
    functions = [edit.function() for edit in mutant.edits]
    before = [function.__code__ for function in functions]
    with mutant.applied():
        assert all(function.__code__ is not code for function, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before
    assert mutant.profile in PROFILES


@pytest.mark.parametrize("name", QUICK)
def test_a_guard_that_is_taken_away_is_missed(name):
    """Some seed finds a violation within 200 histories."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    seeds, _invariant = hunted(mutant, 200, QUICK[name])
    assert seeds


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant):
    """A violation is found for each mutant within the maximum of seeds."""
    assert hunted(mutant)[0]


def test_a_guard_that_moved_is_an_error():
    """A text that is not in the function raises `AssertionError`."""
    moved = Mutant(
        "moved", "", "change", (Edit("quire.client.core.quorum:Quorums.absent", "a text that stands nowhere", ""),)
    )
    with pytest.raises(AssertionError, match="stands there 0 times"), moved.applied():
        pass


def test_a_mutant_changes_what_the_code_does_and_no_more_afterwards():
    """Its function behaves otherwise inside the block only."""
    mutant = next(mutant for mutant in MUTANTS if mutant.guard == "protocol-rules.md 1.3, S7")
    with mutant.applied():
        assert Quorums(3, 3, 2).absent == 1
    assert Quorums(3, 3, 2).absent == 2


def test_a_hunt_prints_a_row_for_each_name_in_the_order_of_the_table(capfd):
    """Two processes share the names; a name that is none ends it before it begins."""
    names = ["a superfluous copy goes with its fence", "adds are acknowledged before the sync"]
    assert hunt(names, 2) == 0
    rows = capfd.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in reversed(names)]
    with pytest.raises(SystemExit, match="no mutant is called 'nothing'"):
        hunt(["nothing"], 2)
