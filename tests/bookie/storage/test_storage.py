"""The storage of one bookie: checks, durability, reads, restarts; on a simulated disk, and once on a real one."""

import errno
import os
import random
import struct
import threading
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.rows import DictRows
from quire.bookie.lifecycle import restoring
from quire.bookie.storage.storage import Storage
from quire.bookie.storage.workers import InlineWorkers
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from tests.bookie.fakes.disk import (
    DIGEST,
    KEY,
    OTHER_KEY,
    Bookie,
    Events,
    HeldWorkers,
    Inode,
    body_of,
    options_of,
    run_of,
)
from tests.reactor import reactor, run


@pytest.mark.parametrize("v3", [False, True])
def test_add_comes_back_after_the_sync_only(v3: bool) -> None:
    """A token comes back once its group is synced, not before; the entry can be read at once."""
    bookie = Bookie()
    assert bookie.storage.add(run_of(1, 0, 5, v3=v3), "a") is Status.EOK
    assert bookie.tokens == []
    assert bookie.read(1, 4) == body_of(1, 4)
    synced = bookie.storage.counters.journal_syncs
    bookie.commit()
    assert bookie.tokens == ["a"]
    assert bookie.storage.counters.journal_syncs == synced + 1
    assert bookie.storage.counters.adds == 5


def test_many_adds_share_one_sync() -> None:
    """All that is queued becomes one group, one write, one sync; tokens come back in order."""
    bookie = Bookie()
    for number in range(100):
        assert bookie.storage.add(run_of(number % 7, number), number) is Status.EOK
    bookie.disk.calls.clear()
    bookie.commit()
    assert bookie.tokens == list(range(100))
    assert [call for call, path in bookie.disk.calls if path.endswith(".qj")] == ["write", "sync"]


def test_wrong_key_is_refused_first() -> None:
    """
    The first key given is the ledger's; another gets EUA, also on a fenced ledger, for adds, fences and LAC writes
    alike.
    """
    bookie = Bookie()
    assert bookie.storage.add(run_of(1, 0), "a") is Status.EOK
    assert bookie.storage.add(run_of(1, 1, key=OTHER_KEY), "b") is Status.EUA
    assert bookie.storage.fence(1, OTHER_KEY, "c") is Status.EUA
    assert bookie.storage.write_lac(1, OTHER_KEY, DIGEST.lac_body(1, 0), "d") is Status.EUA
    assert bookie.storage.fence(1, KEY, "e") is Status.EOK
    assert bookie.storage.add(run_of(1, 1, key=OTHER_KEY), "f") is Status.EUA
    bookie.commit()
    assert bookie.tokens == ["a", "e"]
    assert bookie.read(1, 1) is Status.ENOENTRY


