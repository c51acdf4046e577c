"""All journals as one: faults, full disks, full queues, and when refused writes may come again."""

import errno
from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from quire.bookie.journal.writer import Group
from quire.bookie.storage.journals import Journals
from quire.bookie.storage.parts import StorageCounters
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import KEY, Bookie, Disk, HeldWorkers, body_of, run_of
from tests.bookie.fakes.workers import InlineWorkers

# SPDX-License-Identifier: Apache-2.0


def test_full_cache_parks_and_relieves() -> None:
    """When both halves are full nothing is taken until a flush has made room; `relieved` says so."""
    pool = HeldWorkers()
    bookie = Bookie(workers=pool, write_cache_bytes_max=2 << 20)
    storage = bookie.storage
    entry = 0
    while storage.add(run_of(1, entry, 20, size=5000), entry) is Status.EOK:
        entry += 20
        bookie.commit()
    assert pool.held == 1
    assert storage.counters.parked == 1
    assert bookie.relieved == 0
    assert storage.add(run_of(1, entry, 20, size=5000), "again") is None
    pool.release()
    assert bookie.relieved == 1
    assert storage.add(run_of(1, entry, 20, size=5000), "now") is Status.EOK


def test_full_journal_queue_parks() -> None:
    """Adds are not taken while too many bytes wait for the journal; they may come again once half of that is synced."""
    bookie = Bookie(journal_queue_bytes_max=1 << 20, write_cache_bytes_max=64 << 20)
    number = 0
    while bookie.storage.add(run_of(1, number, size=50_000), number) is Status.EOK:
        number += 1
    assert number == 21
    bookie.commit()
    assert bookie.tokens == list(range(21))
    assert bookie.relieved >= 1
    assert bookie.storage.add(run_of(1, number, size=50_000), number) is Status.EOK


def test_journal_sync_failure_is_final() -> None:
    """
    EIO from one fdatasync: no token comes back, now or later, though later syncs would succeed; the owner hears of it
    once.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    failing = [True]

    def before(call: str, path: str) -> None:
        if call == "sync" and path.endswith(".qj") and failing.pop():
            raise OSError(errno.EIO, "injected")

    bookie.disk.before = before
    bookie.storage.add(run_of(1, 1), "b")
    bookie.storage.fence(1, KEY, "f")
    bookie.commit()
    bookie.disk.before = lambda call, path: None
    bookie.clock.advance(1)
    assert bookie.tokens == ["a"]
    assert len(bookie.failures) == 1
    assert "journal" in bookie.failures[0]
    assert "injected" in bookie.failures[0]
    assert bookie.storage.add(run_of(1, 2, recovery=True), "c") is Status.EREADONLY
    assert bookie.storage.fence(2, KEY, "g") is Status.EIO
    assert bookie.storage.write_lac(2, KEY, bytes(20), "h") is Status.EIO
    bookie.storage.close()
    bookie.clock.advance(1)
    assert bookie.tokens == ["a"]


def test_a_journal_that_cannot_grow_makes_read_only_and_comes_back() -> None:
    """
    The disk is full when the next segment is wanted: plain adds are refused while there is still room for fences and
    recovery; half a segment does not stay behind; when a checkpoint has given segments back, or others have made room,
    all is well again.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    reasons = bookie.reasons

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".qj.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device")

    bookie.disk.before = before
    entry = 0
    while bookie.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK:
        entry += 1
        bookie.commit()
    assert len(reasons) == 1
    assert "no room for the next segment" in str(reasons[0])
    assert bookie.tokens == list(range(entry))
    assert bookie.disk.find(".tmp") == []
    assert bookie.storage.add(run_of(1, entry), "no") is Status.EREADONLY
    assert bookie.storage.fence(1, KEY, "f") is Status.EOK
    assert bookie.storage.add(run_of(1, entry, recovery=True), "r") is Status.EOK
    bookie.commit()
    assert bookie.tokens[-2:] == ["f", "r"]
    bookie.clock.advance(10)
    assert len(reasons) == 1, "one checkpoint alone gives nothing back: it is the segment in use"
    bookie.disk.before = lambda call, path: None
    bookie.clock.advance(10)
    assert reasons[1:] == [None]
    assert bookie.storage.add(run_of(2, 0), "b") is Status.EOK
    bookie.commit()
    after = Bookie(bookie.disk.crashed(None))
    assert after.read(1, entry - 1) == body_of(1, entry - 1, 100_000)
    assert after.read(2, 0) == body_of(2, 0)


