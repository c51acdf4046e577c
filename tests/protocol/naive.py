"""
The slow twins of the codecs: V2 by struct and V3 by protobuf alone, one message a frame, nothing shared, nothing
clever.

What they give is compared with what `v2` and `v3` give for the same bytes, runs taken apart (`samples.flat`).
"""

import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from quire.protocol import messages as m
from quire.protocol import schema
from quire.protocol.errors import STATUS_OF_V3, Status
from tests.protocol.samples import framed

# SPDX-License-Identifier: Apache-2.0


class Refused(Exception):
    """The connection would close here."""


def frames(data: bytes, limit: int = 5_242_880) -> Iterator[bytes]:
    """The payloads of whole frames; ends before an unfinished one."""
    while len(data) >= 4:
        length = struct.unpack(">I", data[:4])[0]
        if length + 4 > limit or length == 0:
            raise Refused
        if len(data) < 4 + length:
            return
        yield data[4 : 4 + length]
        data = data[4 + length :]


# --- V2


def v2_header(payload: bytes) -> tuple[int, int, int]:
    if len(payload) < 4:
        raise Refused
    version, operation, flags = struct.unpack(">BBH", payload[:4])
    return (version, operation, flags) if version else (0, payload[3], 0)


def v2_request(payload: bytes) -> Any:
    version, operation, flags = v2_header(payload)
    rest = payload[4:]
    priority = 100 if flags & 4 else 0
    if operation == 1:
        key, body = rest[:20], rest[20:]
        if len(body) < 16:
            raise Refused
        ledger, entry = struct.unpack(">qq", body[:16])
        return ("add", ledger, entry, body, key, None, bool(flags & 2), priority, False, version, len(body) < 24, None)
    if operation in (2, 7) and not (operation == 7 and version == 10):
        size = 16 if operation == 2 else 36
        fence = bool(flags & 1)
        keyed = fence and version >= 2
        if len(rest) < size + (20 if keyed else 0):
            raise Refused
        key = rest[size : size + 20] if keyed else None
        if operation == 2:
            ledger, entry = struct.unpack(">qq", rest[:16])
            return m.Read(ledger, entry, fence, key, priority, version=version)
        ledger, first, request_id, count_max, bytes_max = struct.unpack(">qqqiq", rest[:36])
        return m.BatchRead(ledger, first, request_id, count_max, bytes_max, fence, key, priority, version)
    if operation == 3:
        plugin, token = auth(rest)
        return m.Auth(plugin, token, version=version)
    raise Refused


def auth(data: bytes) -> tuple[str, bytes]:
    message = schema.AuthMessage()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise Refused from None
    if not message.IsInitialized():
        raise Refused
    name = message.authPluginName
    return name if isinstance(name, str) else name.decode(errors="replace"), message.payload


def v2_reply(payload: bytes) -> Any:
    _, operation, _ = v2_header(payload)
    rest = payload[4:]
    if operation == 3:
        return m.AuthReply(*auth(rest))
    if operation not in (1, 2, 7) or len(rest) < (28 if operation == 7 else 20):
        raise Refused
    number, ledger, entry = struct.unpack(">iqq", rest[:20])
    if number not in set(Status):
        raise Refused
    status = Status(number)
    if operation == 1:
        return ("ack", ledger, entry, status)
    if operation == 2:
        return m.ReadReply(status, ledger, entry, rest[20:] if status == 0 else None)
    reply = m.BatchReply(status, ledger, entry, struct.unpack(">q", rest[20:28])[0])
    rest = rest[28:] if status == 0 else b""
    while rest:
        if len(rest) < 4:
            raise Refused
        length = struct.unpack(">i", rest[:4])[0]
        if length < 0 or len(rest) < 4 + length:
            raise Refused
        reply.bodies.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    return reply


def v2_add(ledger: int, entry: int, key: bytes, body: bytes, flags: int) -> bytes:
    return framed(struct.pack(">BBH", 2, 1, flags) + key + body)


def v2_ack(version: int, status: int, ledger: int, entry: int) -> bytes:
    header = struct.pack(">BBH", version, 1, 0) if version else struct.pack(">I", 1)
    return framed(header + struct.pack(">iqq", status, ledger, entry))


# --- V3


def v3_request(payload: bytes) -> Any:
    """None when protobuf does not take it for a Request."""
    message = schema.Request()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        return None
    if not message.IsInitialized():
        return None
    h = message.header
    tail = (h.txnId, h.priority, h.version)

    def optional(body: Any, name: str) -> Any:
        return getattr(body, name) if body.HasField(name) else None

    if h.operation == 2:
        body = message.addRequest
        ids: tuple[int, int] = (body.ledgerId, body.entryId)
        malformed, answered_as = len(body.body) < 24, None
        if not malformed:
            inside = struct.unpack(">qq", body.body[:16])
            ids, answered_as = inside, ids if inside != ids else None
        flags = (body.HasField("flag"), h.priority, bool(body.writeFlags & 1), h.version, malformed, answered_as)
        return ("add", *ids, body.body, body.masterKey, h.txnId, *flags)
    names = {
        1: "readRequest",
        5: "authRequest",
        6: "writeLacRequest",
        7: "readLacRequest",
        8: "getBookieInfoRequest",
        9: "startTLSRequest",
        10: "forceLedgerRequest",
        11: "getListOfEntriesOfLedgerRequest",
    }
    if h.operation not in names or not message.HasField(names[h.operation]):
        return m.Unserved(h.operation, *tail)
    body = getattr(message, names[h.operation])
    if h.operation == 1:
        flag = optional(body, "flag")
        return m.Read(
            body.ledgerId,
            body.entryId,
            flag == 1,
            optional(body, "masterKey"),
            h.priority,
            h.txnId,
            h.version,
            optional(body, "previousLAC"),
            optional(body, "timeOut"),
            flag == 2,
            body.evidence,
        )
    if h.operation == 5:
        name = body.authPluginName
        return m.Auth(name if isinstance(name, str) else name.decode(errors="replace"), body.payload, *tail)
    if h.operation == 6:
        return m.WriteLac(body.ledgerId, body.lac, body.masterKey, body.body, *tail, body.hint)
    if h.operation == 8:
        return m.BookieInfo(body.requested, *tail)
    if h.operation == 9:
        return m.StartTls(*tail)
    return {7: m.ReadLac, 10: m.Force, 11: m.ListEntries}[h.operation](body.ledgerId, *tail)


def v3_add(
    txn: int,
    ledger: int,
    entry: int,
    key: bytes,
    body: bytes,
    *,
    priority: int = 0,
    recovery: bool = False,
    deferred: bool = False,
) -> bytes:
    message = schema.Request()
    message.header.version, message.header.operation, message.header.txnId = 3, 2, txn
    if priority:
        message.header.priority = priority
    add = message.addRequest
    add.ledgerId, add.entryId, add.masterKey, add.body = ledger, entry, key, body
    if deferred:
        add.writeFlags = 1
    if recovery:
        add.flag = 1
    return framed(message.SerializeToString())


def v3_ack(txn: int, status: Status, ledger: int, entry: int) -> bytes:
    message = schema.Response()
    message.header.version, message.header.operation, message.header.txnId = 3, 2, txn
    message.status = status.v3
    add = message.addResponse
    add.status, add.ledgerId, add.entryId = status.v3, ledger, entry
    return framed(message.SerializeToString())


def v3_ack_of(payload: bytes) -> Any:
    message = schema.Response()
    message.ParseFromString(payload)
    inner = message.addResponse
    number = message.status or inner.status
    return ("ack", inner.ledgerId, STATUS_OF_V3[number], message.header.txnId)
