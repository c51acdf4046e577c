"""What a writer stores: ensemble changes, their races with recoveries and repairs, D17, and the close."""

import pytest

from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.ledger import LedgerState
from quire.metadata.memory.store import Fault
from quire.metadata.store import Versioned
from quire.protocol.errors import (
    LedgerClosed,
    LedgerFenced,
    MetadataVersion,
    MetaStore,
    NoSuchLedger,
    NotEnoughBookies,
)
from tests.client.fakes.cluster import FENCED, FakeCluster
from tests.client.fakes.ledgers import created, ensemble, holding
from tests.metadata import stored

# Ensemble changes on a cluster.


def test_a_killed_bookie_is_replaced_and_nothing_is_lost():
    """All appends succeed, one change is reported, and a reader finds every entry."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    changes = []
    writer.on_ensemble_change = lambda before, after: changes.append((before, after))
    outcomes = [cluster.outcome(writer.append_many([b"%d" % number] * 10)) for number in range(20)]
    before = ensemble(cluster, writer)
    cluster.spin(0.0015)
    cluster.kill(before[1])
    outcomes += [cluster.outcome(writer.append_many([b"%d" % number] * 10)) for number in range(20, 40)]
    cluster.spin(2)
    assert [outcome.code for outcome in outcomes] == [0] * 40
    metadata = cluster.metadata(writer.id)
    assert changes == [(before, metadata.last_fragment.bookies)]
    assert writer.ensemble_changes == 1
    cluster.succeed(writer.close())
    reader = cluster.succeed(cluster.client().open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 399))] == [
        b"%d" % number for number in range(40) for _ in range(10)
    ]


def restored(cluster, name):
    """The bookie has begun again, without a directory that no ledger here was on."""
    cluster.bookies[name].incarnation += "+"
    cluster.restart(name)


@pytest.mark.parametrize("away", [True, False], ids=["missed by an append", "between two appends"])
def test_a_bookie_that_was_restored_is_used_again_where_no_other_is(away):
    """
    The ledger is open still, so no fence was lost: what follows goes there, it counts for what it took in its new
    incarnation, and the ledger outlives the next failure.
    """
    cluster = FakeCluster(3)
    writer = created(cluster)
    _b0, b1, b2 = ensemble(cluster, writer)
    cluster.succeed(writer.append(b"a"))
    cluster.kill(b2)
    cluster.spin(2)
    if away:
        cluster.succeed(writer.append(b"b"))
    restored(cluster, b2)
    cluster.spin(130)
    entry = cluster.succeed(writer.append(b"c"))
    cluster.spin(2)
    assert writer.bookies_out == ()
    assert b2 in cluster.holders(writer.id, entry)
    cluster.kill(b1)
    assert cluster.succeed(writer.append(b"d")) == entry + 1
    assert len(cluster.metadata(writer.id).fragments) == 1
    cluster.succeed(writer.close())


@pytest.mark.parametrize("end", [False, True], ids=["in recovery", "closed"])
def test_a_bookie_that_was_restored_is_not_used_again_after_a_fence(end):
    """Its fence may be gone: the metadata is read before the new incarnation is counted on."""
    cluster = FakeCluster(3)
    writer = created(cluster)
    _b0, b1, b2 = ensemble(cluster, writer)
    cluster.succeed(writer.append(b"a"))
    store, metadata = cluster.client().store, cluster.metadata(writer.id)
    changed = metadata.closed(0, 1) if end else metadata.recovering()
    stored = cluster.succeed(store.read_ledger(writer.id))
    cluster.succeed(store.write_ledger(writer.id, changed, stored.version))
    for name in (b1, b2):
        cluster.kill(name)
        cluster.bookies[name].ledgers.clear()
        restored(cluster, name)
    cluster.spin(2)
    append = cluster.outcome(writer.append(b"b"))
    cluster.spin(5)
    assert append.code == (LedgerClosed.code if end else LedgerFenced.code)
    assert cluster.holders(writer.id, 1).isdisjoint((b1, b2))


def test_who_is_told_of_a_change_and_raises_does_not_end_the_writer():
    """The change is stored by then."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    writer.on_ensemble_change = lambda before, after: 1 // 0
    before = ensemble(cluster, writer)
    cluster.kill(before[1])
    assert cluster.succeed(writer.append(b"x")) == 0
    cluster.spin(1)
    assert ensemble(cluster, writer) != before
    assert cluster.succeed(writer.append(b"y")) == 1


