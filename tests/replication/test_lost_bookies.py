"""
Recovering lost bookies over all ledgers: what is done, what is refused, and beginning again after any interruption.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pytest

from quire.client.core.quorum import Quorums
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import CookieNotFound
from quire.protocol.errors import (
    BookieHandleNotAvailable,
    IllegalOp,
    LedgerFenced,
    MetaStore,
    MetaStoreRefused,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchLedgerExists,
    Read,
    Replication,
)
from quire.replication.checker import check_ledger
from quire.replication.core.fragments import Outlook
from quire.replication.decommission import decommission
from quire.replication.freeing import run as runs
from quire.replication.freeing.ledger import free
from quire.replication.freeing.run import (
    OPERATIONS_MAX,
    Accept,
    Failed,
    FreeingProgress,
    FreeingRun,
    Ranges,
    survey,
)
from quire.replication.lost_bookies import check_known, gone_of, recover_bookies
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.test_ledger import tried
from tests.replication.stories import bodies, closed, cookie, damage, is_whole, left_open, payload

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]


def naming(cluster, bookie):
    return [ledger for ledger in stored.Ledgers(cluster.shared) if bookie in cluster.metadata(ledger).bookies()]


def lose(cluster, *names):
    """The bookies are gone for good, with what they stored."""
    cluster.kill(*names)
    for name in names:
        cluster.bookies[name].ledgers.clear()


def test_every_ledger_is_whole_again_on_other_bookies():
    """
    Plain, striped, with several fragments, with an empty last one; progress adds up; ledgers that don't name it are
    left alone.
    """
    cluster = FakeCluster(7)
    ledgers = [
        closed(cluster, {0: THREE}, 30),
        closed(cluster, {0: ["b0", "b1", "b2", "b3", "b4"]}, 61),
        closed(cluster, {0: THREE, 10: ["b0", "b1", "b3"], 20: ["b0", "b4", "b3"]}, 30),
        closed(cluster, {0: ["b0", "b2", "b3"], 8: ["b1", "b2", "b3"]}, 7),
        closed(cluster, {0: ["b2", "b3", "b4"]}, 5),
    ]
    untouched = stored.Ledgers(cluster.shared)[ledgers[-1]]
    lose(cluster, "b1")
    client = cluster.client()
    steps: list[FreeingProgress] = []
    done = cluster.succeed(recover_bookies(client, ["b1"], progress=steps.append))
    assert done.complete
    assert done.ledgers == tuple(ledgers[:-1])
    assert naming(cluster, "b1") == []
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)
    assert stored.Ledgers(cluster.shared)[ledgers[-1]] is untouched
    assert all(cluster.succeed(check_ledger(client, ledger)).complete for ledger in ledgers)
    last = steps[-1]
    striped = sum(1 for entry in range(62) if 1 in [(entry + step) % 5 for step in range(3)])
    assert (last.ledgers_seen, last.ledgers_named, last.ledgers_recovered, last.fragments) == (5, 4, 0, 5)
    assert last.entries == 31 + striped + 20
    assert last.bytes > last.entries * 36
    assert done.progress == last
    assert (last.ledgers_total, last.ledgers_done, last.ledgers_failed) == (5, 4, 0)
    begun = next(step for step in steps if step.surveyed and step.ledgers_seen)  # nothing is copied yet
    assert (begun.ledgers_named, begun.ledgers_done, begun.entries, begun.fragments) == (4, 0, 0, 0)
    assert begun.entries_total == last.entries
    assert begun.bytes_total == pytest.approx(last.bytes, rel=0.02)
    assert (last.entries_total, last.bytes_total) == (begun.entries_total, begun.bytes_total)


def test_the_metadata_names_a_bookie_only_when_it_holds_everything():
    """Looked at in the moment of each write."""
    cluster = FakeCluster(5)
    for _ in range(3):
        closed(cluster, {0: THREE, 15: ["b0", "b1", "b3"]}, 40)
    lose(cluster, "b1")
    writes: list[int] = []

    def look(name, arguments):
        if name == "write_ledger":
            ledger, metadata = arguments[:2]
            for first, last, bookies in metadata.fragment_ranges():
                for bookie in bookies:
                    if bookie != "b1":
                        assert set(range(first, last + 1)) <= set(bodies(cluster, bookie, ledger)), (bookie, first)
            writes.append(ledger)

    cluster.store_fault = look
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    assert sorted(writes) == naming(cluster, "b0")  # one edit for all fragments of a small ledger


def test_an_open_ledger_is_fenced_only_if_its_last_ensemble_names_the_lost_one():
    """The writer of the other one goes on; its settled fragment is repaired under it."""
    cluster = FakeCluster(6)
    client = cluster.client()
    before = left_open(cluster, {0: THREE, 10: ["b0", "b3", "b2"]}, 14)
    inside = left_open(cluster, {0: ["b0", "b3", "b2"], 10: THREE}, 14)
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(client, ["b1"]))
    assert done.complete
    assert not cluster.metadata(before).is_closed
    assert cluster.metadata(before).fragments[0].bookies[1] not in ("b1", "b0", "b2")
    assert not any(before in bookie.ledgers and bookie.ledgers[before].fenced for bookie in cluster.bookies.values())
    assert cluster.metadata(inside).is_closed
    assert cluster.metadata(inside).last_entry == 14
    assert is_whole(cluster, client, inside)
    assert naming(cluster, "b1") == []


def short_of(cluster, ledger, bookie, *entries):
    """The bookie never got these."""
    for entry in entries:
        del cluster.bookies[bookie].ledgers[ledger].entries[entry]


def refusing(cluster, ledger, request):
    """Bookie b2 takes no copies once the ledger is closed."""
    closed_now = cluster.metadata(ledger).is_closed
    return -12 if closed_now and request.op == "recovery add" and request.bookie == "b2" else "pass"


def test_a_ledger_that_is_closed_here_has_all_copies_also_those_above_the_ack_quorum():
    """
    One bookie lacks some that its writer had confirmed, and gets none of what the recovery writes back; the run ends
    when it has them.
    """
    cluster = FakeCluster(4)
    client = cluster.client()
    ledger = left_open(cluster, {0: THREE}, 14)
    short_of(cluster, ledger, "b2", 7, 8, 13, 14)
    lose(cluster, "b1")
    dropped = []

    def judge(request):
        if request.op == "recovery add" and request.bookie == "b2" and not cluster.metadata(ledger).is_closed:
            dropped.append(request.entry)
            return "drop"
        return "pass"

    cluster.judge = judge
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert 14 in dropped
    assert is_whole(cluster, client, ledger)
    assert cluster.metadata(ledger).fragments[-1].bookies[2] == "b2"


def test_the_share_of_a_bookie_that_takes_no_copies_of_a_closed_ledger_goes_to_another():
    """It is there and lacks copies; the ledger is whole without it."""
    cluster = FakeCluster(5)
    client = cluster.client()
    ledger = left_open(cluster, {0: THREE}, 14)
    short_of(cluster, ledger, "b2", 7, 8)
    lose(cluster, "b1")
    cluster.judge = partial(refusing, cluster, ledger)
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert is_whole(cluster, client, ledger)
    assert cluster.metadata(ledger).bookies() == {"b0", "b3", "b4"}


def test_a_closed_ledger_that_can_t_be_made_whole_is_named_and_in_the_repair_queue():
    """No bookie is left that takes what one lacks: the run says so, though no ledger names the lost one any more."""
    cluster = FakeCluster(4)
    client = cluster.client()
    ledger = left_open(cluster, {0: THREE}, 14)
    short_of(cluster, ledger, "b2", 7, 8)
    lose(cluster, "b1")
    cluster.judge = partial(refusing, cluster, ledger)
    done = cluster.succeed(recover_bookies(client, ["b1"]))
    assert [each.ledger for each in done.failed] == [ledger]
    assert naming(cluster, "b1") == []
    shortage = cluster.succeed(client.store.repairs.shortage(ledger))
    assert shortage is not None
    assert shortage.missing == ("b2",)


def test_a_living_writer_s_settled_fragment_is_repaired_under_it():
    """It lost a bookie, went on with another, and closes later: its own edits and the repair's both remain."""
    cluster = FakeCluster(6)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append_many([payload(entry) for entry in range(20)]))
    mine = writer.metadata.last_fragment.bookies[1]
    lose(cluster, mine)
    cluster.succeed(writer.append_many([payload(entry) for entry in range(20, 40)]))
    assert len(writer.metadata.fragments) == 2
    done = cluster.succeed(recover_bookies(cluster.client(), [mine]))
    assert done.complete
    assert done.progress.ledgers_recovered == 0
    assert naming(cluster, mine) == []
    cluster.succeed(writer.append_many([payload(entry) for entry in range(40, 50)]))
    cluster.spin(1)
    cluster.succeed(writer.close())
    assert naming(cluster, mine) == []
    assert cluster.metadata(writer.id).last_entry == 49
    assert is_whole(cluster, client, writer.id)


