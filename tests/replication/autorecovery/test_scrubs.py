"""The auditor's scrubs: due when they are, at their rate, gone on with by the next one, and mended by workers."""

from typing import Any

import pytest

from quire.client.api import Client
from quire.metadata.memory.cluster import Fault
from quire.replication.autorecovery.running import Auditor
from quire.replication.scrub.run import AUDITOR, Point, Points
from tests.client.fakes.cluster import FakeCluster, Request
from tests.metadata import stored
from tests.replication.autorecovery.processes import AWAY, THREE, faulty, healing, joined, options, queue
from tests.replication.stories import closed, damage, is_whole, left_open, payload

# SPDX-License-Identifier: Apache-2.0

HEADS_BYTES = 36  # of an entry: ids, last add confirmed, length, CRC32C
DAY_S = 86_400


def auditing(cluster: FakeCluster, client: Client | None = None, **changed: object) -> Auditor:
    cluster.shared.time_of_day = lambda: 1e9 + cluster.clock.seconds()
    made = Auditor(client or joined(cluster), options(**({"scrub_interval_s": DAY_S} | changed)))
    made.start()
    return made


def points(cluster: FakeCluster) -> Points:
    return Points(cluster.store.records, AUDITOR, lasting=True)


def damaged(cluster: FakeCluster, count: int) -> list[int]:
    """Ledgers that no check by lists finds anything wrong with."""
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(count)]
    for ledger in ledgers:
        damage(cluster, "b1", ledger, 4)
    return ledgers


def test_what_is_wrong_is_marked_when_a_scrub_is_due() -> None:
    """At once where none was ever done, then at each interval, also by another auditor; not in between."""
    cluster = FakeCluster(5)
    whole = closed(cluster, {0: THREE}, 9)
    (wrong,) = damaged(cluster, 1)
    auditor = auditing(cluster)
    cluster.spin(30)
    assert queue(cluster) == [wrong]
    assert stored.shortages(cluster.shared)[wrong].missing == ("b1",)
    size = 3 * sum(HEADS_BYTES + len(payload(entry)) for entry in range(10))
    figures = auditor.figures
    assert figures.pop("scrub_bytes") >= 2 * size
    assert figures == {"scrub_ledgers_total": 2, "scrub_ledgers": 2, "scrub_findings": 1, "marked_by_scrub": 1}
    begun = cluster.succeed(points(cluster).ended())
    assert begun is not None
    assert 1e12 <= begun < 1e12 + 30_000
    auditor.stop()
    damage(cluster, "b2", whole, 4)
    second = auditing(cluster)
    cluster.spin(DAY_S - 100)
    assert queue(cluster) == [wrong]
    cluster.spin(200)
    assert queue(cluster) == [whole, wrong]
    second.stop()


def test_a_ledger_whose_end_no_bookie_tells_keeps_no_other_from_its_scrub() -> None:
    """Its one bookie hangs."""
    cluster = FakeCluster(5)
    left_open(cluster, {0: ["b3"]}, 5, write=1)
    wrong = damaged(cluster, 3)
    cluster.judge = lambda request: "drop" if request.bookie == "b3" else "pass"
    auditor = auditing(cluster)
    cluster.spin(300)
    auditor.stop()
    assert queue(cluster) == wrong
    assert cluster.succeed(points(cluster).ended()) is not None


def test_a_scrub_of_the_future_was_none() -> None:
    """It was noted by a clock that was wrong; one that was set back a little is waited for."""
    for ahead_ms, due in (100_000, True), (30_000, False):
        cluster = FakeCluster(5)
        wrong = damaged(cluster, 1)
        cluster.succeed(points(cluster).end(10**12 + ahead_ms))
        auditor = auditing(cluster)
        cluster.spin(30)
        assert queue(cluster) == (wrong if due else [])
        auditor.stop()


@pytest.mark.parametrize("ledger", [-1, (1 << 63) - 1])
def test_a_point_that_names_what_is_no_ledger_is_none(ledger: int) -> None:
    """Else no auditor came past it."""
    cluster = FakeCluster(5)
    wrong = damaged(cluster, 3)
    cluster.succeed(points(cluster).write(Point(wrong[1], [ledger], 10**12, {})))
    auditor = auditing(cluster)
    cluster.spin(30)
    assert queue(cluster) == wrong
    auditor.stop()


def test_an_interval_of_0_switches_it_off() -> None:
    """Whatever is damaged."""
    cluster = FakeCluster(5)
    damaged(cluster, 1)
    auditor = auditing(cluster, scrub_interval_s=0)
    cluster.spin(100)
    assert (queue(cluster), auditor.figures) == ([], {})
    assert cluster.succeed(points(cluster).ended()) is None
    auditor.stop()


def test_workers_mend_what_it_found() -> None:
    """What has all its entries by the bookies' lists, too."""
    cluster = FakeCluster(5)
    ledgers = damaged(cluster, 3)
    cluster.shared.time_of_day = lambda: 1e9 + cluster.clock.seconds()
    process = healing(cluster, scrub_interval_s=DAY_S)
    cluster.spin(60)
    client = cluster.client()
    assert queue(cluster) == []
    assert all(is_whole(cluster, client, ledger) for ledger in ledgers)
    assert process.status()["figures"]["marked_by_scrub"] == 3  # type: ignore[index]
    cluster.succeed(process.stop())


