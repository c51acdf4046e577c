"""The checkpoint: its order, and that a crash at any call of it costs nothing."""

import errno
import os
import random

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory import notes
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal.format import START
from quire.bookie.journal.mark import read_mark
from quire.bookie.storage import ledgers as ledgers_module
from quire.bookie.storage.checkpoint import SPARE_BYTES
from quire.protocol.errors import Status
from quire.rows.files import StorageError, Usage
from tests.bookie.fakes.disk import KEY, Bookie, Disk, HeldWorkers, body_of, left_behind, run_of

MARK = "/disk/ledgers0/current/quire.mark"


def test_the_order_of_a_checkpoint() -> None:
    """Entry log synced, then index, then table, then the mark in place, then journal files go; nothing earlier."""
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for entry in range(6):
        bookie.storage.add(run_of(1, entry, size=400_000), entry)
        bookie.commit()
    bookie.disk.calls.clear()
    bookie.storage.flush()
    calls = [(call, path.rsplit("/", 1)[1]) for call, path in bookie.disk.calls]
    order = [
        calls.index(("sync", "0.log")),
        calls.index(("sync rows", "runs")),
        calls.index(("sync rows", "ledgers")),
        calls.index(("sync", "quire.mark.tmp")),
        calls.index(("rename", "quire.mark")),
    ]
    assert order == sorted(order)
    journal = [
        number for number, (call, name) in enumerate(calls) if name.endswith(".qj") and call in ("rename", "unlink")
    ]
    assert journal
    assert min(journal) > order[-1]
    last_log_write = max(number for number, (call, name) in enumerate(calls) if (call, name) == ("write", "0.log"))
    assert last_log_write < order[0]


def test_nothing_changed_nothing_done() -> None:
    """An idle bookie's timer makes no call; after a seal the mark may move once."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.clock.advance(0.02)
    bookie.clock.advance(10)
    bookie.clock.advance(10)
    bookie.disk.calls.clear()
    for _ in range(20):
        bookie.clock.advance(10)
    assert bookie.disk.calls == []
    assert bookie.storage.counters.checkpoints == 1


def test_what_comes_during_a_checkpoint_is_not_covered_by_it() -> None:
    """Entries, fences and deletes that come while the pool writes are replayed after a crash."""
    pool = HeldWorkers()
    bookie = Bookie(workers=pool)
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.storage.add(run_of(2, 0, 3), "a")
    bookie.commit()
    bookie.storage.flush()
    bookie.storage.add(run_of(1, 3, 3), "b")
    bookie.storage.fence(1, KEY, "f")
    bookie.storage.delete_ledger(2)
    bookie.commit()
    pool.release()
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_entries == 3
    assert [again.read(1, entry) for entry in range(6)] == [body_of(1, entry) for entry in range(6)]
    assert again.storage.add(run_of(1, 6), "x") is Status.EFENCED
    assert again.read(2, 0) is Status.ENOLEDGER
    assert bookie.read(2, 0) is Status.ENOLEDGER


def test_flush_calls_join() -> None:
    """A flush asked for while one runs is a second one, which covers what came in between; both Deferreds fire."""
    pool = HeldWorkers()
    bookie = Bookie(workers=pool)
    done: list[str] = []
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.storage.flush().addCallback(lambda _: done.append("first"))
    bookie.storage.add(run_of(1, 1), "b")
    bookie.commit()
    for name in ("second", "third"):
        bookie.storage.flush().addCallback(lambda _, name=name: done.append(name))
    assert pool.held == 1
    pool.release()
    assert done == ["first"]
    pool.release()
    assert done == ["first", "second", "third"]
    assert Bookie(bookie.disk.crashed(None)).storage.counters.replayed_groups == 0
    assert bookie.storage.counters.flushed_entries == 2


def without_room(bookie: Bookie) -> None:
    """From now on an entry log can't be written: the disk is full, and no check has seen it before."""

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device")

    bookie.disk.before = before


