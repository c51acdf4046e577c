"""The shorter turn of the reactor: which reactors get it, and what stays as Twisted has it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python import threadable

from quire.metadata import readiness
from quire.metadata.readiness import Straight, straighten

# SPDX-License-Identifier: Apache-2.0


class Ready:
    """A descriptor that has something to read, and maybe room to write."""

    def __init__(self, reactor: Any, does: Any = None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")
        self.reactor, self.does = reactor, does
        self.called: list[str] = []
        self.lost: list[object] = []

    def fileno(self) -> int:
        return self.ours.fileno()

    def logPrefix(self) -> str:
        return "ready"

    def doRead(self) -> object:
        self.called.append("read")
        return self.does() if self.does else None

    def doWrite(self) -> object:
        self.called.append("write")
        return None

    def connectionLost(self, reason: Any) -> None:
        self.lost.append(reason.value)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def ready() -> Iterator[Callable[..., Ready]]:
    """Makes such descriptors, of a reactor of the test's own."""
    reactor, made = Straight(), list[Ready]()

    def make(does: Any = None) -> Ready:
        made.append(Ready(reactor, does))
        reactor.addReader(made[-1])
        return made[-1]

    yield make
    reactor.removeAll()
    for each in made:
        each.close()


def test_only_reactors_on_epoll_that_do_not_run_get_it() -> None:
    """Any other keeps its own turns."""
    others: list[Any] = [SelectReactor(), Clock()]
    running: Any = EPollReactor()
    running.running = True
    for each in (*others, running):
        straighten(each)
        assert not isinstance(each, Straight)
    fresh: Any = EPollReactor()
    straighten(fresh)
    assert isinstance(fresh, Straight)


def test_what_is_ready_is_called(ready: Callable[..., Ready]) -> None:
    """For reading; for writing too, by Twisted's own way."""
    reads, both = ready(), ready()
    reactor = reads.reactor
    reactor.addWriter(both)
    reactor.doIteration(0)
    assert (reads.called, sorted(both.called)) == (["read"], ["read", "write"])
    reactor.removeReader(reads)
    reactor.removeReader(both)
    reactor.removeWriter(both)
    reactor.doIteration(0)
    assert (len(reads.called), len(both.called)) == (1, 2)


def test_one_that_another_ended_is_not_called(ready: Callable[..., Ready]) -> None:
    """Both are ready in one turn; the first takes the second away."""
    both: list[Ready] = []

    def end_the_other() -> None:
        for each in both:
            if not each.called:
                each.reactor.removeReader(each)

    both += [ready(end_the_other), ready(end_the_other)]
    both[0].reactor.doIteration(0)
    assert sorted(len(each.called) for each in both) == [0, 1]


def test_what_raises_is_logged_and_disconnected(ready: Callable[..., Ready]) -> None:
    """And the next one is called; what returns a reason is disconnected for it."""
    failure, gone = RuntimeError("no"), ConnectionResetError("gone")

    def fail() -> None:
        raise failure

    raising, ended, fine = ready(fail), ready(lambda: gone), ready()
    with failures_logged() as logged:
        fine.reactor.doIteration(0)
    assert (raising.lost, ended.lost, fine.lost) == ([failure], [gone], [])
    assert fine.called == ["read"]
    assert logged == [failure]
    assert set(fine.reactor.getReaders()) & {raising, ended, fine} == {fine}


@contextmanager
def failures_logged() -> Iterator[list[BaseException]]:
    """The exceptions that are logged meanwhile."""
    found: list[BaseException] = []

    def observe(event: Any) -> None:
        if "log_failure" in event:
            found.append(event["log_failure"].value)

    globalLogPublisher.addObserver(observe)
    try:
        yield found
    finally:
        globalLogPublisher.removeObserver(observe)


def run(reactor: Any) -> None:
    """Runs it to its end; the thread of the process's own reactor stays the one that may not wait."""
    before = threadable.ioThread
    try:
        reactor.run(installSignalHandlers=False)
    finally:
        threadable.ioThread = before
        reactor.removeAll()


def test_calls_from_threads_come_in_their_order() -> None:
    """One that raises is logged, and the next ones are called; one that is asked for by another comes after all."""
    reactor: Any = Straight()
    called: list[str] = []
    failure = ValueError("no")
    all_asked = Event()

    def fail() -> None:
        all_asked.wait()
        raise failure

    def ask() -> None:
        called.append("ask")
        reactor.callFromThread(reactor.stop)

    def from_a_thread() -> None:
        for fn in (fail, ask, partial(called.append, "last")):
            reactor.callFromThread(fn)
        all_asked.set()

    other = Thread(target=from_a_thread)
    reactor.callWhenRunning(other.start)
    with failures_logged() as logged:
        run(reactor)
    other.join()
    assert (called, logged) == (["ask", "last"], [failure])


def test_timers_come_in_their_order() -> None:
    """Also those that a timer asks for, and those that were cancelled, however many, do not."""
    reactor: Any = Straight()
    called: list[int] = []

    def begin() -> None:
        called.append(0)
        reactor.callLater(0, called.append, 1)
        cancelled = [reactor.callLater(60, called.append, -1) for _ in range(200)]
        for each in cancelled:
            each.cancel()
        reactor.callLater(0.001, called.append, 2)
        reactor.callLater(0.002, reactor.stop)

    reactor.callLater(0, begin)
    run(reactor)
    assert called == [0, 1, 2]
    assert not reactor.getDelayedCalls()


def test_a_turn_that_fails_is_logged_and_the_next_one_taken() -> None:
    """As Twisted's loop does."""
    reactor: Any = Straight()
    failure, turn = RuntimeError("no"), reactor.doIteration

    def fail(_timeout: float) -> None:
        reactor.doIteration = turn
        raise failure

    def begin() -> None:
        reactor.doIteration = fail
        reactor.callLater(0.001, reactor.stop)

    reactor.callWhenRunning(begin)
    with failures_logged() as logged:
        run(reactor)
    assert logged == [failure]


def test_only_a_reactor_that_waits_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, however many ask before it comes; what it is asked for while it is awake needs no bell."""
    reactor: Any = Straight()
    rings: list[int] = []
    ring = readiness.eventfd_write

    def noted(bell: int, value: int) -> None:
        rings.append(bell)
        ring(bell, value)

    monkeypatch.setattr(readiness, "eventfd_write", noted)
    asked = Event()

    def awake() -> None:
        other = Thread(target=lambda: [reactor.callFromThread(int) for _ in range(3)])
        other.start()
        other.join()
        rings_while_awake.append(len(rings))
        waiting.start()

    def wait_and_ask() -> None:
        while not reactor.waits:
            pass
        reactor.callFromThread(asked.set)
        reactor.callFromThread(reactor.stop)

    rings_while_awake: list[int] = []
    waiting = Thread(target=wait_and_ask)
    reactor.callWhenRunning(reactor.callLater, 0, awake)
    run(reactor)
    waiting.join()
    assert rings_while_awake == [0]
    assert asked.is_set()
    assert 1 <= len(rings) <= 2, "the second may come when the reactor is awake, or waits again"


def test_as_many_wake_ups_as_a_pipe_holds_and_more() -> None:
    """Asking does not wait for the reactor, and nothing that was asked for is lost."""
    reactor: Any = Straight()
    called: list[int] = []
    count = 70_000  # a pipe holds 65,536
    for number in range(count):
        reactor.callFromThread(called.append, number)
    reactor.callFromThread(reactor.stop)
    run(reactor)
    assert called == list(range(count))
