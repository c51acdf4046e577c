"""
Strangers wait in the lobby: in order, for a share of each turn, and whoever was given something no longer.

Here the reactor around it only notes what it is told; the sockets and the lobby's epoll object are real.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from twisted.internet import reactor as twisted
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from quire.bookie.server.admission import lobby as lobbies
from quire.bookie.server.admission.lobby import ACCEPTED_AT_ONCE, Lobby, leave
from quire.bookie.server.listener import RECEIVE_BYTES, STRANGERS_RECEIVE_BYTES
from quire.protocol import v3
from quire.protocol.digest import Digest, DigestType
from quire.protocol.messages import Force, ReadLac
from tests.bookie.fakes.wires import Scene, adds, adds3, read, read3
from tests.bookie.server.test_listener import log_lines
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class Outer:
    """The reactor around it."""

    def __init__(self) -> None:
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()
        self.seconds: Any = time.monotonic
        self.later: list[tuple[float, Any, tuple[object, ...]]] = []

    def addReader(self, one: Any) -> None:
        self.readers.add(one)

    def removeReader(self, one: Any) -> None:
        self.readers.discard(one)

    def addWriter(self, one: Any) -> None:
        self.writers.add(one)

    def callLater(self, delay: float, fn: Any, *args: object) -> None:
        self.later.append((delay, fn, args))

    def adoptStreamPort(self, descriptor: int, family: int, factory: Any) -> Any:
        self.port = Transport(self, factory)
        self.port.startReading()
        return self.port


class Panic(BaseException):
    """What a library in Rust raises for a fault of its own."""


class Transport(FileDescriptor):
    """One end of a pair of sockets; it notes in `served` what it reads."""

    def __init__(self, reactor: Any, served: list[Any]) -> None:
        super().__init__(reactor)  # type: ignore[no-untyped-call]
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.served = served
        self.lost: Failure | None = None
        self.ends: Any = lambda: None
        self.fails = False
        self.written = 0

    def fileno(self) -> int:
        return self.near.fileno()

    def doRead(self) -> Any:
        if self.fails:
            raise Panic
        data = self.near.recv(100)
        if not data:
            return CONNECTION_DONE
        self.served.append((self, data))
        return None

    def doWrite(self) -> Any:
        self.written += 1
        self.stopWriting()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self.lost = reason
        self.near.close()
        self.ends()


class Room:
    """A lobby, and those in it."""

    def __init__(self) -> None:
        self.outer = Outer()
        self.lobby = Lobby(self.outer)
        self.served: list[Any] = []
        self.all: list[Transport] = []

    def enter(self, count: int) -> list[Transport]:
        made = [Transport(self.lobby, self.served) for _ in range(count)]
        for one in made:
            one.startReading()  # type: ignore[no-untyped-call]
        self.all += made
        return made

    def turn(self) -> list[Any]:
        """Who was served, and what it said; then what was to be done later."""
        del self.served[:]
        self.lobby.doRead()
        due, self.outer.later = self.outer.later, []
        for delay, fn, args in due:
            assert delay == 0
            fn(*args)
        return list(self.served)

    def close(self) -> None:
        for one in self.all:
            one.near.close()
            one.far.close()
        if self.lobby in self.outer.readers:
            self.lobby.close()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """Where a share is long."""
    monkeypatch.setattr(lobbies, "SHARE_S", 60.0)
    with closing(Room()) as made:
        yield made


def test_one_after_the_other_and_a_share_of_each_turn(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one, however short the share is; in the order in which they spoke; who speaks again is last."""
    first, second, third = room.enter(3)
    for one in (second, third, first):
        one.far.send(b"a")
    monkeypatch.setattr(lobbies, "SHARE_S", 0.0)
    assert room.turn() == [(second, b"a")]
    second.far.send(b"b")
    assert room.turn() == [(third, b"a")]
    monkeypatch.setattr(lobbies, "SHARE_S", 60.0)
    assert room.turn() == [(first, b"a"), (second, b"b")]
    assert room.turn() == []


