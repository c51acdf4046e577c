"""
A fixed set of seeds, the ones that once found something, and the simulator's own honesty: same seed, same history; rare
cases are reached.
"""

from dataclasses import replace
from random import Random

import pytest

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from tests.metadata import stored
from tests.simulation.disk import SimDisk
from tests.simulation.history import History
from tests.simulation.plan import PROFILES, draw
from tests.simulation.replaying import replay
from tests.simulation.sweep import MIXED, shrink, sweep
from tests.simulation.timeline import Process, Timeline
from tests.simulation.truth import LedgerTruth, Truth, Violation

FIXED_SEEDS = range(4048, 4048 + len(MIXED))  # of each entry one; CI runs fresh ones for minutes

# Seeds that broke a promise once: (profile, seed).
REGRESSIONS = [("out of order", 795915560), ("restore", 795941257), ("repair", 795935580),
               ("mix", 8), ("mix", 143), ("mix", 245), ("mix", 290), ("mix", 499), ("mix", 520), ("mix", 576),
               ("power", 68), ("power", 96), ("tail", 2491),
               ("garbage", 16), ("surplus", 260), ("surplus", 486), ("everything", 343), ("everything", 1607),
               ("everything", 90003559),
               ("repair", 80001554), ("repair", 990002487), ("repair", 990002588),
               ("repair", 110003792), ("clocks", 795313241), ("clocks", 795400091), ("everything", 795391699),
               ("everything", 795397729), ("everything", 795413839), ("mix", 910005782), ("everything", 960004140),
               ("repair", 960006413), ("new index", 5071), ("new index", 5160),
               ("new index", 795318643), ("new index", 795324058), ("restore", 795361848),
               ("log takeover", 795373869), ("log late", 795398629),
               ("log cursors", 795480088), ("log producers", 795480296),
               ("log cursors", 795663038), ("log cursors", 795645643), ("log compact", 795657359),
               ("healing", 940260), ("healing", 1503965), ("healing limbo", 1503731),
               ("healing", 1608773), ("healing limbo", 1704902), ("healing limbo", 1701999),
               ("healing limbo", 500885), ("healing unseen", 5094), ("healing restarts", 7006),
               ("healing restarts", 795790054),
               ("drain faults", 5000302), ("drain faults", 5000760),
               ("mix", 795910720), ("returns", 795901217),
               ("returns", 795897765), ("returns", 795898727), ("messages import", 11),
               ("drain faults", 796085830)]  # fmt: skip
LATER = [("log end", 797002287), ("log end", 797005187), ("messages import", 797003499)]
LATER += [("log mirror", seed) for seed in (796053948, 796054445, 796054589, 796070127, 796070563, 796081567)]


def test_a_fixed_set_of_seeds_breaks_nothing():
    """No invariant is violated, and the histories reach all cases that matter."""
    result = sweep(FIXED_SEEDS)
    assert not result.broken, "\n".join(f"{plan}: {violation}" for plan, violation in result.broken)
    assert result.histories == len(FIXED_SEEDS)
    reached = {case for case, times in result.seen.items() if times}
    assert {
        "ensemble change",
        "closed by a recovery",
        "two recoverers",
        "limbo answer",
        "torn write",
        "conflict on close",
        "journal replayed",
    } <= reached
    assert {
        "fragment repaired",
        "every entry on its whole write quorum",
        "deleted ledger collected",
        "superfluous copy dropped",
        "limbo ended",
    } <= reached
    assert {"log: log taken over", "log: batch published", "log: log read", "log: log trimmed"} <= reached


@pytest.mark.parametrize(("profile", "seed"), REGRESSIONS)
def test_what_was_broken_once_is_whole(profile, seed):
    """Seeds that found a violation in the past, when all news came at once, find none."""
    _history, violation = replay(replace(draw(PROFILES[profile], seed), pace=0.0))
    assert violation is None


@pytest.mark.parametrize(("profile", "seed"), LATER)
def test_what_was_broken_by_late_news_is_whole(profile, seed):
    """Seeds that found a violation since, with the pace that they draw, find none."""
    _history, violation = replay(draw(PROFILES[profile], seed))
    assert violation is None


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_seed_is_one_history(profile):
    """Everything that happens follows from the seed: two runs are the same to the last event."""
    plan = draw(PROFILES[profile], 5)
    assert plan == draw(PROFILES[profile], 5)
    first, second = replay(plan, trace=True)[0], replay(plan, trace=True)[0]
    assert first.trace == second.trace
    assert first.world.timeline.events == second.world.timeline.events
    assert first.world.truth.seen == second.world.truth.seen


