"""A window over a bookie in virtual time: all of it when idle, little beside others, and back again."""

import heapq
from collections.abc import Callable

import pytest

from quire.replication.core.window import BYTES_MAX, BYTES_MIN, REQUEST_BYTES, SLOW_ROW, SLOW_S, Window

# SPDX-License-Identifier: Apache-2.0


class Bookie:
    """Serves one request after the other: `held` says when it begins, then so many seconds and bytes a second."""

    def __init__(self, seconds: float, rate: float, held: Callable[[float], float] = lambda now: now) -> None:
        self.seconds, self.rate, self.held = seconds, rate, held
        self.free_at = 0.0

    def ends(self, now: float, size: int) -> float:
        self.free_at = self.held(max(now, self.free_at)) + self.seconds + size / self.rate
        return self.free_at


def run(window: Window, bookie: Bookie, size: int, begin: float, end: float) -> tuple[float, float]:
    """A repair that always has more: bytes a second, and the longest that a request waited in the last half."""
    now, under_way, moved, longest = begin, 0, 0, 0.0
    waiting: list[tuple[float, float, int]] = []
    while now < end:
        piece = min(size, window.bytes)
        while not under_way or under_way + piece <= window.bytes:
            heapq.heappush(waiting, (bookie.ends(now, piece), now, piece))
            under_way += piece
        now, began, piece = heapq.heappop(waiting)
        window.answered(piece, began, now)
        under_way -= piece
        moved += piece
        if now > (begin + end) / 2:
            longest = max(longest, now - began)
    return moved / (now - begin), longest


def wide() -> Window:
    """One of a bookie that had all it could do."""
    window = Window()
    window.bytes = BYTES_MAX
    return window


def test_it_begins_small_and_is_wide_after_a_few_answers() -> None:
    """Whoever is there is not overrun; a bookie that nobody uses is asked for all it can give within a moment."""
    window = Window()
    assert window.bytes <= BYTES_MAX / 16
    run(window, Bookie(0.001, 2e8), 256 << 10, 0.0, 0.5)
    assert window.bytes > BYTES_MAX / 4


@pytest.mark.parametrize(("size", "seconds", "rate"), [(REQUEST_BYTES, 0.0002, 1e9), (4 << 20, 0.001, 1e8)])
def test_an_idle_bookie_is_kept_busy(size: int, seconds: float, rate: float) -> None:
    """Small requests and large: nine tenths of what it can do, from the first second on, and no long queue."""
    able = size / (seconds + size / rate)
    for begin in (0.0, 1.0, 10.0):
        window = Window()
        reached, longest = run(window, Bookie(seconds, rate), size, begin, begin + 10)
        assert reached > 0.9 * able
        assert longest < 3 * (size / able + SLOW_S) + 2 * size / rate


def test_a_bookie_that_gives_copies_a_turn_now_and_then_is_asked_for_little() -> None:
    """Twenty turns a second: the window falls to its least within seconds, and what waits is a few requests."""
    window = Window()
    run(window, Bookie(0.001, 2e8), 1 << 20, 0.0, 5.0)
    assert window.bytes > 1 << 20
    turns = Bookie(0.005, 2e8, held=lambda now: (now // 0.05 + 1) * 0.05)
    run(window, turns, 1 << 20, 5.0, 10.0)
    assert window.bytes < 8 * BYTES_MIN


def test_it_takes_everything_again_when_others_have_ended() -> None:
    """Within two seconds nine tenths are reached, and stay."""
    window = Window()
    run(window, Bookie(0.001, 2e8), 1 << 20, 0.0, 5.0)
    run(window, Bookie(0.3, 2e8), 1 << 20, 5.0, 25.0)
    assert window.bytes == BYTES_MIN
    run(window, Bookie(0.001, 2e8), 1 << 20, 25.0, 27.0)
    reached, _ = run(window, Bookie(0.001, 2e8), 1 << 20, 27.0, 30.0)
    assert reached > 0.9 * 2e8 / (1 + 0.001 * 2e8 / (1 << 20))


def test_it_shrinks_once_a_round() -> None:
    """All that waited in one long queue says the same thing."""
    window = wide()
    window.answered(REQUEST_BYTES, 0.0, 0.001)
    for _ in range(100):
        window.answered(REQUEST_BYTES, 0.0, 0.05)
    assert window.bytes == BYTES_MAX // 2
    for _ in range(SLOW_ROW):
        assert window.bytes == BYTES_MAX // 2
        window.answered(REQUEST_BYTES, 0.05, 0.1)
    assert window.bytes == BYTES_MAX // 4


def test_a_very_slow_answer_shrinks_it_to_what_would_have_been_in_time() -> None:
    """A bookie that lets copies wait for a second is left alone after two rounds, not after seven."""
    window = wide()
    window.answered(REQUEST_BYTES, 0.0, 0.001)
    for began in (0.0, 1.0):
        for _ in range(SLOW_ROW):
            window.answered(REQUEST_BYTES, began, began + 1.0)
    assert window.bytes == BYTES_MIN


def test_a_slow_answer_now_and_then_shrinks_nothing() -> None:
    """A disk's sync that takes long is no queue."""
    window = wide()
    for number in range(100):
        window.answered(REQUEST_BYTES, float(number), number + (0.5 if number % SLOW_ROW else 0.001))
    assert window.bytes == BYTES_MAX


def test_a_failure_shrinks_it_however_fast() -> None:
    """A bookie that is too busy says so at once."""
    window = wide()
    for number in range(20):
        window.answered(REQUEST_BYTES, float(number), number + 0.001, failed=True)
    assert window.bytes == BYTES_MIN
    window.answered(REQUEST_BYTES, 30.0, 30.001)
    assert window.bytes > BYTES_MIN
