"""
A bookie that tries itself from time to time (`sanityCheckMetricsEnabled`), and the metric that says what came of it:

    quire_bookie_sanity, bookie_SERVER_SANITY   1: the last try passed, or the bookie is read-only; 0: it failed;
                                                -1: none was made yet

Knows: when it is tried, and how long a try may take.  Does not know: what a try is (`apache_paths`).
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, pause
from quire.metrics.families import exact
from quire.protocol.errors import LedgerError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# SPDX-License-Identifier: Apache-2.0

EVERY_S = 60.0
TRY_S = 30.0  # a try that takes longer has failed
MEANING = "1: the last try of this bookie passed, or it is read-only; 0: it failed; -1: none was made yet"


class Sanity:
    """`tried`: makes a try and returns {"passed", "readOnly", "reason"} of it."""

    log = Logger(namespace="quire.bookie")

    def __init__(self, clock: Clock, tried: Callable[[], Awaitable[dict[str, Any]]], apaches: bool = True) -> None:
        """`apaches`: with the name of Apache's, too."""
        self.passed = -1
        self._clock = clock
        self._tried = tried
        self._apaches = apaches
        self._working: Deferred[None] | None = None

    def start(self) -> None:
        """Once."""
        self._working = Deferred.fromCoroutine(self._work()).addErrback(self._ended)

    def _ended(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError):
            self.log.failure("the bookie tries itself no more", failure)

    async def stop(self) -> None:
        """Ends a try under way."""
        if self._working is not None:
            self._working.cancel()

    async def _work(self) -> None:
        while True:
            await pause(self._clock, EVERY_S)
            found = await self._one()
            passed = int(found["passed"] or found["readOnly"])
            if passed != self.passed and not passed:
                self.log.warn("the bookie does not pass its own test: {reason}", reason=found.get("reason"))
            self.passed = passed

    async def _one(self) -> dict[str, Any]:
        trying = Deferred.fromCoroutine(self._begun())
        trying.addTimeout(TRY_S, cast(IReactorTime, self._clock))
        try:
            return await trying
        except DeferredTimeout:
            return {"passed": False, "readOnly": False, "reason": f"it took more than {TRY_S:.0f} s"}
        except (LedgerError, ValueError, OSError) as error:
            return {"passed": False, "readOnly": False, "reason": str(error)}

    async def _begun(self) -> dict[str, Any]:
        return await self._tried()

    def collect(self) -> "Iterator[Metric]":
        for name in ("quire_bookie_sanity", "bookie_SERVER_SANITY") if self._apaches else ("quire_bookie_sanity",):
            yield exact(name, MEANING, [({}, self.passed)])
