"""
The ledger in which a cursor's holder stores what is acknowledged.

Knows: that it begins with a checkpoint, that changes follow, and after many of them another checkpoint; that one which
can't be read to its end still says what it can.
Does not know: the cursor's value, who names the ledger, when it is written.

Safety: what is read is what somebody acknowledged; acknowledgements that can't be read come again.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from twisted.internet.defer import Deferred

from quire.client.api import Client, Writer
from quire.conf.log import LogSettings
from quire.log.core.streams.cursors import (
    BODY_BYTES,
    CursorEntry,
    Kind,
    bodies,
    pack_change,
    pack_checkpoint,
    unpack_entry,
)
from quire.log.core.streams.marks import Marks, Taken
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.metadata.clock import pause
from quire.protocol.log_errors import LogDamaged, LogError

# SPDX-License-Identifier: Apache-2.0

CHANGES_BYTES_MAX = 64 << 20  # behind a checkpoint; then the next one
LEDGER_BYTES_MAX = 1 << 30
AT_ONCE = 32  # entries, for a writer's window has an end
RUNS_A_TURN = 4096  # that are read before others have as long as it took


class CursorLedger:
    """Being written.  `checkpoint` is the entry at which the last one begins, `mark` that of the last one."""

    def __init__(self, context: LogContext, writer: Writer) -> None:
        self.id = writer.id
        self.checkpoint = 0
        self.mark = 0
        self._clock = context.client.reactor
        self._counters = context.log.counters
        self._writer = writer
        self._bytes = 0
        self._changes_bytes = 0

    @classmethod
    async def made(cls, context: LogContext, cursor: str) -> "CursorLedger":
        """A new one of that cursor; nothing is in it.  The errors of `Client.create_ledger`."""
        records = context.log
        settings = LogSettings.of((await records.read()).value.settings)
        tags = Tags("log-cursor", records.log, records.name, records.new_id(), {"cursor": cursor})
        return cls(context, await context.ledgers.create(settings, tags))

    @property
    def needs_checkpoint(self) -> bool:
        """Whether so much was written since the last one that reading it all would take long."""
        return self._changes_bytes >= CHANGES_BYTES_MAX

    @property
    def is_full(self) -> bool:
        """Whether another ledger is to follow."""
        return self._bytes >= LEDGER_BYTES_MAX

    async def write_checkpoint(self, marks: Marks) -> None:
        """All of it, as it is now.  The errors of a writer."""
        taken = marks.take_all()
        first = await self._append(pack_checkpoint(taken.mark, await self._encoded(taken)))
        self.checkpoint, self.mark, self._changes_bytes = first, taken.mark, 0

    async def write_change(self, marks: Marks) -> None:
        """What is new.  The errors of a writer."""
        taken = marks.take()
        entries = [pack_change(taken.mark, body) for body in await self._encoded(taken)]
        await self._append(entries)
        self._changes_bytes += sum(map(len, entries))

    async def _encoded(self, taken: Taken) -> list[bytes]:
        """What was taken, as the bodies of entries; after each others have as long as it took."""
        found: list[bytes] = []
        begun = self._clock.seconds()
        for body in bodies(taken.mark, taken.runs()):
            found.append(body)
            if len(body) >= BODY_BYTES:
                await pause(self._clock, self._clock.seconds() - begun)
                begun = self._clock.seconds()
        return found

    async def _append(self, entries: list[bytes]) -> int:
        first = self._writer.last_add_pushed + 1
        for start in range(0, len(entries), AT_ONCE):
            await self._writer.append_many(entries[start : start + AT_ONCE])
        size = sum(map(len, entries))
        self._bytes += size
        self._counters.cursor_persist_bytes += size
        return first

    def close(self) -> Deferred[None]:
        """Ends the ledger."""
        return self._writer.close()

    def leave(self) -> None:
        """Nothing is written any more; upkeep ends the ledger."""
        self._writer.shut_down()


async def load(client: Client, ledger: int, checkpoint: int, marks: Marks) -> None:
    """
    Adds what a ledger says, which is brought to its end first: its writer loses it.  The errors of a recovery and of
    reading, `LogDamaged`, with what could be read before; `TooManyRequests`, `UnknownFormat`.
    """
    clock, taken, begun = client.reactor, 0, client.reactor.seconds()
    async with aclosing(_entries(client, ledger, checkpoint)) as entries:
        async for entry in entries:
            marks.rise(entry.mark)
            for start, stop in entry.runs:
                marks.add_run(start, stop)
            taken += len(entry.runs)
            if taken >= RUNS_A_TURN:
                await pause(clock, clock.seconds() - begun)
                taken, begun = 0, clock.seconds()


async def _entries(client: Client, ledger: int, checkpoint: int) -> AsyncGenerator[CursorEntry, None]:
    """From the checkpoint on, which has to be whole."""
    metadata = await client.recover_ledger(ledger)
    reader = await client.open_ledger(ledger, metadata.password or b"", recover=False)
    count, parts = 0, 1
    try:
        async for some in reader.stream(checkpoint):
            for each in some:
                try:
                    entry = unpack_entry(each.data)
                except LogError as error:
                    raise type(error)(f"ledger {ledger}, entry {each.entry_id}: {error}") from None
                if count < parts:
                    if (entry.kind, entry.part) != (Kind.CHECKPOINT, count):
                        break
                    parts = entry.parts
                count += 1
                yield entry
    finally:
        await reader.close()
    if count < parts:
        raise LogDamaged(f"ledger {ledger} has {count} of the {parts} parts of the checkpoint at entry {checkpoint}")
