"""
A snapshot that is written to a ledger of its own, and named.

Knows: the order of ledger, data, close and edit; what is deleted when one of them fails.
Does not know: what the data mean, when a snapshot is due.

Safety: what may come to be named is never deleted here.
"""

from collections import deque
from collections.abc import Iterable

from crc32c import crc32c
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.machine.snapshot_ledger import Content, End, Head, slices
from quire.log.core.values import Snapshot
from quire.log.machine.snapshot_naming import name_snapshot
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0

UNDER_WAY = 8  # entries that have no acknowledgement yet


class SnapshotWriter:
    """Of one log.  `close`: what is being written is given up."""

    def __init__(self, context: LogContext) -> None:
        self._context = context
        self._log = context.log
        self._ledgers = context.ledgers
        self._reached = context.reached
        self._ended = False

    def close(self) -> None:
        """The writing ends soon, with `ClientClosed`."""
        self._ended = True

    async def write(self, data: Iterable[bytes], index: int, epoch: int, machine: str) -> int:
        """
        The index of the newest snapshot that the manifest names when this one was written; another one if that is
        newer.  The errors of writing a ledger, `NoSuchLog`; what `data` raises.
        """
        manifest = (await self._log.read()).value
        kept = [each.index for each in manifest.snapshots]
        if kept and max(kept) >= index:
            return max(kept)
        tags = Tags("log-snapshot", manifest.id, manifest.name, self._log.new_id(), {"epoch": str(epoch)})
        writer = await self._ledgers.create(LogSettings.of(manifest.settings), tags)
        try:
            self._reached("snapshot.created")
            end = await self._fill(writer, Head(manifest.id, index, epoch, machine), data)
            self._reached("snapshot.closed")
            snapshot = Snapshot(index, writer.id, end.bytes, end.entries, end.crc, machine, epoch)
            found = await name_snapshot(self._context, snapshot, lambda: self._ended)
        except (MetaStore, CancelledError):  # it may come to be named; the orphan finder knows
            writer.shut_down()
            raise
        except BaseException:
            writer.shut_down()
            await self._discard(writer.id)
            raise
        self._reached("snapshot.named")
        return found

    async def _fill(self, writer: Writer, head: Head, data: Iterable[bytes]) -> End:
        content = Content(crc32c)
        sent: deque[Deferred[int]] = deque([writer.append(head.encode())])
        try:
            for piece in slices(data):
                self._check_open()
                await writer.ready()
                sent.append(writer.append(content.add(piece)))
                while len(sent) >= UNDER_WAY:
                    await sent.popleft()
            await writer.ready()
            sent.append(writer.append(content.end.encode()))
            while sent:
                await sent.popleft()
        finally:
            for each in sent:
                each.addErrback(lambda _failure: None)
        self._reached("snapshot.written")
        self._check_open()
        await writer.close()
        return content.end

    def _check_open(self) -> None:
        if self._ended:
            raise ClientClosed("the replica was closed while its snapshot was written")

    async def _discard(self, ledger: int) -> None:
        """One that was never named."""
        try:
            await self._ledgers.delete(ledger)
        except LedgerError:
            return  # the orphan finder knows
