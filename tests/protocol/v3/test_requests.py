"""V3 requests in both directions: Apache's bytes, any values, and payloads that are no request."""

import struct

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.protocol import schema, v3
from quire.protocol.errors import Status
from quire.protocol.messages import (
    AddRun,
    Auth,
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
from quire.protocol.wire import Requests
from tests.protocol import naive, samples
from tests.protocol.samples import KEY, captured, fed, flat, framed, i64, pieces, single_bytes, txns
from tests.protocol.v3.single import ASKED, maybe_bytes, maybe_i64, one_request, packed

# SPDX-License-Identifier: Apache-2.0

REQUESTS = captured(3, "request") + [(name, samples.v3(name), "") for name in ASKED]


@pytest.mark.parametrize(("scenario", "frame", "text"), REQUESTS, ids=[row[0] for row in REQUESTS])
def test_requests_both_ways(scenario: str, frame: bytes, text: str) -> None:
    """To the same bytes, and to what Java printed; whole, byte by byte, and before a piece of the next frame."""
    request = one_request(frame)
    again = packed(request)
    assert again == frame
    if text:
        assert schema.parsed(schema.Request, again[4:]) == text_format.Parse(text, schema.Request())
    expected = list(flat([request]))
    assert fed(Requests, single_bytes(frame)) == (expected, "")
    for tail in range(1, len(frame)):
        assert fed(Requests, [frame + frame[:tail]]) == (expected, "")
    assert fed(Requests, [frame + frame[:9], frame[9:]]) == (expected * 2, "")


def read_of(ledger: int, entry: int, key: bytes | None, lac: int | None, timeout: int | None, flag: int) -> Read:
    read = Read(ledger, entry, flag == 1, key, version=3, previous_lac=lac, timeout_ms=timeout, piggyback=flag >= 2)
    read.evidence = flag == 3
    return read


requests = st.one_of(
    st.builds(read_of, i64, i64, maybe_bytes, maybe_i64, maybe_i64, st.integers(0, 3)),
    st.builds(WriteLac, i64, i64, st.binary(max_size=30), st.binary(max_size=30), hint=st.booleans()),
    st.builds(ReadLac, i64),
    st.builds(ListEntries, i64),
    st.builds(Force, i64),
    st.builds(BookieInfo, i64),
    st.builds(Auth, st.text(max_size=10), st.binary(max_size=20), version=st.just(3)),
    st.builds(StartTls),
    st.builds(Unserved, st.sampled_from([3, 4, 12, 13, 14, 127, 128, 100_000])),
)


@given(requests, txns, st.sampled_from([0, 1, 100, (1 << 32) - 1]))
def test_any_request_survives(request: v3.Control, txn: int, priority: int) -> None:
    """A packed request is read back equal and has protobuf's own bytes."""
    request.txn, request.priority = txn, priority
    frame = v3.pack_request(request)
    found = one_request(frame)
    assert found == request
    if not isinstance(request, Unserved) or request.operation <= 12:
        message = schema.parsed(schema.Request, frame[4:])
        assert message is not None
        assert message.SerializeToString() == frame[4:], "in the form that protobuf itself would write"
        assert naive.v3_request(frame[4:]) == found


@pytest.mark.parametrize("operation", [1, 5, 6, 7, 8, 9, 10, 11])
def test_a_missing_sub_message_can_be_answered(operation: int) -> None:
    """A request without its body is unserved, and the refusal repeats its header."""
    request = one_request(framed(bytes((0x0A, 8, 8, 3, 16, operation, 24, 9, 32, 100))))
    assert request == Unserved(operation, 9, 100)
    assert v3.bare(request, Status.EBADREQ) == framed(
        bytes((0x0A, 8, 8, 3, 16, operation, 24, 9, 32, 100)) + b"\x10\x94\x03"
    )


def test_an_add_without_sub_message_has_ids_0() -> None:
    """It is read as malformed, and its refusal has ledger and entry 0."""
    request = one_request(framed(b"\x0a\x06\x08\x03\x10\x02\x18\x09"))
    assert isinstance(request, AddRun)
    assert (request.ledger, request.first, request.bodies, request.malformed) == (0, 0, [b""], True)
    assert v3.add_acks(request, Status.EBADREQ) == naive.v3_ack(9, Status.EBADREQ, 0, 0)


@pytest.mark.parametrize("operation", [3, 4, 12])
def test_reserved_operations_are_unserved_whatever_they_carry(operation: int) -> None:
    """Operations 3, 4 and 12 are read as unserved, with their transaction id."""
    frame = bytearray(samples.v3("READ"))
    frame[9] = operation
    assert one_request(bytes(frame)) == Unserved(operation, 4)


@pytest.mark.parametrize("operation", [13, 14, 100, 127, 128, 70_000, (1 << 31) - 1])
def test_operations_of_the_future_are_refused_not_closed(operation: int) -> None:
    """Friendlier than a real bookie, which closes (wire.md 3.4)."""
    frame = v3.pack_request(Unserved(operation, 300, 100))
    request = one_request(frame)
    assert request == Unserved(operation, 300, 100)
    assert v3.bare(request, Status.EBADREQ)[4:] == frame[4:] + b"\x10\x94\x03"


@pytest.mark.parametrize(
    "payload",
    [
        bytes((0x0A, 6, 8, 4, 16, 13, 24, 9)),  # version 4 too
        bytes((0x0A, 4, 8, 3, 16, 13)),  # no transaction id
        bytes((0x0A, 6, 16, 13, 8, 3, 24, 9)),  # another field order than anyone's
        bytes((0x0A, 6, 8, 3, 16, 0, 24, 9)),  # operation 0
        b"\x0a\x0f\x08\x03\x10" + b"\xff" * 9 + b"\x01\x18\x09",  # operation -1
        b"\x0a\x06\x08\x03\x10\x0d\x18\x09\xa2\x06\xff",  # cut short behind it
    ],
)
def test_other_faults_are_not_v3(payload: bytes) -> None:
    """Payloads with a malformed header are no V3 request."""
    assert v3.decode_request(payload) is None


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_are_decoded_so_that_they_can_be_answered(version: int) -> None:
    """Versions 1 and 2 are read and kept in the request."""
    for name in ASKED:
        frame = bytearray(samples.v3(name))
        frame[7] = version
        request = one_request(bytes(frame))
        assert request.version == version, name


def test_requests_know_their_operation() -> None:
    """The operation of a decoded request is that of its frame."""
    for name in ASKED:
        frame = samples.v3(name)
        assert v3.operation_of(one_request(frame)) == frame[9]


streams = st.lists(
    st.one_of(
        st.sampled_from([samples.v3(name)[4:] for name in ASKED]),
        st.builds(
            lambda txn, entry, size, recovery: naive.v3_add(
                txn, 1, entry, KEY, struct.pack(">qqqq", 1, entry, 0, 0) + b"x" * size, recovery=recovery
            )[4:],
            st.integers(0, 400),
            st.integers(0, 6),
            st.sampled_from([0, 0, 100, 150]),
            st.booleans(),
        ),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(streams, st.lists(st.integers(0, 5000), max_size=6))
def test_requests_against_the_slow_twin(payloads: list[bytes], cuts: list[int]) -> None:
    """Random streams of requests are read like by a naive reader."""
    data = b"".join(map(framed, payloads))
    assert fed(Requests, pieces(data, cuts)) == ([naive.v3_request(payload) for payload in payloads], "")


def test_reading_stops_at_a_frame_that_is_not_v3() -> None:
    """It returns where, with what came before it; a frame that is not whole is no such frame."""
    ours, other = samples.v3("READ"), samples.v2("READ")
    assert v3.decode_request(other[4:]) is None
    out: list[Request] = []
    assert v3.decode_requests(ours + other + ours, 1 << 20, out) == (len(ours), True)
    assert out == [one_request(ours)]
    assert v3.decode_requests(ours + other[:-1], 1 << 20, out) == (len(ours), False)
