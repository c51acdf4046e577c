"""
V3, the protobuf protocol: the control path, and everything for clients that speak nothing else (wire.md 3).

In reading order: `operations`, `requests`, `replies`, `adds`.
What others need of them is named here; all rest on the message definitions in `quire.protocol.schema`.
"""

from quire.protocol.v3.adds import pack_adds
from quire.protocol.v3.operations import (
    ADD_ENTRY,
    AUTH,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    WRITE_LAC,
    operation_of,
)
from quire.protocol.v3.replies import Replies, add_acks, bare, decode_reply, reply
from quire.protocol.v3.requests import Control, decode_request, decode_requests, pack_request

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "ADD_ENTRY",
    "AUTH",
    "FORCE_LEDGER",
    "GET_BOOKIE_INFO",
    "GET_LIST_OF_ENTRIES",
    "READ_ENTRY",
    "READ_LAC",
    "START_TLS",
    "WRITE_LAC",
    "Control",
    "Replies",
    "add_acks",
    "bare",
    "decode_reply",
    "decode_request",
    "decode_requests",
    "operation_of",
    "pack_adds",
    "pack_request",
    "reply",
]
