"""A fixed set of seeds, the ones that once found something, and the simulator's own honesty: same seed, same history; rare cases are reached."""

from random import Random

import pytest

from tests.simulation.disk import SimDisk
from tests.simulation.history import replay
from tests.simulation.plan import PROFILES, draw
from tests.simulation.sweep import shrink, sweep
from tests.simulation.timeline import Process, Timeline
from tests.simulation.truth import LedgerTruth, Truth, Violation

FIXED_SEEDS = range(260)  # twenty of each entry of sweep.MIXED

# Seeds that broke a promise once: (profile, seed).
REGRESSIONS = [("mix", 8), ("mix", 143), ("mix", 245), ("mix", 290), ("mix", 499), ("mix", 520), ("mix", 576), ("power", 68), ("power", 96), ("tail", 2491)]


def test_a_fixed_set_of_seeds_breaks_nothing():
    result = sweep(FIXED_SEEDS)
    assert not result.broken, "\n".join(f"{plan}: {violation}" for plan, violation in result.broken)
    assert result.histories == len(FIXED_SEEDS)
    reached = {case for case, times in result.seen.items() if times}
    assert {"ensemble change", "closed by a recovery", "two recoverers", "limbo answer", "torn write", "conflict on close", "journal replayed"} <= reached


@pytest.mark.parametrize(("profile", "seed"), REGRESSIONS)
def test_what_was_broken_once_is_whole(profile, seed):
    _history, violation = replay(draw(PROFILES[profile], seed))
    assert violation is None


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_seed_is_one_history(profile):
    """Everything that happens follows from the seed: two runs tell the same story to the last event."""
    plan = draw(PROFILES[profile], 5)
    assert plan == draw(PROFILES[profile], 5)
    first, second = replay(plan, trace=True)[0], replay(plan, trace=True)[0]
    assert first.trace == second.trace
    assert first.world.timeline.events == second.world.timeline.events
    assert first.world.truth.seen == second.world.truth.seen


def test_shrinking_keeps_what_is_needed(monkeypatch):
    """A promise that one kind of step breaks shrinks to that step."""
    plan = next(plan for plan in (draw(PROFILES["change"], seed) for seed in range(100)) if [step.kind for step in plan.steps].count("cut") == 1)

    def broken(wanted, trace=False):
        return None, Violation("test", "cut") if any(step.kind == "cut" for step in wanted.steps) else None

    monkeypatch.setattr("tests.simulation.sweep.replay", broken)
    assert [step.kind for step in shrink(plan, Violation("test", "cut")).steps] == ["cut"]


def test_a_paused_process_does_everything_later_and_a_dead_one_nothing():
    timeline = Timeline()
    process = Process(timeline, "a")
    done = []
    process.callLater(0.1, done.append, 1)
    process.pause(1.0)
    timeline.run(0.5)
    assert done == []
    timeline.run(0.6)
    assert done == [1]
    process.callLater(0.1, done.append, 2)
    process.alive = False
    timeline.run(1.0)
    assert done == [1]


def test_a_power_loss_keeps_what_was_synced_and_may_tear_the_rest():
    fates = set()
    for seed in range(40):
        disk = SimDisk()
        handle = disk.open("/d/file", create=True)
        disk.write(handle, [b"a" * 1024], 0)
        disk.sync(handle)
        disk.sync_directory("/d")
        disk.write(handle, [b"b" * 1024], 0)
        disk.power_lost(Random(seed))
        data = disk.read_file("/d/file")
        assert data is not None
        assert len(data) == 1024
        assert set(data) <= set(b"ab")
        fates.add(data[:1] + data[512:513])
    assert fates == {b"aa", b"ab", b"ba", b"bb"}


def test_a_name_that_was_not_synced_may_be_gone():
    found = set()
    for seed in range(20):
        disk = SimDisk()
        handle = disk.open("/d/file", create=True)
        disk.write(handle, [b"x"], 0)
        disk.sync(handle)
        disk.power_lost(Random(seed))
        found.add(disk.exists("/d/file"))
    assert found == {True, False}


def test_the_first_broken_promise_is_kept():
    truth = Truth()
    truth.ledgers[0] = LedgerTruth(0, (3, 3, 2), "w0", deferred=False)
    truth.fence_said("b0", 0)
    assert truth.violation is None
    truth.ledgers[0].kept[1] = {"b0"}
    truth.came_back("b0", 0, {1}, set(), fence_lost=False, synced=True)
    truth.came_back("b0", 0, set(), set(), fence_lost=True, synced=True)
    assert truth.violation is not None
    assert truth.violation.invariant == "durable"
