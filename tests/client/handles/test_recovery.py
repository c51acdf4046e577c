"""Opening a ledger for recovery: the scenarios S1 to S11 and S21 to S29 on a fake cluster."""

import pytest

from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault
from quire.metadata.store import Versioned
from quire.protocol.digest import HEADER, Digest, DigestType
from quire.protocol.errors import LedgerRecovery, MetaStore, Timeout, UnauthorizedAccess
from tests.client.fakes.cluster import FENCED, FakeCluster
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0


def opened(cluster, ledger, **options):
    return cluster.succeed(cluster.client(**options).open_ledger(ledger))


def test_recovery_of_a_writer_that_is_alive():
    """Everything acknowledged is there, the writer gets an error, and nothing it tries is acknowledged afterwards."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append_many([b"a", b"bb", b"ccc"]))
    reader = opened(cluster, writer.id)
    assert (reader.last_entry_id, reader.length, reader.closed) == (2, 6, True)
    assert cluster.fails(writer.append(b"late")).code == FENCED
    assert cluster.fails(writer.close()).code == FENCED
    metadata = cluster.metadata(writer.id)
    assert (metadata.last_entry, metadata.length) == (2, 6)


@pytest.mark.parametrize("late_fence", [False, True])
def test_s1_s2_an_entry_that_arrives_after_the_recovery_read_is_never_acknowledged(late_fence):
    """
    S1: e0 reaches b1 only; the fence to b2 is lost, and b1 does not answer; b0 and b2 have nothing, so the ledger
    closes empty; then e0 reaches b2.  S2: the fence comes to b2 after the recovery read.  The recovery read fenced b2.
    """
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client(add_timeout_ms=60_000).create_ledger())
    _b0, b1, b2 = cluster.metadata(writer.id).last_fragment.bookies

    def judge(request):
        if request.op == "add":
            return "pass" if request.bookie == b1 else "hold"
        if request.op == "fence" and request.entry == -1 and request.bookie == b2:
            return "hold" if late_fence else "drop"
        if request.op == "fence" and request.entry >= 0 and request.bookie == b1:
            return "drop"
        return "pass"

    cluster.judge = judge
    append = cluster.outcome(writer.append(b"e0"))
    cluster.spin(0.1)
    opening = cluster.outcome(cluster.client().open_ledger(writer.id))
    cluster.spin(10)
    assert opening.result().last_entry_id == -1
    cluster.let_go()
    cluster.spin(10)
    assert append.code == FENCED
    assert cluster.metadata(writer.id).last_entry == -1


def test_s3_an_empty_last_fragment_is_recovered_from_its_own_first_entry():
    """
    S3: 2/2/2, fragments at 0, 1000, 2000, the last one empty and answering LAC -1; its end is 1999, and nothing older
    is read.
    """
    cluster = FakeCluster(6)
    ledger = cluster.ledger({0: ["b1", "b2"], 1000: ["b2", "b3"], 2000: ["b4", "b5"]}, 2, 2)
    cluster.put(ledger, 1999, b"x" * 5, 1998, 10_000, "b2", "b3")
    client = cluster.client()
    reader = cluster.succeed(client.open_ledger(ledger))
    assert (reader.last_entry_id, reader.length) == (1999, 10_000)
    fenced = {request.entry for request in client.pool.asked if request.op == "fence"}
    assert min(fenced - {-1}) == 2000


def test_s4_a_dead_bookie_of_the_last_fragment_is_replaced_in_the_closing_write():
    """S4: {0: [b1, b2], 1: [b1, b3]}, e1 on b1 and b3, b3 dead, a spare: closes at 1 with b3 replaced from 1 on."""
    cluster = FakeCluster(5)
    cluster.kill("b0")
    ledger = cluster.ledger({0: ["b1", "b2"], 1: ["b1", "b3"]}, 2, 2)
    cluster.put(ledger, 0, b"zero", -1, 4, "b1", "b2")
    cluster.put(ledger, 1, b"one", -1, 7, "b1", "b3")
    cluster.kill("b3")
    opened(cluster, ledger)
    metadata = cluster.metadata(ledger)
    assert (metadata.last_entry, metadata.length) == (1, 7)
    assert metadata.fragments[0].bookies == ("b1", "b2")
    assert metadata.fragments[1].first == 1
    assert set(metadata.fragments[1].bookies) <= {"b1", "b2", "b4"}
    assert metadata.fragments[1].bookies[0] == "b1"
    assert len(cluster.writes) == 2, "IN_RECOVERY and the end, nothing between"


def test_s5_a_recovery_that_fails_leaves_no_ensemble_behind():
    """
    S5: one bookie down, its replacement refuses recovery adds; the old one returns; a later open finds everything.
    """
    cluster = FakeCluster(4)
    writer = cluster.succeed(cluster.client().create_ledger(write_quorum=2))
    cluster.succeed(writer.append_many([b"entry %d" % entry for entry in range(20)]))
    ensemble = cluster.metadata(writer.id).last_fragment.bookies
    spare = next(name for name in cluster.bookies if name not in ensemble)
    cluster.kill(ensemble[0])
    cluster.judge = lambda request: -12 if request.op == "recovery add" and request.bookie == spare else "pass"
    assert isinstance(cluster.fails(cluster.client().open_ledger(writer.id)), LedgerRecovery)
    metadata = cluster.metadata(writer.id)
    assert metadata.state is LedgerState.IN_RECOVERY
    assert [fragment.bookies for fragment in metadata.fragments] == [ensemble]
    cluster.judge = lambda _request: "pass"
    cluster.restart(ensemble[0])
    cluster.kill(ensemble[1])
    reader = opened(cluster, writer.id)
    assert reader.last_entry_id == 19
    assert [entry.data for entry in cluster.succeed(reader.read(0, 19))] == [b"entry %d" % entry for entry in range(20)]


def test_s6_ensembles_of_a_dead_recovery_mislead_no_reader():
    """S6: r1 replaced b2 by b3 and died before its last write; r2, for whom b1 is slow, must still find e0 on b2."""
    cluster = FakeCluster(4)
    ledger = cluster.ledger({0: ["b1", "b2"]}, 2, 2)
    cluster.kill("b0")
    cluster.put(ledger, 0, b"e0", -1, 2, "b1", "b2")
    cluster.store_fault = lambda name, given: (
        Fault(error=MetaStore("gone")) if name == "write_ledger" and given[1].is_closed else None
    )
    cluster.judge = lambda request: -8 if request.op == "recovery add" and request.bookie == "b2" else "pass"
    assert isinstance(cluster.fails(cluster.client().open_ledger(ledger)), LedgerRecovery)
    assert "b3" in cluster.holders(ledger, 0), "r1 wrote to its replacement"
    assert cluster.metadata(ledger).fragments[0].bookies == ("b1", "b2")
    cluster.store_fault = lambda _name, _given: None
    cluster.judge = lambda request: "drop" if request.bookie == "b1" and request.op == "fence" else "pass"
    assert opened(cluster, ledger).last_entry_id == 0


def test_s8_time_outs_abort_and_a_retry_succeeds():
    """S8, S24: e0 acknowledged by b0 and b1, which do not answer the read: no close; later all is well."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"e0", -1, 2, "b0", "b1")
    cluster.judge = lambda request: "drop" if request.entry == 0 and request.bookie in ("b0", "b1") else "pass"
    error = cluster.fails(cluster.client().open_ledger(ledger))
    assert isinstance(error, LedgerRecovery)
    assert cluster.metadata(ledger).state is LedgerState.IN_RECOVERY
    cluster.judge = lambda _request: "pass"
    assert opened(cluster, ledger).last_entry_id == 0


