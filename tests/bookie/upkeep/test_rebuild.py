"""
The index rebuilt beside the running bookie: what it has afterwards, what goes on meanwhile, what a failure or a crash
leaves.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory.records import records_of
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.run import KEY
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import Sequences
from quire.bookie.logs.format import log_name
from quire.bookie.offline.stopped import Stopped
from quire.bookie.offline.verify import verify
from quire.bookie.storage.checkpoint import SPARE_BYTES
from quire.bookie.upkeep.rebuild import RebuildReport
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import Here, ledgers_of, options_for, unpack
from tests.bookie.fakes.disk import Bookie, Disk, HeldWorkers, WatchedRows, body_of, run_of
from tests.bookie.fakes.workers import InlineWorkers
from tests.bookie.offline.test_rebuild import expected, rebuilt, served
from tests.bookie.offline.test_rebuild import lived as lived_here
from tests.bookie.upkeep.test_compaction import LOG_BYTES, reclaimed
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

RUNS, SECOND = "/disk/ledgers0/current/runs", "/disk/ledgers0/current/runs.2"
PLACE = "/disk/ledgers0/current/quire.index"


def bookie_on(disk: Disk | None = None, workers: InlineWorkers | None = None, **changes: Any) -> Bookie:
    return Bookie(disk, workers, **{"entry_log_bytes_max": LOG_BYTES, "compaction_bytes_per_second": 0, **changes})


def store(bookie: Bookie, ledger: int, first: int, count: int, **more: Any) -> None:
    assert bookie.storage.add(run_of(ledger, first, count, **more), "x") is Status.EOK
    bookie.commit()


def flushed(bookie: Bookie) -> None:
    bookie.now(bookie.storage.flush())


def reindexed(bookie: Bookie) -> RebuildReport:
    """One run from its start to its end."""
    assert bookie.upkeep.rebuild.start()
    for _ in range(10_000):
        if not bookie.upkeep.rebuild.running:
            break
        bookie.clock.advance(0.01)
    assert not bookie.upkeep.rebuild.running
    return bookie.upkeep.rebuild.reports[0]


def lived() -> Bookie:
    """Three ledgers in several logs; entries 10 to 19 of ledger 2 twice; ledger 3 deleted."""
    bookie = bookie_on()
    for part in range(4):
        for ledger in (1, 2, 3):
            store(bookie, ledger, 20 * part, 20)
        if part == 2:
            store(bookie, 2, 10, 10, recovery=True)
        flushed(bookie)
    bookie.storage.delete_ledger(3)
    flushed(bookie)
    return bookie


def check(bookie: Bookie, count: int = 80) -> None:
    for ledger in (1, 2):
        assert [bookie.read(ledger, entry) for entry in range(count)] == [
            body_of(ledger, entry) for entry in range(count)
        ]
        assert bookie.read(ledger, count) is Status.ENOENTRY
        assert decode(bookie.now(bookie.storage.entries(ledger))) == [(0, count)]
    assert bookie.read(3, 0) is Status.ENOLEDGER


def forget_rows(bookie: Bookie, path: str = RUNS, ledger: int | None = None) -> None:
    """The rows of a ledger, or all, go behind the index's back."""
    rows = bookie.disk.rows[path]
    low, high = (b"", b"\xff" * 17) if ledger is None else (KEY.pack(ledger, 0), KEY.pack(ledger + 1, 0))
    DictRows.delete_range(rows, low, high)
    rows.sync()


def test_lost_rows_come_back() -> None:
    """
    Of every ledger that is known, the later of two copies; the old index is gone at the next start, and the next run
    uses its place.
    """
    bookie = lived()
    check(bookie)
    before = bookie.disk.rows[RUNS].as_dict()
    forget_rows(bookie)
    assert bookie.read(1, 0) is Status.ENOENTRY
    found = reindexed(bookie)
    assert (found.done, found.problems, found.taken_over, found.limbo) == (True, [], 0, 0)
    assert found.logs == found.logs_read > 3
    assert found.entries == 4 * 40 + 10
    check(bookie)
    after = bookie.disk.rows[SECOND].as_dict()
    assert list(RunIndex(DictRows(after)).ranges(2)) == list(RunIndex(DictRows(before)).ranges(2))
    store(bookie, 1, 80, 5)
    flushed(bookie)
    again = bookie_on(bookie.disk.killed())
    assert [again.read(1, entry) for entry in range(85)] == [body_of(1, entry) for entry in range(85)]
    assert RUNS not in again.disk.rows
    assert again.disk.exists(PLACE)
    assert reindexed(again).done
    assert [again.read(1, entry) for entry in range(85)] == [body_of(1, entry) for entry in range(85)]
    assert not again.disk.exists(PLACE)
    again.close()
    last = bookie_on(again.disk)
    assert [last.read(1, entry) for entry in range(85)] == [body_of(1, entry) for entry in range(85)]
    assert SECOND not in last.disk.rows