def test_a_failed_half_is_flushed_before_the_next() -> None:
    """After a full disk the same half is written again first; the mark never passes what is not stored."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    without_room(bookie)
    failures: list[object] = []
    bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 1
    assert read_mark(bookie.disk, os.path.dirname(MARK)) == [START]
    bookie.disk.before = lambda call, path: None
    assert bookie.storage.add(run_of(1, 5), "b") is Status.EREADONLY
    bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 1
    assert bookie.storage.add(run_of(1, 5), "b") is Status.EOK
    assert [bookie.read(1, entry) for entry in range(6)] == [body_of(1, entry) for entry in range(6)]
    again = Bookie(bookie.disk.crashed(None))
    assert [again.read(1, entry) for entry in range(5)] == [body_of(1, entry) for entry in range(5)]


def test_what_is_stored_again_counts_once() -> None:
    """Its mark found no room, so that the half is looked at again."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "rename" and path == MARK:
            raise OSError(errno.ENOSPC, "No space left on device")

    bookie.disk.before = before
    failures: list[object] = []
    for _ in range(2):
        bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 2
    bookie.disk.before = lambda call, path: None
    bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 2
    assert bookie.storage.counters.flushed_entries == 5


def test_a_failed_sync_is_never_tried_again() -> None:
    """Not by the timer, not by a flush asked for, not at the stop; the journal keeps everything."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "sync rows":
            raise OSError(errno.EIO, "injected")

    bookie.disk.before = before
    failures: list[object] = []
    bookie.storage.flush().addErrback(failures.append)
    bookie.disk.before = lambda call, path: None
    bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 2
    bookie.clock.advance(100)
    bookie.close()
    assert read_mark(bookie.disk, os.path.dirname(MARK)) == [START]
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_entries == 5
    assert [again.read(1, entry) for entry in range(5)] == [body_of(1, entry) for entry in range(5)]


def test_a_checkpoint_that_meets_a_bug_says_so_and_parks_no_add_for_ever() -> None:
    """The bookie turns read-only with the error as reason; acknowledged entries survive a crash."""
    bookie = Bookie(write_cache_bytes_max=2 << 20)

    def before(call: str, path: str) -> None:
        if call == "sync rows":
            raise RuntimeError("injected")

    bookie.disk.before = before
    for number in range(3):
        status = bookie.storage.add(run_of(1, number, size=600_000), number)
        bookie.commit()
    assert status is Status.EREADONLY
    assert "injected" in str(bookie.storage.read_only)
    assert bookie.tokens == [0, 1], "what the journal has is acknowledged and kept"
    bookie.disk.before = lambda call, path: None
    assert [Bookie(bookie.disk.crashed(None)).read(1, entry) for entry in range(2)] == [
        body_of(1, entry, size=600_000) for entry in range(2)
    ]


def test_a_directory_without_mark_begins_at_the_start() -> None:
    """
    One of two directories is restored: everything that the journal still has is replayed for that directory alone.
    Without a word of a restore a missing mark stops the start, and so does a damaged one.
    """
    bookie = Bookie(ledgers=2)
    for ledger in range(4):
        bookie.storage.add(run_of(ledger, 0, 2), ledger)
    bookie.commit()
    bookie.storage.flush()
    disk = bookie.disk.crashed(None)
    del disk.inodes["/disk/ledgers1/current/quire.mark"]
    with pytest.raises(StorageError, match=r"/disk/ledgers1/current/quire\.mark is missing"):
        Bookie(disk.killed(), ledgers=2)
    notes.note_restoring(disk, "/disk/ledgers1")
    again = Bookie(disk, ledgers=2)
    assert again.storage.counters.replayed_entries == 4
    assert all(again.read(ledger, entry) == body_of(ledger, entry) for ledger in range(4) for entry in range(2))
    broken = bookie.disk.crashed(None)
    broken.flip(MARK, 20)
    with pytest.raises(StorageError, match=r"quire\.mark"):
        Bookie(broken, ledgers=2)


def failing(bookie: Bookie, number: int, call: str = "sync") -> None:
    """From now on every such call in a ledger directory fails as a dead disk does."""

    def before(found: str, path: str) -> None:
        if f"/ledgers{number}/" in path and call in found:
            raise OSError(errno.EIO, "injected", path)

    bookie.disk.before = before


@pytest.mark.parametrize("call", ["sync", "write", "rename"])
def test_a_directory_that_fails_is_given_up_alone(call: str) -> None:
    """
    Its ledgers take nothing more and are unknown, never "not here"; the others are written, read and checkpointed as
    ever.
    """
    bookie = Bookie(ledgers=3)
    for ledger in range(6):
        assert bookie.storage.add(run_of(ledger, 0, 5), ledger) is Status.EOK
    bookie.commit()
    bookie.storage.fence(5, KEY, "f")
    bookie.commit()
    failing(bookie, 1, call)
    assert bookie.now(bookie.storage.flush()) is None
    assert bookie.storage.read_only is None
    assert bookie.storage.counters.directories_lost == 1
    for ledger in (1, 4):
        assert bookie.storage.add(run_of(ledger, 5), "no") is Status.EREADONLY
        assert bookie.storage.add(run_of(ledger, 5, recovery=True), "no") is Status.EREADONLY
        assert bookie.storage.fence(ledger, KEY, "no") is Status.EUNKNOWNLEDGERSTATE
        assert bookie.storage.write_lac(ledger, KEY, bytes(20), "no") is Status.EREADONLY
        assert bookie.read(ledger, 9) is Status.EUNKNOWNLEDGERSTATE
        assert bookie.read(ledger, -1) is Status.EUNKNOWNLEDGERSTATE
        assert bookie.storage.entries(ledger) is Status.EUNKNOWNLEDGERSTATE
        assert bookie.storage.set_limbo(ledger, False) is Status.EUNKNOWNLEDGERSTATE
    assert bookie.read(7, 0) is Status.EUNKNOWNLEDGERSTATE, "who knows whether it was here"
    for ledger in (0, 2, 3):
        assert bookie.storage.add(run_of(ledger, 5), ledger) is Status.EOK
        assert bookie.read(ledger, 4) == body_of(ledger, 4)
        assert bookie.read(ledger, 6) is Status.ENOENTRY
    bookie.commit()
    bookie.now(bookie.storage.flush())
    assert set(bookie.storage.ledger_ids()) >= {0, 2, 3, 5}
    assert bookie.storage.limbo_ledgers() == [], "nothing can be copied there"
    assert bookie.storage.force(1, "no") is Status.EUNKNOWNLEDGERSTATE
    bookie.commit()
    assert "no" not in bookie.tokens


def test_what_is_remembered_of_a_directory_says_no_more_once_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of ledgers that are not in memory; a checkpoint evicts them."""
    monkeypatch.setattr(ledgers_module, "STATES_MAX", 2)
    bookie = Bookie(ledgers=2)
    for ledger in range(8):
        bookie.storage.add(run_of(ledger, 0), ledger)
    bookie.commit()
    before = bookie.storage.ledger(1)
    bookie.now(bookie.storage.flush())
    bookie.now(bookie.storage.flush())  # now the cache holds nothing of them
    assert bookie.read(1, 3) is Status.ENOENTRY
    assert bookie.storage.ledger(1) is not before, "it was evicted, and is remembered"
    bookie.storage.add(run_of(0, 1), "a")
    bookie.commit()
    for _ in range(2):
        bookie.now(bookie.storage.flush())
    assert bookie.storage.fail_directory("/disk/ledgers1", "injected")
    assert [bookie.read(ledger, 3) for ledger in (1, 3, 5, 7)] == [Status.EUNKNOWNLEDGERSTATE] * 4


