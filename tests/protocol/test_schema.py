"""The protobuf schema against what Apache's own classes printed (wire.md 3)."""

import pytest
from google.protobuf import text_format

from quire.protocol import schema
from quire.protocol.errors import Status
from tests.protocol.samples import V3_FRAMES, captured
from tests.protocol.samples import v3 as frame_v3

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("direction", ["request", "response"])
def test_messages_mean_what_java_says_they_mean(direction: str) -> None:
    """
    Each captured frame equals its text form, as a message and in bytes: field names, numbers, types and enums are
    right.
    """
    cls = schema.Request if direction == "request" else schema.Response
    for scenario, frame, text in captured(3, direction):
        message = schema.parsed(cls, frame[4:])
        assert message is not None, scenario
        assert message == text_format.Parse(text, cls()), scenario
        assert message.SerializeToString() == frame[4:], scenario


def test_every_known_frame_parses_without_unknown_fields() -> None:
    """Each frame is written again with the same bytes."""
    for name, hexed in V3_FRAMES.items():
        replies = any(word in name for word in ("ok", "fenced", "EUA", "no entry", "expired", "refused", "reply"))
        message = schema.parsed(schema.Response if replies else schema.Request, frame_v3(name)[4:])
        assert message is not None, name
        assert message.SerializeToString().hex() == hexed[8:], name


def test_statuses_are_those_of_the_error_tree() -> None:
    """The schema's status codes have the names and numbers of `Status`."""
    assert {status.name: status.v3 for status in Status} == schema.ENUMS["StatusCode"]


def test_fields_have_apaches_numbers() -> None:
    """A few by hand, since the table could agree with itself."""
    request = schema.Request.DESCRIPTOR.fields_by_name
    assert request["getListOfEntriesOfLedgerRequest"].number == 108
    assert schema.CLASSES["AddRequest"].DESCRIPTOR.fields_by_name["flag"].number == 100
    assert schema.CLASSES["AddRequest"].DESCRIPTOR.fields_by_name["writeFlags"].number == 5
    assert schema.CLASSES["ReadResponse"].DESCRIPTOR.fields_by_name["lacUpdateTimestamp"].number == 6
    assert len(schema.MESSAGES) == 20


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "no header"),
        (b"\x0a\x04\x08\x03\x10\x02", "no transaction id"),
        (b"\x0a\x06\x08\x04\x10\x02\x18\x01", "version 4 is not in the enum"),
        (b"\x0a\x06\x08\x03\x10\x0d\x18\x01", "operation 13 is not in the enum"),
        (b"\x0a\x06\x08\x03\x10\x01\x18\x04\xa2\x06\x02\x08\x01", "a read without entry id"),
        (b"\x0a\x06\x08\x03\x10\x01\x18", "cut short"),
        (b"\x00\x00\x00\x02" + bytes(16), "field number 0"),
        (b"\x01\x02\x00\x00" + bytes(16), "field number 0"),
        (b"\x02\x01\x00\x00" + bytes(40), "field number 0"),
    ],
)
def test_what_is_not_a_v3_request(payload: bytes, why: str) -> None:
    """wire.md 1.2: these make a bookie take the connection for V2."""
    assert schema.parsed(schema.Request, payload) is None, why


def test_an_unknown_number_in_an_optional_enum_is_only_absent() -> None:
    """`ReadRequest.flag` 7: treated as no flag (wire.md 3.4)."""
    message = schema.parsed(schema.Request, bytes.fromhex("0a06080310011804a2060708011000a00607"))
    assert message is not None
    assert not message.readRequest.HasField("flag")


def test_unknown_fields_are_let_through() -> None:
    """A newer client's fields must not break an older bookie."""
    assert schema.parsed(schema.Request, frame_v3("READ")[4:] + b"\xca\x3e\x01x") is not None


def test_logging_context_is_let_through_unread() -> None:
    """Field 200, of which a Java client may send any number (wire.md 3.4)."""
    message = schema.parsed(schema.Request, frame_v3("READ")[4:] + b"\xc2\x0c\x06\x0a\x01k\x12\x01v" * 3)
    assert message is not None
    assert message.readRequest.ledgerId == 1
    assert len(message.ListFields()) == 2


def test_strings_that_are_no_text_are_read_all_the_same() -> None:
    """Invalid UTF-8 is replaced instead of failing the message."""
    message = schema.parsed(schema.AuthMessage, b"\x0a\x02\xff\xfe\x12\x00")
    assert message is not None
    assert schema.text(message.authPluginName) == "\ufffd\ufffd"
    assert schema.text("sasl") == "sasl"
