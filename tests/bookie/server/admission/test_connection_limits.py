"""
Who goes when peers are too many, hold too much, or are too slow: of one address and altogether.  Nothing that costs a
peer little saves it.
"""

import pytest

from quire.bookie.server.admission.connection_limits import (
    ENDED_AT_ONCE,
    FLOOR_FRAME_BYTES,
    FLOOR_S,
    IDLEST,
    LATE_AT_ONCE,
)
from quire.bookie.server.listener import CLOSE_S, LATE_REST_S, RECEIVE_BYTES
from quire.protocol.errors import Status
from tests.bookie.fakes.wires import Client, Scene, adds, read
from tests.bookie.server.test_listener import log_lines

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
HERE, THERE, ELSEWHERE = "192.0.2.1", "192.0.2.2", "192.0.2.3"
FRAME = adds(bytes(4 * MIB))


def aborted(clients: list[Client]) -> list[bool]:
    return [client.wire.aborted for client in clients]


def served(scene: Scene, count: int, host: str = HERE) -> list[Client]:
    """Connections that asked something, one a second."""
    found = []
    for _ in range(count):
        found.append(scene.connect(host))
        found[-1].ask(read(0))
        scene.clock.advance(1)
    return found


# --- connections


def test_over_the_share_of_an_address_one_of_it_goes() -> None:
    """The oldest that never asked; those of other addresses, and its own that are served, stay."""
    scene = Scene(connections_per_address_max=3)
    elsewhere = scene.connect(THERE)
    asked, *silent = [scene.connect() for _ in range(3)]
    asked.ask(read(0))
    with log_lines() as lines:
        more = [scene.connect() for _ in range(2)]
    assert aborted([elsewhere, asked, *silent, *more]) == [False, False, True, True, False, False]
    assert "192.0.2.1:1003: more than 3 of its address are open (connectionsPerAddressMax)" in lines[0]
    assert more[1].ask(read(0)).status is Status.ENOLEDGER
    assert len(scene.listener.connections) == 4


def test_those_that_only_flush_their_answers_count_for_descriptors() -> None:
    """Over the number of connections the oldest of them goes at once; nobody who is served makes room for it."""
    scene = Scene(connections_max=4)
    asked = served(scene, 2)
    closing = [scene.connect().send(b"\xff\xff\xff\xff") for _ in range(3)]
    assert [each.closed for each in closing] == [True] * 3
    assert aborted([*asked, *closing]) == [False, False, True, False, False]
    for left in (2, 3):
        asked += served(scene, 1)
        assert aborted([*asked, *closing]) == [False] * len(asked) + [True] * left + [False] * (3 - left)
    assert len(scene.listener.connections) == 4
    scene.clock.advance(CLOSE_S)
    assert aborted([*asked, *closing]) == [False] * 4 + [True] * 3


def test_addresses_of_one_network_are_one() -> None:
    """Of IPv6, whose machines have many; an address of IPv4 is the same in both families."""
    scene = Scene(connections_per_address_max=2)
    clients = [scene.connect(f"2001:db8::{number}:1") for number in range(3)]
    other = scene.connect("2001:db8:0:1::1")
    fours = [scene.connect(host) for host in (HERE, f"::ffff:{HERE}", HERE)]
    assert aborted([*clients, other, *fours]) == [True, False, False, False, True, False, False]


def test_a_flood_of_connections_that_ask_nothing_ends_itself() -> None:
    """From any number of addresses; who was served before is not touched, however long ago."""
    scene = Scene(connections_max=20)
    good = served(scene, 10)
    scene.clock.advance(1000)
    flood = [scene.connect(f"198.51.100.{number}") for number in range(200)]
    assert aborted(good) == [False] * 10
    assert aborted(flood) == [True] * 190 + [False] * 10


def test_without_such_the_longest_idle_goes() -> None:
    """One after the other, and not one that asked again, or went, since it was found to be idle."""
    scene = Scene(connections_max=IDLEST + 5)
    clients = served(scene, IDLEST + 5)
    first = served(scene, 1, THERE)[0]
    assert clients[0].wire.aborted
    clients[1].ask(read(0))
    clients[2].lose()
    served(scene, IDLEST + 1, THERE)
    assert aborted(clients) == [True, False, False, *[True] * IDLEST, False, False]
    assert len(scene.listener.connections) == IDLEST + 5
    assert not first.wire.aborted


def test_of_a_crowded_address_too() -> None:
    """The share ends with the longest idle of the address."""
    scene = Scene(connections_per_address_max=3)
    elsewhere, here = served(scene, 3, THERE), served(scene, 3)
    more = served(scene, 2)
    assert aborted([*elsewhere, *here, *more]) == [False] * 3 + [True, True, False] + [False] * 2


def test_a_byte_is_no_activity() -> None:
    """Only whole requests are."""
    scene = Scene(connections_max=2)
    dribbling, asking = served(scene, 2)
    dribbling.send(FRAME[:1])
    scene.connect().ask(read(0))
    assert aborted([dribbling, asking]) == [True, False]


