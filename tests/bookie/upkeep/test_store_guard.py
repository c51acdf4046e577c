"""
A metadata store that was set back: a bookie notices, says so, deletes nothing, and goes on when an operator has
accepted it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, eventAsText, globalLogPublisher

from quire.bookie.upkeep.garbage import Garbage
from quire.bookie.upkeep.store_guard import (
    ARRIVED_S,
    DOUBTED_RAISED_MAX,
    DOUBTS_MAX,
    GIVEN_MAX,
    LOOK_S,
    PASSED_MAX,
    RAISED_MAX,
    StoreGuard,
    joined,
)
from quire.bookie.upkeep.store_notes import Seen, accepted, bytes_of, note_of, position_of, read_seen
from quire.metadata.ledgers.layout import Layout
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.position import Position
from quire.metadata.store import LEDGER_ID_MAX, Cluster, SetBack, WrongCluster
from quire.protocol.errors import MetaStore
from quire.rows.files import Files
from tests.bookie.fakes.disk import options_of
from tests.bookie.fakes.storage import FakeLedger, FakeSpace, FakeStorage
from tests.bookie.upkeep.test_garbage import Disk
from tests.metadata import stored
from tests.metadata.made import ledger as metadata
from tests.metadata.stored import COOKIES, meaning, note, put

# SPDX-License-Identifier: Apache-2.0


def now(deferred: "Deferred[object]") -> object:
    """The result of something that waits for nothing; raises its error."""
    results: list[object] = []
    deferred.addBoth(results.append)
    (result,) = results
    if hasattr(result, "raiseException"):
        result.raiseException()
    return result


class Scene:
    """A store in memory, and bookies that hold every ledger of it."""

    def __init__(self, path: Path, layout: Layout | None = None) -> None:
        self.path = path
        self.clock = Clock()
        self.shared = MemoryCluster("set-back")
        self.store = MemoryStore(self.clock, self.shared, layout=layout)
        now(self.store.init_cluster())
        self.storages: dict[str, FakeStorage] = {}

    def ledgers(self, count: int) -> list[int]:
        made = []
        for _ in range(count):
            made.append(now(self.store.new_ledger_id()))
            now(self.store.create_ledger(made[-1], metadata()))  # type: ignore[arg-type]
        return made  # type: ignore[return-value]

    def bookie(self, name: str = "b1", *held: int) -> "Bookie":
        return Bookie(self, name, held)

    def backup(self) -> stored.Backup:
        return stored.backup(self.shared)

    def put_back(self, saved: stored.Backup) -> None:
        stored.put_back(self.shared, saved)

    def accept(self) -> None:
        """What the operator's command does."""
        old = now(self.store.read_set_back())
        note = note_of(old)  # type: ignore[arg-type]
        now(self.store.raise_ledger_ids(position_of(note["ledgers"])))
        assert now(self.store.swap_set_back(old, bytes_of(accepted(note))))  # type: ignore[arg-type]


class Bookie:
    """Guard and garbage collection of one; each construction is a start on the same directory."""

    def __init__(self, scene: Scene, name: str, held: tuple[int, ...]) -> None:
        self.scene = scene
        self.directory = scene.path / name
        (self.directory / "current").mkdir(parents=True, exist_ok=True)
        self.storage = scene.storages.setdefault(name, FakeStorage())
        self.storage.kept.update({ledger: FakeLedger(b"") for ledger in held})
        self.guard = StoreGuard(
            scene.clock,
            Files(),
            lambda: [str(self.directory)],
            self.storage,
            scene.store,
            name,
            str(stored.instance_id(scene.shared)),
            lambda: self.garbage.force(minor=False, major=False),
        )
        # a fake
        parts = (scene.clock, options_of(), Disk(), self.storage, FakeSpace(), scene.store, self.guard)
        self.garbage = Garbage(*parts)  # type: ignore[arg-type]
        now(Deferred.fromCoroutine(self.guard.start()))

    def hold(self, *ledgers: int) -> None:
        self.storage.kept.update({ledger: FakeLedger(b"") for ledger in ledgers})

    def collect(self, rounds: int = 2) -> list[int]:
        """Rounds of garbage collection; what is left."""
        for _ in range(rounds):
            self.garbage.force()
            for _ in range(20):
                self.scene.clock.advance(0.02)
        return sorted(self.storage.kept)

    def stop(self) -> None:
        now(Deferred.fromCoroutine(self.guard.stop()))

    @property
    def seen(self) -> Seen | None:
        return read_seen(Files(), [str(self.directory)], str(stored.instance_id(self.scene.shared)))


