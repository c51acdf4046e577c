"""The repair of one ledger: what is gone is copied to others, what is there is filled, and what can't be says why."""

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.metadata.memory.store import MemoryStore
from quire.metadata.repairs import RepairLock
from quire.metadata.store import Versioned
from quire.replication.autorecovery import ledger as repair
from quire.replication.autorecovery.ledger import READ_AGAIN_S, Outcome, Repairer
from quire.replication.core.fragments import Outlook
from quire.replication.mending import Mended
from quire.replication.scrub.second_look import Look
from tests.client.fakes.cluster import UNREACHABLE, FakeCluster, Request
from tests.metadata import stored
from tests.replication.autorecovery.processes import THREE, mark
from tests.replication.stories import bodies, closed, damage, is_whole, left_open, payload

# SPDX-License-Identifier: Apache-2.0


def tried(
    cluster: FakeCluster, ledger: int, *marked: str, full: bool = False, grace_s: float = 30.0, rate: float = 0
) -> Outcome:
    mark(cluster, ledger, *marked)
    client = cluster.client()
    lock: RepairLock = cluster.succeed(client.store.repairs.take())
    assert lock.ledger == ledger
    outcome: Outcome = cluster.succeed(Repairer(client, rate, grace_s).repaired(lock, full=full), seconds=1000)
    cluster.succeed(client.store.repairs.release(lock))
    return outcome


def test_a_bookie_that_is_gone_is_replaced() -> None:
    """What was copied is counted."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    cluster.kill("b2")
    outcome = tried(cluster, ledger, "b2")
    assert (outcome.done, outcome.entries) == (True, 20)
    assert is_whole(cluster, cluster.client(), ledger)
    assert "b2" not in cluster.metadata(ledger).bookies()


def test_with_the_last_change_an_empty_ledger_is_off_the_queue() -> None:
    """
    The lock and the mark went with it; not where a bookie that is there is marked, too, or where copies were made,
    which the new bookie may have lost.
    """
    for last, also, ended in (-1, (), True), (-1, ("b1",), False), (19, (), False):
        cluster = FakeCluster(5)
        ledger = closed(cluster, {0: THREE, 5: ["b0", "b4", "b2"]} if last > 0 else {0: THREE}, last)
        cluster.kill("b2")
        outcome = tried(cluster, ledger, "b2", *also)
        assert (outcome.done, outcome.ended) == (True, ended)
        assert (ledger in stored.shortages(cluster.shared)) is not ended
        assert stored.locks(cluster.shared) == {}


def test_what_the_repair_of_a_small_ledger_asks_of_the_store() -> None:
    """Once it is taken: its metadata, whom to choose, the edit; then it leaves the queue."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE, 5: ["b0", "b4", "b2"]}, 19)
    cluster.kill("b2")
    asked: list[str] = []

    def note(name: str, _arguments: tuple[object, ...]) -> None:
        asked.append(name)

    mark(cluster, ledger, "b2")
    client = cluster.client()
    lock: RepairLock = cluster.succeed(client.store.repairs.take())
    cluster.store_fault = note
    assert cluster.succeed(Repairer(client, 0, 30.0).repaired(lock)).done
    assert cluster.succeed(client.store.repairs.finish(lock))
    assert asked == ["read_ledger", "bookies", "write_ledger", "finish_repair"]