def scarce(bookie: Bookie, segments: int) -> Callable[[str, str], None]:
    """A journal disk that holds so many segments, and not one more."""

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".qj.tmp") and len(bookie.disk.find(".qj")) >= segments:
            raise OSError(errno.ENOSPC, "No space left on device")

    return before


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_journal_that_a_checkpoint_can_shorten_is_not_in_the_way(flushed: bool, synced: bool) -> None:
    """
    The disk is full, but old segments can be given back: that is done at once, and no add is refused; a start finds the
    same.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000, journal_sync_data=synced)
    reasons = bookie.reasons
    bookie.disk.before = scarce(bookie, 3)
    for entry in range(100):
        assert bookie.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK
        bookie.commit()
        bookie.clock.advance(0.2)  # between two tries
    assert bookie.tokens == list(range(100))
    assert reasons == []
    assert bookie.storage.counters.checkpoints in (3, 4, 5)
    again = Bookie(
        bookie.disk.killed(), write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000, journal_sync_data=synced
    )
    again.disk.before = scarce(again, 3)
    assert all(again.read(1, entry) == body_of(1, entry, 100_000) for entry in range(100))
    for entry in range(100, 150):
        assert again.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK
        again.commit()
        again.clock.advance(0.2)
    assert again.tokens == list(range(100, 150))
    if flushed:
        again.now(again.storage.flush())
    again.close()
    last = Bookie(again.disk.crashed(None))
    assert all(last.read(1, entry) == body_of(1, entry, 100_000) for entry in range(150))


@pytest.mark.parametrize("early", [False, True])
def test_a_clean_stop_with_a_full_journal_disk(early: bool) -> None:
    """
    What can be given back is given back first, then the journal ends with its mark: all that waits is acknowledged.  A
    checkpoint that began early gives nothing back.
    """
    workers = HeldWorkers()
    bookie = Bookie(workers=workers, write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000)
    bookie.disk.before = scarce(bookie, 3)
    for entry in range(40):
        bookie.storage.add(run_of(1, entry, size=100_000), entry)
        bookie.commit()
        if early and not entry:
            bookie.storage.flush()
    assert 20 < len(bookie.tokens) < 40
    done: list[object] = []
    bookie.storage.close().addBoth(done.append)
    for _ in range(10):
        workers.release()
        bookie.clock.advance(0.2)
    assert (done, bookie.failures, bookie.tokens) == ([None], [], list(range(40)))


def test_a_journal_that_a_checkpoint_can_not_shorten_enough_makes_read_only() -> None:
    """
    What it gives back is smaller than the segment that is wanted, so it is removed, and that does not help either: then
    plain adds are refused.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000, journal_segment_bytes=8 << 20)

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".qj.tmp") and not path.endswith("400000.qj.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device")

    bookie.disk.before = before  # there are a first segment of 4 MB, and then one of 8 MB
    entry = 0
    while bookie.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK:
        bookie.commit()
        entry += 1
        assert entry < 200
    assert "no room for the next segment" in str(bookie.storage.read_only)
    assert bookie.storage.counters.checkpoints == 1
    assert bookie.tokens == list(range(entry))
    bookie.disk.before = lambda call, path: None
    bookie.clock.advance(1)
    bookie.now(bookie.storage.flush())
    assert bookie.storage.read_only is None


class LateSpawn(InlineWorkers):
    """What is spawned waits until the test does it."""

    def __init__(self) -> None:
        self.spawned: list[Callable[[], None]] = []

    def spawn(self, job: Callable[[], None]) -> None:
        self.spawned.append(job)

    def catch_up(self) -> None:
        jobs, self.spawned = self.spawned, []
        for job in jobs:
            job()


