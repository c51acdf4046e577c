"""Where reads look: what was read ahead and is old by now, and whose turn it is beside adds."""

import errno
import gc
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from quire.bookie.storage.lookup import (
    AT_ONCE_BYTES_MAX,
    BESIDE_BYTES,
    FAULTS_MAX,
    OTHER_FAULTS,
    QUIET_S,
    RESTS,
    ReadFaults,
)
from quire.bookie.storage.parts import PoolWorkers
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from tests.bookie.fakes.disk import DIGEST, KEY, Bookie, HeldWorkers, body_of, run_of
from tests.bookie.fakes.workers import InlineWorkers
from tests.bookie.server.test_listener import log_lines
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def stored(workers: InlineWorkers | None = None) -> Bookie:
    """Entries 0 to 9 of ledger 1 on the disk, and nothing of them in memory."""
    first = Bookie()
    first.storage.add(run_of(1, 0, 10), "a")
    first.commit()
    first.now(first.storage.flush())
    return Bookie(first.disk.crashed(None), workers=workers)


def test_what_was_read_ahead_is_old_once_it_is_written_again() -> None:
    """Also when the newer copy has left the write cache."""
    bookie = stored()
    assert [bookie.read(1, entry) for entry in (0, 1, 2)] == [body_of(1, entry) for entry in (0, 1, 2)]
    assert bookie.storage.counters.reads_cached == 1, "the third was read ahead"
    assert bookie.storage.add(run_of(1, 3, size=50, recovery=True), "b") is Status.EOK
    bookie.commit()
    bookie.now(bookie.storage.flush())
    assert [bookie.read(1, entry) for entry in (2, 3, 4)] == [body_of(1, 2), body_of(1, 3, 50), body_of(1, 4)]


class LateWorkers(InlineWorkers):
    """Jobs are done at once, and what comes of them is reported when the test says so."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[Deferred[Any], Deferred[Any]]] = []

    def run(self, job: Callable[..., Any], *args: Any) -> Deferred[Any]:
        self.unanswered.append((Deferred(), maybeDeferred(job, *args)))
        return self.unanswered[-1][0]

    def answer(self, number: int) -> None:
        waiting, done = self.unanswered.pop(number)
        done.chainDeferred(waiting)


def test_what_is_being_read_ahead_is_old_once_it_is_written_again() -> None:
    """The newer copy came and was flushed between the read of the disk and the reactor's hearing of it."""
    workers = LateWorkers()
    bookie = stored(workers)
    found: list[object] = []
    for entry in (0, 1):
        asked = bookie.storage.read(1, entry)
        assert isinstance(asked, Deferred)
        asked.addCallback(found.append)
        if not entry:
            workers.answer(0)
    assert bookie.storage.add(run_of(1, 3, size=50, recovery=True), "b") is Status.EOK
    bookie.commit()
    bookie.storage.flush()
    workers.answer(1)
    workers.answer(0)
    assert found == [body_of(1, 0), body_of(1, 1)]
    asked = bookie.storage.read(1, 3)
    if isinstance(asked, Deferred):
        asked.addCallback(found.append)
        workers.answer(0)
    assert found[-1] == body_of(1, 3, 50)


@pytest.mark.parametrize("batch", [False, True])
def test_big_reads_rest_beside_adds(batch: bool) -> None:
    """Batches, and what a sequential reader makes be read ahead; one entry for itself is read at once."""
    workers = HeldWorkers()
    bookie = stored(workers)
    bookie.storage.read(1, 0)
    workers.release()
    bookie.storage.read_run(1, 0, 0, 1 << 20)
    bookie.storage.add(run_of(2, 0), "a")
    bookie.clock.advance(0.001)
    workers.release()
    if batch:
        bookie.storage.read_run(1, 5, 0, 1 << 20)
    else:
        bookie.storage.read(1, 1)
    assert workers.held == 0
    bookie.storage.read(1, 7)
    assert workers.held == (1 if batch else 0), "it waits for what is read ahead, if it is near"
    workers.release()
    bookie.clock.advance(RESTS * 0.001 + 0.0001)
    assert workers.held == 1


