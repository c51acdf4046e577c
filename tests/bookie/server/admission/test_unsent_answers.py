"""
Answers that peers do not take: what all of them are counted as, and who is ended when these are too many.
"""

from quire.bookie.server.listener import RECEIVE_BYTES
from tests.bookie.fakes.wires import Client, Scene, read
from tests.bookie.server.test_bounds import MIB, SMALL, choking, frames, large
from tests.bookie.server.test_listener import log_lines

# SPDX-License-Identifier: Apache-2.0


def test_answers_of_all_connections() -> None:
    """Beyond the bound those go that took none for the longest time; who takes them stays."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene)
    stuck = [choking(scene) for _ in range(4)]
    fine = choking(scene)
    for client in stuck[:3]:
        client.send(read(0))
        assert frames(fine.send(read(0)).take()) == 1
    assert 3 * (MIB + RECEIVE_BYTES) <= scene.service.reads.blocked.total <= 3 * (MIB + RECEIVE_BYTES + SMALL)
    with log_lines() as lines:
        stuck[3].send(read(0))
        assert not stuck[0].wire.aborted, "not inside of what is being done"
        scene.clock.advance(0)
    assert [client.wire.aborted for client in stuck] == [True, False, False, False]
    assert any("192.0.2.1:1002" in line and "answersSizeMB" in line for line in lines), lines
    assert scene.service.reads.blocked.total <= 4 * MIB
    stuck[1].take()
    stuck[2].lose()
    assert 0 < scene.service.reads.blocked.total <= MIB + 2 * RECEIVE_BYTES
    stuck[3].take()
    assert scene.service.reads.blocked.total == 0
    assert not fine.closed


def test_who_takes_all_but_the_last_bytes_is_owed_no_more_than_those() -> None:
    """Or a few such would have every other reader that is choked read for one answer at a time."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene)
    for _ in range(6):
        wire = choking(scene).send(read(0)).wire
        left = wire.value()[-1000:]
        wire.clear()
        wire.io.write(left)
        scene.clock.advance(0)
    assert scene.service.reads.blocked.total == 6 * 1000
    scene.storage.slow = True
    client = choking(scene).send(read(0) * 2)
    scene.storage.answer_reads()
    assert (frames(client.take()), scene.service.tally.reads_again) == (2, 0)


def kept(scene: Scene, clients: list[Client]) -> int:
    """What their transports hold after a turn, and another one for those that were closed."""
    scene.clock.advance(0)
    for client in clients:
        if client.wire.aborted and client.wire.value():
            client.wire.clear()
            client.lose()
    return sum(len(client.wire.value()) for client in clients)


def test_answers_that_choke_nobody_are_in_the_account_of_all() -> None:
    """Each connection may have 256 KiB before it is choked, and there may be ten thousand."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene, 200_000)
    clients = [choking(scene) for _ in range(100)]
    for client in clients:
        client.send(read(0))
        assert kept(scene, clients) <= 4 * MIB + MIB // 2 + RECEIVE_BYTES
    gone = [client.wire.aborted for client in clients]
    assert gone == sorted(gone, reverse=True), "those that took nothing for the longest time"
    assert not any(client.connection.choked for client in clients)


def test_who_takes_its_answers_stays_beside_those_that_take_none() -> None:
    """Also where it is looked at while it has some, and is the oldest."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene, 200_000)
    fine = choking(scene).send(read(0))
    clients = [choking(scene) for _ in range(60)]
    for client in clients:
        client.send(read(0))
        assert kept(scene, [fine, *clients]) <= 4 * MIB + MIB // 2 + RECEIVE_BYTES
        assert frames(fine.take()) == 1
        fine.send(read(0))
    assert not fine.wire.aborted
    assert clients[0].wire.aborted


def test_the_address_that_has_most_answers_pays_for_them() -> None:
    """Those elsewhere have taken nothing for longer, as readers on a slow network do for a while."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene, 200_000)
    slow = [scene.connect(f"198.51.100.{number}").send(read(0)) for number in range(8)]
    clients = [choking(scene) for _ in range(60)]
    with log_lines() as lines:
        for client in clients:
            client.send(read(0))
            assert kept(scene, slow + clients) <= 4 * MIB + MIB // 2 + RECEIVE_BYTES
    assert not any(client.wire.aborted for client in slow)
    assert clients[0].wire.aborted
    assert any("192.0.2.1:" in line and "of its address" in line for line in lines), lines


def test_of_many_addresses_those_go_that_took_none_for_the_longest_time() -> None:
    """None of them has more than half of what is not taken."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene, 200_000)
    clients = [scene.connect(f"198.51.100.{number}") for number in range(60)]
    for client in clients:
        client.send(read(0))
        assert kept(scene, clients) <= 4 * MIB + MIB // 2 + RECEIVE_BYTES
    gone = [client.wire.aborted for client in clients]
    assert (gone[0], gone[-1], gone) == (True, False, sorted(gone, reverse=True))


def test_answers_of_a_connection_that_is_being_closed_count_until_it_has_ended() -> None:
    """It may take its time with them."""
    scene = Scene()
    large(scene)
    client = choking(scene).send(read(0))
    client.connection.close()
    assert MIB < scene.service.reads.blocked.total < MIB + RECEIVE_BYTES + SMALL
    client.lose()
    assert scene.service.reads.blocked.total == 0


def test_after_too_many_small_ones_nearly_an_eighth_is_free() -> None:
    """So the next answers need no look, and none goes for more than that."""
    scene = Scene(answers_bytes_max=4 * MIB)
    large(scene, 60_000)
    clients = [scene.connect(f"198.51.100.{number}").send(read(0)) for number in range(80)]
    scene.clock.advance(0)
    left = sum(len(client.wire.value()) for client in clients if not client.wire.aborted)
    assert 4 * MIB - MIB // 2 <= left < 4 * MIB - MIB // 2 + 60_100
