"""
The handles of a log's partitions: opened together, joined by those of partitions that come, closed together.

Knows: which partitions are wanted, and that the log may grow meanwhile.
Does not know: what the handles do.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.core.partitions import check_partitions
from quire.log.streams.cursors import Closing
from quire.log.upkeep.known_logs import LogInfo
from quire.metadata.clock import Clock, pause
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

log = Logger()

RETRY_S = 1.0  # between two tries to join a partition that has come

H = TypeVar("H", bound=Closing)
T = TypeVar("T")


class Whole:
    """
    A partitioned log as its handles know it: name, how many partitions, a clock; `watch` as `Logs.watch`; `on_end` is
    called with a handle that was closed.
    """

    def __init__(
        self,
        name: str,
        count: int,
        clock: Clock,
        watch: Callable[[str, Callable[[LogInfo | None], object]], Watch],
        on_end: Callable[[Any], object],
    ) -> None:
        self.name = name
        self.count = count
        self.clock = clock
        self.watch = watch
        self.on_end = on_end


class PartitionHandles(Generic[H]):
    """
    The handles of partitions, `parts` by number.  `chosen`: which, None for all, also those that come.  `open_`: given
    a number, and whether the partition came after this handle was opened.  `count`: how many partitions the log has.
    """

    def __init__(self, whole: Whole, chosen: Iterable[int] | None, open_: Callable[[int, bool], Awaitable[H]]) -> None:
        self.name = whole.name
        self.count = whole.count
        self.parts: dict[int, H] = {}
        self._wanted = check_partitions(chosen, whole.count)
        self._has_all = chosen is None
        self._whole = whole
        self._clock = whole.clock
        self._open = open_
        self._watch: Watch | None = None
        self._growing: Deferred[None] | None = None
        self._known = whole.count  # perhaps more than `count`, while they are joined
        self._is_there = True
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once it was closed, by itself or with its logs."""
        return self._closed

    def _has_ended(self) -> bool:
        return self._closed

    async def begin(self) -> None:
        """Opens all; the first error, with none left open."""
        try:
            await self._join(self._wanted, False)
        except BaseException:
            await self.close()
            raise
        self._watch = self._whole.watch(self.name, self._seen)

    async def _join(self, numbers: Iterable[int], is_new: bool) -> None:
        async def opened(number: int) -> None:
            part = await self._open(number, is_new)
            if self._closed:
                await part.close()
                raise self._is_closed()
            self.parts[number] = part

        await together([opened(number) for number in numbers if number not in self.parts])

    def _is_closed(self) -> ClientClosed:
        return ClientClosed(f"this handle of the log {self.name!r} was closed")

    def _seen(self, info: LogInfo | None) -> None:
        """Hears how many partitions the log has; None of one that is not there."""
        self._is_there = info is not None
        self._known = max(self._known, 0 if info is None else info.settings.get("partitions", 0))
        if self._known > self.count and self._growing is None and not self._closed:
            self._growing = Deferred.fromCoroutine(self._grow())
            self._growing.addBoth(self._grown)  # at once where nothing is to be joined

    def _grown(self, result: Failure | None) -> None:
        self._growing = None
        if result is not None and not self._closed:
            log.failure("a bug in joining new partitions", result)

    async def _grow(self) -> None:
        """Joins the partitions that came, until it is done."""
        while self._known > self.count and not self._has_ended():
            known = self._known
            new = range(self.count, known)
            try:
                if self._has_all:
                    await self._join(new, True)
            except NoSuchLog:  # being deleted, or not made yet
                await pause(self._clock, RETRY_S)
            except LedgerError as error:
                if self._has_ended():
                    return
                log.warn("new partitions of the log {name}: {error}", name=self.name, error=str(error))
                await pause(self._clock, RETRY_S)
            else:
                self.count = known
                self._grew(new)

    def _grew(self, new: range) -> None:
        """Notes that the log has these partitions, too."""

    async def close(self) -> None:
        """Closes all of them."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        try:
            await together([_closed(part) for part in self.parts.values()])
        finally:
            if self._growing is not None:
                self._growing.cancel()
            self._whole.on_end(self)


async def _closed(part: Closing) -> None:
    await part.close()


async def together(work: Iterable[Any]) -> list[Any]:
    """Runs coroutines at the same time: their results, or when all have ended the first error of them."""
    running = [Deferred.fromCoroutine(each) for each in work]
    done: Sequence[tuple[bool, Any]] = await DeferredList(running, consumeErrors=True)
    for is_done, result in done:
        if not is_done:
            result.raiseException()
    return [result for _is_done, result in done]
