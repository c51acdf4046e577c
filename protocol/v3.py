"""
V3, the protobuf protocol: the control path, and everything for clients that speak nothing else (spec wire-protocol.md 3).

Knows: which message carries which operation, and both directions of it.  Adds and their answers are taken and made by hand
in `v3_adds`; protobuf does the rest.
Does not know: connections, V2, what an operation means.

Safety: an answer carries the transaction id and the operation of its request; inner and outer status are equal.
"""

from collections.abc import Sequence
from typing import Any

from quire.protocol import schema, v3_adds, varint
from quire.protocol.batch import AddBatch
from quire.protocol.errors import STATUS_OF_V3, MalformedFrame, Status
from quire.protocol.frames import FRAME_BYTES_MAX, LENGTH, Receiver, check_length
from quire.protocol.messages import (
    AddAcks,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
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

VERSION = 3
READ_ENTRY, ADD_ENTRY, AUTH, WRITE_LAC, READ_LAC = 1, 2, 5, 6, 7
GET_BOOKIE_INFO, START_TLS, FORCE_LEDGER, GET_LIST_OF_ENTRIES = 8, 9, 10, 11
OPERATION_MAX = 12
FLAG_FENCE, FLAG_PIGGYBACK, FLAG_RECOVERY_ADD = 1, 2, 1
DEFERRED_SYNC = 1

# operation -> name of its sub-message in a Request, in a Response
BODIES: dict[int, tuple[str, str]] = {
    READ_ENTRY: ("readRequest", "readResponse"),
    ADD_ENTRY: ("addRequest", "addResponse"),
    AUTH: ("authRequest", "authResponse"),
    WRITE_LAC: ("writeLacRequest", "writeLacResponse"),
    READ_LAC: ("readLacRequest", "readLacResponse"),
    GET_BOOKIE_INFO: ("getBookieInfoRequest", "getBookieInfoResponse"),
    START_TLS: ("startTLSRequest", "startTLSResponse"),
    FORCE_LEDGER: ("forceLedgerRequest", "forceLedgerResponse"),
    GET_LIST_OF_ENTRIES: ("getListOfEntriesOfLedgerRequest", "getListOfEntriesOfLedgerResponse"),
}

Control = Read | WriteLac | ReadLac | ListEntries | Force | BookieInfo | Auth | StartTls | Unserved


def operation_of(request: Request) -> int:
    """V3's operation number of a request."""
    match request:
        case AddRun():
            return ADD_ENTRY
        case Read():
            return READ_ENTRY
        case WriteLac():
            return WRITE_LAC
        case ReadLac():
            return READ_LAC
        case ListEntries():
            return GET_LIST_OF_ENTRIES
        case Force():
            return FORCE_LEDGER
        case BookieInfo():
            return GET_BOOKIE_INFO
        case Auth():
            return AUTH
        case StartTls():
            return START_TLS
        case Unserved():
            return request.operation
        case BatchRead():
            return OPERATION_MAX  # V3 has the number but no message for it


def framed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


# --- a client's requests


def pack_adds(batch: AddBatch, txn: int, entries: Sequence[int] | None = None) -> bytes:
    """The add frames of the batch, or of those ids; transaction ids txn, txn + 1, … in order."""
    return v3_adds.pack_adds(batch, txn, entries)


def pack_request(request: Control) -> bytes:
    """The frame of any request but an add.  Its `txn` must be set; the header says version 3."""
    operation = operation_of(request)
    txn = request.txn or 0
    if isinstance(request, Unserved):  # by hand: protobuf refuses operation numbers outside its enum
        return framed(_header(VERSION, operation, txn, request.priority))
    message = schema.Request()
    header = message.header
    header.version, header.operation, header.txnId = VERSION, operation, txn
    if request.priority:
        header.priority = request.priority
    body = getattr(message, BODIES[operation][0])
    body.SetInParent()
    match request:
        case Read():
            _fill_read(body, request)
        case WriteLac():
            body.ledgerId, body.lac, body.masterKey, body.body = request.ledger, request.lac, request.master_key, request.body
        case ReadLac() | ListEntries() | Force():
            body.ledgerId = request.ledger
        case BookieInfo():
            body.requested = request.requested
        case Auth():
            body.authPluginName, body.payload = request.plugin, request.payload
        case StartTls():
            pass
    return framed(message.SerializeToString())


def _fill_read(body: Any, request: Read) -> None:
    body.ledgerId, body.entryId = request.ledger, request.entry
    if request.master_key is not None:
        body.masterKey = request.master_key
    if request.previous_lac is not None:
        body.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        body.timeOut = request.timeout_ms
    if request.fence:
        body.flag = FLAG_FENCE
    elif request.piggyback:
        body.flag = FLAG_PIGGYBACK


# --- a bookie's answers


def _header(version: int, operation: int, txn: int, priority: int = 0) -> bytes:
    fields = b"\x08" + varint.encode(version) + b"\x10" + varint.encode(operation) + b"\x18" + varint.encode(txn)
    if priority:
        fields += b"\x20" + varint.encode(priority)
    return b"\x0a" + varint.encode(len(fields)) + fields


def _copied_header(request: Request, txn: int) -> bytes:
    return _header(request.version, operation_of(request), txn, 0 if isinstance(request, BatchRead) else request.priority)


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
    return v3_adds.acks(run.txns, status, ledger, first)


def bare(request: Request, status: Status) -> bytes:
    """An answer without sub-message and with the request's header copied: EUA before authentication, EBADREQ to the unserved, EIO after TLS failed."""
    said = b"\x10" + varint.encode(status.v3)
    if isinstance(request, AddRun) and request.txns:
        headers = [_header(request.version, ADD_ENTRY, txn, request.priority) for txn in request.txns]
        return b"".join([framed(header + said) for header in headers])
    return framed(_copied_header(request, _txn(request)) + said)


def reply(request: Request, reply: Reply) -> bytes:
    """The answer to a request.  AUTH copies the request's header; the others say version 3 and no priority (spec wire-protocol.md 3.4)."""
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
    body = b"" if isinstance(reply, StatusReply) and operation == START_TLS else b"\x08" + varint.encode(reply.status.v3)
    match reply:
        case StatusReply() if operation == START_TLS:
            if reply.status is not Status.EOK:
                return framed(_header(VERSION, operation, _txn(request)) + b"\x10" + varint.encode(reply.status.v3))
        case StatusReply():
            body += b"\x10" + varint.encode(reply.ledger)
        case LacReply():
            body += b"\x10" + varint.encode(reply.ledger) + _bytes(0x1A, reply.lac_body) + _bytes(0x22, reply.last_body)
        case InfoReply():
            body += _number(0x10, reply.total_bytes) + _number(0x18, reply.free_bytes)
        case ListReply():
            body += b"\x10" + varint.encode(reply.ledger) + _bytes(0x1A, reply.availability)
        case _:
            raise AssertionError(f"V3 has no answer of the form {type(reply).__name__}")
    return _response(operation, _txn(request), reply.status, body)


def _response(operation: int, txn: int, status: Status, body: bytes) -> bytes:
    """An answer whose sub-message, of the operation's own number, holds `body`."""
    head = _header(VERSION, operation, txn) + b"\x10" + varint.encode(status.v3) + TAGS[operation] + varint.encode(len(body))
    return LENGTH.pack(len(head) + len(body)) + head + body


def _bytes(tag: int, value: bytes | None) -> bytes:
    return b"" if value is None else bytes((tag,)) + varint.encode(len(value)) + value


def _number(tag: int, value: int | None) -> bytes:
    return b"" if value is None else bytes((tag,)) + varint.encode(value)


def _tags() -> dict[int, bytes]:
    fields = schema.Response.DESCRIPTOR.fields_by_name
    return {operation: varint.encode(fields[name].number << 3 | 2) for operation, (_, name) in BODIES.items()}


TAGS: dict[int, bytes] = _tags()  # operation -> the key of its sub-message in a Response


def _read_reply(txn: int, reply: ReadReply) -> bytes:
    encode = varint.encode
    body = b"" if reply.body is None else reply.body
    said, one = encode(reply.status.v3), encode(txn)
    inner = b"\x08%b\x10%b\x18%b" % (said, encode(reply.ledger), encode(reply.entry))
    if reply.body is not None:
        inner += b"\x22" + encode(len(body))
    behind = _number(0x28, reply.lac) + _number(0x30, reply.lac_time_ms)
    size = len(inner) + len(body) + len(behind)
    head = b"\x0a%c\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b%b" % (5 + len(one), one, said, encode(size), inner)
    return b"".join((LENGTH.pack(len(head) - len(inner) + size), head, body, behind))


def _auth_reply(request: Request, reply: AuthReply) -> bytes:
    message: bytes = schema.AuthMessage(authPluginName=reply.plugin, payload=reply.payload).SerializeToString()
    head = _copied_header(request, _txn(request)) + b"\x10" + varint.encode(reply.status.v3)
    return framed(head + TAGS[AUTH] + varint.encode(len(message)) + message)


# --- decoding requests


def decode_requests(chunk: bytes, payload_bytes_max: int, out: list[Request]) -> tuple[int, bool]:
    """
    Appends the requests of all whole frames of `chunk`.  Returns where it stopped, and whether the frame there is whole but
    not V3 (so that the connection turns V2).  Raises `WireError` for a bad length.
    """
    at, end = 0, len(chunk)
    while end - at >= 4:
        (length,) = LENGTH.unpack_from(chunk, at)
        check_length(length, payload_bytes_max)
        stop = at + 4 + length
        if stop > end:
            break
        request = decode_request(chunk[at + 4 : stop])
        if request is None:
            return at, True
        at = stop
        if isinstance(request, v3_adds.Add):
            run = v3_adds.append_add(out, request)
            if run is not None and at < end:
                at = v3_adds.follow(chunk, at, end, payload_bytes_max, run)
        else:
            out.append(request)
    return at, False


def decode_request(payload: bytes) -> Request | v3_adds.Add | None:
    """One request by protobuf (an add as an `Add`), or None when it is not a V3 request (spec wire-protocol.md 1.2)."""
    message = schema.partly_parsed(schema.Request, payload)
    if message is None:
        return None
    if not message.IsInitialized():
        return _unknown_operation(payload, message)
    header = message.header
    operation, txn, priority, version = header.operation, header.txnId, header.priority, header.version
    names = BODIES.get(operation)
    if names is None or (operation != ADD_ENTRY and not message.HasField(names[0])):
        return Unserved(operation, txn, priority, version)
    body = getattr(message, names[0])
    match operation:
        case 1:
            fence = body.flag == FLAG_FENCE and body.HasField("flag")
            piggyback = body.flag == FLAG_PIGGYBACK
            return Read(
                body.ledgerId,
                body.entryId,
                fence,
                body.masterKey if body.HasField("masterKey") else None,
                priority,
                txn,
                version,
                body.previousLAC if body.HasField("previousLAC") else None,
                body.timeOut if body.HasField("timeOut") else None,
                piggyback,
            )
        case 2:
            deferred_sync = bool(body.writeFlags & DEFERRED_SYNC)
            return v3_adds.Add(body.ledgerId, body.entryId, body.body, body.masterKey, body.HasField("flag"), priority, deferred_sync, txn, version)
        case 5:
            return Auth(schema.text(body.authPluginName), body.payload, txn, priority, version)
        case 6:
            return WriteLac(body.ledgerId, body.lac, body.masterKey, body.body, txn, priority, version)
        case 7:
            return ReadLac(body.ledgerId, txn, priority, version)
        case 8:
            return BookieInfo(body.requested, txn, priority, version)
        case 9:
            return StartTls(txn, priority, version)
        case 10:
            return Force(body.ledgerId, txn, priority, version)
        case _:
            return ListEntries(body.ledgerId, txn, priority, version)


def _unknown_operation(payload: bytes, message: Any) -> Unserved | None:
    """A request whose only fault is an operation number above 12 is answered EBADREQ, which is friendlier than closing."""
    header = message.header
    if header.HasField("operation") or not (header.HasField("version") and header.HasField("txnId")):
        return None
    if not (payload.startswith(b"\x0a") and payload[2:5:2] == b"\x08\x10"):
        return None
    operation = shift = 0
    for byte in payload[5:10]:  # protobuf does not show a number outside the enum
        operation |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return Unserved(operation, header.txnId, header.priority, header.version) if OPERATION_MAX < operation < 1 << 31 else None


# --- decoding answers


class Replies(Receiver[Reply]):
    """A client's receiving end of a V3 connection."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(decode_replies, frame_bytes_max)


def decode_replies(chunk: bytes, payload_bytes_max: int, out: list[Reply]) -> int:
    """Appends the answers of all whole frames; returns where the first unfinished one starts.  Raises `WireError`."""
    at, end = 0, len(chunk)
    while end - at >= 4:
        (length,) = LENGTH.unpack_from(chunk, at)
        check_length(length, payload_bytes_max)
        stop = at + 4 + length
        if stop > end:
            break
        reply = decode_reply(chunk[at + 4 : stop])
        if isinstance(reply, AddAcks):
            at = v3_adds.follow_acks(chunk, stop, end, stop - at, reply)
            v3_adds.append_acks(out, reply)
        else:
            out.append(reply)
            at = stop
    return at


def decode_reply(payload: bytes) -> Reply:
    """One answer by protobuf.  The outer status counts unless it is EOK, then the inner one.  Raises `MalformedFrame`."""
    message = schema.parsed(schema.Response, payload)
    if message is None:
        raise MalformedFrame(f"a V3 answer of {len(payload)} bytes does not decode")
    header = message.header
    operation, txn = header.operation, header.txnId
    status = STATUS_OF_V3[message.status]
    names = BODIES.get(operation)
    if names is None:
        return StatusReply(operation, status, txn)
    body = getattr(message, names[1])
    if status is Status.EOK and operation not in (AUTH, START_TLS) and message.HasField(names[1]):
        status = STATUS_OF_V3[body.status]
    match operation:
        case 1:
            entry_body = body.body if body.HasField("body") else None
            lac = body.maxLAC if body.HasField("maxLAC") else None
            lac_time_ms = body.lacUpdateTimestamp if body.HasField("lacUpdateTimestamp") else None
            return ReadReply(status, body.ledgerId, body.entryId, entry_body, lac, lac_time_ms, txn)
        case 2:
            return AddAcks(body.ledgerId, body.entryId, 1, status, txn)
        case 5:
            return AuthReply(schema.text(body.authPluginName), body.payload, status, txn)
        case 7:
            lac_body = body.lacBody if body.HasField("lacBody") else None
            return LacReply(status, body.ledgerId, txn, lac_body, body.lastEntryBody if body.HasField("lastEntryBody") else None)
        case 8:
            total = body.totalDiskCapacity if body.HasField("totalDiskCapacity") else None
            return InfoReply(status, txn, total, body.freeDiskSpace if body.HasField("freeDiskSpace") else None)
        case 9:
            return StatusReply(operation, status, txn)
        case 11:
            held = body.availabilityOfEntriesOfLedger if body.HasField("availabilityOfEntriesOfLedger") else None
            return ListReply(status, body.ledgerId, txn, held)
        case _:  # WRITE_LAC, FORCE_LEDGER
            return StatusReply(operation, status, txn, body.ledgerId)
