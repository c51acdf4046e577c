"""Cutting a byte stream into frames (wire.md 1.1)."""

from random import Random
from typing import Any, Self
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.abstract import FileDescriptor
from twisted.internet.testing import StringTransport

from quire.client.connections.link import ANSWER_BYTES_MORE
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.protocol import v2, v3
from quire.protocol.errors import MalformedFrame, OversizedFrame, WireError
from quire.protocol.frames import (
    AT_ONCE_BYTES_MAX,
    FRAME_BYTES_MAX,
    JOINED_BYTES_MAX,
    Inflow,
    Receiver,
    check_length,
    send_at_once,
    send_unjoined,
)
from quire.protocol.wire import Requests
from tests.protocol.samples import framed, pieces, single_bytes
from tests.protocol.samples import v2 as frame_v2

# SPDX-License-Identifier: Apache-2.0


def payloads(chunk: bytes, payload_bytes_max: int, out: list[bytes]) -> int:
    """A decoder to which a frame is its payload."""
    at = 0
    while len(chunk) - at >= 4:
        length = int.from_bytes(chunk[at : at + 4], "big")
        check_length(length, payload_bytes_max)
        if at + 4 + length > len(chunk):
            break
        out.append(chunk[at + 4 : at + 4 + length])
        at += 4 + length
    return at


def receiver(frame_bytes_max: int = 100) -> Receiver[bytes]:
    return Receiver(payloads, frame_bytes_max)


def test_the_limit_counts_the_length_field() -> None:
    """N + 4 = limit passes, one more does not."""
    assert receiver().feed(framed(b"x" * 96)) == [b"x" * 96]
    over = receiver()
    assert over.feed(framed(b"x" * 97)) == []
    assert isinstance(over.failure, OversizedFrame)
    assert "101" in str(over.failure)
    assert "100" in str(over.failure)


def test_the_default_limits_of_both_sides() -> None:
    """A frame with Pulsar's largest message is accepted, and one byte above the limit fails."""
    assert FRAME_BYTES_MAX == BookieOptions.model_fields["frame_bytes_max"].default >= 5_253_120 + 512
    sent = ClientOptions.model_fields["frame_bytes_max"].default
    assert sent == 5_242_880, "what Apache's bookies take"
    assert sent + ANSWER_BYTES_MORE == FRAME_BYTES_MAX + 1024, "an answer with any entry that a bookie took"
    for make in (Requests, v2.Replies, v3.Replies):
        exact = make()
        exact.feed((FRAME_BYTES_MAX - 4).to_bytes(4, "big"))
        assert exact.failure is None
        over = make()
        over.feed((FRAME_BYTES_MAX - 3).to_bytes(4, "big"))
        assert isinstance(over.failure, OversizedFrame)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xfb", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff"])
def test_a_negative_length_is_just_too_long(length: bytes) -> None:
    """Refused at its fourth byte, before any of the frame is awaited or kept."""
    it = receiver()
    assert it.feed(length[:3]) == []
    assert it.failure is None
    assert it.feed(length[3:]) == []
    assert isinstance(it.failure, OversizedFrame)
    assert it.held <= 4


def test_an_empty_frame_ends_the_connection() -> None:
    """The frame before it is returned, and the receiver has a failure."""
    it = receiver()
    assert it.feed(framed(b"one") + framed(b"")) == [b"one"]
    assert isinstance(it.failure, MalformedFrame)


def test_a_bad_length_behind_a_partial_frame_is_seen_when_it_is_reached() -> None:
    """The whole frame before it is returned first."""
    it = receiver()
    assert it.feed(framed(b"one")[:5]) == []
    assert it.feed(framed(b"one")[5:] + b"\0\0\0\0" + framed(b"two")) == [b"one"]
    assert isinstance(it.failure, MalformedFrame)


def test_nothing_comes_out_after_a_failure() -> None:
    """Later frames are dropped and the first failure stays."""
    it = receiver()
    it.feed(framed(b""))
    failure = it.failure
    assert it.feed(framed(b"whole")) == []
    assert it.failure is failure


