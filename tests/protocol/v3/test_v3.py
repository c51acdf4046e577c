"""The protobuf protocol (wire.md 3): Apache's bytes in both directions, rules of answers, faults."""

import struct

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.protocol import schema, v3
from quire.protocol.errors import MalformedFrame, Status
from quire.protocol.messages import (
    AddAcks,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
    BatchReply,
    BookieInfo,
    Force,
    InfoReply,
    LacReply,
    ListEntries,
    ListReply,
    Read,
    ReadLac,
    ReadReply,
    Reply,
    Request,
    StartTls,
    StatusReply,
    Unserved,
    WriteLac,
)
from quire.protocol.wire import Requests
from tests.protocol import naive, samples
from tests.protocol.samples import ENTRY, KEY, LAC_BODY, captured, fed, flat, framed, i64, pieces, single_bytes, txns

# SPDX-License-Identifier: Apache-2.0

ASKED = [
    "ADD",
    "recovery ADD",
    "deferred-sync ADD",
    "READ",
    "fence READ",
    "recovery READ",
    "long poll",
    "WRITE_LAC",
    "READ_LAC",
]
ASKED += ["FORCE", "INFO", "LIST", "START_TLS", "AUTH", "operation 12"]
ANSWERED = [name for name in samples.V3_FRAMES if name not in ASKED]
REQUESTS = captured(3, "request") + [(name, samples.v3(name), "") for name in ASKED]
REPLIES = captured(3, "response") + [(name, samples.v3(name), "") for name in ANSWERED]


def one_request(frame: bytes) -> Request:
    receiver = Requests()
    out = receiver.feed(frame)
    assert receiver.failure is None
    assert not receiver.is_v2
    assert len(out) == 1
    return out[0]


def one_reply(frame: bytes) -> Reply:
    receiver = v3.Replies()
    out = receiver.feed(frame)
    assert receiver.failure is None
    assert len(out) == 1
    return out[0]


def packed(request: Request) -> bytes:
    if not isinstance(request, AddRun):
        assert not isinstance(request, BatchRead)
        return v3.pack_request(request)
    assert request.txns is not None
    flags = {"priority": request.priority, "recovery": request.recovery, "deferred": request.deferred_sync}
    return b"".join(
        naive.v3_add(txn, request.ledger, request.first + at, request.master_key, body, **flags)
        for at, (txn, body) in enumerate(zip(request.txns, request.bodies, strict=True))
    )


def asked(reply: Reply) -> Request:
    """A request that this could answer."""
    txn = reply.txn if not isinstance(reply, AddAcks | BatchReply) else 0
    match reply:
        case AddAcks():
            return AddRun(
                reply.ledger,
                reply.first,
                [b""] * reply.count,
                KEY,
                txns=list(range(reply.txn or 0, (reply.txn or 0) + reply.count)),
                version=3,
            )
        case ReadReply():
            return Read(reply.ledger, reply.entry, txn=txn, version=3)
        case LacReply():
            return ReadLac(reply.ledger, txn or 0)
        case InfoReply():
            return BookieInfo(3, txn or 0)
        case ListReply():
            return ListEntries(reply.ledger, txn or 0)
        case AuthReply():
            return Auth(reply.plugin, b"", txn, version=3)
        case StatusReply():
            kinds = {
                6: WriteLac(reply.ledger, 0, KEY, b"", reply.txn),
                9: StartTls(reply.txn),
                10: Force(reply.ledger, reply.txn),
            }
            return kinds.get(reply.operation, Unserved(reply.operation, reply.txn))
        case _:
            raise AssertionError(reply)


def answered(reply: Reply) -> bytes:
    request = asked(reply)
    if isinstance(request, Unserved):
        assert isinstance(reply, StatusReply)
        return v3.bare(request, reply.status)
    return v3.reply(request, reply)


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


@pytest.mark.parametrize(("scenario", "frame", "text"), REPLIES, ids=[row[0] for row in REPLIES])
def test_replies_both_ways(scenario: str, frame: bytes, text: str) -> None:
    """A captured reply is packed again with the same bytes and read however it is divided."""
    reply = one_reply(frame)
    if scenario == "bare EUA":
        assert reply == AddAcks(0, 0, 1, Status.EUA, 1)
        assert v3.bare(AddRun(0, 0, [b""], KEY, txns=[1], version=3), Status.EUA) == frame
    else:
        again = answered(reply)
        assert again == frame
        if text:
            assert schema.parsed(schema.Response, again[4:]) == text_format.Parse(text, schema.Response())
    expected = list(flat([reply]))
    assert fed(v3.Replies, single_bytes(frame)) == (expected, "")
    for tail in range(1, len(frame)):
        assert fed(v3.Replies, [frame + frame[:tail]]) == (expected, "")
    assert fed(v3.Replies, [frame + frame[:9], frame[9:]]) == (expected * 2, "")


