"""AutoRecovery as a whole, on virtual time: bookies die, and every ledger comes to have all its copies again."""

import pytest

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.replication.autorecovery import walk
from quire.replication.autorecovery.running import Auditor
from quire.replication.concurrently import BEGIN_AGAIN_S
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.metadata.stored import votes
from tests.replication.autorecovery.processes import (
    AWAY,
    THREE,
    faulty,
    healing,
    joined,
    locks,
    options,
    queue,
    store_of,
)
from tests.replication.stories import closed, cookie, is_whole, left_open

# SPDX-License-Identifier: Apache-2.0


def test_a_lost_bookie_is_made_good() -> None:
    """Its ledgers are marked, copied to others, and leave the queue; nothing is written for others."""
    cluster = FakeCluster(5)
    for name in cluster.bookies:
        cookie(cluster, name)
    named = [closed(cluster, {0: THREE}, 20) for _ in range(10)]
    other = closed(cluster, {0: ["b0", "b3", "b4"]}, 20)
    process = healing(cluster)
    cluster.spin(5)
    assert process.status()["auditor"] is True
    before = stored.Ledgers(cluster.shared)[other].version
    cluster.kill("b2")
    cluster.spin(20)
    client = cluster.client()
    for ledger in named:
        assert "b2" not in cluster.metadata(ledger).bookies()
        assert is_whole(cluster, client, ledger)
        assert stored.Ledgers(cluster.shared)[ledger].version == before + 1
    assert stored.Ledgers(cluster.shared)[other].version == before
    assert queue(cluster) == []
    assert process.worker.tally.repaired == len(named)
    cluster.succeed(process.stop())
    assert stored.locks(cluster.shared) == {}


def test_an_open_ledger_has_its_grace() -> None:
    """It is closed when nothing moved for the grace, and what was settled before is copied at once."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE, 10: ["b0", "b3", "b2"]}, 20)
    healing(cluster, open_ledger_grace_ms=30_000)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(15)
    settled, written = cluster.metadata(ledger).fragments
    assert "b2" not in settled.bookies
    assert "b2" in written.bookies
    assert not cluster.metadata(ledger).is_closed
    assert queue(cluster) == [ledger]
    cluster.spin(60)
    assert cluster.metadata(ledger).is_closed
    assert is_whole(cluster, cluster.client(), ledger)
    assert queue(cluster) == []


def marked_before(cluster: FakeCluster, ledger: int, *bookies: str) -> None:
    """By a check, long ago."""
    cluster.succeed(cluster.store.repairs.mark(ledger, bookies, 1))


def test_a_bookie_that_was_marked_before_has_its_delay_as_well() -> None:
    """A ledger that waits for a spare when one of its bookies restarts: that one is filled, not replaced."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 50)
    process = healing(cluster, lost_bookie_recovery_delay_s=600)
    cluster.spin(5)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    cluster.kill("b1")
    cluster.spin(2)
    marked_before(cluster, ledger, "b1")
    cluster.spin(300)
    assert cluster.metadata(ledger).bookies() == set(THREE)
    assert queue(cluster) == [ledger]
    cluster.restart("b1")
    cluster.spin(30)
    assert queue(cluster) == []
    assert process.status()["entries"] == 1
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_ledger_that_was_marked_before_is_not_closed_within_the_delay() -> None:
    """Its idle writer goes on when the bookie is back; when it is lost, the writer has its grace."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 5)
    del cluster.bookies["b1"].ledgers[ledger].entries[2]
    healing(cluster, lost_bookie_recovery_delay_s=600)
    cluster.spin(5)
    marked_before(cluster, ledger, "b1")
    cluster.spin(100)
    cluster.kill("b1")
    cluster.spin(500)
    assert not cluster.metadata(ledger).is_closed
    cluster.spin(600)
    assert cluster.metadata(ledger).is_closed
    assert is_whole(cluster, cluster.client(), ledger)
    assert queue(cluster) == []


def test_who_is_away_and_asked_for_is_replaced_within_the_delay() -> None:
    """The operator's audit counts it as lost: the mark is younger than its absence."""
    cluster = FakeCluster(5)
    cluster.shared.time_of_day = lambda: 1e9 + cluster.clock.seconds()
    ledger = closed(cluster, {0: THREE}, 50)
    process = healing(cluster, lost_bookie_recovery_delay_s=600)
    cluster.spin(5)
    cluster.kill("b1", "b3", "b4")
    cluster.spin(5)
    marked_before(cluster, ledger, "b1")
    cluster.spin(5)
    cluster.restart("b3", "b4")
    cluster.spin(5)
    assert queue(cluster) == [ledger]
    cluster.succeed(cluster.store.auditing.set_delay(600))
    cluster.spin(60)
    assert queue(cluster) == []
    assert "b1" not in cluster.metadata(ledger).bookies()
    assert process.status()["lost"] == ["b1"]