def test_s11_a_bookie_that_never_saw_the_ledger_refuses_the_writer_after_the_fence():
    """A fence creates the ledger where it is missing, and the first append fails as fenced."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    assert opened(cluster, writer.id).last_entry_id == -1
    assert all(writer.id in bookie.ledgers for bookie in cluster.bookies.values())
    assert cluster.fails(writer.append(b"first")).code == FENCED


def test_s21_what_lies_behind_a_gap_is_no_entry():
    """S21: 0..9 and 14 stored, LAC 8: closes at 9."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    for entry in range(10):
        cluster.put(ledger, entry, b"x" * 3, entry - 1, 3 * (entry + 1), "b0", "b1", "b2")
    cluster.put(ledger, 14, b"y" * 3, 8, 45, "b0")
    reader = opened(cluster, ledger)
    assert (reader.last_entry_id, reader.length) == (9, 30)


def test_s22_many_recoveries_at_once_agree():
    """All end at the same entry, at or behind everything that was acknowledged."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    openers = []
    appends = []
    for turn in range(10):
        appends.append(cluster.outcome(writer.append(b"x")))
        openers.append(cluster.client())
        if turn == 3:
            cluster.spin(0.0025)
    opened_now = [cluster.outcome(client.open_ledger(writer.id)) for client in openers]
    cluster.spin(30)
    ends = {outcome.result().last_entry_id for outcome in opened_now}
    assert len(ends) == 1
    assert ends.pop() >= writer.last_add_confirmed
    acknowledged = [outcome.value for outcome in appends if outcome.code == 0]
    assert max(acknowledged, default=-1) <= cluster.metadata(writer.id).last_entry


def test_s23_the_writer_does_not_close_over_a_recovery():
    """S23, D1: r has marked the ledger; the writer's close fails and the recovery's end remains."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"x"))
    cluster.judge = lambda request: "hold" if request.op == "fence" else "pass"
    opening = cluster.outcome(cluster.client().open_ledger(writer.id))
    cluster.spin(0.1)
    assert cluster.metadata(writer.id).state is LedgerState.IN_RECOVERY
    assert cluster.fails(writer.close()).code == FENCED
    assert cluster.metadata(writer.id).state is LedgerState.IN_RECOVERY
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(1)
    assert opening.result().last_entry_id == 0