def test_no_add_is_refused_before_it_is_known_whether_a_checkpoint_helped() -> None:
    """The checkpoint has given segments back, and the next one is still being made."""
    workers = LateSpawn()
    bookie = Bookie(workers=workers, write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000)
    reasons = bookie.reasons
    bookie.disk.before = scarce(bookie, 3)
    for entry in range(60):
        assert bookie.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK
        bookie.commit()
        workers.catch_up()
        bookie.clock.advance(0.2)
    assert bookie.tokens == list(range(60))
    assert bookie.storage.counters.checkpoints >= 2
    assert reasons == []


def test_no_space_for_the_journal_stops_the_bookie() -> None:
    """ENOSPC at a journal write ends the storage; what was acknowledged before is there after a restart."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "write" and ".qj" in path:
            raise OSError(errno.ENOSPC, "no space")

    bookie.disk.before = before
    bookie.storage.add(run_of(1, 1), "b")
    bookie.commit()
    assert bookie.tokens == ["a"]
    assert len(bookie.failures) == 1
    assert Bookie(bookie.disk.crashed(None)).read(1, 0) == body_of(1, 0)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_failed_flush_makes_read_only(number: int) -> None:
    """
    A failed sync of an entry log is final: read-only, the journal is kept.  A full disk is tried again, and passes.
    """
    bookie = Bookie()
    reasons = bookie.reasons
    bookie.storage.add(run_of(1, 0, 10), "a")
    bookie.commit()
    failing = "sync" if number == errno.EIO else "write"

    def before(call: str, path: str) -> None:
        if call == failing and path.endswith(".log"):
            raise OSError(number, "injected")

    bookie.disk.before = before
    bookie.clock.advance(10)
    assert len(reasons) == 1
    assert reasons[0]
    assert bookie.storage.add(run_of(1, 10), "b") is Status.EREADONLY
    assert bookie.read(1, 9) == body_of(1, 9)
    assert bookie.storage.fence(1, KEY, "f") is Status.EOK
    bookie.commit()
    assert bookie.tokens == ["a", "f"]
    again = Bookie(bookie.disk.crashed(None))
    assert again.read(1, 9) == body_of(1, 9)
    assert again.storage.add(run_of(1, 10), "b") is Status.EFENCED
    bookie.disk.before = lambda call, path: None
    bookie.clock.advance(10)
    if number == errno.ENOSPC:
        assert reasons[1:] == [None]
        assert bookie.storage.add(run_of(2, 0), "b") is Status.EOK
        assert all(bookie.read(1, entry) == body_of(1, entry) for entry in range(10))
    else:
        assert reasons[1:] == []
        assert bookie.storage.add(run_of(2, 0), "b") is Status.EREADONLY


def test_those_who_wait_for_room_hear_of_a_fault() -> None:
    """
    Parked adds are called again when the disk or the journal fails, and are refused then, so that none waits for ever.
    """
    pool = HeldWorkers()
    bookie = Bookie(workers=pool)
    entry = 0
    while bookie.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK:
        entry += 1
        bookie.commit()

    def before(call: str, path: str) -> None:
        if call == "sync":
            raise OSError(errno.EIO, "injected")

    bookie.disk.before = before
    pool.release()
    assert bookie.relieved == 1
    assert bookie.storage.add(run_of(1, entry), "x") is Status.EREADONLY
    other = Bookie(journal_queue_bytes_max=1 << 20)
    while other.storage.add(run_of(1, entry, size=100_000), entry) is Status.EOK:
        entry += 1
    other.disk.before = before
    other.commit()
    assert other.relieved == 1
    assert other.storage.add(run_of(1, entry), "x") is Status.EREADONLY


def test_a_journal_that_is_not_freed_has_a_bound() -> None:
    """Beyond the backlog adds are parked and a checkpoint is begun, which lets them in again."""
    workers = HeldWorkers()
    bookie = Bookie(workers=workers, write_cache_bytes_max=64 << 20, journal_backlog_bytes_max=4 << 20)
    entry = 0
    while bookie.storage.add(run_of(1, entry, size=400_000), entry) is Status.EOK:
        bookie.commit()
        entry += 1
        assert entry < 40
    assert 4 << 20 <= entry * 400_000 + (1 << 20) < 7 << 20
    assert bookie.relieved == 0
    assert workers.held == 1, "a checkpoint"
    assert bookie.storage.add(run_of(1, entry, size=100, recovery=True), "r") is Status.EOK, "recovery has a reserve"
    workers.release()
    bookie.commit()
    assert bookie.relieved == 1
    assert bookie.storage.add(run_of(1, entry, size=400_000), "again") is Status.EOK


def test_who_waits_for_the_backlog_needs_no_luck_with_a_checkpoint() -> None:
    """
    The checkpoint under way began too early to free enough: the next one follows it at once, though no further add
    asks for it.
    """
    workers = HeldWorkers()
    bookie = Bookie(
        workers=workers, write_cache_bytes_max=64 << 20, journal_backlog_bytes_max=4 << 20, flush_interval_ms=3_600_000
    )
    assert bookie.storage.add(run_of(1, 0, size=400_000), 0) is Status.EOK
    bookie.commit()
    bookie.storage.flush()
    entry = 1
    while bookie.storage.add(run_of(1, entry, size=400_000), entry) is Status.EOK:
        bookie.commit()
        entry += 1
        assert entry < 40
    for _ in range(2):
        assert bookie.relieved == 0
        workers.release()
        bookie.commit()
    assert bookie.relieved == 1
    assert bookie.storage.add(run_of(1, entry, size=400_000), "again") is Status.EOK


@pytest.mark.parametrize("sync", [True, False])
def test_one_group_larger_than_the_backlog_parks_no_add_for_good(sync: bool) -> None:
    """
    The segment that was made for it alone is larger than the bound, and no checkpoint can free the one that is
    being written.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20, journal_backlog_bytes_max=1 << 20, journal_sync_data=sync)
    for entry in range(5):
        refused = 0
        while bookie.storage.add(run_of(1, entry, size=9 << 19), entry) is None:
            bookie.commit()
            refused += 1
            assert refused < 3
        bookie.commit()
        assert bookie.tokens[-1] == entry
    assert len(bookie.disk.find(".qj")) < 5, "checkpoints free what they can"


