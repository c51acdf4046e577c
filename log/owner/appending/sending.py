"""
An owner's batches on their way into the open segment: given to the hook, encoded in order, and handed to its ledger's
writer as that has room.

Knows: which batches wait for room in the writer's window, where their records will be, and the ids of their entries.
Does not know: when a batch is acknowledged, and which segment comes next; what the hook does.

Safety: batches are encoded in the order in which they came, and each gets the ids that its entries are appended under;
none goes to a writer behind one that it did not take.  What the hook raises fails the append that it was asked about,
and no other one of the same entry.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from quire.client.api import Writer
from quire.log.core.batch import Records
from quire.log.core.counters import LogCounters
from quire.log.core.ownership_messages import UNSENT, Item
from quire.log.owner.appending.appends import Batch, checked_skips, drop_failed, joined, part
from quire.log.owner.appending.encoder import Encoder, Hook, Placed, Prepared
from quire.log.owner.appending.producing import Producing
from quire.metadata.clock import Clock
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

SLOW_S = 0.1  # of a call, in which the process does nothing else


class Refused(NamedTuple):
    """An append that the hook does not want."""

    batch: Batch
    error: Exception


def timed(hook: Hook, clock: Clock, counters: LogCounters) -> Hook:
    """Wraps a hook so that its slow calls are counted, those that raise among them."""

    def call(index: int, position: int, stamp_ms: int, values: Sequence[bytes]) -> Sequence[bytes] | Prepared:
        begun = clock.seconds()
        try:
            return hook(index, position, stamp_ms, values)
        finally:
            counters.hook_slow += clock.seconds() - begun > SLOW_S

    return call


def prepare(hook: Hook, batch: Batch, encoder: Encoder, now_ms: int) -> tuple[Records, list[Refused]]:
    """The records to store.  The hook is asked about all, and if it raises about each append; those refused leave."""
    stamp = max(encoder.stamp, now_ms)
    try:
        return _asked(hook, batch.records, encoder.index, encoder.position, stamp), []
    except Exception as error:
        if len(batch.calls) == 1:
            refused = [Refused(Batch(batch.records, batch.calls), error)]
            batch.records, batch.calls = Records([]), []
            return batch.records, refused
    made: list[Records] = []
    kept: list[Batch] = []
    refused = []
    start, index, at = 0, encoder.index, encoder.position
    for call, count in batch.calls:
        own = Batch(part(batch.records, start, start + count), [(call, count)])
        start += count
        try:
            stored = _asked(hook, own.records, index, at, stamp)
        except Exception as error:
            refused.append(Refused(own, error))
            continue
        made.append(stored)
        kept.append(own)
        index += count
        at += stored.size
    batch.calls = [own.calls[0] for own in kept]
    batch.records = joined([own.records for own in kept])
    return joined(made), refused


def _asked(hook: Hook, records: Records, index: int, at: int, stamp: int) -> Records:
    try:
        found = hook(index, at, stamp, list(records.values))
    except TooManyRequests as error:  # taken for a window that is full, it would be appended again for ever
        raise LogError(f"before_append raised {error!r}") from error
    values, skips = (found.values, found.skips) if isinstance(found, Prepared) else (found, None)
    count = len(records.values)
    if len(values) != count or (skips is not None and len(skips) != count):
        raise ValueError(f"before_append gave {len(values)} values for {count}")
    for value in values:
        if not isinstance(value, bytes):
            raise TypeError(f"before_append gave a {type(value).__name__}, a value must be bytes")
    stored = list(values)
    skips = checked_skips(skips, stored)
    return Records(stored, records.keys, records.times, records.headers, records.producers, skips)


SENT_BYTES = 128 << 10  # with more than that, entries go to the ledger's writer in several calls


class Sending:
    """
    The way into one segment, from its beginning until `stop`.  `refused(batch, error)`: these appends fail, and were
    not sent; `make_room(records)`: these are under way no more; `appended(done)`: entries were handed to the writer,
    and `done` fails when it has ended before they were acknowledged; `run` performs what waits for the writer.
    """

    def __init__(
        self,
        encoder: Encoder,
        writer: Writer,
        hook: Hook | None,
        producing: Producing,
        *,
        refused: Callable[[Batch, Exception], None],
        make_room: Callable[[Records], None],
        appended: Callable[["Deferred[range]"], None],
        run: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.encoder = encoder
        self._writer = writer
        self._hook = hook
        self._producing = producing
        self._now_ms = producing.now_ms
        self._refused = refused
        self._make_room = make_room
        self._appended = appended
        self._run = run
        self._waiting: deque[Item] = deque()
        self._encoded: list[Batch] = []  # the writer does not have them yet
        self._is_sending = False
        self._waits = False  # for the writer's window
        self._has_stopped = False

    def send(self, items: Sequence[Item]) -> None:
        """Sends these too, behind what waits."""
        self._waiting += items
        self._go_on()

    def stop(self) -> None:
        """Stops sending what waits, what is being encoded, and what is encoded and not handed over."""
        self._has_stopped = True
        self._waiting.clear()
        for batch in self._encoded:
            batch.last = UNSENT

    def _go_on(self) -> None:
        """Encodes and appends what the writer sends at once; the rest when it has room again."""
        if self._is_sending:  # who is answered meanwhile appends behind what waits
            return
        self._is_sending = True
        waiting, writer, encoder, encoded = self._waiting, self._writer, self.encoder, self._encoded
        sent: list[bytes] = []
        size = 0
        try:
            while waiting and not writer.window_full:
                batch = waiting.popleft()
                assert isinstance(batch, Batch)
                try:
                    self._encode(batch, sent)
                except Exception as error:  # too large: these appends fail, and those of their producers behind them
                    self._refused(batch, error)
                    batch.records, batch.calls = Records([]), []
                    sent += encoder.nothing()
                if self._has_stopped:  # while those that were refused were told
                    return
                batch.last = encoder.entries - 1
                encoded.append(batch)
                size += batch.records.weight
                if size >= SENT_BYTES:
                    encoded.clear()
                    self._appended(writer.append_many(sent))
                    sent, size = [], 0
            if sent:
                encoded.clear()
                self._appended(writer.append_many(sent))
        finally:
            self._is_sending = False
        if waiting and not self._waits:
            self._waits = True
            self._run(self._go_on_later())

    async def _go_on_later(self) -> None:
        await self._writer.ready()
        self._waits = False
        self._go_on()

    def _encode(self, batch: Batch, sent: list[bytes]) -> None:
        """Adds its entries; a table that is due is there before what comes behind it is found to be too large."""
        encoder, now_ms = self.encoder, self._now_ms()
        self._drop_failed(batch)
        records = batch.records
        while self._hook is not None and batch.calls:
            records, refused = prepare(self._hook, batch, encoder, now_ms)
            for each in refused:
                self._refused(each.batch, each.error)
            if not self._drop_failed(batch):
                break  # else their producers' next ones failed with those, and the others come to be elsewhere
        if batch.barrier:
            batch.placed = Placed(encoder.index, [encoder.position], encoder.position)
        if not batch.calls or batch.barrier:  # or all of them failed before
            sent += encoder.nothing()
            return
        sent += self._producing.table(encoder, now_ms)
        entries, batch.placed = encoder.encode(records, now_ms)
        batch.stored = records
        self._producing.wrote(records.producers, batch.placed.first, len(records.lengths), encoder.stamp)
        sent += entries

    def _drop_failed(self, batch: Batch) -> bool:
        """True if a call of the batch had failed."""
        dropped = drop_failed(batch)
        for records in dropped:
            self._make_room(records)
        return bool(dropped)
