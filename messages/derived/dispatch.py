"""
Records of the log become rows: their places in queues, their keys, the entries that hold them, and how far all that is.

Knows: which rows a record has; that rows gather up to a maximum, and that one write holds them and the checkpoint.
Does not know: threads, readers, where the log is.
Safety: a checkpoint is in the write of the last rows that it counts, so whatever prefix of writes a crash leaves, its
rows are those of all records below its checkpoint, perhaps with keys of the next one.  Rows depend on the log and the
descriptor alone.  Positions of a queue are dense, or `StoreDamaged`.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple, Self

from crc32c import crc32c

from quire.log.reader.batches import LogBatch
from quire.messages.core.layout import record_of
from quire.messages.core.queues import Placing
from quire.messages.core.record import Record, key_hash, unpack
from quire.messages.derived import rows as r
from quire.messages.derived.rows import Bounds, Checkpoint, EntryRow, QueueRow
from quire.protocol.message_errors import NotAMessage, StoreDamaged
from quire.rows.contract import BATCH_BYTES_MAX, Row, Rows

# SPDX-License-Identifier: Apache-2.0

QUEUES_MAX = 100_000  # whose bounds are held in memory
KEY_ROW_BYTES = r.KEY_KEY.size + r.LONG.size
CHECK = "`quire messages check` lists what is wrong"


class Portion(NamedTuple):
    """Adjacent records of one entry of the log, from one on, and the row that would find them."""

    first: int
    positions: list[int]
    values: list[bytes]
    entry: EntryRow

    @classmethod
    def of(cls, batch: LogBatch) -> Self:
        positions = batch.positions
        entry = EntryRow(positions[0], *batch.place, batch.index, batch.count)
        return cls(batch.index, positions, batch.values, entry)


def stored_at(value: bytes, position: int) -> tuple[int, Record]:
    """(physical offset, record) of a value of the log at a byte position; `StoreDamaged`."""
    inset, raw = record_of(value)
    try:
        record = unpack(raw)
    except NotAMessage as error:
        raise StoreDamaged(f"the record at {position + inset} is damaged: {error}; {CHECK}") from None
    if record.offset != position + inset or record.size != len(raw):
        raise StoreDamaged(
            f"the record at {position + inset} says it has {record.size} bytes at {record.offset}, and the log has "
            f"{len(raw)} bytes here; {CHECK}"
        )
    return position + inset, record


class Change(NamedTuple):
    """
    The rows of one record, those of keys first, their bytes with those of its queue's bounds, and these bounds behind
    it, if it is in a queue.
    """

    puts: list[Row]
    size: int
    queue: tuple[str, int] | None = None
    bounds: Bounds | None = None


class Dispatch:
    """
    Dispatches to some rows, from their checkpoint on.  An error leaves it behind: another one begins where the rows
    are.  `reached`: is called right after a step that a test may want to end at.
    """

    def __init__(
        self,
        rows: Rows,
        log: str,
        placing: Placing,
        reached: Callable[[str], None] = lambda _name: None,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`rest`: is called between two records, and lets other threads compute once it is their turn."""
        self.rows = rows
        self._log = log
        self._placing = placing
        self._reached = reached
        self._rest = rest
        found = rows.get(r.CHECKPOINT_KEY)
        self.checkpoint = None if found is None else r.checkpoint_of(found)
        self._end = None if self.checkpoint is None else self.checkpoint.index  # behind the last record taken
        self._is_resumed = self.checkpoint is not None  # and no record was taken yet
        self._queues: dict[tuple[str, int], Bounds | None] = {}
        self._changed: dict[tuple[str, int], None] = {}  # whose bounds are not written
        self._last: tuple[int, int, bytes] | None = None  # index, byte position and value of the last record gathered
        self._puts: list[Row] = []
        self._bytes = 0

    def take(self, portions: Iterable[Portion]) -> Checkpoint | None:
        """Writes the rows of the next records; how far that is.  `StoreDamaged`; `OSError`."""
        for portion in portions:
            self._begin(portion)
            for last in zip(count(portion.first), portion.positions, portion.values):  # noqa: B905: it has no end
                self._rest()
                self._gather(self._change(last[2], last[1]))
                self._last = last
            self._end = portion.first + len(portion.values)
        self._write()
        return self.checkpoint

    def _begin(self, portion: Portion) -> None:
        """Gathers the row of the entry, unless a restart left its first records dispatched."""
        if self._end is not None and portion.first != self._end:
            raise StoreDamaged(f"records {self._end} to {portion.first - 1} of the log were not given out; {CHECK}")
        was_resumed, self._is_resumed = self._is_resumed, False
        below = self.rows.floor(r.entry_key(portion.entry.position)) if was_resumed else None
        if below is not None and below[0][:1] == b"o":
            row = r.entry_row(*below)
            if row.first <= portion.first < row.first + row.records:
                return
        key, value = r.entry_key(portion.entry.position), r.entry_value(portion.entry)
        self._gather(Change([(key, value)], len(key) + len(value)))

    def _change(self, value: bytes, position: int) -> Change:
        offset, record = stored_at(value, position)
        properties = record.properties
        stored = r.key_value(record.store_ms)
        hashes = {key_hash(record.topic, key) for key in record.keys(properties)}
        puts = [(r.key_key(hashed, offset), stored) for hashed in hashes]
        size = KEY_ROW_BYTES * len(puts)
        place = self._placing.place(record, offset)
        if place is None:
            return Change(puts, size)
        queue = record.topic, record.queue
        bounds = self.bounds(queue)
        if bounds is not None and place.position != bounds.next:
            raise StoreDamaged(
                f"the record at {offset} has position {place.position} in queue {record.queue} of {record.topic!r}, "
                f"whose next one is {bounds.next}; {CHECK}"
            )
        code = record.tags_code(properties)
        row = QueueRow(place.position, offset, record.size, code, record.store_ms, place.positions)
        key = r.queue_key(*queue, place.position)
        puts.append((key, r.queue_value(row)))
        size += len(key) + r.QUEUE_VALUE.size
        if queue not in self._changed:
            size += len(key) + r.BOUNDS_VALUE.size
        return Change(puts, size, queue, Bounds(place.position if bounds is None else bounds.first, place.next))

    def _gather(self, change: Change) -> None:
        """Writes what was gathered before, if both are too much; and of very many keys some at once."""
        puts, size, queue, bounds = change
        if self._bytes + size > BATCH_BYTES_MAX:
            self._write()
        while size > BATCH_BYTES_MAX:
            some = puts[: BATCH_BYTES_MAX // KEY_ROW_BYTES]
            self.rows.write(some)
            puts, size = puts[len(some) :], size - KEY_ROW_BYTES * len(some)
        self._puts += puts
        self._bytes += size
        if queue is not None:
            self._queues[queue] = bounds
            self._changed[queue] = None

    def _write(self) -> None:
        if self._last is None:
            return
        index, position, value = self._last
        self.checkpoint = Checkpoint(self._log, index + 1, position + len(value), crc32c(value))
        for queue in self._changed:
            bounds = self._queues[queue]
            assert bounds is not None
            self._puts.append((r.bounds_key(*queue), r.bounds_value(bounds)))
        self._puts.append((r.CHECKPOINT_KEY, r.checkpoint_value(self.checkpoint)))
        self.rows.write(self._puts)
        self._puts, self._bytes, self._last = [], 0, None
        self._changed.clear()
        self._reached("dispatch.written")
        if len(self._queues) > QUEUES_MAX:
            self._queues.clear()

    def bounds(self, queue: tuple[str, int]) -> Bounds | None:
        """None: no record of the queue was dispatched."""
        if queue not in self._queues:
            value = self.rows.get(r.bounds_key(*queue))
            self._queues[queue] = None if value is None else r.bounds_of(value)
        return self._queues[queue]

    def raise_first(self, queue: tuple[str, int], first: int) -> Row:
        """The row that says that no row of a queue is below a position; between two calls of `take`."""
        bounds = self.bounds(queue)
        assert bounds is not None
        self._queues[queue] = raised = Bounds(first, bounds.next)
        return r.bounds_key(*queue), r.bounds_value(raised)
