"""When ledgers that could not be repaired are tried again."""

from quire.metadata.repair_queue import Shortage
from quire.replication.autorecovery.waiting import FORGOTTEN_S, GONE_PAUSE_S, Parked, Pauses
from quire.replication.core.fragments import Outlook

# SPDX-License-Identifier: Apache-2.0


def parked() -> Parked:
    return Parked(Pauses(5.0, 300.0))


def mark_of(ledger: int, *missing: str, version: int = 0) -> Shortage:
    return Shortage(ledger, missing, None, version)


def test_pauses_double_up_to_the_longest() -> None:
    """Each try waits twice as long; once it is repaired all begins anew."""
    found = parked()
    now = 0.0
    pauses = []
    for _ in range(8):
        until = found.put(mark_of(1), Outlook.REPAIRABLE, now)
        pauses.append(until - now)
        assert 1 in found
        found.wake(until - 0.01)
        assert 1 in found
        found.wake(until)
        assert 1 not in found
        now = until
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    found.done(1)
    assert found.tries(1) == 0
    assert found.put(mark_of(1), None, now) == now + 5


def test_who_is_gone_waits_an_hour() -> None:
    """At each try."""
    found = parked()
    assert found.put(mark_of(1, "b1"), Outlook.GONE, 0.0) == GONE_PAUSE_S
    found.wake(GONE_PAUSE_S)
    assert found.put(mark_of(1, "b1"), Outlook.GONE, 4000.0) == 4000.0 + GONE_PAUSE_S


def test_a_bookie_that_comes_may_change_it() -> None:
    """For who waits for it, and, if it is writable, for who waits for any; the others wait on."""
    found = parked()
    found.put(mark_of(1, "b1", "b2"), Outlook.GONE, 0.0)
    found.put(mark_of(2, "b3"), Outlook.GONE, 0.0)
    found.put(mark_of(3, "b3"), Outlook.WAITS_FOR_SPARE, 0.0)
    found.put(mark_of(4), None, 0.0)
    found.bookies_came(["b2", "b9"])
    assert [ledger in found for ledger in (1, 2, 3, 4)] == [False, True, True, True]
    found.spares_came()
    assert [ledger in found for ledger in (1, 2, 3, 4)] == [False, True, False, True]
    assert found.counts() == {Outlook.GONE: 1, None: 1}
    assert len(found) == 2


def test_a_time_that_is_given_replaces_the_pause() -> None:
    """Earlier or later; when the other one comes nothing happens."""
    found = parked()
    found.put(mark_of(1), Outlook.WAITS_FOR_WRITER, 0.0)
    found.hold(mark_of(1), Outlook.WAITS_FOR_WRITER, 30.0)
    found.wake(29.0)
    assert 1 in found
    found.wake(30.0)
    assert 1 not in found
    assert found.tries(1) == 1


def test_who_is_not_parked_again_is_forgotten() -> None:
    """Another worker repaired it: nothing of it is kept, and there is nothing more to wake for."""
    found = parked()
    for ledger in range(100):
        found.put(mark_of(ledger, "b1"), Outlook.REPAIRABLE, 0.0)
    found.wake(5.0)
    assert (len(found), found.tries(7)) == (0, 1)
    found.wake(5.0 + FORGOTTEN_S)
    assert (found.tries(7), found.due) == (0, None)


def test_of_many_those_wake_whose_time_has_come() -> None:
    """And `due` is the time of the next one."""
    found = parked()
    for ledger in reversed(range(10_000)):
        found.put(mark_of(ledger, "b1"), Outlook.GONE, ledger / 100)
    found.wake(3599.0)
    assert (found.due, len(found)) == (3600.0, 10_000)
    found.wake(3600.505)
    assert [ledger in found for ledger in (0, 50, 51, 9999)] == [False, False, True, True]
    assert len(found) == 10_000 - 51


def test_a_new_mark_may_change_it() -> None:
    """It names a bookie that can be replaced, perhaps; the same mark, seen again, changes nothing."""
    found = parked()
    found.put(mark_of(1, "b1", version=3), Outlook.GONE, 0.0)
    found.put(mark_of(2, "b1", version=3), Outlook.REPAIRABLE, 0.0)
    assert found.gone() == [1]
    found.marked(1, 3)
    found.marked(404, 3)
    assert 1 in found
    found.marked(1, 4)
    assert 1 not in found
    assert found.gone() == []