@contextmanager
def logged() -> Iterator[list[str]]:
    events: list[str] = []

    def observe(event: dict[str, object]) -> None:
        if str(event["log_level"]) == "LogLevel.critical" or getattr(event["log_level"], "name", "") == "critical":
            events.append(str(event.get("reason")))

    globalLogPublisher.addObserver(observe)
    try:
        yield events
    finally:
        globalLogPublisher.removeObserver(observe)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_store_that_gives_no_answer_is_told_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, one line when it answers again, and the seconds between for whoever watches."""
    bookie = scene.bookie("b1", *scene.ledgers(1))
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        for _ in range(30):
            scene.clock.advance(1)
            assert bookie.guard.silent_seconds <= 11
        assert events == []
        monkeypatch.setattr(scene.store, "progress", lambda: fail(MetaStore("memory://set-back did not answer")))
        for _ in range(60):
            scene.clock.advance(1)
        assert 60 <= bookie.guard.silent_seconds <= 71
        assert bookie.guard.status()["seconds_since_answer"] == round(bookie.guard.silent_seconds)
        monkeypatch.undo()
        for _ in range(11):
            scene.clock.advance(1)
        assert bookie.guard.silent_seconds <= 11
    finally:
        globalLogPublisher.removeObserver(events.append)
    told = [(event["log_level"].name, eventAsText(event, includeTimestamp=False)) for event in events]
    assert [level for level, _ in told] == ["warn", "info"]
    assert "memory://set-back did not answer" in told[0][1]
    assert "answers again, after " in told[1][1]


def test_an_old_backup_costs_nothing_until_it_is_accepted(scene: Scene) -> None:
    """
    Two rounds, a start in between: all is there, ids go on above, store and command are named; accepted, what the store
    lacks goes.
    """
    old = scene.ledgers(3)
    saved = scene.backup()
    new = scene.ledgers(4)
    bookie = scene.bookie("b1", *old, *new)
    assert bookie.collect() == old + new
    assert bookie.guard.behind is None
    bookie.stop()
    changes = scene.shared.nodes.changes
    scene.put_back(saved)
    with logged() as critical:
        again = scene.bookie()
        assert again.collect() == old + new
    assert len(critical) == 1
    for text in (critical[0], again.garbage.problem, again.guard.behind):
        assert text is not None
        assert "memory://set-back" in text
        assert "quire metadata set-back" in text
    assert now(scene.store.new_ledger_id()) == new[-1] + 1
    now(Deferred.fromCoroutine(again.guard.look()))
    assert note_of(note(scene.shared))["bookies"] == {"b1": {"changes": changes, "ledgers": 8, "unknown": 4}}
    again.stop()
    last = scene.bookie()
    assert last.collect() == old + new, "it is behind after a start, too"
    scene.accept()
    assert last.collect() == old
    assert (last.guard.behind, last.garbage.problem) == (None, None)
    assert last.seen is not None
    assert (last.seen.behind, last.seen.accepted, last.seen.note) == (None, 1, 1)


def test_ledgers_newer_than_the_last_look_show_it_by_their_ids(scene: Scene) -> None:
    """The backup was made after the bookie looked last, and put back before it looked again."""
    old = scene.ledgers(2)
    bookie = scene.bookie("b1", *old)
    saved = scene.backup()
    new = scene.ledgers(2)
    bookie.hold(*new)
    scene.put_back(saved)
    assert bookie.collect() == old + new
    assert "quire metadata set-back" in str(bookie.garbage.problem)
    assert now(scene.store.new_ledger_id()) == new[-1] + 1


def test_ids_above_what_was_seen_are_raised_over_too(scene: Scene) -> None:
    """
    A ledger came that was not looked for before the bookie went down; the store is behind by its counter of changes.
    """
    saved = scene.backup()
    scene.ledgers(2)
    bookie = scene.bookie("b1")
    (new,) = scene.ledgers(1)
    bookie.hold(new)
    scene.put_back(saved)
    stored.set_next_ledger(scene.shared, 2)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert bookie.guard.is_behind
    assert bookie.collect() == [new]
    assert now(scene.store.new_ledger_id()) == new + 1


def test_ledgers_that_just_came_show_it_at_once(scene: Scene) -> None:
    """
    Without garbage collection: the bookie looks a second after a ledger came that is new to it.  One that exists was
    named by its caller.
    """
    bookie = scene.bookie()
    now(scene.store.create_ledger(40, metadata()))
    bookie.storage.arrived.add(40)
    scene.clock.advance(ARRIVED_S)
    assert not bookie.guard.is_behind
    saved = scene.backup()
    bookie.storage.arrived.update(scene.ledgers(2))
    scene.put_back(saved)
    now(scene.store.delete_ledger(40))
    bookie.storage.arrived.add(40)
    scene.clock.advance(ARRIVED_S)
    assert bookie.guard.is_behind
    assert bookie.seen is not None
    assert (bookie.seen.doubt, bookie.seen.chosen) == ((0, 2, 0), (40,))


def test_ids_that_callers_chose_do_not_show_it(scene: Scene) -> None:
    """Ledgers whose ids the store never gave are deleted as ever, once one of them was seen to exist."""
    old = scene.ledgers(2)
    for chosen in (500, 700):
        now(scene.store.create_ledger(chosen, metadata()))
    bookie = scene.bookie("b1", *old, 500, 700)
    assert bookie.collect() == [*old, 500, 700]
    for chosen in (500, 700):
        now(scene.store.delete_ledger(chosen))
    assert bookie.collect() == old
    assert bookie.guard.behind is None


def test_the_first_start_in_a_cluster_whose_callers_choose_ids(scene: Scene) -> None:
    """
    As after an upgrade: the journal and the tables name ledgers that were deleted before, with ids below those that
    exist.  They are deleted as ever.
    """
    (given,) = scene.ledgers(1)
    now(scene.store.create_ledger(900, metadata()))
    scene.storages["b1"] = storage = FakeStorage()
    storage.arrived.update({700, 800, 900})
    bookie = scene.bookie("b1", given, 600, 700, 900)
    assert not bookie.guard.is_behind
    assert bookie.collect() == [given, 900]
    scene.ledgers(2)
    cluster, changes = str(stored.instance_id(scene.shared)), scene.shared.nodes.changes
    assert scene.bookie("b2").seen == Seen(cluster, changes, Position([3]), (3,))


def test_the_first_start_before_a_store_that_was_set_back(scene: Scene) -> None:
    """
    Where callers choose no ids, a ledger that the store never gave shows it, also to a bookie that never looked before.
    """
    old = scene.ledgers(2)
    scene.storages["b1"] = storage = FakeStorage()
    storage.arrived.add(7)
    bookie = scene.bookie("b1", *old, 7)
    assert bookie.guard.is_behind
    assert bookie.collect() == [*old, 7]


def test_one_bookie_that_noticed_informs_the_others(scene: Scene) -> None:
    """
    Ids that were raised hide it from those that look later; the note does not.  One whose numbers were never ahead
    stops, too.
    """
    old = scene.ledgers(2)
    first, second = scene.bookie("b1", *old), scene.bookie("b2", *old)
    saved = scene.backup()
    new = scene.ledgers(2)
    second.hold(*new)
    now(Deferred.fromCoroutine(first.guard.look()))
    scene.put_back(saved)
    assert first.collect() == old
    scene.ledgers(10)  # both numbers are above what the second saw
    assert second.collect() == old + new
    assert sorted(note_of(note(scene.shared))["bookies"]) == ["b1", "b2"]
    third = scene.bookie("b3", 90_000)
    assert third.collect() == [90_000], "a bookie that never looked before"
    scene.accept()
    assert second.collect() == old
    assert (first.collect(), first.guard.behind) == (old, None)


def test_a_store_of_a_new_epoch_is_behind_by_its_ids(scene: Scene) -> None:
    """
    A restored ZooKeeper may count transactions from a higher number; and the other way round where no ledger was made.
    """
    scene.ledgers(5)
    bookie = scene.bookie()
    stored.set_next_ledger(scene.shared, stored.next_ledger(scene.shared) - 1)
    scene.shared.nodes.changes += 1 << 32
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert bookie.guard.is_behind


def test_a_second_backup_before_the_first_was_accepted(scene: Scene) -> None:
    """The note went with it; it is written again, with a higher number."""
    saved = scene.backup()
    scene.ledgers(3)
    bookie = scene.bookie()
    for number in (1, 2):
        scene.put_back(saved)
        now(Deferred.fromCoroutine(bookie.guard.look()))
        assert note_of(note(scene.shared))["number"] == number
        assert stored.next_ledger(scene.shared) == 3
    scene.accept()
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert not bookie.guard.is_behind


@pytest.mark.parametrize("first", [False, True])
def test_what_was_accepted_during_a_look_stays_accepted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """A look that read the note before an operator accepted it begins no new one, be it its first of this or not."""
    old = scene.ledgers(1)
    saved = scene.backup()
    held = [*old, *scene.ledgers(3)]
    bookies = [scene.bookie(name, *held) for name in ("b1", "b2")]
    scene.put_back(saved)
    for bookie in bookies[first:]:
        now(Deferred.fromCoroutine(bookie.guard.look()))
    progress = scene.store.progress

    def accepted_meanwhile() -> object:
        asked = progress()
        monkeypatch.setattr(scene.store, "progress", progress)
        scene.accept()
        return asked

    monkeypatch.setattr(scene.store, "progress", accepted_meanwhile)
    now(Deferred.fromCoroutine(bookies[0].guard.look()))
    assert note_of(note(scene.shared))["accepted"]
    assert bookies[0].collect() == bookies[1].collect() == old
    assert note_of(note(scene.shared))["accepted"]


def test_what_is_seen_after_it_was_accepted_is_told_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that the store did not pass over is no part of what an operator accepted."""
    saved = scene.backup()
    held = scene.ledgers(3)
    bookie = scene.bookie("b1", *held)
    scene.put_back(saved)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    progress = scene.store.progress

    def accepted_meanwhile() -> object:
        monkeypatch.setattr(scene.store, "progress", progress)
        scene.accept()
        return progress()

    monkeypatch.setattr(scene.store, "progress", accepted_meanwhile)
    newer = held[-1] + 10
    bookie.hold(newer)
    bookie.storage.arrived.add(newer)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert not note_of(note(scene.shared))["accepted"]
    assert newer in bookie.collect()


