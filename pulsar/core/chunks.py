"""
Messages that a producer cut into chunks, one an entry: gathered until the last one has come.

Knows: that chunks of several messages may lie among each other, that one may be there twice, and what becomes of a
message that lacks some.
Does not know: where earlier entries are; who has read them hands them to `completed`.

The payload is compressed before it is cut.  A message stands at the position of its last chunk.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from quire.pulsar.core.entry import Frame
from quire.pulsar.core.positions import PassedOver, Position

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class Pieces:
    """The chunks of one message, from the number `first` on.  `position`: of the newest."""

    count: int
    first: int
    position: Position
    payloads: list[bytes] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(map(len, self.payloads))


class Incomplete(NamedTuple):
    """A message whose last chunk has come while those below `first` have not.  `frame`: the last chunk."""

    frame: Frame
    pieces: Pieces

    def missing(self) -> PassedOver:
        """Tells that it is not given."""
        lacks = f"chunks 0 to {self.pieces.first - 1}" if self.pieces.first else "some chunks"
        name = self.frame.head.uuid.decode("utf-8", "replace")
        text = f"message {name!r} in {self.pieces.count} chunks lacks {lacks}"
        return PassedOver(self.frame.position, "chunks", text)


class Chunks:
    """The messages that are being gathered.  `bytes_max`: of all of them; the oldest is given up above."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._gathering: dict[bytes, Pieces] = {}
        self._bytes = 0
        self.passed: list[PassedOver] = []

    def add(self, frame: Frame) -> Frame | Incomplete | None:
        """Takes a chunk; the whole message, if that was the last one, or what lacks its first chunks."""
        name, number, count = frame.head.uuid, frame.head.chunk, frame.head.chunks
        pieces = self._gathering.get(name)
        if pieces is not None and number == 0:  # the producer began again
            self._drop(name)
            pieces = None
        if pieces is None:
            pieces = self._gathering[name] = Pieces(count, number, frame.position)
        following = pieces.first + len(pieces.payloads)
        if number < following:  # sent twice
            return None
        if number > following:  # one between is gone: no later one helps
            self._drop(name)
            if number == count - 1:
                return Incomplete(frame, Pieces(count, 0, frame.position))
            return None
        pieces.payloads.append(frame.payload)
        pieces.position = frame.position
        self._bytes += len(frame.payload)
        if number < count - 1:
            self._bound()
            return None
        self._drop(name)
        if pieces.first:
            return Incomplete(frame, pieces)
        return whole(frame, pieces.payloads)

    def rest(self) -> list[PassedOver]:
        """Tells which messages have begun and not ended."""
        return [
            PassedOver(
                pieces.position,
                "chunks",
                f"message {name.decode('utf-8', 'replace')!r} in {pieces.count} chunks has no chunk behind"
                f" {pieces.first + len(pieces.payloads) - 1} yet",
            )
            for name, pieces in self._gathering.items()
            if not pieces.first
        ]

    def _drop(self, name: bytes) -> None:
        self._bytes -= self._gathering.pop(name).bytes

    def _bound(self) -> None:
        while self._bytes > self._bytes_max and self._gathering:
            name, pieces = next(iter(self._gathering.items()))
            self._drop(name)
            text = (
                f"message {name.decode('utf-8', 'replace')!r}: chunks above {self._bytes_max} bytes wait for their end"
            )
            self.passed.append(PassedOver(pieces.position, "chunks", text))


def whole(last: Frame, payloads: list[bytes]) -> Frame:
    """The entry that a message in chunks would be if it had not been cut."""
    return last._replace(payload=b"".join(payloads))


def completed(found: Incomplete, earlier: dict[int, bytes]) -> Frame | None:
    """The whole message, with the chunks that were found before; None where one is still missing."""
    numbers = range(found.pieces.first)
    if not found.pieces.payloads or not all(number in earlier for number in numbers):
        return None
    return whole(found.frame, [*(earlier[number] for number in numbers), *found.pieces.payloads])
