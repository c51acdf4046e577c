"""How a connection begins where TLS is on: what is asked in the clear, and which answers end it."""

import pytest

from quire.client.connections.opening import SECURITY, START, UNAUTHORIZED, WHO, Opening
from quire.protocol import v3, wire
from quire.protocol.errors import Status, WireError
from quire.protocol.messages import BOOKIE_ID, Auth, AuthReply, BookieInfo, InfoReply, StartTls
from quire.security.authentication import SaslOfBookie, SaslOfClient
from quire.security.digest_md5 import Users
from quire.security.exchange import Provider
from quire.security.jaas import Account

# SPDX-License-Identifier: Apache-2.0


class Connection:
    """Notes what the opening does with it."""

    name = "bookie b"

    def __init__(self, tls: bool, provider: Provider | None = None) -> None:
        self.said: list[bytes] = []
        self.secures = 0
        self.bookie: str | None = "nobody"
        self.ended: tuple[int, str] | None = None
        self.opening = Opening(self, 65_536, tls, provider)
        self.opening.begin()

    def say(self, data: bytes) -> None:
        self.said.append(data)

    def secure(self) -> None:
        self.secures += 1

    def is_open(self, bookie: str | None, incarnation: str | None) -> None:
        self.bookie, self.incarnation = bookie, incarnation

    def malformed(self, failure: WireError) -> None:
        self.ended = (0, str(failure))

    def end(self, code: int, reason: str) -> None:
        self.ended = (code, reason)


YES = wire.refusal(StartTls(0), Status.EOK)
TOLD = wire.answer(BookieInfo(BOOKIE_ID, 0), InfoReply(Status.EOK, 0, bookie="b"))


def test_without_tls_only_the_name_is_asked() -> None:
    """Nothing else is said until it is known."""
    connection = Connection(tls=False)
    connection.opening.received(TOLD)
    assert connection.said == [WHO]
    assert connection.bookie == "b"


def test_tls_comes_before_the_name() -> None:
    """START_TLS alone; the question follows when the handshake is over."""
    connection = Connection(tls=True)
    assert connection.said == [START]
    connection.opening.received(YES)
    assert connection.secures == 1
    assert connection.said == [START]
    connection.opening.secured()
    assert connection.said == [START, WHO]
    connection.opening.received(TOLD)
    assert connection.bookie == "b"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (wire.refusal(StartTls(0), Status.EBADREQ), "serves no TLS"),
        (wire.refusal(StartTls(0), Status.EUA), "serves no TLS"),
        (YES + TOLD, "more bytes came"),
        (YES + b"\0", "more bytes came"),
        (TOLD, "something else"),
    ],
)
def test_what_else_is_answered_in_the_clear_ends_it(answer: bytes, said: str) -> None:
    """No fallback, no byte believed beside the one answer; -24."""
    connection = Connection(tls=True)
    connection.opening.received(answer)
    assert connection.secures == 0
    assert connection.said == [START]
    assert connection.ended is not None
    assert connection.ended[0] == SECURITY
    assert said in connection.ended[1]


def test_what_does_not_decode_ends_it() -> None:
    """As on every connection."""
    connection = Connection(tls=True)
    connection.opening.received(b"\0\0\0\0")
    assert connection.ended is not None
    assert connection.secures == 0


def test_half_an_answer_is_waited_for() -> None:
    """The rest may come later."""
    connection = Connection(tls=True)
    connection.opening.received(YES[:7])
    assert connection.ended is None
    connection.opening.received(YES[7:])
    assert connection.secures == 1


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (v3.bare(BookieInfo(BOOKIE_ID, 0), Status.EUA), SECURITY, "only clients that it knows"),
        (wire.refusal(StartTls(0), Status.EIO), UNAUTHORIZED, "does not allow our certificate"),
    ],
)
def test_a_bookie_that_does_not_want_us(answer: bytes, code: int, said: str) -> None:
    """It says so inside TLS; of a certificate without a right by a late answer to START_TLS, as Apache's."""
    connection = Connection(tls=True)
    connection.opening.received(YES)
    connection.opening.secured()
    connection.opening.received(answer)
    assert connection.ended is not None
    assert connection.ended[0] == code
    assert said in connection.ended[1]


# -- authentication

SASL = SaslOfClient(Account("hd", "testpwd"))


def token(payload: bytes, plugin: str = "sasl") -> bytes:
    """As a bookie sends it."""
    return wire.answer(Auth(plugin, b"", 5, version=3), AuthReply(plugin, payload, Status.EOK, 5))


def sent(connection: Connection) -> list[Auth | BookieInfo | StartTls]:
    """What was said, in order."""
    return wire.Requests().feed(b"".join(connection.said))  # type: ignore[return-value]  # nothing else is said