def test_a_bookie_that_was_down_when_it_was_accepted(scene: Scene) -> None:
    """The operator spoke for it, if the store goes on above what it saw; else it begins again."""
    saved = scene.backup()
    scene.ledgers(3)
    up, down, far = scene.bookie("up"), scene.bookie("down"), scene.bookie("far")
    down.stop()
    scene.ledgers(4)
    now(Deferred.fromCoroutine(far.guard.look()))
    far.stop()
    scene.put_back(saved)
    now(Deferred.fromCoroutine(up.guard.look()))
    scene.accept()
    now(Deferred.fromCoroutine(up.guard.look()))
    assert not scene.bookie("down").guard.is_behind
    late = scene.bookie("far")
    assert late.guard.is_behind
    assert note_of(note(scene.shared))["number"] == 2
    scene.accept()
    now(Deferred.fromCoroutine(late.guard.look()))
    assert not late.guard.is_behind


def test_ids_that_clients_have_in_hand_are_ended(scene: Scene) -> None:
    """The store that was put back has given ids that were used before, ahead of their use, beyond all that was seen."""
    old = scene.ledgers(1)
    saved = scene.backup()
    new = scene.ledgers(3)
    bookie = scene.bookie("b1", *old, *new)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    scene.put_back(saved)
    stored.set_next_ledger(scene.shared, 64)
    raised: list[Position] = []
    raise_to = scene.store.raise_ledger_ids
    scene.store.raise_ledger_ids = lambda first: raised.append(first) or raise_to(first)  # type: ignore[method-assign,func-returns-value,assignment,misc,return-value]
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert bookie.guard.is_behind
    assert raised[0] == (new[-1] + 1,)
    assert stored.next_ledger(scene.shared) == 64