def test_nothing_in_nothing_out() -> None:
    """Empty input changes nothing, also in the middle of a length."""
    it = receiver()
    assert it.feed(b"") == []
    assert it.feed(framed(b"a")[:2]) == []
    assert it.feed(b"") == []
    assert it.feed(framed(b"a")[2:]) == [b"a"]


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_survive_any_cut(frames: list[bytes], cuts: list[int]) -> None:
    """Frames come out whole, however the bytes are divided."""
    data = b"".join(map(framed, frames))
    it = receiver()
    assert [frame for piece in pieces(data, cuts) for frame in it.feed(piece)] == frames
    assert it.held == 0
    assert it.failure is None


def test_every_boundary_of_two_frames() -> None:
    """Two frames come out for each place of a single cut, and for single bytes."""
    data = framed(b"first") + framed(b"second")
    for cut in range(len(data) + 1):
        it = receiver()
        assert it.feed(data[:cut]) + it.feed(data[cut:]) == [b"first", b"second"]
    it = receiver()
    assert [frame for byte in single_bytes(data) for frame in it.feed(byte)] == [b"first", b"second"]


def test_a_decoder_that_breaks_poisons_its_connection() -> None:
    """A half-decoded chunk must not be continued, whatever the fault."""

    def broken(chunk: bytes, payload_bytes_max: int, out: list[bytes]) -> int:
        raise ZeroDivisionError

    it = Receiver(broken, 100)
    with pytest.raises(ZeroDivisionError):
        it.feed(framed(b"x"))
    assert isinstance(it.failure, WireError)
    assert it.feed(framed(b"x")) == []


class Counted(bytearray):
    """Counts the bytes that are gathered in it."""

    gathered = 0

    def __iadd__(self, other):
        self.gathered += len(other)
        return super().__iadd__(other)


class Watched(Inflow):
    def __init__(self) -> None:
        super().__init__()
        self._held = self.counted = Counted()


def test_a_long_frame_in_small_pieces_costs_what_it_weighs() -> None:
    """5 MiB in pieces of 1,460 bytes: each byte is gathered once, and the whole is cut once, at the end."""
    inflow = Watched()
    data = framed(b"x" * (FRAME_BYTES_MAX - 4))
    inflow.keep(data[:1460], 0)
    for at in range(1460, len(data) - 1460, 1460):
        assert inflow.take(data[at : at + 1460]) == b""
    assert inflow.counted.gathered == inflow.held < len(data)
    assert inflow.take(data[inflow.held :]) == data
    assert inflow.held == 0


def test_what_would_be_refused_is_not_held() -> None:
    """For each parser: a bad length never comes to rest here."""
    for length in (b"\xff\xff\xff\xff", b"\0\0\0\0"):
        with pytest.raises(WireError):
            Inflow().keep(b"frame" + length, 5)


def test_small_frames_behind_a_long_one_are_not_lost() -> None:
    """Frames that follow a long one in the same pieces are all returned."""
    big = framed(b"\x02\x01\0\0" + b"k" * 20 + b"\0" * 100_000)
    read = frame_v2("READ")
    it = Requests()
    data = big + read * 3
    out = [request for at in range(0, len(data), 1460) for request in it.feed(data[at : at + 1460])]
    assert len(out) == 4
    assert it.held == 0


def test_what_is_held_is_bounded_by_the_frame_limit() -> None:
    """A peer that never finishes its frame makes us keep less than one frame."""
    it = receiver(1000)
    it.feed((996).to_bytes(4, "big"))
    for _ in range(995):
        it.feed(b"x")
    assert it.held == 999
    assert it.feed(b"xtail") == [b"x" * 996]
    assert it.feed(b"") == []


class Buffering:
    """A transport as Twisted's: a socket that takes `room` bytes, and what it holds back; None: it is broken."""

    def __init__(self, room: int | None) -> None:
        self.room = room
        self.connected = True
        self.dataBuffer = b""
        self._tempDataBuffer: list[bytes] = []
        self.sent = b""

    @property
    def socket(self) -> Self:
        return self

    def send(self, data: bytes) -> int:
        if self.room is None:
            raise ConnectionError
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def write(self, data: bytes) -> None:
        self._tempDataBuffer.append(data)

    @property
    def waiting(self) -> list[bytes]:
        return list(self._tempDataBuffer)

    def take_up(self) -> None:
        """The reactor's turn has come, and the socket takes nothing."""
        self.dataBuffer, self._tempDataBuffer = b"".join(self._tempDataBuffer), []


