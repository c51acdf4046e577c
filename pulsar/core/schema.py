"""
The protobuf messages that Pulsar keeps in entries and nodes, built at run time from tables, with the fields that
are needed here.

Knows: field numbers, types and labels.  Does not know: what they mean.  A text field is read as bytes, and an enum as a
number: no peer's wrong text or new value makes the rest unreadable.
"""

from typing import Any, Final

from quire.protocol.pulsar_errors import MessageDamaged
from quire.protocol.schema import classes, parsed

# SPDX-License-Identifier: Apache-2.0

FILE: Final = "quire/Pulsar.proto"

MESSAGES: Final[dict[str, str]] = {
    # Before and in an entry.
    "BrokerEntryMetadata": "1 broker_timestamp O uint64; 2 index O uint64",
    "KeyValue": "1 key R bytes; 2 value R bytes",
    "EncryptionKeys": "1 key R bytes",
    "MessageMetadata": (
        "1 producer_name R bytes; 2 sequence_id R int64; 3 publish_time R uint64; 4 properties M KeyValue; "
        "5 replicated_from O bytes; 6 partition_key O bytes; 8 compression O int32; 9 uncompressed_size O uint32; "
        "11 num_messages_in_batch O int32; 12 event_time O uint64; 13 encryption_keys M EncryptionKeys; "
        "16 schema_version O bytes; 17 partition_key_b64_encoded O bool; 18 ordering_key O bytes; "
        "20 marker_type O int32; 22 txnid_least_bits O uint64; 23 txnid_most_bits O uint64; "
        "25 null_value O bool; 26 uuid O bytes; 27 num_chunks_from_msg O int32; 28 total_chunk_msg_size O int32; "
        "29 chunk_id O int32; 30 null_partition_key O bool"
    ),
    "SingleMessageMetadata": (
        "1 properties M KeyValue; 2 partition_key O bytes; 3 payload_size R int32; 4 compacted_out O bool; "
        "5 event_time O uint64; 6 partition_key_b64_encoded O bool; 7 ordering_key O bytes; 8 sequence_id O int64; "
        "9 null_value O bool; 10 null_partition_key O bool"
    ),
    "MessageIdData": "1 ledgerId R uint64; 2 entryId R uint64; 3 partition O int32; 4 batch_index O int32",
    # Nodes of managed ledgers, and the entries of cursors.
    "OffloadDriverMetadata": "1 name R bytes; 2 properties M KeyValue",
    "OffloadContext": (
        "1 uidMsb O int64; 2 uidLsb O int64; 3 complete O bool; 4 bookkeeperDeleted O bool; "
        "6 driverMetadata O OffloadDriverMetadata"
    ),
    "LedgerInfo": "1 ledgerId R int64; 2 entries O int64; 3 size O int64; 4 timestamp O int64; "
    "5 offloadContext O OffloadContext",
    "NestedPositionInfo": "1 ledgerId R int64; 2 entryId R int64",
    "ManagedLedgerInfo": (
        "1 ledgerInfo M LedgerInfo; 2 terminatedPosition O NestedPositionInfo; 3 properties M KeyValue"
    ),
    "MessageRange": "1 lowerEndpoint R NestedPositionInfo; 2 upperEndpoint R NestedPositionInfo",
    "LongListMap": "1 key R int64; 2 values M int64",
    "BatchedEntryDeletionIndexInfo": "1 position R NestedPositionInfo; 2 deleteSet M int64",
    "LongProperty": "1 name R bytes; 2 value R int64",
    "PositionInfo": (
        "1 ledgerId R int64; 2 entryId R int64; 3 individualDeletedMessages M MessageRange; "
        "4 properties M LongProperty; 5 batchedEntryDeletionIndexInfo M BatchedEntryDeletionIndexInfo; "
        "6 individualDeletedMessageRanges M LongListMap"
    ),
    "ManagedCursorInfo": (
        "1 cursorsLedgerId R int64; 2 markDeleteLedgerId O int64; 3 markDeleteEntryId O int64; "
        "4 individualDeletedMessages M MessageRange; 5 properties M LongProperty; "
        "7 batchedEntryDeletionIndexInfo M BatchedEntryDeletionIndexInfo"
    ),
    "ManagedInfoMetadata": "1 compressionType R int32; 2 uncompressedSize R int32",
    # The schemas of a topic.
    "SchemaPlace": "1 ledgerId R int64; 2 entryId R int64",
    "SchemaIndex": "1 version R int64; 2 position R SchemaPlace; 3 hash R bytes",
    "SchemaLocator": "1 info R SchemaIndex; 2 index M SchemaIndex",
    "SchemaEntry": "2 schema_data R bytes; 5 index M SchemaIndex",
    "SchemaInfo": "3 type R int32; 4 schema R bytes; 5 timestamp R int64; 6 deleted R bool; 7 props M KeyValue",
}

CLASSES = classes(FILE, MESSAGES, {})
BrokerEntryMetadata: Any = CLASSES["BrokerEntryMetadata"]
MessageMetadata: Any = CLASSES["MessageMetadata"]
SingleMessageMetadata: Any = CLASSES["SingleMessageMetadata"]
MessageIdData: Any = CLASSES["MessageIdData"]
ManagedLedgerInfo: Any = CLASSES["ManagedLedgerInfo"]
PositionInfo: Any = CLASSES["PositionInfo"]
ManagedCursorInfo: Any = CLASSES["ManagedCursorInfo"]
ManagedInfoMetadata: Any = CLASSES["ManagedInfoMetadata"]
SchemaLocator: Any = CLASSES["SchemaLocator"]
SchemaEntry: Any = CLASSES["SchemaEntry"]
SchemaInfo: Any = CLASSES["SchemaInfo"]


def read(cls: Any, data: bytes, what: str) -> Any:
    """A message of the class; `MessageDamaged` names `what` can't be read."""
    message = parsed(cls, data)
    if message is None:
        raise MessageDamaged(f"{what}: {len(data)} bytes are no {cls.DESCRIPTOR.name} of Pulsar")
    return message


def text(value: bytes) -> str:
    """A text field."""
    return value.decode("utf-8", "replace")


def texts(pairs: Any) -> dict[str, str]:
    """Properties; of one that is there twice the last counts."""
    return {text(each.key): text(each.value) for each in pairs}


def damaged(position: tuple[int, int], why: str) -> MessageDamaged:
    """The error of an entry, by its position."""
    error = MessageDamaged(f"entry {position[0]}:{position[1]}: {why}")
    error.position = position
    return error
