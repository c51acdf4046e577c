"""
The machine that a replica runs, and the answers that its readers are given.

Knows: what is asked of a user's machine.  Does not know: logs, snapshots, who asks.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, cast

from quire.log.reader.batches import Record

# SPDX-License-Identifier: Apache-2.0


class Machine(Protocol):
    """
    A state that follows from the records of a log alone: neither the time of day, nor chance, nor this process may
    change what `apply` does.  All methods are called on the reactor's thread, so they must not block.

    Two more are called where there are such methods.  `role(role, epoch)`: the replica begins or ceases to lead.
    `apply_own(first_index, values)`: these records were appended here; `values` are the very objects that were stored.
    True: all are applied, and each gave None; False: nothing was done, and `apply` gets them one by one.
    """

    def apply(self, record: Record) -> object:
        """The next record; what it gives is the answer of whoever proposed it.  If it raises, the replica stops."""

    def save(self) -> Iterable[bytes]:
        """
        The state of now, in any pieces.  They are asked for while `apply` goes on: an iterator has to be one over a
        copy, and a list is safe always.
        """

    def load(self, data: Iterable[bytes]) -> None:
        """Takes over the state that these bytes hold; they may be cut in other places than `save` had cut them."""


class Answer(NamedTuple):
    """
    The answer to a read: what a function of the machine gave; the first index that was not applied then; how old the
    state may have been, in ms: the answer knows all that was acknowledged so long before.  -1: nobody looked.
    """

    value: Any
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    age_ms: int


def is_awaited(answer: type) -> bool:
    """True if a call with such an answer has done nothing, or not all, until somebody awaits it."""
    return hasattr(answer, "__await__") or hasattr(answer, "__aiter__")


def pieces_of(given: object, what: str) -> Iterator[bytes]:
    """The pieces of a state, one by one; `TypeError`, which begins with `what`, for bytes by themselves."""
    if isinstance(given, bytes | str) or is_awaited(type(given)):  # a Deferred that has fired has no pieces
        raise TypeError(f"{what} pieces of bytes, in a list say, not {type(given).__name__} by itself")
    return iter(cast(Iterable[bytes], given))


def always() -> bool:
    """Says that the proof stays true."""
    return True


class Proof(NamedTuple):
    """
    Proves that a replica which has applied all below `index` knows all that was acknowledged before `since`, in seconds
    of a clock that is never set; if `holds()` when the read is over.
    """

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    since: float
    holds: Callable[[], bool] = always