def test_what_the_repair_of_a_large_ledger_asks_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts it has: one more for the mark, which leaves the queue with the first try."""
    monkeypatch.setattr("quire.replication.freeing.ledger.UNNAMED_BYTES_MAX", 1000)
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 199)
    cluster.kill("b2")
    asked: list[str] = []

    def note(name: str, _arguments: tuple[object, ...]) -> None:
        asked.append(name)

    mark(cluster, ledger, "b2")
    client = cluster.client()
    lock: RepairLock = cluster.succeed(client.store.repairs.take())
    cluster.store_fault = note
    assert cluster.succeed(Repairer(client, 0, 30.0).repaired(lock), seconds=1000).done
    assert cluster.succeed(client.store.repairs.finish(lock))
    assert asked.count("write_ledger") > 2
    assert [each for each in asked if "repair" in each] == ["repair_extend", "finish_repair"]
    assert stored.shortages(cluster.shared) == {}


@pytest.mark.parametrize("unnamed_bytes", [1000, 16 << 20])
def test_a_worker_may_die_before_it_asks_whom_it_named(unnamed_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new bookie had lost its copies just before: the next one finds that, also of a part that was named alone."""
    monkeypatch.setattr("quire.replication.freeing.ledger.UNNAMED_BYTES_MAX", unnamed_bytes)
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 199)
    cluster.kill("b2")
    mark(cluster, ledger, "b2")
    client = cluster.client()
    repair = Deferred.fromCoroutine(Repairer(client, 0, 30.0).repaired(cluster.succeed(client.store.repairs.take())))

    def lose(name: str, _given: tuple[object, ...]) -> None:
        if name == "write_ledger":
            cluster.kill("b3", registered=True)
            cluster.bookies["b3"].ledgers[ledger].entries.clear()
            cluster.restart("b3", registered=True)

    def die(_touched: object) -> None:
        if "b3" in cluster.metadata(ledger).bookies():
            cluster.clock.callLater(0, repair.cancel)
            cluster.shared.nodes.listeners.remove(die)

    cluster.store_fault = lose
    cluster.shared.nodes.listeners.append(die)
    repair.addErrback(lambda failure: failure.trap(CancelledError) and None)
    cluster.spin(5)
    assert not cluster.bookies["b3"].ledgers[ledger].entries
    cluster.store_fault = lambda _name, _given: None
    stored.unlock(cluster.shared)
    other = cluster.client()
    other.store = MemoryStore(cluster.clock, cluster.shared)
    for _ in range(2):
        lock = cluster.succeed(other.store.repairs.take())
        if lock is not None:
            assert cluster.succeed(Repairer(other, 0, 30.0).repaired(lock)).done
            cluster.succeed(other.store.repairs.finish(lock))
    assert is_whole(cluster, other, ledger)
    assert stored.shortages(cluster.shared) == {}


def test_a_new_bookie_that_may_have_lost_its_copies_is_marked() -> None:
    """It can't be asked just after the metadata names it."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 19)
    cluster.kill("b2")
    cluster.store_fault = lambda name, _given: cluster.kill("b3") if name == "write_ledger" else None
    assert not tried(cluster, ledger, "b2").done
    assert stored.shortages(cluster.shared)[ledger].missing == ("b2", "b3")


def test_a_bookie_that_is_there_is_filled() -> None:
    """Found by its list; the ensemble stays."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    before = stored.Ledgers(cluster.shared)[ledger].version
    assert tried(cluster, ledger, "b1").done
    assert is_whole(cluster, cluster.client(), ledger)
    assert stored.Ledgers(cluster.shared)[ledger].version == before


@pytest.mark.parametrize("full", [False, True])
def test_what_filling_a_bookie_asks_of_the_store(full: bool) -> None:
    """The metadata for the look and once more before copies are made; at the end who is there."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    if full:
        damage(cluster, "b1", ledger, 7)
    else:
        del cluster.bookies["b1"].ledgers[ledger].entries[7]
    asked: list[str] = []
    listed: list[str] = []

    def note(name: str, _arguments: tuple[object, ...]) -> None:
        asked.append(name)

    def judge(request: Request) -> str:
        if "add" in request.op:
            asked.append("copy")
        elif request.op == "list":
            listed.append(request.bookie)
        return "pass"

    mark(cluster, ledger, "b1")
    client = cluster.client()
    lock: RepairLock = cluster.succeed(client.store.repairs.take())
    cluster.store_fault, cluster.judge = note, judge
    assert cluster.succeed(Repairer(client, 0, 30.0).repaired(lock, full=full)).done
    assert asked == ["read_ledger", "read_ledger", "copy", "bookies"]
    assert listed == ([] if full else ["b1", "b1"])  # for the first look, and where a copy was missing in the second


def test_what_changes_before_copies_are_made_is_looked_at_again() -> None:
    """Another bookie was named meanwhile: it is looked at, and the one that was replaced gets nothing."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    other = cluster.client()
    reads = 0

    def replace_it(name: str, _arguments: tuple[object, ...]) -> None:
        nonlocal reads
        reads += name == "read_ledger"
        if name == "read_ledger" and reads == 2:
            ledgers = stored.Ledgers(cluster.shared)
            now = ledgers[ledger]
            ledgers[ledger] = Versioned(now.value.replace_bookies(0, ["b0", "b4", "b2"]), now.version + 1)

    mark(cluster, ledger, "b1")
    lock: RepairLock = cluster.succeed(other.store.repairs.take())
    cluster.store_fault = replace_it
    assert cluster.succeed(Repairer(other, 0, 30.0).repaired(lock)).done
    assert reads == 3
    assert 7 not in bodies(cluster, "b1", ledger)
    assert 7 in bodies(cluster, "b4", ledger)


