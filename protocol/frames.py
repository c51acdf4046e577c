"""
Frames: a 4-byte length N, then N bytes (wire.md 1.1).

Knows: how to gather a byte stream into chunks that hold whole frames, at a cost linear in the bytes however they are
cut, which lengths end a connection, and how frames leave without waiting for the reactor.
Does not know: what is inside a frame.

Safety: N = 0 and N + 4 above the limit are refused as soon as the 4 length bytes are there, before any of the frame is
kept, so a peer can make us hold at most one frame of the limit.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from quire.protocol.errors import MalformedFrame, OversizedFrame, WireError

# SPDX-License-Identifier: Apache-2.0

FRAME_BYTES_MAX: Final = 5_259_264  # with the length field; a bookie's default: 5 MiB, and 16 KiB for Pulsar's headers
LENGTH_BYTES: Final = 4
AT_ONCE_BYTES_MAX: Final = 65_536  # more is not sent in one piece
JOINED_BYTES_MAX: Final = 131_072  # what Twisted sends at once, and joins for it
LENGTH = Struct(">I")
assert LENGTH.size == LENGTH_BYTES


T = TypeVar("T")


def check_length(length: int, payload_bytes_max: int) -> None:
    """Raises `MalformedFrame` for an empty frame, `OversizedFrame` above the limit.  `length` is N, unsigned."""
    if length > payload_bytes_max:
        raise OversizedFrame(
            f"a frame of {length + LENGTH_BYTES} bytes: the limit is {payload_bytes_max + LENGTH_BYTES}"
        )
    if length == 0:
        raise MalformedFrame("an empty frame")


def frame_end(chunk: bytes, at: int, end: int, payload_bytes_max: int) -> int:
    """Where the frame at `at` ends, if it does by `end`; else 0.  Raises as `check_length`."""
    if end - at < LENGTH_BYTES:
        return 0
    (length,) = LENGTH.unpack_from(chunk, at)
    if not 0 < length <= payload_bytes_max:
        check_length(length, payload_bytes_max)
    stop: int = at + LENGTH_BYTES + length
    return stop if stop <= end else 0


class Inflow:
    """
    The receiving end of one byte stream.  `take` gives a chunk that starts at a frame boundary and holds at least one
    whole frame (or b"": wait for more); the reader parses it and gives back with `keep` where it stopped.
    """

    __slots__ = ("_held", "_needed", "payload_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.payload_bytes_max = frame_bytes_max - LENGTH_BYTES
        self._held = bytearray()
        self._needed = LENGTH_BYTES

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._held)

    @property
    def awaited(self) -> int:
        """Bytes of the unfinished frame once it is whole, as far as its length is known."""
        return self._needed

    def take(self, data: bytes) -> bytes:
        """A chunk to parse, or b"".  Raises `WireError` when a length field that is now complete is refused."""
        held = self._held
        if not held:
            if len(data) >= LENGTH_BYTES:
                return data
            held += data
            return b""
        if len(held) + len(data) < self._needed:
            held += data
            return b""
        chunk = b"".join((held, data))
        self._held = bytearray()
        return chunk

    def keep(self, chunk: bytes, at: int) -> None:
        """Holds what follows the last whole frame of `chunk`.  Raises `WireError` when its length field is refused."""
        self._needed = LENGTH_BYTES  # not that of a frame that has ended: the next one may be shorter
        if at == len(chunk):
            return
        self._held += memoryview(chunk)[at:]
        if len(chunk) - at >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(chunk, at)
            check_length(length, self.payload_bytes_max)
            self._needed = LENGTH_BYTES + length


def send_at_once(transport: Any, data: bytes) -> None:
    """
    Hands bytes to the socket of a Twisted transport now instead of in the reactor's next turn, which saves that turn
    and two changes of what the reactor polls.  For what comes once in a turn: without this, writes that come together
    are one send.  What the socket does not take, and what finds something before it, waits as usual.  A transport that
    encrypts knows itself how to do that.
    """
    waits = getattr(transport, "_tempDataBuffer", None)
    if waits is None:  # no socket of its own: it encrypts, or is in memory
        getattr(transport, "write_at_once", transport.write)(data)
        return
    size = len(data)
    if not waits and not transport.dataBuffer and size <= AT_ONCE_BYTES_MAX and transport.connected:
        try:
            sent = transport.socket.send(data)
        except OSError:  # it is full, or lost: the reactor will find that
            sent = 0
        if sent == size:
            return
        data = data[sent:]
    transport.write(data)


@cache
def unjoined(kind: type[Any]) -> type[Any]:
    """
    The class of a Twisted transport whose large pieces leave as they are.  Twisted's own joins all that waits once less
    than one send is left, which copies nearly each byte of a busy connection into fresh memory.
    """

    class Unjoined(kind):  # type: ignore[misc]  # a class that is known at run time only
        dataBuffer: bytes
        offset: int

        def doWrite(self) -> Any:
            waiting = self._tempDataBuffer
            if self._tempDataLen < JOINED_BYTES_MAX:
                return super().doWrite()
            if self.offset == len(self.dataBuffer):
                count, size = 1, len(waiting[0])
                while count < len(waiting) and size + len(waiting[count]) <= JOINED_BYTES_MAX:
                    size += len(waiting[count])
                    count += 1
                self.dataBuffer, self.offset = b"".join(waiting[:count]), 0  # of one piece: itself
                self._tempDataLen -= size
                del waiting[:count]
                if not waiting:
                    return super().doWrite()
            sent = self.writeSomeData(memoryview(self.dataBuffer)[self.offset :])
            if isinstance(sent, Exception) or sent < 0:
                return sent
            self.offset += sent
            return None

    Unjoined.__name__ = Unjoined.__qualname__ = kind.__name__  # in messages of the log
    return Unjoined


def send_unjoined(transport: Any) -> None:
    """Sends what is written to a Twisted transport with a socket of its own without joining it (`unjoined`)."""
    if hasattr(transport, "_tempDataBuffer"):
        kind: Any = type(transport)
        transport.__class__ = unjoined(kind)


class Receiver(Inflow, Generic[T]):
    """
    The receiving end of one connection.  `decode(chunk, payload_bytes_max, out)` appends the messages of all whole
    frames of a chunk to `out`, returns where the first unfinished one starts, and raises `WireError` when the
    connection must close.
    """

    __slots__ = ("_decode", "failure")

    def __init__(self, decode: Callable[[bytes, int, list[T]], int], frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(frame_bytes_max)
        self._decode = decode
        self.failure: WireError | None = None

    def widen(self, frame_bytes_max: int) -> None:
        """Another limit for the frames whose length is still to come."""
        self.payload_bytes_max = frame_bytes_max - LENGTH_BYTES

    def feed(self, data: bytes) -> list[T]:
        """
        The messages completed by these bytes, in order.  Once `failure` is set the connection must close: what came
        whole before the fault is still returned, and nothing after it.
        """
        out: list[T] = []
        if self.failure is not None:
            return out
        try:
            size = len(data)
            if size < LENGTH_BYTES or self._held:
                data = self.take(data)
                size = len(data)
            if data:
                at = self._decode(data, self.payload_bytes_max, out)
                if at != size or self._needed != LENGTH_BYTES:
                    self.keep(data, at)
        except WireError as problem:
            self.failure = problem
        except BaseException:
            self.failure = WireError("the decoder itself failed on this connection")
            raise
        return out
