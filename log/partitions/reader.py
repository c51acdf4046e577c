"""
A reader of all partitions of a log.

Knows: what each partition's reader gives, in which order batches of several come out, how far each was given out.
Does not know: how a log is read.

Each partition's records come in their order; there is none among partitions.  One batch of each is asked for at a time,
and given out in the order in which they came: a partition with much does not keep others waiting.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from quire.log.partitions.following import PartitionHandles, Whole
from quire.log.reader.batches import LogBatch, Record
from quire.log.reader.reader import LogReader

# SPDX-License-Identifier: Apache-2.0

FOREVER_S = 1e9

Stream = Callable[[LogReader], AsyncGenerator[LogBatch, None]]


class PartitionBatch(NamedTuple):
    """A batch and the partition that it is from."""

    partition: int
    batch: LogBatch


class PartitionRecord(NamedTuple):
    """A record and the partition that it is from."""

    partition: int
    record: Record


class PartitionedReader(PartitionHandles[LogReader]):
    """
    Reads partitions, `parts`, each in order; made by `Logs.read_partitions`.  `indexes` has the index of the next
    record of each, `begins` that of the first; partitions that come are read from their begin on.
    """

    def __init__(
        self, whole: Whole, chosen: Iterable[int] | None, open_: Callable[[int, bool], Awaitable[LogReader]]
    ) -> None:
        super().__init__(whole, chosen, open_)
        self.indexes: dict[int, int] = {}
        self.begins: dict[int, int] = {}
        self._merging: list[Merging] = []

    async def begin(self) -> None:
        """Opens the readers."""
        await super().begin()
        for number in self.parts:
            self._place(number)

    async def batches(self) -> AsyncGenerator[PartitionBatch, None]:
        """Gives what is there now.  The errors of `LogReader.batches`."""
        async for each in self._merged(lambda reader: reader.batches(), None):
            yield each

    async def tail(self, timeout: float) -> AsyncGenerator[PartitionBatch, None]:
        """
        Gives what is there now, then what comes, also in partitions that come; ends when nothing came for `timeout`
        seconds, or at the end of all partitions.
        """
        async for each in self._merged(lambda reader: reader.tail(FOREVER_S), timeout):
            yield each

    async def _merged(self, begin: Stream, timeout: float | None) -> AsyncGenerator[PartitionBatch, None]:
        merging = Merging(begin)
        self._merging.append(merging)
        try:
            for number in sorted(self.parts):
                self._add(merging, number)
            while not self.closed and (found := await merging.following(self._clock, timeout)) is not None:
                number, batch = found
                self.indexes[number] = batch.end
                yield PartitionBatch(number, batch)
                merging.ask(number)
        finally:
            self._merging.remove(merging)
            await merging.end()

    def _add(self, merging: "Merging", number: int) -> None:
        reader = self.parts[number]
        reader.index = self._place(number)
        merging.add(number, reader)

    def _place(self, number: int) -> int:
        """The index of a partition's next record."""
        return self.indexes.setdefault(number, self.begins.setdefault(number, self.parts[number].index))

    def _grew(self, new: range) -> None:
        for number in new:
            if number in self.parts:
                self._place(number)
                for merging in self._merging:
                    self._add(merging, number)


class Merging:
    """One batch of each partition's reader at a time, as they come."""

    def __init__(self, begin: Stream) -> None:
        self._begin = begin
        self._streams: dict[int, AsyncGenerator[LogBatch, None]] = {}
        self._asked: dict[int, Deferred[Any]] = {}
        self._come: deque[tuple[int, Any]] = deque()  # a batch, None at the end, or a failure
        self._news: Deferred[None] | None = None

    def add(self, number: int, reader: LogReader) -> None:
        """Begins with a partition."""
        self._streams[number] = self._begin(reader)
        self.ask(number)

    def ask(self, number: int) -> None:
        """Asks a partition for its next batch."""

        async def following() -> LogBatch | None:
            try:
                return await anext(self._streams[number])
            except StopAsyncIteration:
                return None

        def came(result: Any) -> None:
            self._asked.pop(number, None)
            self._come.append((number, result))
            self.wake()

        self._asked[number] = asked = Deferred.fromCoroutine(following())
        asked.addBoth(came)

    def wake(self) -> None:
        """Lets who waits for a batch look again."""
        if self._news is not None:
            news, self._news = self._news, None
            news.callback(None)

    async def following(self, clock: Any, timeout: float | None) -> tuple[int, LogBatch] | None:
        """The next batch and its partition; None at the end of all, after `timeout` seconds of silence, or woken."""
        until = None if timeout is None else clock.seconds() + timeout
        while True:
            while self._come:
                number, result = self._come.popleft()
                if isinstance(result, Failure):
                    result.raiseException()
                if result is not None:
                    return number, result
                del self._streams[number]
            if not self._asked:
                return None
            wait = None if until is None else until - clock.seconds()
            if wait is not None and wait <= 0:
                return None
            self._news = Deferred()
            timer = None if wait is None else clock.callLater(wait, self.wake)
            try:
                await self._news
            finally:
                self._news = None
                if timer is not None and timer.active():
                    timer.cancel()

    async def end(self) -> None:
        """Ends all streams."""
        for asked in list(self._asked.values()):
            asked.cancel()
            await asked
        for stream in self._streams.values():
            with suppress(CancelledError):
                await stream.aclose()
