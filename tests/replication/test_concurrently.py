"""Several at once: results in order, the first error ends all, and never more workers than were asked for."""

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from quire.replication.concurrently import BEGIN_AGAIN_S, Bell, Pace, Portion, Share, all_of, each_of, kept_up


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
