"""The writes of a storage: order of checks, keys, fences, explicit LACs, limbo, forces."""

import errno
import random
import struct
import threading
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.storage.storage import Storage
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from quire.rows.files import Files
from tests.bookie.fakes.disk import (
    DIGEST,
    KEY,
    OTHER_KEY,
    Bookie,
    Events,
    HeldWorkers,
    body_of,
    options_of,
    run_of,
)
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


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


def test_a_fence_that_is_not_durable_is_not_acknowledged(tmp_path: Any) -> None:
    """While its sync takes long, neither the one who set it nor one who came later gets a token back."""

    class SlowFiles(Files):
        def __init__(self) -> None:
            self.begun, self.go_on = threading.Event(), threading.Event()
            self.go_on.set()

        def syncs_writes(self, handle: int) -> bool:
            return False

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


def test_bad_bodies_and_lacs_are_refused() -> None:
    """A body without room for a LAC and a LAC body under 16 bytes are bad requests; nothing is kept of them."""
    bookie = Bookie()
    assert bookie.storage.add(AddRun(1, 0, [bytes(23)], KEY), "a") is Status.EBADREQ
    assert bookie.storage.add(AddRun(1, 0, [], KEY), "a") is Status.EBADREQ
    assert bookie.storage.write_lac(1, KEY, bytes(15), "a") is Status.EBADREQ
    assert bookie.storage.ledger(1) is None


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


def test_a_hint_is_kept_only_if_it_is_news_and_not_in_the_journal() -> None:
    """A LAC that is known, or lower, changes nothing; a wrong key, an unknown ledger and a short body are refused."""
    bookie = Bookie()
    woken: list[int] = []
    bookie.storage.add(run_of(1, 0, 3), "a")
    bookie.commit()
    state = bookie.storage.ledger(1)
    assert state is not None
    state.watch(lambda: woken.append(state.lac))
    queued = bookie.storage.journals[0].queued_bytes
    assert bookie.storage.hint_lac(1, KEY, DIGEST.lac_body(1, 2)) is Status.EOK
    assert bookie.storage.hint_lac(1, KEY, DIGEST.lac_body(1, 1)) is Status.EOK
    assert (woken, bookie.storage.explicit_lac(1)) == ([2], DIGEST.lac_body(1, 2))
    assert bookie.storage.journals[0].queued_bytes == queued
    assert bookie.storage.hint_lac(1, OTHER_KEY, DIGEST.lac_body(1, 5)) is Status.EUA
    assert bookie.storage.hint_lac(2, KEY, DIGEST.lac_body(2, 5)) is Status.ENOLEDGER
    assert bookie.storage.hint_lac(1, KEY, bytes(15)) is Status.EBADREQ
    assert bookie.storage.lac(1) == 2


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


def test_without_journaled_data_a_force_that_comes_to_nothing_is_refused() -> None:
    """
    Where the checkpoint can't be made, or the ledger's directory fails in it; it is made for what is in the others.
    """
    full = Bookie(journal_write_data=False)
    full.storage.add(run_of(1, 0, 5), "a")
    full.commit()
    full.disk.free = 1000
    assert full.storage.force(1, "forced") is Status.EOK
    full.commit()
    full.disk.free = 1 << 39
    full.storage.force(1, "again")
    full.commit()
    assert (full.refused, full.tokens) == (["forced"], ["a", "again"])

    def fails(call: str, path: str) -> None:
        if call == "sync" and path.startswith("/disk/ledgers1"):
            raise OSError(errno.EIO, "injected", path)

    bookie = Bookie(journal_write_data=False, ledgers=2)
    for ledger in (0, 1):
        bookie.storage.add(run_of(ledger, 0, 5), f"{ledger} added")
        bookie.commit()
    bookie.disk.before = fails
    for ledger in (1, 0):
        assert bookie.storage.force(ledger, f"{ledger} forced") is Status.EOK
    bookie.commit()
    assert bookie.refused == ["1 forced"]
    assert bookie.tokens == ["0 added", "1 added", "0 forced"]


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


def test_a_fence_that_comes_while_many_are_marked_waits_for_the_journal() -> None:
    """And so does the next one: the checkpoint that makes the marks durable began before them."""
    workers = HeldWorkers()
    bookie = Bookie(workers=workers)
    storage = bookie.storage
    storage.add(run_of(1, 0), "a")
    bookie.commit()
    marked = Deferred.fromCoroutine(storage.mark_limbo({1: LedgerRow(b"", limbo=True)}))

    def before(call: str, _path: str) -> None:
        if call == "sync rows" and not storage.ledger(1).fenced:
            assert storage.fence(1, KEY, "first") is Status.EOK

    bookie.disk.before = before
    for _ in range(10):
        workers.release()
    bookie.disk.before = lambda call, path: None
    assert marked.called
    assert not storage.ledger(1).fence_durable, "else the next one would be answered in the next turn"
    assert storage.fence(1, KEY, "second") is Status.EOK
    assert bookie.tokens == ["a"]
    bookie.commit()
    assert bookie.tokens == ["a", "first", "second"]
    assert Bookie(bookie.disk.crashed(None)).storage.ledger(1).fenced


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
