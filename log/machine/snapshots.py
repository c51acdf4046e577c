"""
The snapshots of a log: written to a ledger and named, read back whole.

Knows: the order of ledger, data, close and edit, and how a damaged snapshot differs from one that can't be read now.
Does not know: what the data mean, when a snapshot is due, which one is chosen.

Safety: a snapshot is named after its ledger is closed and holds what was written; nobody is given a part of one whose
count and sum are not those of the manifest.
"""

from collections import deque
from collections.abc import Iterable

from crc32c import crc32c
from twisted.internet.defer import CancelledError, Deferred

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.machine.snapshot_edit import NameSnapshot, newest
from quire.log.core.machine.snapshot_ledger import Content, End, Head, check_end, check_head, slices
from quire.log.core.manifest import Manifest
from quire.log.core.values import Snapshot
from quire.log.store.kept import Kept
from quire.log.store.ledgers import Tags
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import RecordError
from quire.protocol.errors import (
    ClientClosed,
    DigestMatch,
    LedgerError,
    MetaStore,
    NoSuchEntry,
    NoSuchLedger,
)
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

UNDER_WAY = 8  # entries that have no acknowledgement yet
DAMAGE = (DigestMatch, LogDamaged, UnknownFormat, NoSuchEntry, NoSuchLedger)  # that reading again does not mend


class Snapshots:
    """Of one log.  `close`: what is being written is given up."""

    def __init__(self, kept: Kept) -> None:
        self._client = kept.client
        self._log = kept.log
        self._ledgers = kept.ledgers
        self._reached = kept.reached
        self._poll_s = kept.options.poll_ms / 1000
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
        if manifest.snapshots and newest(manifest) >= index:
            return newest(manifest)
        tags = Tags("log-snapshot", manifest.id, manifest.name, self._log.new_id(), {"epoch": str(epoch)})
        writer = await self._ledgers.create(LogSettings.of(manifest.settings), tags)
        try:
            self._reached("snapshot.created")
            end = await self._fill(writer, Head(manifest.id, index, epoch, machine), data)
            self._reached("snapshot.closed")
            snapshot = Snapshot(index, writer.id, end.bytes, end.entries, end.crc, machine, epoch)
            if not await self._is_whole(snapshot):
                raise LogDamaged(f"ledger {writer.id}, a snapshot of the log {manifest.name!r}, was ended by another")
            named = await self._name(snapshot)
        except (MetaStore, CancelledError):  # it may come to be named; the orphan finder knows
            writer.shut_down()
            raise
        except BaseException:
            writer.shut_down()
            await self._discard(writer.id)
            raise
        self._reached("snapshot.named")
        return newest(named)

    async def _fill(self, writer: Writer, head: Head, data: Iterable[bytes]) -> End:
        content = Content(crc32c)
        sent: deque[Deferred[int]] = deque([writer.append(head.encode())])
        try:
            for piece in slices(data):
                self._check_open()
                sent.append(writer.append(content.add(piece)))
                while len(sent) >= UNDER_WAY:
                    await sent.popleft()
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

    async def _name(self, snapshot: Snapshot) -> Manifest:
        """The manifest that says so, or why not; tried until that is known."""
        edit, id_ = NameSnapshot(snapshot, self._log.now_ms()), self._log.new_id()

        async def is_whole(_manifest: Manifest) -> bool:
            return await self._is_whole(snapshot)

        while True:
            try:
                return (await self._log.edit(edit, id_, look_up=is_whole)).manifest
            except RecordError:
                raise
            except MetaStore:
                if self._ended:
                    raise
                await pause(self._client.reactor, self._poll_s)

    async def _is_whole(self, snapshot: Snapshot) -> bool:
        try:
            return is_whole(await self._client.metadata(snapshot.ledger), snapshot)
        except NoSuchLedger:
            return False

    async def _discard(self, ledger: int) -> None:
        """One that was never named."""
        try:
            await self._ledgers.delete(ledger)
        except LedgerError:
            return  # the orphan finder knows

    async def read(self, snapshot: Snapshot) -> list[bytes]:
        """
        The data, in the entries in which they were written.  Any of `DAMAGE` when it can't be read ever; other errors
        of reading a ledger.
        """
        metadata = await self._client.metadata(snapshot.ledger)
        if not is_whole(metadata, snapshot):
            raise LogDamaged(f"ledger {snapshot.ledger} is {metadata.state.name} at entry {metadata.last_entry}")
        ledger = await self._client.open_ledger(snapshot.ledger, metadata.password or b"", recover=False)
        content, found = Content(crc32c), list[bytes]()
        try:
            async for some in ledger.stream(0, metadata.last_entry):
                for entry in some:
                    if entry.entry_id == 0:
                        check_head(Head.decode(entry.data), self._log.log, snapshot)
                    elif entry.entry_id == metadata.last_entry:
                        check_end(End.decode(entry.data), content, snapshot)
                    else:
                        found.append(content.add(entry.data))
        finally:
            await ledger.close()
        return found


def is_whole(metadata: LedgerMetadata, snapshot: Snapshot) -> bool:
    """Whether a ledger is closed behind as many entries as the snapshot has, its first and last one beside."""
    return metadata.is_closed and metadata.last_entry == snapshot.entries + 1