def test_a_writer_whose_ledger_is_recovered_learns_it():
    """Its ledger is closed by the repair, and the next append raises `LedgerFenced`."""
    cluster = FakeCluster(5)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append(b"x"))
    mine = writer.metadata.last_fragment.bookies[0]
    done = cluster.succeed(recover_bookies(cluster.client(), [mine], even_if_registered=True))
    assert done.complete
    assert done.progress.ledgers_recovered == 1
    assert isinstance(cluster.fails(writer.append(b"late")), LedgerFenced)


def test_two_lost_bookies_at_once():
    """Every ledger has all its copies on the remaining bookies."""
    cluster = FakeCluster(7)
    ledgers = [closed(cluster, {0: THREE}, 20), closed(cluster, {0: ["b1", "b2", "b3", "b4", "b0"]}, 41)]
    lose(cluster, "b1", "b2")
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1", "b2"])).complete
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)


def test_one_ledger_only():
    """With a ledger given no other is repaired, and an unknown one raises `NoSuchLedger`."""
    cluster = FakeCluster(4)
    first, second = closed(cluster, {0: THREE}, 5), closed(cluster, {0: THREE}, 5)
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"], ledger=first))
    assert done.ledgers == (first,)
    assert naming(cluster, "b1") == [second]
    assert isinstance(cluster.fails(recover_bookies(cluster.client(), ["b1"], ledger=99)), NoSuchLedger)


