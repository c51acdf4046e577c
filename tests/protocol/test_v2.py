"""The binary protocol (wire.md 2): Apache's bytes in both directions, runs, faults, and a slow twin."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import MalformedFrame, Status, UnknownOperation
from quire.protocol.messages import (
    AddAcks,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
    BatchReply,
    Read,
    ReadReply,
    Reply,
    Request,
)
from quire.protocol.wire import Requests
from tests.protocol import naive, samples
from tests.protocol.samples import ENTRY, KEY, SECOND, captured, fed, flat, framed, i64, pieces, single_bytes

# SPDX-License-Identifier: Apache-2.0

REQUESTS = captured(2, "request") + [
    (name, samples.v2(name), "") for name in ("ADD", "recovery ADD", "READ", "fence READ", "BATCH", "AUTH")
]
REPLIES = captured(2, "response") + [
    (name, samples.v2(name), "") for name in ("ADD ok", "ADD fenced", "READ ok", "READ no entry", "BATCH ok", "AUTH")
]


def one_request(frame: bytes) -> Request:
    out: list[Request] = []
    assert v2.decode_requests(frame, 1 << 30, out) == len(frame)
    assert len(out) == 1
    return out[0]


def one_reply(frame: bytes) -> Reply:
    receiver = v2.Replies()
    out = receiver.feed(frame)
    assert receiver.failure is None
    assert len(out) == 1
    return out[0]


def packed(request: Request) -> bytes:
    """A request encoded again; an add keeps its frame verbatim, so it is built from its fields here."""
    match request:
        case AddRun():
            flags = (2 if request.recovery else 0) | (4 if request.priority else 0)
            return b"".join(
                naive.v2_add(request.ledger, request.first, request.master_key, body, flags) for body in request.bodies
            )
        case Read():
            return v2.pack_read(request)
        case BatchRead():
            return v2.pack_batch_read(request)
        case Auth():
            return v2.pack_auth(request)
        case _:
            raise AssertionError(request)


def answered(reply: Reply) -> bytes:
    """A reply encoded again, as the answer to a request made up for it."""
    match reply:
        case AddAcks():
            return v2.add_acks(AddRun(reply.ledger, reply.first, [b""] * reply.count, KEY), reply.status)
        case ReadReply():
            return v2.read_reply(reply, Read(reply.ledger, reply.entry))
        case BatchReply():
            return v2.batch_reply(reply, BatchRead(reply.ledger, reply.first, reply.request_id, 0, 0))
        case AuthReply():
            return v2.auth_reply(reply, Auth(reply.plugin, b""))
        case _:
            raise AssertionError(reply)


@pytest.mark.parametrize(("scenario", "frame", "text"), REQUESTS, ids=[row[0] for row in REQUESTS])
def test_requests_both_ways(scenario: str, frame: bytes, text: str) -> None:
    """
    Decoded and encoded again to the same bytes; the same whole, byte by byte, and before a piece of the next frame.
    """
    request = one_request(frame)
    assert packed(request) == frame
    if isinstance(request, AddRun):
        assert request.frames == frame
    expected = list(flat([request]))
    assert fed(Requests, [frame]) == (expected, "")
    assert fed(Requests, single_bytes(frame)) == (expected, "")
    for tail in range(1, len(frame)):
        assert fed(Requests, [frame + frame[:tail]]) == (expected, "")
    assert fed(Requests, [frame + frame[:9], frame[9:]]) == (expected * 2, "")


@pytest.mark.parametrize(("scenario", "frame", "text"), REPLIES, ids=[row[0] for row in REPLIES])
def test_replies_both_ways(scenario: str, frame: bytes, text: str) -> None:
    """A captured reply is packed again with the same bytes and read however it is divided."""
    reply = one_reply(frame)
    assert answered(reply) == frame
    expected = list(flat([reply]))
    assert fed(v2.Replies, single_bytes(frame)) == (expected, "")
    for tail in range(1, len(frame)):
        assert fed(v2.Replies, [frame + frame[:tail]]) == (expected, "")
    assert fed(v2.Replies, [frame + frame[:9], frame[9:]]) == (expected * 2, "")


def test_the_whole_capture_as_one_stream() -> None:
    """All that a Java client sent, at once and in pieces of a segment, is the same as frame by frame."""
    for rows, make in ((captured(2, "request"), Requests), (captured(2, "response"), v2.Replies)):
        stream = b"".join(frame for _, frame, _ in rows)
        alone = fed(make, [frame for _, frame, _ in rows])
        assert alone[1] == ""
        assert fed(make, [stream]) == alone
        assert fed(make, [stream[at : at + 1460] for at in range(0, len(stream), 1460)]) == alone


def test_known_values() -> None:
    """Known frames are read as these requests and replies."""
    assert one_request(samples.v2("fence READ")) == Read(1, -1, True, KEY)
    assert one_request(samples.v2("BATCH")) == BatchRead(1, 0, 7, 10, 5_242_880)
    assert one_request(samples.v2("AUTH")) == Auth("AuthDisabledPlugin", b"")
    assert one_request(samples.v2("recovery ADD")) == AddRun(
        1, 0, [ENTRY], KEY, True, 100, frames=samples.v2("recovery ADD")
    )
    assert one_reply(samples.v2("ADD fenced")) == AddAcks(1, 0, 1, Status.EFENCED)
    assert one_reply(samples.v2("READ no entry")) == ReadReply(Status.ENOENTRY, 1, 0)
    assert one_reply(samples.v2("BATCH ok")) == BatchReply(Status.EOK, 1, 0, 7, [ENTRY, SECOND])


# --- runs


def adds(ledger: int, first: int, sizes: list[int]) -> bytes:
    return AddBatch(
        Digest(DigestType.CRC32C, b"testPasswd"), ledger, first, first - 1, 0, [bytes(size) for size in sizes]
    ).frames()


def test_adds_that_arrive_together_are_one_run_with_their_bytes_verbatim() -> None:
    """Consecutive adds are one run that keeps its frames for the journal."""
    data = adds(5, 10, [3, 0, 100, 100])
    run = one_request(data)
    assert isinstance(run, AddRun)
    assert (run.ledger, run.first, len(run.bodies), run.txns, run.version) == (5, 10, 4, None, 2)
    assert run.frames == data
    assert v2.split_frames(data) == [run]
    assert v2.split_frames(memoryview(data)) == [run]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (adds(6, 12, [1]), "another ledger"),
        (adds(5, 13, [1]), "a gap"),
        (adds(5, 11, [1]), "the same id again"),
        (adds(5, 12, [1])[:4] + b"\x02\x01\0\2" + adds(5, 12, [1])[8:], "another flag"),
        (adds(5, 12, [1])[:4] + b"\x01\x01\0\0" + adds(5, 12, [1])[8:], "another version"),
        (adds(5, 12, [1])[:8] + b"x" + adds(5, 12, [1])[9:], "another key"),
    ],
)
def test_a_run_ends_where_anything_differs(other: bytes, why: str) -> None:
    """Another ledger, id, flag, version or key begins a new run, and no byte is lost."""
    data = adds(5, 10, [1, 1])
    out, failure = [], ""
    receiver = Requests()
    out = receiver.feed(data + other + adds(5, 20, [1]))
    assert failure == ""
    assert [len(run.bodies) for run in out if isinstance(run, AddRun)] == [2, 1, 1], why
    assert b"".join(run.frames or b"" for run in out if isinstance(run, AddRun)) == data + other + adds(5, 20, [1])


def test_other_requests_stand_between_runs_in_order() -> None:
    """A read between adds ends the run before it."""
    out = Requests().feed(adds(5, 0, [1]) + samples.v2("READ") + adds(5, 1, [1]))
    assert [type(request) for request in out] == [AddRun, Read, AddRun]


def test_a_run_may_cross_minus_one_and_stops_at_the_highest_id() -> None:
    """Ids are signed, and the number behind the highest does not exist."""
    top = (1 << 63) - 1
    bodies = [struct.pack(">qqqq", 5, entry, 0, 0) for entry in (top - 1, top, -(1 << 63))]
    out = Requests().feed(b"".join(framed(b"\x02\x01\0\0" + KEY + body) for body in bodies))
    assert [(run.first, len(run.bodies)) for run in out if isinstance(run, AddRun)] == [(top - 1, 2), (-(1 << 63), 1)]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 255, 256, 257, 600])
@pytest.mark.parametrize("first", [0, 5, 250, 65_530, (1 << 32) - 3, (1 << 63) - 601, -3])
def test_acks_of_a_run_are_those_of_its_entries(count: int, first: int) -> None:
    """The template against the slow way, over every carry of the id; and back."""
    for version, status in ((2, Status.EOK), (0, Status.EFENCED), (3, Status.EBADVERSION)):
        made = v2.add_acks(AddRun(9, first, [b""] * count, KEY, version=version), status)
        assert made == b"".join(naive.v2_ack(version, int(status), 9, entry) for entry in range(first, first + count))
        assert v2.Replies().feed(made) == [AddAcks(9, first, count, status)]
    waits = v2.add_acks(AddRun(9, first, [b""] * count, KEY, reader_waits=True), Status.EOK)
    assert v2.Replies().feed(waits) == [AddAcks(9, first, count, Status.EOK, None, True)]


@pytest.mark.parametrize("broken", [0, 1, 5, 8, 20, 48, 49])
def test_a_run_of_acks_ends_where_one_differs(broken: int) -> None:
    """Another status, ledger or id in the middle of fifty."""
    good = [naive.v2_ack(2, 0, 9, 100 + at) for at in range(50)]
    for odd in (
        naive.v2_ack(2, 104, 9, 100 + broken),
        naive.v2_ack(2, 0, 8, 100 + broken),
        naive.v2_ack(2, 0, 9, 7),
        naive.v2_ack(1, 0, 9, 100 + broken),
    ):
        data = b"".join([*good[:broken], odd, *good[broken + 1 :]])
        out = v2.Replies().feed(data)
        assert list(flat(out)) == [naive.v2_reply(payload) for payload in naive.frames(data)]
        assert len(out) <= 3


def test_acks_of_two_ledgers_are_two_runs() -> None:
    """Acknowledgements are joined within a ledger only."""
    data = v2.add_acks(AddRun(1, 0, [b""] * 100, KEY), Status.EOK) + v2.add_acks(
        AddRun(2, 0, [b""] * 37, KEY), Status.EOK
    )
    assert v2.Replies().feed(data) == [AddAcks(1, 0, 100, Status.EOK), AddAcks(2, 0, 37, Status.EOK)]


def test_an_ack_with_more_behind_it_is_still_one() -> None:
    """Even if what is behind it in its frame looks like the next."""
    first = framed(naive.v2_ack(2, 0, 1, 5)[4:] + naive.v2_ack(2, 0, 1, 6))
    assert v2.Replies().feed(first + naive.v2_ack(2, 0, 1, 9)) == [
        AddAcks(1, 5, 1, Status.EOK),
        AddAcks(1, 9, 1, Status.EOK),
    ]


def test_acks_out_of_order_are_what_they_are() -> None:
    """Only consecutive ascending ids are joined."""
    data = b"".join(naive.v2_ack(2, 0, 1, entry) for entry in (5, 4, 3, 9, 10, 11, 0))
    assert [(acks.first, acks.count) for acks in v2.Replies().feed(data) if isinstance(acks, AddAcks)] == [
        (5, 1),
        (4, 1),
        (3, 1),
        (9, 3),
        (0, 1),
    ]


# --- versions, flags, statuses


def test_version_0_packets_have_no_flags() -> None:
    """`00000002` is a READ; the answer has the same form."""
    request = one_request(framed(struct.pack(">Iqq", 2, 1, 5)))
    assert request == Read(1, 5, version=0)
    assert isinstance(request, Read)
    assert v2.read_reply(ReadReply(Status.ENOENTRY, 1, 5), request) == framed(struct.pack(">Iiqq", 2, 2, 1, 5))
    add = one_request(framed(struct.pack(">I", 1) + KEY + ENTRY))
    assert isinstance(add, AddRun)
    assert add.version == 0
    assert v2.add_acks(add, Status.EOK) == framed(struct.pack(">Iiqq", 1, 0, 1, 0))


@pytest.mark.parametrize("version", [3, 4, 10, 255])
def test_unknown_versions_are_decoded_so_that_they_can_be_answered(version: int) -> None:
    """ADD, READ and BATCH of version 3 and more get EBADVERSION, not a closed connection (wire.md 2.1)."""
    for name in ("ADD", "READ"):
        frame = samples.v2(name)
        request = one_request(frame[:4] + bytes([version]) + frame[5:])
        assert isinstance(request, (AddRun, Read))
        assert request.version == version
        answer = (
            v2.add_acks(request, Status.EBADVERSION)
            if isinstance(request, AddRun)
            else v2.read_reply(ReadReply(Status.EBADVERSION, 1, 0), request)
        )
        assert answer[4] == version
        assert answer[8:12] == (103).to_bytes(4, "big")
    if version != 10:  # there a batch read is taken for what is left of a V3 frame: see test_wire
        frame = samples.v2("BATCH")
        batch = one_request(frame[:4] + bytes([version]) + frame[5:])
        assert isinstance(batch, BatchRead)
        assert batch.version == version
        assert len(v2.batch_reply(BatchReply(Status.EBADVERSION, 1, 0, 7), batch)) == 36


def test_a_fence_without_room_for_a_key() -> None:
    """Below version 2 the flag is there and the key is not: the bookie answers EUA."""
    request = one_request(framed(b"\x01\x02\x00\x01" + struct.pack(">qq", 1, 5)))
    assert request == Read(1, 5, True, None, version=1)


def test_a_key_is_packed_only_where_it_is_looked_for() -> None:
    """With the fence flag, and from version 2 on."""
    assert len(v2.pack_read(Read(1, 5, True, KEY))) == 44
    assert len(v2.pack_read(Read(1, 5, False, KEY))) == 24
    assert len(v2.pack_read(Read(1, 5, True, KEY, version=1))) == 24
    assert len(v2.pack_batch_read(BatchRead(1, 5, 7, 0, 0, True, KEY))) == 64
    assert len(v2.pack_batch_read(BatchRead(1, 5, 7, 0, 0, True, KEY, version=1))) == 44


def test_trailing_bytes_of_a_plain_read_are_ignored() -> None:
    """Extra bytes behind a read, a fencing read and a batch read change nothing."""
    assert one_request(framed(samples.v2("READ")[4:] + b"junk")) == one_request(samples.v2("READ"))
    assert one_request(framed(samples.v2("fence READ")[4:] + b"junk")) == one_request(samples.v2("fence READ"))
    assert one_request(framed(samples.v2("BATCH")[4:] + b"junk")) == one_request(samples.v2("BATCH"))


def test_unknown_flag_bits_are_ignored() -> None:
    """A read with unknown flags is a plain read."""
    assert one_request(framed(b"\x02\x02\xff\xf8" + struct.pack(">qq", 1, 5))) == Read(1, 5)


def test_no_v2_client_ever_sees_107() -> None:
    """4.17's clients throw on it and close; a limbo ledger is EIO to them (wire.md 2.5)."""
    unknown = Status.EUNKNOWNLEDGERSTATE
    for frame in (
        v2.add_acks(AddRun(1, 0, [b""] * 3, KEY), unknown),
        v2.read_reply(ReadReply(unknown, 1, 0), Read(1, 0)),
        v2.batch_reply(BatchReply(unknown, 1, 0, 7), BatchRead(1, 0, 7, 0, 0)),
    ):
        assert frame[8:12] == (101).to_bytes(4, "big")