def test_fence_stops_plain_adds_and_lets_recovery_pass() -> None:
    """After a fence plain adds get EFENCED from that moment; recovery adds are taken."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    assert bookie.storage.fence(1, KEY, "f") is Status.EOK
    assert bookie.storage.add(run_of(1, 1), "b") is Status.EFENCED
    assert bookie.storage.add(run_of(1, 1, recovery=True), "r") is Status.EOK
    bookie.commit()
    assert bookie.tokens == ["a", "f", "r"]


def test_second_fence_waits_for_the_first() -> None:
    """
    A fence that another caller set a moment ago is answered only once it is durable; later ones are answered without a
    sync.
    """
    bookie = Bookie()
    bookie.storage.fence(1, KEY, "first")
    bookie.storage.fence(1, KEY, "second")
    assert bookie.tokens == []
    bookie.commit()
    assert bookie.tokens == ["first", "second"]
    syncs = bookie.storage.counters.journal_syncs
    assert bookie.storage.fence(1, KEY, "third") is Status.EOK
    assert bookie.tokens == ["first", "second"]
    bookie.commit()
    assert bookie.tokens == ["first", "second", "third"]
    assert bookie.storage.counters.journal_syncs == syncs


def test_a_fence_that_is_not_durable_is_told_to_nobody(tmp_path: Any) -> None:
    """While its sync takes long, neither the one who set it nor one who came later gets a token back."""

    class SlowFiles(Files):
        def __init__(self) -> None:
            self.begun, self.go_on = threading.Event(), threading.Event()
            self.go_on.set()

        def datasync(self, handle: int) -> None:
            self.begun.set()
            assert self.go_on.wait(60)
            super().datasync(handle)

    async def story() -> None:
        files = SlowFiles()
        storage = Storage(options_of(str(tmp_path)), reactor, files)
        tokens: list[object] = []
        both: Deferred[None] = Deferred()

        def durable(group: list[object]) -> None:
            tokens.extend(group)
            if len(tokens) == 2:
                both.callback(None)

        storage.listen(Events(durable))
        storage.start()
        files.begun.clear()
        files.go_on.clear()
        storage.fence(1, KEY, "first")
        await deferToThread(files.begun.wait, 10)
        storage.fence(1, KEY, "second")
        for _ in range(5):
            await deferLater(reactor, 0)
        assert tokens == []
        files.go_on.set()
        await both
        assert tokens == ["first", "second"]
        await storage.close()

    run(story)


def test_fence_of_an_unknown_ledger_survives() -> None:
    """Its key goes to the journal before the fence, so the fence holds after a power loss; the ledger has no entry."""
    bookie = Bookie()
    bookie.storage.fence(9, KEY, "f")
    bookie.commit()
    assert bookie.read(9, -1) is Status.ENOENTRY
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.add(run_of(9, 0), "a") is Status.EFENCED
    assert again.storage.add(run_of(9, 0, key=OTHER_KEY), "a") is Status.EUA
    assert again.storage.fence(9, KEY, "g") is Status.EOK


@pytest.mark.parametrize("journals", [1, 3])
@pytest.mark.parametrize("flushed", [False, True])
def test_fences_and_keys_of_empty_ledgers_outlive_the_journal(journals: int, flushed: bool) -> None:
    """
    Checkpoints with an empty write cache store them too, so the journal may forget them: after many rounds of both, and
    crashes between.
    """
    bookie = Bookie(journals=journals, ledgers=2)
    for ledger in range(12):
        bookie = Bookie(bookie.disk.crashed(random.Random(ledger)), journals=journals, ledgers=2)
        assert bookie.storage.fence(ledger, KEY, "f") is Status.EOK
        bookie.commit()
        assert bookie.tokens == ["f"]
        if flushed:
            bookie.now(bookie.storage.flush())
            bookie.storage.add(run_of(100, ledger, size=500_000), "a")  # the journal moves on
            bookie.commit()
            bookie.now(bookie.storage.flush())
    bookie = Bookie(bookie.disk.crashed(None), journals=journals, ledgers=2)
    for ledger in range(12):
        assert bookie.storage.add(run_of(ledger, 0), "a") is Status.EFENCED
        assert bookie.storage.add(run_of(ledger, 0, recovery=True, key=OTHER_KEY), "a") is Status.EUA
        assert bookie.storage.add(run_of(ledger, 0, recovery=True), "a") is Status.EOK


@pytest.mark.parametrize("flushed", [False, True])
def test_everything_survives_power_loss(flushed: bool) -> None:
    """Entries, fence, key and explicit LAC are there after a crash, from the journal or from the checkpoint."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 300), "a")
    bookie.storage.add(run_of(2, 5, 3, v3=True), "b")
    lac = DIGEST.lac_body(2, 6)
    bookie.storage.write_lac(2, KEY, lac, "c")
    bookie.storage.fence(2, KEY, "d")
    bookie.commit()
    if flushed:
        bookie.storage.flush()
    again = Bookie(bookie.disk.crashed(None))
    assert (again.storage.counters.replayed_entries == 0) == flushed
    assert all(again.read(1, entry) == body_of(1, entry) for entry in range(300))
    assert [again.read(2, entry) for entry in range(4, 9)] == [
        Status.ENOENTRY,
        body_of(2, 5),
        body_of(2, 6),
        body_of(2, 7),
        Status.ENOENTRY,
    ]
    assert again.storage.explicit_lac(2) == lac
    assert again.storage.add(run_of(2, 8), "e") is Status.EFENCED
    assert again.storage.add(run_of(1, 300, key=OTHER_KEY), "e") is Status.EUA
    assert sorted(again.storage.ledger_ids()) == [1, 2]


def test_unacknowledged_fence_in_an_earlier_half_is_kept_by_the_checkpoint() -> None:
    """A checkpoint without any new entry still stores fences, keys and LACs (the reference loses them)."""
    bookie = Bookie()
    bookie.storage.fence(4, KEY, "f")
    bookie.commit()
    bookie.storage.flush()
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_groups == 0
    assert again.storage.add(run_of(4, 0), "a") is Status.EFENCED


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


