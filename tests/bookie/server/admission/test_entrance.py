"""What a connection may say before it is admitted, and what ends it."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from quire.bookie.server.admission.entrance import OUTSIDE_FRAME_BYTES_MAX, OUTSIDE_S_MAX
from quire.bookie.server.listener import Listener
from quire.protocol import schema, v2, v3
from quire.protocol.errors import Status
from quire.protocol.messages import BOOKIE_ID, AddAcks, Auth, AuthReply, BookieInfo, ReadReply, StartTls
from quire.security.authentication import SaslOfBookie
from quire.security.credentials import Credentials
from quire.security.digest_md5 import ClientsSide, Users, digest_of
from tests.bookie.fakes.wires import Client, Scene, adds, adds3, batch_read, read, read3
from tests.bookie.server.test_listener import log_lines
from tests.security.authority import Authority
from tests.security.test_context import OF_A_CURVE_THAT_NOBODY_SERVES

# SPDX-License-Identifier: Apache-2.0

START = v3.pack_request(StartTls(1))
WHO = v3.pack_request(BookieInfo(BOOKIE_ID, 2))


class Guarded(Scene):
    """A scene whose listener serves TLS."""

    def __init__(self, path: Path, **more: object) -> None:
        authority = Authority(path)
        super().__init__(**authority.issue("bookie").keys, tls=True, **more)
        self.listener = Listener(self.clock, self.options, self.service, Credentials(self.options, self.clock.seconds))
        self.listener.startFactory()

    @property
    def entrance(self) -> SimpleNamespace:
        return self.listener.entrance  # type: ignore[return-value]


def test_start_tls_is_answered_in_the_clear_and_then_nothing(tmp_path: Path) -> None:
    """The one answer, and a handshake from there on: no plain byte is served any more."""
    scene = Guarded(tmp_path)
    client = scene.connect()
    reply = client.ask(START)
    assert reply.status is Status.EOK  # type: ignore[union-attr]
    client.wire.protocol.dataReceived(WHO)  # type: ignore[attr-defined]
    assert client.closed
    assert scene.entrance.handshakes == 0


@pytest.mark.parametrize("more", [WHO, b"\0", b"\0\0\0\0", adds(b"a"), START])
def test_a_byte_behind_start_tls_ends_the_connection(tmp_path: Path, more: bytes) -> None:
    """In the same segment: nothing of it is served, and START_TLS is not answered."""
    scene = Guarded(tmp_path, tls_required=False)
    client = scene.connect().send(START + more)
    assert client.closed
    assert client.take() == b""
    assert scene.service.tally.add_entries == 0
    assert scene.entrance.handshakes_failed == 1


@pytest.mark.parametrize("request_", [WHO, adds(b"a"), read(0)], ids=["info", "add", "read"])
def test_where_it_is_required_one_refusal_and_the_end(tmp_path: Path, request_: bytes) -> None:
    """EUA to the first request in its own generation; the next ones get nothing."""
    scene = Guarded(tmp_path)
    client = scene.connect().send(request_ + request_)
    (reply,) = client.replies()
    assert reply.status is Status.EUA  # type: ignore[union-attr]
    assert client.closed
    assert scene.service.tally.add_entries == 0
    assert scene.entrance.turned_away == 1


def test_where_it_is_not_required_both_are_served(tmp_path: Path) -> None:
    """And one that began without TLS stays without."""
    scene = Guarded(tmp_path, tls_required=False)
    client = scene.connect()
    assert client.ask(WHO).status is Status.EOK  # type: ignore[union-attr]
    assert client.ask(START).status is Status.EBADREQ  # type: ignore[union-attr]
    assert not client.closed
    assert scene.connect().ask(START).status is Status.EOK  # type: ignore[union-attr]


def test_a_large_frame_outside_is_refused_by_its_length(tmp_path: Path) -> None:
    """Where TLS is required; nothing of it is kept."""
    scene = Guarded(tmp_path)
    client = scene.connect().send((OUTSIDE_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert client.closed
    assert scene.listener.limits.partial.total == 0


def silent(client: Client) -> None:
    """Says nothing."""


def started(client: Client) -> None:
    client.send(START)


@pytest.mark.parametrize("begin", [silent, started])
def test_who_does_not_come_in_soon_is_sent_away(tmp_path: Path, begin: Callable[[Client], None]) -> None:
    """Before START_TLS and in the handshake."""
    scene = Guarded(tmp_path)
    client = scene.connect()
    begin(client)
    clock: Clock = scene.clock
    clock.pump([1.0] * int(OUTSIDE_S_MAX - 1))
    assert not client.wire.aborted
    clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_a_file_that_cant_be_used_keeps_no_deadline_off(tmp_path: Path) -> None:
    """It is an alarm, strangers go as before, and a whole one is read when it is there."""
    scene = Guarded(tmp_path)
    key = Path(scene.options.tls_key or "")
    good = key.read_bytes()
    key.write_bytes(OF_A_CURVE_THAT_NOBODY_SERVES)
    scene.clock.pump([1.0] * 301)
    assert {name: value for name, _, value in scene.entrance.gauges()}["tls_files_broken"] == 1
    client = scene.connect()
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX + 1))
    assert client.wire.aborted
    key.write_bytes(good)
    scene.clock.pump([1.0] * 301)
    assert {name: value for name, _, value in scene.entrance.gauges()}["tls_files_broken"] == 0


def test_a_part_of_the_sweep_that_goes_wrong_keeps_no_other_off(tmp_path: Path) -> None:
    """Whatever it is."""
    scene = Guarded(tmp_path)
    scene.listener.complaints.sweep = lambda: 1 / 0  # type: ignore[method-assign, return-value]
    client = scene.connect()
    with log_lines() as lines:
        scene.clock.pump([1.0] * int(OUTSIDE_S_MAX + 1))
    assert client.wire.aborted
    assert any("a look at the connections of the bookie failed: division by zero" in line for line in lines)


@pytest.mark.parametrize("begin", [silent, started])
def test_nothing_of_a_connection_waits_for_the_collector(tmp_path: Path, begin: Callable[[Client], None]) -> None:
    """Of thousands that ended it would take a second, in which nobody is served."""
    scene = Guarded(tmp_path)
    client = scene.connect()
    begin(client)
    wire, ended = client.wire, weakref.ref(client.connection)
    gc.disable()
    try:
        getattr(wire, "protocol", client.connection).connectionLost(Failure(ConnectionLost()))
        wire.producer = wire.protocol = None  # type: ignore[attr-defined]  # as Twisted's transports do
        del client
        assert ended() is None
    finally:
        gc.enable()


def test_who_needs_no_tls_may_be_silent(tmp_path: Path) -> None:
    """An idle plain connection is none that is late."""
    scene = Guarded(tmp_path, tls_required=False)
    client = scene.connect()
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX + 5))
    assert not client.wire.aborted


def test_what_the_metrics_show(tmp_path: Path) -> None:
    """Names of counts and gauges; the certificate's end is in the future, and files that are whole are not broken."""
    scene = Guarded(tmp_path)
    scene.connect().send(WHO)
    entrance = scene.listener.entrance
    assert entrance is not None
    counts = {name: value for name, _meaning, value in entrance.counts()}
    assert counts == {"tls_handshakes": 0, "tls_handshakes_failed": 0, "tls_turned_away": 1, "tls_reloads": 0}
    gauges = {name: value for name, _meaning, value in entrance.gauges()}
    assert gauges["tls_files_broken"] == 0
    assert gauges["tls_certificate_expires"] > 1_700_000_000