def test_a_bookie_inside_its_delay_costs_nothing() -> None:
    """It restarts, and no ledger is marked."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 20) for _ in range(3)]
    process = healing(cluster, lost_bookie_recovery_delay_s=60)
    cluster.spin(5)
    for name in cluster.bookies:
        cluster.kill(name)
        cluster.spin(30)
        cluster.restart(name)
        cluster.spin(30)
    assert process.status()["marked"] == 0
    assert [stored.Ledgers(cluster.shared)[ledger].version for ledger in ledgers] == [1, 1, 1]


def test_what_is_gone_delays_nobody() -> None:
    """A ledger without a copy is parked with its reason, the others are repaired."""
    cluster = FakeCluster(6)
    gone = [closed(cluster, {0: ["b2"]}, 5, write=1) for _ in range(20)]
    others = [closed(cluster, {0: THREE}, 20) for _ in range(20)]
    process = healing(cluster)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(40)
    assert sorted(queue(cluster)) == gone
    assert all(is_whole(cluster, cluster.client(), ledger) for ledger in others)
    assert process.status()["parked"] == {"GONE": len(gone)}
    failed = process.worker.tally.failed
    cluster.spin(3000)
    assert process.worker.tally.failed == failed == len(gone)
    cluster.restart("b2")
    cluster.spin(4000)
    assert queue(cluster) == []


def test_the_next_one_takes_over() -> None:
    """The elected process dies; the other one audits once its session is over."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 20)
    first, second = healing(cluster, "a1:3181"), healing(cluster, "a2:3181")
    cluster.spin(5)
    assert (first.status()["auditor"], second.status()["auditor"]) == (True, False)
    cluster.succeed(first.stop())
    cluster.kill("b2")
    cluster.spin(20)
    assert second.status()["auditor"] is True
    assert is_whole(cluster, cluster.client(), ledger)
    assert "b2" not in cluster.metadata(ledger).bookies()


def test_the_store_is_away_ten_times() -> None:
    """For three session time-outs each; a mark made afterwards is taken within 10 s, and nobody idles for good."""
    cluster = FakeCluster(5)
    client = joined(cluster)
    process = healing(cluster, client=client)
    away = False

    def fault(_name: str, _arguments: object) -> Fault | None:
        return AWAY if away else None

    faulty(client, fault)
    cluster.spin(5)
    for turn in range(10):
        away = True
        cluster.spin(15)
        store_of(client).expire_session()
        cluster.spin(15)
        away = False
        ledger = closed(cluster, {0: THREE}, 5)
        cluster.bookies["b0"].ledgers[ledger].entries.pop(turn % 5)
        cluster.succeed(cluster.store.repairs.mark(ledger, ["b0"], None))
        cluster.spin(10)
        assert queue(cluster) == [], turn
        assert is_whole(cluster, cluster.client(), ledger)
        assert process.candidate.auditor is not None
    cluster.succeed(process.stop())
    assert locks(cluster) == []
    assert votes(cluster.shared) == []


def test_nothing_is_left_behind() -> None:
    """After a stop no timer, no watch and no lock of the process is there, wherever it was stopped."""
    for seconds in (0.0, 0.001, 0.005, 0.02, 1.0, 3.0, 20.0):
        cluster = FakeCluster(5)
        for _ in range(5):
            closed(cluster, {0: THREE}, 20)
        before = len(cluster.clock.getDelayedCalls())
        process = healing(cluster)
        cluster.spin(2)
        cluster.kill("b2")
        cluster.spin(seconds)
        cluster.succeed(process.stop())
        cluster.spin(16)  # time-outs of requests that were under way
        assert locks(cluster) == []
        assert votes(cluster.shared) == []
        assert len(cluster.clock.getDelayedCalls()) <= before