def test_limbo_never_says_no() -> None:
    """
    A ledger in limbo serves what it has, says "unknown" instead of "no", and sends plain writers away; all of it
    durable.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    assert bookie.storage.set_limbo(1, True, "l") is Status.EOK
    assert bookie.storage.set_limbo(2, True) is Status.ENOLEDGER
    bookie.commit()
    assert bookie.tokens == ["a", "l"]
    for storage in (bookie, Bookie(bookie.disk.crashed(None))):
        assert storage.read(1, 2) == body_of(1, 2)
        assert storage.read(1, 3) is Status.EUNKNOWNLEDGERSTATE
        assert storage.read(1, -1) is Status.EUNKNOWNLEDGERSTATE
        assert storage.now(storage.storage.read_run(1, 9, 1, 100)) is Status.EUNKNOWNLEDGERSTATE
        assert storage.storage.entries(1) is Status.EUNKNOWNLEDGERSTATE
        assert storage.storage.add(run_of(1, 3), "b") is Status.EREADONLY
    assert bookie.storage.add(run_of(1, 3, recovery=True), "r") is Status.EOK
    bookie.storage.set_limbo(1, False, "off")
    bookie.commit()
    assert Bookie(bookie.disk.crashed(None)).read(1, 4) is Status.ENOENTRY


def test_limbo_of_many_ledgers_is_durable_at_once() -> None:
    """Known or not, with or without a key; fenced where it was said; listed until it is turned off."""
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    rows = {1: LedgerRow(KEY, limbo=True), 2: LedgerRow(KEY, fenced=True, limbo=True), 3: LedgerRow(b"", limbo=True)}
    bookie.now(Deferred.fromCoroutine(bookie.storage.mark_limbo(rows)))
    again = Bookie(bookie.disk.crashed(None), ledgers=2)
    for storage in (bookie.storage, again.storage):
        assert storage.limbo_ledgers() == [1, 2, 3]
        assert [storage.fence(ledger, OTHER_KEY, "f") for ledger in (1, 2)] == [Status.EUA, Status.EUA]
        assert storage.add(run_of(3, 0), "b") is Status.EREADONLY
        assert storage.add(run_of(4, 0), "c") is Status.EOK
    assert [again.read(1, entry) for entry in (0, 3)] == [body_of(1, 0), Status.EUNKNOWNLEDGERSTATE]
    assert [again.read(ledger, 0) for ledger in (2, 3)] == [Status.EUNKNOWNLEDGERSTATE] * 2
    assert decode(again.now(again.storage.held(1))) == [(0, 3)]
    assert decode(again.now(again.storage.held(9))) == []
    assert again.storage.add(run_of(2, 0, recovery=True), "r") is Status.EOK
    for ledger in (1, 2):
        again.storage.set_limbo(ledger, False)
    again.commit()
    last = Bookie(again.disk.crashed(None), ledgers=2)
    assert last.storage.limbo_ledgers() == [3]
    assert last.storage.add(run_of(1, 3), "d") is Status.EOK
    assert last.storage.add(run_of(2, 1), "e") is Status.EFENCED


def test_an_end_of_limbo_that_is_on_its_way_does_not_outlive_a_doubt() -> None:
    """
    A ledger is doubted while the block that ends its limbo is not synced yet: limbo is durable only behind that block.
    """
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.storage.set_limbo(1, True)
    bookie.commit()
    bookie.storage.set_limbo(1, False)
    marked: list[object] = []
    Deferred.fromCoroutine(bookie.storage.mark_limbo({1: LedgerRow(KEY, limbo=True)})).addBoth(marked.append)
    assert bookie.read(1, 9) is Status.EUNKNOWNLEDGERSTATE, "at once"
    bookie.commit()
    assert marked == [None]
    assert Bookie(bookie.disk.killed()).read(1, 9) is Status.EUNKNOWNLEDGERSTATE


@pytest.mark.parametrize("seed", range(30))
def test_what_a_directory_has_is_not_replayed_into_it(seed: int) -> None:
    """
    Another directory is lost and comes back empty, so a start replays all that the journals still have.  The ledgers of
    the others are what they are after any other start, whatever stood in the journal before their marks.
    """
    rng = random.Random(seed)
    shape = {"journals": rng.randint(1, 2), "ledgers": 3}
    bookie = Bookie(**shape)
    storage = bookie.storage
    for step in range(60):
        ledger = rng.randrange(9)
        state = storage.ledger(ledger)
        what = rng.randrange(9)
        if what < 3:
            storage.add(
                run_of(
                    ledger, rng.randrange(20), rng.randint(1, 4), v3=rng.random() < 0.5, recovery=rng.random() < 0.5
                ),
                step,
            )
        elif what == 3:
            storage.fence(ledger, KEY, step)
        elif what == 4:
            storage.set_limbo(ledger, rng.random() < 0.5)
        elif what == 5:
            storage.write_lac(ledger, KEY, struct.pack(">qq", ledger, step) + bytes(20), step)
        elif what == 6:
            Deferred.fromCoroutine(storage.mark_limbo({ledger: LedgerRow(KEY, fenced=rng.random() < 0.5, limbo=True)}))
        elif what == 7 and state is not None:
            (storage.delete_ledger if rng.random() < 0.5 else storage.drop_copy)(ledger)
        if rng.random() < 0.5:
            bookie.commit()
        if rng.random() < 0.2:
            storage.flush()
    bookie.commit()
    plain, torn = bookie.disk.killed(), bookie.disk.killed()
    lost = rng.randrange(3)
    torn.inodes = {path: inode for path, inode in torn.inodes.items() if f"/ledgers{lost}/" not in path}
    torn.rows = {path: rows for path, rows in torn.rows.items() if f"/ledgers{lost}/" not in path}
    one, other = Bookie(plain, **shape), Bookie(torn, **shape)
    for ledger in range(9):
        if ledger % 3 != lost:
            here, there = one.storage.ledger(ledger), other.storage.ledger(ledger)
            assert (here and here.row) == (there and there.row), f"ledger {ledger}"
            assert one.now(one.storage.held(ledger)) == other.now(other.storage.held(ledger))


def test_what_is_written_behind_a_lost_journal_is_no_old_news() -> None:
    """
    A crash left the directories with different marks, and the journal went: it goes on in front of one of them, and
    nothing of it is passed over.
    """
    bookie = Bookie(ledgers=2)
    mark = "/disk/ledgers0/current/quire.mark"
    marks = []
    for turn in range(2):
        bookie.storage.add(run_of(0, turn), "a")
        bookie.storage.add(run_of(1, turn), "b")
        bookie.commit()
        bookie.now(bookie.storage.flush())
        marks.append(bytes(bookie.disk.inodes[mark].data))
    disk = bookie.disk.killed()
    disk.inodes[mark] = Inode(marks[0])
    for path in [path for path in disk.inodes if path.startswith("/disk/journal0/")]:
        del disk.inodes[path]
    restoring.begin(disk, bookie.options, ["/disk/journal0"])
    again = Bookie(disk, ledgers=2)
    for ledger in (0, 1):
        assert again.storage.add(run_of(ledger, 2), "c") is Status.EOK
    again.commit()
    last = Bookie(again.disk.killed(), ledgers=2)
    assert [last.read(ledger, 2) for ledger in (0, 1)] == [body_of(0, 2), body_of(1, 2)]


@pytest.mark.parametrize("marked", [False, True])
def test_a_journal_is_added_to_a_bookie_that_was_killed(marked: bool) -> None:
    """
    Ledgers change their journals by it.  What they had in the old ones comes before what they get in the new ones,
    whoever is replayed first later.
    """
    first = Bookie(journals=2)
    if marked:
        first.storage.add(run_of(100, 0), "a")
        first.commit()
        first.now(first.storage.flush())
    assert first.storage.add(run_of(3, 0, v3=True), "b") is Status.EOK
    assert first.storage.add(run_of(5, 0, v3=True), "c") is Status.EOK
    first.commit()
    second = Bookie(first.disk.killed(), journals=3)
    assert second.storage.add(run_of(3, 1, v3=True), "d") is Status.EOK
    second.storage.delete_ledger(5)
    second.commit()
    assert (first.tokens[-2:], second.tokens) == (["b", "c"], ["d"])
    third = Bookie(second.disk.killed(), journals=3)
    assert [third.read(3, entry) for entry in range(2)] == [body_of(3, entry) for entry in range(2)]
    assert third.storage.ledger(5) is None
    third.close()


def test_a_mark_fences_without_limbo_and_takes_nothing_back() -> None:
    """
    A ledger that the metadata gives to others has its fence only; one that is in limbo or fenced already stays so; the
    fence is durable at once.
    """
    bookie = Bookie()
    for ledger in (1, 2):
        bookie.storage.add(run_of(ledger, 0), "a")
    bookie.storage.fence(2, KEY, "f")
    bookie.storage.set_limbo(2, True)
    bookie.commit()
    bookie.now(
        Deferred.fromCoroutine(
            bookie.storage.mark_limbo(
                {1: LedgerRow(KEY, fenced=True), 2: LedgerRow(KEY), 3: LedgerRow(KEY, fenced=True)}
            )
        )
    )
    for ledger in (1, 3):
        state = bookie.storage.ledger(ledger)
        assert state is not None
        assert state.fence_durable
    for one in (bookie, Bookie(bookie.disk.crashed(None))):
        assert one.storage.limbo_ledgers() == [2]
        assert [one.storage.add(run_of(ledger, 1), "no") for ledger in (1, 2, 3)] == [
            Status.EFENCED,
            Status.EREADONLY,
            Status.EFENCED,
        ]
        one.storage.set_limbo(2, False)
        assert one.storage.add(run_of(2, 1), "no") is Status.EFENCED


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
    EIO from one fdatasync: no token comes back, now or later, though later syncs would succeed; the owner is told once.
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
    The disk is full, but old segments can be given back: that is done at once, and nobody is refused; a start finds the
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


def test_nobody_is_refused_before_it_is_known_whether_a_checkpoint_helped() -> None:
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
    Parked adds are called again when the disk or the journal fails, and are refused then, so that nobody waits for
    ever.
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


def test_several_directories() -> None:
    """Ledgers are spread by id over journals and ledger directories; all of it comes back after a crash."""
    bookie = Bookie(journals=2, ledgers=3)
    for ledger in range(12):
        bookie.storage.add(run_of(ledger, 0, 4), ledger)
    bookie.storage.fence(5, KEY, "f")
    bookie.commit()
    assert sorted(map(str, bookie.tokens)) == sorted([*map(str, range(12)), "f"])
    for step in range(2):
        again = Bookie(bookie.disk.crashed(None), journals=2, ledgers=3)
        assert all(again.read(ledger, entry) == body_of(ledger, entry) for ledger in range(12) for entry in range(4))
        assert again.storage.add(run_of(5, 4), "x") is Status.EFENCED
        assert sorted(again.storage.ledger_ids()) == list(range(12))
        if not step:
            bookie.storage.flush()
    assert bookie.now(bookie.storage.stored_ledgers()) == array("q", range(12)), (
        "ascending, whatever directory they lie in"
    )
    assert len(bookie.disk.find(".log")) == 3
    assert bookie.storage.disk_usage() == (1 << 40, 1 << 39)
    with pytest.raises(StorageError, match="2 journals"):
        Bookie(bookie.disk.crashed(None), journals=1, ledgers=3)


def test_clean_stop_leaves_nothing_to_replay() -> None:
    """After `close` a start replays nothing, files are closed, and the next group continues the sequence."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    bookie.close()
    assert bookie.disk.open_files == 0
    assert bookie.storage.add(run_of(1, 3), "late") in (Status.EREADONLY, Status.EUA)
    again = Bookie(bookie.disk.crashed(None))
    assert again.storage.counters.replayed_groups == 0
    assert again.read(1, 2) == body_of(1, 2)
    again.storage.add(run_of(1, 3), "b")
    again.commit()
    third = Bookie(again.disk.crashed(None))
    assert third.read(1, 3) == body_of(1, 3)
    assert third.storage.counters.replayed_entries == 1