def test_s24_with_everybody_down_the_open_fails_and_a_later_one_succeeds():
    """The error says that bookies can't be reached; after their restart the entry is recovered."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"x"))
    cluster.kill("b0", "b1", "b2")
    error = cluster.fails(cluster.client().open_ledger(writer.id))
    assert isinstance(error, LedgerRecovery)
    assert "can't be reached" in str(error)
    cluster.restart("b0", "b1", "b2")
    assert opened(cluster, writer.id).last_entry_id == 0


def test_s24_silence_is_a_time_out():
    """When no bookie answers, the open fails with `Timeout`."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.judge = lambda _request: "drop"
    assert isinstance(cluster.fails(cluster.client().open_ledger(writer.id)), Timeout)


def test_s25_d17_a_dead_bookie_and_no_spare():
    """Three bookies, one dead: the ledger is recovered with the other two, and the fragment is left for repair."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append_many([b"x"] * 5))
    cluster.kill("b1")
    reader = opened(cluster, writer.id)
    assert reader.last_entry_id == 4
    assert len(cluster.metadata(writer.id).fragments) == 1


def test_s26_a_wrong_password_touches_nothing():
    """No bookie gets a request, the metadata stays open, and the writer goes on."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger(password=b"right"))
    cluster.succeed(writer.append(b"x"))
    client = cluster.client()
    assert isinstance(cluster.fails(client.open_ledger(writer.id, b"wrong")), UnauthorizedAccess)
    assert client.pool.asked == []
    assert cluster.metadata(writer.id).state is LedgerState.OPEN
    assert cluster.succeed(writer.append(b"y")) == 1


def test_a_bookie_that_knows_another_key_ends_the_attempt():
    """A refusal of the master key fails the open with `UnauthorizedAccess`."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", digest=Digest(DigestType.CRC32C, b"other"))
    assert isinstance(cluster.fails(cluster.client().open_ledger(ledger)), UnauthorizedAccess)


def test_s28_an_empty_last_fragment_keeps_the_true_length():
    """S28, D7: {0: [b0, b1, b2], 10: [b3, b4, b5]}, nothing in the second: ends at 9 with the length of entry 9."""
    cluster = FakeCluster(6)
    ledger = cluster.ledger({0: ["b0", "b1", "b2"], 10: ["b3", "b4", "b5"]}, 3, 2)
    for entry in range(10):
        cluster.put(ledger, entry, b"x" * 7, entry - 1, 7 * (entry + 1), "b0", "b1", "b2")
    reader = opened(cluster, ledger)
    assert (reader.last_entry_id, reader.length) == (9, 70)


def test_d7_an_orphan_past_the_end_does_not_lend_its_length():
    """b0 alone has an entry beyond a gap, with a greater length; the length is that of the last entry."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x" * 7, -1, 7, "b0", "b1", "b2")
    cluster.put(ledger, 3, b"x" * 7, 0, 28, "b0")
    assert opened(cluster, ledger).length == 7


