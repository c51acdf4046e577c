"""
Compaction and the removal of logs: what lives stays readable byte for byte, at every crash; what is doubtful is left
alone.
"""

import errno
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.python.failure import Failure

from quire.bookie.directory.ledger_directory import LedgerDirectory, SyncFailed
from quire.bookie.directory.records import EntryDamaged, read_records
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.run import Run
from quire.bookie.logs.format import read_map
from quire.bookie.storage.write_cache import WriteCache
from quire.bookie.upkeep.compaction import Compaction, log_uses, remove_logs, unneeded
from quire.protocol.errors import Status
from quire.rows.files import StorageError, Usage
from tests.bookie.fakes.disk import Bookie, Disk, body_of, run_of

# SPDX-License-Identifier: Apache-2.0

PATH = "/disk/ledgers0/current"
LOG_BYTES = 4096


class Power(BaseException):
    """The lights go out."""


def no_pause() -> None:
    """A pause for other work, which there is not."""


class Roomy(Disk):
    """A disk with room."""

    room = 1 << 40

    def usage(self, path: str) -> Usage:
        return Usage(1, 1 << 40, self.room)


def opened(disk: Disk) -> LedgerDirectory:
    return LedgerDirectory(disk, disk.open_rows, "/disk/ledgers0", "/disk/ledgers0", LOG_BYTES, no_pause)


def store(directory: LedgerDirectory, *runs: tuple[int, int, int]) -> None:
    """One checkpoint's worth of (ledger, first, count)."""
    cache = WriteCache(64 << 20)
    for ledger, first, count in runs:
        cache.put(ledger, first, [body_of(ledger, entry) for entry in range(first, first + count)], 1)
    half = cache.swap()
    directory.flush(half.runs_of(half.ledgers))
    directory.sync()


def compact(directory: LedgerDirectory, victims: list[int]) -> Compaction:
    made = Compaction(directory, victims, LOG_BYTES, no_pause)
    for _ in made.steps():
        pass
    return made


def check(directory: LedgerDirectory, ledger: int, count: int) -> None:
    assert [directory.read(ledger, entry) for entry in range(count)] == [
        body_of(ledger, entry) for entry in range(count)
    ]
    assert directory.read(ledger, count) is None


def dead_and_alive(disk: Disk) -> LedgerDirectory:
    """Logs 0 to 4 hold ledgers 1 and 2 by turns; then ledger 1 is deleted."""
    directory = opened(disk)
    for part in range(4):
        store(directory, (1, 30 * part, 30), (2, 10 * part, 10))
    directory.logs.rotate()
    directory.index.delete(1)
    directory.sync()
    return directory


def test_what_lives_is_moved_and_the_rest_goes() -> None:
    """
    After a compaction the old logs go, and what lives is read from new ones, which have ledgers maps; also after a
    restart.
    """
    disk = Disk()
    directory = dead_and_alive(disk)
    finished = directory.logs.finished()
    uses = {use.log: use for use in log_uses(directory, 0.8, no_pause)}
    victims = [log for log in finished if 0 < uses[log].ratio < 0.8]
    assert len(victims) >= 3
    before = disk.find(".log")
    done = compact(directory, victims)
    assert done.kept == {}
    assert done.emptied() == victims
    check(directory, 2, 40)
    assert remove_logs(directory, victims) > LOG_BYTES
    check(directory, 2, 40)
    assert len(disk.find(".log")) < len(before)
    for log in done.made:
        mapped = read_map(partial(directory.logs.read, log))
        assert mapped is not None
        assert set(mapped) == {2}
    again = opened(disk.crashed(None))
    check(again, 2, 40)
    assert {use.ratio for use in log_uses(again, 1.01, no_pause) if use.rows} == {1.0}


