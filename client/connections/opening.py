"""
How a connection to a bookie begins: TLS where it is on, authentication where the client has a provider, then the
question who answers (wire.md 1.2, 9.2, 9.3).

Knows: what is asked, in which order, and which answers end the connection.
Does not know: sockets, OpenSSL, what is in a token (`quire.security`), what follows.

Safety: where TLS is on, the one thing that leaves in the clear is START_TLS, and nothing else that comes back in the
clear is believed: a bookie that serves no TLS is not spoken to, and one byte beside its answer ends the connection.
Authentication follows when the bookie's certificate and the name in it are good, and requests follow when the bookie
has proved that it knows the password, or has said at once that it asks nobody.
"""

from typing import Protocol

from quire.protocol import v3
from quire.protocol.errors import MalformedFrame, Security, Status, UnauthorizedAccess, WireError
from quire.protocol.messages import (
    AUTH_DISABLED,
    BOOKIE_ID,
    Auth,
    AuthReply,
    BookieInfo,
    InfoReply,
    Reply,
    StartTls,
    StatusReply,
)
from quire.security.exchange import NotAuthenticated, Provider

# SPDX-License-Identifier: Apache-2.0

SECURITY = Security.code
UNAUTHORIZED = UnauthorizedAccess.code
REFUSALS = frozenset({SECURITY, UNAUTHORIZED})  # codes of a bookie that works, and does not serve this client
FIRST_TXN = 0  # transactions of requests begin at 1, when those of tokens are over
START = v3.pack_request(StartTls(FIRST_TXN))
WHO = v3.pack_request(BookieInfo(BOOKIE_ID, FIRST_TXN))


class Opened(Protocol):
    """The connection."""

    name: str

    def say(self, data: bytes) -> None: ...

    def secure(self) -> None:
        """Everything from the next byte on is TLS; `Opening.secured` follows, or the connection's end."""
        ...

    def is_open(self, bookie: str | None, incarnation: str | None) -> None:
        """The other side has said who it is, and its incarnation (None: Apache's do not); requests may follow."""
        ...

    def malformed(self, failure: WireError) -> None: ...

    def end(self, code: int, reason: str) -> None: ...


class Opening:
    """One connection's."""

    def __init__(self, connection: Opened, answer_bytes_max: int, tls: bool, provider: Provider | None = None) -> None:
        self._connection = connection
        self._answer_bytes_max = answer_bytes_max
        self._replies = v3.Replies(answer_bytes_max)
        self._is_clear = tls  # TLS is wanted and not on yet
        self._provider = provider
        self._exchange = None if provider is None else provider.begin()
        self._tokens = 0  # sent
        self._is_known = provider is None
        self._late: Reply | None = None  # the second answer to START_TLS

    @property
    def is_unproven(self) -> bool:
        """True if the bookie was given a proof of who we are, and has not answered it."""
        return not self._is_known and self._tokens > 1

    def begin(self) -> None:
        if self._is_clear:
            self._connection.say(START)
        else:
            self._introduce()

    def secured(self) -> None:
        """The bookie's certificate is good, and so is the name in it."""
        self._is_clear = False
        self._replies = v3.Replies(self._answer_bytes_max)
        self._introduce()

    def received(self, data: bytes) -> None:
        """Nothing but one answer was asked for, so nothing else is listened to, and nothing can be half there."""
        replies = self._replies
        answers = replies.feed(data)
        if replies.failure is not None:
            self._connection.malformed(replies.failure)
        elif self._is_clear:
            self._to_start(answers)
        elif not self._is_known:
            self._to_tokens(answers)
        else:
            self._to_who(answers)

    def _introduce(self) -> None:
        """Sends the introduction, where it may be said."""
        if self._is_known:
            self._connection.say(WHO)
        else:
            self._step(b"")

    def _step(self, token: bytes) -> bool:
        """Takes one token and sends the next one, of the last one, too; whether the connection goes on."""
        assert self._exchange is not None
        assert self._provider is not None
        try:
            answer = self._exchange.step(token)
        except NotAuthenticated as failure:
            self._connection.end(SECURITY, f"{self._connection.name}: authentication failed: {failure}")
            return False
        self._tokens += 1
        self._connection.say(v3.pack_request(Auth(self._provider.name, answer, self._tokens, version=3)))
        if self._exchange.complete:
            self._is_known = True
            self._connection.say(WHO)
        return True

    def _to_tokens(self, answers: list[Reply]) -> None:
        """Goes on by the answers to tokens; other answers were not asked for, and are passed over."""
        assert self._provider is not None
        name = self._connection.name
        for number, each in enumerate(answers):
            if _is_late(each):
                self._late = each  # an Apache bookie says so, too, of who has not authenticated when TLS is on
            if not isinstance(each, AuthReply):
                continue
            if each.status is not Status.EOK and self._late is not None:
                self._refuses_certificate(self._late)
                return
            if each.status is not Status.EOK:
                self._connection.end(
                    SECURITY,
                    f"{name} did not let us in: the user's name or password (saslJaasFile) is wrong, it is not allowed "
                    "there (saslJaasClientAllowedIds), or authentication there is of another kind; its log says which",
                )
                return
            if each.plugin == AUTH_DISABLED and self._tokens == 1:
                self._is_known = True
                self._connection.say(WHO)
            elif each.plugin == self._provider.name:
                if not self._step(each.payload):
                    return
            else:
                self._connection.end(SECURITY, f"{name} answered our authentication with one of another kind")
                return
            if self._is_known:
                self._to_who(answers[number + 1 :])
                return

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
        if any(self._refuses_certificate(each) for each in answers):
            return
        told = [each for each in answers if isinstance(each, InfoReply) and each.txn == FIRST_TXN]
        if not told:
            return
        if self._replies.held:
            self._connection.malformed(MalformedFrame("more than was asked for"))
        elif told[0].status is Status.EUA:
            self._connection.end(
                SECURITY,
                f"{name} serves only clients that it knows: by TLS (tlsProviderFactoryClass) or by authentication "
                "(clientAuthProviderFactoryClass); docs/security.md",
            )
        else:
            self._connection.is_open(told[0].bookie, told[0].incarnation)

    def _refuses_certificate(self, answer: Reply) -> bool:
        """Sees a late answer to START_TLS, by which Apache's bookies refuse a good certificate without rights."""
        if _is_late(answer):
            name = self._connection.name
            self._connection.end(
                UNAUTHORIZED,
                f"{name} does not allow our certificate: its role (the first name of 0: in the subject's OU) has no "
                "right there (authorizedRoles, rightsFile; docs/security.md, 9)",
            )
            return True
        return False


def _is_late(answer: Reply) -> bool:
    """True if it is a second answer to START_TLS."""
    return isinstance(answer, StatusReply) and answer.operation == v3.START_TLS
