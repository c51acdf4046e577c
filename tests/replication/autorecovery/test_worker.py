"""The replication worker: nothing spins, nobody is forgotten, and a ledger leaves the queue only when it is whole."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.metadata.memory.cluster import Fault
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import MetadataTooLarge, MetaStore
from quire.replication.autorecovery.ledger import Repairer
from quire.replication.autorecovery.notes import FOUND, Note, Notes, queued
from quire.replication.autorecovery.waiting import Waiting
from quire.replication.autorecovery.worker import LOOK_S, Worker
from quire.replication.concurrently import BEGIN_AGAIN_S
from quire.replication.core.fragments import Outlook
from quire.replication.scrub.judge import Finding
from tests.client.fakes.cluster import READ_ONLY, FakeCluster
from tests.replication.autorecovery.processes import AWAY, THREE, faulty, joined, locks, mark, options, queue, store_of
from tests.replication.stories import closed, damage, is_whole

# SPDX-License-Identifier: Apache-2.0


class Alone:
    """One worker, no auditor; what it asks of the store is counted."""

    def __init__(self, cluster: FakeCluster, **changed: object) -> None:
        self.cluster = cluster
        self.client = joined(cluster)
        self.asked: list[str] = []
        self.away = False
        faulty(self.client, self.fault)
        self.worker = Worker(self.client, options(**changed))
        self.worker.start()

    def fault(self, name: str, _arguments: tuple[Any, ...]) -> Fault | None:
        self.asked.append(name)
        return AWAY if self.away else None

    def stop(self) -> None:
        self.cluster.succeed(self.worker.stop())


def test_a_mark_is_taken_at_once() -> None:
    """Without a look every five seconds."""
    cluster = FakeCluster(5)
    alone = Alone(cluster)
    cluster.spin(1)
    ledger = closed(cluster, {0: THREE}, 5)
    mark(cluster, ledger, "b1")
    cluster.spin(0.5)
    assert queue(cluster) == []
    alone.stop()


def test_a_ledger_that_lacks_one_entry_costs_little() -> None:
    """Beside the queue: its note, its metadata twice, and at the end who is there."""
    cluster = FakeCluster(5)
    alone = Alone(cluster)
    cluster.spin(1)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    cluster.succeed(alone.client.store.records.sync())  # it knows then whose the records are
    alone.asked.clear()
    mark(cluster, ledger, "b1")
    cluster.spin(1)
    assert queue(cluster) == []
    assert is_whole(cluster, alone.client, ledger)
    assert [each for each in alone.asked if "repair" not in each] == [
        "get",
        "read_ledger",
        "read_ledger",
        "bookies",
    ]
    alone.stop()


def test_an_idle_worker_asks_little() -> None:
    """Also when all that is in the queue is parked, or the store is away, and pauses of no time were wished."""
    cluster = FakeCluster(5)
    gone = [closed(cluster, {0: ["b2"]}, 5, write=1) for _ in range(20)]
    cluster.kill("b2")
    for ledger in gone:
        mark(cluster, ledger, "b2")
    alone = Alone(cluster, backoff_ms=0, failed_ledger_pause_ms=0)
    cluster.spin(60)
    alone.asked.clear()
    cluster.spin(600)
    assert len(alone.asked) < 1000, "a look at the queue is five listings"
    alone.away = True
    alone.asked.clear()
    cluster.spin(60)
    assert len(alone.asked) < 1300
    alone.stop()


def test_a_ledger_that_is_gone_is_repaired_where_a_new_mark_allows_it() -> None:
    """Within minutes: the fragment that the other bookie held has copies."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: ["b2", "b5"], 10: ["b1", "b3"]}, 19, write=2)
    for bookie in ("b2", "b5"):
        cluster.kill(bookie)
        mark(cluster, ledger, bookie)
    alone = Alone(cluster)
    cluster.spin(60)
    assert alone.worker.waiting.parked.gone() == [ledger]
    cluster.kill("b1")
    mark(cluster, ledger, "b1")
    cluster.spin(120)
    gone, mended = cluster.metadata(ledger).fragments
    assert gone.bookies == ("b2", "b5")
    assert "b1" not in mended.bookies
    alone.stop()