def test_an_empty_ledger_closes_empty():
    """A ledger without entries is closed with last entry -1 and length 0."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    reader = opened(cluster, ledger)
    assert (reader.last_entry_id, reader.length) == (-1, 0)


def test_the_tail_is_made_whole():
    """An entry on one bookie only is found and written to its whole write set; the payload and the length stay."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"zero", -1, 4, "b0", "b1", "b2")
    cluster.put(ledger, 1, b"one", -1, 7, "b2")
    reader = opened(cluster, ledger)
    assert (reader.last_entry_id, reader.length) == (1, 7)
    cluster.spin(1)
    assert cluster.holders(ledger, 1) == {"b0", "b1", "b2"}


def test_d16_recovery_adds_carry_the_base_lac():
    """A tailing reader must not see an end that a second recovery could close below."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    for entry in range(200):
        cluster.put(ledger, entry, b"x", min(entry - 1, 4), entry + 1, "b0", "b1")
    assert opened(cluster, ledger).last_entry_id == 199
    cluster.spin(1)
    bodies = cluster.bookies["b2"].ledgers[ledger].entries
    assert len(bodies) == 195
    assert {HEADER.unpack_from(body)[2] for body in bodies.values()} == {4}
    assert [HEADER.unpack_from(bodies[entry])[3] for entry in (5, 199)] == [6, 200]


def test_lengths_of_an_advanced_writer_are_kept():
    """Its lengths follow the order of writing, so they do not rise with the ids."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    for entry, length in ((0, 30), (1, 10), (2, 20)):
        cluster.put(ledger, entry, b"x" * 10, -1, length, "b0", "b1")
    opened(cluster, ledger)
    cluster.spin(1)
    bodies = cluster.bookies["b2"].ledgers[ledger].entries
    assert [HEADER.unpack_from(bodies[entry])[3] for entry in range(3)] == [30, 10, 20]


def test_a_marked_ledger_is_taken_over_without_another_write():
    """D2: IN_RECOVERY is not written twice."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    current = stored.Ledgers(cluster.shared)[ledger]
    cluster.succeed(cluster.store.write_ledger(ledger, current.value.recovering(), current.version))
    cluster.writes.clear()
    opened(cluster, ledger)
    assert [metadata.state for metadata in cluster.writes] == [LedgerState.CLOSED]


def test_d3_the_loser_of_two_recoveries_adopts():
    """The other one closed first; both openers see the same end and no error."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", "b1", "b2")
    cluster.judge = lambda request: "hold" if request.op == "recovery add" and request.client == 1 else "pass"
    first = cluster.outcome(cluster.client().open_ledger(ledger))
    cluster.spin(0.1)
    second = opened(cluster, ledger)
    version = stored.Ledgers(cluster.shared)[ledger].version
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(1)
    assert first.result().last_entry_id == second.last_entry_id == 0
    assert stored.Ledgers(cluster.shared)[ledger].version == version


def test_the_writers_ensemble_change_before_the_mark_is_fenced_too():
    """protocol-rules.md 4.4: R1 conflicts with the writer's change, reads again and fences the new ensemble."""
    cluster = FakeCluster(4)
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"a"))
    before = cluster.metadata(writer.id).last_fragment.bookies
    late = {"on": True}

    def fault(name, given):
        if name == "write_ledger" and given[1].state is LedgerState.IN_RECOVERY and late.pop("on", False):
            return Fault(before=0.2)
        return None

    cluster.store_fault = fault
    opening = cluster.outcome(cluster.client().open_ledger(writer.id))
    cluster.kill(before[0])
    cluster.spin(0.05)
    cluster.succeed(writer.append(b"b"), 0.1)
    cluster.spin(5)
    assert opening.result().last_entry_id == 1
    assert len(cluster.metadata(writer.id).fragments) == 2
    assert cluster.fails(writer.append(b"c")).code == FENCED


