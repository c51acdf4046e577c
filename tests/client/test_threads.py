"""Ordinary threads that wait for the reactor's: results, failures, streams, and what an interrupt leaves."""

from concurrent.futures import Future

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.gathering import Gathering
from quire.client.threads import answered, appended, each, reactor_thread, settle
from tests import reactor as shared
from tests.alone import alone

# SPDX-License-Identifier: Apache-2.0


def thread():
    """The tests' reactor, through the same door that programs use."""
    shared.run(lambda: succeed(None))
    return reactor_thread()


def test_async_functions_and_deferreds_give_their_result_or_raise():
    """Exceptions reach the caller's thread, also those raised before anything began."""

    async def story() -> str:
        await succeed(None)
        return "done"

    async def trouble() -> str:
        raise KeyError("here")

    def at_once() -> Deferred[str]:
        raise LookupError("before it began")

    assert thread().wait(story) == "done"
    with pytest.raises(KeyError, match="here"):
        thread().wait(trouble)
    with pytest.raises(LookupError, match="before"):
        thread().wait(at_once)


def test_the_reactor_never_waits_for_itself():
    """A blocking call from the reactor's thread raises an error that names what to use instead of a hang."""

    async def story() -> str:
        with pytest.raises(RuntimeError, match=r"quire\.client\.api"):
            reactor_thread().wait(lambda: succeed(1))
        return "checked"

    assert thread().wait(story) == "checked"


def test_whatever_a_signal_raises_cancels_the_story_that_was_waited_for():
    """A script's `signal.alarm` with a handler that raises is as good as Ctrl-C."""
    out = alone(
        """
        import signal
        from quire.client.threads import reactor_thread
        from twisted.internet.defer import Deferred, succeed
        def late(*_): raise TimeoutError
        signal.signal(signal.SIGALRM, late)
        cancelled = []
        thread = reactor_thread()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            thread.wait(lambda: Deferred(cancelled.append))
        except TimeoutError:
            thread.wait(lambda: succeed(None))
            print(len(cancelled))
        """
    )
    assert out == "1\n"


def test_a_future_that_its_owner_cancelled_stays_cancelled():
    """An answer that comes later is dropped, and no error."""
    future: Future[int] = Future()
    future.cancel()
    settle(future, 3)
    assert future.cancelled()


def test_a_stream_comes_in_batches_and_ends():
    """Leaving it early ends the generator on the reactor's side."""
    ended: list[bool] = []

    async def numbers():
        try:
            for number in range(3):
                yield [number, number]
        finally:
            ended.append(True)

    assert list(each(thread(), numbers)) == [0, 0, 1, 1, 2, 2]
    left = each(thread(), numbers)
    assert next(left) == 0
    left.close()
    thread().wait(lambda: succeed(None))
    assert ended == [True, True]


def test_a_window_that_is_full_is_no_wait_for_the_reactor_itself():
    """An append there is refused before it is put; with room one may be put, but not waited for."""
    asked: list[Deferred[list[bytes]]] = []

    class Slow:
        window_full = False

        def ready(self):
            return succeed(None)

        def append_many(self, _payloads):
            asked.append(Deferred())
            return asked[-1]

    waiting = thread()
    gathered = Gathering(waiting, Slow(), 1, 100, len, lambda payloads: [payloads])

    async def story() -> Future[bytes]:
        with pytest.raises(RuntimeError, match="own thread"):
            answered(gathered, b"x")
        first = appended(gathered, b"a")
        with pytest.raises(RuntimeError, match="own thread"):
            appended(gathered, b"b")
        return first

    async def answer() -> None:
        asked.pop().callback([b"a"])

    first = waiting.wait(story)
    waiting.wait(answer)
    assert first.result(60) == b"a"
