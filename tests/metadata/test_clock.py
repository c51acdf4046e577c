"""A reactor that was steadied measures by a clock that can't be set; one that runs is left alone."""

import threading
import time
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.python import threadable

from quire.metadata.clock import pause, processor_clock, steady, stop_once, time_of_day

# SPDX-License-Identifier: Apache-2.0


def test_timers_do_not_mind_the_time_of_day(monkeypatch: Any) -> None:
    """A timer fires by the steady clock although the time of day is set back."""
    reactor: Any = SelectReactor()
    steady(reactor)
    now = [100.0]
    reactor.seconds = lambda: now[0]  # in place of the steady clock, for the test
    monkeypatch.setattr(time, "time", lambda: 5.0)
    rung: list[float] = []
    reactor.callLater(10.0, lambda: rung.append(reactor.seconds()))
    monkeypatch.setattr(time, "time", lambda: -1e6)
    reactor.runUntilCurrent()
    assert rung == []
    now[0] = 110.0
    reactor.runUntilCurrent()
    assert rung == [110.0]


def test_a_steady_reactor_asks_the_steady_clock() -> None:
    """A reactor gets the monotonic clock before it runs, and keeps its own when it runs already."""
    reactor: Any = SelectReactor()
    steady(reactor)
    assert reactor.seconds is time.monotonic
    running: Any = SelectReactor()
    running.running = True
    before = running.seconds
    steady(running)
    assert running.seconds is before


def test_the_time_of_day_counts_from_1970() -> None:
    """It is in seconds since the Unix epoch."""
    assert time_of_day() > 1_700_000_000


def test_a_pause_that_is_cancelled_leaves_no_timer() -> None:
    """Nothing would ever hear it; one that is not cancelled ends in time."""
    clock = Clock()
    over = pause(clock, 5.0)
    over.addErrback(lambda failure: failure.trap(CancelledError))
    over.cancel()
    assert clock.getDelayedCalls() == []
    other = pause(clock, 5.0)
    clock.advance(5.0)
    assert other.called


# `test_process` and `test_running` send the signals.


def stops(monkeypatch: pytest.MonkeyPatch, *, early: bool) -> int:
    """How often what is put away before the end was put away, with two calls in the first turn or before it."""
    monkeypatch.setattr(threadable, "ioThread", None)  # which `run` sets, for other tests as well
    reactor: Any = SelectReactor()
    stop_once(reactor)
    put_away: list[None] = []
    reactor.addSystemEventTrigger("before", "shutdown", put_away.append, None)
    waiting: list[object] = []
    reactor.addSystemEventTrigger("during", "shutdown", lambda: waiting.extend(reactor.getDelayedCalls()))
    for _ in range(2):
        if early:
            reactor.stop()
        else:
            reactor.callWhenRunning(reactor.stop)
    reactor.run(installSignalHandlers=False)
    assert waiting == []  # else it would turn as fast as it can for as long as its end takes
    reactor.stop()  # and after its end
    return len(put_away)


def test_the_second_stop_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same turn, and after the end."""
    assert stops(monkeypatch, early=False) == 1


def test_a_reactor_that_does_not_run_yet_stops_in_its_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a command does whose work is over before."""
    assert stops(monkeypatch, early=True) == 1


def test_the_processor_time_of_a_thread() -> None:
    """It goes on while its thread computes, whoever asks, not while another one does; it stops when that has ended."""
    clocks, computed, may_end = [], threading.Event(), threading.Event()

    def work():
        clocks.append(processor_clock())
        sum(range(200_000))
        computed.set()
        may_end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    computed.wait()
    assert 0 < clocks[0]() < 60
    may_end.set()
    thread.join()
    last = clocks[0]()
    sum(range(200_000))
    assert clocks[0]() == last > 0