def test_a_bookie_that_goes_while_its_ledger_is_repaired_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark that it gets then is the repair's own (seed 795726424 of `healing`); the next try has it replaced."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    mend_bookies = repair.mend_bookies

    async def mended(*words: Any, **more: Any) -> tuple[Mended, bool]:
        done = await mend_bookies(*words, **more)
        cluster.kill("b1")
        return done

    monkeypatch.setattr(repair, "mend_bookies", mended)
    outcome = tried(cluster, ledger, "b1")
    assert (outcome.done, outcome.reasons) == (False, (f"ledger {ledger}: b1 went while it was repaired",))
    assert ledger in stored.shortages(cluster.shared)
    monkeypatch.undo()
    assert tried(cluster, ledger, "b1").done
    assert is_whole(cluster, cluster.client(), ledger)


@pytest.mark.parametrize(("looks", "registered"), [(1, False), (2, False), (2, True)])
def test_a_bookie_that_restarts_after_a_look_at_it_keeps_its_share(
    monkeypatch: pytest.MonkeyPatch, looks: int, registered: bool
) -> None:
    """It is not listed, or gives no answer, for a moment: that is no loss, and nobody waited for the delay of one."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    looked, count = Look.found, 0

    async def look(self: Look, *asked: Any) -> Any:
        nonlocal count
        found = await looked(self, *asked)
        count += 1
        if count == looks:
            cluster.kill("b1", registered=registered)
            cluster.clock.callLater(20.0, lambda: cluster.restart("b1", registered=registered))
        return found

    monkeypatch.setattr(Look, "found", look)
    outcome = tried(cluster, ledger, "b1")
    assert not outcome.done
    assert any("b1 went while" in reason for reason in outcome.reasons)
    assert cluster.metadata(ledger).bookies() == set(THREE)
    cluster.spin(20)
    assert tried(cluster, ledger, "b1").done
    assert cluster.metadata(ledger).bookies() == set(THREE)
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_damaged_copy_is_found_by_reading() -> None:
    """Which is done only when a scrub asked for it."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    damage(cluster, "b1", ledger, 7)
    assert tried(cluster, ledger, "b1", full=True).done
    assert is_whole(cluster, cluster.client(), ledger)


@pytest.mark.parametrize("full", [False, True])
def test_what_is_wrong_in_a_fragment_that_is_written_waits_for_its_end(full: bool) -> None:
    """The ledger stays in the queue, nothing is fenced or copied; once it is closed it is made good."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    if full:
        damage(cluster, "b1", ledger, 7)
    else:
        del cluster.bookies["b1"].ledgers[ledger].entries[7]
    before = bodies(cluster, "b1", ledger)
    outcome = tried(cluster, ledger, "b1", full=full)
    assert (outcome.done, outcome.outlook) == (False, Outlook.WAITS_FOR_WRITER)
    assert outcome.due_s == (READ_AGAIN_S if full else None)
    assert "it is not closed" in outcome.reasons[0]
    assert bodies(cluster, "b1", ledger) == before
    assert not any(cluster.bookies[name].ledgers[ledger].fenced for name in THREE)
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    length = sum(len(payload(entry)) for entry in range(21))
    cluster.succeed(cluster.store.write_ledger(ledger, stored.value.closed(20, length), stored.version))
    assert tried(cluster, ledger, "b1", full=full).done
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_copy_that_is_on_its_way_to_a_fragment_that_is_written_is_waited_for() -> None:
    """It is confirmed before the last bookie has it."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    entries = cluster.bookies["b1"].ledgers[ledger].entries
    body = entries.pop(19)
    cluster.clock.callLater(5, entries.__setitem__, 19, body)
    assert tried(cluster, ledger, "b1").done
    assert 19 in bodies(cluster, "b1", ledger)