def test_a_directory_is_for_one_bookie() -> None:
    """A second storage on the same directory is refused with the lock file's name."""
    bookie = Bookie()
    with pytest.raises(StorageError, match=r"quire\.lock is locked"):
        Bookie(bookie.disk)


def test_a_lost_index_or_table_is_noticed() -> None:
    """An index or ledger table that vanished would turn every entry into a "no": the start refuses instead."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.close()
    for name in ("runs", "ledgers"):
        disk = bookie.disk.crashed(None)
        del disk.rows[f"/disk/ledgers0/current/{name}"]
        del disk.inodes[f"/disk/ledgers0/current/{name}/CURRENT"]
        with pytest.raises(StorageError, match=f"{name} is gone"):
            Bookie(disk)


def test_bit_rot_is_eio_never_no() -> None:
    """A flipped bit in an entry log gives EIO for that entry alone; a missing log gives EIO too."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 10), "a")
    bookie.commit()
    bookie.storage.flush()
    (path,) = bookie.disk.find(".log")
    size = len(body_of(1, 0)) + 4
    bookie.disk.flip(path, 1024 + 3 * size + 40)
    assert [bookie.read(1, entry) for entry in range(10)] == [
        body_of(1, entry) if entry != 3 else Status.EIO for entry in range(10)
    ]
    assert bookie.now(bookie.storage.read_run(1, 0, 10, 1 << 20)) == [body_of(1, entry) for entry in range(3)]
    assert bookie.now(bookie.storage.read_run(1, 3, 10, 1 << 20)) is Status.EIO
    assert bookie.storage.counters.read_errors >= 2
    lost = bookie.disk.killed()
    del lost.inodes[path]
    again = Bookie(lost)
    assert again.read(1, 0) is Status.EIO
    assert again.now(again.storage.read_run(1, 0, 10, 1 << 20)) is Status.EIO
    assert again.read(1, -1) is Status.EIO


