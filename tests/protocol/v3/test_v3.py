"""The protobuf protocol as a whole (wire.md 3): requests and answers as they come in one stream, and known frames."""

from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import (
    AddRun,
    Auth,
    BookieInfo,
    InfoReply,
    LacReply,
    Read,
    ReadReply,
    StatusReply,
    Unserved,
    WriteLac,
)
from quire.protocol.wire import Requests
from tests.protocol import samples
from tests.protocol.samples import ENTRY, KEY, LAC_BODY, captured, fed
from tests.protocol.v3.single import one_reply, one_request

# SPDX-License-Identifier: Apache-2.0


def test_the_whole_capture_as_one_stream() -> None:
    """Captured frames joined are read like each alone, however they are divided."""
    for rows, make in ((captured(3, "request"), Requests), (captured(3, "response"), v3.Replies)):
        stream = b"".join(frame for _, frame, _ in rows)
        alone = fed(make, [frame for _, frame, _ in rows])
        assert alone[1] == ""
        assert fed(make, [stream]) == alone
        assert fed(make, [stream[at : at + 1460] for at in range(0, len(stream), 1460)]) == alone


def test_known_values() -> None:
    """Known frames are read as these requests and replies."""
    assert one_request(samples.v3("fence READ")) == Read(1, -1, True, KEY, txn=5, version=3)
    assert one_request(samples.v3("recovery READ")) == Read(1, 0, True, KEY, 100, 6, 3)
    assert one_request(samples.v3("long poll")) == Read(
        1, -1, txn=7, version=3, previous_lac=0, timeout_ms=1000, piggyback=True
    )
    assert one_request(samples.v3("WRITE_LAC")) == WriteLac(1, 0, KEY, LAC_BODY, 8)
    assert one_request(samples.v3("INFO")) == BookieInfo(3, 11)
    assert one_request(samples.v3("AUTH")) == Auth("sasl", b"", 14, version=3)
    assert one_request(samples.v3("deferred-sync ADD")) == AddRun(
        1, 0, [ENTRY], KEY, deferred_sync=True, txns=[3], version=3
    )
    assert one_request(samples.v3("operation 12")) == Unserved(12, 15)
    assert one_reply(samples.v3("READ_LAC ok")) == LacReply(Status.EOK, 1, 9, LAC_BODY, ENTRY)
    assert one_reply(samples.v3("INFO ok")) == InfoReply(Status.EOK, 11, 1000, 500)
    assert one_reply(samples.v3("long poll expired")) == ReadReply(Status.EOK, 1, -1, None, 0, None, 7)
    assert one_reply(samples.v3("START_TLS refused")) == StatusReply(9, Status.EBADREQ, 13)
