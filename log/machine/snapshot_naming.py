"""
A snapshot that is named in the manifest of its log.

Knows: when its ledger is whole, and that an edit whose outcome is unknown is tried again with its id.
Does not know: what is in it, who wrote it.

Safety: a snapshot is named after its ledger is closed and holds as many entries as it says, which is looked up after
the version of the manifest that the edit replaces was read.
"""

from collections.abc import Callable

from quire.log.core.machine.snapshot_edit import NameSnapshot, newest
from quire.log.core.manifest import Manifest
from quire.log.core.values import Snapshot
from quire.log.store.context import LogContext
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import RecordError
from quire.protocol.errors import MetaStore, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0


async def name_snapshot(context: LogContext, snapshot: Snapshot, has_ended: Callable[[], bool]) -> int:
    """
    The index of the newest snapshot that the manifest names then; another one if that is newer.  `NoSuchLog`;
    `MetaStore` when it has ended before that is known.
    """
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
    """Whether its ledger is there, and whole."""
    try:
        return is_whole(await context.client.metadata(snapshot.ledger), snapshot)
    except NoSuchLedger:
        return False


def is_whole(metadata: LedgerMetadata, snapshot: Snapshot) -> bool:
    """Whether a ledger is closed behind as many entries as the snapshot has, its first and last one beside."""
    return metadata.is_closed and metadata.last_entry == snapshot.entries + 1
