"""
A topic in pieces: which entries of which ledgers are read, and what of them.

Knows: the ledgers of a topic and their ends, where a reader begins and ends, what a subscription has acknowledged.
Does not know: how that was found out, who reads which piece.

The pieces follow each other in the order of the topic; each entry that is wanted is in exactly one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.pulsar.core.managed import CursorPlace, bits_of
from quire.pulsar.core.positions import EARLIEST, LATEST, Position

# SPDX-License-Identifier: Apache-2.0


class Segment(NamedTuple):
    """A ledger of a topic with its last entry (-1: none) and its bytes, as far as they are known."""

    ledger: int
    last: int
    bytes: int


class TopicRange(NamedTuple):
    """
    Entries `first` to `last` of one ledger of a topic or a partition, for one reader.

    `start`: messages before it are left out, where it is within an entry, and those from `stop` on; `end`: the last
    position of the topic when the plan was made, up to which the end of a transaction is looked for; `bits`: of entries
    that are partly acknowledged, a bit for each message that is not; `compacted`: the ledger is that of a compacted
    topic, whose entries have places elsewhere, and `place` is what a subscription has acknowledged of them.
    """

    topic: str
    ledger: int
    first: int
    last: int
    end: Position
    start: Position = EARLIEST
    bits: tuple[tuple[int, int], ...] = ()
    compacted: bool = False
    bytes: int = 0
    stop: Position = EARLIEST
    place: CursorPlace | None = None

    @property
    def entries(self) -> int:
        """Counts the entries."""
        return self.last - self.first + 1

    def bits_by_place(self) -> dict[tuple[int, int], int]:
        """The messages that are not acknowledged, of each entry that partly is."""
        if self.place is not None:
            return {at: bits_of(words) for at, words in self.place.bits.items()}
        return {(self.ledger, entry): bits for entry, bits in self.bits}


class Window(NamedTuple):
    """Where a reader begins and ends, both included; `place`: what its subscription has acknowledged."""

    start: Position
    end: Position = LATEST
    place: CursorPlace | None = None

    @property
    def stop(self) -> Position:
        """The message behind the last one, where that is within an entry; else `EARLIEST`."""
        ledger, entry, index = self.end
        return Position(ledger, entry, index + 1) if index >= 0 else EARLIEST


def end_of(segments: Sequence[Segment]) -> Position:
    """The last position of a topic; (-1, -1) where it has none."""
    return max((Position(each.ledger, each.last) for each in segments if each.last >= 0), default=Position(-1, -1))


def cut(topic: str, segments: Sequence[Segment], window: Window, split_bytes: int) -> list[TopicRange]:
    """The pieces of a topic, of about `split_bytes` each."""
    end = end_of(segments)
    found: list[TopicRange] = []
    for segment in segments:
        first = max(0, window.start.entry) if segment.ledger == window.start.ledger else 0
        last = min(segment.last, window.end.entry) if segment.ledger == window.end.ledger else segment.last
        if segment.ledger < window.start.ledger or segment.ledger > window.end.ledger or first > last:
            continue
        each = max(1, segment.bytes // (segment.last + 1))
        for low, high in parts(window.place, segment.ledger, first, last):
            for begin, stop in pieces(low, high, max(1, split_bytes // each)):
                start = window.start if (segment.ledger, begin) == window.start.place else EARLIEST
                behind = window.stop if (segment.ledger, stop) == window.stop.place else EARLIEST
                bits = bits_within(window.place, segment.ledger, begin, stop)
                size = each * (stop - begin + 1)
                found.append(TopicRange(topic, segment.ledger, begin, stop, end, start, bits, False, size, behind))
    return found


def parts(place: CursorPlace | None, ledger: int, first: int, last: int) -> list[tuple[int, int]]:
    """The entries that are not acknowledged."""
    return [(first, last)] if place is None else place.wanted(ledger, first, last)


def pieces(first: int, last: int, most: int) -> Iterable[tuple[int, int]]:
    """Ranges of about equally many entries, of `most` or fewer."""
    count = last - first + 1
    number = -(-count // most)
    for at in range(number):
        yield first + count * at // number, first + count * (at + 1) // number - 1


def bits_within(place: CursorPlace | None, ledger: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The entries there that are partly acknowledged, with their bits."""
    if place is None:
        return ()
    return tuple(
        (entry, bits_of(words))
        for (its, entry), words in sorted(place.bits.items())
        if its == ledger and first <= entry <= last
    )