class Bookie:
    """The other side's tokens."""

    def __init__(self, password: str = "testpwd") -> None:
        self._exchange = SaslOfBookie(Users({"hd": password}, ["hd"])).begin()

    def answer(self, connection: Connection) -> bytes:
        """To the last thing said."""
        last = sent(connection)[-1]
        assert isinstance(last, Auth)
        return token(self._exchange.step(last.payload))


def challenged() -> tuple[Connection, Bookie]:
    connection, bookie = Connection(False, SASL), Bookie()
    connection.opening.received(bookie.answer(connection))
    return connection, bookie


def test_authentication_comes_before_the_name() -> None:
    """An empty token, the proof, and once the bookie has proved itself an empty one and the question, at once."""
    connection, bookie = challenged()
    assert [type(each) for each in sent(connection)] == [Auth, Auth]
    assert connection.opening.is_unproven
    connection.opening.received(bookie.answer(connection))
    first, proof, last, who = sent(connection)
    assert isinstance(first, Auth)
    assert isinstance(proof, Auth)
    assert isinstance(last, Auth)
    assert isinstance(who, BookieInfo)
    assert (first.payload, last.payload) == (b"", b"")
    assert len({first.txn, proof.txn, last.txn}) == 3
    assert not connection.opening.is_unproven
    connection.opening.received(token(b"", "AuthDisabledPlugin") + TOLD)
    assert connection.bookie == "b"


def test_no_token_leaves_before_tls_is_on() -> None:
    """The bookie's certificate and the name in it come first."""
    connection = Connection(True, SASL)
    assert connection.said == [START]
    connection.opening.received(YES)
    assert connection.said == [START]
    connection.opening.secured()
    assert [type(each) for each in sent(connection)] == [StartTls, Auth]


def test_a_bookie_that_asks_nobody() -> None:
    """It says so in answer to the first token, and is served as one that was never asked."""
    connection = Connection(False, SASL)
    connection.opening.received(token(b"", "AuthDisabledPlugin"))
    assert [type(each) for each in sent(connection)] == [Auth, BookieInfo]
    connection.opening.received(TOLD)
    assert connection.bookie == "b"


def test_other_answers_are_not_listened_to_before() -> None:
    """A name that was not asked for opens nothing."""
    connection = Connection(False, SASL)
    connection.opening.received(TOLD)
    assert connection.bookie == "nobody"
    assert connection.ended is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (v3.bare(Auth("sasl", b"", 5, version=3), Status.EUA), "did not let us in"),
        (token(b"", "AuthDisabledPlugin"), "of another kind"),
        (token(b"x", "com.example"), "of another kind"),
        (token(b"rspauth=" + b"0" * 32), "does not know our password"),
        (token(b"rspauth=0") + token(b"rspauth=1"), "does not know our password"),
        (token(b"\0"), "no list of directives"),
    ],
)
def test_what_a_proof_must_not_be_answered_with(answer: bytes, said: str) -> None:
    """The connection ends with -24, and nothing more is said: neither the question nor a request."""
    connection, _bookie = challenged()
    before = len(connection.said)
    connection.opening.received(answer)
    assert connection.ended is not None
    assert connection.ended[0] == SECURITY
    assert said in connection.ended[1]
    assert len(connection.said) == before
    assert connection.bookie == "nobody"


def test_a_certificate_without_a_right_and_a_refused_proof() -> None:
    """The connection ends with -102, which says more than that the proof was refused, and nothing more is said."""
    connection, _bookie = challenged()
    before = len(connection.said)
    connection.opening.received(wire.refusal(StartTls(0), Status.EIO))
    assert connection.ended is None
    connection.opening.received(v3.bare(Auth("sasl", b"", 5, version=3), Status.EUA))
    assert connection.ended is not None
    assert connection.ended[0] == UNAUTHORIZED
    assert len(connection.said) == before
    assert connection.bookie == "nobody"


def test_a_late_answer_to_start_tls_is_not_the_end_of_authentication() -> None:
    """Apache's bookies give it to each client that has not authenticated when the handshake is over."""
    connection, bookie = challenged()
    connection.opening.received(wire.refusal(StartTls(0), Status.EIO) + bookie.answer(connection))
    assert connection.ended is None
    connection.opening.received(TOLD)
    assert connection.bookie != "nobody"


def test_a_right_proof_behind_a_wrong_one_is_not_taken() -> None:
    """Of one segment."""
    connection, bookie = challenged()
    before = len(connection.said)
    connection.opening.received(token(b"rspauth=" + b"0" * 32) + bookie.answer(connection))
    assert connection.ended is not None
    assert len(connection.said) == before


def test_no_password_is_sent_or_shown() -> None:
    """Nor what stands for it."""
    connection, bookie = challenged()
    connection.opening.received(bookie.answer(connection))
    assert b"testpwd" not in b"".join(connection.said)
    assert "testpwd" not in repr(SASL) + repr(connection.opening)
