"""
How a connection to a bookie begins: TLS where it is on, then the question who answers (wire.md 1.2, 9.3).

Knows: what is asked, in which order, and which answers end the connection.
Does not know: sockets, OpenSSL (`quire.security`), what follows.  A provider of authentication will have its place
between the two.

Safety: where TLS is on, the one thing that leaves in the clear is START_TLS, and nothing else that comes back in the
clear is believed: a bookie that serves no TLS is not spoken to, and one byte beside its answer ends the connection.
"""

from typing import Protocol

from quire.protocol import v3
from quire.protocol.errors import MalformedFrame, Security, Status, WireError
from quire.protocol.messages import BOOKIE_ID, BookieInfo, InfoReply, Reply, StartTls, StatusReply

# SPDX-License-Identifier: Apache-2.0

SECURITY = Security.code
FIRST_TXN = 0  # transactions of requests begin at 1
START = v3.pack_request(StartTls(FIRST_TXN))
WHO = v3.pack_request(BookieInfo(BOOKIE_ID, FIRST_TXN))


class Opened(Protocol):
    """The connection."""

    name: str

    def say(self, data: bytes) -> None: ...

    def secure(self) -> None:
        """Everything from the next byte on is TLS; `Opening.secured` follows, or the connection's end."""
        ...

    def is_open(self, bookie: str | None) -> None:
        """The other side has said who it is (None: it did not, as Apache's do); requests may follow."""
        ...

    def malformed(self, failure: WireError) -> None: ...

    def end(self, code: int, reason: str) -> None: ...


class Opening:
    """One connection's."""

    def __init__(self, connection: Opened, answer_bytes_max: int, tls: bool) -> None:
        self._connection = connection
        self._answer_bytes_max = answer_bytes_max
        self._replies = v3.Replies(answer_bytes_max)
        self._is_clear = tls  # TLS is wanted and not on yet

    def begin(self) -> None:
        self._connection.say(START if self._is_clear else WHO)

    def secured(self) -> None:
        """The bookie's certificate is good, and so is the name in it."""
        self._is_clear = False
        self._replies = v3.Replies(self._answer_bytes_max)
        self._connection.say(WHO)

    def received(self, data: bytes) -> None:
        """Nothing but one answer was asked for, so nothing else is listened to, and nothing can be half there."""
        replies = self._replies
        answers = replies.feed(data)
        if replies.failure is not None:
            self._connection.malformed(replies.failure)
        elif self._is_clear:
            self._to_start(answers)
        else:
            self._to_who(answers)

    def _to_start(self, answers: list[Reply]) -> None:
        if not answers:
            return
        name, first = self._connection.name, answers[0]
        if len(answers) > 1 or self._replies.held:
            reason = "more bytes came with its answer to START_TLS, before TLS was on: somebody put them there"
            self._connection.end(SECURITY, f"{name}: {reason}")
        elif not isinstance(first, StatusReply) or first.operation != v3.START_TLS:
            self._connection.end(SECURITY, f"{name} answered START_TLS with something else; is a bookie there?")
        elif first.status is not Status.EOK:
            self._connection.end(
                SECURITY,
                f"{name} serves no TLS, which is on here: turn it on there (tlsProviderFactoryClass, "
                "docs/security.md); if it is on, somebody between has answered",
            )
        else:
            self._connection.secure()

    def _to_who(self, answers: list[Reply]) -> None:
        name = self._connection.name
        for each in answers:
            if isinstance(each, StatusReply) and each.operation == v3.START_TLS:
                self._connection.end(SECURITY, f"{name} does not allow our certificate; its configuration says who is")
                return
        told = [each for each in answers if isinstance(each, InfoReply) and each.txn == FIRST_TXN]
        if not told:
            return
        if self._replies.held:
            self._connection.malformed(MalformedFrame("more than was asked for"))
        elif told[0].status is Status.EUA:
            self._connection.end(
                SECURITY,
                f"{name} serves only clients that it knows: by TLS (tlsProviderFactoryClass, docs/security.md) or by "
                "authentication",
            )
        else:
            self._connection.is_open(told[0].bookie)