@pytest.mark.parametrize("sizes", [[20] * 5, [20, 30, 40, 50, 60]])
def test_a_flipped_size_field_is_told(sizes: list[int]) -> None:
    """A scan of the log would stop there, so a read says so too: that entry is EIO, those before it are served."""
    bookie = Bookie()
    for entry, size in enumerate(sizes):
        bookie.storage.add(run_of(1, entry, size=size), entry)
    bookie.commit()
    bookie.storage.flush()
    (path,) = bookie.disk.find(".log")
    at = 1024 + sum(4 + len(body_of(1, entry, size)) for entry, size in enumerate(sizes[:2]))
    bookie.disk.flip(path, at + 3)
    again = Bookie(bookie.disk.killed())
    assert again.read(1, 2) is Status.EIO
    assert again.read(1, 3) == body_of(1, 3, sizes[3])
    assert again.now(again.storage.read_run(1, 0, 5, 1 << 20)) == [body_of(1, 0, sizes[0]), body_of(1, 1, sizes[1])]
    assert again.now(again.storage.read_run(1, 2, 5, 1 << 20)) is Status.EIO


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


def test_bad_bodies_and_lacs_are_refused() -> None:
    """A body without room for a LAC and a LAC body under 16 bytes are bad requests; nothing is kept of them."""
    bookie = Bookie()
    assert bookie.storage.add(AddRun(1, 0, [bytes(23)], KEY), "a") is Status.EBADREQ
    assert bookie.storage.add(AddRun(1, 0, [], KEY), "a") is Status.EBADREQ
    assert bookie.storage.write_lac(1, KEY, bytes(15), "a") is Status.EBADREQ
    assert bookie.storage.ledger(1) is None


