"""Decommissioning: every ledger is freed from the bookie before its cookie goes, and what refuses that."""

import pytest
from twisted.internet.defer import Deferred

from quire.metadata.bookies.drain_orders import DrainOrders
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.retired_ids import retired
from quire.metadata.store import CookieNotFound, ServiceInfo
from quire.protocol.errors import IllegalOp, NotEnoughBookies, Replication
from quire.replication.checker import check_ledger
from quire.replication.decommission import OBEYED_S, decommission, drain, undo
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.stories import closed, cookie, is_whole, left_open
from tests.replication.test_lost_bookies import THREE, lose, naming


def test_decommissioning_frees_every_ledger_and_removes_the_cookie():
    """No metadata names the bookie, and all ledgers are complete."""
    cluster = FakeCluster(6)
    ledgers = [
        closed(cluster, {0: THREE}, 20),
        left_open(cluster, {0: THREE}, 5),
        closed(cluster, {0: ["b0", "b2", "b3"]}, 4),
    ]
    cookie(cluster, "b1")
    cookie(cluster, "b2")
    lose(cluster, "b1")
    client = cluster.client()
    done = cluster.succeed(decommission(client, "b1"))
    assert done.complete
    assert naming(cluster, "b1") == []
    assert all(cluster.succeed(check_ledger(client, ledger)).complete for ledger in ledgers)
    assert cluster.succeed(cluster.store.cookies()) == ["b2"]
    assert "decommissioned at" in str(cluster.succeed(retired(cluster.store, "b1"))), "no empty bookie is let in there"
    assert cluster.succeed(decommission(client, "b1")).ledgers == ()


def test_decommissioning_a_bookie_that_is_up_is_refused_and_changes_nothing():
    """It raises `IllegalOp`, and the cookie stays."""
    cluster = FakeCluster(4)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    error = cluster.fails(decommission(cluster.client(), "b1"))
    assert isinstance(error, IllegalOp)
    assert error.code == -100
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]
    assert not cluster.writes[1:]


def test_a_cookie_stays_while_any_ledger_names_its_bookie():
    """The error counts these ledgers."""
    cluster = FakeCluster(3)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    lose(cluster, "b1")
    error = cluster.fails(decommission(cluster.client(), "b1"))
    assert isinstance(error, Replication)
    assert "1 ledgers still name b1" in str(error)
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]


def test_a_bookie_that_comes_back_meanwhile_keeps_its_cookie():
    """The decommission raises `IllegalOp`."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    cluster.kill("b1")

    def judge(request):
        if request.op == "recovery add" and not cluster.bookies["b1"].up:
            cluster.bookies["b1"].up = True
            cluster.clock.callLater(0, cluster.register, "b1")
        return "pass"

    cluster.judge = judge
    assert isinstance(cluster.fails(decommission(cluster.client(), "b1")), IllegalOp)
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]


def test_a_copy_that_cannot_be_read_back_is_not_named():
    """Decommissioning verifies: a new bookie that stores rubbish is replaced by another."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 20)
    lose(cluster, "b1")
    liar: list[str] = []

    def judge(request):
        if request.op == "recovery add" and not liar:
            liar.append(request.bookie)
        if liar and request.bookie == liar[0] and request.op == "batch":
            return -13
        return "pass"

    cluster.judge = judge
    client = cluster.client()
    cluster.succeed(decommission(client, "b1"))
    assert liar[0] not in cluster.metadata(ledger).bookies()
    with pytest.raises(CookieNotFound):
        cluster.succeed(cluster.store.read_cookie("b1"))


# Emptying a bookie that is up


def obedient(cluster: FakeCluster, name: str) -> DrainOrders:
    """From now on the bookie follows an order to be emptied, as ours do."""
    orders = DrainOrders(cluster.store.records)

    def follow(standing: bool) -> None:
        cluster.bookies[name].read_only = standing
        info = ServiceInfo.of("127.0.0.1", 1)
        cluster.store.register_bookie(name, info, read_only=standing).addErrback(lambda failure: None)

    orders.watch(name, follow)
    return orders


