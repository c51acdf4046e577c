"""Ledgers in memory: what checkpoints take of them, which are in limbo, and what is refused of deleted ones."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.storage import ledgers as ledgers_module
from quire.bookie.storage.ledgers import (
    DELETED_MAX,
    FENCED_S,
    PAGE_LEDGERS,
    UNFENCED_S,
    DeletedLedgers,
    LastWrites,
    Ledgers,
)
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import KEY, Bookie, body_of, run_of

# SPDX-License-Identifier: Apache-2.0


def test_a_fenced_ledger_is_refused_longer() -> None:
    """A deleted ledger is refused for a limited time, longer if it was fenced, and no longer after `forget`."""
    clock = Clock()
    deleted = DeletedLedgers(clock.seconds)
    deleted.add(1, fenced=True)
    deleted.add(2, fenced=False)
    assert [deleted.refuses(ledger) for ledger in (1, 2, 3)] == [True, True, False]
    clock.advance(UNFENCED_S - 1)
    assert [deleted.refuses(ledger) for ledger in (1, 2)] == [True, True]
    clock.advance(2)
    assert [deleted.refuses(ledger) for ledger in (1, 2)] == [True, False]
    clock.advance(FENCED_S - UNFENCED_S)
    assert not deleted.refuses(1)
    deleted.add(1, fenced=True)
    deleted.forget(1)
    assert not deleted.refuses(1)


def test_the_memory_is_bounded() -> None:
    """The oldest go first, the newest stay."""
    deleted = DeletedLedgers(Clock().seconds)
    for ledger in range(DELETED_MAX + 5):
        deleted.add(ledger, ledger % 2 == 0 and ledger > DELETED_MAX)
    assert len(deleted) <= DELETED_MAX + 5
    for ledger in range(2 * DELETED_MAX):
        deleted.add(ledger, True)
    assert len(deleted) <= 2 * DELETED_MAX
    assert deleted.refuses(2 * DELETED_MAX - 1)


def test_what_is_refused_no_longer_takes_no_memory() -> None:
    """Each kind goes when its time is over, with the next deletion, and nothing goes before."""
    clock = Clock()
    deleted = DeletedLedgers(clock.seconds)
    for ledger in range(100):
        deleted.add(ledger, ledger % 2 == 0)
        clock.advance(1)
    clock.advance(UNFENCED_S)
    deleted.add(100, fenced=True)
    assert len(deleted) == 51
    assert all(deleted.refuses(ledger) for ledger in range(0, 101, 2))
    clock.advance(FENCED_S)
    deleted.add(101, fenced=False)
    assert len(deleted) == 1
    assert [deleted.refuses(ledger) for ledger in (100, 101)] == [False, True]


def test_a_late_writer_does_not_bring_a_ledger_back() -> None:
    """
    Its adds are refused as fenced, also after a restart that replays the deletion; repair and a LAC hear that there is
    no such ledger.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.storage.add(run_of(2, 0, 3), "a")
    bookie.commit()
    bookie.storage.delete_ledger(1)
    bookie.commit()
    for one in (bookie, Bookie(bookie.disk.killed())):
        storage = one.storage
        assert storage.add(run_of(1, 3), "b") is Status.EFENCED
        assert storage.add(run_of(1, 3, recovery=True), "b") is Status.ENOLEDGER
        assert storage.write_lac(1, KEY, bytes(16), "f") is Status.ENOLEDGER
        assert storage.ledger(1) is None
        assert one.read(2, 1) == body_of(2, 1)
        one.clock.advance(UNFENCED_S + 1)
        assert storage.add(run_of(1, 3), "b") is Status.EOK, "an id that its user chose may be used again"


