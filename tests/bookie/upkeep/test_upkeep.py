"""Passes and rebuilds together: they share a pace, take turns, and stop before the storage closes."""

from twisted.internet.defer import Deferred

from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Bookie
from tests.bookie.upkeep.test_space import check, half_dead

# SPDX-License-Identifier: Apache-2.0


def stopping(bookie: Bookie) -> list[object]:
    """Filled when all has stopped."""
    ended: list[object] = []
    Deferred.fromCoroutine(bookie.upkeep.stop()).addBoth(ended.append)
    return ended


def test_a_rest_of_hours_ends_with_a_stop() -> None:
    """At a low rate a step rests for long; the pass and what waits for it end at once, and nothing is lost."""
    bookie = half_dead(compaction_bytes_per_second=1)
    bookie.now(bookie.storage.flush())
    passed: list[object] = []
    bookie.upkeep.space.reclaim(lambda path: 0.8).addBoth(passed.append)
    assert bookie.upkeep.rebuild.start(), "it waits for its turn"
    bookie.clock.advance(1)
    assert (passed, bookie.upkeep.rebuild.running) == ([], True)
    ended = stopping(bookie)
    bookie.clock.advance(0)
    assert (ended, passed, bookie.upkeep.rebuild.running) == ([None], [None], False)
    check(bookie)


def test_a_rebuild_at_a_low_rate_ends_with_a_stop_too() -> None:
    """It leaves the index as it was; the pass that waits for it makes no step."""
    bookie = half_dead(compaction_bytes_per_second=1)
    bookie.now(bookie.storage.flush())
    assert bookie.upkeep.rebuild.start()
    passed: list[object] = []
    bookie.upkeep.space.reclaim(lambda path: 0.8).addBoth(passed.append)
    bookie.clock.advance(1)
    assert (passed, bookie.upkeep.rebuild.running) == ([], True)
    ended = stopping(bookie)
    bookie.clock.advance(0)
    assert (ended, passed, bookie.upkeep.rebuild.running) == ([None], [None], False)
    assert "stops" in str(bookie.upkeep.rebuild.problem)
    assert bookie.storage.counters.gc_compactions == 0
    check(bookie)


def test_nothing_begins_after_a_stop() -> None:
    """A rebuild is refused, a pass ends without a step."""
    bookie = half_dead()
    bookie.now(bookie.storage.flush())
    assert stopping(bookie) == [None]
    assert not bookie.upkeep.rebuild.start()
    before = bookie.disk.find(".log")
    passed: list[object] = []
    bookie.upkeep.space.reclaim(lambda path: 1.0).addBoth(passed.append)
    assert (passed, bookie.disk.find(".log")) == ([None], before)


def test_a_storage_refuses_to_close_before_its_upkeep_has_stopped() -> None:
    """The wrong order is an error, not a race; after the stop it closes."""
    bookie = half_dead(compaction_bytes_per_second=1)
    bookie.now(bookie.storage.flush())
    bookie.upkeep.space.reclaim(lambda path: 0.8)
    bookie.clock.advance(1)
    closed: list[object] = []
    bookie.storage.close().addErrback(lambda failure: closed.append(failure.value))
    (error,) = closed
    assert isinstance(error, StorageError)
    assert "has not been stopped" in str(error)
    bookie.close()
    assert bookie.disk.open_files == 0