@pytest.mark.parametrize("again", ["", "dropped", "dropped and flushed"])
def test_what_was_dropped_and_comes_back_counts_as_stored(again: str) -> None:
    """
    As by a rebuild of a stopped bookie; what no log has any more, or was dropped again meanwhile, stays dropped.
    """
    bookie = bookie_on(compaction_entries_per_second=5)
    for ledger in (1, 2):
        store(bookie, ledger, 0, 5)
        flushed(bookie)
        bookie.storage.drop_copy(ledger)
        flushed(bookie)
        if ledger == 1:
            bookie.now(bookie.upkeep.space.reclaim(lambda path: 0, forced=True))
    assert bookie.upkeep.rebuild.start()
    if again:
        bookie.storage.drop_copy(2)
        bookie.commit()
    if "flushed" in again:
        flushed(bookie)
    while bookie.upkeep.rebuild.running:
        bookie.clock.advance(0.1)
    assert bookie.upkeep.rebuild.reports[0].done
    flushed(bookie)
    found = [bookie.read(ledger, 0) for ledger in (1, 2)]
    assert found == [Status.ENOENTRY, Status.ENOENTRY if again else body_of(2, 0)]
    table = bookie.storage.directories.all[0].table
    assert [row is not None and row.dropped for row in map(table.get, (1, 2))] == [True, bool(again)]


def test_a_good_index_is_the_same_again() -> None:
    """Row by row: each row names its old place with its old sums."""
    bookie = lived()
    before = bookie.disk.rows[RUNS].as_dict()
    assert reindexed(bookie).taken_over == 0
    after = bookie.disk.rows[SECOND].as_dict()
    assert after == before


def test_of_two_copies_in_one_log_the_later_counts() -> None:
    """Also when only the order in the log says which is later."""
    bookie = bookie_on(entry_log_bytes_max=1 << 20)
    store(bookie, 1, 0, 30)
    flushed(bookie)
    store(bookie, 1, 10, 10, recovery=True)
    flushed(bookie)
    before = places(RunIndex(bookie.disk.rows[RUNS]))
    assert reindexed(bookie).problems == []
    assert places(RunIndex(bookie.disk.rows[SECOND])) == before
    forget_rows(bookie, SECOND)
    assert reindexed(bookie).logs == 1
    assert places(RunIndex(bookie.disk.rows[RUNS])) == before


def test_logs_that_were_left_alone_may_be_taken_again() -> None:
    """Entries in no index are no reason any more to keep a log for ever."""
    bookie = lived()
    forget_rows(bookie, ledger=1)
    forget_rows(bookie, ledger=2)
    reclaimed(bookie, 0.0)
    (space,) = bookie.upkeep.space.directories
    assert "is in no index" in "".join(space.left_alone.values())
    reindexed(bookie)
    assert space.left_alone == {}
    check(bookie)


class LateWorkers(InlineWorkers):
    """What was surveyed is reported later."""

    def __init__(self) -> None:
        self.late: list[tuple[Deferred[Any], Any]] = []

    def run(self, job: Any, *args: Any) -> Deferred[Any]:
        if "survey" not in (job.__name__, *(getattr(each, "__name__", "") for each in args)):
            return super().run(job, *args)
        answer: Deferred[Any] = Deferred()
        self.late.append((answer, job(*args)))
        return answer


def test_what_the_old_index_said_of_a_last_entry_is_asked_again() -> None:
    """When the new one came in between."""
    disk = lived().disk.killed()
    workers = LateWorkers()
    bookie = bookie_on(disk, workers)
    forget_rows(bookie, ledger=1)
    answers: list[object] = []
    answer = bookie.storage.lac(1)
    assert isinstance(answer, Deferred)
    answer.addBoth(answers.append)
    reindexed(bookie)
    while workers.late:
        waiter, found = workers.late.pop()
        waiter.callback(found)
    assert answers == [78]
    assert bookie.read(1, 79) == body_of(1, 79)


def test_what_a_start_flushed_on_the_way_is_not_forgotten() -> None:
    """Its ledger comes to the table with the first checkpoint only."""
    bookie = bookie_on(write_cache_bytes_max=8 << 20)
    for number in range(100):
        store(bookie, 1, number, 1, size=30_000)
    again = bookie_on(bookie.disk.killed())
    assert again.disk.find(".log"), "the memory was large enough"
    assert reindexed(again).done
    assert [again.read(1, entry) for entry in range(100)] == [body_of(1, entry, 30_000) for entry in range(100)]


