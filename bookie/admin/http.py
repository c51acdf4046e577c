"""
A small HTTP/1.1 server for a handful of paths: one request a connection, small bodies, no TLS.

Knows: requests and answers.  Does not know: what the paths mean; a function from `Asked` to `Answer` does, or to one
that comes later.
Safety: a request and its answer are bounded in time, a request in bytes and connections in number, so that no caller
can hold the bookie up. A request that names the bookie it is meant for (`Bookie: ID`) is answered by no other one,
which may have the port by now.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qsl

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.server.transport import Transport, peer_name
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0

HEAD_BYTES_MAX = 8192
BODY_BYTES_MAX = 8192
REQUEST_S_MAX = 10.0
ANSWER_S_MAX = 120.0  # a list of very many ledgers
CONNECTIONS_MAX = 32
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
}
REASONS |= {409: "Conflict", 421: "Misdirected Request", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str  # without the query
    body: bytes
    local: bool  # the peer is on this machine
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = TEXT


Answering = Callable[[Asked], Answer | Deferred[Answer]]


def document(value: object) -> Answer:
    """An answer in JSON."""
    return Answer(200, json.dumps(value).encode() + b"\n", JSON)


class Exchange(Protocol):
    """One connection: reads a request, answers it, closes."""

    log = Logger()

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._data = b""
        self._done = False
        self._deadline: Timer | None = None
        self._answering: Deferred[None] | None = None

    def connectionMade(self) -> None:
        self._wire = cast(Transport, self.transport)
        if len(self._server.open) >= CONNECTIONS_MAX:
            self._done = True
            self._wire.abortConnection()
            return
        self._server.open.add(self)
        self._deadline = self._server.clock.callLater(REQUEST_S_MAX, self._wire.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        if self._done or self._answering is not None:
            return
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            if len(self._data) > HEAD_BYTES_MAX:
                self._answer(Answer(413, b"the request is too long\n"))
            return
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = headers.get("content-length", "0")
        if len(words) != 3 or not length.isdecimal():
            self._answer(Answer(400, b"this is not HTTP\n"))
        elif headers.get("bookie", self._server.bookie) != self._server.bookie:
            self._answer(Answer(421, f"this is bookie {self._server.bookie}\n".encode()))
        elif int(length) > BODY_BYTES_MAX:
            self._answer(Answer(413, b"the request is too long\n"))
        elif len(body) >= int(length):
            local = peer_name(self._wire.getPeer()).startswith(("127.", "::1"))
            path, _, query = words[1].partition("?")
            self._serve(Asked(words[0], path, body[: int(length)], local, dict(parse_qsl(query))))

    def _serve(self, asked: Asked) -> None:
        self._allow(ANSWER_S_MAX)

        async def answered() -> None:
            coming = self._server.serve(asked)
            self._answer(coming if isinstance(coming, Answer) else await coming)

        def failed(failure: Failure) -> None:
            if not isinstance(failure.value, CancelledError):
                self.log.failure("{method} {path} could not be served", failure, method=asked.method, path=asked.path)
                self._answer(Answer(500, b"this went wrong here; see the bookie's log\n"))

        self._answering = Deferred.fromCoroutine(answered()).addErrback(failed)

    def _allow(self, seconds: float) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.reset(seconds)

    def _answer(self, answer: Answer) -> None:
        self._done = True
        self._allow(REQUEST_S_MAX)
        lines = [
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
        ]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        self._wire.write(head.encode() + answer.body)
        self._wire.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._server.open.discard(self)
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()


class HttpServer(Factory):
    """The server of one bookie; `serve` answers each request, at once or later."""

    noisy = False

    def __init__(self, clock: Clock, serve: Answering, bookie: str = "") -> None:
        self.clock = clock
        self.bookie = bookie
        self.serve = serve
        self.open: set[Exchange] = set()

    def buildProtocol(self, addr: object) -> Exchange:
        return Exchange(self)

    def abort_all(self) -> None:
        for exchange in list(self.open):
            cast(Transport, exchange.transport).abortConnection()