def test_s12_entries_above_the_lac_regain_their_quorum():
    """S12 on the wire: the fragment begins at the entry that was not acknowledged."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    cluster.succeed(writer.append_many([b"x"] * 4))
    b0, b1, b2 = ensemble(cluster, writer)
    cluster.judge = lambda request: (
        "hold" if request.op == "add" and (request.entry, request.bookie) in ((4, b0), (4, b1), (5, b2)) else "pass"
    )
    pending = cluster.outcome(writer.append_many([b"y", b"z"]))
    cluster.spin(0.1)
    assert not pending.done
    cluster.kill(b0)
    cluster.spin(1)
    cluster.let_go()
    cluster.spin(1)
    assert pending.code == 0
    fragments = cluster.metadata(writer.id).fragments
    assert [fragment.first for fragment in fragments] == [0, 4]
    assert all(len(cluster.holders(writer.id, entry) & set(fragments[1].bookies)) >= 2 for entry in (4, 5))


def test_s13_no_acknowledgement_while_the_metadata_is_written():
    """An append that has its quorum is acknowledged only after the change is stored."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    first = ensemble(cluster, writer)
    holding(cluster, "add", first[0])
    cluster.store_fault = lambda name, _given: Fault(before=1.0) if name == "write_ledger" else None
    append = cluster.outcome(writer.append(b"x"))
    cluster.kill(first[0])
    cluster.spin(0.9)
    assert cluster.holders(writer.id, 0) == set(first[1:])
    assert not append.done
    cluster.spin(0.5)
    assert append.code == 0


def test_s14_late_answers_of_a_replaced_bookie_do_nothing():
    """The append completes without the bookie that timed out."""
    cluster = FakeCluster(4)
    writer = created(cluster, options={"add_timeout_ms": 100})
    b0, b1, _b2 = ensemble(cluster, writer)
    holding(cluster, "add", b0, b1)
    append = cluster.outcome(writer.append(b"x"))
    cluster.spin(0.3)  # b0 and b1 time out, one spare: replaced by b3 and out
    cluster.let_go(lambda request: request.bookie == b0)
    cluster.spin(0.1)
    assert ensemble(cluster, writer) != (b0, b1, _b2)
    assert append.done


def test_s15_two_failures_during_one_change():
    """S15: exactly two metadata writes, both replaced, one fragment when nothing was acknowledged."""
    cluster = FakeCluster(5)
    writer = created(cluster)
    b0, b1, b2 = ensemble(cluster, writer)
    cluster.judge = lambda request: "hold" if request.bookie in (b0, b1) else "pass"
    cluster.store_fault = lambda name, _given: Fault(before=0.5) if name == "write_ledger" else None
    append = cluster.outcome(writer.append(b"x"))
    cluster.spin(0.1)
    cluster.kill(b0)
    cluster.spin(0.1)
    cluster.kill(b1)
    cluster.spin(3)
    assert append.code == 0
    assert len(cluster.writes) == 2
    metadata = cluster.metadata(writer.id)
    assert len(metadata.fragments) == 1
    assert metadata.fragments[0].bookies[2] == b2
    assert not {b0, b1} & set(metadata.fragments[0].bookies)


def test_s16_striped_change_without_resend():
    """An entry that has its quorum is not sent to a replacement outside its write set."""
    cluster = FakeCluster(4)
    writer = created(cluster, (3, 2, 1))
    b0, b1, b2 = ensemble(cluster, writer)
    cluster.judge = lambda request: (
        "hold" if request.op == "add" and (request.entry == 0 or request.bookie == b0) else "pass"
    )
    both = [cluster.outcome(writer.append(b"e0")), cluster.outcome(writer.append(b"e1"))]
    cluster.spin(0.1)
    cluster.kill(b0)
    cluster.judge = lambda _request: "pass"
    cluster.spin(1)
    assert [outcome.code for outcome in both] == [0, 0]
    assert cluster.holders(writer.id, 1) == {b1, b2}


