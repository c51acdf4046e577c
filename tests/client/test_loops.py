"""From the reactor's thread to an asyncio loop: results, failures, streams, and what a cancelled task leaves."""

import asyncio

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.client.gathering import Gathering, gathering
from quire.client.loops import ReactorThread, answered, appended, pulled, soon, when
from quire.conf.client import ClientOptions
from tests.client.fakes.scripted import Net

# SPDX-License-Identifier: Apache-2.0


class Turning(Net):
    """A reactor that does what it is asked at once."""

    def callFromThread(self, fn, *args):
        super().callFromThread(fn, *args)
        self.turn()


def test_results_and_failures_arrive():
    """As if they were the loop's own."""

    async def story():
        thread = ReactorThread(Turning())
        assert await thread.wait(lambda: succeed(3)) == 3
        with pytest.raises(ValueError, match="no"):
            await thread.wait(lambda: fail(ValueError("no")))

    asyncio.run(story())


def test_what_a_cancelled_task_asked_for_is_ended():
    """The operation is cancelled; one that ended all the same hands its result to `unwanted`."""

    async def story():
        thread, pending, ended = ReactorThread(Turning()), [], []

        def work():
            pending.append(Deferred(lambda deferred: deferred.callback("made all the same")))
            return pending[-1]

        task = asyncio.ensure_future(thread.wait(work, ended.append))
        while not pending:
            await asyncio.wait([task], timeout=0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["made all the same"]

    asyncio.run(story())


def test_a_stream_comes_in_batches_and_ends():
    """Leaving it early ends the generator on the reactor's side."""

    async def story():
        thread, ended = ReactorThread(Turning()), []

        async def numbers():
            try:
                for number in range(3):
                    yield [number]
            finally:
                ended.append(True)

        assert [batch async for batch in pulled(thread, numbers)] == [[0], [1], [2]]
        left = pulled(thread, numbers)
        async for _batch in left:
            break
        await left.aclose()
        assert ended == [True, True]

    asyncio.run(story())


def test_appends_wait_for_room_only_where_they_may():
    """`appended` puts at once; `answered` begins when there is less than the bound under way."""

    async def story():
        answers = []

        class Slow:
            window_full = False

            def ready(self):
                return succeed(None)

            def append_many(self, payloads):
                answers.append((Deferred(), payloads))
                return answers[-1][0]

        gathered = Gathering(ReactorThread(Turning()), Slow(), 1, 100, len, lambda payloads: [payloads])
        first, second = appended(gathered, b"a"), appended(gathered, b"b")
        third = asyncio.ensure_future(answered(gathered, b"c"))
        await asyncio.wait([third], timeout=0)
        assert [payloads for _answer, payloads in answers] == [[b"a"], [b"b"]]
        for answer, payloads in answers:
            answer.callback(payloads)
        assert (await first, await second) == (b"a", b"b")
        while len(answers) < 3:
            await asyncio.wait([third], timeout=0)
        answers[2][0].callback([b"c"])
        assert await third == b"c"

    asyncio.run(story())


def test_who_waits_no_longer_is_forgotten():
    """And a loop that was closed is left alone."""

    async def story():
        asked, forgotten = [], []
        task = asyncio.ensure_future(when(asked.append, forgotten.append))
        while not asked:
            await asyncio.wait([task], timeout=0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asked == forgotten
        return asyncio.get_running_loop()

    soon(asyncio.run(story()), pytest.fail)


def test_a_loop_that_is_closed_while_it_is_told():
    """Its thread closes it when it likes; an error here would leave those without an answer who are told after it."""

    class Ending:
        closed = False

        def is_closed(self):
            return self.closed

        def call_soon_threadsafe(self, *_given):
            self.closed = True
            raise RuntimeError("Event loop is closed")

    soon(Ending(), pytest.fail)


def test_appends_that_are_answered_together_are_one_call_to_their_loop():
    """However many there are; one whose task was cancelled meanwhile hinders none of the others."""

    class Writer:
        payload_bytes_max = 1000
        window_full = False

        def ready(self):
            return succeed(None)

        def append_many(self, payloads):
            return succeed(range(len(payloads)))

    async def story():
        net = Net()
        gathered = gathering(ReactorThread(net), Writer(), ClientOptions())
        calls = []
        loop = asyncio.get_running_loop()
        ask = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda fn, *args: (calls.append(fn), ask(fn, *args))[1]
        futures = [appended(gathered, b"x") for _ in range(50)]
        futures[7].cancel()
        net.turn()
        assert await asyncio.gather(*futures[:7], *futures[8:]) == [*range(7), *range(8, 50)]
        assert len(calls) == 1

    asyncio.run(story())