def test_a_fenced_ledger_stays_refused() -> None:
    """Adds to a deleted ledger that was fenced get EFENCED until the longer time is over."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.storage.fence(1, KEY, "f")
    bookie.commit()
    bookie.storage.delete_ledger(1)
    bookie.clock.advance(UNFENCED_S + 1)
    assert bookie.storage.add(run_of(1, 3), "b") is Status.EFENCED
    bookie.clock.advance(FENCED_S)
    assert bookie.storage.add(run_of(1, 3), "b") is Status.EOK


def test_only_a_copy_that_goes_is_not_remembered() -> None:
    """A repair may choose this bookie again; so may a mark of limbo after a deletion."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.storage.delete_ledger(1, remembered=False)
    assert bookie.storage.add(run_of(1, 0, recovery=True), "b") is Status.EOK
    bookie.storage.delete_ledger(1)
    Deferred.fromCoroutine(bookie.storage.mark_limbo({1: LedgerRow(KEY)}))
    bookie.commit()
    assert bookie.storage.add(run_of(1, 0, recovery=True), "b") is Status.EOK


def test_a_fence_of_a_deleted_ledger_is_kept_longer_than_the_memory_of_the_deletion() -> None:
    """
    The recovery of a ledger that has the id of a deleted one takes a "no" for a fenced bookie: it must be one, also
    after the next start.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.storage.delete_ledger(1)
    bookie.commit()
    assert bookie.storage.fence(1, KEY, "f") is Status.EOK
    bookie.commit()
    assert bookie.read(1, 0) is Status.ENOENTRY
    bookie.clock.advance(UNFENCED_S + 1)
    for one in (bookie, Bookie(bookie.disk.killed())):
        assert one.storage.add(run_of(1, 0), "b") is Status.EFENCED
        assert one.storage.add(run_of(1, 0, recovery=True), "b") is Status.EOK


def test_a_superfluous_copy_leaves_its_fence() -> None:
    """
    A writer that slept since before the ledger was closed may still take this bookie for one of its own; who copies the
    ledger here again may.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.storage.flush()
    bookie.storage.drop_copy(404)
    state = bookie.storage.ledger(1)
    assert state is not None
    woken: list[str] = []
    state.watch(lambda: woken.append("dropped"))
    bookie.storage.drop_copy(1)
    assert woken == ["dropped"]
    assert bookie.read(1, 0) is Status.ENOENTRY
    assert bookie.storage.add(run_of(1, 3), "b") is Status.EFENCED
    bookie.commit()
    left = bookie.storage.ledger(1)
    assert left is not None
    assert left.fence_durable, "it may go from memory"
    flushed = Bookie(bookie.disk.crashed(None))
    flushed.storage.flush()
    for one in (Bookie(bookie.disk.crashed(None)), Bookie(flushed.disk.crashed(None)), bookie):
        assert one.read(1, 0) is Status.ENOENTRY
        assert one.storage.add(run_of(1, 3), "b") is Status.EFENCED
        assert one.storage.add(run_of(1, 0, recovery=True), "c") is Status.EOK


def test_a_new_ledger_with_a_deleted_id_waits_for_the_index() -> None:
    """Its index rows are the old ledger's until the checkpoint that deletes them is durable, and no later one was."""
    ledgers = Ledgers({}.get)
    ledgers.create(1, b"key")
    ledgers.delete(1)
    assert ledgers.create(1, b"key").index_stale
    assert not ledgers.create(2, b"key").index_stale
    assert ledgers.take_deleted() == {1}
    assert ledgers.delete(1) is not None
    state = ledgers.create(1, b"key")
    ledgers.deleted_settled()
    assert state.index_stale, "it was deleted again since"
    assert ledgers.take_deleted() == {1}
    assert ledgers.create(3, b"key").index_stale is False
    ledgers.deleted_settled()
    assert not state.index_stale
    assert ledgers.take_deleted() == set()


def test_checkpoints_are_counted_as_they_begin() -> None:
    """The number says since which of them the journal knows of an add that is in memory only."""
    ledgers = Ledgers({}.get)
    ledgers.take_dirty()
    ledgers.settled()
    ledgers.take_dirty()
    assert ledgers.checkpoint == 2