@pytest.mark.parametrize("name", ["ADD ok", "READ no entry", "BATCH ok"])
def test_107_from_a_real_bookie_is_understood(name: str) -> None:
    """Status 107 is read as an unknown ledger state."""
    frame = bytearray(samples.v2(name))
    frame[8:12] = (107).to_bytes(4, "big")
    reply = one_reply(bytes(frame))
    assert not isinstance(reply, AuthReply)
    assert reply.status is Status.EUNKNOWNLEDGERSTATE


@pytest.mark.parametrize("number", [3, 99, 108, -1, -105])
def test_an_unknown_status_closes(number: int) -> None:
    """Replies before it are returned, and the receiver fails."""
    frame = bytearray(samples.v2("ADD ok"))
    frame[8:12] = number.to_bytes(4, "big", signed=True)
    receiver = v2.Replies()
    assert receiver.feed(samples.v2("ADD ok") + bytes(frame)) == [AddAcks(1, 0, 1, Status.EOK)]
    assert isinstance(receiver.failure, MalformedFrame)


def test_an_error_reply_carries_no_body() -> None:
    """A body beside an error status is not packed."""
    assert len(v2.read_reply(ReadReply(Status.EIO, 1, 0, b"leftover"), Read(1, 0))) == 28
    assert len(v2.batch_reply(BatchReply(Status.EIO, 1, 0, 7, [b"leftover"]), BatchRead(1, 0, 7, 0, 0))) == 36


