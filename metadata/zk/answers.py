"""
ZooKeeper's answers: values of another thread as Deferreds on the reactor's, and refusals as errors of ours.

Knows: that each hop to the reactor costs, and that many answers can share one.
Does not know: kazoo (`session` raises these errors in place of its own), what was asked.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

from quire.metadata.clock import Reactor
from quire.metadata.tree import Wake

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class Asked(Protocol):
    """A call that has its value, or its error, when it calls back; kazoo's `AsyncResult`."""

    @property
    def value(self) -> Any: ...

    @property
    def exception(self) -> BaseException | None: ...

    def rawlink(self, callback: "Callable[[Any], object]", /) -> None: ...


@dataclass(frozen=True)
class Hop:
    """
    A watcher as kazoo keeps it.  Two that wake the same are one to kazoo, so that it keeps one, however often it is
    given.
    """

    reactor: Reactor
    wake: Wake

    def __call__(self, _event: object) -> None:
        self.reactor.callFromThread(self.wake)


def answered(reactor: Reactor, asked: Asked) -> Deferred[Any]:
    """Returns the answer to a call, or raises its error."""
    answer: Deferred[Any] = Deferred()

    def arrived(result: Asked) -> None:
        if answer.called:  # kazoo may say twice that the connection is closed
            return
        if result.exception is None:
            answer.callback(result.value)
        else:
            answer.errback(result.exception)

    asked.rawlink(lambda result: reactor.callFromThread(arrived, result))
    return answer


def all_answered(reactor: Reactor, asked: Sequence[Asked]) -> Deferred[None]:
    """When each of these calls, one at least, has its answer or its error."""
    done: Deferred[None] = Deferred()
    waits = {id(each) for each in asked}
    guard = threading.Lock()

    def arrived() -> None:
        if not done.called:  # the caller was cancelled
            done.callback(None)

    def hop(answer: Asked) -> None:
        with guard:
            waits.discard(id(answer))
            last = not waits
        if last:
            reactor.callFromThread(arrived)

    for each in asked:
        each.rawlink(hop)
    return done
