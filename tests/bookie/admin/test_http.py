"""The small HTTP server: requests in pieces, what it refuses, and its bounds."""

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from quire.bookie.admin.http import ANSWER_S_MAX, CONNECTIONS_MAX, REQUEST_S_MAX, Answer, Asked, HttpServer
from tests.bookie.fakes.wires import Wire

# SPDX-License-Identifier: Apache-2.0


class Exchange:
    def __init__(self, server: HttpServer) -> None:
        self.wire = Wire()
        self.protocol = server.buildProtocol(None)
        self.protocol.makeConnection(self.wire)

    def send(self, data: bytes) -> "Exchange":
        self.protocol.dataReceived(data)
        return self

    @property
    def status(self) -> int:
        return int(self.wire.value().split()[1]) if self.wire.value() else 0


def echo(asked: Asked) -> Answer:
    return Answer(200, f"{asked.method} {asked.path} {asked.local} ".encode() + asked.body)


def test_requests_in_pieces() -> None:
    """Head and body may come byte by byte; the answer closes the connection."""
    exchange = Exchange(HttpServer(Clock(), echo))
    for byte in b"PUT /x?y=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc":
        assert exchange.status == 0
        exchange.send(bytes((byte,)))
    assert exchange.status == 200
    assert exchange.wire.value().endswith(b"PUT /x False abc")
    assert exchange.wire.disconnecting


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"G" * 9000, 413),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    """Malformed requests get 400, a head or body above the limit gets 413."""
    assert Exchange(HttpServer(Clock(), echo)).send(data).status == status


def test_what_is_meant_for_another_bookie_is_refused() -> None:
    """Its port may have been that one's; a request that names no bookie is answered by the one that is there."""
    for head, status in ((b"Bookie: bookie-1\r\n", 200), (b"bookie:bookie-2\r\n", 421), (b"", 200)):
        exchange = Exchange(HttpServer(Clock(), echo, "bookie-1")).send(b"PUT /x HTTP/1.1\r\n" + head + b"\r\n")
        assert exchange.status == status
        assert status == 200 or exchange.wire.value().endswith(b"this is bookie bookie-1\n")


def test_a_request_has_a_deadline() -> None:
    """A connection that sends only part of a request is aborted when its time is over."""
    clock = Clock()
    exchange = Exchange(HttpServer(clock, echo)).send(b"GET")
    clock.advance(REQUEST_S_MAX)
    assert exchange.wire.aborted


def test_connections_are_bounded() -> None:
    """A connection above the maximum is aborted and the open ones stay; `abort_all` aborts those too."""
    server = HttpServer(Clock(), echo)
    held = [Exchange(server) for _ in range(CONNECTIONS_MAX)]
    assert Exchange(server).wire.aborted
    assert not any(exchange.wire.aborted for exchange in held)
    server.abort_all()
    assert all(exchange.wire.aborted for exchange in held)


def test_a_fault_of_ours_is_500() -> None:
    """An exception of the function that answers becomes status 500."""

    def broken(asked: Asked) -> Answer:
        raise RuntimeError("no")

    assert Exchange(HttpServer(Clock(), broken)).send(b"GET / HTTP/1.1\r\n\r\n").status == 500


def test_an_answer_may_come_later() -> None:
    """Its query is read; the wait is bounded, a second request on the way is not read, and who has gone ends it."""
    clock, waiting, gone = Clock(), [], []

    def later(asked: Asked) -> Deferred[Answer]:
        waiting.append((asked.query, Deferred(gone.append)))
        return waiting[-1][1]

    request = b"GET /x?a=1&b=x%3A2 HTTP/1.1\r\n\r\n"
    served = Exchange(HttpServer(clock, later)).send(request).send(request)
    ((query, coming),) = waiting
    assert query == {"a": "1", "b": "x:2"}
    clock.advance(REQUEST_S_MAX)
    assert not served.wire.aborted
    coming.callback(Answer(200, b"here"))
    assert served.wire.value().endswith(b"here")
    late = Exchange(HttpServer(clock, later)).send(request)
    clock.advance(ANSWER_S_MAX)
    assert late.wire.aborted
    late.protocol.connectionLost()
    assert gone == [waiting[1][1]]
    failing = Exchange(HttpServer(clock, lambda _: fail(RuntimeError("no")))).send(request)
    assert failing.status == 500