def test_ids_of_an_answer_are_the_requests() -> None:
    """A read of the last entry echoes -1, whatever was found (wire.md 2.4)."""
    assert v2.read_reply(ReadReply(Status.EOK, 1, 77, ENTRY), Read(1, -1))[20:28] == b"\xff" * 8


def test_auth_disabled_is_always_version_2() -> None:
    """Its answer has version 2, other answers that of the request."""
    request = Auth("sasl", b"token", version=1)
    assert v2.auth_reply(AuthReply("AuthDisabledPlugin", b""), request) == samples.v2("AUTH")
    assert v2.auth_reply(AuthReply("sasl", b"challenge"), request)[4] == 1


# --- faults


@pytest.mark.parametrize("name", ["ADD", "READ", "fence READ", "BATCH"])
def test_truncated_packets_close(name: str) -> None:
    """Every shorter packet with an honest length, down to the point where it means something."""
    payload = samples.v2(name)[4:]
    shortest = {"ADD": 40, "READ": 20, "fence READ": 40, "BATCH": 40}[name]
    for length in range(1, shortest):
        receiver = Requests()
        assert receiver.feed(samples.v2("READ") + framed(payload[:length])) == [Read(1, 0)]
        assert isinstance(receiver.failure, MalformedFrame)
    assert len(Requests().feed(framed(payload[:shortest]))) == 1


