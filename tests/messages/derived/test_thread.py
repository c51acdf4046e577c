"""Calls on the thread of the rows, and their outcomes."""

import threading
from functools import partial

import pytest
from twisted.internet.task import Clock

from quire.messages.derived import thread as thread_module
from quire.messages.derived.thread import PUTS_REST_S, REST_S, SLICE_MAX_S, SLICE_S, RowsThread
from quire.protocol.errors import ClientClosed
from quire.protocol.message_errors import MessageError
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_calls_are_done_elsewhere_in_order():
    """On one thread of that name; outcomes and errors come back, those of files as errors of the store."""

    async def story():
        thread = RowsThread(reactor, "orders")
        done = []

        def call(each):
            done.append(each)
            return threading.current_thread().name

        asked = [thread.ask(partial(call, each)) for each in range(9)]
        assert {await each for each in asked} == {"messages orders"}
        assert done == list(range(9))
        with pytest.raises(ZeroDivisionError):
            await thread.ask(lambda: 1 // 0)

        def full():
            raise OSError(28, "No space left on device")

        with pytest.raises(MessageError, match=r"rows of the store:.*No space"):
            await thread.ask(full)
        last = thread.ask(lambda: 7)
        thread.end()
        assert await last == 7
        with pytest.raises(ClientClosed):
            await thread.ask(lambda: 8)

    run(story)


@pytest.fixture
def slices(monkeypatch):
    """A thread's rests, beside a reactor that uses as much processor time as it is told to."""

    class Slices:
        def __init__(self):
            self.clock, self.rested, self.busy_s, self.used_s = Clock(), [], 0.0, 0.0
            self.is_putting = False
            monkeypatch.setattr(thread_module.Event, "wait", lambda _event, seconds: self.rested.append(seconds))
            monkeypatch.setattr(thread_module, "processor_clock", lambda: self.used)
            self.thread = RowsThread(self.clock, "orders", lambda: self.is_putting)

        def used(self):
            self.used_s += self.busy_s
            return self.used_s

        def rests_after(self, seconds):
            before = len(self.rested)
            self.clock.rightNow += seconds
            self.thread.rest()
            return len(self.rested) > before

    return Slices()


def test_a_long_call_rests(slices):
    """For a moment, each time it has computed for its slice; also when the clock was set back."""
    slices.busy_s = 0.001
    steps = ((10, True), (0, False), (0.0003, False), (0.0002, True), (0.0003, False), (0.0002, True), (-5, True))
    for step, rests in (*steps, (0.0001, False)):
        assert slices.rests_after(step) == rests
    assert set(slices.rested) == {REST_S}


def test_slices_are_longer_while_the_reactor_has_nothing_to_do(slices):
    """Up to a maximum; as soon as it has had a turn they are as short as at first."""
    assert slices.rests_after(10)
    assert not slices.rests_after(SLICE_S * 1.1)
    for _ in range(20):
        assert slices.rests_after(SLICE_MAX_S)
    assert not slices.rests_after(SLICE_MAX_S * 0.99)
    slices.busy_s = 0.001
    assert slices.rests_after(SLICE_MAX_S * 0.02)
    assert slices.rests_after(SLICE_S)
    assert slices.rests_after(SLICE_S)


def test_rows_give_way_to_puts(slices):
    """While some are under way it rests most of the time, and goes on nevertheless, in slices that do not grow."""
    slices.is_putting = True
    assert slices.rests_after(10)
    for _ in range(5):
        assert not slices.rests_after(SLICE_S / 2)
        assert slices.rests_after(SLICE_S)
    slices.is_putting = False
    assert slices.rests_after(SLICE_S)
    assert not slices.rests_after(SLICE_S)  # the reactor has nothing to do
    assert slices.rested == [PUTS_REST_S] * 6 + [REST_S]