def test_far_ids_are_left_to_the_command(scene: Scene) -> None:
    """A bookie passes over so many ids without the command and no more."""
    bookie = scene.bookie()
    now(scene.store.raise_ledger_ids(RAISED_MAX + 5))
    now(Deferred.fromCoroutine(bookie.guard.look()))
    stored.set_next_ledger(scene.shared, 4)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    assert (bookie.guard.is_behind, stored.next_ledger(scene.shared)) == (True, 4)
    scene.accept()
    assert stored.next_ledger(scene.shared) == RAISED_MAX + 5


def test_what_was_seen_is_written_in_time_and_at_the_end(scene: Scene) -> None:
    """The number of ledgers seen is written periodically and again at the stop."""
    bookie = scene.bookie()
    scene.ledgers(2)
    scene.clock.advance(LOOK_S)
    assert bookie.seen is not None
    assert bookie.seen.ledgers == (2,)
    scene.ledgers(1)
    now(Deferred.fromCoroutine(bookie.guard.look()))
    bookie.stop()
    assert bookie.seen.ledgers == (3,)


def test_nothing_may_be_forgotten_and_no_limbo_ends(scene: Scene) -> None:
    """A deletion asks the store first; one that is away, or another cluster's, allows none either."""
    scene.ledgers(3)
    bookie = scene.bookie()
    now(Deferred.fromCoroutine(bookie.guard.trust_store([1])))
    scene.store.faults = lambda name, _: Fault(error=MetaStore("away")) if name == "progress" else None
    with pytest.raises(MetaStore, match="away"):
        now(Deferred.fromCoroutine(bookie.guard.trust_store()))
    scene.store.faults = None
    whose = scene.store.cluster
    scene.store.cluster = lambda: succeed(Cluster("another", ""))  # type: ignore[method-assign]
    with pytest.raises(WrongCluster, match="another"):
        now(Deferred.fromCoroutine(bookie.guard.trust_store()))
    scene.store.cluster = whose  # type: ignore[method-assign]
    with pytest.raises(SetBack, match="set-back"):
        now(Deferred.fromCoroutine(bookie.guard.trust_store([1, 77])))
    with pytest.raises(SetBack):
        now(Deferred.fromCoroutine(bookie.guard.trust_store()))


