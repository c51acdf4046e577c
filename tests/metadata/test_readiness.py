"""The shorter way to what is ready: which reactors get it, and what stays as Twisted has it."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

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
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    try:
        fine.reactor.doIteration(0)
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert (raising.lost, ended.lost, fine.lost) == ([failure], [gone], [])
    assert fine.called == ["read"]
    assert [event["log_failure"].value for event in events if "log_failure" in event] == [failure]
    assert set(fine.reactor.getReaders()) & {raising, ended, fine} == {fine}