def test_rows_that_go_during_a_compaction_cost_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the maps name is less than was counted then; the index knows that nothing else is left."""
    directory = dead_and_alive(Disk())
    store(directory, (3, 0, 30), (4, 0, 5), (5, 0, 5))
    directory.logs.rotate()
    directory.index.delete(3)
    directory.sync()
    uses = [use for use in log_uses(directory, 0.8, no_pause) if 0 < use.ratio < 0.8]
    made = Compaction(directory, [use.log for use in uses], LOG_BYTES, no_pause, sum(use.live for use in uses))
    asked: list[object] = []
    living = directory.index.living
    monkeypatch.setattr(directory.index, "living", lambda *words: asked.append(words[1]) or living(*words))
    directory.index.delete(4)
    store(directory, (2, 0, 3))
    for _ in made.steps():
        pass
    assert len(asked) == 2
    assert None not in asked
    assert made.emptied() == [use.log for use in uses]
    remove_logs(directory, made.emptied())
    assert [directory.read(5, entry) for entry in range(5)] == [body_of(5, entry) for entry in range(5)]
    check(directory, 2, 40)


def test_totals_come_from_maps_where_it_matters() -> None:
    """A log of many small ledgers is not taken for half dead because its map is long."""
    directory = opened(Disk())
    store(directory, *((ledger, 0, 1) for ledger in range(20)))
    directory.logs.rotate()
    directory.sync()
    (use,) = log_uses(directory, 0.99, no_pause)
    assert use.ratio == 1.0
    assert use.rows == 20


def test_a_pass_that_compacts_nothing_walks_no_further_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Once the index was walked over, deletions are counted: the next pass reads no row for them, and finds the log that
    is no longer needed all the same.
    """
    directory = opened(Disk())
    for ledger in range(4):
        store(directory, (ledger, 0, 30))
    directory.logs.rotate()
    directory.sync()
    before = log_uses(directory, 0, no_pause)
    assert all(use.rows for use in before)
    walks: list[object] = []
    walk = directory.index.uses
    monkeypatch.setattr(directory.index, "uses", lambda *words: walks.append(words) or walk(*words))
    directory.index.delete(1)
    after = log_uses(directory, 0, no_pause)
    assert not walks
    assert [use.log for use in after if not use.rows] == [1]
    assert after == log_uses(directory, 0.1, no_pause)
    assert len(walks) == 1, "what is compacted is counted again"
    store(directory, (5, 0, 60))
    directory.logs.rotate()
    directory.sync()
    assert [use.log for use in log_uses(directory, 0, no_pause)] == directory.logs.finished()
    assert len(walks) == 2, "of a log that was finished since nothing is known"


def test_a_log_being_written_is_no_candidate() -> None:
    """Not before index rows name it durably, whatever the moment; an unfinished copy neither."""
    directory = opened(Disk())
    cache = WriteCache(64 << 20)
    for ledger in (1, 2, 3):
        cache.put(ledger, 0, [body_of(ledger, entry) for entry in range(40)], 1)
    directory.flush(cache.swap().runs_of([1, 2, 3]))  # several logs, the earlier ones rotated and synced
    assert len(directory.logs.ids()) > 1
    assert directory.logs.finished() == []
    directory.sync()
    assert directory.logs.finished() == directory.logs.ids()[:-1]
    log, handle = directory.logs.begin_whole()
    assert log not in directory.logs.finished()
    directory.logs.drop_whole(log, handle)
    assert log not in directory.logs.ids()
    with pytest.raises(StorageError, match="in use"):
        remove_logs(directory, [directory.logs.current])


def test_an_emptied_index_costs_no_log() -> None:
    """
    Logs with entries of ledgers that the table knows stay when the index lost its rows; those of unknown ledgers may
    go.
    """
    disk = Disk()
    directory = dead_and_alive(disk)
    directory.table.write({2: LedgerRow(b"k")})
    directory.index.delete(2)
    directory.sync()
    assert {use.rows for use in log_uses(directory, 0.8, no_pause)} == {0}
    doubts = [unneeded(directory, log, frozenset(), no_pause) for log in directory.logs.finished()]
    assert any(doubt is not None and "ledger 2" in doubt for doubt in doubts)
    directory.table.write({2: None})
    assert [unneeded(directory, log, frozenset(), no_pause) for log in directory.logs.finished()] == [None] * len(
        doubts
    )
    assert any(unneeded(directory, log, {2}, no_pause) for log in directory.logs.finished()), (
        "one that is only in memory counts as known"
    )


def test_what_was_dropped_is_not_missed() -> None:
    """Of a ledger that stays known for its fence; with a map and without one.  One that is to change its row counts."""
    for killed in (False, True):
        disk = Disk()
        directory = opened(disk)
        store(directory, (1, 0, 10), (2, 0, 10))
        if killed:
            directory = opened(disk.killed())  # the log has no map then
        directory.logs.rotate()
        directory.index.delete(1)
        directory.index.delete(2)
        directory.sync()
        directory.table.write({1: LedgerRow(b"k", fenced=True, dropped=True), 2: LedgerRow(b"k", dropped=True)})
        assert unneeded(directory, 0, frozenset(), no_pause) is None
        assert "ledger 2" in (unneeded(directory, 0, {2}, no_pause) or "")
        directory.table.write({1: LedgerRow(b"k", fenced=True)})
        assert "ledger 1" in (unneeded(directory, 0, frozenset(), no_pause) or "")