@pytest.mark.parametrize(("state", "error"), [("closed", LedgerClosed), ("recovering", LedgerFenced)])
def test_s17_the_ledger_was_closed_or_is_recovered_while_the_change_ran(state, error):
    """Appends and the close fail accordingly, and the other client's metadata remains."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    b0, *_rest = ensemble(cluster, writer)
    holding(cluster, "add", *cluster.bookies)
    cluster.store_fault = lambda name, _given: Fault(before=0.5) if name == "write_ledger" else None
    append = cluster.outcome(writer.append(b"x"))
    cluster.spin(0.1)
    cluster.kill(b0)
    cluster.spin(0.1)
    cluster.store_fault = lambda _name, _given: None
    current = stored.Ledgers(cluster.shared)[writer.id]
    changed = current.value.closed(-1, 0) if state == "closed" else current.value.recovering()
    cluster.succeed(cluster.store.write_ledger(writer.id, changed, current.version))
    cluster.spin(2)
    assert isinstance(append.error, error)
    assert cluster.metadata(writer.id) == changed
    assert isinstance(cluster.fails(writer.append(b"y")), LedgerClosed)
    assert isinstance(cluster.fails(writer.close()), error)


@pytest.mark.parametrize(
    ("change", "error"), [("recovering", LedgerFenced), ("closed", MetadataVersion), ("deleted", NoSuchLedger)]
)
def test_a_close_that_comes_too_late_says_why_and_does_not_send_for_the_end(change, error):
    """Another client closed the ledger, or will."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    current = stored.Ledgers(cluster.shared)[writer.id]
    if change == "deleted":
        cluster.succeed(cluster.store.delete_ledger(writer.id))
    else:
        changed = current.value.recovering() if change == "recovering" else current.value.closed(5, 6)
        cluster.succeed(cluster.store.write_ledger(writer.id, changed, current.version))
    failure = cluster.fails(writer.close())
    assert isinstance(failure, error)
    assert "could not be stored" not in str(failure)


def test_s18_a_repair_of_an_old_fragment_and_a_change_both_survive():
    """The closed metadata has the repaired first fragment and the writer's later ones."""
    cluster = FakeCluster(7)
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    first = ensemble(cluster, writer)
    cluster.kill(first[0])
    cluster.succeed(writer.append(b"y"))
    current = stored.Ledgers(cluster.shared)[writer.id]
    repaired = ("b6", *first[1:]) if "b6" not in first else ("b5", *first[1:])
    cluster.succeed(cluster.store.write_ledger(writer.id, current.value.replace_bookies(0, repaired), current.version))
    cluster.kill(ensemble(cluster, writer)[1])
    cluster.succeed(writer.append(b"z"))
    cluster.succeed(writer.close())
    metadata = cluster.metadata(writer.id)
    assert metadata.is_closed
    assert metadata.fragments[0].bookies == repaired
    assert len(metadata.fragments) == 3


def test_s19_it_was_closed_elsewhere():
    """S19: close finds CLOSED with other values: -17, and the stored end remains."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    current = stored.Ledgers(cluster.shared)[writer.id]
    cluster.succeed(cluster.store.write_ledger(writer.id, current.value.closed(1, 2), current.version))
    assert isinstance(cluster.fails(writer.close()), MetadataVersion)
    assert cluster.metadata(writer.id).last_entry == 1


def test_closing_what_is_closed_the_same_way_succeeds():
    """A close at the end that the store has already succeeds, and so does a second close."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    current = stored.Ledgers(cluster.shared)[writer.id]
    cluster.succeed(cluster.store.write_ledger(writer.id, current.value.closed(0, 1), current.version))
    cluster.succeed(writer.close())
    cluster.succeed(writer.close())


