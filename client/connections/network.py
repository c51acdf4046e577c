"""
A reactor as the client uses it, as a type: besides time and calls from other threads, TCP; and its coroutines, which
callers of Twisted get as Deferreds.

Twisted's reactors and `twisted.internet.testing.MemoryReactorClock` fit, and so does the simulator's; nothing below
`background` names the global reactor.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientFactory

from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0

P = ParamSpec("P")
T = TypeVar("T")


class TcpReactor(Reactor, Protocol):
    """A reactor that opens TCP connections."""

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float = ...) -> Any: ...


def begun(story: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Deferred[T]]:
    """Makes a coroutine function one that begins at once, and whose Deferred its caller may cancel."""

    @wraps(story)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(story(*args, **kwargs))

    return begin