def test_what_came_back_after_it_was_dropped_is_missed() -> None:
    """A rebuilt index has it again, and the row says still that it was dropped; with a map and without one."""
    for killed in (False, True):
        disk = Disk()
        directory = opened(disk)
        store(directory, (1, 0, 10))
        if killed:
            directory = opened(disk.killed())
        directory.logs.rotate()
        directory.index.delete(1)
        store(directory, (1, 10, 5))
        directory.table.write({1: LedgerRow(b"k", dropped=True)})
        assert "entry 0 of ledger 1" in (unneeded(directory, 0, frozenset(), no_pause) or "")


def test_copies_that_are_elsewhere_are_not_missed() -> None:
    """A log all of whose entries were written again may go, with a map and without one."""
    disk = Disk()
    directory = opened(disk)
    directory.table.write({1: LedgerRow(b"k"), 2: LedgerRow(b"k")})
    store(directory, (1, 0, 10), (2, 0, 10))
    directory = opened(disk.killed())  # a new process never writes to the old log, which has no map
    store(directory, (1, 0, 10))
    assert unneeded(directory, 0, frozenset(), no_pause) == "entry 0 of ledger 2 is needed"
    store(directory, (2, 0, 10))
    assert unneeded(directory, 0, frozenset(), no_pause) is None
    assert remove_logs(directory, [0]) > 0
    check(directory, 1, 10)
    check(directory, 2, 10)


def test_damaged_entries_keep_their_log() -> None:
    """They are not moved under a new name; what is whole in the same log is, and nothing is lost."""
    disk = Disk()
    directory = dead_and_alive(disk)
    run = next(iter(directory.index.runs(2, 5)))
    disk.flip(f"{PATH}/{run.log:x}.log", run.offset + 30)
    with pytest.raises(EntryDamaged, match=rf"{run.log:x}\.log at offset {run.offset}"):
        read_records(directory.logs.read, directory.path, run)
    done = compact(directory, directory.logs.finished())
    assert list(done.kept) == [run.log]
    assert run.log not in done.emptied()
    remove_logs(directory, done.emptied())
    for entry in range(40):
        if run.first <= entry <= run.last:
            with suppress(EntryDamaged):
                assert directory.read(2, entry) == body_of(2, entry)
        else:
            assert directory.read(2, entry) == body_of(2, entry)


def test_a_missing_log_keeps_the_others_moving() -> None:
    """Compaction moves all other logs, and reads of the missing one raise `FileNotFoundError`."""
    disk = Disk()
    directory = dead_and_alive(disk)
    run = next(iter(directory.index.runs(2, 0)))
    disk.unlink(f"{PATH}/{run.log:x}.log")
    disk_errors = compact(directory, [log for log in directory.logs.finished() if log != run.log])
    assert disk_errors.kept == {}
    with pytest.raises(FileNotFoundError):
        directory.read(2, 0)


def test_a_write_that_comes_between_copy_and_move_wins() -> None:
    """
    A part of a run is written again, a ledger is deleted, while their old records are being copied: neither comes back.
    """
    directory = opened(Disk())
    store(directory, (1, 0, 20), (2, 0, 20), (3, 0, 20))
    directory.logs.rotate()
    directory.sync()
    made = Compaction(directory, directory.logs.finished(), LOG_BYTES, no_pause)
    steps = made.steps()
    next(steps)  # copied, not moved
    cache = WriteCache(64 << 20)
    again = [body_of(1, entry, 50) for entry in range(5, 8)]
    cache.put(1, 5, again, 1)
    half = cache.swap()
    directory.flush(half.runs_of([1]))
    directory.index.delete(2)
    directory.sync()
    for _ in steps:
        pass
    assert made.kept == {}
    remove_logs(directory, made.emptied())
    assert directory.read_run(1, 0, 20, 1 << 20) == [
        *(body_of(1, entry) for entry in range(5)),
        *again,
        *(body_of(1, entry) for entry in range(8, 20)),
    ]
    assert directory.read(2, 0) is None
    check(directory, 3, 20)