def test_a_copy_that_is_missing_after_the_quiet_is_seen():
    """Checker 5 asks the bookies' storages; nothing that the cluster says of itself would do."""
    history = History(draw(PROFILES["repair"], 1))
    history.run()
    lines = [line for line in history.lines if line.settled]
    history.upkeep.audit(lines, "whole")
    ledger = max(
        (line.truth.id for line in lines), key=lambda each: stored.Ledgers(history.world.shared)[each].value.last_entry
    )
    metadata = stored.Ledgers(history.world.shared)[ledger].value
    assert metadata.last_entry >= 0
    holder = next(bookie for bookie in history.bookies if bookie.id == metadata.ensemble_at(0)[0])
    holder.drop_unseen(ledger)
    with pytest.raises(Violation, match=rf"({holder.name}|{holder.id}) sa(ys|id) ENOENTRY for entry 0"):
        history.upkeep.audit(lines, "whole")


def test_shrinking_keeps_what_is_needed(monkeypatch):
    """A promise that one kind of step breaks shrinks to that step."""
    plan = next(
        plan
        for plan in (draw(PROFILES["change"], seed) for seed in range(100))
        if [step.kind for step in plan.steps].count("cut") == 1
    )

    def broken(wanted, trace=False):
        return None, Violation("test", "cut") if any(step.kind == "cut" for step in wanted.steps) else None

    monkeypatch.setattr("tests.simulation.sweep.replay", broken)
    assert [step.kind for step in shrink(plan, Violation("test", "cut")).steps] == ["cut"]


def test_a_paused_process_does_everything_later_and_a_dead_one_nothing():
    """Timers fire when the pause ends, and never after death."""
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


def test_a_clock_that_is_set_moves_what_waits_for_it_and_nothing_else():
    """Its process's timers move; answers and other processes do not."""
    timeline = Timeline()
    process, other = Process(timeline, "a"), Process(timeline, "b")
    done = []
    process.callLater(10.0, done.append, "timer")
    process.call_by_the_world(5.0, done.append, "answer")
    other.callLater(7.0, done.append, "other")
    before = process.seconds()
    process.set_clock(-100.0)
    assert process.seconds() == before - 100.0
    timeline.run(20.0)
    assert done == ["answer", "other"]
    process.set_clock(0.0)
    timeline.run(0.0)
    assert done == ["answer", "other", "timer"]
    process.callLater(3600.0, done.append, "early")
    process.set_clock(4000.0)
    timeline.run(0.0)
    assert done[-1] == "early"
    process.set_clock(1.0)
    assert process.clock_ahead == 4000.0


def test_a_day_asleep_changes_no_order():
    """Timers and events fire in order after the jump of time."""
    timeline = Timeline()
    process = Process(timeline, "a")
    done = []
    process.callLater(1.0, done.append, 1)
    timeline.at(2.0, lambda: done.append(2))
    timeline.asleep(86_400.0)
    assert timeline.now == 86_400.0
    timeline.run(1.5)
    assert done == [1]
    timeline.run(1.0)
    assert done == [1, 2]


def test_a_power_loss_keeps_what_was_synced_and_may_tear_the_rest():
    """Each sector has its old or its new bytes, in all combinations."""
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
    """Without a sync of the directory a new file exists for some seeds only."""
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
    """A bookie that lacks what it synced violates "durable", and later violations do not replace it."""
    truth = Truth()
    truth.ledgers[0] = LedgerTruth(0, (3, 3, 2), "w0", deferred=False)
    truth.fence_said("b0", 0)
    assert truth.violation is None
    truth.ledgers[0].kept[1] = {"b0"}
    truth.came_back("b0", 0, {1}, set(), fence_lost=False, synced=True)
    truth.came_back("b0", 0, set(), set(), fence_lost=True, synced=True)
    assert truth.violation is not None
    assert truth.violation.invariant == "durable"


def closed_truth():
    """Ledger 0, closed behind entry 1, three copies of each; what bookies b0 to b2 have."""
    truth = Truth()
    truth.ledgers[0] = ledger = LedgerTruth(0, (3, 3, 2), "w0", deferred=False)
    metadata = LedgerMetadata.new(3, 3, 2, ("b0", "b1", "b2")).closed(1, 2)
    ledger.kept = {entry: {"b0", "b1", "b2", "b3"} for entry in range(2)}
    return truth, ledger, metadata


def broken_by(truth):
    return None if truth.violation is None else truth.violation.invariant


@pytest.mark.parametrize(
    ("lacking", "invariant"),
    [(None, None), ("kept", "surplus"), ("lost", "surplus"), ("open", "surplus"), ("named", "surplus")],
)
def test_a_superfluous_copy_may_go_only_when_all_others_are_there(lacking, invariant):
    """A drop without them, of an open ledger or by a named bookie is a violation."""
    truth, ledger, metadata = closed_truth()
    if lacking == "kept":
        ledger.kept[1].discard("b1")
    elif lacking == "lost":
        truth.disk_lost("b1", 5.0)
    elif lacking == "open":
        metadata = LedgerMetadata.new(3, 3, 2, ("b0", "b1", "b2"))
    truth.dropped("b0" if lacking == "named" else "b3", 0, metadata, 10.0)
    assert broken_by(truth) == invariant


