"""
V3's operations: their numbers, the sub-message of each, and the header that every message begins with (wire.md 3).

    BKPacketHeader: 08 v:version 10 v:operation 18 v:txn [20 v:priority]

Knows: which message carries which operation.  Does not know: the fields of the sub-messages (`schema`), answers,
connections.
"""

from typing import Final

from quire.protocol.frames import LENGTH
from quire.protocol.messages import (
    AddRun,
    Auth,
    BatchRead,
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
from quire.protocol.varint import encode

# SPDX-License-Identifier: Apache-2.0

VERSION: Final = 3  # what a client sends, and what a bookie answers with
READ_ENTRY: Final = 1
ADD_ENTRY: Final = 2
AUTH: Final = 5
WRITE_LAC: Final = 6
READ_LAC: Final = 7
GET_BOOKIE_INFO: Final = 8
START_TLS: Final = 9
FORCE_LEDGER: Final = 10
GET_LIST_OF_ENTRIES: Final = 11
OPERATION_MAX: Final = 12  # 3, 4 and 12 have numbers but no bookie serves them

FLAG_FENCE: Final = 1  # of a read
FLAG_PIGGYBACK: Final = 2  # of a read
DEFERRED_SYNC: Final = 1  # bit of an add's write flags

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


OPERATIONS: dict[type, int] = {
    AddRun: ADD_ENTRY,
    Read: READ_ENTRY,
    WriteLac: WRITE_LAC,
    ReadLac: READ_LAC,
    ListEntries: GET_LIST_OF_ENTRIES,
    Force: FORCE_LEDGER,
    BookieInfo: GET_BOOKIE_INFO,
    Auth: AUTH,
    StartTls: START_TLS,
    BatchRead: OPERATION_MAX,  # V3 has the number but no message for it
}


def operation_of(request: Request) -> int:
    """V3's operation number of a request."""
    return request.operation if isinstance(request, Unserved) else OPERATIONS[type(request)]


def header(version: int, operation: int, txn: int, priority: int = 0) -> bytes:
    """The header as the first field of a Request or Response."""
    fields = b"\x08" + encode(version) + b"\x10" + encode(operation) + b"\x18" + encode(txn)
    if priority:
        fields += b"\x20" + encode(priority)
    return b"\x0a" + encode(len(fields)) + fields


def framed(message: bytes) -> bytes:
    """A message with its length before it."""
    return LENGTH.pack(len(message)) + message