def test_an_entry_that_was_denied_is_found_at_once() -> None:
    """Also where the ledger's last entry was looked up before."""
    bookie = bookie_on(lived().disk.killed())
    forget_rows(bookie, ledger=1)
    assert bookie.now(bookie.storage.lac(1)) == -1
    assert bookie.read(1, 79) is Status.ENOENTRY
    reindexed(bookie)
    assert bookie.read(1, 79) == body_of(1, 79)
    assert bookie.now(bookie.storage.lac(1)) == 78


@pytest.mark.parametrize("seed", range(30))
def test_what_comes_meanwhile_counts_more(seed: int) -> None:
    """
    Adds, entries written again, deletions and flushes between any two steps; then the new index has what readers got
    all the time.
    """
    rng = random.Random(seed)
    workers = HeldWorkers()
    bookie = bookie_on(workers=workers, entry_log_bytes_max=LOG_BYTES if seed % 2 else 1 << 20)

    def work(until: Any) -> None:
        while not until():
            workers.release()
            bookie.clock.advance(0.01)

    def settle() -> None:
        done: list[object] = []
        bookie.storage.flush().addBoth(done.append)
        work(lambda: done)
        assert done == [None]

    have: dict[int, set[int]] = {}

    def write() -> None:
        ledger = rng.randrange(1, 5)
        first = rng.randrange(60)
        count = rng.randrange(1, 30)
        if bookie.storage.add(run_of(ledger, first, count, recovery=True), "x") is Status.EOK:
            have.setdefault(ledger, set()).update(range(first, first + count))
        bookie.commit()

    for _ in range(12):
        write()
        if rng.random() < 0.5:
            settle()
    settle()
    forgotten = rng.random() < 0.3
    if forgotten:
        forget_rows(bookie)
    assert bookie.upkeep.rebuild.start()
    while bookie.upkeep.rebuild.running:
        chance = rng.random()
        if chance < 0.3:
            write()
        elif chance < 0.36 and have:
            ledger = rng.choice(list(have))
            bookie.storage.delete_ledger(ledger)
            del have[ledger]
        elif chance < 0.5:
            bookie.storage.flush().addErrback(lambda failure: None)
        workers.release()
        bookie.clock.advance(0.01)
    assert bookie.upkeep.rebuild.problem is None
    if not forgotten:
        assert places(RunIndex(bookie.disk.rows[SECOND])) == places(RunIndex(bookie.disk.rows[RUNS]))
    for _turn in range(2):
        for ledger in range(1, 5):
            for entry in range(90):
                answer = bookie.storage.read(ledger, entry)
                if not isinstance(answer, bytes | Status):
                    answers: list[Any] = []
                    answer.addBoth(answers.append)
                    work(lambda answers=answers: answers)
                    (answer,) = answers
                if entry in have.get(ledger, ()):
                    assert answer == body_of(ledger, entry), (ledger, entry)
                else:
                    assert answer in (Status.ENOENTRY, Status.ENOLEDGER), (ledger, entry)
        settle()
    for ledger in set(range(1, 5)) - set(have):
        assert list(RunIndex(bookie.disk.rows[SECOND]).ranges(ledger)) == []


def places(index: RunIndex) -> dict[tuple[int, int], tuple[int, tuple[int, int, int]]]:
    """(ledger, entry) -> (log, (offset, size, sum)); no two runs may overlap."""
    found: dict[tuple[int, int], tuple[int, tuple[int, int, int]]] = {}
    for ledger in range(1, 5):
        for run in index.runs(ledger):
            for entry in range(run.first, run.last + 1):
                assert (ledger, entry) not in found
                found[ledger, entry] = run.log, run.at(entry)
    return found


def test_a_damaged_record_is_never_denied() -> None:
    """It stays known with its old sum, whether the scan met it or ended before it."""
    bookie = lived()
    run = RunIndex(bookie.disk.rows[RUNS]).find(1, 5)
    assert run is not None
    log = f"/disk/ledgers0/current/{run.log:x}.log"
    bookie.disk.flip(log, run.at(5)[0] + 30)
    found = reindexed(bookie)
    assert found.done
    (problem,) = found.problems
    assert log in problem
    assert f"at offset {run.offset}" in problem
    assert bookie.read(1, 5) is Status.EIO
    assert bookie.read(1, 4) == body_of(1, 4)
    bookie.disk.flip(log, run.at(0)[0])  # a size field: nothing of this log can be read on
    found = reindexed(bookie)
    assert found.done
    assert found.taken_over > 0
    assert "no record of an entry begins here" in "".join(found.problems) or "is cut off" in "".join(found.problems)
    assert [bookie.read(1, entry) for entry in range(20, 80)] == [body_of(1, entry) for entry in range(20, 80)]
    assert bookie.read(1, 0) is Status.EIO
    assert bookie.read(1, 5) is Status.EIO
    assert bookie.read(1, 7) == body_of(1, 7)