@pytest.mark.parametrize("length", range(16, 24))
def test_a_body_with_ids_but_no_lac_is_answerable(length: int) -> None:
    """16 to 23 bytes decode, and are EBADREQ; the run holds nothing else."""
    frame = framed(b"\x02\x01\0\0" + KEY + ENTRY[:length])
    out = Requests().feed(frame + adds(1, 1, [1]))
    assert [run.malformed for run in out if isinstance(run, AddRun)] == [True, False]
    first = out[0]
    assert isinstance(first, AddRun)
    assert v2.add_acks(first, Status.EBADREQ)[8:12] == (100).to_bytes(4, "big")
    out = Requests().feed(adds(1, -1, [1]) + frame)
    assert [run.malformed for run in out if isinstance(run, AddRun)] == [False, True]


@pytest.mark.parametrize("operation", [0, 4, 5, 6, 8, 9, 10, 11, 12, 255])
def test_unserved_opcodes_close(operation: int) -> None:
    """Requests and replies with another operation fail the receiver."""
    receiver = Requests()
    assert receiver.feed(samples.v2("READ") + framed(bytes((2, operation, 0, 0)) + b"\0" * 60)) == [Read(1, 0)]
    assert isinstance(receiver.failure, UnknownOperation)
    replies = v2.Replies()
    assert replies.feed(framed(bytes((2, operation, 0, 0)) + b"\0" * 60)) == []
    assert isinstance(replies.failure, UnknownOperation)


