"""
Machines without input and output, and the loop that feeds them: shared by appends, recoveries, reads, owners and
replicas.

Knows: whether an input has a step in a state, is without effect there, or can't come; that effects are performed in
order, by methods that a class has for them; that a bug ends the machine and its handle.
Does not know: a single state, input or effect; clocks, connections, Deferreds.

Safety: a row lists the states in which its step may end, and ending elsewhere is a bug.  After a bug in a step or in an
effect nothing is fed or performed any more, and the handle, which hears of it once, fails everything that waits.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from itertools import product
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, dataclass_transform, get_args

# SPDX-License-Identifier: Apache-2.0


class MachineState(Enum):
    """The base of a machine's states."""

    __hash__ = object.__hash__  # Enum's is a call of Python, and a machine looks up its state with every input


S = TypeVar("S", bound=MachineState)
M = TypeVar("M")
G = TypeVar("G")
I = TypeVar("I")  # noqa: E741  # input
I_contra = TypeVar("I_contra", contravariant=True)
E = TypeVar("E")


class IllegalInput(Exception):
    """An input that can't come in this state: a bug, so it ends the handle."""


@dataclass_transform()
class Message:
    """The base of the kinds of inputs and of effects that a machine has: each class below it is a dataclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(cls)


class Row(NamedTuple, Generic[S]):
    """One transition: the method of the machine for an input in a state, and the states in which it may end."""

    step: Callable[[object, object], None]
    after: frozenset[S]


class Table(Generic[S]):
    """
    The transitions of one kind of machine.  Each pair of a state and a type of input has one of `rows`, is one of
    `ignored`, which are without effect, or of `illegal`, which can't be.
    """

    def __init__(self, states: type[S], inputs: object) -> None:
        """`inputs`: the union of their types, or the class right above them."""
        self.states = states
        self.inputs: tuple[type, ...] = get_args(inputs) or tuple(cast("type", inputs).__subclasses__())
        self.rows: dict[tuple[S, type], Row[S]] = {}
        self.ignored: set[tuple[S, type]] = set()
        self.illegal: set[tuple[S, type]] = set()

    def on(self, state: S, kind: type[G], step: Callable[[M, G], None], *after: S) -> None:
        """The step for such an input in that state; it ends in one of the states `after`, without any in the same."""
        assert (state, kind) not in self.rows, f"two rows for {kind.__name__} in {state.name}"
        self.rows[state, kind] = Row(cast("Callable[[object, object], None]", step), frozenset(after or (state,)))

    def ignore(self, states: Iterable[S], *kinds: type) -> None:
        """Ignores such inputs in these states: they are late or no news."""
        self.ignored |= set(product(states, kinds))

    def rule_out(self, states: Iterable[S], *kinds: type) -> None:
        """Rules out such inputs in these states: they answer what was not asked there."""
        self.illegal |= set(product(states, kinds))


class Machine(Generic[S, I, E]):
    """One machine.  `handle` is the only way in; what it returns must be performed in order."""

    table: Table[S]
    ruined: S  # the state after a bug

    def __init__(self, state: S) -> None:
        self.state = state
        self.effects: list[E] = []  # of the input that is handled; its steps add to them

    def handle(self, given: I) -> list[E]:
        """Takes one input, returns the effects to perform in order.  An exception is a bug, and poisons the machine."""
        effects: list[E] = []
        self.effects = effects
        pair = self.state, type(given)
        try:
            try:
                row = self.table.rows[pair]
            except KeyError:
                if pair not in self.table.ignored:
                    raise IllegalInput(f"{type(given).__name__} in {self.state.name}") from None
                return effects
            row.step(self, given)
            assert self.state in row.after, f"{type(given).__name__} in {pair[0].name} led to {self.state.name}"
        except BaseException:
            self.poison()
            raise
        return effects

    def poison(self) -> None:
        """A step, or an effect, has failed: what the machine knows counts no more."""
        self.state = self.ruined


class Fed(Protocol[I_contra, E]):
    """A machine as its driver needs it."""

    def handle(self, given: I_contra, /) -> list[E]: ...

    def poison(self) -> None: ...


def performs(kind: type[G]) -> Callable[[Callable[[M, G], object]], Callable[[M, G], object]]:
    """Marks the method of a `Performer` that performs effects of that type."""

    def marked(method: Callable[[M, G], object]) -> Callable[[M, G], object]:
        vars(method)["performs"] = kind
        return method

    return marked


def begins(kind: type[G]) -> Callable[[Callable[[Any, G], Coroutine[Any, Any, None]]], Callable[[Any, G], object]]:
    """Marks the coroutine function of a `Performer` that performs effects of that type, by way of its `_run`."""

    def marked(method: Callable[[Any, G], Coroutine[Any, Any, None]]) -> Callable[[Any, G], object]:
        @wraps(method)
        def begun(self: Any, effect: G) -> object:
            return self._run(method(self, effect))

        return performs(kind)(begun)

    return marked


class Performer:
    """The base of a class that performs the effects of machines, by the methods that `performs` marks."""

    performers: Mapping[type, Callable[[Any, Any], object]] = {}  # built once for each class
    at_once: frozenset[type] = frozenset()  # an effect of these types goes before those that wait

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found = dict(cls.performers)
        found |= {method.performs: method for method in vars(cls).values() if hasattr(method, "performs")}
        cls.performers = found


class Driver(Generic[I, E]):
    """Feeds a machine and has its effects performed.  `poisoned` is called once, with the bug that ended it."""

    def __init__(self, machine: Fed[I, E], performer: Performer, poisoned: Callable[[BaseException], None]) -> None:
        self.dead = False  # a step or an effect failed: nothing is fed or performed any more
        self.performing = False
        self.after: Callable[[], object] | None = None  # called when no effect is left
        self._fed = machine
        self._poisoned = poisoned
        self._todo: deque[E] = deque()
        self._performer = performer
        self._performers = performer.performers
        self._at_once = performer.at_once

    def perform(self, effect: E) -> None:
        """Performs one effect now."""
        self._performers[type(effect)](self._performer, effect)

    def feed(self, given: I) -> None:
        """
        Hands one input to the machine.  Its effects are performed before this returns, unless it came from inside an
        effect: then behind those that wait already.
        """
        if self.dead:
            return
        try:
            effects = self._fed.handle(given)
        except Exception as error:
            self.poison(error)
            return
        if not effects:  # of three answers to an add, two
            return
        todo = self._todo
        if self.performing and type(effects[0]) in self._at_once:
            self.perform(effects[0])
            return
        todo += effects
        if self.performing:
            return
        self.performing = True
        try:
            while todo:
                effect = todo.popleft()
                self._performers[type(effect)](self._performer, effect)
                if not todo and self.after is not None:
                    self.after()
        except Exception as error:
            self.poison(error)
        finally:
            self.performing = False

    def poison(self, error: BaseException) -> None:
        """A bug: the handle ends here, so that nothing goes on half done."""
        if self.dead:
            return
        self.dead = True
        self._todo.clear()
        self._fed.poison()
        self._poisoned(error)


class OrderedDriver(Driver[I, E]):
    """A driver whose machine is given an input only when all effects of the inputs before it are performed."""

    def __init__(self, machine: Fed[I, E], performer: Performer, poisoned: Callable[[BaseException], None]) -> None:
        super().__init__(machine, performer, poisoned)
        self._inputs: deque[I] = deque()

    def feed(self, given: I) -> None:
        """Hands one input to the machine and performs its effects, from inside an effect once none is left."""
        inputs = self._inputs
        inputs.append(given)
        while inputs and not self.performing:
            super().feed(inputs.popleft())
