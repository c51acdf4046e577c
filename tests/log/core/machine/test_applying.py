"""A replica's machine: records are applied in order, each once, however they come."""

from itertools import product
from random import Random

import pytest

from quire.log.core.machine import applying_messages as m
from quire.log.core.machine.applying import NEAR, TABLE, UNAPPLIED_BYTES_MAX, Applying, State
from quire.log.core.values import Snapshot
from quire.protocol.errors import BookieHandleNotAvailable
from quire.protocol.log_errors import ApplyFailed, SegmentLost, SnapshotDamaged

# SPDX-License-Identifier: Apache-2.0

FAILED = ApplyFailed("it raised")


def snapshot(index, ledger):
    return Snapshot(index, ledger, 10, 1, 5, "chain/1", 3)


def given(first, count, size=1):
    return m.Given(first, count, count * size, None)


def at(state):
    """A machine in that state, which has applied 10 records and leads where it can."""
    machine = Applying("orders", snapshot_records=100)
    if state is State.LOADING:
        return machine
    machine.handle(m.Listed((snapshot(10, 50),), 4))
    machine.handle(m.Loaded(10))
    if state is State.OUT:
        machine.handle(m.Close())
    elif state is State.STOPPED:
        machine.handle(m.ApplyRaised(10, FAILED))
    elif state is State.LIVE:
        machine.handle(m.Ends(10))
    assert machine.state is state
    return machine


def test_what_others_can_cause_is_legal_everywhere():
    """The log's owner, its edits, the user and the clock: whatever the state."""
    for state, kind in product(
        State, (m.Own, m.Leads, m.Follows, m.SaveAsked, m.Saved, m.SaveFailed, m.Again, m.Close)
    ):
        assert (state, kind) not in TABLE.illegal


@pytest.mark.parametrize("state", State)
def test_every_row_of_a_state_can_be_taken(state):
    """None raises."""
    inputs = [
        *(m.Begin(), m.Listed((), 0), m.Loaded(10), m.LoadFailed(50, "cut", damaged=True), m.Ends(10)),
        *(m.Read(given(10, 5)), m.Own(given(10, 5)), m.Applied(10), m.ApplyRaised(10, FAILED), m.Trimmed()),
        *(m.ReadFailed(FAILED, final=True), m.Grown(10), m.Leads(3, 10, 10), m.Follows(), m.SaveAsked(), m.Saved(10)),
        *(m.SaveFailed(), m.Again(), m.Close()),
    ]
    assert {type(each) for each in inputs} == set(TABLE.inputs)
    for each in inputs:
        if (state, type(each)) in TABLE.rows:
            at(state).handle(each)


def test_the_newest_snapshot_is_loaded_and_what_follows_is_read():
    """Then it is live within 1,000 records of the end."""
    machine = Applying("orders")
    assert machine.handle(m.Begin()) == [m.Look()]
    kept = snapshot(5, 7), snapshot(9, 8)
    assert machine.handle(m.Listed(kept, 3)) == [m.Load(kept[1])]
    assert machine.handle(m.Loaded(9)) == [m.ReadFrom(9)]
    assert machine.handle(m.Ends(10_000)) == []
    assert machine.handle(m.Read(given(9, 9991))) == [m.Apply(given(9, 9991), 0)]
    machine.handle(m.Applied(10_000 - NEAR - 1))
    assert machine.state is State.REPLAYING
    machine.handle(m.Applied(10_000 - NEAR))
    assert machine.state is State.LIVE


def test_a_damaged_snapshot_is_passed_over():
    """The one before; without any, the log from its first record; where that is gone, it stops, naming them."""
    machine = Applying("orders")
    kept = snapshot(5, 7), snapshot(9, 8)
    machine.handle(m.Listed(kept, 0))
    assert machine.handle(m.LoadFailed(8, "cut", damaged=True)) == [m.Look()]
    assert machine.handle(m.Listed(kept, 0)) == [m.Load(kept[0])]
    machine.handle(m.LoadFailed(7, "gone", damaged=True))
    assert machine.handle(m.Listed(kept, 0)) == [m.Load(None)]
    machine.handle(m.LoadFailed(9, "as if", damaged=True))
    (stop,) = machine.handle(m.Listed(kept, 1))
    assert isinstance(stop.error, SnapshotDamaged)
    assert machine.state is State.STOPPED
    for part in (
        "index 5, ledger 7: gone",
        "index 9, ledger 8: cut",
        "begins at index 1",
        "quire log snapshots orders",
    ):
        assert part in str(stop.error)


