"""Passes of an auditor for lost bookies: each ledger is read and marked once, and what is cut off is gone on with."""

from collections import Counter
from typing import Any

import pytest

from quire.metadata.memory.cluster import Fault
from quire.metadata.records import NoRecord
from quire.metadata.store import ServiceInfo, Watch
from quire.replication.autorecovery.notes import Note, Notes
from quire.replication.autorecovery.running import Auditor
from quire.replication.autorecovery.walk import Resume, Stretch
from quire.replication.core import known_copies
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.processes import AWAY, THREE, faulty, joined, options, queue, store_of
from tests.replication.stories import cookie

# SPDX-License-Identifier: Apache-2.0

LEDGERS = 3000


class Counting:
    """How often each operation was called, by an auditor with a client of its own."""

    def __init__(self, cluster: FakeCluster, deaf: bool = False, **changed: object) -> None:
        self.calls: Counter[str] = Counter()
        self.reads = 0
        self.away = False
        self.client = joined(cluster)
        faulty(self.client, self.fault)
        if deaf:
            store_of(self.client).watch_bookies = lambda _fn: Watch(lambda: None)  # type: ignore[method-assign]
        self.auditor = Auditor(self.client, options(**changed))
        self.auditor.start()

    def fault(self, name: str, arguments: tuple[Any, ...]) -> Fault | None:
        self.calls[name] += 1
        self.reads += name == "read_ledger"
        return AWAY if self.away else None


def ledgers_of(cluster: FakeCluster, count: int, odd: int = 10) -> list[int]:
    """So many closed ledgers, without entries on bookies; those that name b2: one of `odd`."""
    found = []
    for number in range(count):
        bookies = THREE if number % odd == 0 else ["b0", "b3", "b4"]
        ledger = cluster.ledger({0: bookies}, 3, 2)
        now = stored.Ledgers(cluster.shared)[ledger]
        stored.Ledgers(cluster.shared)[ledger] = now._replace(value=now.value.closed(-1, 0))
        if bookies is THREE:
            found.append(ledger)
    return found


@pytest.fixture
def nothing_known(monkeypatch):
    """As where there are more ledgers than an auditor keeps in mind."""
    monkeypatch.setattr(known_copies, "BYTES_MAX", 0)


