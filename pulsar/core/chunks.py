"""
Messages that a producer cut into chunks, one an entry: gathered until the last one has come.

Knows: that chunks of several messages may lie among each other, that one may be there twice, and what becomes of a
message that lacks some.  One that was given up for a bound may be whole where it is stored, so it has a reason of its
own.
Does not know: where earlier entries are; who has read them hands them to `completed`.

The payload is compressed before it is cut.  A message stands at the position of its last chunk.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from quire.pulsar.core.entry import Frame
from quire.pulsar.core.positions import PassedOver, Position

# SPDX-License-Identifier: Apache-2.0


CHUNK_BYTES, LOOK_BACK = "chunk_bytes_max", "look_back_max"  # options, and reasons why a message is not whole here


@dataclass(slots=True)
class Pieces:
    """
    The chunks of one message, from the number `first` on up to before `following`.  `lost`: why they are not kept, ""
    while they are; `position`: of the newest.
    """

    count: int
    first: int
    following: int
    position: Position
    payloads: list[bytes] = field(default_factory=list)
    lost: str = ""

    @property
    def bytes(self) -> int:
        return sum(map(len, self.payloads))


class Incomplete(NamedTuple):
    """A message whose last chunk has come while others are not at hand.  `frame`: the last chunk."""

    frame: Frame
    pieces: Pieces

    def missing(self, why: str, limit: int = 0) -> PassedOver:
        """Tells that it is not given.  `limit`: what the option allows that is the reason, if one is."""
        name, count, first = self.frame.head.uuid.decode("utf-8", "replace"), self.pieces.count, self.pieces.first
        lacks = {
            CHUNK_BYTES: f"was given up, for above {limit} bytes of chunks waited for their end",
            LOOK_BACK: f"lacks chunks 0 to {first - 1}, which are not among the {limit} entries before",
        }.get(why, f"lacks chunks 0 to {first - 1}" if first else "lacks some chunks")
        return PassedOver(self.frame.position, why, f"message {name!r} in {count} chunks {lacks}")


class Chunks:
    """The messages that are being gathered.  `bytes_max`: of all of them; the oldest is given up above."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._gathering: dict[bytes, Pieces] = {}
        self._lost: dict[bytes, Pieces] = {}
        self._bytes = 0

    def add(self, frame: Frame) -> Frame | Incomplete | None:
        """Takes a chunk; the whole message, if that was the last one, or what lacks chunks."""
        name, number, count = frame.head.uuid, frame.head.chunk, frame.head.chunks
        if number == 0:  # the producer begins, or began again
            self._drop(name)
        pieces = self._gathering.get(name) or self._lost.get(name)
        if pieces is None:
            pieces = self._gathering[name] = Pieces(count, number, number, frame.position)
        if number < pieces.following:  # sent twice
            return None
        if number > pieces.following:  # one between is gone: no later one helps
            self._lose(name, pieces, "chunks")
        pieces.following, pieces.position = number + 1, frame.position
        if not pieces.lost:
            pieces.payloads.append(frame.payload)
            self._bytes += len(frame.payload)
        if number < count - 1:
            self._bound()
            return None
        self._drop(name)
        if pieces.first or pieces.lost:
            return Incomplete(frame, pieces)
        return whole(frame, pieces.payloads)

    def rest(self) -> list[PassedOver]:
        """Tells which messages have begun and not ended."""
        return [
            PassedOver(
                pieces.position,
                "chunks",
                f"message {name.decode('utf-8', 'replace')!r} in {pieces.count} chunks has no chunk behind"
                f" {pieces.following - 1} yet",
            )
            for name, pieces in (*self._lost.items(), *self._gathering.items())
            if not pieces.first and pieces.lost != "chunks"
        ]

    def _drop(self, name: bytes) -> None:
        self._lost.pop(name, None)
        pieces = self._gathering.pop(name, None)
        self._bytes -= 0 if pieces is None else pieces.bytes

    def _lose(self, name: bytes, pieces: Pieces, why: str) -> None:
        self._drop(name)
        pieces.payloads, pieces.lost = [], why
        self._lost[name] = pieces

    def _bound(self) -> None:
        while self._bytes > self._bytes_max and self._gathering:
            name, pieces = next(iter(self._gathering.items()))
            self._lose(name, pieces, CHUNK_BYTES)


def whole(last: Frame, payloads: list[bytes]) -> Frame:
    """The entry that a message in chunks would be if it had not been cut."""
    return last._replace(payload=b"".join(payloads))


def completed(found: Incomplete, earlier: dict[int, bytes]) -> Frame | None:
    """The whole message, with the chunks that were found before; None where one is still missing."""
    numbers = range(found.pieces.first)
    if not found.pieces.payloads or not all(number in earlier for number in numbers):
        return None
    return whole(found.frame, [*(earlier[number] for number in numbers), *found.pieces.payloads])
