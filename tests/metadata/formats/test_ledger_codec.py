"""Ledger metadata as bytes: what a live Apache BookKeeper wrote, whatever we can make, and junk."""

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire.metadata.formats.ledger_codec import HEADER, decode, decode_stored, encode
from quire.metadata.formats.schema import LedgerMetadataFormat
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.protocol.digest import DigestType
from quire.protocol.errors import LedgerError, MetadataSerialization
from tests.metadata.made import metadatas

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
ROWS = [json.loads(line) for line in (VECTORS / "ledger_metadata.jsonl").read_text().splitlines()]


def from_row(row) -> LedgerMetadata:
    """The fields of a vector; format 1 carries no ack quorum, digest or password, so it reads back without."""
    plain = row["version"] == 1
    return LedgerMetadata(
        ensemble_size=row["ensemble_size"],
        write_quorum=row["write_quorum"],
        ack_quorum=row["write_quorum"] if plain else row["ack_quorum"],
        state=LedgerState[row["state"]],
        last_entry=-1 if row["last_entry_id"] is None else row["last_entry_id"],
        length=row["length"],
        fragments=tuple(Fragment(int(first), tuple(bookies)) for first, bookies in row["fragments"].items()),
        digest=None if plain else DigestType[row["digest"]],
        password=None if plain else bytes.fromhex(row["password"]),
        custom={key: bytes.fromhex(value) for key, value in row["custom_metadata"].items()},
        ctime_ms=None if row["ctime"] == -1 else row["ctime"],
        ctoken=row["ctoken"],
        format_version=row["version"],
    )


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"v{row['version']}-{row['digest']}-{row['ledger_id']}-{row['state']}"
)
def test_the_reference_wrote_it(row):
    """Every vector decodes to its fields, and its fields encode to the vector, bit for bit."""
    data = bytes.fromhex(row["bytes"])
    assert decode(data) == from_row(row)
    assert encode(from_row(row)) == data


def test_there_are_vectors_of_every_format_and_digest():
    """The vectors are all there, so the test above can't pass by being empty."""
    assert {row["version"] for row in ROWS} == {1, 2, 3}
    assert {row["digest"] for row in ROWS} == {None, "CRC32", "MAC", "CRC32C", "DUMMY"}
    assert len(ROWS) == 53


SPEC_OPEN = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4b"
    "080310031800"
    + "20ffffffffffffffffff01"
    + "2801"
    + "3220"
    + "0a08626b313a33313831"
    + "0a08626b323a33313831"
    + "0a08626b333a33313831"
    + "1000"
    "3803420673656372657448026" + "0ef9bafcdf8acd19101"
)
SPEC_CLOSED = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a7c08031003189875209501280332200a08626b313a333138310a08"
    "626b323a333138310a08626b333a33313831100032200a08626b313a333138310a08626b343a333138310a08626b333a3331383110643803"
    "420673656372657448025080d095ffbc315a150a0b6170706c69636174696f6e120670756c7361726000"
)


def test_worked_examples():
    """metadata-rules.md 4.1, 4.2: an open ledger with a token, and a closed one after an ensemble change."""
    opened = LedgerMetadata.new(
        3, 3, 2, ["bk1:3181", "bk2:3181", "bk3:3181"], DigestType.CRC32C, b"secret", ctoken=0x0123456789ABCDEF
    )
    assert encode(opened) == SPEC_OPEN
    closed = decode(SPEC_CLOSED)
    assert encode(closed) == SPEC_CLOSED
    assert (closed.last_entry, closed.length, closed.ctime_ms, dict(closed.custom)) == (
        149,
        15000,
        1700000000000,
        {"application": b"pulsar"},
    )
    assert closed.fragments[1] == Fragment(100, ("bk1:3181", "bk4:3181", "bk3:3181"))


@given(metadatas())
@settings(max_examples=150, deadline=None)
def test_round_trip(metadata):
    """Whatever can be made in a format reads back as the same value, and encodes the same again."""
    data = encode(metadata)
    assert decode(data) == metadata
    assert encode(decode(data)) == data


@given(metadatas(versions=(2,)))
@settings(max_examples=60, deadline=None)
def test_text_format_means_the_same_to_protobuf(metadata):
    """Format 2, which we print by hand, parses with protobuf's own parser to the fields of format 3."""
    message = LedgerMetadataFormat()
    text_format.Parse(encode(metadata).partition(b"\n")[2].decode("ascii"), message)
    assert message.password == (metadata.password or b"")
    assert {entry.key: entry.value for entry in message.customMetadata} == dict(metadata.custom)
    assert [segment.firstEntryId for segment in message.segment] == [fragment.first for fragment in metadata.fragments]


