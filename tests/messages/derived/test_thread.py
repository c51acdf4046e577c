"""Calls on the thread of the rows, and their outcomes."""

import threading
from functools import partial

import pytest

from quire.messages.derived.thread import RowsThread
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