def test_a_failed_directory_is_remembered_and_is_stale_at_the_next_start() -> None:
    """
    The note is durable before the journal frees anything; the next start replays from the others' marks and doesn't
    miss a segment.
    """
    bookie = Bookie(ledgers=2, journal_segment_bytes=1 << 20)
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    failing(bookie, 1)
    for entry in range(0, 60):
        bookie.storage.add(run_of(2, entry, size=200_000), entry)
        bookie.commit()
        if entry % 4 == 0:
            bookie.now(bookie.storage.flush())
    assert bookie.storage.read_only is None
    assert notes.noted_failed(bookie.disk.crashed(None), bookie.options.ledger_directories) == ["/disk/ledgers1"]
    again = Bookie(bookie.disk.crashed(None), ledgers=2)
    assert again.read(2, 59) == body_of(2, 59, 200_000)
    again.now(Deferred.fromCoroutine(again.storage.mark_limbo({1: LedgerRow(KEY, limbo=True)})))
    again.storage.caught_up()
    assert again.read(1, 7) is Status.EUNKNOWNLEDGERSTATE
    assert again.read(1, 4) == body_of(1, 4)
    last = Bookie(again.disk.crashed(None), ledgers=2)
    assert last.read(1, 7) is Status.EUNKNOWNLEDGERSTATE
    assert last.storage.add(run_of(3, 0), "b") is Status.EOK


