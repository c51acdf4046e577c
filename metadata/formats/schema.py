"""
The protobuf messages of the metadata, built at run time from a table, so that no generated code is kept.

Knows: field numbers, types and labels (metadata-rules.md 4.2, 5.2, 11.2, 12.1).  Does not know: what they mean.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# SPDX-License-Identifier: Apache-2.0

PACKAGE = "quire.metadata"
OPTIONAL, REQUIRED, REPEATED = 1, 2, 3  # FieldDescriptorProto.Label
INT64, INT32, STRING, MESSAGE, BYTES, ENUM = 3, 5, 9, 11, 12, 14  # FieldDescriptorProto.Type

ENUMS: dict[str, dict[str, int]] = {
    "LedgerMetadataFormat.State": {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3},
    "LedgerMetadataFormat.DigestType": {"CRC32": 1, "HMAC": 2, "CRC32C": 3, "DUMMY": 4},
}

# message -> (number, name, label, type, name of the message or enum); a name with a dot is nested.
MESSAGES: dict[str, list[tuple[int, str, int, int, str]]] = {
    "LedgerMetadataFormat.Segment": [
        (1, "ensembleMember", REPEATED, STRING, ""),
        (2, "firstEntryId", REQUIRED, INT64, ""),
    ],
    "LedgerMetadataFormat.Custom": [
        (1, "key", OPTIONAL, STRING, ""),
        (2, "value", OPTIONAL, BYTES, ""),
    ],
    "LedgerMetadataFormat": [
        (1, "quorumSize", REQUIRED, INT32, ""),
        (2, "ensembleSize", REQUIRED, INT32, ""),
        (3, "length", REQUIRED, INT64, ""),
        (4, "lastEntryId", OPTIONAL, INT64, ""),
        (5, "state", REQUIRED, ENUM, "LedgerMetadataFormat.State"),
        (6, "segment", REPEATED, MESSAGE, "LedgerMetadataFormat.Segment"),
        (7, "digestType", OPTIONAL, ENUM, "LedgerMetadataFormat.DigestType"),
        (8, "password", OPTIONAL, BYTES, ""),
        (9, "ackQuorumSize", OPTIONAL, INT32, ""),
        (10, "ctime", OPTIONAL, INT64, ""),
        (11, "customMetadata", REPEATED, MESSAGE, "LedgerMetadataFormat.Custom"),
        (12, "cToken", OPTIONAL, INT64, ""),
    ],
    "BookieServiceInfoFormat.Endpoint": [
        (1, "id", REQUIRED, STRING, ""),
        (2, "port", REQUIRED, INT32, ""),
        (3, "host", REQUIRED, STRING, ""),
        (4, "protocol", REQUIRED, STRING, ""),
        (5, "auth", REPEATED, STRING, ""),
        (6, "extensions", REPEATED, STRING, ""),
    ],
    # A map field is a repeated message of key and value with this shape.
    "BookieServiceInfoFormat.Property": [
        (1, "key", OPTIONAL, STRING, ""),
        (2, "value", OPTIONAL, STRING, ""),
    ],
    "BookieServiceInfoFormat": [
        (6, "endpoints", REPEATED, MESSAGE, "BookieServiceInfoFormat.Endpoint"),
        (7, "properties", REPEATED, MESSAGE, "BookieServiceInfoFormat.Property"),
    ],
    "UnderreplicatedLedgerFormat": [
        (1, "replica", REPEATED, STRING, ""),
        (2, "ctime", OPTIONAL, INT64, ""),
    ],
    "AuditorVoteFormat": [(1, "bookieId", OPTIONAL, STRING, "")],
    "CheckTimeFormat": [(1, "time", OPTIONAL, INT64, "")],
}


def text(value: object) -> str:
    """
    A string field's value; `ValueError` when the sender put bytes there that aren't UTF-8 (protobuf hands those out as
    bytes).
    """
    if not isinstance(value, str):
        raise ValueError(f"a text field holds {value!r}, which is no UTF-8")
    return value


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="quire/metadata.proto", package=PACKAGE, syntax="proto2")
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for name in sorted(MESSAGES, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        for number, field, label, kind, of in MESSAGES[name]:
            added = made[name].field.add(name=field, number=number)
            added.label = label  # type: ignore[assignment]  # the enum's values, by number
            added.type = kind  # type: ignore[assignment]  # the enum's values, by number
            if of:
                added.type_name = f".{PACKAGE}.{of}"
    for name, values in ENUMS.items():
        outer, _, inner = name.rpartition(".")
        enum = made[outer].enum_type.add(name=inner)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


_CLASSES = _build()
# Classes made at run time have no static type.
LedgerMetadataFormat: Any = _CLASSES["LedgerMetadataFormat"]
BookieServiceInfoFormat: Any = _CLASSES["BookieServiceInfoFormat"]
UnderreplicatedLedgerFormat: Any = _CLASSES["UnderreplicatedLedgerFormat"]
AuditorVoteFormat: Any = _CLASSES["AuditorVoteFormat"]
CheckTimeFormat: Any = _CLASSES["CheckTimeFormat"]
