"""Connections (wire.md 1): what closes one, what stops reading from it, and that other connections go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from quire.bookie.server.listener import CLOSE_S, PAUSE_ALARM_S
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, ReadReply
from tests.bookie.fakes.wires import KEY, LEDGER, Scene, adds, adds3, read

# SPDX-License-Identifier: Apache-2.0

S = Status


@contextmanager
def log_lines() -> Iterator[list[str]]:
    """What is logged meanwhile, as text."""
    from twisted.logger import formatEvent

    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)


def test_v3_then_v2_works_once() -> None:
    """And V3 after V2 closes the connection."""
    scene = Scene()
    client = scene.connect()
    assert client.send(adds3(1, b"a")).take()[4] == 0x0A
    assert client.send(adds(b"b", first=1)).take()[4] == 2
    with log_lines() as lines:
        client.send(adds3(2, b"c", first=2))
    assert client.closed
    assert any("192.0.2.1:1001" in line for line in lines), lines


@pytest.mark.parametrize(
    ("head", "answer"), [("00000002", "00000002"), ("01020000", "01020000"), ("02020000", "02020000")]
)
def test_old_versions_of_v2(head: str, answer: str) -> None:
    """0, 1 and 2 are spoken; the answer echoes version and opcode."""
    client = Scene().connect()
    assert client.send(bytes.fromhex(f"00000014{head}") + bytes(16)).take()[4:8] == bytes.fromhex(answer)


def test_version_3_of_v2_gives_bad_version() -> None:
    """A V2 request of an unknown protocol version gets EBADVERSION."""
    assert Scene().connect().ask(read(0, version=3)).status is S.EBADVERSION


BAD = {
    "opcode 4": "0000001402040000" + "00" * 16,
    "opcode 5": "0000001402050000" + "00" * 16,
    "opcode 6": "0000001402060000" + "00" * 16,
    "opcode 8": "0000001402080000" + "00" * 16,
    "opcode 255": "0000001402ff0000" + "00" * 16,
    "short read": "0000001302020000" + "00" * 15,
    "fence read without key": "0000001402020001" + "00" * 16,
    "short add": "0000002702010000" + "00" * 35,
    "short batch": "0000002702070000" + "00" * 35,
    "empty frame": "00000000",
    "oversized": "00504000",
    "negative length": "fffffffb",
    "three bytes": "00000003020100",
    "broken protobuf": "000000050a06080310",
    "junk": "00000010" + "7f" * 16,
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_the_protocol_closes_that_connection_only(name: str) -> None:
    """No answer, a line that names the peer, and everybody else is served."""
    scene = Scene()
    good, bad = scene.connect(), scene.connect()
    good.send(adds(b"a")).take()
    with log_lines() as lines:
        bad.send(bytes.fromhex(BAD[name]))
    assert bad.closed
    assert bad.take() == b""
    assert len([line for line in lines if "closing the connection from 192.0.2.1:1002" in line]) == 1, lines
    assert scene.listener.malformed == 1
    bad.send(adds(b"b", first=1)).send(bytes.fromhex(BAD[name]))
    assert bad.take() == b"", "nothing is served after the end"
    assert scene.listener.malformed == 1
    assert 1 not in scene.storage.kept[LEDGER].entries
    assert good.ask(read(0)).status is S.EOK
    assert not good.closed


def test_requests_before_the_bad_one_are_served() -> None:
    """Requests before a malformed frame in the same bytes get their answers, then the connection closes."""
    scene = Scene()
    client = scene.connect()
    client.send(adds(b"a") + read(0) + bytes.fromhex(BAD["opcode 8"]))
    assert [type(reply) for reply in client.replies()] == [AddAcks, ReadReply]
    assert client.closed


def test_frames_may_come_byte_by_byte() -> None:
    """Requests that arrive in single bytes are served like whole ones."""
    scene = Scene()
    client = scene.connect()
    for byte in adds(b"a", b"b") + read(1):
        client.send(bytes((byte,)))
    assert [type(reply) for reply in client.replies()] == [AddAcks, ReadReply]
    assert scene.storage.kept[LEDGER].entries.keys() == {0, 1}


def test_a_fault_of_ours_closes_that_connection_only() -> None:
    """A half-served request is never continued."""
    scene = Scene()
    good, bad = scene.connect(), scene.connect()
    scene.storage.add = None  # type: ignore[assignment,method-assign]
    with log_lines() as lines:
        bad.send(adds(b"a"))
    assert bad.closed
    assert any("192.0.2.1:1002: a request could not be served" in line for line in lines)
    assert good.ask(read(0)).status is S.ENOLEDGER


def test_silent_connections_stay_open() -> None:
    """Java clients connect early and say nothing for long."""
    scene = Scene()
    client = scene.connect()
    scene.clock.pump([1.0] * 600)
    assert not client.closed
    assert client.ask(adds(b"a")).status is S.EOK


def test_a_partial_frame_has_a_deadline() -> None:
    """Also one that trickles in; a whole frame starts a new one."""
    scene = Scene(partial_frame_ms_max=5000)
    slow, fine = scene.connect(), scene.connect()
    frame = adds(bytes(100))
    slow.send(frame[:5])
    fine.send(frame + frame[:5])
    for at in range(5, 9):
        scene.clock.advance(1)
        slow.send(frame[at : at + 1])
        fine.send(frame[at:] + frame[: at + 1])
    with log_lines() as lines:
        scene.clock.advance(1)
    assert slow.wire.aborted
    assert any("192.0.2.1:1001: a frame was not whole after 5 s" in line for line in lines)
    assert not fine.closed


def test_over_the_cap_the_longest_idle_goes() -> None:
    """A connection above the maximum is accepted, and the one that was idle longest is aborted."""
    scene = Scene(connections_max=3)
    clients = []
    for _ in range(3):
        clients.append(scene.connect())
        scene.clock.advance(1)
    clients[0].send(adds(b"a"))
    fourth = scene.connect()
    assert [client.wire.aborted for client in clients] == [False, True, False]
    assert fourth.ask(read(0)).status is S.EOK
    assert len(scene.listener.connections) == 3
    assert scene.listener.accepted == 4


# --- pressure


def test_beyond_the_bound_reading_stops_until_half_of_it_is_gone() -> None:
    """A connection with too many pending bytes is paused, alone, until half of them are answered."""
    scene = Scene(connection_pending_bytes_max=1 << 20)
    scene.storage.room = 0
    client, other = scene.connect(), scene.connect()
    for entry in range(4):
        assert not client.wire.paused
        client.send(adds(bytes(300_000), first=entry))
    assert client.wire.paused
    assert not other.wire.paused
    scene.storage.room = 1
    scene.service.relieved()
    assert client.wire.paused, "still above half"
    scene.storage.room = 9
    scene.service.relieved()
    assert not client.wire.paused


def test_all_connections_together_park_so_much_and_no_more() -> None:
    """
    Beyond the common bound a peer that has parked something is not read from; the others are, and none is stuck in the
    end.
    """
    scene = Scene(pending_bytes_max=1 << 20)
    scene.storage.room = 0
    clients = [scene.connect() for _ in range(4)]
    for number, client in enumerate(clients[:3]):
        client.send(adds(bytes(400_000), ledger=number))
    assert [client.wire.paused for client in clients] == [False, False, True, False]
    assert clients[3].ask(read(0)).status is S.ENOLEDGER
    clients[0].send(adds(b"x", first=1, ledger=0))
    assert clients[0].wire.paused
    scene.storage.room = 99
    scene.service.relieved()
    assert not any(client.wire.paused for client in clients)
    assert scene.service.parking.pending.total == 0


def test_of_those_who_send_their_first_large_entry_no_more_than_twice_the_bound_waits() -> None:
    """
    Beyond it a frame is read no further, with its deadline put off, until less waits; what is small passes, on the
    same connections, too, before they send such a frame.
    """
    scene = Scene(pending_bytes_max=1 << 20, partial_frame_ms_max=10_000)
    scene.storage.room = 0
    frames = [adds(bytes(400_000), ledger=number) for number in range(40)]
    clients = [scene.connect() for _ in frames]
    for client, frame in zip(clients, frames, strict=True):
        assert client.ask(read(0)).status is S.ENOLEDGER
        for start in range(0, len(frame), 100_000):
            if not client.wire.paused:
                client.send(frame[start : start + 100_000])
    assert [client.wire.paused for client in clients] == [False] * 2 + [True] * 38
    assert 2 << 20 <= scene.service.parking.pending.total < (2 << 20) + 500_000
    assert scene.service.parking.runs == 6
    scene.clock.pump([1.0] * 20)
    assert len(scene.listener.connections) == 40
    clients.pop().lose()
    assert all(client.wire.paused for client in clients[6:])
    clients.pop(5).lose()
    assert not any(client.wire.paused for client in clients[5:])
    scene.clock.pump([1.0] * 5)
    scene.storage.room = 99
    scene.service.relieved()
    assert not any(client.wire.paused for client in clients)
    for client, frame in zip(clients[5:], frames[6:39], strict=True):
        client.send(frame[100_000:])
    assert [ledger for ledger, _first, _count in scene.storage.taken] == [*range(5), *range(6, 39)]
    assert scene.service.parking.pending.total == 0


def test_a_long_pause_is_reported_once() -> None:
    """Peers give up at five seconds."""
    scene = Scene(connection_pending_bytes_max=1 << 20)
    scene.storage.room = 0
    client = scene.connect()
    client.send(adds(bytes(1 << 20)))
    with log_lines() as lines:
        scene.clock.pump([1.0] * int(PAUSE_ALARM_S + 3))
    assert len([line for line in lines if "nothing was read from 192.0.2.1:1001" in line]) == 1, lines
    scene.storage.room = 9
    scene.service.relieved()
    assert not client.wire.paused


def test_a_peer_that_takes_no_answers_is_not_read_from() -> None:
    """Reading pauses while the send buffer is full."""
    scene = Scene()
    client = scene.connect()
    client.wire.chokes_at = 100
    client.send(adds(*[b"x"] * 10))
    assert client.wire.paused
    client.take()
    assert not client.wire.paused


def test_answers_for_a_lost_connection_go_nowhere() -> None:
    """Answers that become ready after the connection is lost are dropped, and nothing waits for them."""
    scene = Scene(at_once=False)
    client = scene.connect().send(adds(b"a")).send(read(0, fence=True, master_key=KEY))
    client.lose()
    scene.storage.sync()
    assert client.take() == b""
    assert scene.service.reads.waiting.total == 0


# --- closing


def test_close_all_waits_for_the_last_answers() -> None:
    """A connection that does not flush is ended by force."""
    scene = Scene()
    clients = [scene.connect(), scene.connect()]
    ended = scene.listener.close_all()
    assert all(client.closed for client in clients)
    assert not ended.called
    clients[0].lose()
    assert not ended.called
    scene.clock.advance(CLOSE_S)
    assert clients[1].wire.aborted
    clients[1].lose()
    assert ended.called
    assert scene.listener.close_all().called


def test_a_connections_fields_are_slots() -> None:
    """All its own: a dictionary for each of ten thousand connections would be memory that any peer can take."""
    client = Scene().connect().send(adds(b"a"))
    assert vars(client.connection).keys() <= {"connected", "factory", "transport"}