def test_a_directory_that_is_back_gets_a_mark_before_its_note_goes() -> None:
    """
    Also where the metadata had nothing to mark and the journal nothing new: its old mark names a segment that was freed
    long ago.
    """
    bookie = left_behind()
    again = Bookie(bookie.disk.killed(), ledgers=2)
    assert again.storage.stale == ["/disk/ledgers1"]
    again.now(Deferred.fromCoroutine(again.storage.mark_limbo({})))
    again.storage.caught_up()
    last = Bookie(again.disk.killed(), ledgers=2)
    assert last.storage.stale == []
    assert last.read(0, 59) == body_of(0, 59, 100_000)
    again.storage.fail_directory("/disk/ledgers1", "once more")
    again.storage.add(run_of(0, 60), "b")
    again.commit()
    again.now(again.storage.flush())
    assert notes.named_failed(again.disk.killed(), "/disk/ledgers0") == {"/disk/ledgers1"}, "it is reported again"


def test_the_last_directory_is_not_given_up() -> None:
    """Then the bookie is read-only and its journal keeps everything."""
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(0, 0, 5), "a")
    bookie.storage.add(run_of(1, 0, 5), "b")
    bookie.commit()

    def before(found: str, path: str) -> None:
        if "/ledgers" in path and "sync" in found:
            raise OSError(errno.EIO, "injected", path)

    bookie.disk.before = before
    failures: list[object] = []
    bookie.storage.flush().addErrback(failures.append)
    assert len(failures) == 1
    assert bookie.storage.read_only is not None
    again = Bookie(bookie.disk.crashed(None), ledgers=2)
    assert [again.read(ledger, 4) for ledger in (0, 1)] == [body_of(0, 4), body_of(1, 4)]


def test_a_disk_that_was_found_dead_is_given_up_at_once() -> None:
    """Its ledgers turn read-only, disk usage leaves it out, its failure is noted; the last one stays in use."""
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    assert bookie.storage.fail_directory("/disk/ledgers1", "Input/output error") is True
    assert bookie.storage.fail_directory("/disk/ledgers1", "again") is True
    assert bookie.storage.fail_directory("/disk/ledgers0", "Input/output error") is False
    assert bookie.storage.fail_directory("/elsewhere", "who?") is False
    assert bookie.storage.add(run_of(1, 5), "b") is Status.EREADONLY
    bookie.disk.usage = lambda path: Usage(int(path[-1]), 1 << 40, 1 << 39)  # type: ignore[method-assign]
    assert bookie.storage.disk_usage()[0] == 1 << 40, "of the living one"
    assert notes.noted_failed(bookie.disk.crashed(None), bookie.options.ledger_directories) == ["/disk/ledgers1"]


