"""Copying one fragment: what lands where, from whom, in which order, and what happens when a bookie fails."""

from random import Random

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.client.handles.ledger_record import LedgerRecord
from quire.protocol.digest import HEADER
from quire.protocol.errors import Replication, UnclosedFragment
from quire.replication import replicas
from quire.replication.concurrently import Pace
from quire.replication.copier import Copied, FragmentCopier, Sources, TargetFailed, Unread, Wrong
from quire.replication.core.fragments import fragments_naming
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import DIGEST, bodies, closed, damage, left_open


def copier(cluster, ledger, lost, moved=lambda _step: None, place=0, dead=None, wrong=(), **options):
    """
    A copier for the `place`-th fragment that names a lost bookie; `dead`: those of the lost that can't be asked, by
    default all.
    """
    client = cluster.client(**options)
    record = LedgerRecord(cluster.store, ledger, cluster.succeed(cluster.store.read_ledger(ledger)))
    fragment = fragments_naming(record.metadata, lost)[place]
    return (
        FragmentCopier(client.pool, record, fragment, Sources(lost if dead is None else dead, wrong=wrong), moved),
        fragment,
        client,
    )


@pytest.mark.parametrize(
    ("ensemble", "write"), [(["b0", "b1", "b2"], 3), (["b0", "b1", "b2"], 2), (["b0", "b1", "b2", "b3", "b4"], 3)]
)
def test_exactly_what_the_lost_one_held_arrives_byte_for_byte(ensemble, write):
    """Digest, last add confirmed and length stay those of the writer."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: ensemble}, 199, write)
    steps: list[Copied] = []
    made, fragment, _ = copier(cluster, ledger, {"b1"}, steps.append)
    cluster.kill("b1")
    cluster.succeed(made.copy(fragment.indexes[0], "b5"))
    assert bodies(cluster, "b5", ledger) == bodies(cluster, "b1", ledger)
    assert sum(step.entries for step in steps) == len(bodies(cluster, "b1", ledger))
    assert sum(step.bytes for step in steps) == sum(map(len, bodies(cluster, "b1", ledger).values()))
    assert HEADER.unpack_from(bodies(cluster, "b5", ledger)[max(bodies(cluster, "b5", ledger))])[2] >= 190


def test_a_batch_is_a_few_requests(monkeypatch):
    """Never one request per entry: 1,000 entries in answers of about 100."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 999)
    made, fragment, client = copier(cluster, ledger, {"b1"})
    monkeypatch.setattr(made, "_reader", replicas.ReplicaReader(client.pool, ledger, DIGEST, 5000))
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert len(client.pool.asked) < 30
    assert len(bodies(cluster, "b3", ledger)) == 1000


def test_a_lost_bookie_is_never_read_from_though_it_answers():
    """Copies are made from the others only."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    made, fragment, client = copier(cluster, ledger, {"b1"})
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert {request.bookie for request in client.pool.asked} <= {"b0", "b2"}


@pytest.mark.parametrize("replaced", ["b0", "b1", "b2"])
def test_a_living_bookie_that_is_replaced_is_read_from_only_for_what_no_other_has(replaced):
    """It gives an entry that the others lack, and no other."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    made, fragment, client = copier(cluster, ledger, {replaced}, dead=())
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert replaced not in {request.bookie for request in client.pool.asked}
    for other in {"b0", "b1", "b2"} - {replaced}:
        del cluster.bookies[other].ledgers[ledger].entries[7]
    del cluster.bookies["b3"].ledgers[ledger]
    made, fragment, _ = copier(cluster, ledger, {replaced}, dead=())
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert bodies(cluster, "b3", ledger) == bodies(cluster, replaced, ledger)


