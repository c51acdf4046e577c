"""The small HTTP server: requests in pieces, what it refuses, and its bounds."""

import json
from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from quire.bookie.admin.http import (
    ANSWER_S_MAX,
    BODY_BYTES_MAX,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    REQUEST_S_MAX,
    TURN_S,
    Answer,
    Answering,
    Asked,
    Head,
    HttpServer,
    in_turns,
    refusal,
)
from tests.bookie.fakes.wires import Wire

# SPDX-License-Identifier: Apache-2.0


class Open:
    """A gate that lets in what does not ask for /closed."""

    def __init__(self, serve: Answering) -> None:
        self.serve = serve
        self.judged: list[Head] = []

    def refusal(self, head: Head) -> Answer | None:
        self.judged.append(head)
        return refusal(401, "no", "ask otherwise", ("X", "y")) if head.path == "/closed" else None


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

    @property
    def error(self) -> dict[str, str]:
        """A refusal's document: what is wrong, and the next step."""
        found: dict[str, str] = json.loads(self.wire.value().partition(b"\r\n\r\n")[2])
        assert set(found) == {"error", "next"}
        return found


def echo(asked: Asked) -> Answer:
    return Answer(200, f"{asked.method} {asked.path} ".encode() + asked.body)


def server(serve: Answering = echo, clock: Clock | None = None) -> HttpServer:
    return HttpServer(clock or Clock(), Open(serve))


def test_requests_in_pieces() -> None:
    """Head and body may come byte by byte; the answer closes the connection."""
    exchange = Exchange(server())
    for byte in b"PUT /x?y=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc":
        assert exchange.status == 0
        exchange.send(bytes((byte,)))
    assert exchange.status == 200
    assert exchange.wire.value().endswith(b"PUT /x abc")
    assert exchange.wire.disconnecting


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET http://other/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"G" * (HEAD_BYTES_MAX + 1), 413),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 413),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    """Malformed, or to be read in two ways: 400; a head or body above the limit: 413; each says a next step."""
    made = server()
    exchange = Exchange(made).send(data)
    assert exchange.status == status
    assert exchange.error["next"]
    assert exchange.wire.disconnecting