# -- authentication


class Asking(Scene):
    """A scene whose listener asks who comes; with `path` it serves TLS, too."""

    def __init__(self, path: Path | None = None, **more: object) -> None:
        keys = {} if path is None else {**Authority(path).issue("bookie").keys, "tls": True}
        super().__init__(**keys, **more)
        credentials = None if path is None else Credentials(self.options, self.clock.seconds)
        users = Users({"hd": "testpwd"}, ["hd"])
        self.listener = Listener(self.clock, self.options, self.service, credentials, SaslOfBookie(users))
        self.listener.startFactory()

    def counted(self) -> dict[str, int]:
        assert self.listener.entrance is not None
        return {name: value for name, _meaning, value in self.listener.entrance.counts()}


def auth(payload: bytes, generation: int, plugin: str = "sasl") -> bytes:
    return v2.pack_auth(Auth(plugin, payload)) if generation == 2 else v3.pack_request(Auth(plugin, payload, 5))


def logged_in(client: Client, generation: int, password: str = "testpwd") -> list[object]:
    """The answers to both tokens."""
    side = ClientsSide("hd", digest_of("hd", password))
    challenge = client.ask(auth(side.step(b""), generation))
    assert isinstance(challenge, AuthReply)
    client.send(auth(side.step(challenge.payload), generation))
    return list(client.replies())


