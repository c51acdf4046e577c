"""Jobs beside the reactor: where they run, how they fail, when they rest."""

import threading
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.storage.parts import REST_SECONDS, SLICE_SECONDS, PoolWorkers
from quire.rows.files import StorageError
from tests.bookie.fakes.workers import InlineWorkers
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def failing() -> None:
    raise StorageError("injected")


def test_inline_jobs_are_done_at_once() -> None:
    """In the caller; the result, or the error, is in the Deferred when it is returned."""
    workers = InlineWorkers()
    results: list[Any] = []
    workers.run(lambda x, y: x + y, 2, 3).addCallback(results.append)
    workers.run(failing).addErrback(lambda failure: results.append(failure.type))
    workers.spawn(lambda: results.append("spawned"))
    assert results == [5, StorageError, "spawned"]


def test_pool_jobs_run_beside_the_reactor_and_answer_on_it() -> None:
    """Results and errors come back on the reactor's thread."""

    async def story() -> None:
        workers = PoolWorkers(reactor)
        mine = threading.current_thread()
        heard: list[threading.Thread] = []
        job = workers.run(threading.current_thread)
        job.addBoth(lambda found: heard.append(threading.current_thread()) or found)
        assert await job is not mine
        assert heard == [mine]
        with pytest.raises(StorageError, match="injected"):
            await workers.run(failing)
        workers.stop()

    run(story)


def test_a_stop_waits_for_the_jobs_that_run() -> None:
    """None is left half done."""

    async def story() -> None:
        workers = PoolWorkers(reactor)
        begun: Deferred[None] = Deferred()
        go_on = threading.Event()
        done: list[str] = []

        def job() -> None:
            reactor.callFromThread(begun.callback, None)  # type: ignore[attr-defined]
            assert go_on.wait(60)
            done.append("done")

        workers.spawn(job)
        await begun
        go_on.set()
        workers.stop()
        assert done == ["done"]

    run(story)


def test_a_long_job_rests_when_its_slice_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, and a clock that jumped back begins a new slice."""
    clock = Clock()
    workers = PoolWorkers(clock)  # type: ignore[arg-type]
    rests: list[float] = []

    class Rests:
        def wait(self, seconds: float) -> None:
            rests.append(seconds)

    monkeypatch.setattr(workers, "_never", Rests())
    workers.pause()
    clock.advance(SLICE_SECONDS / 2)
    workers.pause()
    assert rests == []
    clock.advance(SLICE_SECONDS)
    workers.pause()
    assert rests == [REST_SECONDS]
    workers.pause()
    assert rests == [REST_SECONDS]
    clock.rightNow -= 10
    workers.pause()
    workers.pause()
    assert rests == [REST_SECONDS] * 2
    workers.stop()


@pytest.mark.parametrize("started", [0, 2])
def test_threads_that_can_not_be_started(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    """The error names the limit; those that were started end."""
    start, threads = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(threads) == started:
            raise RuntimeError("can't start new thread")
        start(thread)
        threads.append(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        with pytest.raises(StorageError, match=r"can't start new thread\); see the limit of processes \(ulimit -u\)"):
            PoolWorkers(Clock())  # type: ignore[arg-type]
    assert len(threads) == started
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
