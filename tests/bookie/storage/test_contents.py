"""What journaled blocks change in memory, now and at a replay; what deletions and watchers see of it."""

from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.apache import journal
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal import format as journal_format
from quire.bookie.journal.format import BODIES, FENCE, LIMBO, UNJOURNALED, join_bodies
from quire.bookie.storage.contents import ARRIVED_MAX, Contents
from quire.bookie.storage.ledgers import UNFENCED_S, DeletedLedgers, Ledgers, StoredLedger
from quire.bookie.storage.lookup import Lookup
from quire.bookie.storage.parts import StorageCounters
from quire.bookie.storage.write_cache import WriteCache
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import DIGEST, KEY, OTHER_KEY, Bookie, body_of, run_of
from tests.rows.fakes import DictRows

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
    """The copies were in memory only: the end of limbo in the journal no longer counts."""
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


class Forgotten(Lookup):
    """Notes which ledgers' windows are forgotten."""

    def __init__(self) -> None:
        self.ledgers: list[int] = []

    def forget(self, ledger: int) -> None:
        self.ledgers.append(ledger)


class Scene:
    """Contents with nothing around them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cache = WriteCache(1 << 20)
        self.ledgers = Ledgers({}.get)
        self.forgotten = Forgotten()
        self.counters = StorageCounters()
        parts = SimpleNamespace(cache=self.cache, ledgers=self.ledgers, counters=self.counters)
        self.contents = Contents(parts, self.forgotten, DeletedLedgers(self.clock.seconds))

    def insert(self, state: StoredLedger, first: int, count: int = 1) -> None:
        self.contents.insert(state, first, [body_of(state.id, entry) for entry in range(first, first + count)], 100)


def test_what_was_read_ahead_is_forgotten_only_where_it_may_be_old() -> None:
    """Not when a ledger that is wholly known grows at its end."""
    scene = Scene()
    state = scene.contents.create(1, KEY)
    scene.insert(state, 0, 5)
    scene.insert(state, 5)
    assert (state.last, state.lac, scene.forgotten.ledgers) == (5, 4, [])
    scene.insert(state, 3)
    assert (state.last, state.lac, scene.forgotten.ledgers) == (5, 4, [1])
    state.surveyed = False
    scene.insert(state, 9)
    assert scene.forgotten.ledgers == [1, 1]
    assert scene.cache.get(1, 9) == body_of(1, 9)


def test_a_deleted_ledger_is_refused_for_a_while() -> None:
    """For longer when it was fenced; not when only this copy went; and one that was created again is none any more."""
    scene = Scene()
    contents = scene.contents
    for ledger in (1, 2, 3):
        contents.create(ledger, KEY).fenced = ledger == 2
    contents.drop(1)
    contents.drop(2)
    contents.drop(3, remembered=False)
    assert [contents.refuses(ledger) for ledger in (1, 2, 3, 4)] == [True, True, False, False]
    scene.clock.advance(UNFENCED_S)
    assert [contents.refuses(ledger) for ledger in (1, 2)] == [False, True]
    contents.create(2, KEY)
    assert not contents.refuses(2)


def test_ledgers_that_arrive_are_named_once() -> None:
    """So many at most."""
    scene = Scene()
    for ledger in range(ARRIVED_MAX + 5):
        scene.contents.create(ledger, KEY)
    assert scene.contents.take_arrived() == set(range(ARRIVED_MAX))
    assert scene.contents.take_arrived() == set()
    scene.contents.create(-1, KEY)
    assert scene.contents.take_arrived() == {-1}


def test_a_block_of_an_unknown_kind_is_an_error() -> None:
    """A newer version wrote it; what it means may not be passed over."""
    with pytest.raises(StorageError, match="unknown kind 77 for ledger 5"):
        Scene().contents.apply(b"", 77, 0, 5, 0, 0)


def test_blocks_of_a_ledger_that_is_not_known_create_none() -> None:
    """Fences, limbo and bodies name a ledger whose key came before; without it the ledger was deleted."""
    scene = Scene()
    for kind, data in ((FENCE, b""), (LIMBO, b"\1"), (UNJOURNALED, b""), (BODIES, join_bodies([body_of(1, 0)]))):
        scene.contents.apply(data, kind, int(kind == BODIES), 1, 0, len(data))
    assert scene.ledgers.states == {}
    assert not scene.cache.holds(1)
    scene.contents.apply(KEY, journal_format.KEY, 0, 1, 0, len(KEY))
    data = join_bodies([body_of(1, 0)])
    scene.contents.apply(data, BODIES, 1, 1, 0, len(data))
    assert scene.cache.get(1, 0) == body_of(1, 0)
    assert scene.counters.replayed_entries == 1


def test_a_key_of_apaches_journal_that_contradicts_its_index_is_an_error() -> None:
    """The directories are not those of one bookie; a ledger without a key takes the one that comes."""
    contents = Scene().contents
    contents.apply_apache(1, journal.FENCE, [])
    contents.apply_apache(1, journal.KEY, [KEY])
    contents.apply_apache(1, journal.KEY, [KEY])
    with pytest.raises(StorageError, match="another master key for ledger 1"):
        contents.apply_apache(1, journal.KEY, [OTHER_KEY])