@pytest.mark.parametrize("body", [b"", b"\x0a\x01a", b"\x0a\x05a\x12\x00", b"\xff" * 12])
def test_an_auth_message_that_does_not_decode_closes(body: bytes) -> None:
    """It fails the receiver on both sides."""
    for make in (Requests, v2.Replies):
        receiver = make()
        receiver.feed(samples.v2("AUTH") + framed(b"\x02\x03\0\0" + body))
        assert isinstance(receiver.failure, MalformedFrame)


def test_a_plugin_name_that_is_no_text_is_only_unknown() -> None:
    """Invalid UTF-8 in it is replaced."""
    request = one_request(framed(b"\x02\x03\0\0\x0a\x02\xff\xfe\x12\x00"))
    assert isinstance(request, Auth)
    assert request.plugin == "\ufffd\ufffd"


@pytest.mark.parametrize("damage", [struct.pack(">i", -1), struct.pack(">i", 1000), struct.pack(">i", 38)])
def test_a_batch_answer_whose_lengths_do_not_fit_closes(damage: bytes) -> None:
    """A negative, too large or inconsistent length fails the receiver."""
    frame = bytearray(samples.v2("BATCH ok"))
    frame[-43:-39] = damage
    receiver = v2.Replies()
    receiver.feed(bytes(frame))
    assert isinstance(receiver.failure, MalformedFrame)


