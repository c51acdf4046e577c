"""
A small HTTP/1.1 server for a handful of paths: one request a connection, small bodies.

Knows: requests and answers.  Does not know: who may ask (the gate does), what the paths mean (`routes`).
Safety: the gate judges a request by its head, before a byte of its body is kept.  A request and its answer are bounded
in time, a request in bytes and connections in number, so that no caller can hold the process up; over the number the
connection goes that has waited longest without a whole request, or else the oldest whose answer is not taken.  What two
readers could understand differently is refused: a header that is there twice, a body of unknown length.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.server.complaints import Complaints
from quire.bookie.server.transport import Wire, peer_name
from quire.metadata.clock import Clock, Timer, pause
from quire.metadata.formats.json_text import parse_json

if TYPE_CHECKING:
    from quire.security.credentials import Credentials
    from quire.security.stream import SecureStream

# SPDX-License-Identifier: Apache-2.0

HEAD_BYTES_MAX = 8192
BODY_BYTES_MAX = 8192
REQUEST_S_MAX = 10.0
ANSWER_S_MAX = 120.0  # a list of very many ledgers
CONNECTIONS_MAX = 32
TURN_S = 0.001
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
REASONS = {status.value: status.phrase for status in HTTPStatus} | {413: "Content Too Large"}
NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FIRST_LINE = re.compile(rf"({NAME}) (/[!-~]*) HTTP/1\.([01])")
HEADER = re.compile(rf"({NAME}):([\t -~\x80-\xff]*)")
LENGTH = re.compile(r"[0-9]{1,15}")
ONCE = frozenset({"authorization", "bookie", "content-length", "host", "transfer-encoding"})


class Head(NamedTuple):
    """A request without its body."""

    method: str
    path: str  # without the query
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    newer: bool  # HTTP/1.1, which has to say the host
    role: str | None = None  # that of the certificate that was shown

    def __repr__(self) -> str:
        """All but the headers, which may have a token."""
        return f"Head({self.method} {self.path})"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was not refused."""

    method: str
    path: str
    body: bytes = field(repr=False)  # of a form, which may have a password
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""  # the header of that name


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


Answering = Callable[[Asked], Answer | Deferred[Answer]]


class Judging(Protocol):
    """The gate in front of the paths."""

    def refusal(self, head: Head) -> Answer | None:
        """Says why a request is not answered; None: it may go on."""
        ...

    def serve(self, asked: Asked) -> Answer | Deferred[Answer]: ...


def document(value: object) -> Answer:
    """An answer in JSON."""
    return Answer(200, json.dumps(value).encode() + b"\n", JSON)


def in_turns(clock: Clock, parts: Iterable[bytes], content_type: str) -> Deferred[Answer]:
    """An answer whose body is made part by part as they are taken, in turns of the reactor of about `TURN_S` each."""

    async def answer() -> Answer:
        made: list[bytes] = []
        since = clock.seconds()
        for part in parts:
            made.append(part)
            if clock.seconds() - since >= TURN_S:
                await pause(clock, 0)
                since = clock.seconds()
        return Answer(200, b"".join(made), content_type)

    return Deferred.fromCoroutine(answer())