def test_a_flush_that_has_no_room_is_not_begun() -> None:
    """Nothing is written, not even half a log; adds are refused meanwhile, and taken again when there is room."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    full = Usage(1, 1 << 30, 1 << 20)
    bookie.disk.usage = lambda path: full  # type: ignore[method-assign]  # a full disk
    before = len(bookie.disk.calls)
    for _ in range(3):
        bookie.clock.advance(10)
        assert bookie.storage.read_only is not None
    assert not [call for call in bookie.disk.calls[before:] if call[0] == "write" and "ledgers" in call[1]]
    assert bookie.storage.add(run_of(1, 5), "b") is Status.EREADONLY
    assert bookie.read(1, 4) == body_of(1, 4)
    del bookie.disk.usage
    bookie.clock.advance(10)
    assert bookie.storage.read_only is None
    assert bookie.storage.add(run_of(1, 5), "b") is Status.EOK


def test_what_a_deleted_ledger_had_in_memory_needs_no_room() -> None:
    """A flush that lacked room wants only what its other ledgers take."""
    bookie = Bookie(write_cache_bytes_max=4 << 20)
    bookie.storage.add(run_of(1, 0, 10, size=100_000), "a")
    bookie.storage.add(run_of(2, 0), "b")
    bookie.commit()
    bookie.disk.free = SPARE_BYTES + 500_000
    bookie.clock.advance(10)
    assert bookie.storage.read_only is not None
    bookie.storage.delete_ledger(1)
    bookie.commit()
    bookie.clock.advance(10)
    assert bookie.storage.read_only is None
    again = Bookie(bookie.disk.crashed(None))
    assert (again.read(1, 0), again.read(2, 0)) == (Status.ENOLEDGER, body_of(2, 0))


def test_rows_of_deleted_ledgers_go_though_a_flush_finds_no_room() -> None:
    """
    Then their log can go, which may be the room; what waits for it is in memory and journal, and is lost in no crash.
    """
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(2, 0, 5), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.add(run_of(3, 0, 5), "b")
    bookie.storage.add(run_of(4, 0, 5), "c")
    bookie.commit()
    bookie.disk.free = 2 << 20
    bookie.clock.advance(10)
    bookie.storage.delete_ledger(2)
    bookie.commit()
    bookie.clock.advance(10)
    assert "wanted" in (bookie.storage.read_only or "")
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    assert bookie.disk.find(".log") == []
    assert bookie.storage.counters.gc_logs_removed == 1
    for room in (2 << 20, 1 << 30):
        bookie.disk.free = room
        bookie.clock.advance(10)
        for after in (bookie, Bookie(bookie.disk.crashed(None), ledgers=2), Bookie(bookie.disk.killed(), ledgers=2)):
            assert [after.read(ledger, 4) for ledger in (3, 4)] == [body_of(3, 4), body_of(4, 4)]
            assert after.read(2, 0) is Status.ENOLEDGER
    assert bookie.storage.read_only is None


@pytest.mark.parametrize("seed", range(10, 30))
def test_full_disks_beside_deletions_lose_nothing(seed: int) -> None:
    """
    Adds, deletions, copies that are dropped and made again, passes over the logs and power losses in any order, on two
    disks that get full and have room again: what was acknowledged is read, and nothing else.
    """
    rng = random.Random(seed)
    kept: dict[int, set[int]] = {}
    free = {"ledgers0": 1 << 30, "ledgers1": 1 << 30}
    seen = 0

    def usage(path: str) -> Usage:
        return Usage(1, 1 << 40, next((room for name, room in free.items() if name in path), 1 << 30))

    def begun(disk: Disk | None) -> Bookie:
        disk = disk if disk is not None else Disk()
        disk.usage = usage  # type: ignore[method-assign]
        return Bookie(disk, ledgers=2, entry_log_bytes_max=4096, compaction_bytes_per_second=0)

    def check(bookie: Bookie) -> None:
        for ledger, entries in kept.items():
            for entry in range(24):
                wanted = body_of(ledger, entry) if entry in entries else Status.ENOENTRY
                assert bookie.read(ledger, entry) == wanted, (ledger, entry)
        assert set(bookie.storage.ledger_ids()) == set(kept)

    bookie = begun(None)
    for _ in range(150):
        step = rng.choice(("add", "add", "add", "delete", "drop", "room", "time", "time", "collect", "crash"))
        ledger = rng.choice(sorted(kept)[-3:] or [0])
        if step == "add":
            ledger, entry = rng.choice((seen, ledger, ledger, ledger)), rng.randrange(20)
            if bookie.storage.add(run_of(ledger, entry, 4, recovery=True), "a") is Status.EOK:
                seen = max(seen, ledger + 1)
                kept.setdefault(ledger, set()).update(range(entry, entry + 4))
        elif step == "delete":
            bookie.storage.delete_ledger(ledger)
            kept.pop(ledger, None)
        elif step == "drop" and ledger in kept:
            bookie.storage.drop_copy(ledger)
            again = bookie.storage.add(run_of(ledger, 0, 2, recovery=True), "a") is Status.EOK
            kept[ledger] = {0, 1} if again else set()
        elif step == "room":
            free[rng.choice(list(free))] = rng.choice((0, 4 << 20, SPARE_BYTES + 3000, 1 << 30, 1 << 30))
        elif step == "time":
            bookie.clock.advance(10)
        elif step == "collect":
            bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.9, forced=True))
        elif step == "crash":
            bookie.commit()
            bookie = begun(bookie.disk.crashed(rng))
        bookie.commit()
        check(bookie)
    free.update(dict.fromkeys(free, 1 << 30))
    bookie.clock.advance(10)
    check(bookie)
    check(begun(bookie.disk.crashed(rng)))


def test_what_no_checkpoint_could_store_is_listed_for_garbage_collection() -> None:
    """Or a ledger that fills memory and has never been in a table could not be deleted."""
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(5, 0), "a")
    bookie.storage.add(run_of(6, 0), "b")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.disk.free = 0
    for ledger in (3, 5, 8):
        bookie.storage.add(run_of(ledger, 1), "c")
    bookie.commit()
    bookie.clock.advance(10)
    assert list(bookie.now(bookie.storage.stored_ledgers())) == [3, 5, 6, 8]
    bookie.storage.delete_ledger(8)
    bookie.clock.advance(10)
    assert list(bookie.now(bookie.storage.stored_ledgers())) == [3, 5, 6]


def test_rows_of_deleted_ledgers_are_left_where_they_would_use_up_a_disk() -> None:
    """A write that RocksDB has no room for would end all others."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.disk.free = 1 << 20
    bookie.storage.delete_ledger(1)
    bookie.commit()
    before = len(bookie.disk.calls)
    bookie.clock.advance(10)
    assert "1048576 bytes are free" in (bookie.storage.read_only or "")
    assert [call for call in bookie.disk.calls[before:] if "ledgers0" in call[1]] == []


