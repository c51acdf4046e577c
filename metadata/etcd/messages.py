"""
The messages of etcd's public API, version 3, as far as they are used, built at run time from a table.

Knows: field numbers and types, and the numbers of etcd's enums.  Does not know: what a message is for.
"""

from typing import Any

from quire.protocol.schema import classes

# SPDX-License-Identifier: Apache-2.0

EQUAL, GREATER, LESS = 0, 1, 2  # Compare.result
VERSION, MOD, VALUE = 0, 2, 3  # Compare.target
DELETED = 1  # Event.type
NO_PUTS = 0  # WatchCreateRequest.filters

# One field: "number name label type"; the label is O optional or M repeated.  Fields of a oneof are optional ones.
MESSAGES: dict[str, str] = {
    "ResponseHeader": "3 revision O int64",
    "KeyValue": "1 key O bytes; 2 create_revision O int64; 3 mod_revision O int64; 4 version O int64; "
    "5 value O bytes; 6 lease O int64",
    "Event": "1 type O int32; 2 kv O KeyValue",
    "RangeRequest": "1 key O bytes; 2 range_end O bytes; 3 limit O int64; 8 keys_only O bool; 9 count_only O bool",
    "RangeResponse": "1 header O ResponseHeader; 2 kvs M KeyValue; 4 count O int64",
    "PutRequest": "1 key O bytes; 2 value O bytes; 3 lease O int64; 4 prev_kv O bool; 5 ignore_value O bool; "
    "6 ignore_lease O bool",
    "PutResponse": "2 prev_kv O KeyValue",
    "DeleteRangeRequest": "1 key O bytes; 2 range_end O bytes",
    "DeleteRangeResponse": "2 deleted O int64",
    "RequestOp": "1 request_range O RangeRequest; 2 request_put O PutRequest; "
    "3 request_delete_range O DeleteRangeRequest",
    "ResponseOp": "1 response_range O RangeResponse; 2 response_put O PutResponse; "
    "3 response_delete_range O DeleteRangeResponse",
    "Compare": "1 result O int32; 2 target O int32; 3 key O bytes; 4 version O int64; 6 mod_revision O int64; "
    "7 value O bytes; 64 range_end O bytes",
    "TxnRequest": "1 compare M Compare; 2 success M RequestOp; 3 failure M RequestOp",
    "TxnResponse": "1 header O ResponseHeader; 2 succeeded O bool; 3 responses M ResponseOp",
    "WatchCreateRequest": "1 key O bytes; 2 range_end O bytes; 3 start_revision O int64; 5 filters M int32; "
    "7 watch_id O int64",
    "WatchCancelRequest": "1 watch_id O int64",
    "WatchRequest": "1 create_request O WatchCreateRequest; 2 cancel_request O WatchCancelRequest",
    "WatchResponse": "1 header O ResponseHeader; 2 watch_id O int64; 3 created O bool; 4 canceled O bool; "
    "5 compact_revision O int64; 6 cancel_reason O string; 11 events M Event",
    "LeaseGrantRequest": "1 TTL O int64; 2 ID O int64",
    "LeaseGrantResponse": "2 ID O int64; 3 TTL O int64; 4 error O string",
    "LeaseRevokeRequest": "1 ID O int64",
    "LeaseRevokeResponse": "1 header O ResponseHeader",
    "LeaseKeepAliveRequest": "1 ID O int64",
    "LeaseKeepAliveResponse": "2 ID O int64; 3 TTL O int64",
    "AuthenticateRequest": "1 name O string; 2 password O string",
    "AuthenticateResponse": "2 token O string",
}

CLASSES = classes("quire/etcd.proto", MESSAGES, {})  # made at run time, so of types that mypy cannot know
Compare: Any = CLASSES["Compare"]
DeleteRangeRequest: Any = CLASSES["DeleteRangeRequest"]
PutRequest: Any = CLASSES["PutRequest"]
RangeRequest: Any = CLASSES["RangeRequest"]
RequestOp: Any = CLASSES["RequestOp"]
TxnRequest: Any = CLASSES["TxnRequest"]
TxnResponse: Any = CLASSES["TxnResponse"]
