"""
The service of a daemon, from the first turn of the reactor to the last.

Knows: that what was started is stopped latest first, and why the process ends.
Does not know: the command line, signals (`process`), what is served.
"""

import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.store import HTTP_ENDPOINT, Endpoint

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


def adopted(reactor: "ProcessReactor", server: Any, host: str, port: int, remedy: str) -> tuple[Any, int]:
    """Serves on a TCP port, a free one for 0; what stops listening, and the port.  `OSError` ends with `remedy`."""
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as failure:
        raise OSError(f"{host}:{port} can't be listened on: {failure.strerror or failure}; {remedy}") from failure
    with bound:  # the reactor has its own handle
        bound.setblocking(False)
        return reactor.adoptStreamPort(bound.fileno(), bound.family, server), bound.getsockname()[1]


def announce(as_json: bool, line: str, **document: object) -> None:
    """Prints the ready line; as JSON the document, with the process's id."""
    print(json.dumps({**document, "pid": os.getpid()}) if as_json else f"ready {line}", flush=True)


def metrics_at(host: str, port: int, tls: bool = False) -> str:
    """Returns the URL of this process's metrics."""
    return Endpoint(HTTP_ENDPOINT, host, port, "https" if tls else "http").url("/metrics")


class Ending(NamedTuple):
    """Why the process ends, other than by a stop that was asked for."""

    reason: str
    wrong_usage: bool = False  # the configuration can't work


class Lifetime(ABC):
    """One service in this process.  `ending` is set before the reactor stops, if something failed."""

    log = Logger(namespace="quire.daemon")
    name: ClassVar[str]  # in messages
    failures: ClassVar[tuple[type[Exception], ...]]  # what a start fails with; their texts say what to do

    def __init__(self, reactor: "ProcessReactor") -> None:
        self.ending: Ending | None = None
        self.started = False
        self.to_stop: list[Callable[[], Awaitable[None]]] = []
        self._reactor = reactor
        self._under_way: Deferred[None] | None = None

    def begin(self) -> None:
        """In the reactor's first turn."""
        self._under_way = Deferred.fromCoroutine(self._whole()).addErrback(self._unexpected)

    def stop(self) -> Deferred[None]:
        """A signal came, or something failed: stops everything, latest first."""
        stopping = Deferred.fromCoroutine(self._stop())
        return stopping.addErrback(self._not_stopped)

    def reload(self) -> None:
        """SIGHUP came: a bookie reads its files of TLS, users and rights again."""
        self.log.info("SIGHUP: {name} looks at its files by time only", name=self.name)

    @abstractmethod
    async def serve(self) -> None:
        """
        Starts, with what a stop has to do in `to_stop`, sets `started`, and returns when it has ended by itself.
        `ValueError` for a configuration that can't work.
        """

    async def _whole(self) -> None:
        try:
            await self.serve()
        except self.failures as failure:
            self._end(Ending(str(failure) or type(failure).__name__))
        except ValueError as failure:  # a metadata URI that no driver serves
            self._end(Ending(str(failure), wrong_usage=True))
        except CancelledError:
            return

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
        if self._reactor.running:
            self._reactor.callLater(0, lambda: self._reactor.running and self._reactor.stop())

    def _unexpected(self, failure: Failure) -> None:
        self.log.failure("{name} failed", failure, name=self.name)
        self._end(Ending(f"{self.name} failed in a way that it should not; its log has the place"))

    async def _stop(self) -> None:
        if not self.started and self._under_way is not None:
            over: Deferred[None] = Deferred()
            self._under_way.addBoth(over.callback)
            self._under_way.cancel()  # a start that is under way puts away what it had opened
            await over
        while self.to_stop:
            await maybeDeferred(self.to_stop.pop()).addErrback(self._not_stopped)

    def _not_stopped(self, failure: Failure) -> None:
        """The rest is stopped all the same."""
        self.log.failure("stopping", failure)
