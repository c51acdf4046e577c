"""
V3 reads of one entry and their answers by hand, for those that read entry by entry.

    N | 0a v 08 version 10 01 18 v:txn [20 v:priority] | a2 06 v 08 v:ledger 10 v:entry
    N | 0a v 08 03 10 01 18 v:txn | 10 v:status | a2 06 v 08 v:status 10 v:ledger 18 v:entry [22 v body] [28 v:LAC] [30 v:LAC time]

Knows: plain reads (without key, flag or long poll) and found entries.  Does not know: all other forms, which are protobuf's.
Safety: what is taken by hand is exactly what protobuf would have read.
"""

import re
from typing import Final

from quire.protocol import varint
from quire.protocol.errors import Status
from quire.protocol.frames import LENGTH
from quire.protocol.messages import Read, ReadReply

# SPDX-License-Identifier: Apache-2.0

VARINT: Final = varint.PATTERN
READ = re.compile(  # groups: 1 header length, 2 version, 3 txn, 4 priority, 5 sub-message length, 6 ledger, 7 entry
    rb"\x0a([\x06-\x1f])\x08([\x01-\x03])\x10\x01\x18" + VARINT + rb"(?:\x20" + VARINT + rb")?\xa2\x06([\x04-\x16])\x08" + VARINT + rb"\x10" + VARINT,
)
FOUND = re.compile(  # groups: 1 header length, 2 txn, 3 sub-message length, 4 ledger, 5 entry, 6 body length
    rb"\x0a([\x06-\x1f])\x08\x03\x10\x01\x18" + VARINT + rb"\x10\x00\xa2\x06" + VARINT + rb"\x08\x00\x10" + VARINT + rb"\x18" + VARINT + rb"\x22" + VARINT,
)
LAC = re.compile(rb"\x28" + VARINT)


def take_read(chunk: bytes, at: int, stop: int) -> Read | None:
    """The plain read from `at` (its length field) to `stop`, or None when it is anything else."""
    found = READ.fullmatch(chunk, at + 4, stop)
    if found is None:
        return None
    header, version, txn, priority, length, ledger, entry = found.groups()
    if length[0] != 2 + len(ledger) + len(entry) or header[0] != 5 + len(txn) + (0 if priority is None else 1 + len(priority)):
        return None
    high = 0 if priority is None else varint.number(priority) & 0xFFFFFFFF
    return Read(varint.signed(ledger), varint.signed(entry), False, None, high, varint.number(txn), version[0])


def take_found(chunk: bytes, at: int, stop: int) -> ReadReply | None:
    """The answer from `at` to `stop` that carries an entry, or None when it is anything else."""
    found = FOUND.match(chunk, at + 4, stop)
    if found is None:
        return None
    header, txn, length, ledger, entry, body_length = found.groups()
    body_at = found.end()
    body_stop = body_at + varint.number(body_length)
    if header[0] != 5 + len(txn) or found.end(3) + varint.number(length) != stop or body_stop > stop:
        return None
    lac = None
    if body_stop != stop:
        behind = LAC.fullmatch(chunk, body_stop, stop)
        if behind is None:
            return None
        lac = varint.signed(behind[1])
    return ReadReply(Status.EOK, varint.signed(ledger), varint.signed(entry), chunk[body_at:body_stop], lac, None, varint.number(txn))


def pack_reply(txn: int, reply: ReadReply) -> bytes:
    """The answer to a read, whatever its status."""
    encode = varint.encode
    body = b"" if reply.body is None else reply.body
    said, one = varint.size(reply.status.v3), encode(txn)
    inner = b"\x08%b\x10%b\x18%b" % (said, encode(reply.ledger), encode(reply.entry))
    if reply.body is not None:
        inner += b"\x22" + varint.size(len(body))
    behind = b""
    if reply.lac is not None:
        behind = b"\x28" + encode(reply.lac)
    if reply.lac_time_ms is not None:
        behind += b"\x30" + encode(reply.lac_time_ms)
    length = len(inner) + len(body) + len(behind)
    head = b"\x0a%c\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b%b" % (5 + len(one), one, said, varint.size(length), inner)
    return b"".join((LENGTH.pack(len(head) + len(body) + len(behind)), head, body, behind))