def test_damage_and_gaps_of_one_survivor_are_filled_from_another_and_never_copied():
    """The new copy equals the lost one."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 50)
    damage(cluster, "b0", ledger, 10)
    damage(cluster, "b2", ledger, 11)
    del cluster.bookies["b0"].ledgers[ledger].entries[30]
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert bodies(cluster, "b3", ledger) == bodies(cluster, "b1", ledger)


@pytest.mark.parametrize("ensemble", [["b0", "b1", "b2"], ["b0", "b1", "b2", "b3"]])
def test_a_copy_that_is_called_wrong_is_not_copied_though_its_digest_holds(ensemble):
    """Of just the entries that are named; all others still come from any bookie."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ensemble}, 59)
    right = bodies(cluster, "b1", ledger)
    wrong = [Wrong("b0", 0, 0), Wrong("b0", 20, 23), Wrong("b2", 24, 24), Wrong("b2", 59, 59)]
    for bookie, first, last in wrong:
        stored = cluster.bookies[bookie].ledgers[ledger].entries
        for entry in set(range(first, last + 1)).intersection(stored):
            stored[entry] = DIGEST.entry(ledger, entry, entry - 1, 1 << 20, b"another")
    made, fragment, client = copier(cluster, ledger, {"b1"}, wrong=wrong)
    cluster.succeed(made.copy(fragment.indexes[0], "b4"))
    assert bodies(cluster, "b4", ledger) == right
    assert {request.bookie for request in client.pool.asked} == set(ensemble) - {"b1"}


def test_what_is_read_back_is_compared_with_what_was_sent():
    """A bookie that keeps a copy which it had before, its digest holding, is not a new one for the fragment."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 59)
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    index = fragment.indexes[0]
    cluster.succeed(made.copy(index, "b3"))
    cluster.succeed(made.verify(index, "b3"))
    cluster.bookies["b3"].ledgers[ledger].entries[30] = DIGEST.entry(ledger, 30, 29, 1 << 20, b"another")
    assert isinstance(cluster.fails(made.verify(index, "b3")), TargetFailed)


def test_a_survivor_that_is_down_is_passed_over():
    """All entries are copied from the other."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 50)
    cluster.kill("b0")
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    assert len(bodies(cluster, "b3", ledger)) == 51


def test_an_entry_that_no_bookie_has_is_named():
    """Replication (-200) with ledger, entry and survivors; the metadata is as it was."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    for name in ("b0", "b2"):
        del cluster.bookies[name].ledgers[ledger].entries[13]
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    error = cluster.fails(made.copy(fragment.indexes[0], "b3"))
    assert isinstance(error, Replication)
    for part in (f"ledger {ledger}", "entry 13", "b0, b2", "not stored there"):
        assert part in str(error)
    assert not cluster.writes[1:]


def test_when_all_holders_are_lost_it_says_so():
    """The error names the first entry without a source."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 5)
    made, fragment, _ = copier(cluster, ledger, {"b0", "b1", "b2"})
    error = cluster.fails(made.copy(fragment.indexes[0], "b3"))
    assert "every bookie that held entry 0 is lost" in str(error)


@pytest.mark.parametrize("fault", ["refused", "dies", "mute"])
def test_a_target_that_fails_is_distinguished_from_missing_data(fault):
    """Another bookie may be tried; the code says what happened."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    if fault == "refused":
        cluster.bookies["b3"].read_only = True
    elif fault == "dies":
        cluster.kill("b3")
    else:
        cluster.judge = lambda request: "drop" if request.bookie == "b3" else "pass"
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    error = cluster.fails(made.copy(fragment.indexes[0], "b3"))
    assert isinstance(error, TargetFailed)
    assert error.code == {"refused": -104, "dies": -8, "mute": -23}[fault]
    assert error.bookie == "b3"


def test_verifying_reads_back_what_the_new_bookie_stores():
    """A damaged copy raises `TargetFailed` with its code."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 20)
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    cluster.succeed(made.copy(fragment.indexes[0], "b3"))
    cluster.succeed(made.verify(fragment.indexes[0], "b3"))
    damage(cluster, "b3", ledger, 20)
    error = cluster.fails(made.verify(fragment.indexes[0], "b3"))
    assert isinstance(error, TargetFailed)
    assert error.code == -5


def test_the_last_fragment_of_an_unclosed_ledger_is_refused():
    """It belongs to its writer (-103)."""
    cluster = FakeCluster(4)
    ledger = left_open(cluster, {0: ["b0", "b1", "b2"]}, 5)
    with pytest.raises(UnclosedFragment):
        copier(cluster, ledger, {"b1"})


