"""
One connection of a bookie: which generation it speaks, its requests, and answers in the generation of the request.

A connection starts as V3 and turns V2, for good, at the first frame that is not a V3 request (wire.md 1.2).

Knows: that rule, and how to refuse each operation.  Does not know: sockets, what an operation means.
Safety: a connection that failed yields nothing any more; what came whole before the failure is still handed out.
"""

from quire.protocol import v2, v3
from quire.protocol.errors import Status
from quire.protocol.frames import FRAME_BYTES_MAX, Receiver
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

# SPDX-License-Identifier: Apache-2.0


class Generation:
    """The protocol that a connection speaks: V3 until its first frame that is not V3, then V2."""

    __slots__ = ("is_v2",)

    def __init__(self) -> None:
        self.is_v2 = False

    def decode(self, chunk: bytes, payload_bytes_max: int, out: list[Request]) -> int:
        """The requests of all whole frames of a chunk (see `Receiver`)."""
        at = 0
        if not self.is_v2:
            at, self.is_v2 = v3.decode_requests(chunk, payload_bytes_max, out)
        return v2.decode_requests(chunk, payload_bytes_max, out, at) if self.is_v2 else at


class Requests(Receiver[Request]):
    """A bookie's receiving end of a connection."""

    __slots__ = ("_generation",)

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._generation = Generation()
        super().__init__(self._generation.decode, frame_bytes_max)

    @property
    def is_v2(self) -> bool:
        """True if the connection has turned V2."""
        return self._generation.is_v2


def came_by_v2(request: Request) -> bool:
    match request:
        case AddRun():
            return request.txns is None
        case Read() | Auth():
            return request.txn is None
        case _:
            return isinstance(request, BatchRead)


def add_acks(run: AddRun, status: Status) -> bytes:
    """The answers to all entries of a run, as one object."""
    return v2.add_acks(run, status) if run.txns is None else v3.add_acks(run, status)


def answer(request: Request, reply: Reply) -> bytes:
    """The frames that answer a request; ids and txn are taken from it where the protocol echoes them."""
    if not came_by_v2(request):
        return v3.reply(request, reply)
    match request, reply:
        case AddRun(), AddAcks():
            return v2.add_acks(request, reply.status)
        case Read(), ReadReply():
            return v2.read_reply(reply, request)
        case BatchRead(), BatchReply():
            return v2.batch_reply(reply, request)
        case Auth(), AuthReply():
            return v2.auth_reply(reply, request)
        case _:
            raise AssertionError(f"{type(reply).__name__} does not answer {type(request).__name__}")


def refusal(request: Request, status: Status) -> bytes:
    """Says no (or to WriteLac, Force, StartTls yes) to a request.  V2's AUTH has no status: b"", it has to close."""
    match request:
        case AddRun():
            return add_acks(request, status)
        case Read():
            return answer(request, ReadReply(status, request.ledger, request.entry))
        case BatchRead():
            return v2.batch_reply(BatchReply(status, request.ledger, request.first, request.request_id), request)
        case WriteLac():
            return v3.reply(request, StatusReply(v3.WRITE_LAC, status, request.txn, request.ledger))
        case Force():
            return v3.reply(request, StatusReply(v3.FORCE_LEDGER, status, request.txn, request.ledger))
        case StartTls():
            return v3.reply(request, StatusReply(v3.START_TLS, status, request.txn))
        case ReadLac():
            return v3.reply(request, LacReply(status, request.ledger, request.txn))
        case ListEntries():
            return v3.reply(request, ListReply(status, request.ledger, request.txn))
        case BookieInfo():
            return v3.reply(request, InfoReply(status, request.txn))
        case Auth():
            return b"" if request.txn is None else v3.bare(request, status)
        case Unserved():
            return v3.bare(request, status)


def bare(request: Request, status: Status) -> bytes:
    """The refusal of a request whose client is not known; over V3 it has nothing but the request's header."""
    return refusal(request, status) if came_by_v2(request) else v3.bare(request, status)