def test_force_covers_all_before_even_with_sync_off() -> None:
    """With journal_sync_data off adds come back after the write; a force and a fence come back after a sync."""
    bookie = Bookie(journal_sync_data=False)
    bookie.storage.add(run_of(1, 0), "first")
    bookie.commit()
    bookie.disk.calls.clear()
    bookie.storage.add(run_of(1, 1), "a")
    bookie.commit()
    assert bookie.tokens == ["first", "a"]
    assert "sync" not in [call for call, _path in bookie.disk.calls]
    bookie.storage.force(1, "b")
    bookie.commit()
    assert bookie.tokens == ["first", "a", "b"]
    assert [call for call, _path in bookie.disk.calls].count("sync") == 1
    assert Bookie(bookie.disk.crashed(None), journal_sync_data=False).read(1, 1) == body_of(1, 1)
    synced = Bookie()
    synced.storage.force(8, "x")
    synced.commit()
    assert synced.tokens == ["x"]


def test_small_writes_in_any_order_against_a_model() -> None:
    """Adds in any order, overlaps, gaps, flushes, restarts: every read equals a plain dict's."""
    rng = random.Random(7)
    bookie = Bookie(entry_log_bytes_max=1 << 20)
    model: dict[tuple[int, int], bytes] = {}
    for step in range(300):
        ledger, first, count, size = rng.randrange(3), rng.randrange(60), rng.randrange(1, 20), rng.choice([10, 10, 33])
        bookie.storage.add(run_of(ledger, first, count, size=size, v3=rng.random() < 0.5), step)
        model.update({(ledger, entry): body_of(ledger, entry, size) for entry in range(first, first + count)})
        if rng.random() < 0.2:
            bookie.commit()
            bookie.storage.flush()
        if rng.random() < 0.03:
            bookie.commit()
            bookie = Bookie(bookie.disk.crashed(rng), entry_log_bytes_max=1 << 20)
        entry = rng.randrange(80)
        assert bookie.read(ledger, entry) == model.get((ledger, entry), Status.ENOENTRY)
    for ledger in range(3):
        have = decode(bookie.now(bookie.storage.entries(ledger)))
        assert [entry for first, count in have for entry in range(first, first + count)] == sorted(
            entry for known, entry in model if known == ledger
        )