def test_the_gate_judges_before_the_body_is_there() -> None:
    """Its answer comes at once, with its headers, and what follows is not read."""
    made = server()
    exchange = Exchange(made).send(b"PUT /closed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    assert exchange.status == 401
    assert exchange.error == {"error": "no", "next": "ask otherwise"}
    assert b"\r\nX: y\r\n" in exchange.wire.value()
    before = exchange.wire.value()
    assert exchange.send(b"hello").wire.value() == before
    gate = made.gate
    assert isinstance(gate, Open)
    assert [(head.method, head.path, head.headers["host"]) for head in gate.judged] == [("PUT", "/closed", "a")]


def test_head_has_no_body() -> None:
    """But the length of what GET would have had."""
    found = Exchange(server()).send(b"HEAD /x HTTP/1.1\r\n\r\n").wire.value()
    assert b"\r\nContent-Length: 8\r\n" in found
    assert found.endswith(b"\r\n\r\n")


def test_the_largest_request_is_served() -> None:
    """A body of just the limit."""
    head = b"PUT /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES_MAX
    assert Exchange(server()).send(head + b"b" * BODY_BYTES_MAX).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET", b"PUT /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc"])
def test_a_request_has_a_deadline(sent: bytes) -> None:
    """However it is drawn out: 408 when its time is over, and the end if even that is not taken."""
    clock = Clock()
    exchange = Exchange(server(clock=clock))
    for byte in sent:
        exchange.send(bytes((byte,)))
        clock.advance(0.001)
    clock.advance(REQUEST_S_MAX)
    assert exchange.status == 408
    assert exchange.wire.disconnecting
    assert not exchange.wire.aborted
    clock.advance(REQUEST_S_MAX)
    assert exchange.wire.aborted


def test_connections_are_bounded() -> None:
    """The one that has waited longest for its request makes room; where all wait for us the new one goes."""
    coming: list[Deferred[Answer]] = []

    def later(asked: Asked) -> Deferred[Answer]:
        coming.append(Deferred())
        return coming[-1]

    made = server(later)
    busy = Exchange(made).send(b"GET /x HTTP/1.1\r\n\r\n")
    silent = [Exchange(made) for _ in range(CONNECTIONS_MAX - 1)]
    fresh = Exchange(made)
    assert [each.wire.aborted for each in silent] == [True] + [False] * (CONNECTIONS_MAX - 2)
    assert not fresh.wire.aborted
    assert not busy.wire.aborted
    for each in [*silent[1:], fresh]:
        each.send(b"GET /x HTTP/1.1\r\n\r\n")
    assert Exchange(made).wire.aborted
    assert not busy.wire.aborted
    made.abort_all()
    assert busy.wire.aborted
    assert all(each.wire.aborted for each in [*silent, fresh])


def test_who_does_not_take_an_answer_makes_room() -> None:
    """The oldest of them, where nobody's request is waited for: they would keep the operator out for 10 s each."""
    made = server()
    answered = [Exchange(made).send(b"GET /x HTTP/1.1\r\n\r\n") for _ in range(CONNECTIONS_MAX)]
    assert {each.status for each in answered} == {200}
    fresh = Exchange(made).send(b"GET /x HTTP/1.1\r\n\r\n")
    assert fresh.status == 200
    assert [each.wire.aborted for each in answered] == [True] + [False] * (CONNECTIONS_MAX - 1)


def test_a_fault_of_ours_is_500() -> None:
    """An exception of the function that answers becomes status 500."""

    def broken(asked: Asked) -> Answer:
        raise RuntimeError("no")

    assert Exchange(server(broken)).send(b"GET / HTTP/1.1\r\n\r\n").status == 500


def test_an_answer_may_come_later() -> None:
    """Its query is read; the wait is bounded, a second request on the way is not read, and who has gone ends it."""
    clock, waiting, gone = Clock(), [], []

    def later(asked: Asked) -> Deferred[Answer]:
        waiting.append((asked.query, Deferred(gone.append)))
        return waiting[-1][1]

    request = b"GET /x?a=1&b=x%3A2 HTTP/1.1\r\n\r\n"
    served = Exchange(server(later, clock)).send(request).send(request)
    ((query, coming),) = waiting
    assert query == {"a": "1", "b": "x:2"}
    clock.advance(REQUEST_S_MAX)
    assert not served.wire.aborted
    coming.callback(Answer(200, b"here"))
    assert served.wire.value().endswith(b"here")
    late = Exchange(server(later, clock)).send(request)
    clock.advance(ANSWER_S_MAX)
    assert late.wire.aborted
    late.protocol.connectionLost()
    assert gone == [waiting[1][1]]
    failing = Exchange(server(lambda _: fail(RuntimeError("no")))).send(request)
    assert failing.status == 500


def test_a_body_is_made_in_turns() -> None:
    """What takes longer than a turn rests until the next one, and who has gone ends it."""
    clock, made = Clock(), []

    def parts() -> Iterator[bytes]:
        for number in range(6):
            clock.rightNow += TURN_S * 0.4  # that long it takes to make one
            made.append(number)
            yield b"%d" % number

    request = b"GET /x HTTP/1.1\r\n\r\n"
    many = server(lambda _: in_turns(clock, parts(), "text/numbers"), clock)
    served = Exchange(many).send(request)
    assert (made, served.wire.value()) == ([0, 1, 2], b"")
    clock.advance(0)
    assert served.wire.value().endswith(b"\r\n\r\n012345")
    assert b"Content-Type: text/numbers\r\n" in served.wire.value()
    made.clear()
    leaving = Exchange(many).send(request)
    leaving.protocol.connectionLost()
    clock.advance(0)
    assert made == [0, 1, 2]
