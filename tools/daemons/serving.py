"""
What runs inside a bookie's process: the bookie, its refilling and its surplus runs, from the first turn of the reactor
to the last.

Knows: in which order they start, that they stop latest first, and why the process ends.
Does not know: the command line, signals, where logs go; see `bookie`.
"""

import gc
import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.lifecycle.bookie import START_FAILURES, Bookie
from quire.bookie.lifecycle.parts import open_storage
from quire.metadata.uri import open_store
from quire.tools.daemons.descriptors import divided, raised
from quire.tools.daemons.refill import Refill
from quire.tools.daemons.surplus import SurplusRuns

if TYPE_CHECKING:
    from quire.conf.bookie import BookieOptions
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

GC_THRESHOLDS = (200_000, 20, 50)  # batches make few cycles; the start's objects are frozen besides


class Ending(NamedTuple):
    """Why the process ends, other than by a stop that was asked for."""

    reason: str
    wrong_usage: bool = False  # the configuration can't work


class Serving:
    """One bookie in this process.  `ending` is set before the reactor stops, if something failed."""

    log = Logger(namespace="quire.bookie")

    def __init__(self, reactor: "ProcessReactor", options: "BookieOptions", restore: bool, as_json: bool) -> None:
        self.ending: Ending | None = None
        self._reactor = reactor
        self._options = options
        self._restore = restore
        self._as_json = as_json
        self._started = False
        self._under_way: Deferred[None] | None = None
        self._to_stop: list[Callable[[], Awaitable[None]]] = []

    def begin(self) -> None:
        """In the reactor's first turn."""
        self._under_way = Deferred.fromCoroutine(self._serve()).addErrback(self._unexpected)

    def stop(self) -> Deferred[None]:
        """A signal came, or something failed: stops everything, latest first."""
        stopping = Deferred.fromCoroutine(self._stop())
        return stopping.addErrback(lambda failure: self.log.failure("stopping", failure))

    async def _serve(self) -> None:
        try:
            bookie = await self._start()
            self._started = True
            settle_memory()
            if not bookie.ended.called:
                announce(bookie, self._as_json)
            await bookie.ended
        except START_FAILURES as failure:
            self._end(Ending(str(failure) or type(failure).__name__))
        except ValueError as failure:  # a metadata URI that no driver serves
            self._end(Ending(str(failure), wrong_usage=True))
        except CancelledError:
            return

    async def _start(self) -> Bookie:
        reactor, options, to_stop = self._reactor, self._options, self._to_stop
        parts = divided(raised(), options)
        self.log.info(
            "{limit} files may be open: {store} in each index and table, {logs} entry logs in each ledger directory, "
            "{connections} connections (connectionsMax={wanted})",
            wanted=options.connections_max,
            **parts._asdict(),
        )
        served = options.model_copy(update={"connections_max": parts.connections})
        store = await open_store(reactor, options.metadata_uri, session_timeout_ms=options.session_timeout_ms)
        to_stop.append(store.close)
        bookie = Bookie(
            reactor,
            served,
            store,
            storage=partial(open_storage, tables_open_max=parts.store, logs_open_max=parts.logs),
            restore=self._restore,
        )
        await bookie.start()
        to_stop.append(bookie.stop)
        refill = Refill(reactor, bookie)
        to_stop.append(refill.stop)
        bookie.limbo.listen(refill)
        refill.start()
        if self._restore:
            await refill.first_round()
        surplus = SurplusRuns(reactor, bookie)
        to_stop.append(surplus.stop)
        surplus.start()
        return bookie

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
        if self._reactor.running:
            self._reactor.callLater(0, lambda: self._reactor.running and self._reactor.stop())

    def _unexpected(self, failure: Failure) -> None:
        self.log.failure("the bookie failed", failure)
        self._end(Ending("the bookie failed in a way that it should not; its log has the place"))

    async def _stop(self) -> None:
        if not self._started and self._under_way is not None:
            over: Deferred[None] = Deferred()
            self._under_way.addBoth(over.callback)
            self._under_way.cancel()  # a start that is under way puts away what it had opened
            await over
        while self._to_stop:
            await self._to_stop.pop()()


def settle_memory() -> None:
    """What the start made stays for ever: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def announce(bookie: Bookie, as_json: bool) -> None:
    """The ready line."""
    url = f"http://{bookie.options.metrics_host}:{bookie.http_port}/metrics"
    if as_json:
        ready = {
            "ready": bookie.id,
            "address": f"{bookie.host}:{bookie.port}",
            "metrics": url,
            "pid": os.getpid(),
            "read_only": bookie.read_only,
        }
        print(json.dumps(ready), flush=True)
    else:
        print(f"ready {bookie.id} {bookie.host}:{bookie.port} {url}", flush=True)