def test_a_reader_in_the_middle_is_not_cut_off() -> None:
    """Who found a row before its log went looks again."""
    directory = dead_and_alive(Disk())
    run = directory.index.find(2, 5)
    assert run is not None
    find = directory.index.find
    looks = 0

    def find_late(ledger: int, entry: int):  # type: ignore[no-untyped-def]
        nonlocal looks
        looks += 1
        if looks == 1:
            found = find(ledger, entry)
            remove_logs(directory, compact(directory, directory.logs.finished()).emptied())
            return found
        return find(ledger, entry)

    for read in (lambda: directory.read(2, 5), lambda: directory.read_run(2, 5, 1, 1 << 20)[0]):
        looks = 0
        directory.index.find = find_late  # type: ignore[method-assign]  # the race
        assert read() == body_of(2, 5)
        directory.index.find = find  # type: ignore[method-assign]  # as it was
        store(directory, (9, 0, 100))


def test_a_full_disk_leaves_nothing_behind() -> None:
    """The new log is thrown away at any write of it that fails, and the next compaction is as if it had not been."""
    disk = Disk()
    directory = dead_and_alive(disk)
    names = disk.find("")
    for fail_at in range(12):
        left = fail_at

        def before(call: str, path: str) -> None:
            nonlocal left
            if call == "write" and ".compacting" in path:
                left -= 1
                if left < 0:
                    raise OSError(28, "No space left on device")

        disk.before = before
        made = Compaction(directory, directory.logs.finished(), LOG_BYTES, no_pause)
        with suppress(OSError):
            for _ in made.steps():
                pass
        made.abandon()
        disk.before = lambda call, path: None
        assert not disk.find(".compacting")
        check(directory, 2, 40)
    assert set(names) <= set(disk.find(""))
    done = compact(directory, directory.logs.finished())
    remove_logs(directory, done.emptied())
    check(directory, 2, 40)


def test_a_failed_sync_is_reported_as_such() -> None:
    """It is final for the directory: nothing was moved, nothing goes."""
    disk = Disk()
    directory = dead_and_alive(disk)

    def before(call: str, path: str) -> None:
        if call == "sync" and ".compacting" in path:
            raise OSError(5, "Input/output error")

    disk.before = before
    with pytest.raises(SyncFailed, match="ledgers0"):
        compact(directory, directory.logs.finished())
    check(directory, 2, 40)


def test_no_room_at_the_sync_of_a_new_log_leaves_nothing_behind() -> None:
    """Some file systems say so late.  The log is gone with its handle, and the next pass has all that it needs."""
    disk = Disk()
    directory = dead_and_alive(disk)

    def before(call: str, path: str) -> None:
        if call == "sync" and ".compacting" in path:
            raise OSError(errno.ENOSPC, "no room")

    disk.before = before
    handles = set()
    for _ in range(3):
        with pytest.raises(OSError, match="no room"):
            compact(directory, directory.logs.finished())
        handles.add(disk.open_files)
    disk.before = lambda call, path: None
    assert disk.find(".compacting") == []
    assert len(handles) == 1
    compact(directory, directory.logs.finished())
    check(directory, 2, 40)


# Whole storages


def reclaimed(bookie: Bookie, threshold: float = 0.8) -> None:
    """One pass, on the clock of the bookie."""
    done: list[object] = []
    bookie.storage.flush().addErrback(done.append)
    bookie.commit()
    if not done:
        bookie.upkeep.space.reclaim(lambda path: threshold).addBoth(done.append)
    for _ in range(1000):
        if done:
            break
        bookie.clock.advance(0.1)
    if done != [None]:
        assert isinstance(done[0], Failure)
        raise done[0].value


def bookie_on(disk: Disk) -> Bookie:
    return Bookie(disk, entry_log_bytes_max=LOG_BYTES, compaction_bytes_per_second=1 << 30)


def story(bookie: Bookie) -> Iterator[None]:
    """Ledgers come, one goes, garbage is collected, more come; a step at a time."""
    storage = bookie.storage
    for part in range(3):
        for ledger in (1, 2):
            storage.add(run_of(ledger, 15 * part, 15), (ledger, 15 * part, 15))
        bookie.commit()
        storage.flush().addErrback(lambda failure: failure.trap(Power))
        yield
    storage.delete_ledger(1)
    storage.add(run_of(3, 0, 5), (3, 0, 5))
    bookie.commit()
    yield
    reclaimed(bookie)
    yield
    storage.add(run_of(2, 45, 5), (2, 45, 5))
    bookie.commit()
    reclaimed(bookie)
    yield