def test_a_dry_run_counts_and_changes_nothing():
    """Fragments and entries are counted without a request to a bookie or a write."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 30)
    left_open(cluster, {0: THREE, 5: ["b0", "b1", "b3"]}, 9)
    lose(cluster, "b1")
    before = dict(stored.Ledgers(cluster.shared))
    client = cluster.client()
    done = cluster.succeed(recover_bookies(client, ["b1"], dry_run=True))
    assert done.dry_run
    assert (done.progress.fragments, done.progress.entries, done.progress.ledgers_recovered) == (3, 36, 1)
    assert stored.Ledgers(cluster.shared) == before
    assert not client.pool.asked


def test_a_registered_bookie_is_not_lost():
    """IllegalOp (-100); its operator may insist."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 5)
    error = cluster.fails(recover_bookies(cluster.client(), ["b1"]))
    assert isinstance(error, IllegalOp)
    assert "b1" in str(error)
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"], even_if_registered=True)).complete
    assert "b1" not in cluster.metadata(ledger).bookies()
    assert isinstance(cluster.fails(recover_bookies(cluster.client(), [])), ValueError)


def test_without_a_spare_the_ledger_is_named_with_the_numbers_and_the_others_go_on():
    """A later run with a new bookie completes the repair."""
    cluster = FakeCluster(4)
    stuck = closed(cluster, {0: ["b0", "b1", "b2", "b3"]}, 5)
    fine = closed(cluster, {0: THREE}, 5)
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert not done.complete
    assert [each.ledger for each in done.failed] == [stuck]
    assert "all that are writable are in the ensemble or failed lately: b0, b2, b3" in done.failed[0].reason
    assert naming(cluster, "b1") == [stuck]
    assert is_whole(cluster, cluster.client(), fine)
    cluster.grow()
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    assert naming(cluster, "b1") == []


def test_an_unreadable_entry_fails_its_ledger_alone():
    """The failure names the entry, from which on its fragment keeps its bookies; other ledgers are repaired."""
    cluster = FakeCluster(5)
    hurt, fine = closed(cluster, {0: THREE, 10: ["b0", "b1", "b3"]}, 20), closed(cluster, {0: THREE}, 20)
    for name in ("b0", "b2"):
        del cluster.bookies[name].ledgers[hurt].entries[4]
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert [each.ledger for each in done.failed] == [hurt]
    assert "entry 4" in done.failed[0].reason
    assert [each.first for each in cluster.metadata(hurt).fragments if "b1" in each.bookies] == [4]
    assert naming(cluster, "b1") == [hurt]
    assert is_whole(cluster, cluster.client(), fine)