def test_the_whole_capture_as_one_stream() -> None:
    """Captured frames joined are read like each alone, however they are divided."""
    for rows, make in ((captured(3, "request"), Requests), (captured(3, "response"), v3.Replies)):
        stream = b"".join(frame for _, frame, _ in rows)
        alone = fed(make, [frame for _, frame, _ in rows])
        assert alone[1] == ""
        assert fed(make, [stream]) == alone
        assert fed(make, [stream[at : at + 1460] for at in range(0, len(stream), 1460)]) == alone


def test_known_values() -> None:
    """Known frames are read as these requests and replies."""
    assert one_request(samples.v3("fence READ")) == Read(1, -1, True, KEY, txn=5, version=3)
    assert one_request(samples.v3("recovery READ")) == Read(1, 0, True, KEY, 100, 6, 3)
    assert one_request(samples.v3("long poll")) == Read(
        1, -1, txn=7, version=3, previous_lac=0, timeout_ms=1000, piggyback=True
    )
    assert one_request(samples.v3("WRITE_LAC")) == WriteLac(1, 0, KEY, LAC_BODY, 8)
    assert one_request(samples.v3("INFO")) == BookieInfo(3, 11)
    assert one_request(samples.v3("AUTH")) == Auth("sasl", b"", 14, version=3)
    assert one_request(samples.v3("deferred-sync ADD")) == AddRun(
        1, 0, [ENTRY], KEY, deferred_sync=True, txns=[3], version=3
    )
    assert one_request(samples.v3("operation 12")) == Unserved(12, 15)
    assert one_reply(samples.v3("READ_LAC ok")) == LacReply(Status.EOK, 1, 9, LAC_BODY, ENTRY)
    assert one_reply(samples.v3("INFO ok")) == InfoReply(Status.EOK, 11, 1000, 500)
    assert one_reply(samples.v3("long poll expired")) == ReadReply(Status.EOK, 1, -1, None, 0, None, 7)
    assert one_reply(samples.v3("START_TLS refused")) == StatusReply(9, Status.EBADREQ, 13)


# --- any values


def read_of(ledger: int, entry: int, key: bytes | None, lac: int | None, timeout: int | None, flag: int) -> Read:
    return Read(ledger, entry, flag == 1, key, version=3, previous_lac=lac, timeout_ms=timeout, piggyback=flag == 2)