@given(metadatas(versions=(3,)), st.binary(max_size=40))
@settings(max_examples=40, deadline=None)
def test_bytes_after_format_3_are_ignored(metadata, tail):
    """The reference ignores what follows the delimited message, so we do."""
    assert decode(encode(metadata) + tail) == metadata


@given(metadatas(), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_raise_only_our_errors(metadata, data):
    """Cut, flipped or overwritten anywhere: a value, or a `LedgerError`, nothing else."""
    raw = bytearray(encode(metadata))
    at = data.draw(st.integers(0, len(raw) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "insert"]))
    if kind == "cut":
        del raw[at:]
    elif kind == "flip":
        raw[at] ^= data.draw(st.integers(1, 255))
    else:
        raw[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    try:
        assert isinstance(decode(bytes(raw)), LedgerMetadata)
    except LedgerError as error:
        assert isinstance(error, MetadataSerialization)  # noqa: PT017


@given(st.sampled_from([b"", b"1\n", b"2\n", b"3\n", b"4\n", b"99999999999\n", b"3"]), st.binary(max_size=200))
@example(b"2\n", b"segment {" * 50)
@example(b"1\n", b"\n\n\n")
@example(b"3\n", b"\xff\xff\xff\xff\xff\xff")
@settings(max_examples=300, deadline=None)
def test_junk_raises_only_our_errors(version, body):
    """Anything behind a header, or without one."""
    for raw in (HEADER + version + body, body):
        with pytest.raises(MetadataSerialization):
            decode(raw)


def fields(**changes):
    message = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=0, lastEntryId=-1, state=1, password=b"p", digestType=3
    )
    message.segment.add(firstEntryId=0, ensembleMember=["a:1"])
    for name, value in changes.items():
        if value is None:
            message.ClearField(name)
        else:
            setattr(message, name, value)
    return message


def framed(message) -> bytes:
    body = message.SerializePartialToString()
    assert len(body) < 128
    return HEADER + b"3\n" + bytes([len(body)]) + body


def test_absent_ack_quorum_is_the_write_quorum():
    """metadata-rules.md 4.2, field 9."""
    assert decode(framed(fields(ackQuorumSize=None))).ack_quorum == 1


def test_no_password_means_no_digest():
    """A ledger without a password can be read, closed and written again, still without."""
    found = decode(framed(fields(password=None)))
    assert (found.digest, found.password) == (None, None)
    assert decode(encode(found.closed(0, 1))).password is None


def test_end_of_an_open_ledger_is_ignored():
    """Length and last entry count only when the ledger is CLOSED."""
    found = decode(framed(fields(length=77, lastEntryId=7)))
    assert (found.last_entry, found.length) == (-1, 0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": None}, "state"),
        ({"quorumSize": None}, "quorumSize"),
        ({"quorumSize": 2}, "quorums"),
        ({"quorumSize": 0}, "quorums"),
        ({"ensembleSize": 2}, "bookies"),
        ({"ackQuorumSize": 2}, "quorums"),
        ({"state": 3, "lastEntryId": None}, "last entry"),
        ({"state": 3, "lastEntryId": -2}, "closed"),
        ({"state": 3, "length": -1}, "closed"),
        ({"segment": None}, "fragment"),
    ],
)
def test_broken_invariants_are_refused(changes, why):
    """Metadata that breaks an invariant is unreadable, and the error says which."""
    with pytest.raises(MetadataSerialization, match=why):
        decode(framed(fields(**changes)))


def test_fragments_must_rise():
    """Two fragments with one first entry, or in the wrong order, are refused."""
    for first in (0, -5):
        message = fields()
        message.segment.add(firstEntryId=first, ensembleMember=["b:1"])
        with pytest.raises(MetadataSerialization, match="rising"):
            decode(framed(message))


def test_format_1_has_no_place_for_secrets():
    """A value that format 1 can't carry isn't cut down silently."""
    with pytest.raises(MetadataSerialization, match="format 1"):
        encode(
            LedgerMetadata(
                1, 1, 1, LedgerState.OPEN, -1, 0, (Fragment(0, ("a:1",)),), DigestType.MAC, b"", format_version=1
            )
        )


def test_what_a_store_has_keeps_its_version_and_names_its_ledger():
    """The version comes with the metadata; an error of the bytes says whose they are."""
    assert decode_stored(7, SPEC_CLOSED, 3) == (decode(SPEC_CLOSED), 3)
    with pytest.raises(MetadataSerialization, match=r"ledger 7: .*`quire ledger delete 7`"):
        decode_stored(7, b"junk", 3)
