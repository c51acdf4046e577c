"""The tree in the SQLite file: what is asked when something changed, and a look that fails."""

import pytest
from twisted.internet.defer import fail, succeed
from twisted.internet.task import Clock

from quire.metadata.sqlite.tree import Wakes
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

POLL_S = 1.0
A, B = ("/a", False), ("/b", True)


class Scene:
    """What is watched of a file, whose counter and states a test sets."""

    def __init__(self):
        self.clock = Clock()
        self.change = (0, 0)
        self.states = {A: (1, 1), B: (1, 1)}
        self.asked, self.trouble, self.dead, self.buried = [], None, [], []
        self.wakes = Wakes(self.clock, "sqlite:///x", POLL_S, self.see, self.bury)
        self.woken = []
        for watched in (A, B):
            self.arm(watched)

    def arm(self, watched):
        self.wakes.arm(watched, lambda: self.woken.append(watched), self.states[watched])

    def see(self, fresh, every, since):
        if self.trouble is not None:
            return fail(self.trouble)
        asked = sorted(fresh if self.change == since else every)
        self.asked.append(asked)
        return succeed((self.change, list(self.dead), {watched: self.states[watched] for watched in asked}))

    def bury(self, names):
        self.buried += names
        self.dead.clear()
        self.states[B] = None
        return succeed(None)

    def another_commits(self, watched, state):
        self.states[watched] = state
        self.change = (self.change[0] + 1, 0)


def test_states_are_asked_for_when_somebody_committed():
    """At once after a change of ours, and of that alone; of all at the next look after another's; else of nothing."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    assert scene.asked == [[A, B]]
    scene.states[A] = (1, 2)
    scene.wakes.changed([A, ("/c", False)])
    assert (scene.asked[1:], scene.woken) == ([[A]], [A])
    scene.clock.advance(POLL_S)
    assert (scene.asked[2:], scene.woken) == ([[]], [A])
    scene.another_commits(B, (1, 3))
    scene.clock.advance(POLL_S)
    assert (scene.asked[3:], scene.woken) == ([[B]], [A, B])
    assert scene.clock.getDelayedCalls() == []


def test_what_changed_before_it_was_armed_is_found():
    """The look that saw the commit did not ask for it."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.wakes.changed([A])
    scene.another_commits(B, (1, 9))
    scene.clock.advance(POLL_S)
    scene.wakes.arm(A, lambda: scene.woken.append("late"), (0, 0))
    scene.clock.advance(POLL_S)
    assert scene.woken == [B, "late"]


def test_a_dead_session_is_news():
    """It is removed, and what that changes is heard of, though nobody committed anything."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.dead.append("gone")
    scene.clock.advance(POLL_S)
    assert (scene.buried, scene.woken) == (["gone"], [B])


@pytest.mark.parametrize("trouble", [MetaStore("the disk is away"), ZeroDivisionError("nobody foresaw it")])
def test_a_look_that_fails_is_made_again(trouble):
    """Later, whatever it failed with, and nothing that changed meanwhile is missed."""
    scene = Scene()
    scene.clock.advance(POLL_S)
    scene.trouble = trouble
    scene.another_commits(A, (2, 2))
    scene.clock.advance(POLL_S)
    scene.trouble = None
    scene.clock.advance(POLL_S)
    assert scene.woken == []
    scene.clock.advance(3 * POLL_S)
    assert scene.woken == [A]


def test_nobody_is_called_after_the_end():
    """Nor is anything asked for; a watch that was taken back is not called either."""
    scene = Scene()
    wake = scene.woken.append
    scene.wakes.arm(A, wake, (0, 0))
    scene.wakes.disarm(wake)
    scene.clock.advance(POLL_S)
    assert scene.woken == []
    scene.wakes.end()
    scene.another_commits(A, (5, 5))
    scene.clock.advance(POLL_S)
    assert (scene.woken, scene.asked) == ([], [[A, B]])