def test_snapshots_whose_bookies_are_away_are_tried_again():
    """The one before first, then after a pause all of them; a damaged one no more."""
    machine = Applying("orders")
    kept = snapshot(5, 7), snapshot(9, 8)
    machine.handle(m.Listed(kept, 3))
    machine.handle(m.LoadFailed(8, "no answer", damaged=False))
    machine.handle(m.Listed(kept, 3))
    machine.handle(m.LoadFailed(7, "cut", damaged=True))
    (wait,) = machine.handle(m.Listed(kept, 3))
    assert isinstance(wait, m.Wait)
    assert machine.handle(m.Again()) == [m.Look()]
    assert machine.handle(m.Listed(kept, 3)) == [m.Load(kept[1])]


def test_a_snapshot_that_goes_while_it_is_loaded():
    """A newer one is loaded; the operator is told after the third."""
    machine = Applying("orders")
    told = []
    for number in range(1, 6):
        told += machine.handle(m.Listed((snapshot(number * 10, number),), number * 10))
        machine.handle(m.LoadFailed(number, "gone", damaged=True))
    complaints = [each for each in told if isinstance(each, m.Complain)]
    assert [each for each in told if isinstance(each, m.Load)] == [
        m.Load(snapshot(number * 10, number)) for number in range(1, 6)
    ]
    assert len(complaints) == 1
    assert "snapshot_records" in complaints[0].text


def test_a_snapshot_without_its_tail_is_none():
    """The log begins above it."""
    machine = Applying("orders")
    (stop,) = machine.handle(m.Listed((snapshot(5, 7),), 6))
    assert isinstance(stop.error, SnapshotDamaged)


def test_what_the_owner_gives_is_not_read():
    """From the first record on that follows what was read; where there is a gap it is read, and the owner's wait."""
    machine = at(State.LIVE)
    machine.handle(m.Leads(3, 12, 10))
    assert machine.handle(m.Own(given(12, 3))) == []
    assert machine.handle(m.Read(given(10, 2))) == [m.Apply(given(10, 2), 0), m.Apply(given(12, 3), 0), m.Rest()]
    assert machine.handle(m.Own(given(15, 1))) == [m.Apply(given(15, 1), 0)]
    assert machine.handle(m.Grown(16)) == []
    assert machine.handle(m.Own(given(20, 1))) == [m.ReadFrom(16)]
    assert machine.handle(m.Own(given(21, 1))) == []
    assert machine.handle(m.Read(given(16, 5))) == [m.Apply(given(16, 5), 0), m.Rest(), m.Apply(given(21, 1), 0)]
    assert machine.handle(m.Grown(30)) == [m.ReadFrom(22)]
    assert machine.handle(m.Grown(31)) == []
    assert machine.handle(m.Own(given(22, 1))) == [m.Apply(given(22, 1), 0), m.Rest()]
    assert machine.handle(m.Follows()) == [m.ReadFrom(23)]
    assert machine.handle(m.Own(given(23, 1))) == [m.Apply(given(23, 1), 0)]


def test_what_is_not_applied_yet_is_bounded():
    """Of what the owner gives no more is taken than the bound; the rest is read when there is room."""
    machine = at(State.LIVE)
    machine.handle(m.Leads(3, 10, 10))
    machine.handle(m.Own(given(10, 1, UNAPPLIED_BYTES_MAX + 1)))
    assert machine.resting
    assert machine.handle(m.Own(given(11, 1))) == [m.ReadFrom(11)]
    machine.handle(m.Applied(11))
    assert machine.unapplied == 0
    assert machine.handle(m.Own(given(20, 1, UNAPPLIED_BYTES_MAX))) == []
    assert machine.handle(m.Own(given(21, 1))) == []
    assert machine.handle(m.Read(given(11, 9))) == [m.Apply(given(11, 9), 0)]  # 20 was not kept


def test_roles():
    """It leads once it has applied what was before its epoch, and follows when it lost the log, or was closed."""
    machine = at(State.LIVE)
    assert machine.handle(m.Leads(3, 12, 10)) == []
    assert machine.role is m.Role.FOLLOWING
    machine.handle(m.Read(given(10, 2)))
    assert machine.handle(m.Applied(12)) == [m.Play(m.Role.LEADING, 3)]
    assert machine.handle(m.Follows()) == [m.Play(m.Role.FOLLOWING, 3)]
    assert machine.handle(m.Leads(5, 12, 10)) == [m.Play(m.Role.LEADING, 5)]
    assert machine.handle(m.Close()) == [m.Play(m.Role.FOLLOWING, 5), m.Stop(None)]
    assert machine.handle(m.Close()) == []