@pytest.mark.parametrize("generation", [2, 3])
def test_who_proves_a_password_is_served(generation: int) -> None:
    """Each token has an answer of the same generation; the token after the last one is answered as by Apache's."""
    scene = Asking()
    client = scene.connect()
    (proof,) = logged_in(client, generation)
    assert isinstance(proof, AuthReply)
    assert (proof.plugin, proof.status) == ("sasl", Status.EOK)
    assert proof.payload.startswith(b"rspauth=")
    last = client.ask(auth(b"", generation))
    assert isinstance(last, AuthReply)
    assert (last.plugin, last.payload) == ("AuthDisabledPlugin", b"")
    client.send(adds(b"a"))
    assert scene.service.tally.add_entries == 1
    assert scene.counted() == {"authentications": 1, "authentications_failed": 0, "not_authenticated": 0}


def test_large_frames_and_silence_are_for_those_who_are_known() -> None:
    """The frame's limit and the deadline of who is outside end with the proof."""
    scene = Asking()
    client = scene.connect()
    logged_in(client, 2)
    client.send(adds(b"a" * 3 * OUTSIDE_FRAME_BYTES_MAX)[:-1])
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX + 2))
    assert not client.closed
    client.send(b"a")
    assert scene.service.tally.add_entries == 1


@pytest.mark.parametrize("generation", [2, 3])
def test_a_wrong_password_ends_the_connection(generation: int) -> None:
    """Over V3 after EUA; V2's AUTH has no status."""
    scene = Asking()
    client = scene.connect()
    answers = logged_in(client, generation, "wrong")
    assert [answer.status for answer in answers] == [Status.EUA] * (generation == 3)  # type: ignore[attr-defined]
    assert client.closed
    client.send(adds(b"a"))
    assert scene.service.tally.add_entries == 0
    assert scene.counted()["authentications_failed"] == 1


@pytest.mark.parametrize("payload", [b"", b"\0" * 3000, b'username="hd"'])
def test_there_is_one_try(payload: bytes) -> None:
    """A token that is none ends it, and what stood behind it in the same segment is not looked at."""
    scene = Asking()
    client = scene.connect()
    client.ask(auth(b"", 3))
    client.send(auth(payload, 3) + auth(b"", 3) + adds3(9, b"a"))
    (answer,) = client.replies()
    assert answer.status is Status.EUA  # type: ignore[union-attr]
    assert client.closed
    assert scene.service.tally.add_entries == 0


@pytest.mark.parametrize("generation", [2, 3])
def test_a_right_proof_behind_a_wrong_one_is_not_looked_at(generation: int) -> None:
    """Nor is a request behind both, all in one segment."""
    scene = Asking()
    client = scene.connect()
    side = ClientsSide("hd", digest_of("hd", "testpwd"))
    challenge = client.ask(auth(side.step(b""), generation))
    assert isinstance(challenge, AuthReply)
    right = side.step(challenge.payload)
    wrong = right.replace(b"qop=auth", b"qop=auth-int")
    client.send(auth(wrong, generation) + auth(right, generation) + adds(b"a"))
    assert len(client.replies()) == (generation == 3)
    assert client.closed
    assert scene.service.tally.add_entries == 0
    assert scene.counted() == {"authentications": 0, "authentications_failed": 1, "not_authenticated": 0}


