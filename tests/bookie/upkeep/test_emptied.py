"""
A store that lists no ledger at all: the space of a cluster's last ledgers comes back after two rounds of garbage
collection, and a store that is wrong, half read, made anew or set back costs nothing; in all three kinds of stores.
"""

from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.bookie.storage.parts import StorageCounters
from quire.bookie.upkeep.deletions import APART_S, PAGE, Denials, denied_twice, why_kept
from quire.bookie.upkeep.garbage import Garbage
from quire.bookie.upkeep.store_guard import LOOK_S, StoreGuard
from quire.bookie.upkeep.store_notes import bytes_of, note_of, position_of
from quire.metadata.clock import Timer
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.protocol.errors import MetaStore
from quire.rows.files import Files
from tests.bookie.fakes.disk import options_of
from tests.bookie.fakes.storage import FakeLedger, FakeSpace, FakeStorage
from tests.bookie.upkeep.test_garbage import Disk
from tests.metadata.made import ledger as metadata
from tests.metadata.stories import Place
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

Story = Callable[[], Awaitable[None]]


class Hurried(Clock):
    """Waits of less than a second end at once, longer ones never; `rest` fires when a round waits for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.rest: Deferred[None] = Deferred()

    def callLater(self, delay: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Timer:  # type: ignore[override]
        if delay < 1:
            made: Timer = reactor.callLater(0, fn, *args, **kwargs)  # type: ignore[attr-defined]
            return made
        if delay > LOOK_S:
            reactor.callLater(0, self._rested)  # type: ignore[attr-defined]
        return super().callLater(delay, fn, *args, **kwargs)

    def _rested(self) -> None:
        rest, self.rest = self.rest, Deferred()
        rest.callback(None)


class Bookie:
    """The guard and the garbage collection of one, before a real store; each construction is a start."""

    def __init__(self, path: Path, store: MetadataStore, cluster: str, *held: int, name: str = "b1") -> None:
        self.clock = Hurried()
        self.store = store
        self.storage = FakeStorage()
        self.storage.counters = StorageCounters()  # type: ignore[assignment]  # the real ones
        self.hold(*held)
        directory = path / name
        (directory / "current").mkdir(parents=True, exist_ok=True)
        self.guard = StoreGuard(self.clock, Files(), lambda: [str(directory)], self.storage, self.store, name, cluster)
        parts = (self.clock, options_of(), Disk(), self.storage, FakeSpace(), self.store, self.guard)
        self.garbage = Garbage(*parts)  # type: ignore[arg-type]  # fakes

    def hold(self, *ledgers: int) -> None:
        self.storage.kept.update({ledger: FakeLedger(b"") for ledger in ledgers})

    async def started(self) -> "Bookie":
        await self.guard.start()
        return self

    async def collect(self, rounds: int = 1, apart: float = APART_S) -> list[int]:
        """Rounds, each so long after what was before; what is left."""
        for _ in range(rounds):
            self.clock.rightNow += apart
            rest = self.clock.rest
            self.garbage.force()
            await rest
        return sorted(self.storage.kept)

    @property
    def problem(self) -> str:
        return self.garbage.problem or ""


async def made(store: MetadataStore, count: int) -> list[int]:
    ids = sorted([await store.new_ledger_id() for _ in range(count)])
    for ledger in ids:
        await store.create_ledger(ledger, metadata())
    return ids


async def gone(store: MetadataStore, *ledgers: int) -> None:
    for ledger in ledgers:
        await store.delete_ledger(ledger)


async def cluster_of(store: MetadataStore) -> str:
    return (await store.cluster()).instance_id


async def another(place: Place, cluster: str) -> MetadataStore:
    """A new, empty store of the same kind beside it, which says that it is the same cluster."""
    root, _, name = place.uri.rpartition("/")
    store = await open_store(reactor, f"{root}/other-{name}")
    place.opened.append(store)
    await store.init_cluster()
    said = await store.cluster()
    store.cluster = lambda: succeed(said.__class__(cluster, said.layout))  # type: ignore[method-assign]
    return store


def test_the_last_ledger_is_deleted_and_its_space_is_back(place: Place, tmp_path: Path) -> None:
    """The first round says what it waits for, the second one deletes; nothing is left to complain of."""

    async def story() -> None:
        store = await place.ready()
        ids = await made(store, 3)
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids).started()
        assert await bookie.collect() == ids
        assert bookie.problem == ""
        await gone(store, ids[0])
        assert await bookie.collect() == ids[1:]
        await gone(store, *ids)
        assert await bookie.collect() == ids[1:]
        assert "lists no ledger at all, but 2 are stored here" in bookie.problem
        assert await bookie.collect() == []
        assert bookie.problem == ""
        assert not bookie.guard.is_behind
        assert bookie.storage.counters.gc_ledgers_deleted == 3
        newer = await made(store, 1)
        bookie.hold(*newer)
        assert await bookie.collect() == newer
        await gone(store, *newer)
        assert await bookie.collect() == newer, "a cluster that is emptied again is asked twice again"
        assert await bookie.collect() == []

    run(story)


def test_rounds_close_together_count_as_one(place: Place, tmp_path: Path) -> None:
    """However often a round is forced; what was deleted meanwhile waits for its own second round."""

    async def story() -> None:
        store = await place.ready()
        ids = await made(store, 3)
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids[:2]).started()
        await gone(store, *ids)
        assert await bookie.collect() == ids[:2]
        bookie.hold(ids[2])
        assert await bookie.collect(3, APART_S / 4) == ids
        assert await bookie.collect(1, APART_S / 4) == ids[2:]
        assert "but 1 are stored here" in bookie.problem
        assert await bookie.collect() == []

    run(story)


def test_an_empty_new_store_of_the_same_id(place: Place, tmp_path: Path) -> None:
    """
    It has not given the ids: nothing goes, however often it is asked, also when it has given some of them since, and
    also by a bookie that never looked before.  No id is given twice.
    """

    async def story() -> None:
        store = await place.ready()
        cluster = await cluster_of(store)
        ids = await made(store, 5)
        await (await Bookie(tmp_path, store, cluster, *ids).started()).guard.stop()
        new = await another(place, cluster)
        given = await made(new, 2)
        await gone(new, *given)
        stranger = await Bookie(tmp_path, new, cluster, *ids, name="b2").started()
        known = await Bookie(tmp_path, new, cluster, *ids).started()
        for bookie in (stranger, known):
            assert await bookie.collect(3) == ids
            assert bookie.guard.is_behind
            assert "was set back" in bookie.problem
        (newer,) = await made(new, 1)
        assert newer > ids[-1] or (newer not in ids and not place.in_order)

    run(story)


def test_a_store_that_was_set_back_before_all_its_ledgers(place: Place, tmp_path: Path) -> None:
    """
    A backup without ledgers that has given ids is behind; accepted by an operator it is believed, after two rounds.
    """

    async def story() -> None:
        store = await place.ready()
        cluster = await cluster_of(store)
        old = await another(place, cluster)
        await gone(store, *await made(store, 3))
        await gone(old, *await made(old, 3))
        ids = await made(store, 2)
        await (await Bookie(tmp_path, store, cluster, *ids).started()).guard.stop()
        bookie = await Bookie(tmp_path, old, cluster, *ids).started()
        assert await bookie.collect(3) == ids
        assert bookie.guard.is_behind
        noted = await old.read_set_back()
        note = note_of(noted)
        await old.raise_ledger_ids(position_of(note["ledgers"]))
        assert await old.swap_set_back(noted, bytes_of({**note, "accepted": True}))
        assert await bookie.collect() == ids, "the round in which the bookie hears of it is the first"
        assert await bookie.collect() == []

    run(story)


@pytest.mark.parametrize("spoilt", ["denies", "one exists", "reads fail", "listing breaks off", "another cluster"])
def test_a_store_that_is_half_read(place: Place, tmp_path: Path, spoilt: str) -> None:
    """
    What a round finds that is not whole counts for nothing, and makes the round before it count for nothing; every
    ledger is there after it.
    """

    async def story() -> None:
        store = await place.ready()
        ids = await made(store, 4)
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids).started()
        assert await bookie.collect() == ids
        deny(store, ids)
        assert await bookie.collect() == ids
        if spoilt == "denies":
            restore(store)
        elif spoilt == "one exists":
            deny(store, ids[:2])
        elif spoilt == "reads fail":
            store.absent_ledgers = lambda _: fail(MetaStore("away"))  # type: ignore[method-assign]
        elif spoilt == "listing breaks off":
            store.ledger_ids = lambda *_: fail(MetaStore("away"))  # type: ignore[method-assign]
        else:
            whose = await store.cluster()
            store.cluster = lambda: succeed(whose.__class__("x", ""))  # type: ignore[method-assign]
        # else a store that counts deletions is not listed again, since there was none
        store.ledger_deletions = lambda: succeed(None)  # type: ignore[method-assign]
        assert await bookie.collect() == ids
        assert bool(bookie.problem) == (spoilt != "denies")
        restore(store)
        store.ledger_deletions = lambda: succeed(None)  # type: ignore[method-assign]
        deny(store, ids)
        assert await bookie.collect() == ids, "what was denied before that is forgotten"
        restore(store)
        assert await bookie.collect() == ids
        assert bookie.problem == ""

    run(story)


def deny(store: MetadataStore, ledgers: list[int]) -> None:
    """The store lists nothing, and says of these that they do not exist."""
    store.ledger_ids = lambda *_: succeed([])  # type: ignore[method-assign]
    store.absent_ledgers = lambda asked: succeed([each for each in asked if each in ledgers])  # type: ignore[method-assign]


def restore(store: MetadataStore) -> None:
    """The store says what is true again."""
    for name in ("ledger_ids", "absent_ledgers", "cluster", "ledger_deletions"):
        store.__dict__.pop(name, None)


def test_ids_that_callers_chose_stay_while_there_is_no_ledger(place: Place, tmp_path: Path) -> None:
    """
    The store can't show that it is not older than they are; those that it gave go, the others with the next ledger that
    it lists.
    """

    async def story() -> None:
        store = await place.ready()
        ids = await made(store, 2)
        chosen = [ids[-1] + 500, ids[-1] + (1 << 33)]
        for ledger in chosen:
            await store.create_ledger(ledger, metadata())
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids, *chosen).started()
        assert await bookie.collect() == ids + chosen
        await gone(store, *ids, *chosen)
        assert await bookie.collect() == ids + chosen
        assert await bookie.collect(3) == chosen
        assert not bookie.guard.is_behind
        assert "2 whose ids it may not have given stay" in bookie.problem
        newer = await made(store, 1)
        bookie.hold(*newer)
        assert await bookie.collect() == newer
        assert bookie.problem == ""

    run(story)


def test_short_ids_lie_below_the_long_ones(place: Place, tmp_path: Path) -> None:
    """A cluster that has used up its short ids gives long ones; both were given."""

    async def story() -> None:
        store = await place.ready()
        if not place.in_order:
            return
        ids = await made(store, 2)
        await store.raise_ledger_ids(1 << 32 | 3)
        ids += await made(store, 2)
        assert ids[-1] > 1 << 32
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids).started()
        await gone(store, *ids)
        assert await bookie.collect() == ids
        assert await bookie.collect() == []

    run(story)


def test_a_start_forgets_what_was_denied(memory_place: Place, tmp_path: Path) -> None:
    """Two rounds of one life of the bookie are needed."""

    async def story() -> None:
        store = await memory_place.ready()
        cluster = await cluster_of(store)
        ids = await made(store, 2)
        await gone(store, *ids)
        for _ in range(3):
            bookie = await Bookie(tmp_path, store, cluster, *ids).started()
            assert await bookie.collect() == ids
            await bookie.guard.stop()
        assert await bookie.collect() == []

    run(story)


def test_another_bookie_that_saw_more_stops_it(memory_place: Place, tmp_path: Path) -> None:
    """What one of them notes between the two rounds is read by the other one before it deletes."""

    async def story() -> None:
        store = await memory_place.ready()
        cluster = await cluster_of(store)
        old = await another(memory_place, cluster)
        await made(store, 9)
        more = await Bookie(tmp_path, store, cluster, name="b2").started()
        await more.guard.stop()
        given = await made(old, 2)
        await gone(old, *given)
        bookie = await Bookie(tmp_path, old, cluster, *given).started()
        assert await bookie.collect() == given
        await Bookie(tmp_path, old, cluster, name="b2").started()
        assert await bookie.collect(2) == given
        assert bookie.guard.is_behind

    run(story)


def test_every_ledger_is_read_at_the_rate_that_is_allowed(memory_place: Place, tmp_path: Path) -> None:
    """In both rounds, and again before it is deleted; many of them, and a stop ends a round in the midst."""

    async def story() -> None:
        store = await memory_place.ready()
        ids = await made(store, PAGE + 50)
        await gone(store, *ids)
        bookie = await Bookie(tmp_path, store, await cluster_of(store), *ids).started()
        read: list[int] = []
        absent = store.absent_ledgers

        def reading(asked: list[int]) -> "Deferred[list[int]]":
            read.extend(asked)
            return absent(asked)

        store.absent_ledgers = reading  # type: ignore[method-assign,assignment]
        assert await bookie.collect() == ids
        assert read == ids
        assert await bookie.collect() == []
        assert read == ids * 3
        bookie.hold(*ids)
        await gone(store, *await made(store, 1))  # or the store is not listed at all
        rest = bookie.clock.rest
        bookie.clock.rightNow += APART_S
        bookie.garbage.force()
        await bookie.garbage.stop()
        assert not rest.called
        assert bookie.problem == "the bookie stops"

    run(story)


def test_denied_twice() -> None:
    """Both rounds have to deny it, apart enough; a clock that was set back begins again."""

    def at(began: float, *ledgers: int) -> Denials:
        return Denials(began, array("q", ledgers))

    assert denied_twice(None, at(5, 1, 2)) == ([], at(5, 1, 2))
    assert denied_twice(at(5, 1, 2), at(6, 2, 3)) == ([], at(5, 2))
    assert denied_twice(at(5, 1, 2), at(5 + APART_S, 2, 3)) == ([2], at(5 + APART_S, 3))
    assert denied_twice(at(5, 1, 2), at(4, 1, 2)) == ([], at(4, 1, 2))


def test_why_they_are_kept() -> None:
    """The store, how many wait for another round, and how many for a ledger."""
    both = why_kept("zk://a/b", 5, 3, 2)
    assert both.startswith("zk://a/b lists no ledger at all, but 5 are stored here: 3 that it has given go in a round")
    assert both.endswith("; 2 whose ids it may not have given stay until it has a ledger again")
    assert ";" not in why_kept("zk://a/b", 3, 3, 0) + why_kept("zk://a/b", 2, 0, 2)