def test_limbo_is_what_memory_says_and_else_the_row() -> None:
    """Not of ledgers whose directory has failed: nothing can be copied there."""
    ledgers = Ledgers({}.get)
    for ledger, limbo in ((1, True), (2, False), (3, True)):
        ledgers.create(ledger, b"").limbo = limbo
    assert ledgers.in_limbo([9, 2], lambda ledger: ledger == 3) == [1, 9]


def test_what_was_written_since_a_moment_is_known() -> None:
    """Adds, fences and explicit LACs count, and not what was written before; a ledger that is unknown has no writes."""
    bookie = Bookie()
    storage = bookie.storage
    for ledger in (1, 2, 3, 4):
        storage.add(run_of(ledger, 0, 3), "a")
    bookie.commit()
    moment = storage.next_moment()
    assert not any(storage.written_since(ledger, moment) for ledger in (1, 2, 3, 4, 404))
    storage.add(run_of(1, 0), "b")
    storage.fence(2, KEY, "f")
    storage.write_lac(3, KEY, bytes(16), "l")
    storage.add(run_of(5, 0), "b")
    written = [ledger for ledger in (1, 2, 3, 4, 5, 404) if storage.written_since(ledger, moment)]
    assert written == [1, 2, 3, 5]
    later = storage.next_moment()
    assert not any(storage.written_since(ledger, later) for ledger in written)


def test_moments_do_not_make_a_ledger_look_idle() -> None:
    """Idle hours are counted by the clock alone, however many moments were asked for."""
    ledgers = Ledgers({}.get)
    ledgers.create(1, b"key")
    for _ in range(1000):
        ledgers.next_moment()
    assert ledgers.idle_hours(1) == 0
    ledgers.hours_passed(3)
    assert ledgers.idle_hours(1) == 2
    ledgers.next_moment()
    assert ledgers.idle_hours(1) == 2


def test_a_ledger_stays_idle_beside_others_that_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However often all of them leave the memory; to ask for it loads nothing; one that was evicted counts as written when
    it was, also for what looks for writes since a moment.
    """
    monkeypatch.setattr(ledgers_module, "STATES_MAX", 2)
    loaded: list[int] = []

    def load(ledger: int) -> LedgerRow:
        loaded.append(ledger)
        return LedgerRow(b"key")

    ledgers = Ledgers(load)
    old, new = range(10), range(10 * PAGE_LEDGERS, 10 * PAGE_LEDGERS + 10)
    for day in range(1, 4):
        ledgers.hours_passed(24 * day)
        for ledger in new:
            state = ledgers.get(ledger)
            assert state is not None
            state.moment = ledgers.moment
        began = ledgers.next_moment()
        for ledger in old:
            assert ledgers.get(ledger) is not None
        assert not list(ledgers.evict(lambda _ledger: False))
        assert len(ledgers.states) < len(old) + len(new)
        loaded.clear()
        assert [ledgers.idle_hours(ledger) for ledger in old] == [24 * day - 1] * len(old)
        assert [ledgers.idle_hours(ledger) for ledger in new] == [0] * len(new)
        assert loaded == []
        assert not any(ledgers.written_since(ledger, began) for ledger in (*old, *new))
        assert all(ledgers.written_since(ledger, began - 1) for ledger in new)
        ledgers.states.clear()


def test_moments_of_few_pages_are_remembered_and_those_written_earlier_become_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None becomes earlier than it was; the later half stays as it is."""
    monkeypatch.setattr(ledgers_module, "MOMENT_PAGES_MAX", 10)
    writes = LastWrites()
    for page in range(11):
        writes.put(page * PAGE_LEDGERS, 100 + page)
    assert [writes.of(page * PAGE_LEDGERS + 3) for page in range(12)] == [105] * 6 + [106, 107, 108, 109, 110, 105]
    writes.put(0, 50)
    assert writes.of(0) == 105
    for page in range(40):
        writes.put(page * PAGE_LEDGERS, 200)
    assert {writes.of(ledger) for ledger in range(0, 50 * PAGE_LEDGERS, PAGE_LEDGERS)} == {200}
