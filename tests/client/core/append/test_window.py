"""The window: cutting against a naive twin, room, and the length at any point."""

from random import Random

from quire.client.core.append.messages import Limits
from quire.client.core.append.window import Window
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType

DIGEST = Digest(DigestType.CRC32C, b"")


def send(window):
    first, payloads, _size, _length = window.following()
    window.sent(AddBatch(DIGEST, 1, first, -1, window.length, payloads))


def naive_cut(sizes, entries_max, bytes_max):
    """Entry by entry: a new batch begins where the next payload does not fit."""
    batches = [[]]
    for size in sizes:
        if batches[-1] and (len(batches[-1]) == entries_max or sum(batches[-1]) + size > bytes_max):
            batches.append([])
        batches[-1].append(size)
    return batches


def test_cutting_against_a_twin():
    """Batches equal those of a naive cut, on random sizes and limits; ids and bytes are consistent."""
    for seed in range(300):
        random = Random(seed)
        sizes = [random.choice([0, 1, 5, 30, 200]) for _ in range(random.randint(1, 40))]
        limits = Limits(*(random.randint(1, most) for most in (20, 200, 1, 10, 100)))
        window = Window(limits, -1, 0)
        window.take(7, [bytes(size) for size in sizes], None)
        wanted = naive_cut(
            sizes,
            min(limits.batch_entries_max, limits.window_entries_max),
            min(limits.batch_bytes_max, limits.window_bytes_max),
        )
        got = [[len(payload) for payload in waiting.payloads] for waiting in window.waiting]
        assert got == wanted
        assert [waiting.size for waiting in window.waiting] == [sum(batch) for batch in wanted]
        firsts = [waiting.first for waiting in window.waiting]
        assert firsts == [7 + sum(len(batch) for batch in wanted[:place]) for place in range(len(wanted))]
        assert window.waiting_bytes == sum(sizes)


def test_a_list_that_is_larger_than_the_window_is_not_sent_at_once():
    """It is cut to what may be under way, in entries and in bytes."""
    for limits in (Limits(window_entries_max=10), Limits(window_bytes_max=10)):
        window = Window(limits, -1, 0)
        window.take(0, [b"x"] * 900, None)
        while window.has_room(-1):
            send(window)
        assert (window.sent_last, window.flying_bytes) == (9, 10)


def test_a_known_length_goes_along_the_cut():
    """Each batch has the caller's length plus the bytes of the batches before it."""
    window = Window(Limits(batch_entries_max=2), -1, 0)
    window.take(0, [b"aaa"] * 5, 100)
    for _ in range(3):
        send(window)
    assert [batch.length for batch in window.pending] == [100, 106, 112]


def test_length_at_any_head():
    """The length up to any entry is the sum of the payloads up to it."""
    window = Window(Limits(batch_entries_max=3), -1, 0)
    window.take(0, [bytes(size) for size in range(10)], None)
    while window.waiting:
        send(window)
    for head in range(-1, 10):
        window.settle(head)
        assert window.length_at(head) == sum(range(head + 1))
    assert not window.pending
    assert window.flying_bytes == 0


def test_room_is_bounded_by_entries_and_by_bytes_but_never_nothing():
    """A batch above both limits may be sent when nothing is in flight."""
    window = Window(Limits(window_entries_max=4, window_bytes_max=50, batch_entries_max=3), -1, 0)
    window.take(0, [bytes(1000)], None)
    assert window.has_room(-1), "alone it may exceed the window"
    send(window)
    window.take(1, [b"x"], None)
    assert not window.has_room(-1)
    window.settle(0)
    send(window)
    window.take(2, [b"x"] * 3, None)
    assert window.has_room(0)
    send(window)
    window.take(5, [b"x"], None)
    assert not window.has_room(0)
    assert window.has_room(1)


def test_a_batch_into_a_gap_keeps_the_order():
    """Pending batches are ordered by entry id, in whichever order they were sent."""
    window = Window(Limits(), -1, 0)
    for first in (5, 2, 9, 0):
        window.take(first, [b"x"], None)
        send(window)
    assert [batch.first for batch in window.pending] == [0, 2, 5, 9]
    assert window.sent_last == 9


def test_clear_leaves_an_end():
    """After a clear nothing is waiting or in flight, and the head is the one given."""
    window = Window(Limits(batch_entries_max=1), -1, 0)
    window.take(0, [b"abc"] * 3, None)
    send(window)
    window.clear(-1, 0)
    assert (window.sent_last, window.length, window.waiting_bytes, window.flying_bytes) == (-1, 0, 0, 0)
    assert not window.waiting
    assert not window.overfull
