"""What a worker parks and notes: for itself, for people, and for all other workers."""

from quire.replication.autorecovery.ledger import Outcome
from quire.replication.autorecovery.notes import FOUND, Note
from quire.replication.autorecovery.waiting import LEAST_S, Waiting
from quire.replication.core.outlook import Outlook
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import AWAY

# SPDX-License-Identifier: Apache-2.0

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
        cluster.succeed(mine.park(7, ("b2",), GONE, None, 0))
        note = cluster.succeed(other.note(7))
        assert cluster.succeed(other.is_early(note, ("b2",)))
        assert 7 in other.parked
        cluster.spin(3601)
        assert not cluster.succeed(other.is_early(note, ("b2",)))


def test_a_bookie_that_came_ends_the_hour() -> None:
    """It may have the copies."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.kill("b2")
    cluster.succeed(waiting.park(7, ("b2",), GONE, None, 0))
    note = cluster.succeed(waiting.note(7))
    cluster.restart("b2")
    assert not cluster.succeed(waiting.is_early(note, ("b2",)))


def test_what_a_scrub_found_stays_noted() -> None:
    """A try that fails does not make it an ordinary one: all copies are read by the next try, too."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    scrub = Note(7, FOUND, "its digest holds, but other copies differ", 0, 0, 0, "host")
    cluster.succeed(waiting.park(7, ("b2",), Outcome(("no spare",), Outlook.WAITS_FOR_SPARE), scrub, 0))
    note = cluster.succeed(waiting.note(7))
    assert note.is_of_a_scrub
    assert (note.reason, note.tries) == ("no spare", 1)
    assert not cluster.succeed(waiting.is_early(note, ("b2",)))


def test_a_ledger_that_is_whole_leaves_no_note() -> None:
    """But what was noted since then stays."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.succeed(waiting.park(7, (), GONE, None, 0))
    note = cluster.succeed(waiting.note(7))
    cluster.succeed(waiting.over(7, note))
    assert cluster.succeed(waiting.note(7)) is None
    assert 7 not in waiting.parked
    cluster.succeed(waiting.park(7, (), GONE, None, 0))
    cluster.succeed(waiting.over(7, note._replace(version=55)))
    assert cluster.succeed(waiting.note(7)) is not None


def test_a_grace_is_waited_for() -> None:
    """And no longer."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    now = cluster.clock.seconds()
    cluster.succeed(waiting.park(7, (), Outcome(("open",), Outlook.WAITS_FOR_WRITER, 30.0), None, 0))
    waiting.parked.wake(now + 29)
    assert 7 in waiting.parked
    waiting.parked.wake(now + 30.1)
    assert 7 not in waiting.parked


def test_a_store_that_is_away_does_not_keep_a_ledger_from_being_parked() -> None:
    """The note is for people."""
    cluster = FakeCluster(3)
    waiting = made(cluster)
    cluster.store_fault = lambda _name, _arguments: AWAY
    cluster.succeed(waiting.park(7, (), GONE, None, 0))
    assert 7 in waiting.parked


def test_nobody_spins() -> None:
    """Pauses of no time are some time."""
    cluster = FakeCluster(3)
    waiting = Waiting(cluster.client(), 0.0, 0.0)
    assert waiting.parked.put(7, None, (), 0.0) == LEAST_S


def test_a_bookie_that_comes_during_the_try_is_not_missed() -> None:
    """What the try found does not hold any more: the ledger is not parked for an hour."""
    cluster = FakeCluster(4)
    waiting = Waiting(cluster.client(), 1.0, 60.0)
    before = waiting.parked.arrivals
    waiting.parked.bookies_came(["b2"])
    cluster.succeed(waiting.park(7, ("b1", "b2"), GONE, None, before))
    assert waiting.parked.due is not None
    assert waiting.parked.due <= cluster.clock.seconds() + 1.0
    cluster.succeed(waiting.park(8, ("b1", "b3"), GONE, None, before))
    waiting.parked.done(7)
    assert waiting.parked.counts() == {GONE.outlook: 1}
