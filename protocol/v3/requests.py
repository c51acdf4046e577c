"""
V3 requests, both directions (wire.md 3.2, 3.3).

Knows: how protobuf carries each request.  Runs of adds are `adds`'s.  Does not know: answers, connections, meanings.
Safety: what does not decode is never guessed at: it is "not V3", and the connection's rule (`wire`) decides.
"""

from typing import Any

from quire.protocol import schema
from quire.protocol.frames import frame_end
from quire.protocol.messages import (
    Auth,
    BookieInfo,
    Force,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    Unserved,
    WriteLac,
)
from quire.protocol.v3 import adds, operations
from quire.protocol.varint import encode

# SPDX-License-Identifier: Apache-2.0

FENCE = b"\xa0\x06" + encode(operations.FLAG_FENCE)
PIGGYBACK = b"\xa0\x06" + encode(operations.FLAG_PIGGYBACK)
EVIDENCE = b"\xc0\x3e\x01"  # field 1000

Control = Read | WriteLac | ReadLac | ListEntries | Force | BookieInfo | Auth | StartTls | Unserved


def pack_request(request: Control) -> bytes:
    """The frame of any request but an add.  Its `txn` must be set; the header says version 3."""
    txn = request.txn or 0
    if isinstance(request, Read):
        return _read(request, txn)
    operation = operations.operation_of(request)
    if isinstance(request, Unserved):  # by hand: protobuf refuses operation numbers outside its enum
        return operations.framed(operations.header(operations.VERSION, operation, txn, request.priority))
    message = schema.Request()
    header = message.header
    header.version, header.operation, header.txnId = operations.VERSION, operation, txn
    if request.priority:
        header.priority = request.priority
    body = getattr(message, operations.BODIES[operation][0])
    body.SetInParent()
    match request:
        case WriteLac():
            body.ledgerId, body.lac, body.masterKey, body.body = (
                request.ledger,
                request.lac,
                request.master_key,
                request.body,
            )
            if request.hint:
                body.hint = True
        case ReadLac() | ListEntries() | Force():
            body.ledgerId = request.ledger
        case BookieInfo():
            body.requested = request.requested
        case Auth():
            body.authPluginName, body.payload = request.plugin, request.payload
        case StartTls():
            pass
    return operations.framed(message.SerializeToString())


def _read(request: Read, txn: int) -> bytes:
    """By hand, for a read of one entry is little else: version 3, operation 1, sub-message 100."""
    body = b"\x08%b\x10%b" % (encode(request.ledger), encode(request.entry))
    if request.master_key is not None:
        body += b"\x1a" + encode(len(request.master_key)) + request.master_key
    if request.previous_lac is not None:
        body += b"\x20" + encode(request.previous_lac)
    if request.timeout_ms is not None:
        body += b"\x28" + encode(request.timeout_ms)
    if request.fence:
        body += FENCE
    elif request.piggyback:
        body += PIGGYBACK + EVIDENCE if request.evidence else PIGGYBACK
    header = b"\x08\x03\x10\x01\x18" + encode(txn)
    if request.priority:
        header += b"\x20" + encode(request.priority)
    return operations.framed(b"\x0a%c%b\xa2\x06%b%b" % (len(header), header, encode(len(body)), body))


def decode_requests(chunk: bytes, payload_bytes_max: int, out: list[Request]) -> tuple[int, bool]:
    """
    Appends the requests of all whole frames of `chunk`.  Returns where it stopped, and whether the frame there is whole
    but not V3 (so that the connection turns V2).  Raises `WireError` for a bad length.
    """
    at, end = 0, len(chunk)
    while at < end and (stop := frame_end(chunk, at, end, payload_bytes_max)):
        request = decode_request(chunk[at + 4 : stop])
        if request is None:
            return at, True
        at = stop
        if isinstance(request, adds.Add):
            run = adds.append_add(out, request)
            if run is not None and at < end:
                at = adds.follow(chunk, at, end, payload_bytes_max, run)
        else:
            out.append(request)
    return at, False


def decode_request(payload: bytes) -> Request | adds.Add | None:
    """One request by protobuf (an add as an `Add`), or None when it is not a V3 request (wire.md 1.2)."""
    message = schema.partly_parsed(schema.Request, payload)
    if message is None:
        return None
    if not message.IsInitialized():
        return _unknown_operation(payload, message)
    header = message.header
    operation, txn, priority, version = header.operation, header.txnId, header.priority, header.version
    names = operations.BODIES.get(operation)
    if names is None or (operation != operations.ADD_ENTRY and not message.HasField(names[0])):
        return Unserved(operation, txn, priority, version)
    body = getattr(message, names[0])
    match operation:
        case operations.READ_ENTRY:
            fence = body.flag == operations.FLAG_FENCE and body.HasField("flag")
            piggyback = body.flag == operations.FLAG_PIGGYBACK
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
                body.evidence,
            )
        case operations.ADD_ENTRY:
            deferred_sync = bool(body.writeFlags & operations.DEFERRED_SYNC)
            return adds.Add(
                body.ledgerId,
                body.entryId,
                body.body,
                body.masterKey,
                body.HasField("flag"),
                priority,
                deferred_sync,
                txn,
                version,
            )
        case operations.AUTH:
            return Auth(schema.text(body.authPluginName), body.payload, txn, priority, version)
        case operations.WRITE_LAC:
            return WriteLac(body.ledgerId, body.lac, body.masterKey, body.body, txn, priority, version, body.hint)
        case operations.READ_LAC:
            return ReadLac(body.ledgerId, txn, priority, version)
        case operations.GET_BOOKIE_INFO:
            return BookieInfo(body.requested, txn, priority, version)
        case operations.START_TLS:
            return StartTls(txn, priority, version)
        case operations.FORCE_LEDGER:
            return Force(body.ledgerId, txn, priority, version)
        case _:
            return ListEntries(body.ledgerId, txn, priority, version)


def _unknown_operation(payload: bytes, message: Any) -> Unserved | None:
    """Reads a request with an operation above 12 alone at fault: it gets EBADREQ, which beats closing."""
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
    return (
        Unserved(operation, header.txnId, header.priority, header.version)
        if operations.OPERATION_MAX < operation < 1 << 31
        else None
    )
