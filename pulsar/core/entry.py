"""
One entry of a topic, up to its payload.

    0e02  4 size  broker's metadata        only where brokers add it
    0e01  4 CRC-32C of all that follows    not where a producer sent none
    4 size  metadata of the message or batch
    payload

In the ledger of a compacted topic an entry has its old position and size before that: 4 size, position, 4 size.

Knows: this layout, and what of the metadata says how the payload is read.
Does not know: the payload.
Safety: a frame is given only if its sum is right, where it has one.
"""

import struct
from typing import Any, NamedTuple

from quire.protocol.digest import crc32c
from quire.protocol.schema import parsed
from quire.pulsar.core import schema
from quire.pulsar.core.positions import Position

# SPDX-License-Identifier: Apache-2.0

BROKERS, SUMMED = b"\x0e\x02", b"\x0e\x01"
SIZE = struct.Struct(">I")
TXN_COMMIT, TXN_ABORT = 21, 22

Txn = tuple[int, int]


class Frame(NamedTuple):
    """
    An entry, opened.  `metadata`: a `schema.MessageMetadata`; `broker_ms`, `topic_index`: when the broker took it and
    the number of its last message, None where brokers add none.
    """

    position: Position
    metadata: Any
    payload: bytes
    broker_ms: int | None = None
    topic_index: int | None = None

    @property
    def txn(self) -> Txn | None:
        """The transaction that this is part of."""
        metadata = self.metadata
        if not metadata.HasField("txnid_most_bits"):
            return None
        return metadata.txnid_most_bits, metadata.txnid_least_bits

    @property
    def is_marker(self) -> bool:
        """True for what brokers write for themselves: ends of transactions, snapshots of subscriptions."""
        return bool(self.metadata.HasField("marker_type"))

    @property
    def is_batch(self) -> bool:
        return bool(self.metadata.HasField("num_messages_in_batch"))

    @property
    def is_encrypted(self) -> bool:
        return bool(self.metadata.encryption_keys)

    @property
    def is_chunk(self) -> bool:
        return bool(self.metadata.num_chunks_from_msg > 1)


def decode_entry(data: bytes, ledger: int, entry: int) -> Frame:
    """Opens an entry of a topic; `MessageDamaged` names its position."""
    position = Position(ledger, entry)
    broker_ms = index = None
    at = 0
    if data.startswith(BROKERS):
        at, raw = _sized(data, 2, position)
        broker = parsed(schema.BrokerEntryMetadata, raw)
        if broker is None:
            raise schema.damaged(position.place, "the broker's metadata can't be read")
        broker_ms = broker.broker_timestamp if broker.HasField("broker_timestamp") else None
        index = broker.index if broker.HasField("index") else None
    if data[at : at + 2] == SUMMED:
        if len(data) < at + 6:
            raise schema.damaged(position.place, f"it ends in its sum: {len(data)} bytes")
        (said,) = SIZE.unpack_from(data, at + 2)
        at += 6
        if crc32c(memoryview(data)[at:]) != said:
            raise schema.damaged(position.place, "its CRC-32C is wrong")
    at, raw = _sized(data, at, position)
    metadata = parsed(schema.MessageMetadata, raw)
    if metadata is None:
        raise schema.damaged(position.place, "its metadata can't be read")
    return Frame(position, metadata, data[at:], broker_ms, index)


def decode_compacted(data: bytes, ledger: int, entry: int) -> Frame:
    """Opens an entry of a compacted ledger, under its old position; `MessageDamaged` names that in the ledger."""
    place = Position(ledger, entry)
    at, raw = _sized(data, 0, place)
    old = parsed(schema.MessageIdData, raw)
    if old is None:
        raise schema.damaged(place.place, "its old position can't be read")
    end, kept = _sized(data, at, place)
    if end != len(data):
        raise schema.damaged(place.place, f"{len(data) - end} bytes are left behind it")
    frame = decode_entry(kept, old.ledgerId, old.entryId)
    return frame._replace(position=Position(old.ledgerId, old.entryId))


def _sized(data: bytes, at: int, position: Position) -> tuple[int, bytes]:
    """Returns the place behind a part that has its size before it, and the part."""
    begin = at + SIZE.size
    if len(data) < begin:
        raise schema.damaged(position.place, f"it ends at byte {len(data)}, in a size at {at}")
    end = begin + SIZE.unpack_from(data, at)[0]
    if end > len(data):
        raise schema.damaged(position.place, f"a part at {begin} ends at {end}, the entry at {len(data)}")
    return end, data[begin:end]
