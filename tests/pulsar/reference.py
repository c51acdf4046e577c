"""
What the parser of protobuf makes of the metadata of entries and of messages in batches, with nothing beside it: what
the fast readers of `quire.pulsar.core` are held against.

Knows: the meaning of the fields.  Does not know: `head` and `singles`, but for their results.
"""

from typing import Any

from quire.pulsar.core import schema
from quire.pulsar.core.head import Metadata, described, key_of
from quire.pulsar.core.singles import Rows, add_batch

# SPDX-License-Identifier: Apache-2.0


def whole(cls: Any, data: bytes) -> Any:
    """A message with all required fields; None: it is none."""
    message = cls()
    try:
        message.ParseFromString(data)
    except Exception as error:
        if type(error).__name__ not in ("DecodeError", "EncodeError"):
            raise
        return None
    return message if message.IsInitialized() else None


def metadata(raw: bytes) -> Metadata | None:
    """That of an entry, as `head.decode_metadata` gives it."""
    found = whole(schema.MessageMetadata, raw)
    if found is None:
        return None
    key = found.partition_key if found.HasField("partition_key") else None
    return described(found), found.sequence_id, found.publish_time, key, schema.texts(found.properties)


def batch(payload: bytes, size: int, sequence: int) -> list[tuple[Any, ...]] | None:
    """The messages of a batch: index, key, ordering key, value, properties, event time, number.  None: unreadable."""
    rows, at = [], 0
    for index in range(size):
        begin = at + 4
        end = begin + int.from_bytes(payload[at:begin], "big")
        found = whole(schema.SingleMessageMetadata, payload[begin:end])
        if begin > len(payload) or end > len(payload) or found is None:
            return None
        at = end + found.payload_size
        if found.payload_size < 0 or at > len(payload):
            return None
        if found.compacted_out:
            continue
        key = None
        if found.HasField("partition_key"):
            key = key_of(found.partition_key, found.partition_key_b64_encoded, found.null_partition_key)
        rows.append(
            (
                index,
                key,
                found.ordering_key if found.HasField("ordering_key") else None,
                None if found.null_value else payload[end:at],
                schema.texts(found.properties),
                found.event_time or None,
                found.sequence_id if found.HasField("sequence_id") else sequence,
            )
        )
    return rows


def fast(payload: bytes, size: int, sequence: int) -> list[tuple[Any, ...]] | None:
    """The same by `singles.add_batch`."""
    rows = Rows()
    try:
        add_batch(rows, payload, size, sequence)
    except ValueError:
        return None
    columns = (rows.indexes, rows.keys, rows.ordering_keys, rows.values, rows.properties, rows.events, rows.sequences)
    return list(zip(*columns, strict=True))
