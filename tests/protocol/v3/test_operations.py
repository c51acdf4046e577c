"""V3's operations: numbers, sub-messages, headers."""

import pytest

from quire.protocol import schema
from quire.protocol.messages import (
    AddRun,
    Auth,
    BatchRead,
    BookieInfo,
    Force,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    Unserved,
    WriteLac,
)
from quire.protocol.v3 import operations
from quire.protocol.v3.operations import BODIES, OPERATION_MAX, framed, header, operation_of

# SPDX-License-Identifier: Apache-2.0

KEY = b"k" * 20


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Read(1, 0), "READ_ENTRY"),
        (AddRun(1, 0, [b""], KEY), "ADD_ENTRY"),
        (Auth("p", b""), "AUTH"),
        (WriteLac(1, 0, KEY, b"", 1), "WRITE_LAC"),
        (ReadLac(1, 1), "READ_LAC"),
        (BookieInfo(1, 1), "GET_BOOKIE_INFO"),
        (StartTls(1), "START_TLS"),
        (Force(1, 1), "FORCE_LEDGER"),
        (ListEntries(1, 1), "GET_LIST_OF_ENTRIES_OF_LEDGER"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_request_has_the_number_of_the_schema(request_: Request, name: str) -> None:
    """The schema's enumeration of operations has the same numbers."""
    assert operation_of(request_) == schema.ENUMS["OperationType"][name]


def test_what_has_no_message_has_a_number_all_the_same() -> None:
    """A request that is not served keeps its own; a batch read has the highest."""
    assert operation_of(Unserved(4, 1)) == 4
    assert operation_of(BatchRead(1, 0, 1, 1, 1)) == OPERATION_MAX
    assert set(BODIES) == set(range(1, OPERATION_MAX)) - {3, 4}


def test_sub_messages_are_fields_of_the_schema() -> None:
    """Each name is a field of Request or of Response."""
    requests, responses = schema.Request.DESCRIPTOR.fields_by_name, schema.Response.DESCRIPTOR.fields_by_name
    assert all(asked in requests and answered in responses for asked, answered in BODIES.values())


@pytest.mark.parametrize("priority", [0, 100])
def test_a_header_is_what_protobuf_writes(priority: int) -> None:
    """The bytes of a message that has nothing but a header; priority 0 is left out."""
    message = schema.Request()
    message.header.version, message.header.operation, message.header.txnId = (
        operations.VERSION,
        operations.READ_ENTRY,
        1 << 40,
    )
    if priority:
        message.header.priority = priority
    assert header(operations.VERSION, operations.READ_ENTRY, 1 << 40, priority) == message.SerializePartialToString()


def test_a_frame_begins_with_its_length() -> None:
    """Four bytes, most significant first."""
    assert framed(b"abc") == b"\0\0\0\3abc"