def test_a_turn_ends_with_its_share(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock."""
    monkeypatch.setattr(lobbies, "SHARE_S", 0.0003)
    now = iter([0.0, 0.0001, 0.0002, 0.0004, 1.0, 1.0])
    room.outer.seconds = lambda: next(now)
    everyone = room.enter(5)
    for one in everyone:
        one.far.send(b"a")
    assert [one for one, _ in room.turn()] == everyone[:3]


def test_who_leaves_is_served_by_the_reactor(room: Room) -> None:
    """For what it waited for: to read, to write, both, or neither while it is paused; what is asked then, too."""
    reading, writing, both, paused = everyone = room.enter(4)
    for one in (writing, paused):
        one.stopReading()  # type: ignore[no-untyped-call]
    for one in (writing, both):
        one.startWriting()  # type: ignore[no-untyped-call]
    for one in everyone:
        leave(one)
        leave(one)
        one.far.send(b"a")
    assert room.outer.readers == {room.lobby, reading, both}
    assert room.outer.writers == {writing, both}
    assert room.turn() == []
    paused.startReading()  # type: ignore[no-untyped-call]
    assert paused in room.outer.readers


def test_who_waits_in_no_lobby_need_not_leave() -> None:
    """Neither a transport of another reactor nor one that has none."""
    outer = Outer()
    elsewhere = Transport(outer, [])
    leave(elsewhere)
    leave(object())
    assert elsewhere.reactor is outer
    elsewhere.near.close()
    elsewhere.far.close()


def test_writers_wait_too(room: Room) -> None:
    """And only while they want to."""
    writing, _ = room.enter(2)
    writing.startWriting()  # type: ignore[no-untyped-call]
    room.turn()
    room.turn()
    assert writing.written == 1
    writing.far.send(b"a")
    writing.startWriting()  # type: ignore[no-untyped-call]
    assert room.turn() == [(writing, b"a")]
    assert writing.written == 2


def test_who_goes_is_lost_and_nobody_else(room: Room) -> None:
    """Whether it closed its end, or serving it failed, which is logged; the others go on."""
    closed, failing, good, half = room.enter(4)
    closed.far.close()
    failing.fails = True
    half.stopReading()  # type: ignore[no-untyped-call]
    half.startWriting()  # type: ignore[no-untyped-call]
    for one in (failing, good):
        one.far.send(b"a")
    with log_lines() as lines:
        assert room.turn() == [(good, b"a")]
    assert closed.lost is not None
    assert closed.lost.check(ConnectionDone)
    assert failing.lost is not None
    assert failing.lost.check(Panic)
    assert lines == ["a connection could not be served"]
    assert (good.lost, half.lost) == (None, None)
    good.far.send(b"b")
    assert room.turn() == [(good, b"b")]


def test_the_port_waits_here_too(room: Room) -> None:
    """It takes few at once, however many it would; what it and transports ask of the time, the reactor does."""
    served: list[Any] = []
    port = room.lobby.adoptStreamPort(0, 0, served)
    room.all.append(port)
    assert port not in room.outer.readers
    port.far.send(b"a")
    room.turn()
    assert served == [(port, b"a")]
    assert port.numberAccepts == ACCEPTED_AT_ONCE
    room.lobby.callLater(3.0, print, 1, 2)
    assert room.outer.later == [(3.0, print, (1, 2))]


def test_twisteds_port_and_transports_wait_in_it() -> None:
    """Connections come, are answered, leave, go on outside, and are lost on either side of the door."""

    class Echo(Protocol):
        def dataReceived(self, data: bytes) -> None:
            if data == b"leave":
                leave(self.transport)
            self.transport.write(type(self.transport.reactor).__name__.encode())  # type: ignore[union-attr]

        def connectionLost(self, reason: Failure = Failure(CONNECTION_DONE)) -> None:  # type: ignore[no-untyped-call]
            lost.append(self)

    lost: list[Echo] = []

    async def begin() -> tuple[Lobby, Any]:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            bound.setblocking(False)
            lobby = Lobby(twisted)
            return lobby, lobby.adoptStreamPort(bound.fileno(), bound.family, Factory.forProtocol(Echo))

    lobby, port = run(begin)
    address = ("127.0.0.1", port.getHost().port)
    peers = [socket.create_connection(address, 60) for _ in range(3 * ACCEPTED_AT_ONCE)]
    outside = b""
    for number, peer in enumerate(peers):
        peer.sendall(b"stay")
        assert peer.recv(100) == b"Lobby"
        if number % 2:
            peer.sendall(b"leave")
            outside = peer.recv(100)
            assert outside not in (b"", b"Lobby")
            peer.sendall(b"more")
            assert peer.recv(100) == outside
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b""
        peer.close()

    async def end() -> None:
        await port.stopListening()
        lobby.close()

    run(end)
    assert len(lost) == len(peers)


def test_the_lobby_may_close_when_the_last_one_goes(room: Room) -> None:
    """A bookie that stops waits for nobody else, and nothing asks a closed lobby."""
    (last,) = room.enter(1)
    last.ends = room.lobby.close
    last.far.close()
    room.turn()
    assert last.lost is not None
    assert room.outer.readers == set()


def test_a_large_frame_of_a_stranger_is_read_in_large_pieces() -> None:
    """It has a deadline; what else a stranger sends is read in small ones, as long as nothing was given to it."""
    scene = Scene()
    client, large = scene.connect(), adds(bytes(1 << 20))
    sizes = [client.wire.bufferSize]
    for data in (large[:100], large[100:-1], large[-1:], large[:100] + large[100:]):
        client.send(data)
        sizes.append(client.wire.bufferSize)
    assert sizes == [STRANGERS_RECEIVE_BYTES, RECEIVE_BYTES, RECEIVE_BYTES, RECEIVE_BYTES, RECEIVE_BYTES]
    refused = scene.connect()
    large = adds(bytes(1 << 20), digest=Digest(DigestType.CRC32C, b"wrong"))
    sizes = []
    for data in (large[:100], large[100:]):
        refused.send(data)
        sizes.append(refused.wire.bufferSize)
    assert sizes == [RECEIVE_BYTES, STRANGERS_RECEIVE_BYTES]


def test_a_stranger_owes_what_it_can_hold() -> None:
    """Its transport keeps less of its answers before it stops than that of one who is at work."""
    scene = Scene()
    stranger, at_work = scene.connect(), scene.connect()
    at_work.ask(adds(b"a"))
    for client, kept in ((stranger, STRANGERS_RECEIVE_BYTES), (at_work, RECEIVE_BYTES)):
        client.wire.chokes_at = 0
        client.send(read(1))
        assert kept < scene.service.reads.blocked.held.get(client.connection, 0) < kept + 100


def test_an_entry_by_a_long_poll_lets_a_reader_leave() -> None:
    """It asks for nothing else from then on."""
    scene = Scene()
    writer, reader = scene.connect(), scene.connect()
    writer.ask(adds(b"a"))
    reader.send(read3(1, previous_lac=-1, timeout_ms=10_000, piggyback=True))
    assert (reader.replies(), reader.connection.settled) == ([], False)
    writer.ask(adds(b"b", first=1, lac=0))
    assert len(reader.replies()) == 1
    assert reader.connection.settled


def test_who_is_given_something_leaves() -> None:
    """An add on disk or an entry, by V2 and V3; not a refusal, "no entry", nor a force, which stores nothing."""
    scene = Scene(at_once=False)
    two, three, reader, other = (scene.connect() for _ in range(4))
    for client in (two, three):
        client.send(read(0) if client is two else read3(1, 0))
        assert len(client.replies()) == 1
    assert not any(client.connection.settled for client in (two, three))
    other.send(v3.pack_request(ReadLac(1 << 40, txn=2)))
    assert len(other.replies()) == 1
    other.send(v3.pack_request(Force(1 << 40, txn=3)))
    two.send(adds(b"x"))
    three.send(adds3(2, b"y", first=1))
    assert not any(client.connection.settled for client in (two, three))
    scene.storage.sync()
    assert all(client.connection.settled for client in (two, three))
    assert len(other.replies()) == 1
    reader.send(read(0))
    assert (reader.connection.settled, other.connection.settled) == (True, False)
