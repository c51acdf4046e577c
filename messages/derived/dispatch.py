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
from operator import itemgetter
from typing import NamedTuple, Self

from crc32c import crc32c

from quire.log.reader.batches import LogBatch
from quire.messages.core.layout import MAGICS, record_of
from quire.messages.core.queues import Placing
from quire.messages.core.record import Record, key_hashes, parse_properties, unpack
from quire.messages.derived import rows as r
from quire.messages.derived.rows import Bounds, Checkpoint, EntryRow
from quire.protocol.message_errors import NotAMessage, StoreDamaged
from quire.rows.contract import BATCH_BYTES_MAX, Row, Rows

# SPDX-License-Identifier: Apache-2.0

UNRESTED = 16  # records between two looks at the clock
QUEUES_MAX = 100_000  # whose bounds are held in memory
KEY_ROW_BYTES = r.KEY_KEY.size + r.LONG.size
KEY = itemgetter(0)
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
    inset, raw = (0, value) if value[4:8] in MAGICS else record_of(value)
    offset = position + inset
    try:
        record = unpack(raw)
    except NotAMessage as error:
        raise StoreDamaged(f"the record at {offset} is damaged: {error}; {CHECK}") from None
    if record.offset != offset or record.raw is not raw:
        raise StoreDamaged(
            f"the record at {offset} says it has {record.size} bytes at {record.offset}, and the log has "
            f"{len(raw)} bytes here; {CHECK}"
        )
    return offset, record


class Ahead:
    """A queue: how the keys of its rows begin, and its bounds behind the last record taken; None: it has no record."""

    __slots__ = ("first", "is_changed", "next", "prefix")

    def __init__(self, prefix: bytes, bounds: Bounds | None) -> None:
        self.prefix = prefix
        self.first: int | None = None if bounds is None else bounds.first
        self.next: int | None = None if bounds is None else bounds.next
        self.is_changed = False  # since the last write


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
        self._queues: dict[tuple[str, int], Ahead] = {}
        self._changed: list[tuple[str, int]] = []  # whose bounds are not written
        self._last: tuple[int, int, bytes] | None = None  # index, byte position and value of the last record gathered
        self._puts: list[Row] = []
        self._bytes = 0

    def take(self, portions: Iterable[Portion]) -> Checkpoint | None:
        """Writes the rows of the next records; how far that is.  `StoreDamaged`; `OSError`."""
        for portion in portions:
            self._begin(portion)
            for last in zip(count(portion.first), portion.positions, portion.values):
                if not last[0] % UNRESTED:
                    self._rest()
                self._gather(last[2], last[1])
                self._last = last
            self._end = portion.first + len(portion.values)
        self._write()
        if len(self._queues) > QUEUES_MAX:
            self._queues.clear()
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
        self._add([(key, value)], len(key) + len(value))

    def _gather(self, value: bytes, position: int) -> None:
        """The rows of a record, those of keys first, and the bounds of its queue behind it, if it is in one."""
        offset, record = stored_at(value, position)
        topic, properties = record.topic, parse_properties(record.raw_properties)
        stored, before = r.LONG.pack(record.store_ms), ~offset
        puts = [(r.KEY_KEY.pack(b"k", each, before), stored) for each in key_hashes(topic, record.keys(properties))]
        size = KEY_ROW_BYTES * len(puts)
        at = self._placing.position(record, offset)
        if at is None:
            self._add(puts, size)
            return
        queue = topic, record.queue
        ahead = self._queues.get(queue) or self._known(queue)
        if at != ahead.next is not None:
            raise StoreDamaged(
                f"the record at {offset} has position {at} in queue {record.queue} of {topic!r}, whose next one is "
                f"{ahead.next}; {CHECK}"
            )
        key, positions = ahead.prefix + r.LONG.pack(at), record.positions()
        code = record.tags_code(properties)
        puts.append((key, r.queue_value(offset, record.size, code, record.store_ms, positions)))
        size += len(key) + r.QUEUE_VALUE.size
        if not ahead.is_changed:
            size += len(key) + r.BOUNDS_VALUE.size
        self._add(puts, size)
        if ahead.next is None:
            ahead.first = at
        ahead.next = at + positions
        if not ahead.is_changed:
            ahead.is_changed = True
            self._changed.append(queue)

    def _add(self, puts: list[Row], size: int) -> None:
        """Writes what was gathered before, if both are too much; and of very many keys some at once."""
        if self._bytes + size > BATCH_BYTES_MAX:
            self._write()
            while size > BATCH_BYTES_MAX:
                some = puts[: BATCH_BYTES_MAX // KEY_ROW_BYTES]
                self.rows.write(some)
                puts, size = puts[len(some) :], size - KEY_ROW_BYTES * len(some)
        self._puts += puts
        self._bytes += size

    def _write(self) -> None:
        if self._last is None:
            return
        index, position, value = self._last
        self.checkpoint = Checkpoint(self._log, index + 1, position + len(value), crc32c(value))
        self._puts.sort(key=KEY)  # RocksDB finds the place of a neighbour in half the time
        for queue in self._changed:
            ahead = self._queues[queue]
            ahead.is_changed = False
            self._puts.append((r.bounds_key(*queue), r.BOUNDS_VALUE.pack(ahead.first, ahead.next)))
        self._puts.append((r.CHECKPOINT_KEY, r.checkpoint_value(self.checkpoint)))
        self.rows.write(self._puts)
        self._puts, self._bytes, self._last = [], 0, None
        self._changed.clear()
        self._reached("dispatch.written")

    def _known(self, queue: tuple[str, int]) -> Ahead:
        """A queue that is met for the first time."""
        value = self.rows.get(r.bounds_key(*queue))
        ahead = Ahead(r.queue_prefix(*queue), None if value is None else r.bounds_of(value))
        self._queues[queue] = ahead
        return ahead

    def raise_first(self, queue: tuple[str, int], first: int) -> Row:
        """The row that says that no row of a queue is below a position; between two calls of `take`."""
        ahead = self._queues.get(queue) or self._known(queue)
        ahead.first = first
        assert ahead.next is not None
        return r.bounds_key(*queue), r.bounds_value(Bounds(first, ahead.next))
