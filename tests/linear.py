"""
Whether a history of calls is linearizable: whether some order of them explains every answer, in which no call comes
before one that was answered before it began.

Knows: Wing and Gong's search, with Lowe's memory of what was tried: which calls are done, as the bits of a number, and
the state that they led to; that a read changes nothing.
Does not know: what else is called; a `Model` says what a call does.

A call without an answer may take effect at any time after it began, or never.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

STEPS_MAX = 1_000_000
NEVER = float("inf")
READ = "read"  # the verb of a call that changes nothing, in every model

Model = Callable[[Any, Any], tuple[Hashable, Any]]  # (state, what is called) -> the state after it, and the answer


class Call(NamedTuple):
    """`key`: of the object that it is about; `end`: when it was answered, `NEVER` where that is not known."""

    begin: float
    end: float
    key: Hashable
    what: Any
    answer: Any = None


class Undecided(AssertionError):
    """More steps than a check may take."""


def register(state: Hashable, what: tuple[Any, ...]) -> tuple[Hashable, Any]:
    """A `Model`: ("read",), ("write", value), ("swap", expected, value), which answers whether it did."""
    match what:
        case ("write", value):
            return value, None
        case ("swap", expected, value):
            return (value, True) if state == expected else (state, False)
        case _:
            return state, state


def is_linearizable(
    calls: Iterable[Call], model: Model = register, initial: Hashable = None, steps_max: int = STEPS_MAX
) -> bool:
    """Whether the calls of each key are, which is whether all of them are.  `Undecided`."""
    return first_broken(calls, model, initial, steps_max) is None


def first_broken(
    calls: Iterable[Call], model: Model = register, initial: Hashable = None, steps_max: int = STEPS_MAX
) -> Sequence[Call] | None:
    """The calls of a key that no order explains, by their beginning."""
    by_key: dict[Hashable, list[Call]] = {}
    for call in sorted(calls, key=lambda each: (each.begin, each.end)):
        by_key.setdefault(call.key, []).append(call)
    for some in by_key.values():
        if not _search(some, model, initial, steps_max):
            return some
    return None


def _search(calls: Sequence[Call], model: Model, initial: Hashable, steps_max: int) -> bool:
    """Depth first; `calls` stand by their beginning."""
    answered = sum(1 << number for number, call in enumerate(calls) if call.end != NEVER)
    tried = {(0, initial)}
    left = [(0, initial)]
    while left:
        done, state = left.pop()
        if done & answered == answered:
            return True
        following = []
        for number in _next(calls, done):
            after, answer = model(state, calls[number].what)
            if after == state if calls[number].end == NEVER else answer != calls[number].answer:
                continue
            found = done | 1 << number, after
            if calls[number].what[0] == READ:  # an order with it later is one with it now: nothing else is tried
                following = [] if found in tried else [found]
                tried.add(found)
                break
            if found not in tried:
                tried.add(found)
                following.append(found)
        left += following[::-1]  # the earliest call is tried first
        if len(tried) > steps_max:
            raise Undecided(f"{len(calls)} calls: {steps_max} steps did not tell whether they are linearizable")
    return False


def _next(calls: Sequence[Call], done: int) -> list[int]:
    """Those that may be next: not done, and begun before each other one that is not done was answered."""
    first_end = NEVER
    found = []
    number = (~done & done + 1).bit_length() - 1  # the first that is not done
    for place in range(number, len(calls)):
        call = calls[place]
        if call.begin > first_end:
            break
        if not done >> place & 1:
            first_end = min(first_end, call.end)
            found.append(place)
    return found
