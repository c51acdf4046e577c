"""
The offsets of new records: the hook of a log's owner (docs/messages.md, "A put").

A draft is a record whose queue offset, physical offset, store time and CRC property are not filled in.  For each entry
of the log `Assigner.assign` gives each draft the next position of its queue and its place in the offset space, in a
copy: the draft stays as it is, for it comes again when its entry is encoded again.

Knows: the rule of places, the next positions beyond the applied table, and how to take calls back.
Does not know: logs, who asks.
Safety: an entry that is encoded again takes back its earlier call and all behind it, so that positions are dense and
none is given twice; a call that raises changes nothing.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

from quire.messages.core.layout import FILLER_BYTES, skip_before
from quire.messages.core.queues import QueueTable
from quire.messages.core.record import CRC_PROPERTY_BYTES, LONG, QUEUE_OFFSET_AT, TWO_LONGS, crc_property
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

Queue = tuple[str, int]
# What drafts of a queue share: the queue, where in them the store time is, whether a CRC property ends them.  No named
# tuple: a plain one, and the members of drafts with it, are nothing that garbage collection looks at each time.
Kind = tuple[Queue, int, bool]


class Draft(bytes):
    """
    A record before its put, and its unique id.  `group`: bytes of the group that begins with it; None: its own; 0: it
    is further in one.  `offset`, `position`, `store_ms`: what the last call of `assign` gave it.
    """

    kind: Kind
    unique_id: str
    group: int | None = None
    offset: int = -1
    position: int = -1
    store_ms: int = -1


@dataclass(slots=True)
class Call:
    """
    A call that is not applied yet: the index behind it, what it changed, as it was before, and what it gave: records,
    and the next positions behind them.
    """

    first: int
    end: int
    store_ms: int
    queues: dict[Queue, int] = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    ends: dict[Queue, int] = field(default_factory=dict)
    given_ms: int = 0


class Assigner:
    """Gives offsets to the drafts of one term of ownership."""

    __slots__ = ("_begin", "_calls", "_file_bytes", "_next", "_store_ms", "_table")

    def __init__(self, table: QueueTable, begin: int, file_bytes: int) -> None:
        """`table`: all that the log has is applied.  `begin`: of the last region."""
        self._table, self._begin, self._file_bytes = table, begin, file_bytes
        self._next: dict[Queue, int] = {}  # what calls that are not applied made of the table
        self._store_ms = table.store_ms
        self._calls: deque[Call] = deque()

    def assign(
        self, first_index: int, first_position: int, stamp_ms: int, drafts: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        """
        The records of an entry, and the bytes skipped before each.  `first_index` and `first_position`: of the entry's
        first record in the log, without its skip.
        """
        self.undo(first_index)
        call = Call(first_index, first_index + len(drafts), self._store_ms)
        store_ms = self._store_ms = max(stamp_ms, self._store_ms)
        values: list[bytes] = []
        skips: list[int] = []
        place, file_end = first_position, -1  # of the file that holds the place; -1: it is not known yet
        following, touched = self._next, call.queues
        try:
            for draft in drafts:
                if not isinstance(draft, Draft):
                    raise StoreDamaged("a record that is no draft of a message was appended to the log of a store")
                queue, size, skip = draft.kind[0], len(draft), 0
                group = size if draft.group is None else draft.group
                if group and place + group + FILLER_BYTES > file_end:
                    skip = skip_before(place, self._begin, group, self._file_bytes)
                    place += skip
                    file_end = place - place % self._file_bytes + self._file_bytes
                position = following.get(queue)
                if position is None:
                    position = self._table.next(*queue)
                if queue not in touched:
                    touched[queue] = position
                following[queue] = position + 1
                values.append(_filled(draft, position, place, store_ms))
                skips.append(skip)
                draft.offset, draft.position, draft.store_ms = place, position, store_ms
                place += size
        except BaseException:
            self._undo(call)
            raise
        call.values, call.given_ms, call.ends = values, store_ms, {queue: following[queue] for queue in touched}
        self._calls.append(call)
        return values, skips

    def undo(self, index: int) -> int:
        """
        Takes back all calls from an index on, for their entries are encoded again, or not in the log: how many drafts
        they had.
        """
        undone = 0
        while self._calls and self._calls[-1].end > index:
            call = self._calls.pop()
            self._undo(call)
            undone += call.end - call.first
        return undone

    def applied(self, index: int) -> None:
        """The table has all records below an index."""
        while self._calls and self._calls[0].end <= index:
            for queue in self._calls.popleft().queues:
                if self._next.get(queue) == self._table.next(*queue):
                    del self._next[queue]

    def stored(self, first_index: int, values: Sequence[bytes]) -> bool:
        """
        Brings the table to the end of an entry, at once.  False, and nothing is changed: these are not the very records
        of the oldest call, or the table is not where that call began.
        """
        call, table = self._calls[0] if self._calls else None, self._table
        if call is None or call.first != first_index or len(call.values) != len(values):
            return False
        if not all(map(is_, call.values, values)):
            return False
        if any(table.next(*queue) != position for queue, position in call.queues.items()):
            return False
        for queue, position in call.ends.items():
            table.advance(queue, position)
        table.store_ms = max(table.store_ms, call.given_ms)
        self.applied(call.end)
        return True

    def next(self, topic: str, queue: int) -> int:
        """The position that the next draft of a queue gets."""
        position = self._next.get((topic, queue))
        return self._table.next(topic, queue) if position is None else position

    def _undo(self, call: Call) -> None:
        self._store_ms = call.store_ms
        self._next.update(call.queues)


def _filled(draft: Draft, position: int, place: int, store_ms: int) -> bytes:
    _queue, store_time_at, has_crc = draft.kind
    record = bytearray(draft)
    TWO_LONGS.pack_into(record, QUEUE_OFFSET_AT, position, place)
    LONG.pack_into(record, store_time_at, store_ms)
    if has_crc:
        record[-CRC_PROPERTY_BYTES:] = crc_property(bytes(record[:-CRC_PROPERTY_BYTES]))
    return bytes(record)
