"""The messages of the metadata: which numbers and types are on the wire (metadata-rules.md 4.2, 5.2)."""

import pytest
from google.protobuf.message import EncodeError

from quire.metadata.formats.schema import ENUMS, MESSAGES, BookieServiceInfoFormat, LedgerMetadataFormat, text

# SPDX-License-Identifier: Apache-2.0


def filled() -> LedgerMetadataFormat:
    made = LedgerMetadataFormat(quorumSize=2, ensembleSize=3, length=300, state=3)
    made.segment.add(ensembleMember=["a:1", "b:1"], firstEntryId=0)
    return made


def test_a_ledger_s_fields_are_on_the_wire_by_these_numbers() -> None:
    """Each key is the number and the wire type; the nested message is length-delimited."""
    made = filled()
    made.lastEntryId, made.digestType, made.password = -1, 4, b"p"
    made.ackQuorumSize, made.ctime, made.cToken = 2, 5, 6
    made.customMetadata.add(key="k", value=b"v")
    parts = [
        "0802", "1003", "18ac02", "20ffffffffffffffffff01", "2803", "320c" "0a03613a31" "0a03623a31" "1000",
        "3804", "420170", "4802", "5005", "5a06" "0a016b" "120176", "6006",
    ]  # fmt: skip
    assert made.SerializeToString().hex() == "".join(parts)


def test_a_bookie_s_information_is_on_the_wire_by_these_numbers() -> None:
    """Endpoints are field 6, and properties, which are a map, field 7."""
    made = BookieServiceInfoFormat()
    made.endpoints.add(id="i", port=1, host="h", protocol="p", auth=["a"], extensions=["e"])
    made.properties.add(key="k", value="v")
    assert made.SerializeToString().hex() == "32110a016910011a01682201702a01613201653a060a016b120176"


@pytest.mark.parametrize("field", ["quorumSize", "ensembleSize", "length", "state"])
def test_what_is_required_must_be_there(field: str) -> None:
    """It is not packed without it, and what was read says that it lacks."""
    made = filled()
    made.ClearField(field)
    with pytest.raises(EncodeError, match=field):
        made.SerializeToString()
    assert not LedgerMetadataFormat.FromString(made.SerializePartialToString()).IsInitialized()


def test_states_and_digests_have_the_reference_s_numbers() -> None:
    """A number that has no name is none of them."""
    states = LedgerMetadataFormat.DESCRIPTOR.enum_types_by_name["State"]
    digests = LedgerMetadataFormat.DESCRIPTOR.enum_types_by_name["DigestType"]
    assert {value.name: value.number for value in states.values} == {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3}
    assert [value.name for value in sorted(digests.values, key=lambda value: value.number)] == [
        "CRC32", "HMAC", "CRC32C", "DUMMY"
    ]  # fmt: skip
    made = filled()
    with pytest.raises(ValueError, match="9"):
        made.state = 9


def test_every_type_that_a_field_names_is_in_the_table() -> None:
    """As a message or as an enumeration; no number of a message is used twice."""
    for name, fields in MESSAGES.items():
        assert len({number for number, *_ in fields}) == len(fields), name
        assert all(of in MESSAGES or of in ENUMS for *_, of in fields if of), name


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    """protobuf hands such bytes out as bytes."""
    assert text("a:1") == "a:1"
    with pytest.raises(ValueError, match="no UTF-8"):
        text(b"\xff")
