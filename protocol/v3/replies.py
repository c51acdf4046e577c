"""
V3 answers, both directions (wire.md 3.2 to 3.4).

A normal answer says version 3, echoes operation and transaction id, and carries no priority; its outer and inner status
are equal.  Four copy the request's header, priority included: EBADREQ to an unserved operation, EUA before
authentication, AUTH, EIO after a failed TLS handshake.

Knows: how protobuf carries each answer (made by hand, taken by protobuf).  Answers to adds are `adds`'s.
Does not know: connections, which answer is right.
"""

from functools import partial

from quire.protocol import schema
from quire.protocol.errors import STATUS_OF_V3, MalformedFrame, Status
from quire.protocol.frames import LENGTH, Receiver, frame_end
from quire.protocol.messages import (
    AddAcks,
    AddRun,
    AuthReply,
    BatchRead,
    InfoReply,
    LacReply,
    ListReply,
    ReadReply,
    Reply,
    Request,
    StatusReply,
)
from quire.protocol.v3 import adds, operations
from quire.protocol.v3.operations import framed, header, operation_of
from quire.protocol.varint import encode

# SPDX-License-Identifier: Apache-2.0


def _copied_header(request: Request, txn: int) -> bytes:
    return header(
        request.version, operation_of(request), txn, 0 if isinstance(request, BatchRead) else request.priority
    )


def _txn(request: Request) -> int:
    if isinstance(request, BatchRead):
        return 0
    if isinstance(request, AddRun):
        return request.txns[0] if request.txns else 0
    return request.txn or 0


def add_acks(run: AddRun, status: Status) -> bytes:
    """The answers to every entry of a run, as one object; the ids are those of the request's fields."""
    assert run.txns is not None, "a run that came by V2 is answered by V2"
    ledger, first = run.answered_as or (run.ledger, run.first)
    return adds.acks(run.txns, status, ledger, first, run.reader_waits)


def bare(request: Request, status: Status) -> bytes:
    """
    An answer without sub-message and with the request's header copied: EUA before authentication, EBADREQ to the
    unserved, EIO after TLS failed.
    """
    said = b"\x10" + encode(status.v3)
    if isinstance(request, AddRun) and request.txns:
        headers = [header(request.version, operations.ADD_ENTRY, txn, request.priority) for txn in request.txns]
        return b"".join([framed(header + said) for header in headers])
    return framed(_copied_header(request, _txn(request)) + said)


def reply(request: Request, reply: Reply) -> bytes:
    """The answer to a request.  AUTH copies the header; others say version 3, no priority (wire.md 3.4)."""
    match reply:
        case AddAcks():
            assert isinstance(request, AddRun)
            return add_acks(request, reply.status)
        case ReadReply():
            return _read_reply(_txn(request), reply)
        case AuthReply():
            return _auth_reply(request, reply)
        case _:
            pass
    operation = operation_of(request)
    body = (
        b""
        if isinstance(reply, StatusReply) and operation == operations.START_TLS
        else b"\x08" + encode(reply.status.v3)
    )
    match reply:
        case StatusReply() if operation == operations.START_TLS:
            if reply.status is not Status.EOK:
                return framed(header(operations.VERSION, operation, _txn(request)) + b"\x10" + encode(reply.status.v3))
        case StatusReply():
            body += b"\x10" + encode(reply.ledger)
        case LacReply():
            body += b"\x10" + encode(reply.ledger) + _bytes(0x1A, reply.lac_body) + _bytes(0x22, reply.last_body)
        case InfoReply():
            body += _number(0x10, reply.total_bytes) + _number(0x18, reply.free_bytes)
            body += _text("bookieId", reply.bookie) + _text("incarnation", reply.incarnation)
        case ListReply():
            body += b"\x10" + encode(reply.ledger) + _bytes(0x1A, reply.availability)
        case _:
            raise AssertionError(f"V3 has no answer of the form {type(reply).__name__}")
    return _response(operation, _txn(request), reply.status, body)


def _response(operation: int, txn: int, status: Status, body: bytes) -> bytes:
    """An answer whose sub-message, of the operation's own number, holds `body`."""
    head = (
        header(operations.VERSION, operation, txn) + b"\x10" + encode(status.v3) + TAGS[operation] + encode(len(body))
    )
    return LENGTH.pack(len(head) + len(body)) + head + body


def _bytes(tag: int, value: bytes | None) -> bytes:
    return b"" if value is None else bytes((tag,)) + encode(len(value)) + value


def _number(tag: int, value: int | None) -> bytes:
    return b"" if value is None else bytes((tag,)) + encode(value)


def _text(field: str, value: str | None) -> bytes:
    """A field of quire's own in the answer to a question for the bookie's info."""
    if value is None:
        return b""
    said = value.encode()
    return OWN_TAGS[field] + encode(len(said)) + said


def _own(field: str, value: bytes | None) -> bytes:
    """A field of quire's own in the answer to a read."""
    return b"" if value is None else READ_TAGS[field] + encode(len(value)) + value


def _own_tags(message: str, *names: str) -> dict[str, bytes]:
    """Returns the keys of fields that hold bytes."""
    fields = schema.CLASSES[message].DESCRIPTOR.fields_by_name
    return {name: encode(fields[name].number << 3 | 2) for name in names}


