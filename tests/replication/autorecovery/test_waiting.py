"""What a worker parks and notes: for itself, for people, and for all other workers."""

from quire.metadata.repair_queue import Shortage
from quire.replication.autorecovery.ledger import Outcome
from quire.replication.autorecovery.notes import FOUND, Note, Notes
from quire.replication.autorecovery.waiting import LEAST_S, MARKS_LOOK_S, MARKS_MAX, Waiting
from quire.replication.core.fragments import Outlook
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import AWAY, mark

# SPDX-License-Identifier: Apache-2.0

MARK = Shortage(7, ("b2",), None, 3)
GONE = Outcome(("entries 0 to 9 have no copy",), Outlook.GONE)


def made(cluster: FakeCluster) -> Waiting:
    cluster.shared.time_of_day = cluster.clock.seconds
    return Waiting(cluster.client(), 5.0, 300.0)


def test_what_is_gone_is_tried_by_one_worker_an_hour() -> None:
    """Whoever tried it last, and however often each of them did before."""
    cluster = FakeCluster(3)
    first, second = made(cluster), made(cluster)
    cluster.kill("b2")
    for mine, other in ((first, second), (second, first), (first, second)):
        cluster.succeed(mine.park(MARK, GONE, cluster.succeed(mine.note(7)), 0))
        note = cluster.succeed(other.note(7))
        assert cluster.succeed(other.is_early(note, MARK))
        assert 7 in other.parked
        cluster.spin(3601)
        assert not cluster.succeed(other.is_early(note, MARK))


def test_a_bookie_that_came_ends_the_hour() -> None:
    """It may have the copies."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.kill("b2")
    cluster.succeed(waiting.park(MARK, GONE, None, 0))
    note = cluster.succeed(waiting.note(7))
    cluster.restart("b2")
    assert not cluster.succeed(waiting.is_early(note, MARK))


def test_a_new_mark_ends_the_hour_for_everybody() -> None:
    """It may name a bookie whose copies are on others: who parked the ledger looks, and who reads the note sees it."""
    cluster = FakeCluster(3)
    first, second = made(cluster), made(cluster)
    cluster.kill("b2")
    mark(cluster, 7, "b2")
    old = cluster.succeed(cluster.store.repairs.shortage(7))
    cluster.succeed(first.park(old, GONE, None, 0))
    cluster.spin(MARKS_LOOK_S)
    cluster.succeed(first.look_at_marks())
    assert 7 in first.parked
    mark(cluster, 7, "b1")
    cluster.succeed(first.look_at_marks())
    assert 7 in first.parked, "it was looked at just now"
    cluster.spin(MARKS_LOOK_S)
    cluster.succeed(first.look_at_marks())
    assert 7 not in first.parked
    new = cluster.succeed(cluster.store.repairs.shortage(7))
    note = cluster.succeed(second.note(7))
    assert cluster.succeed(second.is_early(note, old))
    assert not cluster.succeed(second.is_early(note, new))


def test_what_others_repaired_is_not_parked_any_more() -> None:
    """Its mark is gone; so many are looked at in one look, and all in turn."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    for ledger in range(MARKS_MAX + 5):
        waiting.parked.put(Shortage(ledger, ("b2",), None, 0), Outlook.GONE, 0.0)
    cluster.spin(MARKS_LOOK_S)
    cluster.succeed(waiting.look_at_marks())
    assert len(waiting.parked) == 5
    cluster.spin(MARKS_LOOK_S)
    cluster.succeed(waiting.look_at_marks())
    assert len(waiting.parked) == 0


def test_what_a_scrub_found_stays_noted() -> None:
    """A try that fails does not make it an ordinary one: all copies are read by the next try, too."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    found = Note(7, FOUND, "its digest holds, but other copies differ", 0, 0, 0, "host")
    cluster.succeed(Notes(cluster.store.records).write(found))
    scrub = cluster.succeed(waiting.note(7))
    cluster.succeed(waiting.park(MARK, Outcome(("no spare",), Outlook.WAITS_FOR_SPARE), scrub, 0))
    note = cluster.succeed(waiting.note(7))
    assert note.is_of_a_scrub
    assert (note.reason, note.tries) == ("no spare", 1)
    assert not cluster.succeed(waiting.is_early(note, MARK))


def test_a_ledger_that_is_whole_leaves_no_note() -> None:
    """But what was noted since then stays."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.succeed(waiting.park(Shortage(7, (), None, 0), GONE, None, 0))
    note = cluster.succeed(waiting.note(7))
    cluster.succeed(waiting.over(7, note))
    assert cluster.succeed(waiting.note(7)) is None
    assert 7 not in waiting.parked
    cluster.succeed(waiting.park(Shortage(7, (), None, 0), GONE, None, 0))
    cluster.succeed(waiting.over(7, note._replace(version=55)))
    assert cluster.succeed(waiting.note(7)) is not None


def test_a_grace_is_waited_for() -> None:
    """And no longer."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    now = cluster.clock.seconds()
    cluster.succeed(waiting.park(Shortage(7, (), None, 0), Outcome(("open",), Outlook.WAITS_FOR_WRITER, 30.0), None, 0))
    waiting.parked.wake(now + 29)
    assert 7 in waiting.parked
    waiting.parked.wake(now + 30.1)
    assert 7 not in waiting.parked


def test_a_store_that_is_away_does_not_keep_a_ledger_from_being_parked() -> None:
    """The note is for people."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.store_fault = lambda _name, _arguments: AWAY
    cluster.succeed(waiting.park(Shortage(7, (), None, 0), GONE, None, 0))
    assert 7 in waiting.parked


def test_nobody_spins() -> None:
    """Pauses of no time are some time."""
    cluster = FakeCluster(3)
    waiting = Waiting(cluster.client(), 0.0, 0.0)
    assert waiting.parked.put(MARK, None, 0.0) == LEAST_S


def test_a_bookie_that_comes_during_the_try_is_not_missed() -> None:
    """What the try found does not hold any more: the ledger is not parked for an hour."""
    cluster = FakeCluster(4)
    waiting = Waiting(cluster.client(), 1.0, 60.0)
    before = waiting.parked.arrivals
    waiting.parked.bookies_came(["b2"])
    cluster.succeed(waiting.park(Shortage(7, ("b1", "b2"), None, 0), GONE, None, before))
    assert waiting.parked.due is not None
    assert waiting.parked.due <= cluster.clock.seconds() + 1.0
    cluster.succeed(waiting.park(Shortage(8, ("b1", "b3"), None, 0), GONE, None, before))
    waiting.parked.done(7)
    assert waiting.parked.counts() == {GONE.outlook: 1}
