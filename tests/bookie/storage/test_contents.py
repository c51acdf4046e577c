"""What journaled blocks change in memory, now and at a replay; what deletions and watchers see of it."""

from twisted.internet.defer import Deferred

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.rows import DictRows
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import DIGEST, KEY, OTHER_KEY, Bookie, body_of, run_of

# SPDX-License-Identifier: Apache-2.0


def test_unacknowledged_fence_in_an_earlier_half_is_kept_by_the_checkpoint() -> None:
    """A checkpoint without any new entry still stores fences, keys and LACs (the reference loses them)."""
    bookie = Bookie()
    bookie.storage.fence(4, KEY, "f")
    bookie.commit()
    bookie.storage.flush()
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_groups == 0
    assert again.storage.add(run_of(4, 0), "a") is Status.EFENCED


def test_limbo_of_a_ledger_without_a_row_hides_nothing_that_is_indexed() -> None:
    """
    A crash may leave index rows of a ledger that is in no table: what is held of it is served too, also when limbo has
    ended.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    disk = bookie.disk.crashed(None)
    disk.rows = {path: rows if path.endswith("runs") else DictRows() for path, rows in disk.rows.items()}
    again = Bookie(disk)
    again.now(Deferred.fromCoroutine(again.storage.mark_limbo({1: LedgerRow(KEY, limbo=True)})))
    assert decode(again.now(again.storage.held(1))) == [(0, 3)]
    assert again.read(1, 2) == body_of(1, 2)
    again.storage.set_limbo(1, False)
    again.commit()
    assert [again.read(1, entry) for entry in (-1, 2, 3)] == [body_of(1, 2), body_of(1, 2), Status.ENOENTRY]


def test_replay_finds_the_key_of_a_ledger_that_had_none() -> None:
    """Limbo may know no key; the first one given counts, also after a crash."""
    bookie = Bookie()
    bookie.now(Deferred.fromCoroutine(bookie.storage.mark_limbo({3: LedgerRow(b"", limbo=True)})))
    assert bookie.storage.fence(3, KEY, "f") is Status.EOK
    bookie.commit()
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.fence(3, OTHER_KEY, "g") is Status.EUA
    assert again.storage.fence(3, KEY, "h") is Status.EOK


def test_limbo_that_ended_is_back_after_a_crash_that_lost_the_copies() -> None:
    """What was copied before lay in memory only: the end of limbo that the journal tells of counts no more."""
    bookie = Bookie(journal_write_data=False)
    Deferred.fromCoroutine(bookie.storage.mark_limbo({1: LedgerRow(KEY)}))
    bookie.commit()
    assert bookie.storage.add(run_of(1, 0, 3, recovery=True), "copy") is Status.EOK
    assert bookie.storage.set_limbo(1, False, "settled") is Status.EOK
    bookie.commit()
    assert bookie.tokens == ["copy", "settled"]
    again = Bookie(bookie.disk.killed(), journal_write_data=False)
    assert again.read(1, 0) is Status.EUNKNOWNLEDGERSTATE
    assert again.storage.add(run_of(1, 0, 3, recovery=True), "copy") is Status.EOK
    again.storage.set_limbo(1, False, "settled")
    again.storage.flush()
    again.commit()
    third = Bookie(again.disk.killed(), journal_write_data=False)
    assert third.read(1, 2) == body_of(1, 2)
    assert third.read(1, 3) is Status.ENOENTRY


def test_delete_takes_everything() -> None:
    """
    Rows, cached and indexed entries go, durably; a new ledger with the same id starts empty and keeps its own entries.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 300), "a")
    bookie.storage.add(run_of(2, 0, 3), "b")
    bookie.commit()
    bookie.storage.flush()
    bookie.storage.add(run_of(1, 300, 3), "c")
    woken: list[int] = []
    state = bookie.storage.ledger(1)
    assert state is not None
    state.watch(lambda: woken.append(1))
    bookie.storage.delete_ledger(1, remembered=False)
    bookie.storage.delete_ledger(404)
    assert woken == [1]
    assert bookie.read(1, 0) is Status.ENOLEDGER
    assert list(bookie.storage.ledger_ids()) == [2]
    bookie.commit()
    gone = Bookie(bookie.disk.crashed(None))
    assert gone.read(1, 0) is Status.ENOLEDGER
    assert bookie.storage.add(run_of(1, 10, 2, key=OTHER_KEY), "d") is Status.EOK
    assert [bookie.read(1, entry) for entry in (0, 9, 10, 11, 12)] == [
        Status.ENOENTRY,
        Status.ENOENTRY,
        body_of(1, 10),
        body_of(1, 11),
        Status.ENOENTRY,
    ]
    bookie.commit()
    for disk in (bookie.disk.crashed(None), None):
        if disk is None:
            bookie.storage.flush()
            disk = bookie.disk.crashed(None)
        again = Bookie(disk)
        again.storage.flush()
        assert [again.read(1, entry) for entry in (0, 299, 10, 301)] == [
            Status.ENOENTRY,
            Status.ENOENTRY,
            body_of(1, 10),
            Status.ENOENTRY,
        ]
        assert again.read(2, 2) == body_of(2, 2)


def test_watchers_hear_of_lac_fence_and_explicit_lac() -> None:
    """They are called on each rise, on an explicit LAC, on a fence; not when the LAC stays."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 5), "a")
    state = bookie.storage.ledger(1)
    assert state is not None
    heard: list[int] = []

    def watcher() -> None:
        heard.append(state.lac)

    state.watch(watcher)
    bookie.storage.add(run_of(1, 3), "b")
    assert heard == []
    bookie.storage.add(run_of(1, 6), "c")
    bookie.storage.write_lac(1, KEY, DIGEST.lac_body(1, 8), "d")
    bookie.storage.fence(1, KEY, "e")
    assert heard == [5, 8, 8]
    state.unwatch(watcher)
    state.unwatch(watcher)
    bookie.storage.add(run_of(1, 20, recovery=True), "f")
    assert len(heard) == 3