def test_on_a_real_disk_with_threads(tmp_path: Any) -> None:
    """
    The same with RocksDB, a journal thread, the storage pool and a real reactor: adds, flushes, sequential reads,
    restart.
    """
    options = options_of(str(tmp_path), flush_interval_ms=10, write_cache_bytes_max=2 << 20)

    async def story() -> None:
        storage = Storage(options, reactor)
        tokens: list[object] = []
        waiting: list[Deferred[None]] = []

        def durable(group: list[object]) -> None:
            tokens.extend(group)
            for waiter in waiting[:]:
                waiting.remove(waiter)
                waiter.callback(None)

        storage.listen(Events(durable, lambda: durable([])))
        storage.start()
        entry = 0
        while entry < 20_000:
            status = storage.add(run_of(1, entry, 50, size=200, v3=entry % 100 == 0), entry)
            if status is None:
                waiter: Deferred[None] = Deferred()
                waiting.append(waiter)
                await waiter
                continue
            assert status is Status.EOK
            entry += 50
        while len(tokens) < 400:
            waiter = Deferred()
            waiting.append(waiter)
            await waiter
        assert tokens == list(range(0, 20_000, 50))
        await storage.flush()
        assert storage.counters.flushed_entries == 20_000
        assert storage.counters.journal_syncs >= storage.counters.journal_groups >= 1
        entry = 0
        while entry < 20_000:
            bodies = storage.read_run(1, entry, 700, 1 << 20)
            bodies = await bodies if isinstance(bodies, Deferred) else bodies
            assert isinstance(bodies, list)
            assert bodies[0] == body_of(1, entry, 200)
            assert bodies[-1] == body_of(1, entry + len(bodies) - 1, 200)
            entry += len(bodies)
        found = [storage.read(1, number) for number in range(1000, 1600)]  # pipelined
        bodies = [await body if isinstance(body, Deferred) else body for body in found]
        assert bodies == [body_of(1, number, 200) for number in range(1000, 1600)]
        assert storage.counters.reads_stored < 250, "a sequential reader's entries come in windows"
        await storage.close()
        again = Storage(options, reactor)
        again.start()
        assert again.counters.replayed_groups == 0
        body = again.read(1, -1)
        assert isinstance(body, Deferred)
        assert await body == body_of(1, 19_999, 200)
        await again.close()
        assert again.fault is None

    run(story)
    assert not [name for name in os.listdir(tmp_path / "journal0" / "current") if name.endswith(".tmp")]


def test_files_default_is_the_real_one(tmp_path: Any) -> None:
    """Without a disk given the storage stands on the real file system."""
    assert Files().names(str(tmp_path / "none")) == []


def test_without_journaled_data_a_kill_leaves_limbo() -> None:
    """
    Adds come back once the note is synced; after a kill the ledgers that had adds since the checkpoint say "unknown",
    others still say no.
    """
    bookie = Bookie(journal_write_data=False)
    for ledger in (1, 2):
        assert bookie.storage.add(run_of(ledger, 0, 5), ledger) is Status.EOK
    assert bookie.tokens == []
    bookie.commit()
    assert bookie.tokens == [1, 2]
    bookie.storage.fence(3, KEY, "f")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    bookie.storage.add(run_of(1, 5, 5, v3=True), "more")
    bookie.storage.add(run_of(1, 10, 5), "more still")
    bookie.commit()
    assert bookie.tokens[-2:] == ["more", "more still"]
    written = bookie.storage.counters.journal_bytes
    bookie.storage.add(run_of(1, 15, 5, size=3000), "nothing written")
    bookie.clock.advance(0)
    assert bookie.tokens[-1] == "nothing written"
    assert bookie.storage.counters.journal_bytes - written < 3000
    for disk in (bookie.disk.killed(), bookie.disk.crashed(None)):
        again = Bookie(disk, journal_write_data=False)
        assert again.read(1, 4) == body_of(1, 4)
        assert again.read(1, 5) is Status.EUNKNOWNLEDGERSTATE
        assert again.storage.add(run_of(1, 5), "no") is Status.EREADONLY
        assert again.read(2, 4) == body_of(2, 4)
        assert again.read(2, 5) is Status.ENOENTRY
        assert again.storage.add(run_of(3, 0), "no") is Status.EFENCED


