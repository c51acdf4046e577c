"""Several at once: results in order, the first error ends all, and never more workers than were asked for."""

import heapq
from collections.abc import Callable

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from quire.replication.concurrently import (
    BEGIN_AGAIN_S,
    BYTES_MAX,
    BYTES_MIN,
    REQUEST_BYTES,
    SLOW_ROW,
    SLOW_S,
    Bell,
    Pace,
    Portion,
    Share,
    Shared,
    Window,
    all_of,
    each_of,
    kept_up,
)

# SPDX-License-Identifier: Apache-2.0


def test_what_nobody_foresaw_is_begun_again():
    """After a pause; a cancel is the end, and leaves no timer."""
    clock, begun = Clock(), []

    async def story():
        begun.append(clock.seconds())
        raise KeyError("a fault of ours")

    running = Deferred.fromCoroutine(kept_up(clock, story, "it"))
    running.addErrback(lambda _failure: None)
    clock.pump([BEGIN_AGAIN_S] * 2)
    assert begun == [0, BEGIN_AGAIN_S, 2 * BEGIN_AGAIN_S]
    running.cancel()
    assert clock.getDelayedCalls() == []


def test_what_fails_while_it_is_to_end_is_not_begun_again():
    """Nor does its end wait for a pause."""
    clock = Clock()

    async def story():
        raise KeyError("a fault of ours")

    assert Deferred.fromCoroutine(kept_up(clock, story, "it", lambda: True)).called
    assert clock.getDelayedCalls() == []


def test_results_come_in_the_order_of_the_stories():
    """Results are in the order of the coroutines, not of their ends."""
    gates: list[Deferred[int]] = [Deferred(), Deferred()]

    async def story(gate: Deferred[int]) -> int:
        return await gate

    done = Deferred.fromCoroutine(all_of([story(gate) for gate in gates]))
    gates[1].callback(2)
    gates[0].callback(1)
    assert done.result == [1, 2]


def test_the_first_error_cancels_the_others_and_is_raised():
    """A failure cancels the coroutines that still run."""
    never: Deferred[None] = Deferred()
    ended: list[str] = []

    async def waits() -> None:
        try:
            await never
        except CancelledError:
            ended.append("cancelled")
            raise

    async def fails() -> None:
        raise KeyError("first")

    done = Deferred.fromCoroutine(all_of([waits(), fails()]))
    assert ended == ["cancelled"]
    errors: list[object] = []
    done.addErrback(lambda failure: errors.append(failure.value))
    assert isinstance(errors[0], KeyError)


@pytest.mark.parametrize("workers", [1, 3, 10])
def test_every_item_is_worked_on_once_by_a_bounded_number(workers):
    """At most as many items as workers are in progress."""
    busy: list[Deferred[None]] = []
    seen: list[int] = []
    most = 0

    async def source():
        for number in range(7):
            yield number

    async def work(number: int) -> None:
        nonlocal most
        seen.append(number)
        gate: Deferred[None] = Deferred()
        busy.append(gate)
        most = max(most, len(busy))
        await gate

    done = Deferred.fromCoroutine(each_of(source(), work, workers))
    while busy:
        busy.pop(0).callback(None)
    assert done.called
    assert seen == list(range(7))
    assert most == min(workers, 7)


def test_an_error_of_the_source_ends_it():
    """An exception of the iterator is raised to the caller."""

    async def source():
        yield 1
        raise LookupError("the store is down")

    async def work(_number: int) -> None:
        return None

    errors: list[object] = []
    Deferred.fromCoroutine(each_of(source(), work, 2)).addErrback(lambda failure: errors.append(failure.value))
    assert isinstance(errors[0], LookupError)


def test_a_bell_wakes_who_waits():
    """At once when it was rung before, once for many rings, or after the time."""
    clock = Clock()
    bell = Bell(clock)
    bell.ring()
    bell.ring()
    assert Deferred.fromCoroutine(bell.wait()).called
    waiting = Deferred.fromCoroutine(bell.wait(5.0))
    assert not waiting.called
    bell.ring()
    assert waiting.called
    assert clock.getDelayedCalls() == []
    waiting = Deferred.fromCoroutine(bell.wait(5.0))
    clock.advance(4.9)
    assert not waiting.called
    clock.advance(0.2)
    assert waiting.called
    assert not Deferred.fromCoroutine(bell.wait()).called


def test_who_waits_for_a_bell_may_be_cancelled():
    """No timer stays, and the next one who waits is woken."""
    clock = Clock()
    bell = Bell(clock)
    waiting = Deferred.fromCoroutine(bell.wait(5.0))
    waiting.addErrback(lambda failure: failure.trap(CancelledError))
    waiting.cancel()
    assert clock.getDelayedCalls() == []
    again = Deferred.fromCoroutine(bell.wait(5.0))
    bell.ring()
    assert again.called


def test_who_waits_for_a_pace_may_be_cancelled():
    """No timer stays."""
    clock = Clock()
    pace = Pace(clock, 10.0)
    pace.read(100)
    waiting = Deferred.fromCoroutine(pace.turn())
    waiting.addErrback(lambda failure: failure.trap(CancelledError))
    waiting.cancel()
    assert clock.getDelayedCalls() == []


