"""V3 answers in both directions: Apache's bytes, any values, the rules of their headers, and junk."""

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import schema, v3
from quire.protocol.errors import MalformedFrame, Status
from quire.protocol.messages import (
    AddAcks,
    AddRun,
    Auth,
    AuthReply,
    BatchReply,
    BookieInfo,
    Force,
    InfoReply,
    LacReply,
    ListReply,
    Read,
    ReadLac,
    ReadReply,
    Reply,
    StartTls,
    StatusReply,
    Unserved,
)
from tests.protocol import naive, samples
from tests.protocol.samples import ENTRY, KEY, LAC_BODY, captured, fed, flat, framed, i64, single_bytes, txns
from tests.protocol.v3.single import ANSWERED, answered, maybe_bytes, maybe_i64, one_reply

# SPDX-License-Identifier: Apache-2.0

REPLIES = captured(3, "response") + [(name, samples.v3(name), "") for name in ANSWERED]


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


statuses = st.sampled_from(list(Status))

replies = st.one_of(
    st.builds(ReadReply, statuses, i64, i64, maybe_bytes, maybe_i64, maybe_i64, txns),
    st.builds(
        ReadReply,
        statuses,
        i64,
        i64,
        maybe_bytes,
        maybe_i64,
        st.none(),
        txns,
        st.lists(st.binary(max_size=300), max_size=3).map(tuple),
        maybe_bytes,
        maybe_bytes,
    ),
    st.builds(LacReply, statuses, i64, txns, maybe_bytes, maybe_bytes),
    st.builds(InfoReply, statuses, txns, maybe_i64, maybe_i64, st.none() | st.text(max_size=10)),
    st.builds(ListReply, statuses, i64, txns, maybe_bytes),
    st.builds(AuthReply, st.text(max_size=10), st.binary(max_size=20), statuses, txns),
    st.builds(StatusReply, st.sampled_from([6, 10]), statuses, txns, i64),
    st.builds(StatusReply, st.just(9), statuses, txns),
)


@given(replies)
def test_any_reply_survives(reply: Reply) -> None:
    """A packed reply is read back equal and has protobuf's own bytes."""
    frame = answered(reply)
    assert one_reply(frame) == reply
    message = schema.parsed(schema.Response, frame[4:])
    assert message is not None
    assert message.SerializeToString() == frame[4:], "in the form that protobuf itself would write"


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