def test_without_journaled_data_a_clean_stop_loses_nothing() -> None:
    """The last checkpoint holds it all, and no ledger is in limbo."""
    bookie = Bookie(journal_write_data=False)
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    bookie.close()
    again = Bookie(bookie.disk.crashed(None))
    assert again.read(1, 4) == body_of(1, 4)
    assert again.read(1, 5) is Status.ENOENTRY


def test_without_journaled_data_a_force_is_a_checkpoint() -> None:
    """What was acknowledged before it survives a power loss."""
    bookie = Bookie(journal_write_data=False)
    bookie.storage.add(run_of(1, 0, 5), "a")
    bookie.commit()
    bookie.storage.force(1, "forced")
    bookie.commit()
    assert bookie.tokens == ["a", "forced"]
    again = Bookie(bookie.disk.crashed(None))
    assert again.read(1, 4) == body_of(1, 4)


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
    One runs that began too early to free enough: the next one follows it at once, though nobody comes who would ask for
    it.
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
def test_one_group_larger_than_the_backlog_parks_nobody_for_good(sync: bool) -> None:
    """
    The segment that was made for it is larger than the bound by itself, and no checkpoint can free the one that is
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


def test_an_explicit_lac_waits_for_room_and_a_fence_does_not() -> None:
    """
    A full queue takes no explicit LAC, nor makes its ledger; fences pass, for each of them ends a ledger's trouble.
    """
    bookie = Bookie(journal_queue_bytes_max=1 << 20, write_cache_bytes_max=64 << 20)
    lac = struct.pack(">qq", 2, 5)
    for entry in range(5):
        bookie.storage.add(run_of(1, entry, size=300_000), entry)
    assert bookie.storage.write_lac(2, KEY, lac, "lac") is None
    assert bookie.storage.ledger(2) is None
    assert bookie.storage.fence(3, KEY, "fence") is Status.EOK
    bookie.commit()
    assert bookie.relieved == 1
    assert bookie.storage.write_lac(2, KEY, lac, "lac") is Status.EOK
    bookie.commit()
    assert bookie.tokens[-2:] == ["fence", "lac"]
    assert bookie.storage.explicit_lac(2) == lac


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


@pytest.mark.parametrize("sizes", [[100], [100, 200, 300]])
def test_what_a_read_costs(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A random read: one index seek, one read of the entry log.  A sequential reader: one of each for every run, up to 256
    entries.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for entry in range(1024):
        bookie.storage.add(run_of(1, entry, size=sizes[entry % len(sizes)]), entry)
    bookie.commit()
    bookie.storage.flush()
    (log,) = bookie.disk.find(".log")
    again = Bookie(bookie.disk.crashed(None))
    calls: list[str] = []
    rows = again.disk.rows["/disk/ledgers0/current/runs"]
    floor, pread = rows.floor, again.disk.pread

    def counted_floor(key: bytes) -> tuple[bytes, bytes] | None:
        calls.append("seek")
        return floor(key)

    def counted_pread(handle: int, count: int, offset: int) -> bytes:
        calls.append("read")
        return pread(handle, count, offset)

    monkeypatch.setattr(rows, "floor", counted_floor)
    monkeypatch.setattr(again.disk, "pread", counted_pread)
    assert log
    for entry in (700, 3, 1023, 256):
        calls.clear()
        assert again.read(1, entry) == body_of(1, entry, sizes[entry % len(sizes)])
        assert calls == ["seek", "read"]
    calls.clear()
    for entry in range(1024):
        assert again.read(1, entry) == body_of(1, entry, sizes[entry % len(sizes)])
    assert calls.count("read") <= 8
    assert calls.count("seek") <= 16