def test_a_mark_stays_where_nobody_knows_what_is_confirmed() -> None:
    """Its other bookies are away: whether the one that is there lacks something can't be told."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill("b0", "b2")
    outcome = tried(cluster, ledger, "b1")
    assert not outcome.done
    assert "last add confirmed can't be read" in outcome.reasons[0]


def test_a_mark_without_bookies_is_about_all_that_are_there() -> None:
    """
    As one that can't be read: what they lack is not left behind; who is away is not judged, and keeps the ledger in the
    queue, for it may be the one that the mark was for.
    """
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    cluster.kill("b2")
    assert tried(cluster, ledger).reasons == (f"ledger {ledger}: b2 may come back",)
    assert 7 in bodies(cluster, "b1", ledger)
    assert cluster.metadata(ledger).bookies() == set(THREE)
    cluster.restart("b2")
    assert tried(cluster, ledger).done


def test_what_is_settled_is_copied_though_the_rest_waits_for_its_writer() -> None:
    """Nothing is fenced before the grace is over."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE, 10: ["b0", "b3", "b2"]}, 20)
    cluster.kill("b2")
    outcome = tried(cluster, ledger, "b2")
    assert (outcome.outlook, outcome.due_s) == (Outlook.WAITS_FOR_WRITER, 30.0)
    settled, written = cluster.metadata(ledger).fragments
    assert "b2" not in settled.bookies
    assert "b2" in written.bookies
    assert not any(bookie.ledgers[ledger].fenced for bookie in cluster.bookies.values() if ledger in bookie.ledgers)


def test_what_is_settled_is_copied_though_the_rest_cant_be_closed() -> None:
    """All bookies of its last ensemble are gone: the recovery fails, and keeps nothing else."""
    cluster = FakeCluster(7)
    ledger = left_open(cluster, {0: ["b0", "b1", "b6"], 10: ["b4", "b5", "b6"]}, 20)
    cluster.kill("b4", "b5", "b6")
    outcome = tried(cluster, ledger, "b4", "b5", "b6", grace_s=0.0)
    assert not outcome.done
    assert not cluster.metadata(ledger).is_closed
    assert "b6" not in cluster.metadata(ledger).fragments[0].bookies


@pytest.mark.parametrize(
    ("write", "killed", "bookies", "outlook"),
    [(1, ["b2"], 5, Outlook.GONE), (3, ["b2"], 3, Outlook.WAITS_FOR_SPARE)],
)
def test_what_cant_be_repaired_says_what_is_next(write: int, killed: list[str], bookies: int, outlook: Outlook) -> None:
    """By what is there now."""
    cluster = FakeCluster(bookies)
    ledger = closed(cluster, {0: THREE}, 19, write=write)
    cluster.kill(*killed)
    outcome = tried(cluster, ledger, *killed)
    assert outcome.outlook is outlook
    assert outcome.reasons


def test_what_nobody_has_is_gone_though_all_are_there() -> None:
    """The bookies say so themselves."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    for name in THREE:
        del cluster.bookies[name].ledgers[ledger].entries[7]
    outcome = tried(cluster, ledger, "b1")
    assert outcome.outlook is Outlook.GONE
    assert any("7" in reason for reason in outcome.reasons)


def test_what_is_gone_is_asked_of_others_again_once_a_bookie_came() -> None:
    """Each of them said at the first try that it has no copy; one that comes may have brought it."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    body = bodies(cluster, "b1", ledger)[7]
    for name in THREE:
        del cluster.bookies[name].ledgers[ledger].entries[7]
    listed: list[str] = []

    def judge(request: Request) -> str:
        if request.op == "list" and request.bookie not in THREE:
            listed.append(request.bookie)
        return "pass"

    cluster.judge = judge
    mark(cluster, ledger, "b1")
    client = cluster.client()
    repairer = Repairer(client, 0, 30.0)

    def outlook() -> Outlook | None:
        lock: RepairLock = cluster.succeed(client.store.repairs.take())
        found: Outcome = cluster.succeed(repairer.repaired(lock), seconds=1000)
        cluster.succeed(client.store.repairs.release(lock))
        return found.outlook

    assert (outlook(), listed) == (Outlook.GONE, ["b3", "b4"])
    assert (outlook(), listed) == (Outlook.GONE, ["b3", "b4"])
    cluster.kill("b4")
    assert (outlook(), listed) == (Outlook.GONE, ["b3", "b4"])
    cluster.bookies["b4"].stored(ledger).entries[7] = body
    cluster.restart("b4")
    cluster.spin(1)
    assert outlook() is None
    assert listed == ["b3", "b4", "b3", "b4"]
    assert bodies(cluster, "b1", ledger)[7] == body