def test_a_new_bookie_that_dies_meanwhile_is_replaced_by_another():
    """The ledger is complete without the bookie that refused copies."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 40)
    lose(cluster, "b1")
    chosen: list[str] = []

    def judge(request):
        if request.op == "recovery add":
            if not chosen:
                chosen.append(request.bookie)
            if request.bookie == chosen[0]:
                return -12
        return "pass"

    cluster.judge = judge
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert chosen[0] not in cluster.metadata(ledger).bookies()
    assert is_whole(cluster, client, ledger)


def test_when_no_new_bookie_works_it_gives_up():
    """The failure has the code, and the metadata stays."""
    cluster = FakeCluster(7)
    ledger = closed(cluster, {0: THREE}, 5)
    lose(cluster, "b1")
    cluster.judge = lambda request: -12 if request.op == "recovery add" else "pass"
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert "could not store copies (code -12)" in done.failed[0].reason
    assert "b1" in cluster.metadata(ledger).bookies()


@pytest.mark.parametrize("kind", ["before", "after"])
def test_an_interrupted_run_is_begun_again(kind):
    """The store fails in the middle, with or without having stored; a second run finds what is left and ends it."""
    cluster = FakeCluster(6)
    ledgers = [closed(cluster, {0: THREE, 10: ["b1", "b0", "b3"]}, 20) for _ in range(4)]
    lose(cluster, "b1")
    left = [2]

    def trouble(name, _arguments):
        if name == "write_ledger":
            left[0] -= 1
            if left[0] < 0:
                return Fault(error=MetaStore("it is down"), applied=kind == "after")
        return None

    cluster.store_fault = trouble
    first = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert first.failed
    cluster.store_fault = lambda _name, _arguments: None
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert naming(cluster, "b1") == []
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)


def test_two_repairers_at_once_end_with_one_good_ledger():
    """
    One of them has a ledger's lock, the other one waits for it; no bookie is named twice, nothing is lost, no lock is
    left.
    """
    cluster = FakeCluster(6)
    ledgers = [closed(cluster, {0: THREE, 10: ["b1", "b0", "b3"]}, 30) for _ in range(3)]
    lose(cluster, "b1")
    clients = [cluster.client(), cluster.client()]
    outcomes = [cluster.outcome(recover_bookies(client, ["b1"])) for client in clients]
    cluster.spin(60)
    assert all(outcome.result().complete for outcome in outcomes)
    assert stored.locks(cluster.shared) == {}
    assert naming(cluster, "b1") == []
    for ledger in ledgers:
        assert is_whole(cluster, clients[0], ledger)
        assert all(len(set(each.bookies)) == 3 for each in cluster.metadata(ledger).fragments)


def test_what_another_repairs_before_its_turn_is_not_copied_again(monkeypatch):
    """Of ledgers that are more than small; the entries of small ones are, at most."""
    monkeypatch.setattr(runs, "KEPT_BYTES_MAX", 1000)
    cluster = FakeCluster(6)
    large, small = [closed(cluster, {0: THREE}, 30) for _ in range(3)], closed(cluster, {0: THREE}, 1)
    lose(cluster, "b1")
    other, lost = cluster.client(), frozenset(["b1"])
    run = FreeingRun(other, lost, lost, dry_run=False, verify=False, fence=True)
    surveyed = cluster.succeed(survey(run, None))
    assert [each.ledger for each in surveyed] == [*large, small]
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    for each in surveyed:
        cluster.succeed(free(run, each))
    done = run.result()
    assert (done.complete, done.progress.ledgers_done) == (True, 4)
    assert done.progress.entries == 2
    assert all(is_whole(cluster, other, ledger) for ledger in (*large, small))


def test_a_ledger_deleted_meanwhile_is_no_failure():
    """The repair is complete, and the ledger stays deleted."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 20)
    lose(cluster, "b1")

    def judge(request):
        if request.op == "recovery add" and ledger in stored.Ledgers(cluster.shared):
            cluster.clock.callLater(0, cluster.store.delete_ledger, ledger)
        return "pass"

    cluster.judge = judge
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    assert ledger not in stored.Ledgers(cluster.shared)


def test_a_store_that_is_down_is_an_error_not_an_empty_cluster():
    """A listing that fails must never look like "nothing to do"."""
    cluster = FakeCluster(4)
    closed(cluster, {0: THREE}, 5)
    lose(cluster, "b1")
    cluster.store_fault = lambda name, _arguments: (
        Fault(error=MetaStore("it is down")) if name == "ledger_ids" else None
    )
    assert isinstance(cluster.fails(recover_bookies(cluster.client(), ["b1"])), MetaStore)


@pytest.mark.parametrize("goes_with", ["read_ledger", "lock_repair", "write_ledger"])
def test_a_store_that_goes_is_asked_no_more(goes_with):
    """Each question takes its time to fail: a failure for each of very many ledgers would come after days."""
    cluster = FakeCluster(4)
    for _ in range(500):
        closed(cluster, {0: THREE}, 5)
    lose(cluster, "b1")
    asked = []

    def trouble(name, _arguments):
        if name == goes_with or asked:
            asked.append(name)
            return Fault(before=10.0, error=MetaStore("it is down"))
        return None

    cluster.store_fault = trouble
    begun = cluster.clock.seconds()
    assert isinstance(cluster.fails(recover_bookies(cluster.client(), ["b1"])), MetaStore)
    assert cluster.clock.seconds() - begun < 60


@pytest.mark.parametrize("refused", ["read_ledger", "lock_repair"])
def test_a_ledger_that_the_store_refuses_keeps_no_other(refused):
    """As where its access list names another user: the store is there, so it is a failure of that ledger alone."""
    cluster = FakeCluster(4)
    ledgers = [closed(cluster, {0: THREE}, 5) for _ in range(3)]
    lose(cluster, "b1")
    fault = Fault(error=MetaStoreRefused("its access list"))
    cluster.store_fault = lambda name, arguments: fault if (name, *arguments) == (refused, ledgers[1]) else None
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"]))
    assert [(each.ledger, each.reason) for each in done.failed] == [(ledgers[1], "its access list")]
    assert naming(cluster, "b1") == [ledgers[1]]


