"""
The position of each record in its queue, and the next one of every queue: a replicated state machine.

What `save` gives, big-endian: i64 the last store time, then for each topic in order u16 length and name, u32 count of
queues, and for each queue in order i32 its number, i64 its next position.  Equal tables have equal bytes.

Knows: the one rule of a record's place in its queue, with the exceptions of an import.
Does not know: logs, rows, who applies.
Safety: behind the imported records a record is at the next position of its queue, or `StoreDamaged`.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from quire.messages.core.layout import record_of
from quire.messages.core.record import Record, unpack
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

STORE_TIME, TOPIC, COUNT, QUEUE = struct.Struct(">q"), struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">iq")
QUEUES_A_PIECE = 4096


class Place(NamedTuple):
    """The first position of a record in its queue, and how many it takes."""

    position: int
    positions: int

    @property
    def next(self) -> int:
        return self.position + self.positions


class Placing:
    """
    The place of a record in its queue (docs/messages.md, "Positions").

    `next`: (topic, queue, position) of queues that begin above 0 without a record.  `shifts`: (topic, queue, offset,
    by): imported records of that queue from that physical offset on are at their queue offset - by; the newest one
    counts.
    `doubles`: physical offsets of records without a position.  `end`: behind the last imported record.
    """

    __slots__ = ("doubles", "end", "next", "shifts")

    def __init__(
        self,
        next: Iterable[tuple[str, int, int]] = (),
        shifts: Iterable[tuple[str, int, int, int]] = (),
        doubles: Iterable[int] = (),
        end: int = 0,
    ) -> None:
        self.next = tuple(next)
        self.doubles = frozenset(doubles)
        self.end = end
        self.shifts: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
        for topic, queue, offset, by in sorted(shifts):
            offsets, amounts = self.shifts.setdefault((topic, queue), ([], []))
            offsets.append(offset)
            amounts.append(by)

    def position(self, record: Record, offset: int) -> int | None:
        """The first position of a record, by its place in the log.  None: it has no position."""
        if not record.in_queue() or offset in self.doubles:
            return None
        position = record.queue_offset
        if offset < self.end and (found := self.shifts.get((record.topic, record.queue))):
            before = bisect_right(found[0], offset)
            if before:
                position -= found[1][before - 1]
        return position

    def place(self, record: Record, offset: int) -> Place | None:
        """As `position`, with how many positions it takes."""
        position = self.position(record, offset)
        return None if position is None else Place(position, record.positions())


class Stored(Protocol):
    """A record of the log."""

    @property
    def value(self) -> bytes: ...


class QueueTable:
    """The next position of each queue, and the last store time."""

    __slots__ = ("_is_partial", "_next", "_placing", "store_ms")

    def __init__(self, placing: Placing | None = None, is_partial: bool = False) -> None:
        """`is_partial`: of a log whose begin was trimmed: a queue begins where its first record is."""
        self._placing = placing or Placing()
        self._is_partial = is_partial
        self._next: dict[str, dict[int, int]] = {}
        self.store_ms = 0
        for topic, queue, position in () if is_partial else self._placing.next:
            self._next.setdefault(topic, {})[queue] = position

    def next(self, topic: str, queue: int) -> int:
        """0 for a queue that is not known."""
        queues = self._next.get(topic)
        return queues.get(queue, 0) if queues else 0

    def queues(self, topic: str) -> dict[int, int]:
        """The next position of each queue of a topic, by number."""
        return dict(sorted(self._next.get(topic, {}).items()))

    def topics(self) -> list[str]:
        return sorted(self._next)

    def apply(self, stored: Stored) -> None:
        """The next record of the log, whose sums the log or its owner has seen to; `StoreDamaged`."""
        value = stored.value
        self.take(unpack(record_of(value)[1], sums=False))

    def take(self, record: Record) -> None:
        """As `apply`, of a record that is read already."""
        self.store_ms = max(self.store_ms, record.store_ms)
        position = self._placing.position(record, record.offset)
        if position is None:
            return
        topic, queue = record.topic, record.queue
        queues = self._next.get(topic)
        if queues is None:
            queues = self._next[topic] = {}
        expected = queues.get(queue, position if self._is_partial else 0)
        if position != expected and record.offset >= self._placing.end:
            raise StoreDamaged(
                f"the record at {record.offset} has position {position} in queue {queue} of {topic!r}, whose next one"
                f" is {expected}: `quire messages check` lists what is wrong"
            )
        queues[queue] = position + record.positions()

    def advance(self, queue: tuple[str, int], position: int) -> None:
        """All below a position of a queue is in the log."""
        self._next.setdefault(queue[0], {})[queue[1]] = position

    def save(self) -> Sequence[bytes]:
        pieces = [STORE_TIME.pack(self.store_ms)]
        for topic in self.topics():
            name, queues = topic.encode(), self._next[topic]
            pieces.append(TOPIC.pack(len(name)) + name + COUNT.pack(len(queues)))
            pieces.extend(_packed(sorted(queues.items())))
        return pieces

    def load(self, data: Iterable[bytes]) -> None:
        """`StoreDamaged` for what `save` did not give."""
        raw = b"".join(data)
        found: dict[str, dict[int, int]] = {}
        try:
            store_ms, at = STORE_TIME.unpack_from(raw)[0], STORE_TIME.size
            while at < len(raw):
                length = TOPIC.unpack_from(raw, at)[0]
                at += TOPIC.size
                topic = raw[at : at + length].decode()
                at += length
                end = at + COUNT.size + QUEUE.size * COUNT.unpack_from(raw, at)[0]
                found[topic] = dict(QUEUE.iter_unpack(raw[at + COUNT.size : end]))
                at = end
        except (struct.error, UnicodeDecodeError):
            at = -1
        if at != len(raw):
            raise StoreDamaged("a snapshot of the queue table is cut off")
        self._next, self.store_ms = found, store_ms


def _packed(rows: list[tuple[int, int]]) -> Iterator[bytes]:
    for start in range(0, len(rows), QUEUES_A_PIECE):
        yield b"".join(QUEUE.pack(queue, position) for queue, position in rows[start : start + QUEUES_A_PIECE])
