"""
A snapshot in a ledger of its own: written, named in the manifest of its log, and read back whole.

Knows: the order of ledger, data, close and edit, and what is deleted when one of them fails; that an edit whose outcome
is unknown is tried again with its id; how a damaged snapshot differs from one that can't be read now.
Does not know: what the data mean, when a snapshot is due, which one is chosen.

Safety: a snapshot is named after its ledger is closed and holds as many entries as it says, which is looked up after
the version of the manifest that the edit replaces was read.  A ledger that an edit may still name is never deleted
here, and nobody is given a part of a snapshot whose count and sum are not those of the manifest.
"""

from collections import deque
from collections.abc import Callable, Iterable

from crc32c import crc32c
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.machine.snapshots import Content, End, Head, NameSnapshot, check_end, check_head, newest, slices
from quire.log.core.manifest import Manifest
from quire.log.core.values import Snapshot
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import RecordError
from quire.protocol.errors import ClientClosed, DigestMatch, LedgerError, MetaStore, NoSuchEntry, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


async def name_snapshot(context: LogContext, snapshot: Snapshot, has_ended: Callable[[], bool]) -> int:
    """The index of the newest snapshot named then.  `NoSuchLog`; `MetaStore`: it ended before that is known."""
    edit, id_ = NameSnapshot(snapshot, context.log.now_ms()), context.log.new_id()

    async def look_up(_manifest: Manifest) -> bool:
        return await is_there(context, snapshot)

    while True:
        try:
            return newest((await context.log.edit(edit, id_, look_up=look_up)).manifest)
        except RecordError:
            raise
        except MetaStore:
            if has_ended():
                raise
            await pause(context.client.reactor, context.options.poll_ms / 1000)


async def is_there(context: LogContext, snapshot: Snapshot) -> bool:
    """True if its ledger is there, and whole."""
    try:
        return is_whole(await context.client.metadata(snapshot.ledger), snapshot)
    except NoSuchLedger:
        return False


def is_whole(metadata: LedgerMetadata, snapshot: Snapshot) -> bool:
    """True if a ledger is closed behind as many entries as the snapshot has, its first and last one beside."""
    return metadata.is_closed and metadata.last_entry == snapshot.entries + 1


DAMAGE = (DigestMatch, LogDamaged, UnknownFormat, NoSuchEntry, NoSuchLedger)  # that reading again does not mend


async def read_snapshot(context: LogContext, snapshot: Snapshot) -> list[bytes]:
    """The data, in the entries as written.  `DAMAGE`: it can't be read ever; other errors of reading a ledger."""
    metadata = await context.client.metadata(snapshot.ledger)
    if not is_whole(metadata, snapshot):
        raise LogDamaged(f"ledger {snapshot.ledger} is {metadata.state.name} at entry {metadata.last_entry}")
    ledger = await context.client.open_ledger(snapshot.ledger, metadata.password or b"", recover=False)
    content, found = Content(crc32c), list[bytes]()
    try:
        async for some in ledger.stream(0, metadata.last_entry):
            for entry in some:
                if entry.entry_id == 0:
                    check_head(Head.decode(entry.data), context.log.log, snapshot)
                elif entry.entry_id == metadata.last_entry:
                    check_end(End.decode(entry.data), content, snapshot)
                else:
                    found.append(content.add(entry.data))
    finally:
        await ledger.close()
    return found


UNDER_WAY = 8  # entries that have no acknowledgement yet


class SnapshotWriter:
    """Writes the snapshots of one log.  `close`: what is being written is given up."""

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
        """The index of the newest named snapshot then.  Errors of writing a ledger, `NoSuchLog`, errors of `data`."""
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