def test_it_goes_on_where_an_earlier_auditor_was_cut_off() -> None:
    """Ledgers before that are left out, but for those that are noted; the time is that of the first start."""
    cluster = FakeCluster(5)
    ledgers = damaged(cluster, 20)
    counts = {"ledgers": 15, "copies": 450, "bytes": 1000, "findings": 7, "mended": 0, "left": 7}
    begun_ms = 10**12 - 5000
    cluster.succeed(points(cluster).write(Point(ledgers[14], [ledgers[3]], begun_ms, counts)))
    auditor = auditing(cluster)
    cluster.spin(30)
    assert queue(cluster) == [ledgers[3], *ledgers[15:]]
    assert cluster.succeed(points(cluster).read()) is None
    assert cluster.succeed(points(cluster).ended()) == begun_ms
    auditor.stop()


def test_a_term_that_ends_in_its_midst_leaves_the_rest_to_the_next_auditor() -> None:
    """Nothing is read once it is over, no timer is left; the next one begins after the last batch that was done."""
    cluster = FakeCluster(5)
    ledgers = [closed(cluster, {0: THREE}, 9) for _ in range(40)]
    read: list[int] = []

    def judge(request: Request) -> str:
        if request.op == "batch":
            read.append(request.ledger)
        return "pass"

    cluster.judge = judge
    size = 3 * sum(HEADS_BYTES + len(payload(entry)) for entry in range(10))
    first = auditing(cluster, scrub_bytes_per_second=size // 30)  # a ledger in half a minute
    cluster.spin(600)
    first.stop()
    point = cluster.succeed(points(cluster).read())
    assert point is not None
    assert ledgers[0] <= point.after < ledgers[-1]
    count = len(read)
    assert count
    cluster.spin(100)
    assert len(read) == count
    assert cluster.clock.getDelayedCalls() == []
    read.clear()
    second = auditing(cluster, scrub_bytes_per_second=0)
    cluster.spin(30)
    assert set(read) == set(ledgers[ledgers.index(point.after) + 1 :])
    assert cluster.succeed(points(cluster).ended()) == point.begun_ms
    second.stop()


def test_its_rate_holds() -> None:
    """Of all bookies together."""
    cluster = FakeCluster(5)
    for _ in range(40):
        closed(cluster, {0: THREE}, 99)
    size = 40 * 3 * sum(HEADS_BYTES + len(payload(entry)) for entry in range(100))
    auditor = auditing(cluster, scrub_bytes_per_second=size // 200)
    begun = cluster.clock.seconds()
    while cluster.succeed(points(cluster).ended()) is None:
        cluster.spin(1)
    assert auditor.figures["scrub_bytes"] == size
    assert 180 < cluster.clock.seconds() - begun < 220
    auditor.stop()


def test_a_store_that_is_away_is_waited_for() -> None:
    """Before a scrub and in its midst; what was done is not done again, and all is found."""
    cluster = FakeCluster(5)
    ledgers = damaged(cluster, 30)
    client = joined(cluster)
    away = True

    def fault(_name: str, _arguments: tuple[Any, ...]) -> Fault | None:
        return AWAY if away else None

    faulty(client, fault)
    size = 3 * sum(HEADS_BYTES + len(payload(entry)) for entry in range(10))
    auditor = auditing(cluster, client, scrub_bytes_per_second=size // 20)
    cluster.spin(60)
    assert queue(cluster) == []
    away = False
    while (point := cluster.succeed(points(cluster).read())) is None or point.after < ledgers[10]:
        cluster.spin(5)
    away = True
    cluster.spin(60)
    away = False
    while cluster.succeed(points(cluster).ended()) is None:
        cluster.spin(5)
    assert queue(cluster) == ledgers
    assert auditor.figures["scrub_ledgers_total"] < 30
    auditor.stop()
    cluster.spin(20)
    assert cluster.clock.getDelayedCalls() == []


def test_while_repair_is_switched_off_it_waits() -> None:
    """It neither reads nor marks, and goes on once repair is on."""
    cluster = FakeCluster(5)
    (wrong,) = damaged(cluster, 1)
    cluster.succeed(cluster.store.repairs.set_enabled(False))
    auditor = auditing(cluster)
    cluster.spin(60)
    assert (queue(cluster), auditor.figures) == ([], {})
    cluster.succeed(cluster.store.repairs.set_enabled(True))
    cluster.spin(30)
    assert queue(cluster) == [wrong]
    auditor.stop()


def test_what_is_no_evidence_is_not_marked() -> None:
    """A bookie that is away or being filled again; copies that are on their way when a ledger is closed, or written."""
    cluster = FakeCluster(5)
    closed(cluster, {0: ["b0", "b1", "b3"]}, 9)
    closed(cluster, {0: ["b0", "b1", "b4"]}, 9)
    cluster.kill("b3")
    cluster.bookies["b4"].ledgers.clear()
    cluster.bookies["b4"].limbo = True
    late = [closed(cluster, {0: THREE}, 9), left_open(cluster, {0: THREE}, 9)]
    bodies = {ledger: cluster.bookies["b2"].ledgers[ledger].entries.pop(8) for ledger in late}
    auditor = auditing(cluster, lost_bookie_recovery_delay_s=10_000)
    cluster.spin(10)
    for ledger, body in bodies.items():
        cluster.bookies["b2"].ledgers[ledger].entries[8] = body
    cluster.spin(100)
    assert queue(cluster) == []
    assert cluster.succeed(points(cluster).ended()) is not None
    auditor.stop()