def test_s20_appends_under_way_at_the_close():
    """They fail with `LedgerClosed`, and the ledger ends at what was confirmed."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"four"))
    cluster.judge = lambda _request: "hold"
    pending = [cluster.outcome(writer.append(b"late")) for _ in range(3)]
    closing = [cluster.outcome(writer.close()) for _ in range(2)]
    cluster.spin(1)
    assert [type(outcome.error) for outcome in pending] == [LedgerClosed] * 3
    assert [outcome.code for outcome in closing] == [0, 0]
    metadata = cluster.metadata(writer.id)
    assert (metadata.last_entry, metadata.length) == (0, 4)


def test_s30_too_few_spares_fail_and_name_the_numbers():
    """S30: E = WQ = AQ = 4, two spares, three bookies fail: no hang."""
    cluster = FakeCluster(6)
    writer = created(cluster, (4, 4, 4))
    cluster.succeed(writer.append(b"x"))
    cluster.kill(*ensemble(cluster, writer)[:3])
    error = cluster.fails(writer.append(b"y"))
    assert isinstance(error, NotEnoughBookies)
    assert "all that are writable are in the ensemble or failed lately" in str(error)
    metadata = cluster.metadata(writer.id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 0)


def test_s33_a_bookie_that_fenced_itself_after_the_quorum_is_replaced():
    """A fenced answer after the quorum does not end the writer."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    fencing = ensemble(cluster, writer)[2]
    cluster.slow[fencing] = 0.01
    cluster.judge = lambda request: FENCED if request.op == "add" and request.bookie == fencing else "pass"
    cluster.succeed(writer.append(b"x"))
    cluster.spin(0.1)
    assert cluster.succeed(writer.append(b"y")) == 1
    assert fencing not in ensemble(cluster, writer)


def test_a_bookie_that_reports_a_fence_is_not_suspected():
    """It did its work: it stays a spare for other ledgers."""
    cluster = FakeCluster(3)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    cluster.judge = lambda request: FENCED if request.op == "add" else "pass"
    assert isinstance(cluster.fails(writer.append(b"x")), LedgerFenced)
    assert client.choice.suspects(list(cluster.bookies)) == []


def test_a_read_only_bookie_is_replaced():
    """Appends succeed, and the ensemble no longer has that bookie."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    full = ensemble(cluster, writer)[0]
    cluster.bookies[full].read_only = True
    cluster.succeed(writer.append(b"x"))
    cluster.spin(0.1)
    cluster.succeed(writer.append(b"y"))
    assert full not in ensemble(cluster, writer)


# D17 on a cluster.


def test_d17_three_bookies_one_dead():
    """Writing goes on; the same bookie returns and gets what is new, without a metadata change."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"0"))
    gone = ensemble(cluster, writer)[1]
    cluster.kill(gone)
    for number in range(1, 10):
        assert cluster.succeed(writer.append(b"%d" % number)) == number
    assert writer.bookies_out == (gone,)
    cluster.restart(gone)
    cluster.spin(1)
    assert cluster.succeed(writer.append(b"10")) == 10
    cluster.spin(0.1)
    assert writer.bookies_out == ()
    assert cluster.holders(writer.id, 10) == {"b0", "b1", "b2"}
    assert cluster.writes == []


def test_d17_a_new_bookie_is_taken():
    """A writer without spare takes a bookie that registers later into its ensemble."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"0"))
    gone = ensemble(cluster, writer)[0]
    cluster.kill(gone)
    cluster.succeed(writer.append(b"1"))
    new = cluster.grow()
    cluster.spin(1)
    cluster.succeed(writer.append(b"2"))
    metadata = cluster.metadata(writer.id)
    assert [fragment.first for fragment in metadata.fragments] == [0, 2]
    assert metadata.last_fragment.bookies[0] == new
    cluster.spin(0.1)
    assert cluster.holders(writer.id, 2) >= {new}


def test_d17_a_stale_registration_is_no_reason_to_give_up():
    """A bookie that died is listed until its session ends; it is tried now and then and taken back when it answers."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"0"))
    gone = ensemble(cluster, writer)[1]
    cluster.kill(gone, registered=True)
    for number in range(1, 30):
        assert cluster.succeed(writer.append(b"%d" % number)) == number
        cluster.spin(1)
    cluster.restart(gone, registered=True)
    cluster.spin(70)
    assert writer.bookies_out == ()
    assert cluster.writes == []