def test_two_processes_share_the_work() -> None:
    """Each ledger is repaired once: its metadata has one more version, whoever did it."""
    cluster = FakeCluster(6)
    ledgers = [closed(cluster, {0: THREE}, 20) for _ in range(40)]
    first, second = healing(cluster, "a1:3181"), healing(cluster, "a2:3181")
    cluster.spin(5)
    before = stored.Ledgers(cluster.shared)[ledgers[0]].version
    cluster.kill("b2")
    cluster.spin(60)
    assert queue(cluster) == []
    assert {stored.Ledgers(cluster.shared)[ledger].version for ledger in ledgers} == {before + 1}
    assert first.worker.tally.repaired + second.worker.tally.repaired == len(ledgers)


def test_sessions_are_lost_while_ledgers_are_repaired() -> None:
    """The next session does the rest; no ledger loses an entry, none stays marked."""
    cluster = FakeCluster(6)
    ledgers = [closed(cluster, {0: THREE}, 40) for _ in range(20)]
    client = joined(cluster)
    process = healing(cluster, client=client)
    cluster.spin(5)
    cluster.kill("b2")
    for _ in range(10):
        cluster.spin(0.006)
        store_of(client).expire_session()
    cluster.spin(60)
    assert queue(cluster) == []
    assert all(is_whole(cluster, cluster.client(), ledger) for ledger in ledgers)
    assert process.candidate.auditor is not None


def test_all_bookies_go_and_come() -> None:
    """A cluster that is stopped marks nothing."""
    cluster = FakeCluster(4)
    ledgers = [closed(cluster, {0: THREE}, 5) for _ in range(3)]
    process = healing(cluster)
    cluster.spin(5)
    cluster.kill(*cluster.bookies)
    cluster.spin(30)
    cluster.restart(*cluster.bookies)
    cluster.spin(30)
    assert process.status()["marked"] == 0
    assert [stored.Ledgers(cluster.shared)[ledger].version for ledger in ledgers] == [1, 1, 1]


def auditing(cluster: FakeCluster, **changed: object) -> Auditor:
    made = Auditor(joined(cluster), options(**changed))
    made.start()
    return made


def test_after_the_end_nothing_is_marked() -> None:
    """Whoever leaves, whatever is asked for; no timer and no watch stays."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    auditor = auditing(cluster, lost_bookie_recovery_delay_s=30)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    auditor.stop()
    cluster.succeed(cluster.store.auditing.set_delay(0))
    cluster.spin(100)
    assert queue(cluster) == []
    assert cluster.clock.getDelayedCalls() == []


def test_the_first_one_says_the_delay() -> None:
    """Also when the store is away at first; later ones take what is there."""
    cluster = FakeCluster(5)
    client = joined(cluster)
    auditor = Auditor(client, options(lost_bookie_recovery_delay_s=60))
    faulty(client, lambda _name, _arguments: AWAY)
    auditor.start()
    cluster.spin(30)
    faulty(client, lambda _name, _arguments: None)
    cluster.spin(5)
    assert cluster.succeed(cluster.store.auditing.delay()) == 60
    auditor.stop()
    second = auditing(cluster, lost_bookie_recovery_delay_s=5)
    cluster.spin(5)
    closed(cluster, {0: THREE}, 5)
    cluster.kill("b2")
    cluster.spin(50)
    assert queue(cluster) == []
    cluster.spin(15)
    assert len(queue(cluster)) == 1
    second.stop()


def test_what_nobody_foresaw_ends_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lost bookie is found all the same, a minute later."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    right, failed = walk.short_of, []

    def fails(metadata: LedgerMetadata, lost: frozenset[str]) -> tuple[str, ...]:
        if lost and not failed:
            failed.append(lost)
            raise KeyError("a fault of ours")
        return right(metadata, lost)

    monkeypatch.setattr(walk, "short_of", fails)
    auditor = auditing(cluster)
    cluster.spin(5)
    cluster.kill("b2")
    cluster.spin(5)
    assert (queue(cluster), len(failed)) == ([], 1)
    cluster.spin(BEGIN_AGAIN_S + 5)
    assert len(queue(cluster)) == 1
    auditor.stop()


def test_a_first_start_is_no_wish_for_an_audit() -> None:
    """That it says the delay itself costs no second pass."""
    cluster = FakeCluster(5)
    auditor = auditing(cluster)
    cluster.spin(5)
    assert auditor.losses.passes == 1
    cluster.succeed(cluster.store.auditing.set_delay(0))
    cluster.spin(5)
    assert auditor.losses.passes == 2
    auditor.stop()