def test_what_no_survivor_has_is_gone() -> None:
    """The metadata says that they hold it, and they say that they don't; what else can be done is done all the same."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE, 10: ["b2", "b3", "b4"]}, 19)
    for name in ("b0", "b1"):
        del cluster.bookies[name].ledgers[ledger].entries[7]
    cluster.kill("b2")
    outcome = tried(cluster, ledger, "b2")
    assert outcome.outlook is Outlook.GONE
    assert "no survivor has entry 7" in outcome.reasons[0]
    assert [each.first for each in cluster.metadata(ledger).fragments if "b2" in each.bookies] == [7]


def test_what_one_lacks_and_the_others_had_is_gone() -> None:
    """Whichever of them the mark names: a check that finds what the one lacks gives no hope."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 19, write=2)
    del cluster.bookies["b1"].ledgers[ledger].entries[7]
    cluster.kill("b2")
    for marked in (["b2"], ["b1", "b2"]):
        outcome = tried(cluster, ledger, *marked)
        assert (outcome.outlook, marked) == (Outlook.GONE, marked)
    cluster.restart("b2")
    assert tried(cluster, ledger, "b1", "b2").done
    assert 7 in bodies(cluster, "b1", ledger)


def test_a_survivor_that_gives_no_answer_may_have_it() -> None:
    """So the next try is not an hour away."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 19)
    del cluster.bookies["b0"].ledgers[ledger].entries[7]
    cluster.kill("b2")
    cluster.judge = lambda request: UNREACHABLE if request.bookie == "b1" else "pass"
    assert tried(cluster, ledger, "b2").outlook is Outlook.REPAIRABLE


def test_a_fragment_that_is_gone_does_not_end_the_grace_of_another() -> None:
    """The writer may still replace the bookie."""
    cluster = FakeCluster(6)
    ledger = left_open(cluster, {0: THREE, 10: ["b2", "b3", "b4"]}, 19)
    for name in ("b0", "b1"):
        del cluster.bookies[name].ledgers[ledger].entries[7]
    cluster.kill("b2")
    outcome = tried(cluster, ledger, "b2")
    assert (outcome.outlook, outcome.due_s) == (Outlook.WAITS_FOR_WRITER, 30.0)


def test_a_bookie_that_does_not_know_what_it_lost_is_waited_for() -> None:
    """That is no loss: nothing is copied, the ledger stays."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    cluster.bookies["b1"].ledgers.clear()
    cluster.bookies["b1"].limbo = True
    outcome = tried(cluster, ledger, "b1", full=True)
    assert not outcome.done
    assert outcome.outlook is None
    assert outcome.entries == 0


def test_nothing_is_left_to_do() -> None:
    """For a ledger that was deleted, or does not name the bookie."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: THREE}, 19)
    assert tried(cluster, ledger, "b4").done
    cluster.succeed(cluster.store.delete_ledger(ledger))
    assert tried(cluster, ledger, "b2").done


def test_it_keeps_its_pace() -> None:
    """Whether copies go to others or to a bookie that is there."""
    for gone in (True, False):
        cluster = FakeCluster(5)
        ledger = closed(cluster, {0: THREE}, 199)
        size = sum(map(len, bodies(cluster, "b0", ledger).values()))
        if gone:
            cluster.kill("b2")
        else:
            cluster.bookies["b2"].ledgers.clear()
        began = cluster.clock.seconds()
        assert tried(cluster, ledger, "b2", rate=size / 20).done
        assert 0 < cluster.clock.seconds() - began < 100
        assert is_whole(cluster, cluster.client(), ledger)
