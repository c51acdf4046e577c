"""
The rows of a message store: keys that are ordered bytewise, and their values, big-endian.

    q, u16 length and topic, i32 queue, i64 position    i64 physical offset, i32 size, i64 tags code, i64 store time,
                                                        u16 positions that it takes
    m, u16 length and topic, i32 queue                  i64 first position (a lower bound), i64 next position
    k, i32 hash of a key, i64 ~physical offset          i64 store time; the newest record comes first
    o, i64 byte position of a log entry's first record  u64 segment, u64 entry, u64 index of that record, u32 records
    d                                                   u16 format, 16 bytes log id, u64 next index, i64 next byte
                                                        position, u32 CRC-32C of the last value
    s                                                   i64 byte position below which no `k` row is left

Knows: these bytes.  Does not know: when a row is written, who reads it.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

FORMAT = 1
POSITIONS_MAX = 0xFFFF  # of one record

LENGTH, QUEUE, LONG = struct.Struct(">H"), struct.Struct(">i"), struct.Struct(">q")
POSITION_AND_QUEUE_VALUE = struct.Struct(">qqiqqH")
QUEUE_VALUE, BOUNDS_VALUE = struct.Struct(">qiqqH"), struct.Struct(">qq")
KEY_KEY, ENTRY_VALUE = struct.Struct(">ciq"), struct.Struct(">QQQI")
CHECKPOINT_VALUE = struct.Struct(">H16sQqI")
CHECKPOINT_KEY, SWEPT_KEY = b"d", b"s"
POSITION_MAX = (1 << 63) - 1


class QueueRow(NamedTuple):
    """A record in its queue; an inner batch takes several positions."""

    position: int
    offset: int
    size: int
    tags_code: int
    store_ms: int
    positions: int

    @property
    def next(self) -> int:
        return self.position + self.positions


class Bounds(NamedTuple):
    """The positions of a queue; no row is below `first`."""

    first: int
    next: int


class EntryRow(NamedTuple):
    """An entry of the log: where it is, and its records."""

    position: int
    segment: int
    entry: int
    first: int
    records: int


class Checkpoint(NamedTuple):
    """How far the log is dispatched: index and byte position behind the last record, and the sum of its value."""

    log: str
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    position: int
    crc: int


def _named(letter: bytes, topic: str) -> bytes:
    name = topic.encode()
    return letter + LENGTH.pack(len(name)) + name


@lru_cache(4096)
def queue_prefix(topic: str, queue: int) -> bytes:
    """The beginning of the keys of a queue's rows; then comes the position."""
    return _named(b"q", topic) + QUEUE.pack(queue)


def queue_key(topic: str, queue: int, position: int) -> bytes:
    return queue_prefix(topic, queue) + LONG.pack(position)


def queue_value(offset: int, size: int, tags_code: int, store_ms: int, positions: int) -> bytes:
    """`StoreDamaged` for a record of more positions than there can be."""
    if positions > POSITIONS_MAX:
        raise StoreDamaged(f"the record at {offset} takes {positions} positions: at most {POSITIONS_MAX}")
    return QUEUE_VALUE.pack(offset, size, tags_code, store_ms, positions)


def queue_row(key: bytes, value: bytes) -> QueueRow:
    # not by the named tuple's own, which is a function of Python
    return tuple.__new__(QueueRow, POSITION_AND_QUEUE_VALUE.unpack(key[-LONG.size :] + value))


def bounds_prefix(topic: str) -> bytes:
    """The beginning of the keys of the bounds of a topic's queues."""
    return _named(b"m", topic)


def bounds_key(topic: str, queue: int) -> bytes:
    return bounds_prefix(topic) + QUEUE.pack(queue)


def bounds_value(bounds: Bounds) -> bytes:
    return BOUNDS_VALUE.pack(*bounds)


def bounds_of(value: bytes) -> Bounds:
    return Bounds(*BOUNDS_VALUE.unpack(value))


def queue_of(key: bytes) -> tuple[str, int]:
    """Topic and queue, by the key of its bounds."""
    return key[1 + LENGTH.size : -QUEUE.size].decode(), QUEUE.unpack_from(key, len(key) - QUEUE.size)[0]


def key_key(hashed: int, offset: int) -> bytes:
    return KEY_KEY.pack(b"k", hashed, ~offset)


def key_value(store_ms: int) -> bytes:
    return LONG.pack(store_ms)


def key_row(key: bytes, value: bytes) -> tuple[int, int]:
    """(physical offset, store time)."""
    return ~KEY_KEY.unpack(key)[2], LONG.unpack(value)[0]


def entry_key(position: int) -> bytes:
    return b"o" + LONG.pack(position)


def entry_value(row: EntryRow) -> bytes:
    return ENTRY_VALUE.pack(*row[1:])


def entry_row(key: bytes, value: bytes) -> EntryRow:
    return EntryRow(LONG.unpack_from(key, 1)[0], *ENTRY_VALUE.unpack(value))


def checkpoint_value(checkpoint: Checkpoint) -> bytes:
    return CHECKPOINT_VALUE.pack(FORMAT, bytes.fromhex(checkpoint.log), *checkpoint[1:])


def checkpoint_of(value: bytes) -> Checkpoint | None:
    """None for an older format, whose rows are made again; `UnknownFormat` for a newer one."""
    number = int.from_bytes(value[: LENGTH.size], "big")
    if number > FORMAT:
        raise UnknownFormat(f"its rows have format {number}, this quire reads up to {FORMAT}: use a newer quire")
    if number < FORMAT or len(value) != CHECKPOINT_VALUE.size:
        return None
    _format, log, index, position, crc = CHECKPOINT_VALUE.unpack(value)
    return Checkpoint(log.hex(), index, position, crc)


def range_of(prefix: bytes) -> tuple[bytes, bytes]:
    """The range of all keys that begin so."""
    kept = prefix.rstrip(b"\xff")
    return prefix, kept[:-1] + bytes((kept[-1] + 1,))