def test_snapshots_are_due():
    """Where it leads, so many records after the newest; on request anywhere; one at a time; again if one fails."""
    machine = at(State.LIVE)
    machine.handle(m.Read(given(10, 1000)))
    assert machine.handle(m.Applied(200)) == []
    assert machine.handle(m.SaveAsked()) == [m.Save()]
    assert machine.handle(m.SaveAsked()) == []
    assert machine.handle(m.Saved(200)) == [m.Save()]
    assert machine.handle(m.Saved(200)) == []
    assert machine.handle(m.Leads(3, 12, 150)) == [m.Play(m.Role.LEADING, 3)]
    assert machine.handle(m.Applied(299)) == []
    assert machine.handle(m.Applied(300)) == [m.Save()]
    assert machine.handle(m.SaveFailed()) == []
    assert machine.handle(m.Applied(309)) == []
    assert machine.handle(m.Applied(310)) == [m.Save()]
    assert machine.handle(m.Applied(500)) == []
    assert machine.handle(m.Saved(310)) == [m.Save()]


def test_a_snapshot_that_is_asked_for_while_it_loads_is_made_then():
    """Of what is applied first."""
    machine = Applying("orders")
    machine.handle(m.Listed((), 0))
    assert machine.handle(m.SaveAsked()) == []
    assert machine.handle(m.Loaded(0)) == [m.ReadFrom(0)]
    assert machine.handle(m.Ends(0)) == [m.Save()]


def test_an_apply_that_raises_ends_it():
    """At that index, for good; what comes is not applied."""
    machine = at(State.LIVE)
    machine.handle(m.Leads(3, 10, 10))
    machine.handle(m.Read(given(10, 5)))
    assert machine.handle(m.ApplyRaised(12, FAILED)) == [m.Play(m.Role.FOLLOWING, 3), m.Stop(FAILED)]
    assert (machine.state, machine.applied, machine.error) == (State.STOPPED, 12, FAILED)
    assert machine.handle(m.Own(given(15, 1))) == []


def test_a_log_that_was_trimmed_above_it():
    """It begins again from a snapshot, and follows; what it owned it gives back, and leads in another epoch only."""
    machine = at(State.LIVE)
    machine.handle(m.Leads(3, 10, 10))
    machine.handle(m.Read(given(10, 5)))
    assert machine.handle(m.Trimmed()) == [m.Play(m.Role.FOLLOWING, 3), m.GiveBack(), m.Look()]
    machine.handle(m.Listed((snapshot(50, 9),), 40))
    assert machine.handle(m.Loaded(50)) == [m.ReadFrom(50)]
    assert machine.handle(m.Ends(50)) == []
    assert machine.handle(m.Follows()) == []
    assert machine.handle(m.Leads(4, 51, 50)) == []
    assert machine.handle(m.Read(given(50, 1))) == [m.Apply(given(50, 1), 0)]
    assert machine.handle(m.Applied(51)) == [m.Play(m.Role.LEADING, 4)]
    follower = at(State.LIVE)
    assert follower.handle(m.Trimmed()) == [m.Look()]


def test_a_read_that_fails():
    """Is tried again after a pause, from where it was; not where that can't help."""
    machine = at(State.LIVE)
    machine.handle(m.Read(given(10, 5)))
    (wait,) = machine.handle(m.ReadFailed(BookieHandleNotAvailable("b1"), final=False))
    assert isinstance(wait, m.Wait)
    assert machine.handle(m.Again()) == [m.ReadFrom(15)]
    assert machine.handle(m.Again()) == []
    lost = SegmentLost("gone")
    assert machine.handle(m.ReadFailed(lost, final=True)) == [m.Stop(lost)]


def test_records_from_both_ways():
    """A reader that is restarted, an owner with gaps: all are given in order, each once."""
    for seed in range(300):
        rng, machine = Random(seed), Applying("orders", snapshot_records=7)
        machine.handle(m.Listed((), 0))
        found, reading, owner = [], None, 0
        pending = machine.handle(m.Loaded(0))
        for _ in range(200):
            kind, count = rng.randrange(5), rng.randint(1, 5)
            if kind == 0 and reading is not None and reading < owner:
                count = min(count, owner - reading)
                pending += machine.handle(m.Read(given(reading, count)))
                reading += count
            elif kind == 1:
                pending += machine.handle(m.Own(given(owner, count)))
                owner += count
            elif kind == 2:
                owner += count  # published by another one
                pending += machine.handle(m.Grown(owner))
            elif kind == 3:
                pending += machine.handle(m.Applied(rng.randint(machine.applied, machine.given)))
            elif kind == 4:
                leads = rng.choice([m.Leads(1, machine.applied, 0), m.Follows(), m.Saved(machine.applied)])
                pending += machine.handle(leads)
            for effect in pending:
                if isinstance(effect, m.Apply):
                    found += range(effect.given.first + effect.skip, effect.given.end)
                elif isinstance(effect, m.ReadFrom):
                    reading = effect.index
                elif isinstance(effect, m.Rest):
                    reading = None
            pending = []
        assert found == list(range(len(found)))
        assert machine.given == len(found)
        assert len(found) > 100 or reading is not None
