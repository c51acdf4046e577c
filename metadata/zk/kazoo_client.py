"""
kazoo's client as a session uses it: what it notes on its own thread, and its answers as Deferreds on the reactor's.

Knows: which of kazoo's errors may be tried again, and what the others are called here.
Does not know: when a call is tried again, sessions.

Threads: kazoo calls back on threads of its own; each callback hops to the reactor, those of many calls in one hop.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import AsyncResult
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import WatchedEvent
from twisted.internet.defer import Deferred

from quire.metadata.clock import Reactor
from quire.metadata.zk.node_errors import BadVersion, NodeError, NodeExists, NoNode, NotEmpty
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

# Otherwise Python prints kazoo's warnings of every reconnection on standard error.
KAZOO_LOG = logging.getLogger("quire.metadata.kazoo")
KAZOO_LOG.addHandler(logging.NullHandler())

TRANSIENT = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError, SessionMovedError)

Wake = Callable[[], None]

KINDS: tuple[tuple[type[Exception], type[NodeError]], ...] = (
    (NoNodeError, NoNode),
    (NoChildrenForEphemeralsError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
)


@dataclass(frozen=True)
class Hop:
    """
    A watcher as kazoo keeps it.  Two that wake the same are one to kazoo, so that it keeps one, however often it is
    given.
    """

    reactor: Reactor
    wake: Wake

    def __call__(self, _event: WatchedEvent) -> None:
        self.reactor.callFromThread(self.wake)


class Connection(ConnectionHandler):
    """
    kazoo's, which notes in its client how long the server lets the session live: one and a half times the time-out for
    reading that it makes of that.
    """

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_ms, connect_ms = super()._connect(host, hostip, port)
        self.client.granted_s = read_ms * 1.5 / 1000
        return read_ms, connect_ms


class Client(KazooClient):
    """kazoo's, which knows how long its session lives without a word."""

    def __init__(self, hosts: str, timeout_s: float) -> None:
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
        super().__init__(hosts=hosts, timeout=timeout_s, connection_retry=retry, logger=KAZOO_LOG)
        self.granted_s = timeout_s  # known with the first answer: the server makes it two of its ticks at least
        self._connection = Connection(self, self._conn_retry.copy(), logger=KAZOO_LOG)


def refusal(uri: str, path: str, error: BaseException, retried: bool) -> MetaStore:
    """What is raised in place of an error of kazoo's."""
    for theirs, ours in KINDS:
        if isinstance(error, theirs):
            made = ours(f"ZooKeeper at {uri}: {type(error).__name__} for {path}")
            made.retried = retried
            return made
    return MetaStore(f"ZooKeeper at {uri}: {error!r} for {path}")


def answered(reactor: Reactor, asked: AsyncResult) -> Deferred[Any]:
    """What kazoo answers to a call, or its error."""
    answer: Deferred[Any] = Deferred()

    def arrived() -> None:
        if answer.called:  # kazoo may say twice that the connection is closed
            return
        if asked.exception is None:
            answer.callback(asked.value)
        else:
            answer.errback(asked.exception)

    asked.rawlink(lambda _asked: reactor.callFromThread(arrived))
    return answer


def all_answered(reactor: Reactor, asked: Sequence[AsyncResult]) -> Deferred[None]:
    """When each of these calls, one at least, has its answer or its error."""
    done: Deferred[None] = Deferred()
    waits = {id(each) for each in asked}
    guard = threading.Lock()

    def arrived() -> None:
        if not done.called:  # the caller was cancelled
            done.callback(None)

    def hop(answer: AsyncResult) -> None:
        with guard:
            waits.discard(id(answer))
            last = not waits
        if last:
            reactor.callFromThread(arrived)

    for each in asked:
        each.rawlink(hop)
    return done
