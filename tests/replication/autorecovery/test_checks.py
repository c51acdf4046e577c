"""Periodic checks: due when they are, gone on with where they were cut off, and not held up by one bad page."""

from typing import Any

import pytest

from quire.client.api import Client
from quire.metadata.auditing import Periodic
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import Read
from quire.replication.autorecovery import checks
from quire.replication.autorecovery.notes import Notes
from quire.replication.autorecovery.running import Auditor
from quire.replication.autorecovery.walk import Resume, Stretch
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.metadata.stored import checked
from tests.replication.autorecovery.processes import AWAY, THREE, faulty, joined, options, queue
from tests.replication.stories import closed, left_open

# SPDX-License-Identifier: Apache-2.0


def auditing(cluster: FakeCluster, client: Client | None = None, **changed: object) -> Auditor:
    cluster.shared.time_of_day = lambda: 1e9 + cluster.clock.seconds()
    made = Auditor(client or joined(cluster), options(**({"copies_check_interval_s": 1000} | changed)))
    made.start()
    return made


def test_what_is_missing_is_marked_when_the_check_is_due() -> None:
    """At once where none was ever done, then at each interval, also by another auditor."""
    cluster = FakeCluster(5)
    whole, short = closed(cluster, {0: THREE}, 9), closed(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[short].entries[4]
    auditor = auditing(cluster)
    cluster.spin(30)
    assert queue(cluster) == [short]
    assert stored.shortages(cluster.shared)[short].missing == ("b1",)
    assert auditor.checks.figures == {"checkallledgersctime_ledgers": 2, "marked_for_copies": 1}
    auditor.stop()
    cluster.succeed(cluster.store.repairs.mark(short, ["b1"], None))
    del cluster.bookies["b2"].ledgers[whole].entries[4]
    second = auditing(cluster)
    cluster.spin(900)
    assert queue(cluster) == [short]
    cluster.spin(200)
    assert queue(cluster) == [whole, short]
    second.stop()


def test_a_copy_that_reading_finds_wrong_is_mended() -> None:
    """Its ledger is marked with a note, so that the worker reads all of it; at no more than the scrub's rate."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 9)
    entries = cluster.bookies["b1"].ledgers[ledger].entries
    entries[4] = entries[4][:-1] + bytes([entries[4][-1] ^ 1])
    auditor = auditing(cluster, verified_percent=100, scrub_bytes_per_second=100)
    cluster.spin(2)
    assert queue(cluster) == []
    cluster.spin(60)
    assert queue(cluster) == [ledger]
    assert auditor.checks.figures["marked_for_content"] == 1
    note = cluster.succeed(Notes(cluster.store.records).read_one(ledger))
    assert note is not None
    assert (note.is_of_a_scrub, note.reason) == (True, "a scrub found: damaged")
    auditor.stop()


def test_a_check_of_the_future_was_none() -> None:
    """It was noted by a clock that was wrong; one that was set back a little is waited for."""
    for ahead_ms, due in (100_000, True), (30_000, False):
        cluster = FakeCluster(5)
        short = closed(cluster, {0: THREE}, 9)
        del cluster.bookies["b1"].ledgers[short].entries[4]
        cluster.succeed(cluster.store.auditing.set_checked(Periodic.COPIES, 10**12 + ahead_ms))
        auditor = auditing(cluster)
        cluster.spin(30)
        assert queue(cluster) == ([short] if due else [])
        auditor.stop()


def test_a_ledger_whose_end_no_bookie_tells_keeps_no_other_from_its_check() -> None:
    """Its one bookie hangs."""
    cluster = FakeCluster(5)
    left_open(cluster, {0: ["b3"]}, 5, write=1)
    short = [closed(cluster, {0: THREE}, 9) for _ in range(3)]
    for ledger in short:
        del cluster.bookies["b1"].ledgers[ledger].entries[4]
    cluster.judge = lambda request: "drop" if request.bookie == "b3" else "pass"
    auditor = auditing(cluster)
    cluster.spin(300)
    auditor.stop()
    assert queue(cluster) == short


def test_a_bookie_inside_its_delay_is_no_finding() -> None:
    """Nor one that does not know what it lost: nothing is marked by a check for either."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 9)
    cluster.kill("b1")
    cluster.bookies["b2"].ledgers.clear()
    cluster.bookies["b2"].limbo = True
    auditor = auditing(cluster, lost_bookie_recovery_delay_s=10_000, replicas_check_interval_s=1000)
    cluster.spin(3000)
    assert queue(cluster) == []
    auditor.stop()


def test_a_copy_on_its_way_when_its_ledger_is_closed_is_no_finding() -> None:
    """An add is acknowledged, and its ledger closed, before the last copy is there; one that never comes is marked."""
    cluster = FakeCluster(5)
    late, lacking = closed(cluster, {0: THREE}, 9), closed(cluster, {0: THREE}, 9)
    body = cluster.bookies["b1"].ledgers[late].entries.pop(9)
    del cluster.bookies["b1"].ledgers[lacking].entries[9]
    auditor = auditing(cluster, replicas_check_interval_s=1000)
    cluster.spin(5)
    cluster.bookies["b1"].ledgers[late].entries[9] = body
    cluster.spin(60)
    assert queue(cluster) == [lacking]
    assert auditor.checks.figures["ledgers_below_write_quorum"] == 1
    auditor.stop()


def test_it_goes_on_where_it_was_cut_off() -> None:
    """Ledgers before that are not looked at again."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 2) for _ in range(20)]
    for ledger in ledgers:
        del cluster.bookies["b1"].ledgers[ledger].entries[1]
    resume = Resume(cluster.store.records, Periodic.COPIES.value)
    cluster.succeed(resume.write([Stretch((), ledgers[14], None)]))
    auditor = auditing(cluster)
    cluster.spin(30)
    assert queue(cluster) == ledgers[15:]
    assert cluster.succeed(resume.read()) == []
    assert checked(cluster.shared, Periodic.COPIES)
    auditor.stop()


def test_a_page_that_cant_be_looked_at_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to the next check."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 2)

    async def refused(_client: object, _ledgers: object) -> object:
        raise Read("no answer")

    monkeypatch.setattr(checks, "plan_of", refused)
    auditor = auditing(cluster)
    cluster.spin(30)
    assert checked(cluster.shared, Periodic.COPIES)
    assert auditor.checks.figures == {"checkallledgersctime_ledgers": 1}
    auditor.stop()


def test_a_store_that_is_away_in_a_check_is_waited_for() -> None:
    """And the check is done when it is back."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 9)
    del cluster.bookies["b1"].ledgers[ledger].entries[4]
    client = joined(cluster)
    auditor = auditing(cluster, client)
    away = True

    def fault(_name: str, _arguments: tuple[Any, ...]) -> Fault | None:
        return AWAY if away else None

    faulty(client, fault)
    cluster.spin(60)
    assert queue(cluster) == []
    away = False
    cluster.spin(30)
    assert queue(cluster) == [ledger]
    auditor.stop()
    cluster.spin(20)
    assert cluster.clock.getDelayedCalls() == []