def test_what_is_unknown_is_counted_also_where_the_note_could_not_be_written_at_once(scene: Scene) -> None:
    """Else an operator would have to wait for the next round of garbage collection."""
    old = scene.ledgers(1)
    saved = scene.backup()
    bookie = scene.bookie("b1", *old, *scene.ledgers(2))
    now(Deferred.fromCoroutine(bookie.guard.look()))
    scene.put_back(saved)
    scene.store.faults = lambda *asked: (
        Fault(error=MetaStore("away")) if meaning(*asked)[0] == "swap_set_back" else None
    )
    with pytest.raises(MetaStore, match="away"):
        now(Deferred.fromCoroutine(bookie.guard.look()))
    scene.store.faults = None
    for _ in range(2):
        scene.clock.advance(LOOK_S)
    assert note_of(note(scene.shared))["bookies"]["b1"]["unknown"] == 2


def test_who_asks_at_the_same_time_shares_a_look(scene: Scene) -> None:
    """A look that began before a request does not answer it; one that failed fails only its own requests."""
    bookie = scene.bookie()
    looks: list[str] = []
    errors = [MetaStore("away"), None, None]

    def faults(name: str, _: object) -> Fault | None:
        if name != "progress":
            return None
        looks.append(name)
        return Fault(before=1, error=errors.pop(0))

    scene.store.faults = faults
    outcomes: list[object] = []

    def ask() -> None:
        Deferred.fromCoroutine(bookie.guard.trust_store()).addBoth(
            lambda found: outcomes.append(found and found.getErrorMessage())
        )

    for _ in range(4):
        ask()
    scene.clock.advance(1)
    assert (outcomes, len(looks)) == (["away"], 2)
    ask()
    scene.clock.advance(1)
    assert (outcomes, len(looks)) == (["away", None, None, None], 3)
    scene.clock.advance(1)
    assert (outcomes[4:], len(looks)) == ([None], 3)


