"""
Passes over the entry logs: what is taken, in which order and at what rate, what a failure leaves, how a stop ends them.
"""

import errno
import random
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.format import HEADER, MAGIC, MAP_HEAD, MAP_ROW, ledgers_map
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.compaction import MOVES_MAX, LogUse, unneeded
from quire.bookie.upkeep.rebuild import Upkeep
from quire.bookie.upkeep.space import groups
from quire.protocol.errors import Status
from quire.rows.files import Usage
from tests.bookie.fakes.apache_files import Here, unpack
from tests.bookie.fakes.disk import Bookie, Events, HeldWorkers, LimboOf, body_of, options_of, run_of
from tests.bookie.upkeep.test_compaction import LOG_BYTES, Roomy, reclaimed
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def half_dead(**changes: object) -> Bookie:
    """Ledger 2 lives in several logs that ledger 1, which is deleted, filled with it."""
    bookie = Bookie(Roomy(), **{"entry_log_bytes_max": LOG_BYTES, "compaction_bytes_per_second": 0, **changes})
    for part in range(6):
        for ledger in (1, 2):
            assert bookie.storage.add(run_of(ledger, 20 * part, 20), "x") is Status.EOK
        bookie.commit()
        bookie.now(bookie.storage.flush())
    bookie.storage.delete_ledger(1)
    bookie.commit()
    return bookie


def check(bookie: Bookie) -> None:
    assert [bookie.read(2, entry) for entry in range(120)] == [body_of(2, entry) for entry in range(120)]
    assert bookie.read(1, 0) is Status.ENOLEDGER


def test_the_emptiest_go_first_and_as_many_together_as_fit() -> None:
    """Logs with the fewest living bytes are grouped first, up to the size and the moves of a pass."""
    victims = [LogUse(1, 1000, 700, 3), LogUse(2, 1000, 100, 3), LogUse(3, 1000, 300, 3), LogUse(4, 1000, 600, 3)]
    assert [[use.log for use in group] for group in groups(victims, 1000)] == [[2, 3, 4], [1]]
    assert [
        [use.log for use in group] for group in groups([LogUse(1, 10, 5, MOVES_MAX), LogUse(2, 10, 6, 1)], 1000)
    ] == [[1], [2]]
    assert list(groups([], 1000)) == []


def test_a_pass_without_a_threshold_only_removes() -> None:
    """With threshold 0 no log is rewritten; with one, bytes are moved and logs removed."""
    bookie = half_dead()
    names = bookie.disk.find(".log")
    reclaimed(bookie, 0)
    assert bookie.storage.counters.gc_compactions == 0
    check(bookie)
    for entry_log in bookie.disk.find(".log"):
        assert entry_log in names
    reclaimed(bookie, 0.8)
    assert bookie.storage.counters.gc_compactions >= 1
    assert bookie.storage.counters.gc_bytes_removed > bookie.storage.counters.gc_bytes_moved > 0
    check(bookie)
    (space,) = bookie.upkeep.space.directories
    assert (space.problem, space.left_alone) == (None, {})


def test_moving_keeps_to_the_rates() -> None:
    """One pass takes at least bytes / rate and entries / rate; then everything is as without a rate."""
    for rates, counter, rate in (
        ({"compaction_bytes_per_second": 1000}, "gc_bytes_moved", 1000),
        ({"compaction_entries_per_second": 10}, "gc_entries_moved", 10),
    ):
        bookie = half_dead(**rates)
        bookie.now(bookie.storage.flush())
        done: list[None] = []
        began = bookie.clock.seconds()
        bookie.upkeep.space.reclaim(lambda path: 0.8).addCallback(done.append)
        while not done:
            bookie.clock.advance(0.05)
        moved = getattr(bookie.storage.counters, counter)
        assert moved / rate > 3
        assert bookie.clock.seconds() - began >= moved / rate - 0.001, rates
        check(bookie)


