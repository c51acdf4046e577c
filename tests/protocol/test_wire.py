"""One connection of a bookie: the rule of generations, answers by request, and junk (wire.md 1.2, 3.4, 9.2)."""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.bookie.index.ledger_table import LedgerRow
from quire.protocol import v2, v3, wire
from quire.protocol.errors import Status, UnknownOperation, WireError
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
from quire.protocol.v3.adds import Add
from quire.protocol.wire import Requests
from tests.protocol import samples
from tests.protocol.samples import ENTRY, KEY, captured, fed, framed, pieces, single_bytes

# SPDX-License-Identifier: Apache-2.0

MAKERS: list[Callable[[], Any]] = [Requests, v2.Replies, v3.Replies]


# --- the rule


def test_v3_may_turn_v2_once() -> None:
    """START_TLS in V3, then V2 for good."""
    receiver = Requests()
    assert receiver.feed(samples.v3("START_TLS")) == [StartTls(13)]
    assert not receiver.is_v2
    assert receiver.feed(samples.v2("READ") * 2) == [Read(1, 0)] * 2
    assert receiver.is_v2


def test_both_generations_in_one_chunk() -> None:
    """V2 and V3 requests may follow each other in one connection."""
    receiver = Requests()
    data = samples.v3("READ") + samples.v2("READ") + samples.v2("BATCH")
    assert receiver.feed(data) == [Read(1, 0, txn=4, version=3), Read(1, 0), BatchRead(1, 0, 7, 10, 5_242_880)]
    assert receiver.failure is None


@pytest.mark.parametrize("name", sorted(samples.V3_FRAMES))
def test_v3_after_v2_closes(name: str) -> None:
    """In one chunk or two, and what came before is handed out."""
    for cut in (True, False):
        receiver = Requests()
        first, second = samples.v2("READ"), samples.v3(name)
        out = [*receiver.feed(first), *receiver.feed(second)] if cut else receiver.feed(first + second)
        assert out == [Read(1, 0)]
        assert receiver.failure is not None
        assert receiver.feed(samples.v2("READ")) == []


def test_v3_after_v2_closes_even_where_it_reads_as_a_batch_read() -> None:
    """A header of 7 bytes makes the second byte V2's opcode 7, with version 10 (wire.md 1.2)."""
    frame = v3.pack_request(WriteLac(1, 0, KEY, b"x" * 60, txn=300))
    assert frame[4:6] == b"\x0a\x07"
    receiver = Requests()
    receiver.feed(samples.v2("READ"))
    assert receiver.feed(frame) == []
    assert isinstance(receiver.failure, UnknownOperation)


@pytest.mark.parametrize("first_byte", range(256))
def test_the_first_byte_alone_never_confuses(first_byte: int) -> None:
    """00 to 02 and unknown versions are V2, 0a is V3 or nothing."""
    receiver = Requests()
    packet = bytes((first_byte, 2, 0, 0)) + struct.pack(">qq", 1, 0)
    if first_byte == 0:
        packet = b"\0\0\0\2" + packet[4:]
    assert receiver.feed(framed(packet)) == [Read(1, 0, version=first_byte)]
    assert receiver.is_v2


@pytest.mark.parametrize(
    "payload",
    [
        bytes.fromhex("0a0608041002180a"),  # version 4
        bytes.fromhex("0a0408031001"),  # no transaction id
        bytes.fromhex("0a06080310011804a206020801"),  # a read without entry id
        bytes.fromhex("0a06080310011804a2060408"),  # cut short
        bytes.fromhex("0aff"),
        b"\x0a",
    ],
)
def test_what_looks_like_v3_but_is_not_closes(payload: bytes) -> None:
    """A malformed V3 request fails the receiver after the request before it."""
    receiver = Requests()
    assert receiver.feed(samples.v3("READ") + framed(payload)) == [Read(1, 0, txn=4, version=3)]
    assert isinstance(receiver.failure, WireError)


def test_a_message_that_begins_with_another_field_is_still_v3() -> None:
    """No known client writes so, but protobuf allows it and a real bookie takes it."""
    payload = samples.v3("READ")[4:]
    assert Requests().feed(framed(payload[8:] + payload[:8])) == [Read(1, 0, txn=4, version=3)]


def test_a_silent_connection_has_no_failure() -> None:
    """Empty input holds no bytes and fails nothing."""
    receiver = Requests()
    assert receiver.feed(b"") == []
    assert receiver.failure is None
    assert receiver.held == 0