def test_a_later_fragment_of_another_writer_ends_the_attempt():
    """protocol-rules.md 4.4: local ensembles that would come before a stored one are never written."""
    cluster = FakeCluster(5)
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 3)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", "b1", "b2")
    cluster.judge = lambda request: (
        -12
        if request.op == "recovery add" and request.bookie == "b0"
        else "hold"
        if request.op == "recovery add"
        else "pass"
    )
    opening = cluster.outcome(cluster.client().open_ledger(ledger))
    cluster.spin(0.2)
    current = stored.Ledgers(cluster.shared)[ledger]
    cluster.succeed(
        cluster.store.write_ledger(ledger, current.value.with_ensemble(7, ["b2", "b3", "b4"]), current.version)
    )
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(20)
    assert opening.code == LedgerRecovery.code
    assert cluster.metadata(ledger).state is LedgerState.IN_RECOVERY


def test_a_deleted_ledger_can_not_be_recovered():
    """A deletion during the recovery fails the open with `LedgerRecovery`."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.judge = lambda request: "hold" if request.op == "fence" else "pass"
    opening = cluster.outcome(cluster.client().open_ledger(ledger))
    cluster.spin(0.1)
    cluster.succeed(cluster.store.delete_ledger(ledger))
    cluster.judge = lambda _request: "pass"
    cluster.let_go()
    cluster.spin(20)
    assert opening.code == LedgerRecovery.code


def test_closing_the_client_ends_a_recovery():
    """A recovery in progress is stopped, and its open fails."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    client = cluster.client()
    cluster.judge = lambda request: "drop"
    opening = cluster.outcome(client.open_ledger(ledger))
    cluster.spin(0.1)
    client.pool.close()
    for recovery in list(client.recoveries):
        recovery.stop()
    cluster.spin(10)
    assert opening.code == LedgerRecovery.code


def test_a_striped_ledger_is_recovered():
    """5/3/2 with a tail, one bookie dead, a spare: every entry acknowledged is there."""
    for dead in range(5):
        cluster = FakeCluster(6, seed=dead)
        writer = cluster.succeed(cluster.client().create_ledger(ensemble_size=5, write_quorum=3))
        cluster.succeed(writer.append_many([b"%d" % entry for entry in range(43)]))
        cluster.kill(cluster.metadata(writer.id).last_fragment.bookies[dead])
        reader = opened(cluster, writer.id)
        assert reader.last_entry_id == 42
        assert [entry.data for entry in cluster.succeed(reader.read(0, 42))] == [b"%d" % entry for entry in range(43)]


def test_a_ledger_that_is_closed_before_the_mark_is_left_alone():
    """Another recovery was faster: its end is taken, no bookie is fenced or asked, and nothing is written."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", "b1", "b2")
    current = stored.Ledgers(cluster.shared)[ledger]

    def closed_meanwhile(name, _arguments):
        if name == "write_ledger" and stored.Ledgers(cluster.shared)[ledger] == current:
            stored.Ledgers(cluster.shared)[ledger] = Versioned(current.value.closed(0, 1), current.version + 1)

    cluster.store_fault = closed_meanwhile
    client = cluster.client()
    reader = cluster.succeed(client.open_ledger(ledger))
    assert (reader.last_entry_id, reader.length) == (0, 1)
    assert client.pool.asked == []
    assert stored.Ledgers(cluster.shared)[ledger].version == current.version + 1


def test_an_end_that_another_client_wrote_is_adopted():
    """The other one closed further on while this one stored its end: no error, and the stored end counts."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", "b1", "b2")

    def closed_meanwhile(name, given):
        current = stored.Ledgers(cluster.shared)[ledger]
        if name == "write_ledger" and given[1].is_closed and not current.value.is_closed:
            stored.Ledgers(cluster.shared)[ledger] = Versioned(current.value.closed(5, 60), current.version + 1)

    cluster.store_fault = closed_meanwhile
    reader = opened(cluster, ledger)
    assert (reader.last_entry_id, reader.length) == (5, 60)