def test_a_forced_pass_ends_the_log_that_is_being_written() -> None:
    """Where the disk has no room for its map it ends without; what lives in it is read, also after a power loss."""
    for ledgers, left in (((1,), 0), ((1, 2), 1)):
        for full in (False, True):
            bookie = Bookie(Roomy())
            for ledger in ledgers:
                bookie.storage.add(run_of(ledger, 0, 5), "x")
            bookie.commit()
            bookie.now(bookie.storage.flush())
            bookie.storage.delete_ledger(1)
            bookie.commit()
            bookie.now(bookie.storage.flush())

            def before(call: str, path: str) -> None:
                if call == "write" and path.endswith(".log"):
                    raise OSError(errno.ENOSPC, "No space left on device")

            bookie.disk.before = before if full else bookie.disk.before
            bookie.now(bookie.upkeep.space.reclaim(lambda path: 0))
            assert len(bookie.disk.find(".log")) == 1, "another one leaves it"
            bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
            assert len(bookie.disk.find(".log")) == left
            bookie.disk.before = lambda call, path: None
            assert bookie.storage.add(run_of(2, 5), "y") is Status.EOK
            bookie.commit()
            bookie.now(bookie.storage.flush())
            for after in (bookie, Bookie(bookie.disk.crashed(None))):
                assert after.read(2, 5) == body_of(2, 5)
                assert left == 0 or after.read(2, 0) == body_of(2, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_the_space_of_dropped_copies_comes_back(killed: bool) -> None:
    """Though the ledger stays known, for its fence: also where the bookie was killed right after the drop."""
    bookie = Bookie(Roomy())
    bookie.storage.add(run_of(1, 0, 5), "x")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.drop_copy(1)
    bookie.commit()
    if killed:
        bookie = Bookie(bookie.disk.killed())
    bookie.now(bookie.storage.flush())
    bookie = Bookie(bookie.disk.killed())  # one that has it from its table only
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    assert bookie.disk.find(".log") == []
    assert [space.left_alone for space in bookie.upkeep.space.directories] == [{}]
    assert bookie.storage.add(run_of(1, 5), "y") is Status.EFENCED


@pytest.mark.parametrize("counted", [False, True])
def test_a_damaged_ledgers_map_costs_no_entry(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It has no sum, so a compaction that finds less than the index has looks at all of the index; also where rows changed
    while the index counted.
    """
    if not counted:
        monkeypatch.setattr(RunIndex, "known_uses", lambda index: {})
    bookie = Bookie(Roomy(), compaction_bytes_per_second=0)
    bookie.storage.add(run_of(1, 0, 100), "x")
    bookie.storage.add(run_of(2, 0, 10), "y")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.delete_ledger(1)
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    (path,) = bookie.disk.find(".log")
    at = HEADER.unpack_from(bytes(bookie.disk.inodes[path].data))[2]
    bookie.disk.flip(path, at + MAP_HEAD.size + MAP_ROW.size + 7, 4)  # in the number of ledger 2
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 1))
    assert path not in bookie.disk.find(".log"), "it was compacted"
    assert [bookie.read(2, entry) for entry in range(10)] == [body_of(2, entry) for entry in range(10)]


def test_a_map_that_lacks_a_ledger_costs_no_entry_that_only_apaches_index_names(tmp_path: Path) -> None:
    """The log is read before it goes."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    path = root / "ledgers/current/0.log"
    records = path.read_bytes()
    ledgers = dict.fromkeys(range(4), 1)
    head = HEADER.pack(MAGIC, 1, len(records), len(ledgers))
    path.write_bytes(head + records[len(head) :] + b"".join(ledgers_map(ledgers)))
    here = Here(root)
    body = here.read(4, 100)
    for ledger in ledgers:
        here.storage.delete_ledger(ledger)
    here.commit()
    here.now(here.storage.flush())
    here.now(here.upkeep.space.reclaim(lambda path: 1))
    assert path.exists()
    assert "entry 0 of ledger 4 is needed" in here.upkeep.space.directories[0].left_alone.values()
    assert here.read(4, 100) == body
    here.close()


def test_logs_that_apache_wrote_past_the_cache_go_when_nothing_in_them_is_needed(tmp_path: Path) -> None:
    """Padding is no damage, for which a log would stay for good."""
    root = unpack("direct_bookie0_stopped", tmp_path)
    here = Here(root)
    assert here.storage.doubted == set()
    for ledger in range(4):
        here.storage.delete_ledger(ledger)
    here.commit()
    here.now(here.storage.flush())
    here.now(here.upkeep.space.reclaim(lambda path: 0))
    (space,) = here.upkeep.space.directories
    assert (space.left_alone, space.problem) == ({}, None)
    assert sorted(path.name for path in (root / "ledgers/current").glob("*.log")) == ["1.log", "2.log"]
    assert all(isinstance(here.read(4, entry), bytes) for entry in range(234))
    here.close()


def test_what_was_copied_again_after_a_drop_counts() -> None:
    """As of any ledger: an index that lost its rows costs no log."""
    bookie = Bookie(Roomy())
    bookie.storage.add(run_of(1, 0, 5), "x")
    bookie.commit()
    bookie.storage.drop_copy(1)
    bookie.now(bookie.storage.flush())
    assert bookie.storage.add(run_of(1, 0, 5, recovery=True), "y") is Status.EOK
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.directories.of(1).index.delete(1)
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    assert len(bookie.disk.find(".log")) == 1
    assert "ledger 1" in bookie.upkeep.space.directories[0].left_alone[0]


def test_a_log_that_a_flush_left_half_way_may_go_later() -> None:
    """While that flush is owed the log is needed for nothing and names what no row has: no reason to keep it."""
    bookie = Bookie()
    for ledger in (1, 2):
        bookie.storage.add(run_of(ledger, 0, 5), "x")
    bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "write rows" and "runs" in path:
            raise OSError(errno.ENOSPC, "No space left on device")

    bookie.disk.before = before
    bookie.clock.advance(10)
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    bookie.disk.before = lambda call, path: None
    bookie.clock.advance(10)
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    (space,) = bookie.upkeep.space.directories
    assert space.left_alone == {}
    assert len(bookie.disk.find(".log")) == 1
    assert bookie.read(2, 4) == body_of(2, 4)


def test_a_log_may_go_later_where_a_checkpoint_ends_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped with it is not in the table as such when the look begins: no reason to keep the log for good."""
    bookie = Bookie(Roomy())
    bookie.storage.add(run_of(1, 0, 5), "x")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    bookie.storage.drop_copy(1)
    bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "write rows" and path.endswith("/ledgers"):
            raise OSError(errno.ENOSPC, "No space left on device")

    def looked_at(*words: Any) -> str | None:
        reason = unneeded(*words)
        bookie.now(bookie.storage.flush())
        return reason

    bookie.disk.before = before
    bookie.now(bookie.storage.flush())
    bookie.disk.before = lambda call, path: None
    monkeypatch.setattr("quire.bookie.upkeep.space.unneeded", looked_at)
    for logs in (1, 0):
        bookie.now(bookie.upkeep.space.reclaim(lambda path: 0))
        assert [space.left_alone for space in bookie.upkeep.space.directories] == [{}]
        assert len(bookie.disk.find(".log")) == logs


def test_a_full_disk_that_says_so_at_the_sync_ends_no_checkpoint() -> None:
    """As with quotas: a log is ended without its map where there is little room."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 5), "x")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.disk.free = 100

    def before(call: str, path: str) -> None:
        if call == "sync" and path.endswith(".log"):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    bookie.disk.before = before
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    bookie.disk.before, bookie.disk.free = lambda call, path: None, 1 << 39
    assert bookie.storage.add(run_of(1, 5), "y") is Status.EOK
    bookie.commit()
    bookie.now(bookie.storage.flush())
    assert Bookie(bookie.disk.crashed(None)).read(1, 5) == body_of(1, 5)


def test_too_little_room_for_a_compaction_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is moved."""
    bookie = half_dead()
    bookie.now(bookie.storage.flush())
    monkeypatch.setattr(bookie.disk, "usage", lambda _path: Usage(1, 1 << 40, 1 << 20))
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.9))
    (space,) = bookie.upkeep.space.directories
    assert space.problem is not None
    assert "can't be moved" in space.problem
    assert bookie.storage.counters.gc_compactions == 0


def test_time_is_limited() -> None:
    """After `seconds_max` no further log is begun."""
    bookie = half_dead(compaction_bytes_per_second=1000, entry_log_bytes_max=LOG_BYTES)
    bookie.now(bookie.storage.flush())
    done: list[None] = []
    bookie.upkeep.space.reclaim(lambda path: 0.8, 0.001).addCallback(done.append)
    while not done:
        bookie.clock.advance(0.05)
    assert bookie.storage.counters.gc_compactions == 1
    check(bookie)


def test_no_room_no_compaction() -> None:
    """A compaction that does not fit is not begun, and is reported; logs that are not needed go all the same."""
    bookie = half_dead()
    bookie.now(bookie.storage.flush())
    assert isinstance(bookie.disk, Roomy)
    bookie.disk.room = 1000
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.8))
    assert bookie.storage.counters.gc_compactions == 0
    check(bookie)


def test_an_error_leaves_the_directory_as_it_is() -> None:
    """The pass ends, says why, and the next one works."""
    bookie = half_dead()
    bookie.now(bookie.storage.flush())

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".compacting"):
            raise OSError(28, "No space left on device")

    bookie.disk.before = before
    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.8))
    (space,) = bookie.upkeep.space.directories
    assert "No space left" in str(space.problem)
    assert bookie.storage.read_only is None
    check(bookie)
    bookie.disk.before = lambda call, path: None
    reclaimed(bookie)
    assert space.problem is None
    check(bookie)


def test_a_failed_sync_is_final() -> None:
    """Of the new log or of the index before old logs go: nothing goes, the bookie turns read-only."""
    for suffix, call in ((".compacting", "sync"), ("runs", "sync rows")):
        bookie = half_dead()
        bookie.now(bookie.storage.flush())
        names = set(bookie.disk.find(".log"))

        def before(what: str, path: str, suffix: str = suffix, call: str = call) -> None:
            if what == call and path.endswith(suffix):
                raise OSError(5, "Input/output error")

        bookie.disk.before = before
        bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.8))
        assert names <= set(bookie.disk.find(".log"))
        assert "Input/output error" in str(bookie.storage.read_only)
        bookie.disk.before = lambda what, path: None
        check(bookie)


def test_damage_is_reported_and_left_alone() -> None:
    """A log with a damaged entry is named with its offset and kept; its other entries stay readable."""
    bookie = half_dead()
    bookie.now(bookie.storage.flush())
    bookie.disk.flip(
        "/disk/ledgers0/current/0.log",
        bytes(bookie.disk.inodes["/disk/ledgers0/current/0.log"].data).find(body_of(2, 3)) + 30,
    )
    for _ in range(3):
        reclaimed(bookie)
    (space,) = bookie.upkeep.space.directories
    assert list(space.left_alone) == [0]
    assert "/disk/ledgers0/current/0.log at offset" in space.left_alone[0]
    assert "/disk/ledgers0/current/0.log" in bookie.disk.find(".log")
    assert bookie.read(2, 3) is Status.EIO
    assert bookie.read(2, 119) == body_of(2, 119)


def test_logs_go_between_two_checkpoints() -> None:
    """A removal waits for the checkpoint that runs, and a checkpoint for the removal."""
    pool = HeldWorkers()
    bookie = Bookie(Roomy(), workers=pool)
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.storage.flush()
    done: list[None] = []
    bookie.upkeep.space.reclaim(lambda path: 0.8).addCallback(done.append)
    bookie.storage.flush().addCallback(done.append)
    for _ in range(10):
        pool.release()
    assert done == [None, None]


def test_a_stop_ends_a_pass_at_its_next_step() -> None:
    """And waits for it; nothing unfinished stays, nothing is lost."""
    for steps in range(12):
        bookie = half_dead(compaction_bytes_per_second=1000)
        bookie.now(bookie.storage.flush())
        over: list[None] = []
        bookie.upkeep.space.reclaim(lambda path: 0.8).addCallback(over.append)
        for _ in range(steps):
            bookie.clock.advance(0.5)
        stopped: list[object] = []
        Deferred.fromCoroutine(bookie.upkeep.space.stop()).addBoth(stopped.append)
        for _ in range(40):
            bookie.clock.advance(0.5)
        assert (over, stopped) == ([None], [None])
        check(bookie)
        bookie.close()
        assert not bookie.disk.find(".compacting")
        again = Bookie(bookie.disk, entry_log_bytes_max=LOG_BYTES)
        check(again)


def test_beside_everything_else(tmp_path: Path) -> None:
    """
    RocksDB, threads and a real reactor: ledgers come and go, some entries are written again, all is read, while passes
    are made without a pause.
    """
    options = options_of(
        str(tmp_path),
        flush_interval_ms=20,
        entry_log_bytes_max=64 << 10,
        compaction_bytes_per_second=0,
        journal_sync_data=False,
    )

    async def next_durable(storage: Storage, waiting: list[Deferred[None]]) -> None:
        waiter: Deferred[None] = Deferred()
        waiting.append(waiter)
        await waiter

    async def story() -> None:
        storage = Storage(options, reactor)
        waiting: list[Deferred[None]] = []
        tokens: list[object] = []

        def durable(group: list[object]) -> None:
            tokens.extend(group)
            waiters, waiting[:] = waiting[:], []
            for waiter in waiters:
                waiter.callback(None)

        storage.listen(Events(durable, lambda: durable([])))
        storage.start()
        upkeep = Upkeep(storage, reactor, LimboOf(storage))
        rng = random.Random(7)
        sizes: dict[int, dict[int, int]] = {}  # ledger -> entry -> size of its payload
        over = False

        async def passes() -> None:
            while not over:
                await upkeep.space.reclaim(lambda path: 0.9)

        collecting = Deferred.fromCoroutine(passes())
        for turn in range(120):
            ledger = turn if turn % 3 else rng.randrange(turn + 1)
            entries = sizes.setdefault(ledger, {})
            first = rng.randrange(len(entries) + 1) if turn % 4 == 0 else len(entries)
            size = 200 + turn
            while storage.add(run_of(ledger, first, 40, size=size), turn) is None:
                await next_durable(storage, waiting)
            entries.update(dict.fromkeys(range(first, first + 40), size))
            while turn not in tokens:
                await next_durable(storage, waiting)
            if turn % 5 == 4:
                gone = rng.choice(sorted(sizes))
                storage.delete_ledger(gone, remembered=False)
                del sizes[gone]
            for known in rng.sample(sorted(sizes), min(3, len(sizes))):
                entry = rng.randrange(len(sizes[known]))
                found = storage.read(known, entry)
                body = await found if isinstance(found, Deferred) else found
                assert body == body_of(known, entry, sizes[known][entry]), (turn, known, entry, body)
        over = True
        await collecting
        await storage.flush()
        await upkeep.space.reclaim(lambda path: 0.9)
        (space,) = upkeep.space.directories
        assert space.problem is None
        assert storage.counters.gc_compactions > 0
        assert storage.counters.gc_logs_removed > 0
        assert space.live >= 0.9 * space.total
        for again in (False, True):
            if again:
                await storage.close()
                storage = Storage(options, reactor)
                storage.start()
            for known, entries in sizes.items():
                for entry, size in entries.items():
                    found = storage.read(known, entry)
                    body = await found if isinstance(found, Deferred) else found
                    assert body == body_of(known, entry, size), (again, known, entry, body)
        await storage.close()

    run(story)