def test_a_damaged_record_behind_ones_that_were_written_again_keeps_its_sum() -> None:
    """
    The first of its neighbours are not named at this place any more; what follows is, and is what the old index says it
    was.
    """
    bookie = bookie_on()
    store(bookie, 1, 0, 10)
    flushed(bookie)
    store(bookie, 1, 0, 3, recovery=True)
    flushed(bookie)
    run = RunIndex(DictRows(bookie.disk.rows[RUNS].as_dict())).find(1, 5)
    assert run is not None
    assert run.first == 3
    offset, size, _check = run.at(5)
    bookie.disk.flip(f"/disk/ledgers0/current/{log_name(run.log)}", offset + size)
    assert bookie.read(1, 5) is Status.EIO
    found = reindexed(bookie)
    assert found.done
    assert "entries 3 to 9 of ledger 1 some differ" in found.problems[0]
    assert [bookie.read(1, entry) for entry in range(10)] == [
        Status.EIO if entry == 5 else body_of(1, entry) for entry in range(10)
    ]


class Broken(WatchedRows):
    """Rows of which those of one ledger can't be read any more."""

    ledger = 1

    def scan(self, low: bytes, high: bytes) -> Any:
        if low <= KEY.pack(self.ledger, 0) < high:
            raise OSError("a block is damaged")
        return super().scan(low, high)

    def floor(self, key: bytes) -> Any:
        if KEY.unpack(key)[0] == self.ledger:
            raise OSError("a block is damaged")
        return super().floor(key)

    def floors(self, keys: Any) -> Any:
        return [self.floor(key) for key in keys]


def test_a_ledger_of_which_the_old_index_has_nothing_goes_in_limbo_first() -> None:
    """What the logs have is served, the rest is unknown; that is durable before the new index counts."""
    disk = lived().disk.killed()
    disk.rows[RUNS] = Broken(disk.rows[RUNS], lambda call: None)
    bookie = bookie_on(disk)
    marked: list[Any] = []
    mark = bookie.storage.mark_limbo

    async def doubt(rows: Any) -> None:
        marked.append((dict(rows), bookie.disk.exists(PLACE)))
        await mark(rows)

    bookie.limbo.mark_incomplete = doubt  # type: ignore[method-assign]
    found = reindexed(bookie)
    assert (found.done, found.limbo) == (True, 1)
    assert "ledger 1 in the old index can't be read, so it is in limbo now" in found.problems[0]
    ((rows, changed),) = marked
    assert (list(rows), changed) == ([1], False)
    assert bookie.read(1, 3) == body_of(1, 3)
    assert bookie.read(1, 80) is Status.EUNKNOWNLEDGERSTATE
    assert bookie.read(2, 80) is Status.ENOENTRY
    again = bookie_on(bookie.disk.crashed(None))
    assert again.read(1, 80) is Status.EUNKNOWNLEDGERSTATE
    assert again.read(1, 3) == body_of(1, 3)


def test_ledgers_that_were_doubted_are_reported_though_the_run_fails() -> None:
    """They are in limbo: their copies must be compared, or they stay there until the next start."""
    disk = lived().disk.killed()
    disk.rows[RUNS] = Broken(disk.rows[RUNS], lambda call: None)
    bookie = bookie_on(disk)
    reported: list[bool] = []
    bookie.limbo.ready_to_copy = lambda: reported.append(disk.exists(PLACE))  # type: ignore[method-assign]

    def before(call: str, path: str) -> None:
        if call == "sync rows" and path == SECOND:
            raise OSError(28, "No space left on device", path)

    disk.before = before
    found = reindexed(bookie)
    assert (found.done, found.limbo, reported) == (False, 1, [False])
    assert bookie.storage.limbo_ledgers() == [1]
    disk.before = lambda call, path: None
    assert reindexed(bookie).done
    assert reported == [False, True]