def test_a_mistyped_bookie_is_found_out_soon():
    """Many ledgers are looked at together: one after the other is a round trip of the store for each."""
    cluster = FakeCluster(4)
    for _ in range(3 * OPERATIONS_MAX):
        closed(cluster, {0: THREE}, 5)
    cluster.store_fault = lambda name, _arguments: Fault(before=0.1) if name == "read_ledger" else None
    begun = cluster.clock.seconds()
    assert isinstance(cluster.fails(check_known(cluster.client(), ["mistyped"])), BookieHandleNotAvailable)
    assert cluster.clock.seconds() - begun < 1


def test_two_living_bookies_that_each_have_what_the_other_lacks():
    """One that is replaced although it lives is read where no other bookie has an entry."""
    cluster = FakeCluster(4)
    client = cluster.client()
    ledger = closed(cluster, {0: ["b0", "b1"]}, 6, write=2)
    for name, missing in (("b0", 2), ("b1", 3)):
        del cluster.bookies[name].ledgers[ledger].entries[missing]
    assert cluster.succeed(recover_bookies(client, ["b0"], even_if_registered=True)).complete
    assert cluster.succeed(recover_bookies(client, ["b1"], even_if_registered=True)).complete
    assert cluster.succeed(check_ledger(client, ledger)).complete
    assert is_whole(cluster, client, ledger)


def test_a_ledger_whose_repair_lock_is_taken_is_left_to_the_next_run():
    """After two time-outs of a session it is a failure of this run, and the next one repairs it; others go on."""
    cluster = FakeCluster(5)
    ledger, other = (closed(cluster, {0: THREE}, 10) for _ in range(2))
    lose(cluster, "b1")
    stored.lock(cluster.shared, ledger)
    client = cluster.client()
    began, seen = cluster.clock.seconds(), []
    recovered = cluster.succeed(recover_bookies(client, ["b1"], progress=seen.append))
    assert cluster.clock.seconds() - began == pytest.approx(2 * client.options.session_timeout_ms / 1000, abs=3)
    (failed,) = recovered.failed
    assert "another process repairs it" in failed.reason
    assert (recovered.progress.ledgers_done, recovered.progress.ledgers_failed) == (2, 1)
    assert naming(cluster, "b1") == [ledger]
    assert seen[-2].ledgers_done == 1, "what waits is not done"
    assert is_whole(cluster, client, other)
    stored.unlock(cluster.shared, ledger)
    assert cluster.succeed(recover_bookies(cluster.client(), ["b1"])).complete
    assert stored.locks(cluster.shared) == {}


def test_the_lock_of_a_process_that_was_killed_is_waited_for():
    """It goes with its session, and the run that was begun again leaves nothing to a third one."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 10) for _ in range(20)]
    lose(cluster, "b1")
    for ledger in ledgers[:8]:
        stored.lock(cluster.shared, ledger)
    cluster.clock.callLater(9.0, stored.unlock, cluster.shared)
    client = cluster.client()
    running = cluster.outcome(recover_bookies(client, ["b1"]))
    cluster.spin(8.0)
    assert naming(cluster, "b1") == ledgers[:8], "the others do not wait"
    cluster.spin(3.0)
    assert running.result().complete
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)


def restarts_without(cluster, bookie, ledger, gone):
    """A bookie restarts and lacks these entries; it does not know that anything is missing."""
    cluster.kill(bookie, registered=True)
    for entry in gone:
        del cluster.bookies[bookie].ledgers[ledger].entries[entry]
    cluster.restart(bookie, registered=True)


@pytest.mark.parametrize("write", [3, 2])
@pytest.mark.parametrize("kept", ["nothing", "the newest", "all but the first", "everything"])
def test_a_new_bookie_that_lost_copies_before_it_was_named_gets_them_again(write, kept):
    """
    It restarted between the last copy and the edit of the metadata; what it kept, from earlier days or on another disk,
    says nothing about the rest.
    """
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 10, write)
    lose(cluster, "b1")
    client = cluster.client()

    def named(name, _given):
        if name == "write_ledger":
            has = sorted(bodies(cluster, "b3", ledger))
            gone = {"nothing": has, "the newest": has[:-1], "all but the first": has[:1], "everything": []}[kept]
            restarts_without(cluster, "b3", ledger, gone)

    cluster.store_fault = named
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert "b3" in cluster.metadata(ledger).bookies()
    assert is_whole(cluster, client, ledger)


def test_a_new_bookie_that_lost_copies_in_limbo_gets_them_again():
    """Its own look for what it lacks may have ended before the metadata named it."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 10)
    lose(cluster, "b1")
    client = cluster.client()

    def named(name, _given):
        if name == "write_ledger":
            restarts_without(cluster, "b3", ledger, sorted(bodies(cluster, "b3", ledger)))
            cluster.bookies["b3"].limbo = True

    cluster.store_fault = named
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert is_whole(cluster, client, ledger)