def test_requests_of_v3_get_a_bare_refusal_and_the_connection_goes_on() -> None:
    """Each with its header alone, as Apache's; then the client may still authenticate."""
    scene = Asking()
    client = scene.connect()
    other = Auth("other", b"x", 9)
    client.send(adds3(7, b"a", b"b") + read3(8, 0) + v3.pack_request(other) + WHO)
    data, at, txns = client.take(), 0, []
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        answer = schema.parsed(schema.Response, data[at + 4 : end])
        assert answer is not None
        assert [field.name for field, _value in answer.ListFields()] == ["header", "status"]
        assert answer.status == Status.EUA.v3
        txns.append(answer.header.txnId)
        at = end
    assert txns == [7, 8, 8, 9, 2]
    assert not client.closed
    assert client.ask(START).status is Status.EBADREQ  # type: ignore[union-attr]
    (proof,) = logged_in(client, 3)
    assert proof.status is Status.EOK  # type: ignore[attr-defined]
    assert scene.service.tally.add_entries == 0
    assert scene.counted()["not_authenticated"] == 5  # the run of adds is one


def test_adds_and_reads_of_v2_are_refused_with_102() -> None:
    """An answer for each entry; the connection goes on."""
    scene = Asking()
    client = scene.connect().send(adds(b"a", b"b") + read(0))
    acks, answer = client.replies()
    assert isinstance(acks, AddAcks)
    assert isinstance(answer, ReadReply)
    assert (acks.count, acks.status, answer.status) == (2, Status.EUA, Status.EUA)
    assert not client.closed
    assert len(logged_in(client, 2)) == 1


@pytest.mark.parametrize("request_", [batch_read(0), auth(b"", 2, "other")], ids=["batch read", "other plugin"])
def test_what_v2_can_not_refuse_ends_the_connection(request_: bytes) -> None:
    """Without an answer."""
    client = Asking().connect().send(request_)
    assert client.closed
    assert client.take() == b""


def test_a_large_token_is_refused_by_its_length() -> None:
    """On the four bytes, with or without authentication begun; nothing of it is kept."""
    scene = Asking()
    for begin in (b"", auth(b"", 3)):
        client = scene.connect()
        client.send(begin).take()
        client.send((OUTSIDE_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert client.closed
        assert scene.listener.limits.partial.total == 0


@pytest.mark.parametrize("said", [b"", auth(b"", 3), adds(b"a")], ids=["silent", "begun", "refused"])
def test_who_does_not_authenticate_soon_is_sent_away(said: bytes) -> None:
    """Whatever it says meanwhile."""
    scene = Asking()
    client = scene.connect()
    if said:
        client.send(said)
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX - 1))
    assert not client.wire.aborted
    scene.clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_tls_comes_first_where_it_is_required(tmp_path: Path) -> None:
    """A token in the clear is not looked at."""
    scene = Asking(tmp_path)
    client = scene.connect()
    assert client.ask(auth(b"", 3)).status is Status.EUA  # type: ignore[union-attr]
    assert client.closed
    assert scene.counted()["tls_turned_away"] == 1
    assert scene.connect().ask(START).status is Status.EOK  # type: ignore[union-attr]


def test_where_tls_is_not_required_it_can_only_come_before_authentication(tmp_path: Path) -> None:
    """What was begun in the clear goes on so."""
    scene = Asking(tmp_path, tls_required=False)
    assert scene.connect().ask(START).status is Status.EOK  # type: ignore[union-attr]
    client = scene.connect()
    client.ask(auth(b"", 3))
    assert client.ask(START).status is Status.EBADREQ  # type: ignore[union-attr]
    assert len(logged_in(scene.connect(), 3)) == 1


def test_not_taking_the_refusals_puts_nothing_off() -> None:
    """Who is outside and chokes on its answers is sent away as the others are."""
    scene = Asking()
    client = scene.connect()
    client.wire.chokes_at = 1000
    client.send(adds3(7, *[b"a"] * 100))
    assert client.wire.paused
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX - 1))
    assert not client.wire.aborted
    scene.clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_who_is_outside_goes_first_whatever_it_asks() -> None:
    """Refused requests are no activity that counts against those who are known."""
    scene = Asking(connections_max=3)
    known = scene.connect()
    logged_in(known, 3)
    known.send(adds(b"a"))
    scene.clock.advance(5)
    strangers = [scene.connect() for _ in range(2)]
    for _ in range(3):
        scene.clock.advance(1)
        for stranger in strangers:
            stranger.send(adds3(7, b"a"))
    scene.connect()
    assert [client.wire.aborted for client in (known, *strangers)] == [False, True, False]