@pytest.mark.parametrize("name", ["ADD ok", "READ no entry", "BATCH ok"])
def test_truncated_answers_close(name: str) -> None:
    """An answer cut inside its fixed fields fails the receiver."""
    payload = samples.v2(name)[4:]
    for length in range(1, 32 if name == "BATCH ok" else 24):
        receiver = v2.Replies()
        receiver.feed(framed(payload[:length]))
        assert isinstance(receiver.failure, MalformedFrame), length


@pytest.mark.parametrize("sizes", [[5], [5] * 300, [0] * 3, [300] * 2, [5, 5, 6], [5, 9, 1], [1, 2, 0, 5]])
def test_a_batch_answer_gives_its_entries_whatever_their_sizes(sizes: list[int]) -> None:
    """Also where lengths differ and the bytes could be cut into equal parts."""
    bodies = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    reply = BatchReply(Status.EOK, 1, 0, 7, bodies)
    frame = v2.batch_reply(reply, BatchRead(1, 0, 7, 0, 0))
    found = v2.Replies().feed(frame + v2.batch_reply(reply, BatchRead(1, 0, 7, 0, 0))[:20])
    assert found == [reply]
    assert isinstance(found[0], BatchReply)
    assert list(found[0].bodies) == bodies
    assert isinstance(found[0].bodies, list) == (len(set(sizes)) > 1)


def test_an_empty_batch_and_an_empty_entry_are_legal() -> None:
    """Batches without entries and entries without bytes survive."""
    request = BatchRead(1, 0, 7, 0, 0)
    assert v2.Replies().feed(v2.batch_reply(BatchReply(Status.EOK, 1, 0, 7), request)) == [
        BatchReply(Status.EOK, 1, 0, 7)
    ]
    assert v2.Replies().feed(v2.batch_reply(BatchReply(Status.EOK, 1, 0, 7, [b"", ENTRY]), request)) == [
        BatchReply(Status.EOK, 1, 0, 7, [b"", ENTRY])
    ]
    assert v2.Replies().feed(v2.read_reply(ReadReply(Status.EOK, 1, 0, b""), Read(1, 0))) == [
        ReadReply(Status.EOK, 1, 0, b"")
    ]