def test_frames_leave_at_once_and_in_order() -> None:
    """As far as the socket takes them; what follows something that waits waits behind it."""
    transport = Buffering(5)
    send_at_once(transport, b"abc")
    assert (transport.sent, transport.waiting) == (b"abc", [])
    send_at_once(transport, b"defg")
    assert (transport.sent, transport.waiting) == (b"abcde", [b"fg"])
    transport.room = 100
    send_at_once(transport, b"hi")
    assert (transport.sent, transport.waiting) == (b"abcde", [b"fg", b"hi"])
    transport.take_up()
    send_at_once(transport, b"jk")
    assert (transport.sent, transport.waiting) == (b"abcde", [b"jk"])


def test_what_is_large_or_cannot_be_sent_is_left_to_the_transport() -> None:
    """It tells of a lost connection, and sends much in pieces between which others get a turn."""
    large = bytes(AT_ONCE_BYTES_MAX + 1)
    for transport, data in ((Buffering(1 << 20), large), (Buffering(None), b"ab")):
        send_at_once(transport, data)
        assert (transport.sent, transport.waiting) == (b"", [data])
    memory = StringTransport()
    send_at_once(memory, b"abc")
    assert memory.value() == b"abc"


class Taking(FileDescriptor):
    """A transport of Twisted's whose socket takes so many bytes at once."""

    def __init__(self, most: int) -> None:
        super().__init__(Mock())
        self.connected = 1
        self.most = most
        self.sent = b""
        self.sources: list[object] = []  # where the bytes of each send lay

    @property
    def left(self) -> int:
        return len(self.dataBuffer) - self.offset + self._tempDataLen

    def writeSomeData(self, data: Any) -> int:
        view = memoryview(data)[: self.most]
        self.sources.append(view.obj)
        self.sent += view
        return len(view)


@pytest.mark.parametrize("most", [JOINED_BYTES_MAX, 100_000, JOINED_BYTES_MAX * 4])
def test_large_pieces_are_sent_as_they_are(most: int) -> None:
    """All bytes leave in order, none of a large piece from another place; small ones are joined; then it is over."""
    dice = Random(most)
    transport: Any = Taking(most)
    send_unjoined(transport)
    written = b""
    large: list[bytes] = []
    for number in range(12):
        for _ in range(dice.choice((1, 2, 5))):
            size = dice.choice((1, 28, 5000, JOINED_BYTES_MAX, JOINED_BYTES_MAX * 3 + 1))
            piece = bytes([number]) * size
            transport.write(piece)
            written += piece
            if size >= JOINED_BYTES_MAX:
                large.append(piece)
        for _ in range(dice.randrange(4)):
            if transport.left:
                transport.doWrite()
        assert transport.sent == written[: len(transport.sent)]
        assert transport.left == len(written) - len(transport.sent)
    transport.reactor.removeWriter.reset_mock()
    while transport.left:
        transport.doWrite()
    assert transport.sent == written
    transport.reactor.removeWriter.assert_called_once_with(transport)
    untouched = {id(piece) for piece in large}
    assert sum(id(source) in untouched for source in transport.sources) >= len(large) - 1, "the last may be joined"


def test_a_lost_connection_ends_what_is_sent_unjoined() -> None:
    """Twisted's reason comes back; a transport without a socket stays as it is."""
    transport: Any = Taking(1)
    send_unjoined(transport)
    transport.write(bytes(JOINED_BYTES_MAX))
    transport.write(bytes(JOINED_BYTES_MAX))
    reason = ConnectionError("lost")
    transport.writeSomeData = lambda data: reason
    assert transport.doWrite() is reason
    memory = StringTransport()
    send_unjoined(memory)
    assert type(memory) is StringTransport


def test_another_limit_holds_for_the_frames_after_it() -> None:
    """A connection takes small frames until its other side is known."""
    narrow, wide = receiver(10), receiver(10)
    frame = (20).to_bytes(4, "big") + b"x" * 20
    wide.widen(100)
    narrow.feed(frame[:4])
    assert narrow.failure is not None
    assert wide.feed(frame) == [b"x" * 20]
    assert wide.failure is None


def test_how_long_an_unfinished_frame_will_be() -> None:
    """As soon as its length is there, however it is cut, and not of the one before it."""
    receives = receiver(100)
    frame = (50).to_bytes(4, "big") + b"x" * 50
    for piece, awaited in ((frame[:3], 4), (frame[3:9], 54), (frame[9:] + frame[:2], 4), (frame[2:], 4)):
        receives.feed(piece)
        assert receives.awaited == awaited
