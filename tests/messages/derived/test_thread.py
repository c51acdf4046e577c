"""Calls on the thread of the rows, and their outcomes."""

import threading
from functools import partial

import pytest
from twisted.internet.task import Clock

from quire.messages.derived import thread as thread_module
from quire.messages.derived.thread import REST_S, RowsThread
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


def test_a_long_call_rests(monkeypatch):
    """For a moment, each time it has computed for its slice; also when the clock was set back."""
    rested = []
    monkeypatch.setattr(thread_module.Event, "wait", lambda _event, seconds: rested.append(seconds))
    clock = Clock()
    thread = RowsThread(clock, "orders")
    for step, count in ((10, 1), (0, 1), (0.0003, 1), (0.0002, 2), (0.0003, 2), (0.0002, 3), (-5, 4), (0.0001, 4)):
        clock.rightNow += step
        thread.rest()
        assert len(rested) == count
    assert set(rested) == {REST_S}