@pytest.mark.parametrize("data", [samples.v2("READ"), adds(1, 0, [5])[:-1], adds(1, 0, [5]) + b"\0", b"\0\0\0\0"])
def test_a_journal_accepts_whole_adds_only(data: bytes) -> None:
    """Reads, cut frames and extra bytes raise `MalformedFrame`."""
    with pytest.raises(MalformedFrame):
        v2.split_frames(data)


def test_no_frames_are_no_runs() -> None:
    """Splitting no bytes gives no runs."""
    assert v2.split_frames(b"") == []


def test_a_journal_may_hold_frames_above_the_default_limit() -> None:
    """Splitting has no limit of its own."""
    assert len(v2.split_frames(adds(1, 0, [6_000_000]))[0].bodies[0]) == 6_000_036


# --- the slow twin

body = st.builds(
    lambda ledger, entry, rest: struct.pack(">qq", ledger, entry) + rest,
    st.sampled_from([1, 1, 1, 2]),
    st.integers(-2, 5),
    st.binary(max_size=40),
)
packets = st.one_of(
    st.builds(lambda head, b: head + KEY + b, st.sampled_from([b"\x02\x01\0\0"] * 4 + [b"\x02\x01\0\6", b"\0\0\0\1",
    b"\3\1\0\0"]), body),
    st.builds(lambda flags, ledger, entry: b"\x02\x02\0" + bytes([flags]) + struct.pack(">qq", ledger, entry) + KEY,
    st.integers(0, 7), i64, i64),
    st.builds(
        lambda flags, *fields: b"\x02\x07\0" + bytes([flags]) + struct.pack(">qqqiq", *fields) + KEY,
        st.integers(0, 7), i64, i64, i64, st.integers(-5, 50), i64,
    ),
    st.builds(lambda payload: samples.v2("AUTH")[4:-2] + b"\x12" + bytes([len(payload)]) + payload,
    st.binary(max_size=20)),
)  # fmt: skip
answers = st.one_of(
    st.builds(lambda rc, entry: struct.pack(">Iiqq", 0x02010000, rc, 1, entry), st.sampled_from([0, 0, 0, 104, 107]),
    st.integers(0, 4)),
    st.builds(
        lambda rc, ledger, entry, b: struct.pack(">Iiqq", 0x02020000, rc, ledger, entry) + b,
        st.sampled_from([0, 1, 2]), i64, i64, st.binary(max_size=9),
    ),
    st.builds(
        lambda rc, ids, bodies: struct.pack(">Iiqqq", 0x02070000, rc, *ids) + b"".join(map(framed, bodies)),
        st.sampled_from([0, 0, 2]), st.tuples(i64, i64, i64), st.lists(st.binary(max_size=9), max_size=4),
    ),
)  # fmt: skip


def naively(data: bytes, decode: Callable[[bytes], object]) -> tuple[list[object], bool]:
    out: list[object] = []
    try:
        for payload in naive.frames(data):
            out.append(decode(payload))
    except naive.Refused:
        return out, True
    return out, False


@settings(max_examples=150)
@given(
    st.lists(st.one_of(packets, packets, packets, st.binary(min_size=1, max_size=50)), max_size=10),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_requests_against_the_slow_twin(payloads: list[bytes], cuts: list[int]) -> None:
    """Any stream of packets, some of them junk, cut anywhere: the same requests, and a failure in the same place."""
    data = samples.v2("READ") + b"".join(map(framed, payloads))
    expected, refused = naively(data, naive.v2_request)
    found, failure = fed(Requests, pieces(data, cuts))
    assert found == expected
    assert bool(failure) == refused


@settings(max_examples=150)
@given(
    st.lists(st.one_of(answers, answers, answers, st.binary(min_size=1, max_size=50)), max_size=12),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_replies_against_the_slow_twin(payloads: list[bytes], cuts: list[int]) -> None:
    """Random streams of replies are read like by a naive reader, with the same failures."""
    data = b"".join(map(framed, payloads))
    expected, refused = naively(data, naive.v2_reply)
    found, failure = fed(v2.Replies, pieces(data, cuts))
    assert found == expected
    assert bool(failure) == refused
