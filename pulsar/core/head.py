"""
The metadata of an entry, and numbers and properties as protobuf writes them.

Entries of one producer have the same metadata but for a few fields in front: their number and time, properties, a key.
So these are cut off here, and what is left, which is mostly the same bytes, is parsed once.

Knows: the meaning of the fields.  Does not know: payloads.
Safety: what is cut off equals what the parser makes of the whole; where the fields stand otherwise, it reads the whole.
"""

import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from quire.protocol.schema import parsed, partly_parsed
from quire.pulsar.core import schema
from quire.pulsar.core.positions import Txn

# SPDX-License-Identifier: Apache-2.0

DIGITS_MAX = 9  # of a number below 2^63, in base 128
ONE_BYTE = 0x80  # lengths and numbers below it are one byte
KEPT = 1024  # heads, each of less than HEAD_MAX bytes
HEAD_MAX = 512
PRODUCER, SEQUENCE, PUBLISHED, PROPERTY, KEY = 0x0A, 0x10, 0x18, b"\x22", b"\x32"  # the first bytes of fields
CUT = ("producer_name", "sequence_id", "publish_time", "partition_key")
NAME, TEXT = 0x0A, 0x12  # of a property
NO_PROPERTIES: Mapping[str, str] = {}


class Head(NamedTuple):
    """
    The metadata of an entry without what differs from entry to entry.  `plain`: it is neither a marker, nor of a
    transaction, nor a chunk; `size`: of its batch, 1 without one; `marker`, `txn`: None where it is none, or of none.
    """

    producer: str
    is_batch: bool
    size: int
    plain: bool
    compression: int
    uncompressed_size: int
    encrypted: bool
    null_value: bool
    key_is_base64: bool
    key_is_null: bool
    ordering_key: bytes | None
    event_ms: int | None
    schema_version: bytes | None
    replicated_from: str | None
    marker: int | None
    txn: Txn | None
    uuid: bytes
    chunk: int
    chunks: int

    def key(self, raw: bytes | None) -> bytes | None:
        """The key of a message of its own."""
        return raw if raw is None else key_of(raw, self.key_is_base64, self.key_is_null)


# What differs from entry to entry of a producer behind the rest: number, publish time, key as it was sent, properties.
Metadata = tuple[Head, int, int, bytes | None, Mapping[str, str]]


def key_of(raw: bytes, is_base64: bool, is_null: bool) -> bytes | None:
    """The key of a message, from the field."""
    if is_null:
        return None
    if is_base64:
        try:
            return binascii.a2b_base64(raw)
        except ValueError:
            return raw
    return raw


def decode_metadata(raw: bytes) -> Metadata | None:
    """Reads the metadata of an entry; None if it can't be read."""
    found = quick_metadata(raw) if len(raw) < HEAD_MAX else None
    if found is not None:
        return found
    whole = parsed(schema.MessageMetadata, raw)
    if whole is None:
        return None
    properties = schema.texts(whole.properties) if whole.properties else NO_PROPERTIES
    key = whole.partition_key if whole.HasField("partition_key") else None
    return described(whole), whole.sequence_id, whole.publish_time, key, properties


def quick_metadata(raw: bytes) -> Metadata | None:
    """
    Reads metadata whose first fields are those that producers write there, all short, the time of these years; None: it
    is other, or bad.
    """
    try:
        named = place = 2 + raw[1]
        if raw[0] != PRODUCER or named >= ONE_BYTE or raw[place] != SEQUENCE:
            return None
        number, place = varint(raw, place + 1, len(raw))
        if place < 0 or raw[place] != PUBLISHED:
            return None
        one, two, three, four, five, six = raw[place + 1 : place + 7]
        if not one & two & three & four & five >= ONE_BYTE > six:  # as of all ms from 1971 to 2109
            return None
        published = one & 127 | (two & 127) << 7 | (three & 127) << 14 | (four & 127) << 21
        published |= (five & 127) << 28 | six << 35
        place += 7
        properties = NO_PROPERTIES
        if raw.startswith(PROPERTY, place):
            properties, place = properties_of(raw, place, PROPERTY[0])
            if place < 0:
                return None
        key = None
        if raw.startswith(KEY, place):
            begin = place + 2
            place = begin + raw[begin - 1]
            if raw[begin - 1] >= ONE_BYTE or place > len(raw):
                return None
            key = raw[begin:place]
    except (IndexError, ValueError):
        return None
    head = head_of(raw[:named], raw[place:])
    return None if head is None else (head, number, published, key, properties)


@lru_cache(KEPT)
def head_of(producer: bytes, rest: bytes) -> Head | None:
    """
    The head of metadata from which number, time, properties and key were cut, between these two; None: the rest has one
    of these again, or is none.
    """
    found = partly_parsed(schema.MessageMetadata, rest)
    if found is None or found.properties or any(map(found.HasField, CUT)):
        return None
    found.MergeFromString(producer)
    found.sequence_id = found.publish_time = 0
    return described(found) if found.IsInitialized() else None


def described(found: Any) -> Head:
    """A head in words; `found`: a `MessageMetadata`."""
    marker = found.marker_type if found.HasField("marker_type") else None
    txn = (found.txnid_most_bits, found.txnid_least_bits) if found.HasField("txnid_most_bits") else None
    is_batch = found.HasField("num_messages_in_batch")
    return Head(
        schema.text(found.producer_name),
        is_batch,
        found.num_messages_in_batch if is_batch else 1,
        marker is None and txn is None and found.num_chunks_from_msg <= 1,
        found.compression,
        found.uncompressed_size,
        bool(found.encryption_keys),
        found.null_value,
        found.partition_key_b64_encoded,
        found.null_partition_key,
        found.ordering_key if found.HasField("ordering_key") else None,
        found.event_time or None,
        found.schema_version if found.HasField("schema_version") else None,
        schema.text(found.replicated_from) if found.HasField("replicated_from") else None,
        marker,
        txn,
        found.uuid,
        found.chunk_id,
        found.num_chunks_from_msg,
    )


def properties_of(raw: bytes, place: int, tag: int) -> tuple[dict[str, str], int]:
    """
    Reads properties, each of less than 128 bytes, and the place behind them: -1 where they are written otherwise.
    `IndexError`: they go past the end, or nothing is behind them.
    """
    found: dict[str, str] = {}
    while raw[place] == tag:
        begin = place + 4
        middle = begin + raw[begin - 1]
        end = place + 2 + raw[place + 1]
        if (
            raw[place + 1] >= ONE_BYTE
            or raw[place + 2] != NAME
            or raw[middle] != TEXT
            or middle + 2 + raw[middle + 1] != end
        ):
            return found, -1
        found[schema.text(raw[begin:middle])] = schema.text(raw[middle + 2 : end])
        place = end
        if place == len(raw):
            break
    return found, place


def varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads a number below 2^63 that ends before or at `end`, and the place behind it: -1 where there is none."""
    number = shift = 0
    while at < end:
        digit = raw[at]
        at += 1
        if digit < ONE_BYTE:
            return (number | digit << shift, at) if shift < DIGITS_MAX * 7 else (0, -1)
        number |= (digit & 127) << shift
        shift += 7
    return 0, -1