def test_an_empty_fragment_needs_no_copies():
    """No bookie is asked."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"], 5: ["b0", "b3", "b2"]}, 4)
    made, fragment, client = copier(cluster, ledger, {"b3"})
    cluster.succeed(made.copy(fragment.indexes[0], "b4"))
    assert not client.pool.asked


@pytest.mark.parametrize("seed", range(6))
def test_runs_that_are_read_at_the_same_time_ask_every_survivor(seed):
    """
    Of a striped ledger several runs are read at once, each with survivors of its own; which of them served last is no
    reason to ask one twice.
    """
    cluster = FakeCluster(6)
    rng = Random(seed)
    ensemble = ["b0", "b1", "b2", "b3"]
    ledger = closed(cluster, {0: ensemble}, 60, 3)
    for entry in range(61):
        survivors = [name for step in range(3) if (name := ensemble[(entry + step) % 4]) != "b0"]
        for name in rng.sample(survivors, len(survivors) - 1):
            del cluster.bookies[name].ledgers[ledger].entries[entry]
    made, fragment, _ = copier(cluster, ledger, {"b0"})
    cluster.succeed(made.copy(fragment.indexes[0], "b5"))
    assert sorted(bodies(cluster, "b5", ledger)) == sorted(bodies(cluster, "b0", ledger))


def test_it_keeps_its_pace():
    """What it reads takes as long as the pace allows, in striped ledgers, too."""
    for ensemble in (["b0", "b1", "b2"], ["b0", "b1", "b2", "b3", "b4"]):
        cluster = FakeCluster(6)
        ledger = closed(cluster, {0: ensemble}, 999)
        size = sum(map(len, bodies(cluster, "b1", ledger).values()))
        client = cluster.client()
        record = LedgerRecord(cluster.store, ledger, cluster.succeed(cluster.store.read_ledger(ledger)))
        (fragment,) = fragments_naming(record.metadata, ["b1"])
        pace = Pace(cluster.clock, size / 10)
        made = FragmentCopier(client.pool, record, fragment, Sources(["b1"]), lambda _step: None, pace=pace)
        began = cluster.clock.seconds()
        cluster.succeed(made.copy(fragment.indexes[0], "b5"))
        cluster.succeed(pace.turn())
        assert 9.9 <= cluster.clock.seconds() - began <= 11
        assert bodies(cluster, "b5", ledger) == bodies(cluster, "b1", ledger)


def test_a_copy_that_is_cut_while_it_stores_keeps_nothing_of_a_pace():
    """The next one to that bookie has its whole window, though an answer to this one never came."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1", "b2"]}, 299)
    cluster.judge = lambda request: "hold" if request.op == "recovery add" else "pass"
    client = cluster.client()
    record = LedgerRecord(cluster.store, ledger, cluster.succeed(cluster.store.read_ledger(ledger)))
    (fragment,) = fragments_naming(record.metadata, ["b1"])
    pace = Pace(client.reactor, None)
    made = FragmentCopier(client.pool, record, fragment, Sources(["b1"]), lambda _step: None, pace=pace)
    copying = Deferred.fromCoroutine(made.copy(fragment.indexes[0], "b3"))
    cut = cluster.outcome(copying)
    cluster.spin(0.5)
    assert cluster.held, "entries are under way"
    copying.cancel()
    assert isinstance(cut.error, CancelledError)
    lane = pace.stores("b3")

    async def one() -> int:
        return 1

    assert cluster.succeed(lane.ask(lane.bytes, one, lambda _: False), seconds=1) == 1


@pytest.mark.parametrize(("ensemble", "write"), [(["b0", "b1", "b2"], 3), (["b0", "b1", "b2", "b3"], 3)])
def test_what_is_before_an_entry_that_cant_be_read_is_stored(ensemble, write):
    """The error names that entry; the next try need not begin before it."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ensemble}, 99, write)
    entry = next(each for each in bodies(cluster, "b1", ledger) if each >= 50)
    for survivor in set(ensemble) - {"b1"}:
        if entry in bodies(cluster, survivor, ledger):
            damage(cluster, survivor, ledger, entry)
    made, fragment, _ = copier(cluster, ledger, {"b1"})
    error = cluster.fails(made.copy(fragment.indexes[0], "b4"))
    assert isinstance(error, Unread)
    assert error.entry == entry
    assert sorted(bodies(cluster, "b4", ledger)) == [each for each in bodies(cluster, "b1", ledger) if each < entry]