def test_a_bookie_that_is_up_is_emptied_and_stays_read_only():
    """Every ledger has all its copies elsewhere, nothing was fenced; it has its cookie until it is stopped."""
    cluster = FakeCluster(6)
    ledgers = [
        closed(cluster, {0: THREE}, 20),
        closed(cluster, {0: ["b0", "b1", "b2", "b3", "b4"]}, 61),
        left_open(cluster, {0: THREE, 5: ["b0", "b2", "b3"]}, 8),
    ]
    cookie(cluster, "b1")
    orders = obedient(cluster, "b1")
    client = cluster.client()
    done = cluster.succeed(drain(client, "b1"))
    assert (done.ledgers, done.failed, done.progress.ledgers_recovered) == (tuple(ledgers), (), 0)
    assert done.progress.entries > 21 + 36 + 5
    assert naming(cluster, "b1") == []
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)
    assert cluster.metadata(ledgers[-1]).state is LedgerState.OPEN
    assert "b1" in stored.registrations(cluster.shared, True)
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]
    assert "registered" in str(cluster.fails(decommission(client, "b1")))
    assert cluster.succeed(drain(client, "b1")).ledgers == (), "to be run again"

    cluster.kill("b1", registered=True)
    cluster.succeed(cluster.store.unregister_bookie("b1", read_only=True))
    cluster.succeed(decommission(client, "b1"))
    assert cluster.succeed(cluster.store.cookies()) == []
    assert not cluster.succeed(orders.stands("b1")), "it may come back with empty directories"


def test_the_only_copy_is_taken_from_the_bookie_itself():
    """Ledgers of one copy are readable all the time, and not lost."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    obedient(cluster, "b1")
    client = cluster.client()
    cluster.succeed(drain(client, "b1"))
    assert cluster.metadata(ledger).bookies().isdisjoint({"b1"})
    assert is_whole(cluster, client, ledger)


def test_the_writer_of_an_open_ledger_is_waited_for():
    """It is named meanwhile; it goes on by its next append, no append fails, and then the drain ends."""
    cluster = FakeCluster(5)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    cluster.succeed(writer.append_many([b"one", b"two"]))
    bookie = cluster.metadata(writer.id).last_fragment.bookies[0]
    obedient(cluster, bookie)
    waited: list[list[tuple[int, bool]]] = []
    draining = cluster.outcome(
        drain(cluster.client(), bookie, waiting=lambda left: waited.append([(each.ledger, each.open) for each in left]))
    )
    cluster.clock.pump([0.1] * 120)
    assert not draining.done
    assert waited[-1] == [(writer.id, True)]
    assert len(waited) > 1
    assert cluster.metadata(writer.id).state is LedgerState.OPEN
    cluster.succeed(writer.append(b"three"))
    assert bookie not in cluster.metadata(writer.id).last_fragment.bookies
    cluster.clock.pump([0.1] * 120)
    assert draining.done
    assert draining.result().ledgers == (writer.id,)
    cluster.succeed(writer.append(b"four"))
    cluster.succeed(writer.close())
    assert naming(cluster, bookie) == []
    assert cluster.succeed(check_ledger(client, writer.id)).complete


def test_a_ledger_that_names_it_meanwhile_is_found():
    """A client whose list of bookies was old made one while others were copied."""
    cluster = FakeCluster(6)
    closed(cluster, {0: THREE}, 20)
    obedient(cluster, "b1")
    late = 500

    def judge(request):
        if request.op == "recovery add" and late not in stored.Ledgers(cluster.shared):
            cluster.store.create_ledger(late, LedgerMetadata.new(3, 3, 2, THREE).closed(-1, 0))
        return "pass"

    cluster.judge = judge
    done = cluster.succeed(drain(cluster.client(), "b1"))
    assert late in done.ledgers
    assert naming(cluster, "b1") == []


def test_a_drain_that_would_leave_too_few_bookies_changes_nothing():
    """A writer would have nowhere to go to: no order is given, the error counts the bookies that are needed."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 5)
    orders = obedient(cluster, "b1")
    error = cluster.fails(drain(cluster.client(), "b1"))
    assert isinstance(error, NotEnoughBookies)
    assert f"ledger {ledger} has an ensemble of 3, and without b1 2 bookies are writable: start 1 more" in str(error)
    assert not cluster.succeed(orders.stands("b1"))
    assert "b1" in stored.registrations(cluster.shared)


