"""V3 requests and replies one at a time: each frame read alone, and packed again by ours."""

from hypothesis import strategies as st

from quire.protocol import v3
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
from tests.protocol.samples import KEY, i64

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
    "FORCE",
    "INFO",
    "LIST",
    "START_TLS",
    "AUTH",
    "operation 12",
]

ANSWERED = [name for name in samples.V3_FRAMES if name not in ASKED]
maybe_bytes = st.none() | st.binary(max_size=30)
maybe_i64 = st.none() | i64


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