def test_a_new_bookie_that_stays_away_is_left_to_others():
    """It can't be asked whether it kept its copies: the ledger is in the queue for it, where nothing else names it."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 10)
    lose(cluster, "b1")
    client = cluster.client()
    cluster.store_fault = lambda name, _given: cluster.kill("b3") if name == "write_ledger" else None
    done = cluster.succeed(recover_bookies(client, ["b1"]))
    assert "b3" in cluster.metadata(ledger).bookies()
    assert not done.complete
    assert f"`quire ledger check {ledger}` shows whether it kept them" in done.failed[0].reason
    assert cluster.succeed(cluster.store.repairs.shortage(ledger)).missing == ("b3",)


@pytest.mark.parametrize(("away", "other"), [("b2", "b4"), ("b4", "b2")])
def test_each_new_bookie_is_asked_though_another_one_is_away(away, other):
    """One edit names several; what one of them lost is copied again, whatever became of the others."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b0", "b1", "b3"]}, 10)
    lose(cluster, "b1", "b3")
    client = cluster.client()

    def named(name, _given):
        if name == "write_ledger":
            cluster.kill(away, registered=True)
            restarts_without(cluster, other, ledger, sorted(bodies(cluster, other, ledger)))

    cluster.store_fault = named
    assert not cluster.succeed(recover_bookies(client, ["b1", "b3"])).complete
    assert cluster.metadata(ledger).bookies() == {"b0", "b2", "b4"}
    assert cluster.succeed(cluster.store.repairs.shortage(ledger)).missing == (away,)
    assert is_whole(cluster, client, ledger), "one that is away kept what it had"


def test_a_new_bookie_that_did_not_restart_is_asked_once():
    """An answer on the connection that took the copies is the proof that they are there: nothing is read back."""
    cluster = FakeCluster(4)
    closed(cluster, {0: THREE}, 10)
    lose(cluster, "b1")
    client = cluster.client()
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete
    assert [each.op for each in client.pool.asked if each.bookie == "b3"] == ["lac"]


@pytest.mark.parametrize("write", [3, 2])
@pytest.mark.parametrize("lost", [("b1",), ("b1", "b2")])
def test_nothing_is_copied_twice_because_of_an_entry_that_cant_be_read(write, lost):
    """
    What is before it is named, so the next tries copy nothing, and once it can be read the rest; in the end it is one
    fragment again.
    """
    cluster = FakeCluster(7)
    names = ["b0", "b1", "b2"] if write == 3 else ["b0", "b1", "b3", "b2"]
    ledger = closed(cluster, {0: names}, 29, write)
    entry = next(each for each in bodies(cluster, lost[0], ledger) if each >= 10)
    lose(cluster, *lost)
    there = [name for name in names if name not in lost]
    whole = {name: bodies(cluster, name, ledger) for name in there}
    for name in there:
        if entry in whole[name]:
            damage(cluster, name, ledger, entry)
    client = cluster.client()
    first = cluster.succeed(recover_bookies(client, lost))
    assert any(f"entry {entry} " in each.reason for each in first.failed)
    stored = {name: len(bodies(cluster, name, ledger)) for name in cluster.bookies}
    now = cluster.metadata(ledger)
    for _ in range(2):
        again = cluster.succeed(recover_bookies(client, lost))
        assert [each.reason for each in again.failed] == [each.reason for each in first.failed]
        assert again.progress.entries == 0
    assert {name: len(bodies(cluster, name, ledger)) for name in cluster.bookies} == stored
    assert cluster.metadata(ledger) == now
    for name in there:
        cluster.bookies[name].ledgers[ledger].entries.update(whole[name])
    if all(any(each in whole[name] for name in there) for each in range(30)):
        assert cluster.succeed(recover_bookies(client, lost)).complete
        assert is_whole(cluster, client, ledger)
        assert len(cluster.metadata(ledger).fragments) == 1


def test_a_repair_that_lost_its_lock_names_no_bookie():
    """Its copies may have been dropped meanwhile as superfluous, by the next holder of the lock."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 10)
    lose(cluster, "b1")
    client = cluster.client()
    client.store = store = MemoryStore(cluster.clock, cluster.shared)
    before = stored.Ledgers(cluster.shared)[ledger]

    def expire(name, _arguments):
        if name == "write_ledger" and before is stored.Ledgers(cluster.shared)[ledger]:  # the copies are made
            store.faults = None
            store.expire_session()

    store.faults = expire
    (failed,) = cluster.succeed(recover_bookies(client, ["b1"])).failed
    assert "went with the session" in failed.reason
    assert stored.Ledgers(cluster.shared)[ledger] is before
    assert cluster.succeed(recover_bookies(client, ["b1"])).complete


def test_without_a_fence_what_is_settled_is_repaired():
    """Under a lock that the caller has and keeps; the rest is named with what to do."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE, 10: ["b0", "b1", "b3"]}, 20)
    lose(cluster, "b1")
    client = cluster.client()
    lock = cluster.succeed(client.store.repairs.lock(ledger))
    done = cluster.succeed(recover_bookies(client, ["b1"], ledgers=[ledger], fence=False, lock=lock))
    assert [each.ledger for each in done.failed] == [ledger]
    assert "is not closed" in done.failed[0].reason
    settled, written = cluster.metadata(ledger).fragments
    assert "b1" not in settled.bookies
    assert "b1" in written.bookies
    assert not any(each.ledgers[ledger].fenced for each in cluster.bookies.values() if ledger in each.ledgers)
    assert cluster.succeed(client.store.repairs.holds(lock))


