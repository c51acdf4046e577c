"""
A look at something that is repeated in the background, so that a page never waits for it.

Knows: the last result, when it was made, why the last try failed.  Does not know: what is looked at.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, Timer
from quire.protocol.errors import LedgerError
from quire.tools.commands.doctor.examining import said

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
WRONG = "it failed in a way that it should not; the log of the console has the place"


class Round(Generic[T]):
    """
    `look` is run again `period_s` after it has ended, however it ended, or later: it takes that `share` of the time at
    most.  `name`: in the log.
    """

    log = Logger(namespace="quire.console")

    def __init__(
        self,
        clock: Clock,
        name: str,
        period_s: float,
        look: Callable[[], Coroutine[Deferred[Any], Any, T]],
        share: float = 1.0,
    ) -> None:
        self.value: T | None = None
        self.at: float | None = None  # by the clock
        self.problem = ""  # of the last try
        self._clock = clock
        self._name = name
        self._period = period_s
        self._share = share
        self._begun = 0.0
        self._look = look
        self._next: Timer | None = None
        self._under_way: Deferred[None] | None = None

    @property
    def age(self) -> float | None:
        """How old the result is, in s; None while there is none."""
        return None if self.at is None else self._clock.seconds() - self.at

    def start(self) -> Deferred[None]:
        """Begins the first look; fires when that has ended."""
        self._next, self._begun = None, self._clock.seconds()
        self._under_way = Deferred.fromCoroutine(self._one()).addErrback(self._unexpected)
        return self._under_way

    async def _one(self) -> None:
        try:
            value = await self._look()
        except DeferredTimeout:
            self.problem = "there was no answer in time"
        except (LedgerError, OSError, ValueError) as error:
            self.problem = said(error)
        else:
            self.value, self.at, self.problem = value, self._clock.seconds(), ""
        self._again()

    def _unexpected(self, failure: Failure) -> None:
        if isinstance(failure.value, CancelledError):  # the end has come
            return
        self.log.failure("{name}", failure, name=self._name)
        self.problem = WRONG
        self._again()

    def _again(self) -> None:
        took = self._clock.seconds() - self._begun
        self._next = self._clock.callLater(max(self._period, took / self._share - took), self.start)

    async def stop(self) -> None:
        """Ends a look that is under way, and makes no other."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        if self._under_way is not None:
            self._under_way.cancel()