def test_reads_look_in_every_place() -> None:
    """Active half, flushing half, index: the same answers wherever the entries are."""
    bookie = Bookie()
    bookie.storage.add(run_of(3, 0, 400), "a")
    bookie.commit()
    bookie.storage.flush()
    bookie.storage.add(run_of(3, 400, 10), "b")
    for entry in (0, 255, 256, 399, 400, 409):
        assert bookie.read(3, entry) == body_of(3, entry)
    assert bookie.read(3, 410) is Status.ENOENTRY
    assert bookie.read(3, -1) == body_of(3, 409)
    assert bookie.read(77, 0) is Status.ENOLEDGER
    assert decode(bookie.now(bookie.storage.entries(3))) == [(0, 410)]
    assert bookie.storage.entries(77) is Status.ENOLEDGER


def test_last_entry_and_lac_after_restart() -> None:
    """Both are found from the highest stored entry, lazily; the explicit LAC counts too."""
    bookie = Bookie()
    bookie.storage.add(run_of(3, 0, 50), "a")
    bookie.commit()
    bookie.close()
    again = Bookie(bookie.disk.killed())
    state = again.storage.ledger(3)
    assert state is not None
    assert state.lac == -1
    assert again.now(again.storage.lac(3)) == 48
    assert again.storage.lac(3) == 48
    assert again.read(3, -1) == body_of(3, 49)
    again.storage.write_lac(3, KEY, DIGEST.lac_body(3, 49), "x")
    assert again.storage.lac(3) == 49
    again.storage.write_lac(3, KEY, DIGEST.lac_body(3, 10), "y")
    assert again.storage.lac(3) == 49
    assert again.storage.explicit_lac(3) == DIGEST.lac_body(3, 10)
    again.commit()
    third = Bookie(again.disk.crashed(None))
    assert third.now(third.storage.lac(3)) == 49, "both explicit LACs were replayed"
    assert third.storage.explicit_lac(3) == DIGEST.lac_body(3, 10)
    assert third.storage.lac(404) == -1


def test_a_read_from_the_disk_beside_appends_brings_little() -> None:
    """What recoveries and repairs add is counted apart and is no reason; without adds it brings all."""
    disk = Bookie()
    for first in range(0, 40, 10):
        assert disk.storage.add(run_of(1, first, 10, size=20_000), first) is Status.EOK
        disk.commit()
        disk.now(disk.storage.flush())
    bookie = Bookie(disk.disk.killed())
    storage = bookie.storage

    def count() -> int:
        bookie.clock.advance(1)
        return len(bookie.now(storage.read_run(1, 0, 0, 1 << 20)))

    assert count() == 40
    assert storage.add(run_of(2, 0, 3, recovery=True), "repair") is Status.EOK
    assert storage.counters.recovery_adds == 3
    assert count() == 40
    assert storage.add(run_of(3, 0, 3), "append") is Status.EOK
    assert storage.counters.recovery_adds == 3
    assert count() == BESIDE_BYTES // 20_000
    assert count() == 40


def test_read_run_follows_the_batch_rules() -> None:
    """
    Count and size limits, the first entry always, gaps end a batch, and a batch may go on from the disk into memory.
    """
    bookie = Bookie()
    storage = bookie.storage
    storage.add(run_of(1, 0, 300, size=10), "a")
    bookie.commit()
    bookie.storage.flush()
    storage.add(run_of(1, 300, 20, size=10), "b")
    storage.add(run_of(1, 330, 5, size=10), "c")

    def batch(first: int, count: int, size: int) -> Any:
        return bookie.now(storage.read_run(1, first, count, size))

    bodies = [body_of(1, entry, 10) for entry in range(335)]
    one = len(bodies[0]) + 4
    assert batch(0, 10, 1 << 20) == bodies[:10]
    assert batch(250, 0, 1 << 20) == bodies[250:320], "index, then memory, up to the gap"
    assert batch(310, 1000, 1 << 20) == bodies[310:320]
    assert batch(325, 5, 1 << 20) is Status.ENOENTRY
    assert batch(330, 100, 1 << 20) == bodies[330:335]
    for first in (0, 310):
        assert batch(first, 9, 0) == bodies[first : first + 1]
        assert batch(first, 9, 36 + one * 3) == bodies[first : first + 3]
        assert batch(first, 9, 36 + one * 3 - 1) == bodies[first : first + 2]
    assert storage.read_run(5, 0, 1, 1) is Status.ENOLEDGER
    capped = Bookie(batch_read_bytes_max=4096)
    capped.storage.add(run_of(1, 0, 200, size=10), "a")
    assert len(capped.now(capped.storage.read_run(1, 0, 0, 1 << 30))) == (4096 - 36) // one