def test_what_was_written_after_a_deletion_stays_when_a_checkpoint_is_tried_again() -> None:
    """One directory has its share, the other has no room: nothing is deleted once more from the first."""
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(2, 0, 5), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.drop_copy(2)
    bookie.storage.add(run_of(2, 0, 3, recovery=True), "b")
    bookie.storage.add(run_of(3, 0), "c")
    bookie.commit()
    usage = bookie.disk.usage
    bookie.disk.usage = lambda path: Usage(1, 1 << 40, 0) if "ledgers1" in path else usage(path)  # type: ignore[method-assign]
    bookie.clock.advance(10)
    assert bookie.storage.read_only is not None
    del bookie.disk.usage
    bookie.clock.advance(10)
    assert bookie.storage.read_only is None
    again = Bookie(bookie.disk.crashed(None), ledgers=2)
    assert again.storage.counters.replayed_entries == 0
    assert [again.read(2, entry) for entry in range(4)] == [*(body_of(2, entry) for entry in range(3)), Status.ENOENTRY]


def test_a_start_on_a_full_disk_keeps_in_memory_what_lay_there() -> None:
    """
    What filled the cache when the process was killed: the bookie starts read-only, writes nothing, and flushes when
    there is room.
    """
    bookie = Bookie(ledgers=2, write_cache_bytes_max=4 << 20)
    full = Usage(1, 1 << 40, 1 << 20)
    bookie.disk.usage = lambda path: full  # type: ignore[method-assign]  # a full disk
    entry = 0
    while bookie.storage.add(run_of(1, entry, size=50_000), entry) is Status.EOK:
        bookie.commit()
        entry += 1
    assert bookie.tokens == list(range(entry))
    assert entry * 50_000 > 3 << 19
    for _ in range(2):
        disk = bookie.disk.crashed(None)
        disk.usage = lambda path: full  # type: ignore[method-assign]
        bookie = Bookie(disk, ledgers=2)
        bookie.clock.advance(0)
        assert not [path for call, path in disk.calls if call == "write" and path.endswith(".log")], (
            "nothing is written to a full disk"
        )
        assert "is full" in (bookie.storage.read_only or "")
        assert bookie.storage.add(run_of(4, 0), "no") is Status.EREADONLY
        assert all(bookie.read(1, each) == body_of(1, each, 50_000) for each in range(entry))
        assert bookie.read(1, entry) is Status.ENOENTRY
        assert bookie.storage.fence(2, KEY, "f") is Status.EOK
        bookie.commit()
        assert bookie.tokens == ["f"]
    del bookie.disk.usage
    bookie.clock.advance(10)
    assert bookie.storage.read_only is None
    assert bookie.storage.add(run_of(1, entry), "yes") is Status.EOK
    again = Bookie(bookie.disk.crashed(None), ledgers=2)
    assert all(again.read(1, each) == body_of(1, each, 50_000) for each in range(entry))


