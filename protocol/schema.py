"""
The protobuf schema of V3, built at run time from tables (wire.md 3.1 to 3.3).

Knows: every message, field and enum.  There is no generated code and no protoc: the tables below are the schema.
Does not know: which operation needs which message.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from quire.protocol.errors import Status

# SPDX-License-Identifier: Apache-2.0

FILE: Final = "quire/BookkeeperProtocol.proto"

ENUMS: dict[str, dict[str, int]] = {
    "ProtocolVersion": {"VERSION_ONE": 1, "VERSION_TWO": 2, "VERSION_THREE": 3},
    "StatusCode": {status.name: status.v3 for status in Status},
    "OperationType": {
        "READ_ENTRY": 1,
        "ADD_ENTRY": 2,
        "RANGE_READ_ENTRY": 3,
        "RANGE_ADD_ENTRY": 4,
        "AUTH": 5,
        "WRITE_LAC": 6,
        "READ_LAC": 7,
        "GET_BOOKIE_INFO": 8,
        "START_TLS": 9,
        "FORCE_LEDGER": 10,
        "GET_LIST_OF_ENTRIES_OF_LEDGER": 11,
        "BATCH_READ_ENTRY": 12,
    },
    "ReadRequest.Flag": {"FENCE_LEDGER": 1, "ENTRY_PIGGYBACK": 2},
    "AddRequest.Flag": {"RECOVERY_ADD": 1},
    "GetBookieInfoRequest.Flags": {"TOTAL_DISK_CAPACITY": 1, "FREE_DISK_SPACE": 2},
}

# One field: "number name label type"; the label is R required, O optional or M repeated. Left out: field 200 of
# Request, logging context that is to be ignored.  Unknown fields cost nothing, while a frame of 5 MiB full of such
# pairs held the reactor for 0.18 s and took 43 MB. quire's own: fields from 1000 on, of answers sent only to
# clients that asked for them (`messages.BookieInfo`); BookKeeper skips them.
MESSAGES: dict[str, str] = {
    "BKPacketHeader": "1 version R ProtocolVersion; 2 operation R OperationType; 3 txnId R uint64; 4 priority O uint32",
    "Request": "1 header R BKPacketHeader; 100 readRequest O ReadRequest; 101 addRequest O AddRequest; 102 "
    "authRequest O AuthMessage;103 writeLacRequest O WriteLacRequest; 104 readLacRequest O ReadLacRequest; 105 "
    "getBookieInfoRequest O GetBookieInfoRequest;106 startTLSRequest O StartTLSRequest; 107 forceLedgerRequest O "
    "ForceLedgerRequest;108 getListOfEntriesOfLedgerRequest O GetListOfEntriesOfLedgerRequest",
    "Response": "1 header R BKPacketHeader; 2 status R StatusCode; 100 readResponse O ReadResponse; 101 addResponse "
    "O AddResponse;102 authResponse O AuthMessage; 103 writeLacResponse O WriteLacResponse; 104 readLacResponse O "
    "ReadLacResponse;105 getBookieInfoResponse O GetBookieInfoResponse; 106 startTLSResponse O StartTLSResponse;107 "
    "forceLedgerResponse O ForceLedgerResponse; 108 getListOfEntriesOfLedgerResponse O "
    "GetListOfEntriesOfLedgerResponse",
    "ReadRequest": (
        "1 ledgerId R int64; 2 entryId R int64; 3 masterKey O bytes; 4 previousLAC O int64; 5 timeOut O "
        "int64;100 flag O ReadRequest.Flag; 1000 evidence O bool"
    ),
    "AddRequest": (
        "1 ledgerId R int64; 2 entryId R int64; 3 masterKey R bytes; 4 body R bytes; 5 writeFlags O int32; "
        "100 flag O AddRequest.Flag"
    ),
    "WriteLacRequest": "1 ledgerId R int64; 2 lac R int64; 3 masterKey R bytes; 4 body R bytes; 1000 hint O bool",
    "ForceLedgerRequest": "1 ledgerId R int64",
    "ReadLacRequest": "1 ledgerId R int64",
    "GetListOfEntriesOfLedgerRequest": "1 ledgerId R int64",
    "GetBookieInfoRequest": "1 requested O int64",
    "StartTLSRequest": "",
    "StartTLSResponse": "",
    "AuthMessage": "1 authPluginName R string; 2 payload R bytes",
    "ReadResponse": (
        "1 status R StatusCode; 2 ledgerId R int64; 3 entryId R int64; 4 body O bytes; 5 maxLAC O int64; "
        "6 lacUpdateTimestamp O int64; 1000 lacBody O bytes; 1001 lastEntryBody O bytes; 1002 following M bytes"
    ),
    "AddResponse": "1 status R StatusCode; 2 ledgerId R int64; 3 entryId R int64; 1000 readerWaits O bool",
    "WriteLacResponse": "1 status R StatusCode; 2 ledgerId R int64",
    "ForceLedgerResponse": "1 status R StatusCode; 2 ledgerId R int64",
    "ReadLacResponse": "1 status R StatusCode; 2 ledgerId R int64; 3 lacBody O bytes; 4 lastEntryBody O bytes",
    "GetBookieInfoResponse": (
        "1 status R StatusCode; 2 totalDiskCapacity O int64; 3 freeDiskSpace O int64; 1000 bookieId O string; "
        "1001 incarnation O string"
    ),
    "GetListOfEntriesOfLedgerResponse": (
        "1 status R StatusCode; 2 ledgerId R int64; 3 availabilityOfEntriesOfLedger O bytes"
    ),
}

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
}
_LABELS = {"R": _FIELD.LABEL_REQUIRED, "O": _FIELD.LABEL_OPTIONAL, "M": _FIELD.LABEL_REPEATED}


def file_descriptor(
    file_name: str = FILE, messages: Mapping[str, str] = MESSAGES, enums: Mapping[str, Mapping[str, int]] = ENUMS
) -> descriptor_pb2.FileDescriptorProto:
    """Describes the messages of such tables as protobuf describes schemas."""
    file = descriptor_pb2.FileDescriptorProto(name=file_name, syntax="proto2")
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for name, fields in messages.items():
        message = made[name] = file.message_type.add(name=name)
        for line in filter(None, map(str.strip, fields.split(";"))):
            number, field_name, label, kind = line.split()
            field = message.field.add(name=field_name, number=int(number), label=_LABELS[label])
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _FIELD.TYPE_ENUM if kind in enums else _FIELD.TYPE_MESSAGE
                field.type_name = f".{kind}"
    for name, values in enums.items():
        outer, _, inner = name.rpartition(".")
        enum = made[outer].enum_type.add(name=inner) if outer else file.enum_type.add(name=inner)
        for value_name, number_value in values.items():
            enum.value.add(name=value_name, number=number_value)
    return file


def classes(
    file_name: str = FILE, messages: Mapping[str, str] = MESSAGES, enums: Mapping[str, Mapping[str, int]] = ENUMS
) -> dict[str, Any]:
    """Makes the classes of such tables, by name."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file_descriptor(file_name, messages, enums).SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in messages}


CLASSES = classes()  # message name -> class, made at run time, so of a type that mypy cannot know
Request: Any = CLASSES["Request"]
Response: Any = CLASSES["Response"]
AuthMessage: Any = CLASSES["AuthMessage"]


def parsed(cls: Any, data: bytes) -> Any | None:
    """A message, or None when it can't be decoded or lacks a required field (as by an unknown enum number)."""
    message = partly_parsed(cls, data)
    return message if message is not None and message.IsInitialized() else None


def partly_parsed(cls: Any, data: bytes) -> Any | None:
    """Like `parsed`, but required fields may be missing."""
    message = cls()
    try:
        message.MergeFromString(data)
    except DecodeError:
        return None
    return message


def text(value: str | bytes) -> str:
    """A string field's value; protobuf hands out bytes where a peer sent something that is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")
