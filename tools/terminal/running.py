"""
Runs one asynchronous command on the reactor, then stops it.

Knows: how to start the reactor, to end a command at Ctrl-C or SIGTERM with its `finally` blocks carried out, how to
open a client or a store for one command in bounded time and to close it after.  Does not know: what the command does.

This and the bookie's daemon are the places where the global reactor is named.
"""

import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, steady, stop_once
from quire.protocol.errors import MetaStore
from quire.tools.terminal.options import client_options

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.conf.client import ClientOptions
    from quire.metadata.tree_store import MetadataStore
    from quire.tools.process_reactor import ProcessReactor
    from quire.tools.terminal.options import StoreOptions

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
SQLITE = "sqlite:"
# Why a bookie refuses this client, which errors leave to the log, and whose secrets everybody can read.
WARNERS = ("quire.client.connections.on_demand_link", "quire.security.watched")
CLEANUP_S = 10.0  # how long an interrupted command may take to put things away
# An entry that is read is one object that the collector counts, and thousands come together: with Python's 700 it looks
# at everything again and again, which was a third of what reading entries of 100 bytes costs a client.
GC_THRESHOLDS = (50_000, 20, 50)
CONNECT_S = 20.0  # how long a metadata store may take to answer at all; its own session timeout is usually shorter


def run(work: "Callable[[ProcessReactor], Awaitable[T]]") -> T:
    """
    Runs `work(reactor)` to its end and returns its result or raises its error.  Once per process: a reactor does not
    start twice.

    Ctrl-C and SIGTERM cancel the work, wait for its `finally` blocks (10 s at most) and raise KeyboardInterrupt.  After
    work that was done they are what they were before.
    """
    quiet_logs()
    # Twisted loads OpenSSL wherever it is installed; a command that speaks no TLS starts a tenth of a second sooner
    # without it.
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)
    from twisted.internet import reactor as global_reactor

    from quire.metadata.readiness import straighten

    reactor = cast("ProcessReactor", global_reactor)
    steady(reactor)
    straighten(reactor)
    stop_once(reactor)
    started: list[Deferred[T]] = []
    outcome: list[T | Failure] = []
    ended: Deferred[None] = Deferred()

    async def whole() -> T:
        return await work(reactor)

    def end(result: T | Failure) -> None:
        outcome.append(result)
        ended.callback(None)
        reactor.stop()

    def interrupted() -> Deferred[None] | None:
        if ended.called or not started:
            return None
        started[0].cancel()
        return ended.addTimeout(CLEANUP_S, cast(IReactorTime, reactor)).addErrback(lambda failure: None)

    def begin() -> None:
        deferred = Deferred.fromCoroutine(whole())
        started.append(deferred)
        deferred.addBoth(end)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", interrupted)
    reactor.run()
    if not outcome:
        raise KeyboardInterrupt
    result = outcome[0]
    if isinstance(result, Failure):
        assert result.value is not None
        if isinstance(result.value, CancelledError):
            raise KeyboardInterrupt
        raise result.value
    for number, handler in before.items():  # the reactor leaves its own, which do nothing any more
        signal.signal(number, handler)
    return result


def with_client(
    uri: str, work: "Callable[[ProcessReactor, Client], Awaitable[T]]", options: "ClientOptions | None" = None
) -> T:
    """Runs `work(reactor, client)` with a client of the cluster at `uri`, closed afterwards."""

    async def whole(reactor: "ProcessReactor") -> T:
        from quire.client.api import connect

        client = await bounded(reactor, connect(reactor, uri, options), uri)
        gc.freeze()  # what the start made stays for ever
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            return await work(reactor, client)
        finally:
            await client.close()

    return run(whole)


def with_store(uri: str, work: "Callable[[MetadataStore], Awaitable[T]]", options: "StoreOptions | None" = None) -> T:
    """Runs `work(store)` with the store at `uri`, perhaps without a cluster yet.  `options`: else the client's."""
    chosen = options or _store_options(uri)
    timeout = chosen.session_timeout_ms

    async def whole(reactor: "ProcessReactor") -> T:
        from quire.metadata.uri import open_store

        store = await bounded(reactor, open_store(reactor, uri, session_timeout_ms=timeout, security=chosen), uri)
        try:
            return await work(store)
        finally:
            await store.close()

    return run(whole)


def _store_options(uri: str) -> "StoreOptions":
    """The client's; where their file can't be read, the defaults for a store in a file, which needs none of them."""
    from quire.conf.client import ClientOptions
    from quire.conf.properties import ConfigurationError

    try:
        return client_options()
    except ConfigurationError as failure:
        if not isinstance(failure.__cause__, OSError) or not uri.startswith(SQLITE):
            raise
        return ClientOptions()


async def bounded(clock: Clock, deferred: Deferred[T], uri: str) -> T:
    """Fails with `MetaStore` and the address when the store at `uri` takes longer than 20 s."""
    try:
        return await deferred.addTimeout(CONNECT_S, cast(IReactorTime, clock))
    except DeferredTimeout:
        raise MetaStore(f"the metadata store at {uri} did not answer within {CONNECT_S:.0f} s") from None


def quiet_logs() -> None:
    """Drops log events below error, for a command says what matters; not warnings of `WARNERS`, also earlier ones."""
    from twisted.logger import (
        FileLogObserver,
        FilteringLogObserver,
        LogEvent,
        LogLevel,
        LogLevelFilterPredicate,
        eventAsText,
        globalLogBeginner,
    )

    def line(event: LogEvent) -> str:
        text = eventAsText(event, includeTraceback=False, includeTimestamp=False, includeSystem=False).strip()
        return f"quire: {text}\n" if text else ""

    # zope.interface declares what these implement; a type checker can't see it.
    wanted: Any = LogLevelFilterPredicate(defaultLogLevel=LogLevel.error)
    for namespace in WARNERS:
        wanted.setLogLevelForNamespace(namespace, LogLevel.warn)
    lines: Any = FileLogObserver(sys.stderr, line)
    observer: Any = FilteringLogObserver(lines, [wanted])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=False)