def test_metadata_that_is_too_large_waits_for_an_operator() -> None:
    """It is tried again when it is marked anew, or in an hour; the queue says why, and other ledgers are repaired."""
    cluster = FakeCluster(6)
    large, good = closed(cluster, {0: THREE}, 5), closed(cluster, {0: THREE}, 5)
    alone, tries = Alone(cluster), []

    def fault(name: str, arguments: tuple[Any, ...]) -> Fault | None:
        if "write" not in name or large not in [getattr(each, "ledger", each) for each in arguments]:
            return None
        tries.append(cluster.clock.seconds())
        return Fault(error=MetadataTooLarge("a request of 1000001 bytes"))

    alone.client.store.faults = fault  # type: ignore[attr-defined]  # a memory store
    cluster.kill("b1")
    for ledger in (large, good):
        mark(cluster, ledger, "b1")
    cluster.spin(3000)
    assert queue(cluster) == [large]
    assert len(tries) == 1
    assert locks(cluster) == []
    note = cluster.succeed(Notes(store_of(cluster).records).read_one(large))
    assert note is not None
    assert (note.outlook, note.reason) == ("TOO_LARGE", "a request of 1000001 bytes")
    mark(cluster, large, "b2")  # as an operator does who has changed what was in the way
    cluster.spin(120)
    assert len(tries) == 2
    alone.stop()


def test_a_fault_of_ours_is_no_reason_to_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw parks the ledger, gives its lock back, and keeps no other one."""
    cluster = FakeCluster(5)
    bad, good = closed(cluster, {0: THREE}, 5), closed(cluster, {0: THREE}, 5)
    tries: list[int] = []
    right = Repairer.repaired

    async def repaired(self: Repairer, lock: Any, *, full: bool = False) -> Any:
        if lock.ledger == bad:
            tries.append(lock.ledger)
            raise KeyError("a fault of ours")
        return await right(self, lock, full=full)

    monkeypatch.setattr(Repairer, "repaired", repaired)
    mark(cluster, bad, "b1")
    mark(cluster, good, "b1")
    alone = Alone(cluster)
    cluster.spin(60)
    assert queue(cluster) == [bad]
    assert 2 <= len(tries) <= 6
    assert locks(cluster) == []
    alone.stop()


def test_a_fault_of_ours_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw beside the repairs is begun again a minute later."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 5)
    faults = iter([KeyError("a fault of ours")])
    right = Waiting.look_at_marks

    async def look_at_marks(self: Waiting) -> None:
        for fault in faults:
            raise fault
        await right(self)

    monkeypatch.setattr(Waiting, "look_at_marks", look_at_marks)
    mark(cluster, ledger, "b1")
    alone = Alone(cluster)
    cluster.spin(BEGIN_AGAIN_S - 1)
    assert queue(cluster) == [ledger]
    cluster.spin(10)
    assert queue(cluster) == []
    alone.stop()


def test_a_mark_that_is_made_while_it_is_repaired_stays() -> None:
    """And is taken next: another bookie's copies are missing now."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 200)
    cluster.kill("b2")
    mark(cluster, ledger, "b2")
    alone = Alone(cluster)
    while not alone.worker.working:
        cluster.spin(0.001)
    cluster.spin(0.003)
    assert alone.worker.working == {ledger}
    cluster.kill("b1")
    mark(cluster, ledger, "b1")
    cluster.spin(60)
    assert queue(cluster) == []
    assert cluster.metadata(ledger).bookies().isdisjoint({"b1", "b2"})
    assert is_whole(cluster, cluster.client(), ledger)
    alone.stop()


