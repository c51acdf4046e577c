"""
What ZooKeeper answers: values of another thread as Deferreds on the reactor's, and refusals as errors of ours.

Knows: that each hop to the reactor costs, and that many answers can share one.
Does not know: kazoo (`session` raises these errors in place of its own), what was asked.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from quire.metadata.clock import Reactor
from quire.protocol.errors import MetaStore, MetaStoreRefused

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Wake = Callable[[], None]

REFUSED_PAUSE_S = 5.0


class NodeError(MetaStore):
    """
    What a znode's state makes of an operation.  `retried`: an earlier try may have been done, its answer was lost;
    `step`: which step of a transaction it was.
    """

    retried = False
    step = 0


class NoNode(NodeError):
    """The znode, or the parent of the one to be made, does not exist."""


class NodeExists(NodeError):
    """The znode exists already."""


class BadVersion(NodeError):
    """The znode has another version."""


class NotEmpty(NodeError):
    """The znode has children."""


class SessionOver(NodeError):
    """The session that a call was bound to has ended, and its ephemeral znodes with it."""


def pause_after(error: Exception, usual_s: float) -> float:
    """How long who goes on trying waits, in seconds: a refusal is not taken back as soon as a connection is."""
    return REFUSED_PAUSE_S if isinstance(error, MetaStoreRefused) else usual_s


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
    """What is answered to a call, or its error."""
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


async def together(deferreds: "Sequence[Deferred[T]]") -> list[T]:
    """All results, in order; the first failure, once every one has ended."""
    results = await DeferredList(deferreds, consumeErrors=True)
    values: list[T] = []
    for _, value in results:
        if isinstance(value, Failure) and isinstance(value.value, BaseException):
            raise value.value
        values.append(value)
    return values