maybe_bytes = st.none() | st.binary(max_size=30)
maybe_i64 = st.none() | i64
requests = st.one_of(
    st.builds(read_of, i64, i64, maybe_bytes, maybe_i64, maybe_i64, st.integers(0, 2)),
    st.builds(WriteLac, i64, i64, st.binary(max_size=30), st.binary(max_size=30)),
    st.builds(ReadLac, i64),
    st.builds(ListEntries, i64),
    st.builds(Force, i64),
    st.builds(BookieInfo, i64),
    st.builds(Auth, st.text(max_size=10), st.binary(max_size=20), version=st.just(3)),
    st.builds(StartTls),
    st.builds(Unserved, st.sampled_from([3, 4, 12, 13, 14, 127, 128, 100_000])),
)
statuses = st.sampled_from(list(Status))
replies = st.one_of(
    st.builds(ReadReply, statuses, i64, i64, maybe_bytes, maybe_i64, maybe_i64, txns),
    st.builds(LacReply, statuses, i64, txns, maybe_bytes, maybe_bytes),
    st.builds(InfoReply, statuses, txns, maybe_i64, maybe_i64, st.none() | st.text(max_size=10)),
    st.builds(ListReply, statuses, i64, txns, maybe_bytes),
    st.builds(AuthReply, st.text(max_size=10), st.binary(max_size=20), statuses, txns),
    st.builds(StatusReply, st.sampled_from([6, 10]), statuses, txns, i64),
    st.builds(StatusReply, st.just(9), statuses, txns),
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


@given(replies)
def test_any_reply_survives(reply: Reply) -> None:
    """A packed reply is read back equal and has protobuf's own bytes."""
    frame = answered(reply)
    assert one_reply(frame) == reply
    message = schema.parsed(schema.Response, frame[4:])
    assert message is not None
    assert message.SerializeToString() == frame[4:], "in the form that protobuf itself would write"


# --- rules of answers


def test_a_normal_answer_says_version_3_and_no_priority() -> None:
    """Version and priority of the request are not repeated."""
    request = Read(1, 0, txn=4, priority=100, version=2)
    assert v3.reply(request, ReadReply(Status.ENOENTRY, 1, 0)) == samples.v3("READ no entry")
    run = AddRun(1, 0, [ENTRY], KEY, priority=100, txns=[1], version=1)
    assert v3.add_acks(run, Status.EOK) == samples.v3("ADD ok")


def test_four_answers_copy_the_header_with_its_priority() -> None:
    """Unserved operations, EUA before authentication, AUTH, and EIO after TLS failed (wire.md 3.4)."""
    for operation, frame in (
        (12, v3.bare(Unserved(12, 7, 100, 2), Status.EBADREQ)),
        (10, v3.bare(Force(1, 7, 100, 2), Status.EUA)),
        (9, v3.bare(StartTls(7, 100, 2), Status.EIO)),
        (5, v3.reply(Auth("sasl", b"", 7, 100, 2), AuthReply("sasl", b"x"))),
        (2, v3.bare(AddRun(1, 0, [ENTRY], KEY, priority=100, txns=[7], version=2), Status.EUA)),
    ):
        assert frame[4:14] == bytes.fromhex(f"0a08080210{operation:02x}18072064"), operation
    assert v3.bare(Unserved(12, 15), Status.EBADREQ) == samples.v3("operation 12 refused")


def test_a_bare_answer_to_a_run_has_one_frame_an_entry() -> None:
    """Each frame has the transaction id of its entry."""
    run = AddRun(1, 0, [ENTRY, ENTRY], KEY, txns=[7, 9], version=3)
    frames = list(naive.frames(v3.bare(run, Status.EUA)))
    assert [frame.hex() for frame in frames] == ["0a0608031002180710f603", "0a0608031002180910f603"]


def test_the_outer_status_counts_first() -> None:
    """EOK outside lets the inner one speak; anything else does not (wire.md 3.4)."""
    message = schema.Response()
    message.header.version, message.header.operation, message.header.txnId = 3, 1, 4
    message.status = 0
    message.readResponse.status, message.readResponse.ledgerId, message.readResponse.entryId = 403, 1, 0
    reply = one_reply(framed(message.SerializeToString()))
    assert reply == ReadReply(Status.ENOENTRY, 1, 0, txn=4)
    message.status = 502
    reply = one_reply(framed(message.SerializeToString()))
    assert reply == ReadReply(Status.EUA, 1, 0, txn=4)


@pytest.mark.parametrize("operation", range(1, 13))
def test_a_bare_answer_is_understood_for_every_operation(operation: int) -> None:
    """Whatever was asked, EUA without sub-message has the transaction id and the status; ids are 0."""
    reply = one_reply(framed(bytes((0x0A, 6, 8, 3, 16, operation, 24, 9)) + b"\x10\xf6\x03"))
    assert reply.txn == 9
    assert reply.status is Status.EUA
    assert getattr(reply, "ledger", 0) == 0


def test_an_answer_keeps_its_parts_with_an_error() -> None:
    """A real bookie answers EIO with a usable explicit LAC (wire.md 6.4)."""
    frame = v3.reply(ReadLac(1, 9), LacReply(Status.EIO, 1, 9, LAC_BODY))
    assert one_reply(frame) == LacReply(Status.EIO, 1, 9, LAC_BODY)


def test_info_has_exactly_what_was_asked_for() -> None:
    """Only the values that the request's flags name are packed."""
    frame = v3.reply(BookieInfo(2, 11), InfoReply(Status.EOK, 11, None, 500))
    assert one_reply(frame) == InfoReply(Status.EOK, 11, None, 500)
    assert v3.reply(BookieInfo(0, 11), InfoReply(Status.EOK, 11)).endswith(b"\xca\x06\x02\x08\x00")


# --- faults


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


def test_junk_in_answers_closes() -> None:
    """A malformed answer fails the receiver, and the answers before it are returned."""
    for payload in (
        b"\x0a",
        b"\x10\x00",
        bytes((0x0A, 6, 8, 3, 16, 13, 24, 9, 16, 0)),
        bytes((0x0A, 6, 8, 3, 16, 1, 24, 9, 16, 7)),
        samples.v2("READ")[4:],
    ):
        receiver = v3.Replies()
        assert receiver.feed(samples.v3("ADD ok") + framed(payload) + samples.v3("ADD ok")) == [
            AddAcks(1, 0, 1, Status.EOK, 1)
        ]
        assert isinstance(receiver.failure, MalformedFrame)


def test_a_mistaken_answer_of_our_own_is_an_assertion() -> None:
    """An answer of another kind than its request raises `AssertionError`."""
    with pytest.raises(AssertionError, match="BatchReply"):
        v3.reply(ReadLac(1, 9), BatchReply(Status.EOK, 1, 0, 0))


def test_requests_know_their_operation() -> None:
    """The operation of a decoded request is that of its frame."""
    for name in ASKED:
        frame = samples.v3(name)
        assert v3.operation_of(one_request(frame)) == frame[9]


# --- the slow twin

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