def test_a_repair_ends_with_its_session() -> None:
    """Nothing more is copied for a lock that is gone; the next session begins anew."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 20)
    cluster.kill("b2")
    mark(cluster, ledger, "b2")
    alone = Alone(cluster)
    cluster.judge = lambda request: "hold" if "add" in request.op else "pass"
    cluster.spin(1)
    assert alone.worker.working == {ledger}
    alone.away = True
    store_of(alone.client).expire_session()
    cluster.spin(1)
    assert alone.worker.working == set()
    alone.away = False
    cluster.judge = lambda _request: "pass"
    cluster.spin(30)
    assert queue(cluster) == []
    alone.stop()


def test_what_a_scrub_found_is_read_until_it_is_whole() -> None:
    """Also when the first try could not mend it: the note is not lost, and the copy neither."""
    cluster = FakeCluster(3)
    ledger = closed(cluster, {0: THREE}, 20)
    damage(cluster, "b1", ledger, 7)
    notes = Notes(cluster.store.records)
    cluster.succeed(notes.write(Note(ledger, FOUND, "its digest is wrong", 0, 0, 0, "host")))
    cluster.judge = lambda request: READ_ONLY if "add" in request.op else "pass"
    mark(cluster, ledger, "b1")
    alone = Alone(cluster)
    cluster.spin(10)
    assert queue(cluster) == [ledger]
    cluster.judge = lambda _request: "pass"
    cluster.spin(400)
    assert queue(cluster) == []
    assert is_whole(cluster, cluster.client(), ledger)
    assert cluster.succeed(notes.read_one(ledger)) is None
    alone.stop()


def test_what_a_scrub_finds_while_it_is_repaired_is_made_good() -> None:
    """Also on a bookie that the mark names already: the repair that is under way began without the scrub's note."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 200)
    del cluster.bookies["b1"].ledgers[ledger].entries[3]
    mark(cluster, ledger, "b1")
    alone = Alone(cluster)
    cluster.judge = lambda request: "hold" if "add" in request.op else "pass"
    cluster.spin(1)
    assert alone.worker.working == {ledger}
    damage(cluster, "b1", ledger, 150)
    found = Finding(ledger, 0, 1, "b1", 150, 150, 1, "damaged", 0, "its digest is wrong")
    assert cluster.succeed(Deferred.fromCoroutine(queued(cluster.client(), [found]))) == 1
    cluster.judge = lambda _request: "pass"
    cluster.spin(60)
    assert queue(cluster) == []
    assert is_whole(cluster, cluster.client(), ledger)
    assert cluster.succeed(Notes(cluster.store.records).read_one(ledger)) is None
    alone.stop()


def test_the_rate_of_tasks_is_kept() -> None:
    """So many ledgers a second."""
    cluster = FakeCluster(5)
    for _ in range(20):
        mark(cluster, closed(cluster, {0: THREE}, 5), "b1")
    alone = Alone(cluster, tasks_per_second=2.0)
    cluster.spin(5)
    assert 8 <= 20 - len(queue(cluster)) <= 12
    cluster.spin(6)
    assert queue(cluster) == []
    alone.stop()


def test_so_many_at_once() -> None:
    """And no more, however many wait."""
    cluster = FakeCluster(5)
    for _ in range(20):
        ledger = closed(cluster, {0: THREE}, 5)
        mark(cluster, ledger, "b2")
    cluster.kill("b2")
    cluster.judge = lambda request: "hold" if "add" in request.op else "pass"
    alone = Alone(cluster, ledgers_at_once=3)
    cluster.spin(1)
    assert len(alone.worker.working) == len(locks(cluster)) == 3
    alone.stop()
    assert locks(cluster) == []


def test_a_switch_that_is_off_lets_nobody_take() -> None:
    """What was taken before is repaired to its end."""
    cluster = FakeCluster(5)
    alone = Alone(cluster)
    cluster.succeed(cluster.store.repairs.set_enabled(False))
    ledger = closed(cluster, {0: THREE}, 5)
    mark(cluster, ledger, "b1")
    cluster.spin(60)
    assert queue(cluster) == [ledger]
    cluster.succeed(cluster.store.repairs.set_enabled(True))
    cluster.spin(6)
    assert queue(cluster) == []
    alone.stop()