def test_a_crash_at_any_step_loses_nothing() -> None:
    """
    Power loss before every change of the disk, with adds on their way: whichever index the next start finds, it has
    everything.
    """
    cut = 0
    places = set()
    while True:
        bookie = lived()
        left = cut
        rng = random.Random(cut)

        def before(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(5, "simulated power loss", path)

        bookie.disk.before = before
        bookie.storage.add(run_of(1, 80, 3), "taken")
        bookie.upkeep.rebuild.start()
        for _ in range(50):
            bookie.clock.advance(0.01)
        bookie.storage.add(run_of(2, 80, 3), "later")
        bookie.commit()
        bookie.storage.flush().addErrback(lambda failure: None)
        bookie.commit()
        after = bookie.disk.crashed(rng)
        places.add(after.exists(PLACE))
        again = bookie_on(after)
        for ledger, token in ((1, "taken"), (2, "later")):
            count = 83 if token in bookie.tokens else 80
            assert [again.read(ledger, entry) for entry in range(count)] == [
                body_of(ledger, entry) for entry in range(count)
            ], cut
        assert again.read(3, 0) is Status.ENOLEDGER
        again.close()
        if left >= 0:
            break
        cut += 1
    assert cut > 20
    assert places == {False, True}


def test_a_new_index_that_can_not_be_written_disturbs_no_request() -> None:
    """A full disk, say: flushes go on, and the index is as it was."""
    bookie = lived()

    def before(call: str, path: str) -> None:
        if call == "write rows" and path == SECOND:
            raise OSError(28, "No space left on device", path)

    bookie.disk.before = before
    found = reindexed(bookie)
    assert not found.done
    assert "No space left" in (bookie.upkeep.rebuild.problem or "")
    store(bookie, 1, 80, 4)
    flushed(bookie)
    assert bookie.storage.read_only is None
    assert bookie.read(1, 83) == body_of(1, 83)
    assert SECOND not in bookie.disk.rows
    bookie.disk.before = lambda call, path: None
    assert reindexed(bookie).done
    assert bookie.read(1, 83) == body_of(1, 83)


def test_a_flush_that_the_new_one_can_not_take_ends_the_run_only() -> None:
    """A full disk under the new index ends the rebuild with its reason, and the flush itself succeeds."""
    workers = HeldWorkers()
    bookie = bookie_on(workers=workers)

    def turn() -> None:
        workers.release()
        bookie.clock.advance(0.01)

    for part in range(4):
        assert bookie.storage.add(run_of(1, 20 * part, 20), "x") is Status.EOK
        bookie.commit()
        bookie.storage.flush()
        for _ in range(20):
            turn()
    bookie.upkeep.rebuild.start()
    while SECOND not in bookie.disk.rows:
        turn()

    def before(call: str, path: str) -> None:
        if call == "write rows" and path == SECOND:
            raise OSError(28, "No space left on device", path)

    bookie.disk.before = before
    assert bookie.storage.add(run_of(1, 80, 4), "y") is Status.EOK
    bookie.commit()
    done: list[object] = []
    bookie.storage.flush().addBoth(done.append)
    while bookie.upkeep.rebuild.running:
        turn()
    assert done == [None]
    assert "No space left" in (bookie.upkeep.rebuild.problem or "")
    assert not bookie.disk.exists(PLACE)


def test_a_new_one_that_missed_a_flush_at_any_moment_never_counts() -> None:
    """Also when the disk has room again at once, and nothing was left to be filled in."""
    ended = set()
    for turns in range(40):
        workers = HeldWorkers()
        bookie = bookie_on(workers=workers)
        store(bookie, 1, 0, 20)
        bookie.storage.flush()
        settle(bookie, workers)
        assert bookie.upkeep.rebuild.start()
        for _ in range(turns):
            workers.release()
        bookie.disk.before = no_room_beside(bookie.disk)
        store(bookie, 1, 20, 4)
        flush: list[object] = []
        bookie.storage.flush().addBoth(flush.append)
        while not flush:
            workers.release()
        bookie.disk.before = lambda call, path: None
        settle(bookie, workers)
        assert flush == [None]
        got: list[object] = []
        read = bookie.storage.read(1, 23)
        assert isinstance(read, Deferred)
        read.addBoth(got.append)
        settle(bookie, workers)
        assert got == [body_of(1, 23)], turns
        ended.add(bookie.upkeep.rebuild.reports[0].done)
    assert ended == {False, True}


def no_room_beside(disk: Disk) -> Callable[[str, str], None]:
    """For a first run's new index, until it is the index."""

    def before(call: str, path: str) -> None:
        if call == "write rows" and path == SECOND and not disk.exists(PLACE):
            raise OSError(28, "No space left on device", path)

    return before


def settle(bookie: Bookie, workers: HeldWorkers) -> None:
    """Until nothing is left to do."""
    for _ in range(100):
        workers.release()
        bookie.clock.advance(0.01)


def test_passes_over_the_logs_wait_and_a_stop_ends_it() -> None:
    """Logs stay where they are; what asks for them meanwhile comes later; a stop does not wait for the end of a log."""
    workers = HeldWorkers()
    bookie = bookie_on(workers=workers)

    def turn() -> None:
        workers.release()
        bookie.clock.advance(0.01)

    for part in range(6):
        assert bookie.storage.add(run_of(1 + part % 2, 20 * part, 20), "x") is Status.EOK
        bookie.commit()
        bookie.storage.flush()
        for _ in range(20):
            turn()
    assert bookie.upkeep.rebuild.start()
    assert not bookie.upkeep.rebuild.start()
    turn()
    passed: list[object] = []
    bookie.upkeep.space.reclaim(lambda path: 0.9).addBoth(passed.append)
    turn()
    assert (passed, bookie.upkeep.rebuild.running) == ([], True)
    closed: list[object] = []
    refused = bookie.now(bookie.storage.close())
    assert refused.check(StorageError), "a wrong order of stopping is a failure and not a race"
    bookie.stop().addBoth(closed.append)
    for _ in range(60):
        turn()
        bookie.commit()
    assert closed == [None]
    assert passed == [None]
    assert bookie.upkeep.rebuild.problem == "the bookie stops"
    assert not bookie.disk.exists(PLACE)
    assert not bookie.upkeep.rebuild.start()
    again = bookie_on(bookie.disk)
    assert again.read(1, 5) == body_of(1, 5)
    assert SECOND not in again.disk.rows


@pytest.mark.parametrize("first", ["index", "pass"])
def test_a_stop_does_not_wait_for_one_that_waits_for_the_other(first: str) -> None:
    """
    An index rebuild and a pass over the logs take turns: whichever is under way, both end at their next step,
    without the rest of their pause.
    """
    workers = HeldWorkers()
    bookie = bookie_on(workers=workers, compaction_entries_per_second=1)
    for part in range(6):
        store(bookie, 1 + part % 2, 20 * part, 20)
        bookie.storage.flush()
        settle(bookie, workers)
    bookie.storage.delete_ledger(2)
    bookie.storage.flush()
    settle(bookie, workers)
    passed: list[object] = []
    begins = [bookie.upkeep.rebuild.start, lambda: bookie.upkeep.space.reclaim(lambda path: 1.0).addBoth(passed.append)]
    for begin in begins if first == "index" else reversed(begins):
        begin()
    for _ in range(10):
        workers.release()
    assert bookie.upkeep.rebuild.running
    assert not passed
    ended: list[object] = []
    Deferred.fromCoroutine(bookie.upkeep.stop()).addBoth(ended.append)
    settle(bookie, workers)
    assert (ended, passed) == ([None], [None])
    assert not bookie.upkeep.rebuild.running
    assert not bookie.upkeep.rebuild.start()


def test_a_full_disk_at_its_beginning_is_the_end_of_it() -> None:
    """A run that can't begin says why, and the next one can."""
    bookie = lived()

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".log"):
            raise OSError(28, "No space left on device", path)

    store(bookie, 1, 80, 4)
    bookie.disk.before = before
    assert not reindexed(bookie).done
    assert "No space left" in (bookie.upkeep.rebuild.problem or "")
    bookie.disk.before = lambda call, path: None
    assert reindexed(bookie).done
    check_last = [bookie.read(1, entry) for entry in (79, 83)]
    assert check_last == [body_of(1, 79), body_of(1, 83)]


