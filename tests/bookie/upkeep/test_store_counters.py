"""
A metadata store that was set back and draws ids from many counters, as Apache's layout of etcd does: what is lost shows
by the counter of its own range, whatever the others say.
"""

import json
import re
from pathlib import Path

import pytest
from crc32c import crc32c
from twisted.internet.defer import Deferred

from quire.bookie.layout import STORE
from quire.bookie.upkeep.store_notes import note_of
from quire.metadata.ledgers.buckets import BITS, BUCKETS_MAX
from quire.metadata.ledgers.layout import Layout
from quire.metadata.position import Position
from tests.bookie.upkeep.test_store_guard import Bookie, Scene, now
from tests.metadata import stored
from tests.metadata.made import ledger as metadata
from tests.metadata.stored import COOKIES, note, put

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Layout.APACHE_ETCD)


def look(bookie: Bookie) -> None:
    now(Deferred.fromCoroutine(bookie.guard.look()))


def up_to_the_top(scene: Scene) -> list[int]:
    """Ledgers, ascending, of a whole round of the counters at least, the last one in the highest range."""
    made = scene.ledgers(BUCKETS_MAX)
    while made[-1] >> BITS != BUCKETS_MAX - 1:
        made += scene.ledgers(1)
    return sorted(made)


def set_back(scene: Scene, saved: stored.Backup) -> None:
    """A snapshot is put back so that the store's own counter is no lower, as `etcdctl --bump-revision` does."""
    changes = scene.shared.nodes.changes
    scene.put_back(saved)
    scene.shared.nodes.changes = changes + 10


def test_ledgers_below_the_highest_id_are_seen_to_be_lost(scene: Scene) -> None:
    """
    None is deleted, also by a bookie that starts then; no id is given again; what an operator accepts goes.
    """
    old = up_to_the_top(scene)
    saved = scene.backup()
    new = scene.ledgers(5)
    assert max(new) < max(old)
    bookie = scene.bookie("b1", *old, *new)
    set_back(scene, saved)
    assert bookie.collect() == sorted(old + new)
    assert bookie.guard.is_behind
    bookie.stop()
    again = scene.bookie("b1")
    assert again.collect() == sorted(old + new), "it starts, and is behind still"
    later = scene.ledgers(2 * BUCKETS_MAX)
    assert not {*later} & {*old, *new}
    scene.accept()
    assert again.collect() == old
    assert again.guard.behind is None


def test_what_nobody_looked_for_shows_by_its_counter(scene: Scene) -> None:
    """Made after the last look of two bookies that hold it, and lost before the next one."""
    old = up_to_the_top(scene)
    one, other = scene.bookie("b1", *old), scene.bookie("b2", *old)
    saved = scene.backup()
    new = scene.ledgers(3)
    for bookie in (one, other):
        bookie.hold(*new)
    set_back(scene, saved)
    for bookie in (one, other, one):
        assert bookie.collect() == sorted(old + new)
    assert one.guard.is_behind
    assert other.guard.is_behind
    assert not {*scene.ledgers(BUCKETS_MAX)} & {*new}


def test_a_chosen_id_hides_nothing_in_other_ranges(scene: Scene) -> None:
    """Its creator chose it in one of them; a ledger of another is known to be lost."""
    old = up_to_the_top(scene)
    now(scene.store.create_ledger(1000, metadata()))  # type: ignore[arg-type]
    one, other = scene.bookie("b1", 1000, *old), scene.bookie("b2", 1000, *old)
    assert one.collect() == sorted([1000, *old])
    assert one.seen is not None
    assert [each >> BITS for each in one.seen.chosen] == [0]
    saved = scene.backup()
    new = [ledger for ledger in scene.ledgers(3) if ledger >> BITS]
    for bookie in (one, other):
        bookie.hold(*new)
    set_back(scene, saved)
    for bookie in (one, other, one):
        bookie.collect()
    assert one.collect() == sorted([1000, *old, *new])


def test_an_odd_id_moves_its_own_counter_alone(scene: Scene) -> None:
    """A client of another cluster added an entry: a doubt of this bookie, and no look raises without end."""
    old = up_to_the_top(scene)
    bookie = scene.bookie("b1", *old)
    before = now(scene.store.progress()).position  # type: ignore[attr-defined]
    strange = [before[7] + 20, before[9] + (1 << 30)]
    bookie.hold(*strange)
    assert bookie.collect() == sorted(old + strange)
    assert bookie.guard.is_behind
    for _ in range(3):
        look(bookie)
    after = now(scene.store.progress()).position  # type: ignore[attr-defined]
    assert after == before.behind([strange[0]])
    assert note_of(note(scene.shared))["passed"] == [[before[7], strange[0] + 1]]
    bookie.stop()
    again = scene.bookie("b1")
    assert again.collect() == sorted(old + strange)
    scene.accept()
    assert again.collect() == old


def test_the_state_of_an_earlier_version_is_read(scene: Scene) -> None:
    """It has one number, the highest; that of the other counters is learnt by the first look."""
    old = up_to_the_top(scene)
    bookie = scene.bookie("b1", *old)
    bookie.stop()
    file = bookie.directory / "current" / STORE
    text = file.read_bytes()[:-9].decode()
    highest = max(now(scene.store.progress()).position)  # type: ignore[attr-defined]
    text = re.sub("ledgers: .*", f"ledgers: {highest}", text)
    file.write_bytes(text.encode() + b"%08x\n" % crc32c(text.encode()))
    assert bookie.seen is not None
    assert bookie.seen.ledgers == (highest,)
    saved = scene.backup()
    again = scene.bookie("b1")
    assert again.collect() == old
    new = scene.ledgers(2)
    again.hold(*new)
    look(again)
    set_back(scene, saved)
    assert again.collect() == sorted(old + new)
    assert again.guard.is_behind


def test_the_note_of_an_earlier_version_is_joined(scene: Scene) -> None:
    """It says one number, as that bookie does."""
    old = up_to_the_top(scene)
    bookie = scene.bookie("b1", *old)
    highest = max(old) + 9
    bookies = {"b0": {"changes": 1, "ledgers": highest, "unknown": 0}}
    written = {"number": 1, "accepted": False, "ledgers": highest, "bookies": bookies}
    put(scene.shared, COOKIES, json.dumps(written).encode())
    before = now(scene.store.progress()).position  # type: ignore[attr-defined]
    look(bookie)
    assert bookie.guard.is_behind
    joined = before.joined(Position([highest]))
    assert note_of(note(scene.shared))["ledgers"] == list(joined)
    scene.accept()
    assert now(scene.store.progress()).position == joined  # type: ignore[attr-defined]
    look(bookie)
    assert not bookie.guard.is_behind