def given(asked: Asked) -> dict[str, Any]:
    """The JSON object of the body; empty where it is none."""
    try:
        value = parse_json(asked.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def refusal(status: int, error: str, step: str, *headers: tuple[str, str]) -> Answer:
    """An answer that names what is wrong with a request, and the next step."""
    return Answer(status, json.dumps({"error": error, "next": step}).encode() + b"\n", JSON, headers)


def head_of(data: bytes) -> Head | Answer:
    """A request's lines up to the empty one; an answer where they are no good."""
    first, *rest = data.decode("latin-1").split("\r\n")
    asked = FIRST_LINE.fullmatch(first)
    lines = [HEADER.fullmatch(line) for line in rest]
    if asked is None:
        return refusal(400, "this is not HTTP", "send a request line such as GET /healthz HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        if line is None:
            return refusal(400, "a header can't be read", "send one `Name: value` a line")
        name = line[1].lower()
        if name in headers and name in ONCE:
            return refusal(400, f"the header {name} is there twice", "send it once")
        headers[name] = line[2].strip(" \t")
    if "transfer-encoding" in headers:
        return refusal(411, "the length of the body is not said", "send Content-Length instead of Transfer-Encoding")
    if not LENGTH.fullmatch(headers.get("content-length", "0")):
        return refusal(400, "Content-Length is no number", "send the length of the body in bytes")
    path, _, query = asked[2].partition("?")
    return Head(asked[1], path, dict(parse_qsl(query)), headers, asked[3] == "1")


class Exchange(TwistedProtocol):
    """One connection: reads a request, answers it, closes."""

    log = Logger()

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._data = b""
        self._head: Head | None = None
        self.is_answered = False  # and the answer is on its way
        self._deadline: Timer | None = None
        self._stream: SecureStream | None = None
        self._answering: Deferred[None] | None = None

    @property
    def waits(self) -> bool:
        """True while the request is not whole."""
        return not self.is_answered and self._answering is None

    def connectionMade(self) -> None:
        self._wire = cast(Wire, self.transport)
        self._peer = peer_name(cast(Any, self.transport).getPeer())
        if not self._server.admits(self):
            self.is_answered = True
            self._wire.abortConnection()
            return
        self._deadline = self._server.clock.callLater(REQUEST_S_MAX, self._late)
        if self._server.credentials is not None:
            self._wire = self._stream = self._server.credentials.serve(self.transport, self)
            self._stream.begin()

    def secured(self) -> None:
        """TLS is on: what comes from now on is the request."""

    def dataReceived(self, data: bytes) -> None:
        if not self.waits:
            return
        self._data += data
        if self._head is None:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if len(head) > HEAD_BYTES_MAX:
                self._answer(refusal(413, "the request is too long", f"its head has {HEAD_BYTES_MAX} bytes at most"))
                return
            if not found:
                return
            read = head_of(head)
            if isinstance(read, Head) and self._stream is not None:
                read = read._replace(role=self._stream.role)
            refused = read if isinstance(read, Answer) else self._refused(read)
            if refused is not None:
                self._answer(refused)
                return
            assert isinstance(read, Head)
            self._head, self._data = read, rest
        length = int(self._head.headers.get("content-length", "0"))
        if len(self._data) >= length:
            asked = self._head
            accept = asked.headers.get("accept", "")
            self._serve(Asked(asked.method, asked.path, self._data[:length], asked.query, accept))

    def _refused(self, head: Head) -> Answer | None:
        found = self._server.gate.refusal(head)
        if found is not None:
            if found.status in (401, 403):
                reason = f"what it asked over HTTP was refused ({found.status} {REASONS[found.status]})"
                self._server.complaints.report(self._peer, reason, reason)
            return found
        if int(head.headers.get("content-length", "0")) > BODY_BYTES_MAX:
            return refusal(413, "the request is too long", f"its body has {BODY_BYTES_MAX} bytes at most")
        return None

    def _serve(self, asked: Asked) -> None:
        self._allow(ANSWER_S_MAX)

        async def answered() -> None:
            coming = self._server.gate.serve(asked)
            self._answer(coming if isinstance(coming, Answer) else await coming)

        def failed(failure: Failure) -> None:
            if not isinstance(failure.value, CancelledError):
                self.log.failure("{method} {path} could not be served", failure, method=asked.method, path=asked.path)
                self._answer(refusal(500, "this went wrong here", "see the log of the process"))

        self._answering = Deferred.fromCoroutine(answered()).addErrback(failed)

    def _late(self) -> None:
        """The request is not whole, or its answer not taken: a word where one can be said, and then the end."""
        self._deadline = self._server.clock.callLater(REQUEST_S_MAX, self._wire.abortConnection)
        if self.waits:
            self._answer(refusal(408, f"the request was not whole after {REQUEST_S_MAX:.0f} s", "send it again"))
        else:
            self._wire.abortConnection()

    def _allow(self, seconds: float) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.reset(seconds)

    def _answer(self, answer: Answer) -> None:
        self.is_answered = True
        self._allow(REQUEST_S_MAX)
        lines = [
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            "Cache-Control: no-store",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        body = b"" if self._head is not None and self._head.method == "HEAD" else answer.body
        self._wire.write(head.encode() + body)
        self._wire.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._server.open.pop(self, None)
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        self._wire.abortConnection()


class HttpServer(Factory):
    """The server of one process.  `gate` judges each request and answers it, at once or later."""

    noisy = False
    log = Logger()

    def __init__(self, clock: Clock, gate: Judging, credentials: "Credentials | None" = None) -> None:
        """`credentials`: of TLS, where the port is HTTPS."""
        self.clock = clock
        self.gate = gate
        self.credentials = credentials
        self.complaints = Complaints(clock, self.log)
        self.open: dict[Exchange, None] = {}  # oldest first

    def buildProtocol(self, addr: object) -> Exchange:
        self.complaints.sweep()
        return Exchange(self)

    def admits(self, exchange: Exchange) -> bool:
        """True if there is room for one more, if need be in the place of one whose end is not ours to wait for."""
        if len(self.open) >= CONNECTIONS_MAX:
            goes = [each for each in self.open if each.waits] or [each for each in self.open if each.is_answered]
            if not goes:
                return False
            oldest = goes[0]
            del self.open[oldest]
            oldest.abort()
        self.open[exchange] = None
        return True

    def abort_all(self) -> None:
        for exchange in list(self.open):
            exchange.abort()