def _tags() -> dict[int, bytes]:
    fields = schema.Response.DESCRIPTOR.fields_by_name
    return {operation: encode(fields[name].number << 3 | 2) for operation, (_, name) in operations.BODIES.items()}


TAGS: dict[int, bytes] = _tags()  # operation -> the key of its sub-message in a Response
OWN_TAGS = _own_tags("GetBookieInfoResponse", "bookieId", "incarnation")
READ_TAGS = _own_tags("ReadResponse", "lacBody", "lastEntryBody", "following")


def _read_reply(txn: int, reply: ReadReply) -> bytes:
    body = b"" if reply.body is None else reply.body
    said, one = encode(reply.status.v3), encode(txn)
    inner = b"\x08%b\x10%b\x18%b" % (said, encode(reply.ledger), encode(reply.entry))
    if reply.body is not None:
        inner += b"\x22" + encode(len(body))
    behind = _number(0x28, reply.lac) + _number(0x30, reply.lac_time_ms)
    if reply.lac_body is not None or reply.last_body is not None or reply.following:
        behind += _own("lacBody", reply.lac_body) + _own("lastEntryBody", reply.last_body)
        behind += b"".join([_own("following", one) for one in reply.following])
    size = len(inner) + len(body) + len(behind)
    head = b"\x0a%c\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b%b" % (5 + len(one), one, said, encode(size), inner)
    return b"".join((LENGTH.pack(len(head) - len(inner) + size), head, body, behind))


def _auth_reply(request: Request, reply: AuthReply) -> bytes:
    message: bytes = schema.AuthMessage(authPluginName=reply.plugin, payload=reply.payload).SerializeToString()
    head = _copied_header(request, _txn(request)) + b"\x10" + encode(reply.status.v3)
    return framed(head + TAGS[operations.AUTH] + encode(len(message)) + message)


def decode_replies(chunk: bytes, payload_bytes_max: int, out: list[Reply]) -> int:
    """Appends the answers of all whole frames; returns where the first unfinished one starts.  Raises `WireError`."""
    at, end = 0, len(chunk)
    while at < end and (stop := frame_end(chunk, at, end, payload_bytes_max)):
        reply = adds.ack_of(chunk, at + 4, stop) or decode_reply(chunk[at + 4 : stop])
        if isinstance(reply, AddAcks):
            at = adds.follow_acks(chunk, stop, end, stop - at, reply)
            adds.append_acks(out, reply)
        else:
            out.append(reply)
            at = stop
    return at


Replies = partial(Receiver[Reply], decode_replies)  # a client's receiving end of a V3 connection


def decode_reply(payload: bytes) -> Reply:
    """One answer by protobuf: the outer status unless EOK, then the inner.  `MalformedFrame`."""
    message = schema.parsed(schema.Response, payload)
    if message is None:
        raise MalformedFrame(f"a V3 answer of {len(payload)} bytes does not decode")
    operation, txn = message.header.operation, message.header.txnId
    status = STATUS_OF_V3[message.status]
    names = operations.BODIES.get(operation)
    if names is None:
        return StatusReply(operation, status, txn)
    body = getattr(message, names[1])
    if status is Status.EOK and operation not in (operations.AUTH, operations.START_TLS) and message.HasField(names[1]):
        status = STATUS_OF_V3[body.status]
    match operation:
        case operations.READ_ENTRY:
            entry_body = body.body if body.HasField("body") else None
            lac = body.maxLAC if body.HasField("maxLAC") else None
            lac_time_ms = body.lacUpdateTimestamp if body.HasField("lacUpdateTimestamp") else None
            reply = ReadReply(status, body.ledgerId, body.entryId, entry_body, lac, lac_time_ms, txn)
            if body.HasField("lacBody") or body.HasField("lastEntryBody") or body.following:
                reply.following = tuple(body.following)
                reply.lac_body = body.lacBody if body.HasField("lacBody") else None
                reply.last_body = body.lastEntryBody if body.HasField("lastEntryBody") else None
            return reply
        case operations.ADD_ENTRY:
            return AddAcks(body.ledgerId, body.entryId, 1, status, txn, body.readerWaits)
        case operations.AUTH:
            return AuthReply(schema.text(body.authPluginName), body.payload, status, txn)
        case operations.READ_LAC:
            lac_body = body.lacBody if body.HasField("lacBody") else None
            return LacReply(
                status, body.ledgerId, txn, lac_body, body.lastEntryBody if body.HasField("lastEntryBody") else None
            )
        case operations.GET_BOOKIE_INFO:
            total = body.totalDiskCapacity if body.HasField("totalDiskCapacity") else None
            free = body.freeDiskSpace if body.HasField("freeDiskSpace") else None
            bookie = schema.text(body.bookieId) if body.HasField("bookieId") else None
            incarnation = schema.text(body.incarnation) if body.HasField("incarnation") else None
            return InfoReply(status, txn, total, free, bookie, incarnation)
        case operations.START_TLS:
            return StatusReply(operation, status, txn)
        case operations.GET_LIST_OF_ENTRIES:
            held = body.availabilityOfEntriesOfLedger if body.HasField("availabilityOfEntriesOfLedger") else None
            return ListReply(status, body.ledgerId, txn, held)
        case _:  # WRITE_LAC, FORCE_LEDGER
            return StatusReply(operation, status, txn, body.ledgerId)
