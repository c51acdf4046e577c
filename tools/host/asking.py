"""
Asking a bookie of this machine for its metrics.

Knows: one GET over a connection of its own, with the bookie's token, a limit of time and of bytes.
Does not know: what they say.
Safety: the request names the bookie, and another process that has its port by now refuses it.
"""

from typing import Any, cast
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.python.failure import Failure

from quire.bookie.lifecycle.ids import ANY_ADDRESS
from quire.client.connections.network import TcpReactor
from quire.conf.parts.http import ADMIN_TOKEN
from quire.conf.properties import ConfigurationError
from quire.security.tokens import tokens_in

# SPDX-License-Identifier: Apache-2.0

ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 4 << 20


class Asking(Protocol):
    """One request: `answer` gets the body, or None."""

    def __init__(self, request: bytes, answer: Deferred[str | None]) -> None:
        self._request = request
        self._answer = answer
        self._data = bytearray()

    def connectionMade(self) -> None:
        cast(Any, self.transport).write(self._request)

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > ANSWER_BYTES_MAX:
            self._data.clear()
            cast(Any, self.transport).abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        head, found, body = bytes(self._data).partition(b"\r\n\r\n")
        whole = b"\r\nContent-Length: %d\r\n" % len(body) in head + b"\r\n"
        is_good = found and whole and head.startswith(b"HTTP/1.1 200 ")
        if not self._answer.called:
            self._answer.callback(body.decode(errors="replace") if is_good else None)


class AskingOnce(ClientFactory):
    noisy = False

    def __init__(self, request: bytes, answer: Deferred[str | None]) -> None:
        self._request = request
        self._answer = answer

    def buildProtocol(self, addr: object) -> Asking:
        return Asking(self._request, self._answer)

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        if not self._answer.called:
            self._answer.callback(None)


def metrics_of(reactor: TcpReactor, bookie: str, url: str, token_file: str) -> Deferred[str | None]:
    """The text at its metrics' URL; None when it can't be had in time.  It never fails."""
    try:
        token = tokens_in(token_file, ADMIN_TOKEN)[0].decode()
    except ConfigurationError:
        return succeed(None)
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 0
    request = f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nBookie: {bookie}\r\n"
    request += f"Authorization: Bearer {token}\r\n\r\n"
    answer: Deferred[str | None] = Deferred()
    here = "127.0.0.1" if host == ANY_ADDRESS[0] else "::1" if host == ANY_ADDRESS[1] else host
    connector = reactor.connectTCP(here, port, AskingOnce(request.encode(), answer), timeout=ANSWER_S_MAX)
    timer = reactor.callLater(ANSWER_S_MAX, connector.disconnect)

    def answered(text: str | None) -> str | None:
        if timer.active():
            timer.cancel()
        return text

    return answer.addCallback(answered)
