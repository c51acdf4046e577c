"""What a connection may say before it is admitted, and what ends it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock

from quire.bookie.server.entrance import OUTSIDE_FRAME_BYTES_MAX, OUTSIDE_S_MAX
from quire.bookie.server.listener import Listener
from quire.protocol import v3
from quire.protocol.errors import Status
from quire.protocol.messages import BOOKIE_ID, BookieInfo, StartTls
from quire.security.credentials import Credentials
from tests.bookie.fakes.wires import Client, Scene, adds, read
from tests.security.authority import Authority

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
    assert scene.listener.partial_bytes == 0


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