def test_a_fragment_without_hope_does_not_keep_the_others():
    """Also when the ledger can't be closed because all bookies of its last ensemble are gone."""
    cluster = FakeCluster(8)
    one = closed(cluster, {0: ["b1"], 10: ["b1", "b2", "b3"][:1]}, 20, write=1)
    mixed = closed(cluster, {0: THREE, 10: ["b5", "b6", "b1"]}, 20)
    for name in ("b5", "b6"):
        cluster.bookies[name].ledgers.pop(mixed)
    unclosed = left_open(cluster, {0: THREE, 10: ["b1", "b5", "b6"]}, 20)
    lose(cluster, "b1", "b5", "b6")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1", "b5", "b6"]), seconds=600)
    assert {each.ledger for each in done.failed} == {one, mixed, unclosed}
    assert "b1" not in cluster.metadata(mixed).fragments[0].bookies
    assert "b1" not in cluster.metadata(unclosed).fragments[0].bookies
    assert not cluster.metadata(unclosed).is_closed


def test_a_lock_that_was_lost_names_nothing():
    """It went with its session while copies were made: the metadata is left as it was."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 20)
    lose(cluster, "b1")
    client = cluster.client()
    client.store = MemoryStore(cluster.clock, cluster.shared)
    lock = cluster.succeed(client.store.repairs.lock(ledger))
    client.store.expire_session()
    assert not cluster.succeed(client.store.repairs.holds(lock))
    done = cluster.succeed(recover_bookies(client, ["b1"], ledgers=[ledger], lock=lock))
    assert "lock" in done.failed[0].reason
    assert naming(cluster, "b1") == [ledger]


def accepting(ranges: Mapping[int, Ranges]) -> Accept:
    """An operator who lets go of these, whatever is listed."""

    async def accept(_failed: Sequence[Failed]) -> Mapping[int, Ranges]:
        return ranges

    return accept


@pytest.mark.parametrize("seed", range(30))
def test_an_entry_is_gone_when_its_whole_write_set_lacks_it(seed: int) -> None:
    """Compared, entry by entry, with what each bookie really has; shapes, losses and holes are drawn."""
    rng = Random(seed)
    cluster = FakeCluster(6)
    ensemble = rng.randint(1, 5)
    write = rng.randint(1, ensemble)
    names = rng.sample(sorted(cluster.bookies), ensemble)
    last = rng.randint(0, 60)
    ledger = closed(cluster, {0: names}, last, write)
    for name in names:
        stored = cluster.bookies[name].ledgers.get(ledger)
        for entry in list(stored.entries) if stored is not None else ():
            if rng.random() < 0.3:
                del stored.entries[entry]
            elif rng.random() < 0.05:
                damage(cluster, name, ledger, entry)
    lost = rng.sample(names, rng.randint(1, ensemble))
    cluster.kill(*lost)
    quorums = Quorums.of(cluster.metadata(ledger))

    def has(name: str, entry: int) -> bool:
        body = bodies(cluster, name, ledger).get(entry, b"")
        return name not in lost and body.endswith(payload(entry))

    truly = [
        entry for entry in range(last + 1) if not any(has(names[index], entry) for index in quorums.write_set(entry))
    ]
    found = cluster.succeed(gone_of(cluster.client(), ledger, lost))
    assert [entry for first, end in found.ranges for entry in range(first, end + 1)] == truly
    assert found.entries == len(truly)
    assert all(before[1] + 1 < after[0] for before, after in zip(found.ranges, found.ranges[1:], strict=False))


def test_who_does_not_answer_may_have_it() -> None:
    """A survivor that can't be asked, or can't read, is no proof of a loss."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b1", "b2"]}, 5, write=2)
    lose(cluster, "b1")
    cluster.judge = lambda request: Read.code if request.bookie == "b2" else "pass"
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1"])).ranges == ()
    cluster.judge = lambda request: "pass"
    cluster.kill("b2")
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1"])).ranges == ()
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1", "b2"])).ranges == ((0, 5),)