def test_a_write_without_room_names_the_directory() -> None:
    """Where the disk was not seen to be full before."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    without_room(bookie)
    bookie.clock.advance(10)
    assert "No space left on device: '/disk/ledgers0/current'" in (bookie.storage.read_only or "")


def test_a_start_on_a_full_disk_has_a_bound() -> None:
    """More than twice the cache is not held in memory: the start fails and says what is wanted."""
    bookie = Bookie(write_cache_bytes_max=16 << 20)
    for entry in range(100):
        assert bookie.storage.add(run_of(1, entry, size=50_000), entry) is Status.EOK
        bookie.commit()
    disk = bookie.disk.crashed(None)
    disk.usage = lambda path: Usage(1, 1 << 40, 1 << 20)  # type: ignore[method-assign]
    with pytest.raises(OSError, match="1048576 bytes are free"):
        Bookie(disk)


@pytest.mark.parametrize("long", [False, True])
def test_a_full_disk_at_any_write_costs_nothing(long: bool) -> None:
    """
    ENOSPC at each write, rename, row and sync of rows (not begun) of a checkpoint of two directories, once or for some
    rounds: read-only meanwhile, then all is stored, once and right, and no directory fails.
    """
    at = 0
    while True:
        bookie = Bookie(ledgers=2)
        for ledger in range(4):
            assert bookie.storage.add(run_of(ledger, 0, 5), ledger) is Status.EOK
        bookie.commit()
        bookie.now(bookie.storage.flush())
        for ledger in range(6):
            assert bookie.storage.add(run_of(ledger, 3, 5), ledger) is Status.EOK  # some again, some new
        bookie.storage.fence(5, KEY, "f")
        bookie.storage.delete_ledger(3)
        bookie.commit()
        seen = [0]
        met = [False]

        def before(call: str, path: str, seen: list[int] = seen, met: list[bool] = met, at: int = at) -> None:
            if "/ledgers" in path and call not in ("sync", "sync directory", "unlink"):
                seen[0] += 1
                if seen[0] == at + 1 or (long and met[0]):
                    met[0] = True
                    raise OSError(errno.ENOSPC, "No space left on device", path)

        bookie.disk.before = before
        failures: list[object] = []
        for _ in range(3):
            bookie.storage.flush().addErrback(failures.append)
        if not met[0]:
            break
        assert failures, at
        assert (bookie.storage.read_only is not None) == long
        if long:
            assert bookie.storage.add(run_of(0, 8), "no") is Status.EREADONLY
        bookie.disk.before = lambda call, path: None
        bookie.now(bookie.storage.flush())
        assert bookie.storage.read_only is None
        assert bookie.storage.counters.directories_lost == 0
        for storage in (bookie, Bookie(bookie.disk.crashed(None), ledgers=2)):
            for ledger in (0, 1, 2):
                assert [storage.read(ledger, entry) for entry in range(9)] == [
                    *(body_of(ledger, entry) for entry in range(8)),
                    Status.ENOENTRY,
                ], (at, ledger)
            assert [storage.read(4, entry) for entry in (3, 7)] == [body_of(4, 3), body_of(4, 7)]
            assert storage.read(3, 3) is Status.ENOLEDGER
            assert storage.storage.add(run_of(5, 8), "no") is Status.EFENCED
        at += 1
    assert at >= 8, "there were writes to fail"


def test_what_was_not_begun_is_tried_again_soon() -> None:
    """
    No descriptor is left for a while: the bookie stays writable, then read-only until the next checkpoint; no directory
    fails.
    """
    bookie = Bookie(ledgers=2)
    for ledger in range(4):
        bookie.storage.add(run_of(ledger, 0, 3), ledger)
    bookie.commit()

    def each(call: str, path: str) -> None:
        if call == "open":
            raise OSError(errno.EMFILE, "Too many open files", path)

    bookie.disk.each = each
    outcomes: list[object] = []
    bookie.storage.flush().addBoth(outcomes.append)
    bookie.clock.pump([0.2] * 5)
    assert (outcomes, bookie.storage.read_only, bookie.storage.failed_directories) == ([], None, [])
    bookie.clock.pump([0.2] * 10)
    assert len(outcomes) == 1
    assert "Too many open files" in str(bookie.storage.read_only)
    assert bookie.storage.failed_directories == []
    bookie.disk.each = lambda call, path: None
    bookie.clock.advance(bookie.options.flush_interval_ms / 1000)
    assert bookie.storage.read_only is None
    assert bookie.storage.counters.checkpoints
    assert [bookie.read(ledger, 2) for ledger in range(4)] == [body_of(ledger, 2) for ledger in range(4)]
    assert bookie.storage.failed_directories == []
    bookie.close()


def test_a_read_that_can_not_begin_is_no_error_of_the_disk() -> None:
    """Others are asked, and this bookie later: neither "no such entry" nor an I/O error."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())

    def each(call: str, path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", path)

    bookie.disk.each = each
    assert bookie.read(1, 0) is Status.ETOOMANYREQUESTS
    assert bookie.now(bookie.storage.read_run(1, 0, 3, 1000)) is Status.ETOOMANYREQUESTS
    bookie.disk.each = lambda call, path: None
    assert bookie.read(1, 0) == body_of(1, 0)
    bookie.close()