def test_each_ledger_is_read_once_and_marked_once() -> None:
    """All in one pass at a bounded rate: at most 1.1 reads of each, one mark of each that names the bookie."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, LEDGERS)
    cluster.kill("b2")
    cookie(cluster, "b2")
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 5)
    cluster.spin(2)
    assert 0 < len(queue(cluster)) < len(named)
    cluster.spin(10)
    assert queue(cluster) == named
    assert auditor.calls["repair_mark"] == len(named) + 1, "there are no directories at first"
    assert LEDGERS <= auditor.reads <= 1.1 * LEDGERS
    assert auditor.auditor.losses.passes == 1
    auditor.auditor.stop()


@pytest.mark.usefixtures("nothing_known")
def test_a_pass_that_was_cut_off_goes_on() -> None:
    """The next auditor reads what is left, also when the bookie's delay begins anew with it; and no more passes."""
    for delay in (0, 30):
        cluster = FakeCluster(5)
        named = ledgers_of(cluster, LEDGERS)
        for bookie in cluster.bookies:
            cookie(cluster, bookie)
        cluster.kill("b2")
        first = Counting(cluster, ledgers_per_second=LEDGERS // 10, lost_bookie_recovery_delay_s=delay)
        cluster.spin(5 + delay)
        first.auditor.stop()
        half = len(queue(cluster))
        assert 0.2 < half / len(named) < 0.9
        second = Counting(cluster, ledgers_per_second=100_000, lost_bookie_recovery_delay_s=delay)
        cluster.spin(delay + 5)
        assert queue(cluster) == named
        assert second.calls["repair_mark"] <= len(named) - half + 50
        if not delay:
            assert second.reads <= LEDGERS * (1.1 - half / len(named))
            assert second.auditor.losses.passes == 1
        second.auditor.stop()


@pytest.mark.usefixtures("nothing_known")
def test_a_bookie_that_is_lost_twice_in_a_pass_is_marked_everywhere() -> None:
    """It came back in the middle and left again: what was passed over meanwhile is looked at again."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, LEDGERS)
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(12)
    cluster.kill("b2")
    cluster.spin(3)
    some = len(queue(cluster))
    assert 0 < some < len(named)
    cluster.restart("b2")
    cluster.kill("b1")
    cluster.spin(3)
    cluster.kill("b2")
    cluster.spin(60)
    assert queue(cluster) == named
    assert all(set(each.missing) == {"b1", "b2"} for each in stored.shortages(cluster.shared).values())
    auditor.auditor.stop()


def test_what_is_known_to_name_a_lost_bookie_is_marked_at_once() -> None:
    """In as many reads as it has ledgers; a pass over all of them follows, and marks none of these again."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, LEDGERS)
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(12)
    assert auditor.reads <= 1.1 * LEDGERS
    auditor.reads = 0
    cluster.kill("b2")
    while len(queue(cluster)) < len(named):
        cluster.spin(0.1)
    assert auditor.reads <= len(named) + 500, "what is known, and a page of the pass"
    cluster.spin(20)
    assert auditor.auditor.losses.passes == 2
    assert auditor.reads <= len(named) + 1.1 * LEDGERS
    assert auditor.auditor.losses.marked == len(named)
    auditor.auditor.stop()


def test_what_came_to_name_a_bookie_since_it_was_read_is_marked() -> None:
    """By the pass that follows: a copy that was moved; one that was open, or made since, before all others."""
    cluster = FakeCluster(5)
    opened = cluster.ledger({0: ["b0", "b3", "b4"]}, 3, 2)
    named = ledgers_of(cluster, LEDGERS)
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(12)
    made = cluster.ledger({0: THREE}, 3, 2)
    moved = named[-5] + 1
    with_b2 = stored.Ledgers(cluster.shared)[named[0]].value
    for ledger in (opened, moved):
        now = stored.Ledgers(cluster.shared)[ledger]
        stored.Ledgers(cluster.shared)[ledger] = now._replace(value=with_b2)
    cluster.kill("b2")
    cluster.spin(4)
    assert queue(cluster) == sorted([*named, opened, made])
    cluster.spin(20)
    assert queue(cluster) == sorted([*named, opened, made, moved])
    auditor.auditor.stop()


@pytest.mark.usefixtures("nothing_known")
def test_losses_during_a_pass_join_it() -> None:
    """Each ledger is read twice at most, for all bookies that are lost while a pass lasts, and marked for each."""
    cluster = FakeCluster(12)
    for number in range(LEDGERS):
        ledger = cluster.ledger({0: [f"b{number % 5}", "b10", "b11"]}, 3, 2)
        now = stored.Ledgers(cluster.shared)[ledger]
        stored.Ledgers(cluster.shared)[ledger] = now._replace(value=now.value.closed(-1, 0))
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(12)
    auditor.reads = 0
    for bookie in range(5):
        cluster.kill(f"b{bookie}")
        cluster.spin(1)
    cluster.spin(30)
    assert queue(cluster) == list(range(LEDGERS))
    assert auditor.auditor.losses.marked == LEDGERS
    assert auditor.reads <= 2.1 * LEDGERS, "each by itself would take 3"
    auditor.auditor.stop()


@pytest.mark.usefixtures("nothing_known")
def test_a_bookie_that_comes_back_ends_the_pass() -> None:
    """No further ledger is marked, or read, for it."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, LEDGERS)
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(12)
    cluster.kill("b2")
    cluster.spin(3)
    cluster.restart("b2")
    cluster.spin(1)
    marked, reads = len(queue(cluster)), auditor.reads
    assert 0 < marked < len(named)
    cluster.spin(60)
    assert len(queue(cluster)) == marked
    assert auditor.reads <= reads + 500
    auditor.auditor.stop()


def test_the_switch_is_turned_off_in_a_pass() -> None:
    """It waits where it is, reads no more, and goes on when the switch is on again."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, LEDGERS)
    cluster.kill("b2")
    cookie(cluster, "b2")
    auditor = Counting(cluster, ledgers_per_second=LEDGERS // 10)
    cluster.spin(3)
    cluster.succeed(cluster.store.repairs.set_enabled(False))
    cluster.spin(2)
    marked, reads = len(queue(cluster)), auditor.reads
    assert 0 < marked < len(named)
    cluster.spin(100)
    assert (len(queue(cluster)), auditor.reads) == (marked, reads)
    cluster.succeed(cluster.store.repairs.set_enabled(True))
    cluster.spin(15)
    assert queue(cluster) == named
    auditor.auditor.stop()


def test_a_store_that_was_away_is_no_absence() -> None:
    """A bookie inside its delay when the store went, and back soon after that came, is not lost."""
    cluster = FakeCluster(5)
    ledgers_of(cluster, 50)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(40)
    auditor.away = True
    cluster.spin(60)
    auditor.away = False
    cluster.spin(10)
    assert auditor.auditor.absences.lost == set()
    cluster.restart("b2")
    cluster.spin(200)
    assert (queue(cluster), auditor.auditor.losses.marked) == ([], 0)
    cluster.kill("b2")
    cluster.spin(65)
    assert len(queue(cluster)) == 5
    auditor.auditor.stop()


def test_a_bookie_that_has_just_come_is_not_missed() -> None:
    """A ledger names it before the auditor was told of it: it is looked for first."""
    cluster = FakeCluster(5)
    ledgers_of(cluster, 2000)
    fresh = Counting(cluster, deaf=True, ledgers_per_second=1000)
    cluster.spin(0.5)
    name = cluster.grow()
    cluster.ledger({0: ["b0", "b1", name]}, 3, 2)
    cluster.spin(10)
    assert queue(cluster) == []
    assert fresh.auditor.absences.lost == set()
    fresh.auditor.stop()


def test_an_answer_that_came_late_is_not_believed() -> None:
    """A bookie came, and was told of, while the list was on its way: that is asked for again, and it is not missed."""
    cluster = FakeCluster(5)
    auditor = Counting(cluster)
    slow: list[float] = []

    def fault(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        auditor.fault(name, arguments)
        return Fault(after=slow.pop()) if name == "bookies" and slow else None

    cluster.spin(1)
    slow.append(2.0)
    faulty(auditor.client, fault)
    auditor.auditor.losses.audit()
    cluster.spin(0.5)
    name = cluster.grow()
    cluster.ledger({0: ["b0", "b1", name]}, 3, 2)
    cluster.spin(10)
    assert auditor.auditor.losses.marked == 0
    assert auditor.auditor.absences.lost == set()
    auditor.auditor.stop()


def test_a_mark_is_not_made_twice_when_another_one_fails() -> None:
    """What the store did not take is tried again, and only that."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    auditor = Counting(cluster)
    cluster.spin(5)
    refused: list[int] = []

    def fault(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        auditor.fault(name, arguments)
        if name == "repair_mark" and arguments[0] == named[7] and len(refused) < 3:
            refused.append(named[7])
            return AWAY
        return None

    faulty(auditor.client, fault)
    cluster.kill("b2")
    cluster.spin(10)
    assert queue(cluster) == named
    assert auditor.auditor.losses.marked == len(named)
    assert auditor.calls["repair_mark"] == len(named) + 3 + 1, "there are no directories at first"
    auditor.auditor.stop()


def test_an_audit_is_asked_for() -> None:
    """By setting the delay to what it is: who is away counts as lost, and all ledgers are looked at once more."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 50)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=1000)
    cluster.spin(5)
    assert cluster.succeed(cluster.store.auditing.delay()) == 1000
    assert auditor.auditor.losses.passes == 1
    cluster.kill("b2")
    cluster.spin(5)
    assert queue(cluster) == []
    cluster.succeed(cluster.store.auditing.set_delay(1000))
    cluster.spin(5)
    assert queue(cluster) == named
    auditor.auditor.stop()


def test_old_notes_of_ledgers_that_are_not_in_the_queue_go() -> None:
    """A fresh one may be that of a scrub, which marks the ledger next."""
    cluster = FakeCluster(5)
    now_ms = cluster.succeed(cluster.store.records.clock())
    notes = Notes(cluster.store.records)
    cluster.succeed(cluster.store.repairs.mark(3, ["b0"], None))
    for ledger, at_ms in ((1, now_ms - 10_000_000), (2, now_ms), (3, now_ms - 10_000_000)):
        cluster.succeed(notes.write(Note(ledger, "GONE", "why", 1, at_ms, at_ms, "host")))
    auditor = Counting(cluster)
    cluster.spin(5)
    assert cluster.succeed(notes.read_one(1)) is None
    assert cluster.succeed(notes.read_one(2)) is not None
    assert cluster.succeed(notes.read_one(3)) is not None
    auditor.auditor.stop()


def test_a_pass_of_other_bookies_is_not_gone_on_with() -> None:
    """What an earlier auditor left is of no use when others are lost; it is gone after the next pass."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    resume = Resume(cluster.store.records, "losses")
    cluster.succeed(resume.write([Stretch(("b4",), 90, None)]))
    cluster.kill("b2")
    cookie(cluster, "b2")
    auditor = Counting(cluster)
    cluster.spin(5)
    assert queue(cluster) == named
    assert isinstance(cluster.fails(cluster.store.records.read("autorecovery/passes/losses")), NoRecord)
    auditor.auditor.stop()


def test_a_pass_is_not_gone_on_with_once_its_bookie_was_back() -> None:
    """What had been marked for it may have left the queue since: all ledgers are looked at when it is lost again."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    cluster.succeed(Resume(cluster.store.records, "losses").write([Stretch(("b2",), named[-1], None)]))
    cookie(cluster, "b2")
    cluster.kill("b2")
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=30)
    cluster.spin(10)
    cluster.restart("b2")
    cluster.spin(10)
    cluster.kill("b2")
    cluster.spin(40)
    assert queue(cluster) == named
    auditor.auditor.stop()


@pytest.mark.parametrize("audits_s", [0, 86_400])
def test_a_pass_that_was_gone_on_with_is_followed_by_a_whole_one(audits_s: int) -> None:
    """
    Two minutes later, also without checks from time to time, for the bookie may have been back while nobody audited.
    """
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    cluster.succeed(Resume(cluster.store.records, "losses").write([Stretch(("b2",), named[-1], None)]))
    cookie(cluster, "b2")
    cluster.kill("b2")
    auditor = Counting(cluster, bookie_check_interval_s=audits_s)
    cluster.spin(60)
    assert queue(cluster) == []
    cluster.spin(90)
    assert queue(cluster) == named
    auditor.auditor.stop()


def test_lost_bookies_that_may_have_been_back_unseen_are_marked_anew() -> None:
    """Two minutes later, by one pass over all ledgers: what had been marked for them may have left the queue since."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    auditor = Counting(cluster)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    assert queue(cluster) == named
    passes = auditor.auditor.losses.passes
    stored.whole(cluster.shared)
    for _ in range(3):
        cluster.restart("b2")
        cluster.kill("b2")
        cluster.spin(30)
    assert queue(cluster) == []
    cluster.spin(60)
    assert queue(cluster) == named
    cluster.spin(1000)
    assert auditor.auditor.losses.passes == passes + 1
    auditor.auditor.stop()


def test_an_absence_of_which_a_part_was_not_seen_begins_anew() -> None:
    """The auditor stands still while a bookie inside its delay comes back and goes again; the delay begins after."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(50)
    cluster.restart("b2")
    cluster.kill("b2")  # in one moment: the next look does not show it
    cluster.spin(50)
    assert queue(cluster) == [], "away for 50 s"
    cluster.spin(20)
    assert queue(cluster) == named
    auditor.auditor.stop()


@pytest.mark.parametrize("other", ["b1", "b4"])
def test_a_bookie_that_restarts_over_and_over_delays_no_other(other: str) -> None:
    """Each time unseen between two looks: its registration shows that it was this one that left and came."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 100)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    cluster.kill("b2")
    for _ in range(6):
        cluster.spin(9)
        cluster.kill(other)
        cluster.restart(other)
    cluster.spin(5)
    assert queue(cluster) == [], "away for 59 s"
    cluster.spin(3)
    assert queue(cluster) == named
    auditor.auditor.stop()


def test_bookies_that_restart_unseen_while_none_is_lost_cost_no_pass() -> None:
    """Nor does one that changes between writable and read-only; each that leaves, and is back at the next look."""
    cluster = FakeCluster(5)
    ledgers_of(cluster, 100)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    passes, reads = auditor.auditor.losses.passes, auditor.reads
    for _ in range(3):
        for bookie in list(cluster.bookies):
            cluster.kill(bookie)
            cluster.restart(bookie)
            cluster.spin(20)
    for read_only in (True, False):
        cluster.succeed(cluster.store.register_bookie("b1", ServiceInfo.of("127.0.0.1", 1), read_only))
        cluster.spin(20)
    assert (auditor.auditor.losses.passes, auditor.reads) == (passes, reads)
    assert auditor.auditor.losses.marked == 0
    auditor.auditor.stop()


def test_a_bookie_that_was_never_seen_is_missed() -> None:
    """It came, a ledger came to name it, it was lost, all between two looks: its cookie says that it ought to be."""
    cluster = FakeCluster(5)
    ledgers_of(cluster, 100)
    auditor = Counting(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    name = cluster.grow()
    cookie(cluster, name)
    ledger = cluster.ledger({0: ["b0", "b1", name]}, 3, 2)
    cluster.kill(name)
    cluster.spin(50)
    assert queue(cluster) == []
    cluster.spin(20)
    assert queue(cluster) == [ledger]
    auditor.auditor.stop()


def test_a_bookie_that_is_lost_again_is_marked_again() -> None:
    """Else a repair that saw it there would take its mark off the queue; an audit later changes no mark."""
    cluster = FakeCluster(5)
    named = ledgers_of(cluster, 30)
    for bookie in cluster.bookies:
        cookie(cluster, bookie)
    auditor = Counting(cluster)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    assert queue(cluster) == named
    cluster.restart("b2")
    cluster.spin(5)
    lock = cluster.succeed(cluster.store.repairs.take())
    cluster.kill("b2")
    cluster.spin(5)
    assert cluster.succeed(cluster.store.repairs.finish(lock)) is False
    assert queue(cluster) == named
    before, passes = stored.shortages(cluster.shared), auditor.auditor.losses.passes
    auditor.auditor.losses.audit()
    cluster.spin(5)
    assert auditor.auditor.losses.passes == passes + 1
    assert stored.shortages(cluster.shared) == before
    auditor.auditor.stop()
