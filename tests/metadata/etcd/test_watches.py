"""Watches of one stream: who is called for which event, in which order, and what etcd is asked for."""

import pytest

from quire.metadata.etcd.messages import CLASSES, DELETED, NO_PUTS
from quire.metadata.etcd.nodes import children_of, family_of, key_of
from quire.metadata.etcd.watches import Watches

# SPDX-License-Identifier: Apache-2.0

WatchResponse = CLASSES["WatchResponse"]


class World:
    def __init__(self) -> None:
        self.streams = []
        self.sent = []
        self.called = []
        self.lost = []
        self.watches = Watches(self.open, self.lost.append)

    def open(self, heard, ended):
        self.heard, self.ended = heard, ended
        self.streams.append(self)
        return self

    def send(self, request):
        self.sent.append(request)

    def close(self):
        self.streams.append(None)

    def arm(self, name, path, revision, *, children=False, absent=False):
        def wake():
            self.called.append(name)

        self.watches.arm((path, children), wake, revision, absent=absent)
        return wake

    def created(self):
        """What watches etcd was asked for, and has not been told to end."""
        ended = {each.cancel_request.watch_id for each in self.sent if each.HasField("cancel_request")}
        asked = [each.create_request for each in self.sent if each.HasField("create_request")]
        return {each.watch_id: each for each in asked if each.watch_id not in ended}

    def event(self, key, revision, *, deleted=False):
        """What etcd sends of a change."""
        for number, each in self.created().items():
            if (each.key <= key < each.range_end) if each.range_end else each.key == key:
                if each.filters and not deleted:
                    continue
                event = {"type": DELETED if deleted else 0, "kv": {"key": key, "mod_revision": revision}}
                self.heard(WatchResponse(watch_id=number, events=[event]))


@pytest.fixture
def world():
    return World()


def test_one_watch_of_etcd_for_all_watchers_of_a_node(world):
    """It begins behind the first one's reading, and calls whoever has read before the change, once."""
    world.arm("a", "/x", 5)
    world.arm("b", "/x", 8)
    (watch,) = world.created().values()
    assert (watch.key, watch.start_revision) == (key_of("/x"), 6)
    world.event(key_of("/x"), 7)
    assert world.called == ["a"]
    world.event(key_of("/x"), 9)
    world.event(key_of("/x"), 10)
    assert world.called == ["a", "b"]
    assert world.created() == {}


def test_children_come_and_go(world):
    """A family is put when one comes; of the children themselves only removals are asked for."""
    world.arm("children", "/x", 5, children=True)
    family, below = world.created().values()
    assert family.key == family_of("/x")
    assert (below.key, below.range_end, list(below.filters)) == (children_of("/x"), family_of("/x"), [NO_PUTS])
    world.event(key_of("/x/a"), 6)
    assert world.called == []
    world.event(key_of("/x/a"), 7, deleted=True)
    assert world.called == ["children"]
    assert world.created() == {}
    world.arm("made", "/x", 8, children=True)
    world.event(family_of("/x"), 9)
    world.arm("gone", "/x", 9, children=True)
    world.event(family_of("/x"), 10, deleted=True)
    assert world.called == ["children", "made", "gone"]


def test_the_watch_of_a_node_is_called_before_that_of_its_parent(world):
    """In whichever order etcd sends them."""
    world.arm("children", "/x", 5, children=True)
    world.arm("node", "/x/a", 5)
    world.arm("other", "/x/b", 5)
    world.event(key_of("/x/a"), 6, deleted=True)
    assert world.called == ["node", "children"]
    world.arm("children", "/x", 6, children=True)
    world.arm("absent", "/x/c", 6, absent=True)
    world.event(family_of("/x"), 7)
    assert world.called == ["node", "children", "absent", "children"]


def test_an_answer_that_is_ahead_of_the_stream(world):
    """Of the children that it shows, those that changed or went since they were read have their watchers called."""
    for name, path, absent in [
        ("same", "/x/a", False),
        ("written", "/x/b", False),
        ("gone", "/x/c", False),
        ("never was", "/x/d", True),
        ("came", "/x/e", True),
        ("deeper", "/x/b/b", False),
        ("elsewhere", "/y/b", False),
    ]:
        world.arm(name, path, 5, absent=absent)
    world.arm("read later", "/x/f", 9)
    world.arm("children", "/x", 5, children=True)
    world.watches.shown("/x", 8, {"a": 5, "b": 6, "e": 8})
    assert world.called == ["written", "gone", "came"]
    world.watches.shown("/x", 8, {"a": 5, "b": 6, "e": 8})
    assert world.called == ["written", "gone", "came"]


def test_a_reading_that_is_answered_late(world):
    """What has changed since is not told again by a watch that is there: its watcher is called at once."""
    world.arm("newer", "/x", 10)
    world.arm("before the watch", "/x", 8)
    assert world.called == ["before the watch"]
    world.arm("newest", "/x", 20)
    world.event(key_of("/x"), 15)
    assert world.called == ["before the watch", "newer"]
    world.arm("before the event", "/x", 14)
    assert world.called == ["before the watch", "newer", "before the event"]
    world.arm("behind the event", "/x", 15)
    world.event(key_of("/x"), 21)
    assert world.called[3:] == ["newest", "behind the event"]
    world.arm("children", "/x", 30, children=True)
    world.arm("fewer children", "/x", 29, children=True)
    assert world.called[5:] == ["fewer children"]


def test_a_watch_that_is_refused_ends_the_stream(world):
    """Its token has ended, so it takes no other one, either; older servers do not say which watch it was."""
    for watch_id in (-1, 3):
        world.called.clear()
        world.arm("a", "/x", 5)
        world.arm("b", "/y", 5)
        world.heard(
            WatchResponse(watch_id=watch_id, created=True, canceled=True, cancel_reason="etcdserver: permission denied")
        )
        assert world.called == ["a", "b"]
    assert len(world.lost) == 2
    assert "permission denied" in world.lost[0]
    world.arm("a", "/x", 6)
    assert [each is None for each in world.streams] == [False, True, False, True, False]


def test_a_watch_that_was_compacted_away_is_lost(world):
    """Its watchers are called, whatever they had read."""
    world.arm("a", "/x", 5)
    world.arm("b", "/y", 5)
    world.heard(WatchResponse(watch_id=1, canceled=True, compact_revision=9))
    assert world.called == ["a"]
    assert [each.key for each in world.created().values()] == [key_of("/y")]


def test_with_the_stream_all_watches_are_lost(world):
    """They are called, and the next one begins another stream."""
    world.arm("a", "/x", 5)
    world.arm("b", "/y", 5, children=True)
    world.ended(world, "the server went")
    assert (world.called, world.lost) == (["a", "b"], ["the server went"])
    world.arm("c", "/x", 9)
    assert len([each for each in world.streams if each]) == 2
    world.watches.restart("it does not answer")
    assert world.called == ["a", "b", "c"]
    world.arm("d", "/x", 9)
    world.watches.end()
    assert world.called == ["a", "b", "c"]


def test_a_watcher_that_is_forgotten(world):
    """Is not called, and etcd is told when it was the last."""
    a, b = world.arm("a", "/x", 5), world.arm("b", "/x", 5)
    world.watches.disarm(a)
    assert len(world.created()) == 1
    world.watches.disarm(b)
    world.watches.disarm(b)
    assert world.created() == {}
