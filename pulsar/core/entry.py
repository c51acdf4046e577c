"""
One entry of a topic, up to its payload.

    0e02  4 size  broker's metadata        only where brokers add it
    0e01  4 CRC-32C of all that follows    not where a producer sent none
    4 size  metadata of the message or batch
    payload

In the ledger of a compacted topic an entry has its old position and size before that: 4 size, position, 4 size.

Knows: this layout.  Does not know: what the metadata says, the payload.
Safety: a frame is given only if its sum is right, where it has one.
"""

import struct
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from quire.protocol.digest import crc32c
from quire.protocol.schema import parsed
from quire.pulsar.core import schema
from quire.pulsar.core.head import Head, decode_metadata, varint
from quire.pulsar.core.positions import Position, Txn

# SPDX-License-Identifier: Apache-2.0

BROKERS, SUMMED = b"\x0e\x02", b"\x0e\x01"
TIME, INDEX = b"\x08", b"\x10"  # the first bytes of the broker's fields
SIZE = struct.Struct(">I")
TXN_COMMIT, TXN_ABORT = 21, 22


class Frame(NamedTuple):
    """
    An entry, opened.  `key`, `properties`: of a message of its own; `broker_ms`, `topic_index`: when the broker took it
    and the number of its last message, None where brokers add none.
    """

    head: Head
    sequence_id: int
    publish_ms: int
    key: bytes | None
    properties: Mapping[str, str]
    payload: bytes
    ledger: int
    entry: int
    broker_ms: int | None
    topic_index: int | None

    @property
    def position(self) -> Position:
        """The place in the topic."""
        return Position(self.ledger, self.entry)

    @property
    def txn(self) -> Txn | None:
        """The transaction that this is part of."""
        return self.head.txn

    @property
    def is_marker(self) -> bool:
        """True for what brokers write for themselves: ends of transactions, snapshots of subscriptions."""
        return self.head.marker is not None

    @property
    def is_chunk(self) -> bool:
        return self.head.chunks > 1


made = partial(tuple.__new__, Frame)  # what `Frame._make` does, without a call of Python for each


def decode_entry(data: bytes, ledger: int, entry: int) -> Frame:
    """Opens an entry of a topic; `MessageDamaged` names its position."""
    broker_ms = index = None
    at = 0
    if data.startswith(BROKERS):
        at, raw = _sized(data, 2, ledger, entry)
        found = decode_broker(raw)
        if found is None:
            raise schema.damaged((ledger, entry), "the broker's metadata can't be read")
        broker_ms, index = found
    if data.startswith(SUMMED, at):
        if len(data) < at + 6:
            raise schema.damaged((ledger, entry), f"it ends in its sum: {len(data)} bytes")
        (said,) = SIZE.unpack_from(data, at + 2)
        at += 6
        if crc32c(memoryview(data)[at:]) != said:
            raise schema.damaged((ledger, entry), "its CRC-32C is wrong")
    at, raw = _sized(data, at, ledger, entry)
    metadata = decode_metadata(raw)
    if metadata is None:
        raise schema.damaged((ledger, entry), "its metadata can't be read")
    return made((*metadata, data[at:], ledger, entry, broker_ms, index))


def decode_broker(raw: bytes) -> tuple[int | None, int | None] | None:
    """The time and the number that a broker adds; None if they can't be read."""
    if raw.startswith(TIME):
        time, at = varint(raw, 1, len(raw))
        if at > 0 and raw.startswith(INDEX, at):
            number, at = varint(raw, at + 1, len(raw))
            if at == len(raw):
                return time, number
    broker = parsed(schema.BrokerEntryMetadata, raw)
    if broker is None:
        return None
    return (
        broker.broker_timestamp if broker.HasField("broker_timestamp") else None,
        broker.index if broker.HasField("index") else None,
    )


def decode_compacted(data: bytes, ledger: int, entry: int) -> Frame:
    """Opens an entry of a compacted ledger, under its old position; `MessageDamaged` names that in the ledger."""
    at, raw = _sized(data, 0, ledger, entry)
    old = parsed(schema.MessageIdData, raw)
    if old is None:
        raise schema.damaged((ledger, entry), "its old position can't be read")
    end, kept = _sized(data, at, ledger, entry)
    if end != len(data):
        raise schema.damaged((ledger, entry), f"{len(data) - end} bytes are left behind it")
    return decode_entry(kept, old.ledgerId, old.entryId)


def _sized(data: bytes, at: int, ledger: int, entry: int) -> tuple[int, bytes]:
    """Returns the place behind a part that has its size before it, and the part."""
    begin = at + SIZE.size
    if len(data) < begin:
        raise schema.damaged((ledger, entry), f"it ends at byte {len(data)}, in a size at {at}")
    end = begin + SIZE.unpack_from(data, at)[0]
    if end > len(data):
        raise schema.damaged((ledger, entry), f"a part at {begin} ends at {end}, the entry at {len(data)}")
    return end, data[begin:end]