def test_what_is_given_up_lets_the_bookie_go_and_the_rest_is_copied() -> None:
    """
    Without a word of acceptance nothing is let go; with it all that has a copy is on others, and the cookie goes; a
    reader is told at each entry that is gone, reads all others, and the end is the same as before.
    """
    cluster = FakeCluster(6)
    names = ["b0", "b1", "b2", "b3"]
    ledger = closed(cluster, {0: names, 30: ["b0", "b2", "b3", "b4"]}, 40, write=2)
    single = closed(cluster, {0: ["b1"]}, 9, write=1)
    cookie(cluster, "b1")
    for entry in (5, 6):  # b1 and its other bookie
        for name in set(names) - {"b1"}:
            cluster.bookies[name].ledgers[ledger].entries.pop(entry, None)
    lose(cluster, "b1")
    client = cluster.client()
    error = cluster.fails(decommission(client, "b1"))
    assert isinstance(error, Replication)
    assert naming(cluster, "b1") == [ledger, single]

    gone = [cluster.succeed(gone_of(client, each, ["b1"])) for each in (ledger, single)]
    assert [each.ranges for each in gone] == [((5, 6),), ((0, 9),)]
    done = cluster.succeed(decommission(client, "b1", accept=accepting({each.ledger: each.ranges for each in gone})))
    assert done.complete
    assert (done.progress.ledgers_done, done.progress.ledgers_failed) == (2, 0)
    assert naming(cluster, "b1") == []
    with pytest.raises(CookieNotFound):
        cluster.succeed(cluster.store.read_cookie("b1"))

    reader = cluster.succeed(client.open_ledger(ledger))
    assert reader.last_entry_id == 40
    for entry in range(41):
        if entry in (5, 6):
            assert isinstance(cluster.fails(reader.read(entry, entry)), NoSuchEntry | NoSuchLedgerExists)
        else:
            assert [each.data for each in cluster.succeed(reader.read(entry, entry))] == [payload(entry)]
    reader = cluster.succeed(client.open_ledger(single))
    assert reader.last_entry_id == 9
    assert isinstance(cluster.fails(reader.read(0, 9)), NoSuchEntry | NoSuchLedgerExists)
    assert not cluster.succeed(check_ledger(client, single)).complete


def test_only_what_was_accepted_is_let_go() -> None:
    """One entry more that has no copy, and the ledger stays as it is."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accepting({ledger: ((0, 8),)})))
    assert [each.ledger for each in done.failed] == [ledger]
    assert "entry 9" in done.failed[0].reason
    assert naming(cluster, "b1") == [ledger]


@pytest.mark.parametrize("for_s", [5.0, 1e6], ids=["for a while", "for good"])
def test_what_another_process_locks_meanwhile_is_not_forgotten(for_s: float) -> None:
    """It is waited for, or it has failed; it never counts as let go."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")

    async def accept(_failed: Sequence[Failed]) -> Mapping[int, Ranges]:
        stored.lock(cluster.shared, ledger)
        cluster.clock.callLater(for_s, stored.unlock, cluster.shared)
        return {ledger: ((0, 9),)}

    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accept))
    waited = for_s < 60
    assert done.complete is waited
    assert [each.ledger for each in done.failed] == ([] if waited else [ledger])
    assert (done.progress.ledgers_done, done.progress.ledgers_failed) == (1, 0 if waited else 1)
    assert naming(cluster, "b1") == ([] if waited else [ledger])


def test_an_open_ledger_whose_end_nobody_knows_is_never_let_go() -> None:
    """It could only be closed on a guess; an acceptance of entries does not change that."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: ["b1"]}, 9, write=1)
    cookie(cluster, "b1")
    lose(cluster, "b1")
    client = cluster.client()
    assert cluster.succeed(gone_of(client, ledger, ["b1"])).ranges == ()
    cluster.fails(decommission(client, "b1", accept=accepting({ledger: ((0, 9),)})))
    assert not cluster.metadata(ledger).is_closed
    assert naming(cluster, "b1") == [ledger]
    assert cluster.succeed(cluster.store.cookies()) == ["b1"], "so nobody can come under its id and say no"


def test_autorecovery_has_nothing_more_to_try() -> None:
    """
    The mark for the lost bookie stays, parked as gone: nobody has what the bookie that is named now lacks.  So does one
    that a check of copies makes.
    """
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")
    assert tried(cluster, ledger, "b1").outlook is Outlook.GONE
    cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accepting({ledger: ((0, 9),)})))
    (named,) = cluster.metadata(ledger).bookies()
    stored.whole(cluster.shared)
    assert tried(cluster, ledger, "b1").outlook is Outlook.GONE
    stored.whole(cluster.shared)
    assert tried(cluster, ledger, named).outlook is Outlook.GONE
    assert cluster.metadata(ledger).bookies() == {named}