def test_a_crash_at_every_single_call_of_a_compaction() -> None:
    """
    The power goes before the n-th call, for every n of the story; nothing acknowledged is missing, and the next pass
    cleans up.
    """
    counting = bookie_on(Roomy())
    starts = []
    for _ in story(counting):
        starts.append(len(counting.disk.calls))
    assert counting.storage.counters.gc_compactions >= 1
    assert counting.storage.counters.gc_logs_removed >= 2
    logs = len(counting.disk.find(".log"))
    for crash_at in range(starts[2] - 3, starts[-1] + 1):
        bookie = bookie_on(Roomy())
        disk = bookie.disk

        def before(call: str, path: str, disk: Disk = disk, crash_at: int = crash_at) -> None:
            if len(disk.calls) > crash_at:
                raise Power

        disk.before = before
        with suppress(Power):
            for _ in story(bookie):
                pass
        held = [token for token in bookie.tokens if isinstance(token, tuple)]
        for after in (disk.crashed(None), disk.killed(), disk.crashed(random.Random(crash_at))):
            again = bookie_on(roomy(after))
            for ledger, first, count in held:
                if ledger != 1:
                    assert [again.read(ledger, entry) for entry in range(first, first + count)] == [
                        body_of(ledger, entry) for entry in range(first, first + count)
                    ]
            assert not again.disk.find(".compacting")
            again.storage.delete_ledger(1)
            reclaimed(again)
            for ledger, first, count in held:
                if ledger != 1:
                    assert again.read(ledger, first + count - 1) == body_of(ledger, first + count - 1), crash_at
            assert again.read(1, 0) is Status.ENOLEDGER
            assert len(again.disk.find(".log")) <= logs + 4


def roomy(disk: Disk) -> Disk:
    made = Roomy()
    made.inodes, made.durable, made.rows = disk.inodes, disk.durable, disk.rows
    return made


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "add", "again", "delete", "reclaim", "reclaim", "kill", "crash"]),
            st.integers(1, 4),
            st.integers(1, 30),
        ),
        max_size=25,
    )
)
def test_histories_against_a_model(steps: list[tuple[str, int, int]]) -> None:
    """
    Adds, adds again with other bytes, deletions, passes, kills and power losses in any order: what is read is what a
    dict holds.
    """
    bookie = bookie_on(Roomy())
    model: dict[int, dict[int, bytes]] = {}
    deleted: set[int] = set()
    reused = False
    for what, ledger, count in steps:
        entries = model.setdefault(ledger, {})
        first = max(entries, default=-1) + 1
        if what == "again":
            first = count % (first + 1)
            count = max(1, count // 4)
        if what in ("add", "again"):
            size = 20 if what == "add" else 33
            assert bookie.storage.add(run_of(ledger, first, count, size=size), "x") is Status.EOK
            bookie.commit()
            reused = reused or ledger in deleted
            entries.update({entry: body_of(ledger, entry, size) for entry in range(first, first + count)})
        elif what == "delete":
            bookie.storage.delete_ledger(ledger, remembered=False)
            bookie.commit()
            entries.clear()
            deleted.add(ledger)
        elif what == "reclaim":
            reclaimed(bookie, count / 30)
        else:
            bookie = bookie_on(
                roomy(bookie.disk.killed() if what == "kill" else bookie.disk.crashed(random.Random(count)))
            )
    reclaimed(bookie)
    for ledger, entries in model.items():
        for entry in range(max(entries, default=-1) + 2):
            found = bookie.read(ledger, entry)
            assert found == entries.get(entry, found if isinstance(found, Status) else None), (ledger, entry)
    # The old entries of a ledger that was made again can't be distinguished from entries that an index lost.
    assert reused or all(not space.left_alone and space.problem is None for space in bookie.upkeep.space.directories)


def test_of_a_ledger_that_is_gone_no_record_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without a map is walked; whether a ledger is gone is asked once, not for each of its entries."""
    disk = Disk()
    directory = opened(disk)
    directory.table.write({1: LedgerRow(b"k")})
    store(directory, (1, 0, 10), (2, 0, 10))
    directory = opened(disk.killed())
    store(directory, (1, 0, 10))
    directory.index.delete(2)
    asked: list[int] = []
    find = directory.index.find

    def counted(ledger: int, entry: int) -> Run | None:
        asked.append(ledger)
        return find(ledger, entry)

    monkeypatch.setattr(directory.index, "find", counted)
    assert unneeded(directory, 0, frozenset(), no_pause) is None
    assert set(asked) == {1}
    assert "ledger 2" in (unneeded(directory, 0, {2}, no_pause) or ""), "one that is only in memory is not gone"