@pytest.mark.parametrize("generation", [2, 3])
def test_a_capture_survives_any_cut(generation: int) -> None:
    """Every connection of the captures, in segments of 1 to 2,000 bytes."""
    frames = [frame for _, frame, _ in captured(generation, "request")]
    stream = b"".join(frames)
    alone = fed(Requests, frames)
    chance = random.Random(7)
    for _ in range(5):
        assert (
            fed(Requests, pieces(stream, [chance.randrange(len(stream)) for _ in range(len(stream) // 700)])) == alone
        )
    assert fed(Requests, single_bytes(stream[:3000])) == fed(Requests, [stream[:3000]])


# --- answers

ASKED: list[tuple[Request, Reply]] = [
    (AddRun(1, 0, [ENTRY], KEY), AddAcks(1, 0, 1, Status.EOK)),
    (AddRun(1, 0, [ENTRY], KEY, txns=[1], version=3), AddAcks(1, 0, 1, Status.EOK, 1)),
    (Read(1, 0), ReadReply(Status.EOK, 1, 0, ENTRY)),
    (Read(1, 0, txn=4, version=3), ReadReply(Status.EOK, 1, 0, ENTRY, -1, txn=4)),
    (BatchRead(1, 0, 7, 10, 100), BatchReply(Status.EOK, 1, 0, 7, [ENTRY])),
    (WriteLac(1, 0, KEY, b"", 8), StatusReply(6, Status.EOK, 8, 1)),
    (ReadLac(1, 9), LacReply(Status.EOK, 1, 9, b"lac", ENTRY)),
    (ListEntries(1, 12), ListReply(Status.EOK, 1, 12, bytes(64))),
    (Force(1, 10), StatusReply(10, Status.EOK, 10, 1)),
    (BookieInfo(3, 11), InfoReply(Status.EOK, 11, 1000, 500)),
    (BookieInfo(1 << 20, 0), InfoReply(Status.EOK, 0, bookie="bookie-1")),
    (Auth("sasl", b""), AuthReply("AuthDisabledPlugin", b"")),
    (Auth("sasl", b"", 14, version=3), AuthReply("AuthDisabledPlugin", b"", txn=14)),
    (StartTls(13), StatusReply(9, Status.EOK, 13)),
]


def received(request: Request, data: bytes) -> list[Reply]:
    receiver = v2.Replies() if wire.came_by_v2(request) else v3.Replies()
    out = receiver.feed(data)
    assert receiver.failure is None
    return out


@pytest.mark.parametrize(("request_", "reply"), ASKED, ids=[type(row[0]).__name__ for row in ASKED])
def test_an_answer_goes_back_in_the_generation_it_was_asked_in(request_: Request, reply: Reply) -> None:
    """Each answer is packed in its request's protocol and is read back equal."""
    assert received(request_, wire.answer(request_, reply)) == [reply]


@pytest.mark.parametrize(("request_", "reply"), ASKED, ids=[type(row[0]).__name__ for row in ASKED])
@pytest.mark.parametrize("status", [status for status in Status if status is not Status.EOK])
def test_any_request_can_be_refused(request_: Request, reply: Reply, status: Status) -> None:
    """
    With the status asked for, ids and transaction echoed, nothing attached; V2 says EIO for what its clients choke on.
    """
    data = wire.refusal(request_, status)
    if isinstance(request_, Auth) and request_.txn is None:
        assert data == b"", "V2's AUTH has no status: the connection closes"
        return
    (found,) = received(request_, data)
    spoken = Status.EIO if wire.came_by_v2(request_) and status is Status.EUNKNOWNLEDGERSTATE else status
    assert found.status is spoken
    assert type(found) is type(reply)
    for name in ("txn", "ledger", "entry", "first", "request_id", "operation"):
        assert getattr(found, name, None) == getattr(reply, name, None), name
    for name in ("body", "lac_body", "last_body", "availability", "total_bytes"):
        assert getattr(found, name, None) is None, name


def test_a_refused_run_has_an_answer_for_every_entry() -> None:
    """A refusal of adds answers each entry in V2 and V3."""
    run = AddRun(1, 5, [ENTRY] * 20, KEY)
    assert received(run, wire.refusal(run, Status.EREADONLY)) == [AddAcks(1, 5, 20, Status.EREADONLY)]
    run = AddRun(1, 5, [ENTRY] * 20, KEY, txns=list(range(20)), version=3)
    assert received(run, wire.refusal(run, Status.EREADONLY)) == [AddAcks(1, 5, 20, Status.EREADONLY, 0)]


def test_unserved_operations_are_refused_with_their_header() -> None:
    """Refusals have known bytes."""
    assert wire.refusal(Unserved(12, 15), Status.EBADREQ) == samples.v3("operation 12 refused")
    assert wire.refusal(StartTls(13), Status.EBADREQ) == samples.v3("START_TLS refused")
    assert wire.refusal(Read(1, 0, txn=4, version=3), Status.ENOENTRY) == samples.v3("READ no entry")
    assert wire.refusal(AddRun(1, 0, [ENTRY], KEY), Status.EFENCED) == samples.v2("ADD fenced")


def test_limbo_is_shown_to_v3_and_hidden_from_v2() -> None:
    """V2 gets EIO in place of an unknown ledger state."""
    unknown = Status.EUNKNOWNLEDGERSTATE
    assert (
        received(Read(1, 0, txn=4, version=3), wire.refusal(Read(1, 0, txn=4, version=3), unknown))[0].status is unknown
    )
    assert wire.refusal(Read(1, 0), unknown) == wire.refusal(Read(1, 0), Status.EIO)


@pytest.mark.parametrize("reply", [AddAcks(1, 0, 1, Status.EOK), AuthReply("x", b""), BatchReply(Status.EOK, 1, 0, 7)])
def test_the_wrong_kind_of_answer_is_our_own_mistake(reply: Reply) -> None:
    """Packing it raises `AssertionError`."""
    with pytest.raises(AssertionError):
        wire.answer(Read(1, 0), reply)


# --- junk

VALID = [
    frame
    for generation in (2, 3)
    for direction in ("request", "response")
    for _, frame, _ in captured(generation, direction)
]
VALID += [samples.v2(name) for name in samples.V2_FRAMES] + [samples.v3(name) for name in samples.V3_FRAMES]
VALID = [frame for frame in VALID if len(frame) < 400]


def harmless(data: bytes, cuts: list[int]) -> None:
    """No decoder raises, hangs, or depends on how the bytes were cut; one that failed stays silent."""
    for make in MAKERS:
        whole = fed(make, [data])
        assert fed(make, pieces(data, cuts)) == whole
        receiver = make()
        receiver.feed(data)
        assert receiver.failure is None or isinstance(receiver.failure, WireError)
        if receiver.failure is not None:
            assert receiver.feed(samples.v2("READ")) == []


@settings(max_examples=150)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_bytes_of_any_kind_are_harmless(data: bytes, cuts: list[int]) -> None:
    """Random bytes give requests or a failure, never an exception."""
    harmless(data, cuts)


@settings(max_examples=150)
@given(st.lists(st.binary(min_size=1, max_size=80), max_size=6), st.lists(st.integers(0, 500), max_size=5))
def test_frames_of_any_bytes_are_harmless(payloads: list[bytes], cuts: list[int]) -> None:
    """Random payloads in valid frames give requests or a failure, never an exception."""
    harmless(b"".join(map(framed, payloads)), cuts)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_frames_are_harmless(seed: int) -> None:
    """Real frames with bytes flipped, removed, inserted, or lengths changed, between whole ones."""
    chance = random.Random(seed)
    for _ in range(120):
        frames = [bytearray(chance.choice(VALID)) for _ in range(chance.randrange(1, 5))]
        for _ in range(chance.randrange(1, 4)):
            frame = chance.choice(frames)
            at = chance.randrange(4, len(frame))
            match chance.randrange(4):
                case 0:
                    frame[at] ^= 1 << chance.randrange(8)
                case 1:
                    del frame[at : at + chance.randrange(1, 9)]
                case 2:
                    frame[at:at] = chance.randbytes(chance.randrange(1, 9))
                case _:
                    frame[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            if chance.random() < 0.9:
                frame[:4] = (len(frame) - 4).to_bytes(4, "big")
            if len(frame) < 6:
                frame += b"\0\0"
        data = b"".join(frames)
        harmless(data, [chance.randrange(len(data)) for _ in range(3)])


def test_deep_nesting_is_refused() -> None:
    """Groups inside groups: protobuf's own limit answers, not our stack."""
    receiver = Requests()
    assert receiver.feed(framed(b"\x0a\x06\x08\x03\x10\x01\x18\x04" + b"\x0b" * 100_000)) == []
    assert receiver.failure is not None


def test_no_request_shows_a_ledger_s_key() -> None:
    """Nor its entries, of which V2's frames have the key as well: a repr ends in logs and tracebacks."""
    key, body = b"planted-master-key..", b"planted-entry"
    shown = [
        AddRun(1, 0, [body], key, frames=key + body),
        Read(1, 0, fence=True, master_key=key),
        BatchRead(1, 0, 7, 10, 1000, master_key=key),
        WriteLac(1, 0, key, b""),
        Add(1, 0, body, key, False, 0, False, 3, 3),
        LedgerRow(key, True),
    ]
    assert "planted" not in repr(shown)
    assert "fence=True" in repr(shown)