def test_a_full_disk_has_its_room_back_though_the_new_index_closes_with_an_error() -> None:
    """RocksDB that is stuck says so once more when it is closed."""
    workers = HeldWorkers()
    disk = lived().disk.killed()
    bookie = bookie_on(disk, workers)
    assert bookie.upkeep.rebuild.start()
    while SECOND not in disk.rows:
        workers.release()

    def stuck() -> None:
        raise OSError(28, "No space left on device", SECOND)

    disk.rows[SECOND].close = stuck  # type: ignore[method-assign]
    disk.before = no_room_beside(disk)
    settle(bookie, workers)
    assert "No space left" in (bookie.upkeep.rebuild.problem or "")
    assert SECOND not in disk.rows


def test_flushes_keep_the_room_that_they_want() -> None:
    """The new index takes no room that the next flush wants: it ends before that, and gives back what it took."""
    workers = HeldWorkers()
    disk = lived().disk.killed()
    bookie = bookie_on(disk, workers)
    wanted = bookie.options.write_cache_bytes_max + SPARE_BYTES
    disk.free = wanted + 1
    assert bookie.upkeep.rebuild.start()
    while SECOND not in disk.rows:
        workers.release()
    disk.free = wanted - 1
    settle(bookie, workers)
    assert f"{wanted - 1} bytes are free" in (bookie.upkeep.rebuild.problem or "")
    assert SECOND not in disk.rows
    assert bookie.storage.read_only is None


def test_a_log_that_a_flush_begins_right_behind_it_is_not_read() -> None:
    """It grows: of two copies of an entry in it the first could come last."""

    class Ahead(InlineWorkers):
        def run(self, job: Callable[..., Any], *args: Any) -> Deferred[Any]:
            done = super().run(job, *args)
            if getattr(job, "__name__", "") == "begin_index":
                directory = job.__self__  # type: ignore[attr-defined]  # a bound method
                directory.logs.append(1, records_of([body_of(1, 500)])[0])
                directory.logs.write_out()
            return done

    disk = lived().disk.killed()
    logs_before = len(disk.find(".log"))
    bookie = bookie_on(disk, Ahead())
    found = reindexed(bookie)
    assert (found.done, found.logs) == (True, logs_before)
    assert len(disk.find(".log")) > logs_before
    assert bookie.read(1, 500) is Status.ENOENTRY


