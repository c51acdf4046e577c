"""Several at once: results in order, the first error ends all, and never more workers than were asked for."""

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from quire.replication.concurrently import Bell, Pace, all_of, each_of


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