def test_nothing_is_left_of_those_who_went() -> None:
    """Neither accounts nor bytes, whichever way they ended."""
    scene = Scene()
    clients = [scene.connect(f"192.0.2.{number}") for number in range(9)]
    for number, client in enumerate(clients):
        client.send(FRAME[:1000] if number % 2 else read(0) + FRAME[:100])
    assert (len(scene.listener.limits.open.by_address), scene.listener.limits.partial.total) == (9, 4 * 1000 + 5 * 100)
    for client in clients[:3]:
        client.lose()
    for client in clients[3:6]:
        client.connection.close()
        client.lose()
    for client in clients[6:]:
        client.send(b"\xff" * 8 * MIB)
    assert (len(scene.listener.limits.open.by_address), scene.listener.limits.partial.total) == (0, 0)
    assert len(scene.listener.connections) == 0


# --- bytes of frames that are not whole


def test_over_the_share_of_an_address_one_of_its_frames_goes() -> None:
    """The share is two of the largest frames at least; those of other addresses stay."""
    scene = Scene(partial_bytes_per_address_max=MIB)
    elsewhere = [scene.connect(THERE).send(FRAME[: 4 * MIB]) for _ in range(2)]
    scene.clock.advance(1)
    clients = []
    with log_lines() as lines:
        for _ in range(4):
            clients.append(scene.connect().send(FRAME[: 4 * MIB]))
            scene.clock.advance(1)
    assert aborted([*elsewhere, *clients]) == [False, False, True, True, False, False]
    assert "192.0.2.1:1003" in lines[0]
    assert "partialFramesPerAddressSizeMB" in lines[0]
    assert scene.listener.limits.partial.total == 16 * MIB


def test_the_slowest_of_the_largest_goes() -> None:
    """Neither the oldest, of which there is little, nor a large one that came fast."""
    scene = Scene(partial_bytes_max=MIB)
    oldest = scene.connect(HERE).send(FRAME[:100])
    scene.clock.advance(10)
    slow = scene.connect(THERE).send(FRAME[:100])
    scene.clock.advance(8)
    fast = scene.connect(ELSEWHERE).send(FRAME[:100])
    scene.clock.advance(1)
    slow.send(FRAME[100 : 4 * MIB])
    fast.send(FRAME[100 : 4 * MIB])
    last = scene.connect(ELSEWHERE).send(FRAME[: 3 * MIB])
    assert aborted([oldest, slow, fast, last]) == [False, True, False, False]
    fast.send(FRAME[4 * MIB :])
    assert len(fast.replies()) == 1


def test_many_small_ones_go_together() -> None:
    """For a look at all is long: a sixteenth of the room is free after it, and the next ones need no look."""
    scene = Scene()
    piece = FRAME[: 8 << 10]
    clients = [scene.connect(f"198.51.{number // 250}.{number % 250}").send(piece) for number in range(6 << 10)]
    assert sum(aborted(clients)) == 0
    scene.clock.advance(1)
    clients.append(scene.connect(THERE).send(piece))
    assert sum(aborted(clients)) == ENDED_AT_ONCE
    clients += [scene.connect(THERE).send(piece) for _ in range(ENDED_AT_ONCE - 1)]
    assert sum(aborted(clients)) == ENDED_AT_ONCE
    assert scene.listener.limits.partial.total == 48 * MIB


def test_large_ones_go_one_by_one() -> None:
    """None goes for room that nobody asked for yet."""
    scene = Scene()
    clients = [scene.connect(f"198.51.100.{number}").send(FRAME[: 4 * MIB]) for number in range(12)]
    assert sum(aborted(clients)) == 0
    scene.clock.advance(1)
    for number in range(1, 4):
        scene.connect(THERE).send(FRAME[: 4 * MIB])
        assert sum(aborted(clients)) == number


# --- how fast frames grow


def grow(scene: Scene, client: Client, seconds: int, step: int, start: int) -> None:
    """The same number of bytes each second, of the frame from `start` on."""
    for number in range(seconds):
        at = start + number * step
        client.send(FRAME[at : at + step])
        scene.clock.advance(1)


def test_a_large_frame_must_grow() -> None:
    """One that stands still, or nearly, ends after a look or two."""
    scene = Scene(partial_frame_bytes_per_second_min=1000)
    slow, fast, small = scene.connect(HERE), scene.connect(THERE), scene.connect(ELSEWHERE)
    small_frame = adds(bytes(FLOOR_FRAME_BYTES - 100))
    assert len(small_frame) <= FLOOR_FRAME_BYTES
    small.send(small_frame[:100])
    slow.send(FRAME[: 2 * MIB])
    fast.send(FRAME[:100])
    with log_lines() as lines:
        for second in range(int(2 * FLOOR_S)):
            slow.send(FRAME[2 * MIB + second * 900 :][:900])
            fast.send(FRAME[100 + second * 1100 :][:1100])
            scene.clock.advance(1)
    assert aborted([slow, fast, small]) == [True, False, False]
    assert any("192.0.2.1:1001" in line and "partialFrameBytesPerSecondMin" in line for line in lines), lines
    assert scene.listener.complaints.counts == {"slow frames": 1}


