"""
Pieces of bytes that lie one behind the other, as a column of a batch has them, and as Arrow has them: a sequence of
bytes of which no object is made before it is asked for.

Knows: the lengths, which of the pieces are none, how both lie in a batch.
Does not know: what the pieces are.
Safety: lengths and bytes fit each other, or there is no such sequence.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Generic, TypeVar, cast, overload

# SPDX-License-Identifier: Apache-2.0

P = TypeVar("P", bound=bytes | None)
NONE = (1 << 32) - 1  # as a length: there is no piece
IS_LITTLE = array("H", [1]).tobytes() == b"\1\0"  # this machine: a batch is in the other order


def numbers(letter: str, data: bytes | memoryview) -> "array[int]":
    """Integers of this type of `array`, which `data` has in network order."""
    found = array(letter)
    found.frombytes(data)
    if IS_LITTLE:
        found.byteswap()
    return found


def stored(letter: str, values: Iterable[int]) -> bytes:
    """Integers as a batch has them: of this type of `array`, in network order.  `OverflowError`."""
    packed = array(letter, values)
    if IS_LITTLE:
        packed.byteswap()
    return packed.tobytes()


class Packed(Sequence[P], Generic[P]):
    """`lengths`: of each piece, `NONE` where there is none, as 32-bit numbers; `data`: all pieces without a gap."""

    NONE = NONE

    def __init__(self, lengths: "array[int]", data: bytes | memoryview) -> None:
        """`ValueError` when the pieces are not as long as the bytes."""
        self.lengths = lengths
        self.data = memoryview(data)
        self.missing = 0
        size = sum(lengths)
        if size >= NONE:  # or none is missing, as mostly
            self.missing = lengths.count(NONE)
            size -= NONE * self.missing
        if size != len(self.data):
            raise ValueError(f"{len(lengths)} pieces have {size} bytes, and there are {len(self.data)}")

    @classmethod
    def of(cls, pieces: Sequence[P]) -> "Packed[P]":
        """Packs pieces."""
        return cls(array("I", [NONE if each is None else len(each) for each in pieces]), b"".join(filter(None, pieces)))

    @cached_property
    def ends(self) -> list[int]:
        """Where each piece begins, and the end of the last."""
        return list(accumulate(self.sizes(), initial=0))

    def sizes(self) -> list[int]:
        """The length of each, of none 0."""
        return [0 if each == NONE else each for each in self.lengths] if self.missing else self.lengths.tolist()

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[P]:
        data, at, pieces = self.data.tobytes(), 0, list[bytes | None]()
        for size in self.lengths:
            if size == NONE:
                pieces.append(None)
            else:
                pieces.append(data[at : at + size])
                at += size
        return iter(cast(list[P], pieces))

    @overload
    def __getitem__(self, index: int) -> P: ...

    @overload
    def __getitem__(self, index: slice) -> "Packed[P]": ...

    def __getitem__(self, index: int | slice) -> "P | Packed[P]":
        ends = self.ends
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return Packed.of([self[each] for each in range(start, stop, step)])
            return Packed(self.lengths[start:stop], self.data[ends[start] : ends[max(start, stop)]])
        at = range(len(self))[index]
        return cast(P, None if self.lengths[at] == NONE else bytes(self.data[ends[at] : ends[at + 1]]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # what compares as a list is no key