def test_several_directories_one_after_the_other() -> None:
    """A rebuild replaces the index of every directory, and all entries are read after the next start."""
    bookie = Bookie(ledgers=3, entry_log_bytes_max=LOG_BYTES, compaction_bytes_per_second=0)
    for ledger in range(9):
        store(bookie, ledger, 0, 10)
    flushed(bookie)
    assert reindexed(bookie).done
    assert [found.done for found in bookie.upkeep.rebuild.reports] == [True] * 3
    assert [found.entries for found in bookie.upkeep.rebuild.reports] == [30] * 3
    bookie.close()
    again = Bookie(bookie.disk, ledgers=3)
    assert [again.read(ledger, 9) for ledger in range(9)] == [body_of(ledger, 9) for ledger in range(9)]


def test_a_directory_that_fails_ends_no_other_ones_index() -> None:
    """The one after it has its new index; what went wrong is reported with the directory."""
    bookie = Bookie(ledgers=3, entry_log_bytes_max=LOG_BYTES, compaction_bytes_per_second=0)
    for ledger in range(9):
        store(bookie, ledger, 0, 10)
    flushed(bookie)

    def before(call: str, path: str) -> None:
        if call == "sync rows" and path == "/disk/ledgers1/current/runs.2":
            raise OSError(5, "Input/output error", path)

    bookie.disk.before = before
    reindexed(bookie)
    reindex = bookie.upkeep.rebuild
    assert [found.done for found in reindex.reports] == [True, False, True]
    assert reindex.problem is not None
    assert reindex.problem.startswith("/disk/ledgers1/current: ")
    assert bookie.storage.failed_directories == []
    assert [bookie.read(ledger, 9) for ledger in range(9)] == [body_of(ledger, 9) for ledger in range(9)]
    bookie.disk.before = lambda call, path: None
    assert reindexed(bookie).done
    assert reindex.problem is None