@pytest.mark.parametrize("far", [5 + GIVEN_MAX, LEDGER_ID_MAX])
def test_ids_too_far_to_have_been_given_do_not_show_it(scene: Scene, far: int) -> None:
    """
    A ledger whose id its caller chose, that went before a bookie looked; and when the store is behind, an acceptance
    leaves ids to give.
    """
    (old,) = scene.ledgers(1)
    saved = scene.backup()
    (new,) = scene.ledgers(1)
    bookie = scene.bookie("b1", old, new, far)
    bookie.storage.arrived.add(far)
    scene.clock.advance(ARRIVED_S)
    assert bookie.collect() == [old, new]
    assert not bookie.guard.is_behind
    bookie.hold(far)
    scene.put_back(saved)
    assert bookie.collect() == [old, new, far]
    scene.accept()
    assert bookie.collect() == [old]
    assert now(scene.store.new_ledger_id()) == new + 1


def test_a_note_that_cannot_be_read_ends_no_looks(scene: Scene) -> None:
    """Nothing is believed meanwhile; once it can be read the bookie goes on, without a start."""
    old = scene.ledgers(2)
    bookie = scene.bookie("b1", *old, 77)
    for foreign in (b"null", b"\xff", b'{"number": 3'):
        put(scene.shared, COOKIES, foreign)
        scene.clock.advance(LOOK_S)
        with pytest.raises(MetaStore, match="noted"):
            now(Deferred.fromCoroutine(bookie.guard.trust_store()))
    assert bookie.collect() == [*old, 77]
    put(scene.shared, COOKIES)
    scene.ledgers(1)
    scene.clock.advance(LOOK_S)
    assert bookie.guard.status()["ledgers_seen"] == 3


def test_a_look_that_fails_as_it_should_not_is_not_the_last(scene: Scene) -> None:
    """After an unexpected error of the store the next look takes place and counts."""
    bookie = scene.bookie()
    odd = Fault(error=ValueError("odd"))  # type: ignore[arg-type]
    scene.store.faults = lambda name, _: odd if name == "progress" else None
    scene.clock.advance(LOOK_S)
    scene.store.faults = None
    scene.ledgers(1)
    scene.clock.advance(LOOK_S)
    assert bookie.guard.status()["ledgers_seen"] == 1


def strange(bookie: Bookie, *ledgers: int) -> None:
    """A client of another cluster adds to them, and the bookie looks."""
    bookie.hold(*ledgers)
    bookie.storage.arrived.update(ledgers)
    bookie.scene.clock.advance(ARRIVED_S)


