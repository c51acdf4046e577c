"""A machine keeps to its table; its driver performs effects in order, and ends once by a bug."""

from dataclasses import dataclass
from enum import auto

import pytest

from quire.client.core.machine import (
    Driver,
    IllegalInput,
    Machine,
    MachineState,
    OrderedDriver,
    Performer,
    Table,
    performs,
)

# SPDX-License-Identifier: Apache-2.0


class State(MachineState):
    SHUT = auto()
    OPEN = auto()
    BROKEN = auto()


@dataclass
class Turn:
    """Open when shut; the effects that follow."""

    notes: tuple[str, ...] = ()


@dataclass
class Knock:
    pass


@dataclass
class Note:
    text: str


@dataclass
class Cry:
    text: str


TABLE = Table(State, Turn | Knock)


class Door(Machine[State, Turn | Knock, Note | Cry]):
    table = TABLE
    ruined = State.BROKEN

    def turn(self, given: Turn) -> None:
        self.state = State.OPEN
        self.effects += [Cry(text) if text.isupper() else Note(text) for text in given.notes]

    def turn_again(self, given: Turn) -> None:
        self.turn(given)
        self.state = State.BROKEN if not given.notes else self.state


TABLE.on(State.SHUT, Turn, Door.turn, State.OPEN)
TABLE.on(State.OPEN, Turn, Door.turn_again)
TABLE.ignore((State.OPEN,), Knock)
TABLE.rule_out((State.SHUT,), Knock)
TABLE.ignore((State.BROKEN,), Turn, Knock)


class Scene(Performer):
    """A door, its driver and what is performed."""

    at_once = frozenset((Cry,))

    def __init__(self) -> None:
        self.door = Door(State.SHUT)
        self.ends: list[BaseException] = []
        self.events: list[str] = []
        self.driver = Driver(self.door, self, self.ends.append)
        self.driver.after = lambda: self.events.append("done")

    @performs(Cry)
    def cry(self, cry: Cry) -> None:
        self.events.append(cry.text)

    @performs(Note)
    def note(self, note: Note) -> None:
        self.events.append(note.text)
        if note.text == "again":
            self.driver.feed(Turn(("last",)))
        elif note.text == "cry":
            self.driver.feed(Turn(("CRY",)))
        elif note.text == "bug":
            raise ArithmeticError
        elif note.text == "bug inside":
            self.driver.feed(Turn())
            self.events.append("went on")


def test_a_row_gives_effects_and_what_is_ignored_none():
    """Effects are those of one input."""
    door = Door(State.SHUT)
    assert door.handle(Turn(("a", "B"))) == [Note("a"), Cry("B")]
    assert door.handle(Knock()) == []
    assert door.state is State.OPEN


def test_an_input_that_cannot_come_poisons_the_machine():
    """The error names the input and the state."""
    door = Door(State.SHUT)
    with pytest.raises(IllegalInput, match="Knock in SHUT"):
        door.handle(Knock())
    assert door.state is State.BROKEN


def test_a_step_that_ends_where_it_may_not_poisons_the_machine():
    """A row without end states stays in its own."""
    door = Door(State.SHUT)
    door.handle(Turn())
    with pytest.raises(AssertionError, match="Turn in OPEN led to BROKEN"):
        door.handle(Turn())
    assert door.state is State.BROKEN


def test_one_pair_has_one_row():
    """A second one is refused."""
    with pytest.raises(AssertionError, match="two rows for Turn in SHUT"):
        TABLE.on(State.SHUT, Turn, Door.turn)


def test_what_is_fed_from_inside_an_effect_comes_behind_what_waits():
    """The end of a round is told once."""
    scene = Scene()
    scene.driver.feed(Turn(("again", "first")))
    assert scene.events == ["again", "first", "last", "done"]


def test_some_effects_do_not_wait():
    """They are performed inside the effect that fed their input."""
    scene = Scene()
    scene.driver.feed(Turn(("cry", "first")))
    assert scene.events == ["cry", "CRY", "first", "done"]


@pytest.mark.parametrize(("note", "events"), [("bug", ["bug"]), ("bug inside", ["bug inside", "went on"])])
def test_a_bug_ends_the_handle_once(note, events):
    """The machine is poisoned, effects that wait are dropped, and nothing is fed any more."""
    scene = Scene()
    scene.driver.feed(Turn((note, "never")))
    assert [event for event in scene.events if event != "done"] == events
    assert len(scene.ends) == 1
    assert scene.driver.dead
    assert scene.door.state is State.BROKEN
    scene.driver.feed(Turn(("never",)))
    scene.driver.poison(ArithmeticError())
    assert len(scene.ends) == 1
    assert "never" not in scene.events


def test_an_ordered_driver_feeds_an_input_after_the_effects_before_it():
    """The machine does not hear of it from inside an effect; a bug ends what waits, too."""
    door, events, ends = Door(State.SHUT), [], []

    class Ordered(Performer):
        @performs(Note)
        def note(self, note: Note) -> None:
            events.append((note.text, door.state))
            if note.text == "again":
                driver.feed(Turn(("last", "bug")))
                driver.feed(Turn(("never",)))
                driver.feed(Turn(()))
            elif note.text == "bug":
                raise ArithmeticError

    driver = OrderedDriver(door, Ordered(), ends.append)
    driver.feed(Turn(("again", "first")))
    assert [text for text, _state in events] == ["again", "first", "last", "bug"]
    assert {state for _text, state in events} == {State.OPEN}
    assert len(ends) == 1
    assert door.state is State.BROKEN


def test_a_class_has_one_table_of_what_its_methods_perform():
    """One that derives from it has the methods it marks itself in place of these."""

    class Quiet(Scene):
        @performs(Note)
        def quiet(self, note: Note) -> None:
            self.events.append("quiet")

    assert Quiet().performers is Quiet.performers
    assert Scene.performers == {Note: Scene.note, Cry: Scene.cry}
    assert Quiet.performers == {Note: Quiet.quiet, Cry: Scene.cry}
    scene = Quiet()
    scene.driver.feed(Turn(("a", "B")))
    scene.driver.perform(Note("b"))
    assert scene.events == ["quiet", "B", "done", "quiet"]