def test_a_damaged_note_of_the_place_stops_the_start() -> None:
    """Whichever bit flips, it is reported with file and offset; the other index is not taken instead."""
    bookie = lived()
    reindexed(bookie)
    bookie.close()
    for bit in range(8 * len(b"runs.2\n")):
        disk = bookie.disk.killed()
        disk.flip(PLACE, bit // 8, 1 << bit % 8)
        with pytest.raises(StorageError, match=r"quire\.index at offset 0: damaged"):
            bookie_on(disk)


def test_a_fault_of_the_directory_closes_both() -> None:
    """Nothing is decided then: both stay on the disk, and neither is left open."""
    workers = HeldWorkers()
    disk = lived().disk.killed()
    bookie = bookie_on(disk, workers)
    bookie.upkeep.rebuild.start()
    while SECOND not in disk.rows:
        workers.release()
        bookie.clock.advance(0.01)
    closed: list[str] = []
    for path in (RUNS, SECOND):
        disk.rows[path].close = lambda path=path: closed.append(path)  # type: ignore[method-assign, misc]

    def before(call: str, path: str) -> None:
        if call == "sync rows" and path == RUNS:
            raise OSError(5, "Input/output error", path)

    disk.before = before
    store_later = bookie.storage.add(run_of(1, 80, 4), "x")
    assert store_later is Status.EOK
    bookie.commit()
    failed: list[Any] = []
    bookie.storage.flush().addErrback(failed.append)
    ended: list[object] = []
    for _ in range(100):
        workers.release()
        bookie.clock.advance(0.01)
    assert failed
    bookie.storage.close().addBoth(ended.append)
    for _ in range(10):
        workers.release()
        bookie.commit()
    assert ended
    assert sorted(closed) == [RUNS, SECOND]


def test_how_far_the_new_index_had_come_is_known(tmp_path: Path) -> None:
    """
    The numbers of the old one do not count any more, wherever it ends; a loss of rows is noticed from the first moment
    on.
    """
    lived_here(tmp_path)
    here = Here(tmp_path)
    finish(here)
    directory = str(tmp_path / "index/current")
    known = Sequences(Files(), directory)
    with pytest.raises(StorageError, match="are gone"):
        known.check(0, 1 << 60, "index", "table")
    here.close()

    class Full(Files):
        def replace(self, path: str, data: bytes) -> None:
            if path.endswith("quire.rows") and armed:
                raise OSError(5, "Input/output error", path)
            super().replace(path, data)

    armed: list[bool] = []
    files = Full()
    here = Here(tmp_path, files)
    armed.append(True)
    assert not finish(here).done
    assert "Input/output error" in (here.upkeep.rebuild.problem or "")
    armed.clear()
    here.storage.close().addErrback(lambda failure: None)
    here.commit()
    here = Here(tmp_path)
    assert here.read(2, 120)[36:] == expected(2)[120]
    here.close()


def finish(here: Here) -> RebuildReport:
    assert here.upkeep.rebuild.start()
    for _step in range(1000):
        here.clock.advance(0.1)
    assert not here.upkeep.rebuild.running
    return here.upkeep.rebuild.reports[0]


def test_a_stopped_bookie_whose_index_lies_at_the_other_place(tmp_path: Path) -> None:
    """Is verified, and its index rebuilt, as any other; what was left at the first place is not taken for it."""
    lived_here(tmp_path)
    here = Here(tmp_path)
    assert finish(here).done
    here.close()
    rows = tmp_path / "index/current"
    assert (rows / "quire.index").read_bytes() == b"runs.2\n"
    shutil.copytree(rows / "runs.2", rows / "runs", dirs_exist_ok=True)
    stopped = Stopped(Files(), options_for(tmp_path))
    whole = verify(stopped)
    assert [problem for problem in whole.problems if "VERSION" not in problem] == []
    (rows / "quire.index").write_bytes(b"runs.3\n")
    report = verify(stopped)
    stopped.close()
    assert any("quire.index at offset 0: damaged" in problem for problem in report.problems)
    assert report.entries == whole.entries > 1000
    (rows / "runs" / "stale").write_bytes(b"")
    assert rebuilt(tmp_path).problems == []
    assert sorted(path.name for path in rows.glob("runs*")) == ["runs", "runs.old"]
    assert not (rows / "runs" / "stale").exists()
    assert not (rows / "runs.old" / "stale").exists()
    assert not (rows / "quire.index").exists()
    assert served(tmp_path, 2) == expected(2)


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_entries_that_only_apaches_index_names_get_rows_of_ours(name: str, tmp_path: Path) -> None:
    """
    With real files: what a fallback served has sums of ours then, Apache's index stays below, and the store can be
    opened again.
    """
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    here = Here(root)
    for _ in range(2):
        found = finish(here)
        assert here.upkeep.rebuild.problem is None
        assert (found.done, found.problems, found.entries, found.taken_over) == (True, [], 234 * 4 + 200, 0)
        for ledger, (digest, payloads) in ledgers_of(name, "stopped").items():
            assert [digest.open(ledger, entry, here.read(ledger, entry)) for entry in range(len(payloads))] == payloads
    gone = min(ledgers_of(name, "stopped"))
    here.storage.delete_ledger(gone)
    here.commit()
    here.now(here.storage.flush())
    assert here.storage.ledger(gone) is None
    here.close()
    if name == "rocksdb":  # what is deleted goes from the index below, too
        below = open_read_only(str(root / "index/current/locations"))
        assert list(below.scan(KEY.pack(gone, 0), KEY.pack(gone + 1, 0))) == []
        below.close()
    kept = {ledger: found for ledger, found in ledgers_of(name, "stopped").items() if ledger != gone}
    index = RunIndex(open_read_only(str(root / "index/current/runs")))
    for ledger, (_digest, payloads) in kept.items():
        assert sum(count for _first, count in index.ranges(ledger)) == len(payloads)
    index.close()
    here = Here(root)
    for ledger, (digest, payloads) in kept.items():
        assert [digest.open(ledger, entry, here.read(ledger, entry)) for entry in range(len(payloads))] == payloads
    here.close()


def test_the_old_index_shows_which_of_two_forms_of_an_entry_is_the_newer_one() -> None:
    """
    A compaction copies an entry to a log of its own; the entry is written again to a log that was begun before that
    one.
    """
    bookie = bookie_on()
    for part in range(4):
        for ledger in (1, 2):
            store(bookie, ledger, 20 * part, 20)
        flushed(bookie)
    bookie.storage.delete_ledger(1)
    store(bookie, 4, 0, 1)
    flushed(bookie)

    def log_of(ledger: int, entry: int) -> int:
        run = RunIndex(bookie.disk.rows[RUNS]).find(ledger, entry)
        assert run is not None
        return run.log

    bookie.now(bookie.upkeep.space.reclaim(lambda path: 0.9))
    assert log_of(2, 5) > log_of(4, 0)
    store(bookie, 2, 5, 1, size=30, recovery=True)
    flushed(bookie)
    assert log_of(2, 5) == log_of(4, 0)
    found = reindexed(bookie)
    assert (found.done, found.problems, found.taken_over) == (True, [], 0)
    assert bookie.read(2, 5) == body_of(2, 5, 30)
    assert [bookie.read(2, entry) for entry in range(80) if entry != 5] == [
        body_of(2, entry) for entry in range(80) if entry != 5
    ]
