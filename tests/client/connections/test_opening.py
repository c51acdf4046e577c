"""How a connection begins where TLS is on: what is asked in the clear, and which answers end it."""

import pytest

from quire.client.connections.opening import SECURITY, START, WHO, Opening
from quire.protocol import v3, wire
from quire.protocol.errors import Status, WireError
from quire.protocol.messages import BOOKIE_ID, BookieInfo, InfoReply, StartTls

# SPDX-License-Identifier: Apache-2.0


class Connection:
    """Notes what the opening does with it."""

    name = "bookie b"

    def __init__(self, tls: bool) -> None:
        self.said: list[bytes] = []
        self.secures = 0
        self.bookie: str | None = "nobody"
        self.ended: tuple[int, str] | None = None
        self.opening = Opening(self, 65_536, tls)
        self.opening.begin()

    def say(self, data: bytes) -> None:
        self.said.append(data)

    def secure(self) -> None:
        self.secures += 1

    def is_open(self, bookie: str | None) -> None:
        self.bookie = bookie

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
    ("answer", "said"),
    [
        (v3.bare(BookieInfo(BOOKIE_ID, 0), Status.EUA), "only clients that it knows"),
        (wire.refusal(StartTls(0), Status.EIO), "does not allow our certificate"),
    ],
)
def test_a_bookie_that_does_not_want_us(answer: bytes, said: str) -> None:
    """It says so inside TLS; Apache's with a late answer to START_TLS."""
    connection = Connection(tls=True)
    connection.opening.received(YES)
    connection.opening.secured()
    connection.opening.received(answer)
    assert connection.ended is not None
    assert connection.ended[0] == SECURITY
    assert said in connection.ended[1]