def test_large_frames_one_after_the_other_are_no_slow_one() -> None:
    """A look compares a frame with itself."""
    scene = Scene(partial_frame_bytes_per_second_min=1000)
    client = scene.connect().send(FRAME[:MIB])
    for entry in range(1, 5):
        scene.clock.pump([1.0] * int(FLOOR_S - 1))
        following = adds(bytes(4 * MIB), first=entry)
        client.send(FRAME[MIB:] + following[:MIB])
        scene.clock.advance(1)
        assert not client.wire.aborted
        client.send(following[MIB:] + FRAME[:MIB])
        client.take()


def test_without_a_floor_there_is_only_the_deadline() -> None:
    """As the option says."""
    scene = Scene(partial_frame_bytes_per_second_min=0)
    client = scene.connect().send(FRAME[: 2 * MIB])
    scene.clock.pump([1.0] * 59)
    assert not client.wire.aborted
    scene.clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_who_is_not_read_from_has_time() -> None:
    """What it sent waits for the journal; its frame's time goes on when it is read from again."""
    scene = Scene(connection_pending_bytes_max=MIB, partial_frame_ms_max=30_000)
    scene.storage.room = 0
    client = scene.connect().send(adds(bytes(MIB)) + FRAME[: 2 * MIB])
    assert client.wire.paused
    scene.clock.pump([1.0] * 100)
    scene.storage.room = 9
    scene.service.relieved()
    assert not client.wire.paused
    grow(scene, client, 29, 70_000, 2 * MIB)
    assert not client.wire.aborted
    scene.clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_not_taking_answers_gains_nothing() -> None:
    """A frame's deadline goes on while its sender does not take its answers, and is not put off when it takes one."""
    scene = Scene(partial_frame_ms_max=30_000, partial_frame_bytes_per_second_min=0)
    scene.connect().send(adds(bytes(RECEIVE_BYTES)))
    client = scene.connect()
    client.wire.chokes_at = RECEIVE_BYTES
    client.send(read(0) * 9 + FRAME[:MIB])
    for _ in range(2):
        assert client.wire.paused
        scene.clock.pump([1.0] * 14)
        client.take()
        assert not client.wire.aborted
    scene.clock.pump([1.0] * 3)
    assert client.wire.aborted


def test_a_slow_reader_may_have_a_small_request_here_in_part() -> None:
    """We stopped in the middle of it; it is served when its sender takes its answers again, however late that is."""
    scene = Scene(partial_frame_ms_max=5000)
    scene.connect().send(adds(bytes(RECEIVE_BYTES)))
    client = scene.connect()
    client.wire.chokes_at = RECEIVE_BYTES
    client.send(read(0) + read(0)[:9])
    assert client.wire.paused
    scene.clock.pump([1.0] * 600)
    client.take()
    scene.clock.pump([1.0] * 4)
    client.send(read(0)[9:])
    assert not client.wire.aborted
    assert len(client.replies()) == 1


def test_a_large_frame_need_not_grow_while_its_sender_takes_no_answers() -> None:
    """Until its deadline: nothing is read of it then."""
    scene = Scene(partial_frame_ms_max=50_000)
    scene.connect().send(adds(bytes(RECEIVE_BYTES)))
    client = scene.connect()
    client.wire.chokes_at = RECEIVE_BYTES
    client.send(read(0) + FRAME[:MIB])
    scene.clock.pump([1.0] * 49)
    assert not client.wire.aborted
    scene.clock.pump([1.0] * 2)
    assert client.wire.aborted


def test_those_who_are_late_together_are_ended_in_several_turns() -> None:
    """The others are served between them."""
    scene = Scene(partial_frame_ms_max=5000)
    clients = [scene.connect(f"192.0.2.{number}").send(FRAME[:1]) for number in range(int(2.5 * LATE_AT_ONCE))]
    scene.clock.advance(5)
    for ended in (LATE_AT_ONCE, 2 * LATE_AT_ONCE, len(clients), len(clients)):
        assert sum(aborted(clients)) == ended
        scene.clock.advance(LATE_REST_S)


@pytest.mark.parametrize("kind", ["too many connections of an address", "their silence"])
def test_each_is_counted(kind: str) -> None:
    """By its reason, however many lines the log has of it."""
    scene = Scene(**{"connections_max": 2} if kind == "their silence" else {"connections_per_address_max": 2})
    with log_lines() as lines:
        for _ in range(102):
            scene.connect()
    assert scene.listener.complaints.counts == {kind: 100}
    assert len(lines) == 1