def test_a_deleted_ledger_stays_deleted_and_only_such_a_one_is_collected():
    """Metadata that returns and entries of a living ledger that go are violations."""
    truth, _ledger, metadata = closed_truth()
    truth.forgotten("b0", 0, None)
    assert broken_by(truth) is None
    truth.metadata_deleted(0)
    truth.metadata_written(0, None, Versioned(metadata, 0))
    assert broken_by(truth) == "deleted"
    truth, _ledger, metadata = closed_truth()
    truth.forgotten("b0", 0, metadata)
    assert broken_by(truth) == "garbage"


@pytest.mark.parametrize(("bookie", "invariant"), [("b3", None), ("b4", "repair")])
def test_a_repair_names_only_who_has_everything(bookie, invariant):
    """Naming a bookie that lacks an entry is a violation."""
    truth, _ledger, metadata = closed_truth()
    after = metadata.replace_bookies(0, ("b0", bookie, "b2"))
    truth.metadata_written(0, Versioned(metadata, 1), Versioned(after, 2), "x1")
    assert broken_by(truth) == invariant


def test_a_repair_leaves_what_is_still_written_alone():
    """A change of an open ledger's last fragment by a repair is a violation."""
    truth, _ledger, _metadata = closed_truth()
    before = LedgerMetadata.new(3, 3, 2, ("b0", "b1", "b2"))
    after = before.replace_bookies(0, ("b0", "b3", "b2"))
    truth.metadata_written(0, Versioned(before, 1), Versioned(after, 2), "x1")
    assert broken_by(truth) == "repair"


@pytest.mark.parametrize("lost", ["disk", "directory"])
@pytest.mark.parametrize(
    ("then", "invariant"),
    [("nothing", "repair"), ("stored", None), ("limbo", None), ("replaced", None), ("another", None), ("crash", None)],
)
def test_a_repair_sees_to_it_that_whom_it_named_has_its_share(lost, then, invariant):
    """
    Also one that lost its disk between the copy and the metadata; unless it knows that itself, or has nothing to do
    with it any more.
    """
    truth, _ledger, metadata = closed_truth()
    if lost == "disk":
        truth.disk_lost("b3", 5.0)
    else:
        truth.came_back("b3", 0, {0, 1}, set(), fence_lost=False, synced=True, given_up=metadata, now=5.0)
    after = metadata.replace_bookies(0, ("b0", "b3", "b2"))
    truth.metadata_written(0, Versioned(metadata, 1), Versioned(after, 2), "x1")
    truth.answered("b3", 0, 1, Status.ENOENTRY, had=True, limbo=False, metadata=after)
    assert broken_by(truth) is None
    if then == "stored":
        truth.stored("b3", AddRun(0, 0, [bytes(40), bytes(40)], b""))
    known = {"replaced": metadata, "crash": None}.get(then, after)
    truth.repair_ended("x2" if then == "another" else "x1", truth.ledgers[0], known, ["b3"] if then == "limbo" else [])
    assert broken_by(truth) == invariant
    if then == "crash":
        truth.answered("b3", 0, 1, Status.ENOENTRY, had=True, limbo=False, metadata=after)
        assert broken_by(truth) == "no false negative", "nothing looks after it any more"


@pytest.mark.parametrize(
    ("bookie", "failed", "invariant"), [("b3", True, None), ("b3", False, "durable"), ("b0", True, "durable")]
)
def test_a_directory_that_failed_may_lack_what_belongs_to_others_only(bookie, failed, invariant):
    """And what it still has it must go on having: after the next start it lacks nothing more."""
    truth, ledger, metadata = closed_truth()
    given_up = metadata if failed else None
    truth.came_back(bookie, 0, {1}, set(), fence_lost=False, synced=True, given_up=given_up)
    assert broken_by(truth) == invariant
    assert (1, bookie) in ledger.lost or bookie not in ledger.kept[1]
    if invariant is None:
        truth.came_back(bookie, 0, {0}, set(), fence_lost=False, synced=True)
        assert broken_by(truth) == "durable"


@pytest.mark.parametrize(("limbo", "invariant"), [(False, None), (True, "no false negative")])
def test_whom_a_repair_replaced_may_say_no_unless_it_doubts_itself(limbo, invariant):
    """ "No such entry" from a bookie that is in limbo is a violation."""
    truth, _ledger, metadata = closed_truth()
    truth.disk_lost("b3", 5.0)
    truth.answered("b3", 0, 1, Status.ENOENTRY, had=True, limbo=limbo, metadata=metadata)
    assert broken_by(truth) == invariant


def test_limbo_ends_with_everything():
    """The end of limbo without an acknowledged entry is a violation."""
    for held, invariant in (({0, 1}, None), ({0}, "limbo")):
        truth, ledger, metadata = closed_truth()
        truth.limbo_ended("b0", 0, held, metadata)
        assert broken_by(truth) == invariant
        assert ("b0" in ledger.kept[1]) == (1 in held or invariant is not None)