class Heard:
    """What those hear that write."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def synced(self) -> None:
        self.calls.append("synced")

    def disk_full_changed(self) -> None:
        self.calls.append("disk full changed")

    def failed(self, reason: str) -> None:
        self.calls.append(reason)


def listening() -> tuple[Clock, Journals, list[object], list[object]]:
    """Journals of which none is open, the tokens that come back, what the listener hears."""
    clock = Clock()
    journals = Journals(clock, Disk(), InlineWorkers(), StorageCounters())
    heard, tokens = Heard(), list[object]()
    journals.listen(heard)
    journals.hand_tokens_to(tokens.extend, lambda token, error: None)
    return clock, journals, tokens, heard.calls


def test_a_token_that_waits_for_nothing_comes_back_in_the_next_turn() -> None:
    """Never inside the call that gave it, and never after a fault."""
    clock, journals, tokens, heard = listening()
    journals.give_back("a")
    journals.give_back("b")
    assert tokens == []
    clock.advance(0)
    assert tokens == ["a", "b"]
    journals.give_back("c")
    journals.journal_failed("injected")
    clock.advance(0)
    assert (tokens, heard, journals.fault) == (["a", "b"], ["injected"], "injected")


def test_a_block_on_its_way_is_awaited_until_it_is_synced_or_a_journal_fails() -> None:
    """All that wait go on in both cases, once; only the first fault is reported."""
    _clock, journals, _tokens, heard = listening()
    ended: list[str] = []
    first, synced = journals.awaited()
    second, _ = journals.awaited()
    first.addCallback(lambda _: ended.append("first"))
    second.addCallback(lambda _: ended.append("second"))
    group = Group()
    group.when_synced.append(synced)
    journals.group_durable(group)
    assert (ended, heard) == (["first"], ["synced"])
    journals.journal_failed("one")
    journals.journal_failed("two")
    assert (ended, heard) == (["first", "second"], ["synced", "one"])
    journals.group_durable(Group())
    assert heard == ["synced", "one"], "nothing is durable after a fault"
