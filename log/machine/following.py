"""
What a replica reads: the log from an index on, until it is told to stop; or only the news of its manifest.

Knows: readers of the shared view, and which of their ends is final.
Does not know: what is done with records.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.log.core.machine.applying_messages import Ends, Given, Grown, Input, Read, ReadFailed, Trimmed
from quire.log.reader import seeking
from quire.log.reader.batches import LogBatch
from quire.log.reader.reader import LogReader
from quire.log.reader.view import LogView
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import LogDamaged, LogTrimmed, NoSuchLog, SegmentLost, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

EVER_S = 1e9

Feed = Callable[[Input], None]
Room = Callable[[], Awaitable[None]]
FINAL = (NoSuchLog, SegmentLost, LogDamaged, UnknownFormat, ClientClosed)


class Following:
    """
    One way of following, from `read` or `rest` to `stop`.  `feed` hears of what there is; `room()` gives a Deferred
    when it is to wait until what it gave is applied.
    """

    def __init__(self, client: Client, view: LogView, read_ahead_bytes: int) -> None:
        self._client = client
        self._view = view
        self._read_ahead_bytes = read_ahead_bytes
        self._reader: LogReader | None = None
        self._ended = False

    def _has_ended(self) -> bool:
        return self._ended

    async def read(self, index: int, feed: Feed, room: Room) -> None:
        """All records from an index on."""
        try:
            end = (await seeking.end(self._client, self._view)).index
            if self._has_ended():
                return
            feed(Ends(end))
            self._reader = LogReader(self._client, self._view, index, self._read_ahead_bytes)
            async with aclosing(self._reader.tail(EVER_S)) as batches:
                async for batch in batches:
                    if self._has_ended():
                        return
                    feed(Read(given_of(batch)))
                    await room()
        except LogTrimmed:
            if not self._ended:
                feed(Trimmed())
        except LedgerError as error:
            if not self._ended:
                feed(ReadFailed(error, isinstance(error, FINAL)))

    async def rest(self, feed: Feed) -> None:
        """Only how far closed segments reach."""
        manifest = await self._view.manifest()
        while not self._has_ended():
            feed(Grown(manifest.closed_end[0]))
            try:
                manifest = await self._view.newer(manifest, EVER_S, soon=False, has_ended=self._has_ended)
            except LedgerError as error:
                if not self._ended:
                    feed(ReadFailed(error, isinstance(error, FINAL)))
                return

    def stop(self) -> None:
        """Nothing more is heard of it."""
        self._ended = True
        if self._reader is not None:
            Deferred.fromCoroutine(self._reader.close()).addErrback(lambda _failure: None)
        else:
            self._view.wake()


def given_of(batch: LogBatch) -> Given:
    """What a reader was given, as the replica's machine takes it."""
    return Given(batch.index, batch.count, sum(map(len, batch.values)), batch.records)