def test_later_copies_win_everywhere() -> None:
    """An entry written again (recovery) is served in its newest form from memory and from disk."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 10, size=10), "a")
    bookie.commit()
    bookie.storage.flush()
    bookie.storage.add(run_of(1, 4, 3, size=30, recovery=True), "b")
    wanted = [body_of(1, entry, 30 if 4 <= entry < 7 else 10) for entry in range(10)]
    assert [bookie.read(1, entry) for entry in range(10)] == wanted
    bookie.commit()
    bookie.storage.flush()
    assert [bookie.read(1, entry) for entry in range(10)] == wanted
    again = Bookie(bookie.disk.crashed(None))
    assert [again.read(1, entry) for entry in range(10)] == wanted


class Threads(PoolWorkers):
    """Jobs run on threads; the journal does not."""

    threaded = False


def test_reads_of_a_damaged_entry_leave_no_more_to_the_collector_than_others() -> None:
    """Else it would stop the reactor, now and then, for what thousands of them left."""

    async def story() -> int:
        workers = Threads(reactor)
        bookie = stored(workers)
        (log,) = bookie.disk.find(".log")
        bookie.disk.flip(log, 1024 + 20)
        while gc.collect():  # what tests before left, some of which goes in a second turn only
            pass
        gc.disable()
        try:
            for _ in range(100):
                found = bookie.storage.read_run(1, 0, 10, 1 << 20)
                assert isinstance(found, Deferred)
                assert await found is Status.EIO
            return gc.collect()
        finally:
            gc.enable()
            workers.stop()

    assert run(story) <= 400, "of 100 reads: four of each are the thread pool's"


def test_who_reads_a_damaged_entry_again_and_again_does_not_fill_the_log() -> None:
    """A line a minute for each place, then how many reads met it besides; each read has its EIO and is counted."""
    bookie = stored()
    (log,) = bookie.disk.find(".log")
    bookie.disk.flip(log, 1024 + 20)
    with log_lines() as lines:
        assert {bookie.read(1, 0) for _ in range(100)} == {Status.EIO}
        bookie.clock.advance(QUIET_S - 1)
        assert bookie.read(1, 0) is Status.EIO
    assert len(lines) == 1
    assert log in lines[0]
    with log_lines() as more:
        bookie.clock.advance(1)
        assert bookie.read(1, 0) is Status.EIO
    assert more == [lines[0].replace("storage: ", "storage: 100 more reads met this: "), lines[0]]
    assert bookie.storage.counters.read_errors == 102


def test_the_log_of_faults_has_a_bound() -> None:
    """Beyond so many places in a minute they share a line."""
    now = 0.0
    faults = ReadFaults(lambda: now)
    with log_lines() as lines:
        for number in range(3 * FAULTS_MAX):
            faults.tell(f"place {number}")
    assert len(lines) == FAULTS_MAX + 1
    with log_lines() as lines:
        now = QUIET_S
        faults.tell("place 0")
    assert lines == [
        f"storage: {2 * FAULTS_MAX - 1} more reads met this: {OTHER_FAULTS}",
        "storage: place 0",
    ]


def cached(*adds: AddRun) -> tuple[Bookie, HeldWorkers]:
    """A bookie whose entries are on the disk and in the page cache, their log open, and jobs that wait."""
    workers = HeldWorkers()
    first = Bookie()
    for number, entries in enumerate(adds):
        assert first.storage.add(entries, number) is Status.EOK
    first.commit()
    first.now(first.storage.flush())
    bookie = Bookie(first.disk.crashed(None), workers=workers)
    bookie.disk.in_memory = True
    bookie.storage.read(adds[0].ledger, 0)
    workers.release()
    return bookie, workers


def test_one_read_of_what_is_in_memory_needs_no_thread() -> None:
    """A read that comes with others does, and so does a sequence, which is read ahead."""
    bookie, workers = cached(run_of(1, 0, 10))
    read = bookie.storage.read
    before = bookie.storage.counters.reads_stored
    assert [read(1, entry, alone=True) for entry in (7, 3, 9)] == [body_of(1, entry) for entry in (7, 3, 9)]
    assert bookie.storage.counters.reads_stored == before + 3
    assert workers.held == 0
    assert isinstance(read(1, 5), Deferred)
    assert workers.held == 1
    workers.release()
    assert isinstance(read(1, 6, alone=True), Deferred), "one behind the other: all that follow are fetched"
    assert isinstance(read(1, 2, alone=True), Deferred), "and what comes meanwhile waits, if that may bring it"
    workers.release()
    assert read(1, 8, alone=True) == body_of(1, 8)
    assert workers.held == 0
    bookie, workers = cached(run_of(1, 0, 10))
    assert bookie.storage.read(1, 4, alone=True) == body_of(1, 4)
    assert isinstance(bookie.storage.read(1, 5, alone=True), Deferred), "a sequence may begin with one"


def test_one_read_of_what_is_not_in_memory_is_a_thread_s() -> None:
    """Also of what is large."""
    bookie, workers = cached(run_of(1, 0, 10), run_of(1, 10, size=AT_ONCE_BYTES_MAX + 1), run_of(1, 11))
    assert isinstance(bookie.storage.read(1, 10, alone=True), Deferred)
    workers.release()
    bookie.disk.in_memory = False
    found: list[object] = []
    asked = bookie.storage.read(1, 4, alone=True)
    assert isinstance(asked, Deferred)
    asked.addCallback(found.append)
    workers.release()
    assert found == [body_of(1, 4)]


def test_one_read_of_what_is_damaged_or_absent_is_as_any_other() -> None:
    """EIO with its line in the log, once; never "no such entry", which needs the whole way."""
    bookie, workers = cached(run_of(1, 0, 10))
    (path,) = bookie.disk.find(".log")
    bookie.disk.flip(path, 1024 + 3 * (len(body_of(1, 0)) + 4) + 40)
    found: list[object] = []
    with log_lines() as lines:
        for entry in (3, 12):
            asked = bookie.storage.read(1, entry, alone=True)
            assert isinstance(asked, Deferred)
            asked.addCallback(found.append)
            workers.release()
    assert found == [Status.EIO, Status.ENOENTRY]
    assert bookie.storage.counters.read_errors == 1
    assert len(lines) == 1
    bookie.disk.each = lambda call, path: fail(call)
    asked = bookie.storage.read(1, 5, alone=True)
    assert isinstance(asked, Deferred), "the index can't be read: the job says so"
    asked.addCallback(found.append)
    workers.release()
    assert found[-1] is Status.EIO


def fail(call: str) -> None:
    if call == "read rows":
        raise OSError(errno.EIO, "simulated")


def test_one_read_sees_what_was_written_again() -> None:
    """In memory, and then on the disk."""
    bookie, workers = cached(run_of(1, 0, 10))
    assert bookie.storage.add(run_of(1, 3, size=50, recovery=True), "b") is Status.EOK
    assert bookie.storage.read(1, 3, alone=True) == body_of(1, 3, 50)
    bookie.commit()
    bookie.storage.flush()
    workers.release()
    asked = bookie.storage.read(1, 3, alone=True)
    assert isinstance(asked, Deferred), "the new log is not open yet"
    workers.release()
    assert bookie.storage.read(1, 8, alone=True) == body_of(1, 8)
    assert bookie.storage.read(1, 3, alone=True) == body_of(1, 3, 50)