def test_a_bookie_that_failed_lately_is_picked_last():
    """Of two spares the one that failed a moment ago, and is still registered, is left alone."""
    for seed in range(10):
        cluster = FakeCluster(5, seed)
        writer = created(cluster)
        first = ensemble(cluster, writer)
        cluster.kill(first[0], registered=True)
        cluster.succeed(writer.append(b"x"))
        cluster.kill(first[1], registered=True)
        cluster.succeed(writer.append(b"y"))
        cluster.spin(1)
        cluster.succeed(writer.append(b"z"))
        assert not set(first[:2]) & set(ensemble(cluster, writer))


def test_a_store_that_is_down_does_not_stop_a_writer_that_has_its_quorum():
    """Appends succeed with one bookie out of the ensemble."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    cluster.store_fault = lambda _name, _given: Fault(error=MetaStore("down"))
    cluster.kill(ensemble(cluster, writer)[0], registered=True)
    assert cluster.succeed(writer.append(b"y")) == 1
    assert len(writer.bookies_out) == 1


def test_a_deleted_ledger_ends_its_writer():
    """The first change of the ensemble finds the ledger gone, and appends fail with `NoSuchLedger`."""
    cluster = FakeCluster(4)
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    gone = ensemble(cluster, writer)[0]
    cluster.succeed(cluster.store.delete_ledger(writer.id))
    cluster.kill(gone)
    assert isinstance(cluster.fails(writer.append(b"y")), NoSuchLedger)


def test_a_writer_that_slept_does_not_close_another_ledger_of_its_id():
    """Its ledger was deleted, and its id is in use again: the other writer's entries stay, and so does its end."""
    cluster = FakeCluster(4)
    first = created(cluster)
    cluster.succeed(first.append(b"x"))
    cluster.kill(ensemble(cluster, first)[0])  # a change of the ensemble, so that the versions differ
    cluster.succeed(first.append(b"y"))
    cluster.succeed(cluster.store.delete_ledger(first.id))
    cluster.clock.advance(1)
    client = cluster.client()
    second = cluster.succeed(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, ledger_id=first.id))
    cluster.succeed(second.append_many([b"z"] * 5))
    assert isinstance(cluster.fails(first.close()), NoSuchLedger)
    cluster.succeed(second.append(b"last"))
    cluster.succeed(second.close())
    assert stored.Ledgers(cluster.shared)[first.id].value.last_entry == 5


# Close, failures of the store, the client.


def test_a_close_that_the_store_loses_is_reported_and_not_retried():
    """The close fails with the store's error, and a second call gives the same."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    cluster.store_fault = lambda name, _given: Fault(error=MetaStore("down")) if name == "write_ledger" else None
    assert isinstance(cluster.fails(writer.close()), MetaStore)
    cluster.store_fault = lambda _name, _given: None
    assert isinstance(cluster.fails(writer.close()), MetaStore)


def test_conflicts_without_end_are_given_up():
    """An edit raises after a bounded number of version conflicts and names it."""
    cluster = FakeCluster()
    writer = created(cluster)
    stale = Versioned(writer.metadata, stored.Ledgers(cluster.shared)[writer.id].version)
    record = LedgerRecord(cluster.store, writer.id, stale)
    cluster.store_fault = lambda name, _given: Fault(error=MetadataVersion("again")) if name == "write_ledger" else None
    from twisted.internet.defer import Deferred

    error = cluster.fails(
        Deferred.fromCoroutine(record.edit(lambda _metadata: True, lambda metadata: metadata.recovering()))
    )
    assert isinstance(error, MetadataVersion)
    assert "100 times" in str(error)