def cleared(scene: Scene) -> None:
    """What the operator's command does about doubts."""
    old = now(scene.store.read_set_back())
    note = note_of(old)  # type: ignore[arg-type]
    now(scene.store.swap_set_back(old, bytes_of(accepted(note))))  # type: ignore[arg-type]


def test_a_ledger_of_a_stranger_concerns_its_bookie_alone(scene: Scene) -> None:
    """
    That bookie deletes nothing, after a start too, until an operator says whose it is; the others delete, and ids go on
    as they did.
    """
    held = scene.ledgers(3)
    one, other = scene.bookie("b1", *held), scene.bookie("b2", *held)
    far = held[-1] + 90_000
    with logged() as critical:
        strange(one, far)
    assert len(critical) == 1
    assert f"ledger {far} is on b1" in critical[0]
    now(scene.store.delete_ledger(held[0]))
    scene.clock.advance(LOOK_S)
    assert one.collect() == [*held, far]
    assert other.collect() == held[1:]
    assert (one.guard.is_behind, other.guard.is_behind) == (True, False)
    assert now(scene.store.new_ledger_id()) == held[-1] + 1
    assert note_of(note(scene.shared))["doubts"] == {"b1": [far]}
    assert note_of(note(scene.shared))["accepted"]
    one.stop()
    again = scene.bookie("b1")
    assert again.collect() == [*held, far]
    cleared(scene)
    assert again.collect() == held[1:]
    assert again.guard.behind is None
    strange(again, far)
    assert again.guard.behind is None, "it is known whose these are"
    strange(again, far + 1)
    assert again.guard.is_behind


@pytest.mark.parametrize("at_once", [True, False])
def test_a_ledger_on_two_bookies_shows_that_the_store_was_set_back(scene: Scene, at_once: bool) -> None:
    """Also to one that looks when the id was passed over for the first one's doubt; then no bookie deletes anything."""
    held = scene.ledgers(3)
    bookies = [scene.bookie(name, *held) for name in ("b1", "b2", "b3")]
    saved = scene.backup()
    (new,) = scene.ledgers(1)
    scene.put_back(saved)
    for bookie in bookies[:2]:
        bookie.hold(new)
        bookie.storage.arrived.add(new)
    if at_once:
        scene.clock.advance(ARRIVED_S)
    else:
        for bookie in bookies[:2]:
            now(Deferred.fromCoroutine(bookie.guard.look()))
    assert now(scene.store.new_ledger_id()) == new + 1
    scene.clock.advance(LOOK_S)
    scene.clock.advance(LOOK_S)
    assert not note_of(note(scene.shared))["accepted"]
    now(scene.store.delete_ledger(held[0]))
    for bookie in bookies:
        assert set(held) <= set(bookie.collect())
    scene.accept()
    for bookie in bookies:
        assert bookie.collect() == held[1:]


def test_what_is_passed_over_for_a_doubt_looks_given_to_nobody(scene: Scene) -> None:
    """
    A store that was set back by a moment: two bookies have a lower ledger, which they saw, and a third one's newer
    ledger makes the store pass over the ids of both, so that its next id is no lower than it was seen.
    """
    held = scene.ledgers(2)
    one, two, three = (scene.bookie(name, *held) for name in ("b1", "b2", "b3"))
    saved = scene.backup()
    (low,) = scene.ledgers(1)
    for bookie in (two, three):
        bookie.hold(low)
        bookie.storage.arrived.add(low)
        now(Deferred.fromCoroutine(bookie.guard.look()))
    (high,) = scene.ledgers(1)
    one.hold(high)
    one.storage.arrived.add(high)
    scene.put_back(saved)
    scene.shared.nodes.changes += 1000  # as a new epoch of ZooKeeper does
    now(Deferred.fromCoroutine(one.guard.look()))
    assert stored.next_ledger(scene.shared) > high
    assert low in two.collect()
    assert low in three.collect()
    assert not note_of(note(scene.shared))["accepted"], "two bookies have it"