def test_writers_elsewhere_need_their_spare_too():
    """A bookie that no ledger names is the last one that a writer could go to from another that is drained."""
    cluster = FakeCluster(4)
    ledger = left_open(cluster, {0: THREE}, 5)
    orders = obedient(cluster, "b3")
    cluster.succeed(DrainOrders(cluster.store.records).give("b1"))
    obedient(cluster, "b1")
    cluster.clock.advance(0.1)
    assert "b1" in stored.registrations(cluster.shared, True)
    assert f"ledger {ledger} has an ensemble of 3" in str(cluster.fails(drain(cluster.client(), "b3")))
    assert not cluster.succeed(orders.stands("b3"))


def test_a_bookie_that_is_down_is_not_drained():
    """The error names the command for it; nothing is ordered."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    cluster.kill("b1")
    error = cluster.fails(drain(cluster.client(), "b1"))
    assert "without --drain" in str(error)
    assert not cluster.succeed(DrainOrders(cluster.store.records).stands("b1"))


def test_a_bookie_that_knows_no_orders_is_left_alone():
    """Apache's stay writable: the drain says how one is made read-only, and copies nothing."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    writes = len(cluster.writes)
    error = cluster.fails(drain(cluster.client(), "b1"), OBEYED_S + 5)
    assert "forceReadOnlyBookie=true" in str(error)
    assert len(cluster.writes) == writes
    cluster.succeed(cluster.store.register_bookie("b1", ServiceInfo.of("127.0.0.1", 1), read_only=True))
    cluster.succeed(drain(cluster.client(), "b1"))
    assert naming(cluster, "b1") == []


def test_an_order_is_taken_back():
    """The bookie is writable again, and the drain that runs ends with that."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 5)
    obedient(cluster, "b1")
    client = cluster.client()
    draining = cluster.outcome(drain(client, "b1"))
    cluster.clock.pump([0.1] * 80)
    assert not draining.done
    assert cluster.succeed(undo(client, "b1"))
    cluster.clock.pump([0.1] * 80)
    with pytest.raises(IllegalOp, match="was withdrawn"):
        draining.result()
    assert "b1" in stored.registrations(cluster.shared)
    assert not cluster.bookies["b1"].read_only
    assert "b1" in cluster.metadata(ledger).bookies()
    assert not cluster.succeed(undo(client, "b1"))


def test_a_drain_goes_on_where_another_was_cut_off():
    """Every fragment that is named elsewhere stays so: it is not copied again."""
    cluster = FakeCluster(6)
    ledgers = [closed(cluster, {0: THREE}, 20) for _ in range(8)]
    obedient(cluster, "b1")
    first = cluster.client()
    cluster.judge = lambda request: "hold" if request.op == "recovery add" and request.ledger in ledgers[4:] else "pass"
    draining = Deferred.fromCoroutine(drain(first, "b1"))
    cluster.clock.pump([0.01] * 60)
    draining.addErrback(lambda failure: None).cancel()
    left = naming(cluster, "b1")
    assert left == ledgers[4:]
    cluster.judge = lambda request: "pass"
    assert "b1" in stored.registrations(cluster.shared, True), "the order outlives who gave it"
    done = cluster.succeed(drain(cluster.client(), "b1"))
    assert list(done.ledgers) == left
    assert all(is_whole(cluster, first, ledger) for ledger in ledgers)


def test_what_nobody_can_read_ends_the_drain_with_its_name():
    """An entry that only the bookie should have is not there: waiting would not bring it back."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    whole = closed(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[ledger].entries[4]
    obedient(cluster, "b1")
    error = cluster.fails(drain(cluster.client(), "b1"))
    assert isinstance(error, Replication)
    assert f"ledger {ledger}: no survivor has entry 4" in str(error)
    assert naming(cluster, "b1") == [ledger]
    assert whole not in naming(cluster, "b1")