def test_a_bookie_that_becomes_writable_is_a_spare() -> None:
    """Who waits for one is tried at once, and not for a bookie that comes read-only."""
    cluster = FakeCluster(4)
    service = cluster.succeed(cluster.store.service_info("b3"))
    cluster.unregister("b3")
    ledger = closed(cluster, {0: THREE}, 9)
    cluster.kill("b2")
    mark(cluster, ledger, "b2")
    alone = Alone(cluster, failed_ledger_pause_ms=300_000)
    cluster.spin(700)
    assert alone.worker.waiting.parked.counts() == {Outlook.WAITS_FOR_SPARE: 1}
    cluster.succeed(cluster.store.register_bookie("b3", service, read_only=True))
    cluster.spin(5)
    assert queue(cluster) == [ledger]
    cluster.register("b3")
    cluster.spin(5)
    assert queue(cluster) == []
    alone.stop()


def test_what_a_scrub_finds_during_a_try_that_fails_stays_noted() -> None:
    """Else the next try would not read the copy that is damaged."""
    cluster = FakeCluster(9)
    gone = ["b2", "b5", "b6"]
    ledger = closed(cluster, {0: gone, 10: ["b1", "b3", "b4"]}, 400)
    cluster.kill(*gone, "b1")
    mark(cluster, ledger, *gone, "b1")
    damage(cluster, "b4", ledger, 50)
    alone = Alone(cluster)
    while not alone.worker.working:
        cluster.spin(0.001)
    cluster.spin(0.002)
    finding = Finding(ledger, 10, 2, "b4", 50, 50, 1, "damaged", -5, "its digest is wrong")
    marked = cluster.outcome(queued(joined(cluster), [finding]))
    while not marked.done:
        cluster.spin(0.0005)
    assert alone.worker.working == {ledger}
    cluster.spin(30)
    assert cluster.succeed(Notes(cluster.store.records).read_one(ledger)).is_of_a_scrub
    cluster.restart(*gone)
    cluster.spin(4000)
    assert queue(cluster) == []
    assert is_whole(cluster, cluster.client(), ledger)
    alone.stop()


def test_a_lock_that_comes_after_the_stop_is_given_back() -> None:
    """The session goes on: nobody else could take the ledger."""
    cluster = FakeCluster(5)
    mark(cluster, closed(cluster, {0: THREE}, 5), "b1")
    client = joined(cluster)
    faulty(client, lambda name, _arguments: Fault(after=2.0) if name == "lock_repair" else None)
    worker = Worker(client, options())
    worker.start()
    cluster.spin(0.5)
    stopped = cluster.outcome(worker.stop())
    cluster.spin(5)
    assert stopped.done
    assert locks(cluster) == []
    assert worker.tally.repaired == 0


@pytest.mark.parametrize("fault", [KeyError("a fault of ours"), MetaStore("the store is away")])
def test_a_take_that_fails_after_the_stop_is_its_end(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to be begun again, so nobody waits for that."""
    cluster = FakeCluster(5)
    client = joined(cluster)
    taken: Deferred[RepairLock | None] = Deferred()
    asked: list[object] = []

    def take(skipped: object) -> "Deferred[RepairLock | None]":
        asked.append(skipped)
        return taken if len(asked) == 4 else succeed(None)

    monkeypatch.setattr(client.store.repairs, "take", take)
    worker = Worker(client, options())
    worker.start()
    cluster.spin(4 * LOOK_S)  # what woke it at its start is heeded by then
    assert len(asked) == 4
    stopped = cluster.outcome(worker.stop())
    taken.errback(fault)
    cluster.spin(0.1)
    assert stopped.done