def test_a_share_is_given_in_turn():
    """What fits is given at once; nobody passes one that waits; what is given back wakes the next ones."""
    share, got = Share(10), []

    async def user(name: str, size: int) -> None:
        await share.take(size)
        got.append(name)

    for name, size in (("a", 6), ("b", 5), ("c", 1)):
        Deferred.fromCoroutine(user(name, size))
    assert (got, share.used) == (["a"], 6)
    share.give(6)
    assert (got, share.used) == (["a", "b", "c"], 6)
    share.give(6)
    Deferred.fromCoroutine(user("more than there is", 50))
    Deferred.fromCoroutine(user("d", 1))
    assert got[3:] == ["more than there is"]
    share.give(50)
    assert got[3:] == ["more than there is", "d"]


def test_one_that_waits_for_its_turn_may_leave():
    """Who comes after it gets what fits."""
    share, got = Share(10), []

    async def user(name: str, size: int) -> None:
        await share.take(size)
        got.append(name)

    Deferred.fromCoroutine(user("a", 5))
    large = Deferred.fromCoroutine(user("large", 9))
    Deferred.fromCoroutine(user("b", 5))
    assert got == ["a"]
    large.addErrback(lambda failure: failure.trap(CancelledError))
    large.cancel()
    assert (got, share.used) == (["a", "b"], 10)


def test_many_that_end_at_once_need_no_deep_stack():
    """Each gives its turn to the next, as where a store answers without delay."""
    share, done = Share(1), []

    async def user(number: int) -> None:
        async def call() -> int:
            return number

        done.append(await share.turn(call))

    async def holder() -> None:
        await share.take(1)

    Deferred.fromCoroutine(holder())
    for number in range(3000):
        Deferred.fromCoroutine(user(number))
    share.give(1)
    assert done == list(range(3000))
    assert share.used == 0


def test_a_portion_is_given_back_whole():
    """At its end, whatever is still out; what comes back later counts for nothing."""
    share = Share(10)
    portion = Portion(share)
    Deferred.fromCoroutine(portion.take(4))
    portion.give(-3)
    assert share.used == 7
    portion.give(2)
    portion.end()
    assert share.used == 0
    portion.give(2)
    assert share.used == 0


def test_a_portion_of_two_shares_waits_for_one_after_the_other():
    """Who waits for the first takes nothing of the second; one that ends while it waits gives back what it has."""
    narrow, wide = Share(4), Share(10)
    first, second, third = (Portion(narrow, wide) for _ in range(3))
    Deferred.fromCoroutine(first.take(4))
    waiting = Deferred.fromCoroutine(second.take(3))
    assert (narrow.used, wide.used) == (4, 4)
    first.give(2)
    assert not waiting.called
    first.end()
    assert waiting.called
    assert (narrow.used, wide.used) == (3, 3)
    wide.most = 3
    late = Deferred.fromCoroutine(third.take(1))
    late.addErrback(lambda failure: failure.trap(CancelledError))
    assert (narrow.used, wide.used) == (4, 3)
    late.cancel()
    third.end()
    second.end()
    assert (narrow.used, wide.used) == (0, 0)


def test_a_lane_lets_as_much_through_as_its_bookie_answers_without_delay():
    """Each bookie has one for reads and one for what is stored, the same for all who ask."""
    clock = Clock()
    pace = Pace(clock, None)
    lane = pace.stores("b1")
    assert pace.stores("b1") is lane
    assert len({lane, pace.reads("b1"), pace.stores("b2")}) == 3
    answers: list[Deferred[int]] = []

    def call() -> Deferred[int]:
        answers.append(Deferred())
        return answers[-1]

    def ask(size: int) -> "Deferred[int]":
        return Deferred.fromCoroutine(lane.ask(size, call, bool))

    before = lane.bytes
    asked = [ask(before // 2) for _ in range(4)]
    assert len(answers) == 2
    clock.advance(0.001)
    answers[0].callback(7)
    assert lane.bytes == before // 2
    assert len(answers) == 2, "the window is full with one"
    answers[1].callback(0)
    assert len(answers) == 3
    answers[2].callback(0)
    assert len(answers) == 4
    answers[3].callback(0)
    assert [each.result for each in asked] == [7, 0, 0, 0]


def test_a_lane_goes_on_after_an_error_and_a_cancelled_call():
    """Neither keeps its part of the window."""
    lane = Pace(Clock(), None).reads("b1")

    async def fails() -> int:
        raise KeyError("no")

    failed: list[object] = []
    Deferred.fromCoroutine(lane.ask(lane.bytes, fails, bool)).addErrback(failed.append)
    never: Deferred[int] = Deferred()
    left = Deferred.fromCoroutine(lane.ask(lane.bytes, lambda: never, bool)).addErrback(failed.append)
    left.cancel()
    assert len(failed) == 2

    async def one() -> int:
        return 1

    assert Deferred.fromCoroutine(lane.ask(lane.bytes, one, lambda _: False)).result == 1


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


def test_a_question_is_put_once_for_all_who_asked_before_it():
    """One that comes later has an answer of its own, with the others that do; a failure is everyone's."""
    put: list[Deferred[int]] = []
    shared: Shared[int] = Shared()

    async def call():
        put.append(Deferred())
        return await put[-1]

    found: list[object] = []

    def ask():
        answer = shared.ask(call)
        answer.addCallbacks(found.append, lambda failure: found.append(failure.type))
        return answer

    ask()
    cancelled, *_ = ask(), ask()
    assert len(put) == 1
    cancelled.cancel()
    put[0].callback(7)
    assert (len(put), found) == (2, [CancelledError, 7])
    put[1].errback(KeyError("a fault of ours"))
    assert found[2:] == [KeyError]
    ask()
    put[2].callback(9)
    assert found[3:] == [9]