def test_more_doubts_than_the_note_names_are_passed_over(scene: Scene) -> None:
    """A second bookie that has only ledgers that the note does not name deletes none of them."""
    held = scene.ledgers(2)
    one, other = scene.bookie("b1", *held), scene.bookie("b2", *held)
    saved = scene.backup()
    new = scene.ledgers(DOUBTS_MAX + 5)
    for bookie, its in ((one, new), (other, new[DOUBTS_MAX:])):
        bookie.hold(*its)
        bookie.storage.arrived.update(its)
    scene.put_back(saved)
    scene.shared.nodes.changes += 1000
    now(Deferred.fromCoroutine(one.guard.look()))
    stored.put(scene.shared, stored.DELETIONS)
    assert set(new[DOUBTS_MAX:]) <= set(other.collect())


def test_an_operator_who_clears_a_doubt_speaks_of_its_ledgers_only(scene: Scene) -> None:
    """Ids between two strangers' are doubted as any other later."""
    held = scene.ledgers(2)
    one = scene.bookie("b1", *held)
    strange(one, 5, 1 << 39)
    cleared(scene)
    now(Deferred.fromCoroutine(one.guard.look()))
    assert one.guard.behind is None
    scene.ledgers(20)
    saved = scene.backup()
    now(Deferred.fromCoroutine(one.guard.look()))
    (new,) = scene.ledgers(1)
    one.hold(new)
    scene.put_back(saved)
    scene.shared.nodes.changes += 1000
    one.storage.arrived = {new}
    now(Deferred.fromCoroutine(one.guard.look()))
    assert new in one.collect()


def test_ranges_that_were_passed_over_are_joined() -> None:
    """Those that meet are one; of too many the nearest become one, which has all of them."""
    assert joined([[5, 8], [1, 3], [3, 4], [7, 9]]) == [[1, 4], [5, 9]]
    many = [[number * number, number * number + 1] for number in range(2, PASSED_MAX + 5)]
    found = joined(many)
    assert len(found) == PASSED_MAX
    assert found[0][0] == 4
    assert found[-1] == many[-1]


def test_how_far_strangers_move_the_ids_is_bounded(scene: Scene) -> None:
    """However often one adds: of a doubt, and of a store that was set back, so many ids are passed over and no more."""
    held = scene.ledgers(2)
    saved = scene.backup()
    one = scene.bookie("b1", *held)
    for number in range(1, 40):
        strange(one, held[-1] + number * 5_000)
    assert now(scene.store.new_ledger_id()) <= held[-1] + DOUBTED_RAISED_MAX + 2
    scene.ledgers(20)
    other = scene.bookie("b2")
    kept = note(scene.shared)
    scene.put_back(saved)
    put(scene.shared, COOKIES, kept)
    now(Deferred.fromCoroutine(other.guard.look()))
    assert not note_of(note(scene.shared))["accepted"]
    for number in range(1, 10):
        strange(other, held[-1] + number * 60_000)
    assert now(scene.store.new_ledger_id()) <= held[-1] + DOUBTED_RAISED_MAX + RAISED_MAX + 30
    assert note_of(note(scene.shared))["ledgers"] <= held[-1] + DOUBTED_RAISED_MAX + RAISED_MAX + 30


def test_a_doubt_that_could_not_be_written_is_said_later(scene: Scene) -> None:
    """Nothing is deleted meanwhile, and no id is passed over before it is said."""
    held = scene.ledgers(2)
    one = scene.bookie("b1", *held)
    scene.store.faults = lambda *asked: (
        Fault(error=MetaStore("away")) if meaning(*asked)[0] == "swap_set_back" else None
    )
    strange(one, held[-1] + 5)
    assert one.guard.is_behind
    assert stored.next_ledger(scene.shared) == held[-1] + 1
    scene.store.faults = None
    scene.clock.advance(LOOK_S)
    assert note_of(note(scene.shared))["doubts"] == {"b1": [held[-1] + 5]}
    assert stored.next_ledger(scene.shared) == held[-1] + 6
