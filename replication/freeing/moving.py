"""
Moving one copy of a settled fragment from the bookie that has it to another one.

Knows: the order: copied, named under the ledger's repair lock, looked at once more.
Does not know: why that bookie, who asked for it.
"""

from collections.abc import Callable

from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.repairs import RepairLock
from quire.protocol.errors import Replication
from quire.replication.concurrently import Pace, Share
from quire.replication.copier import Copied, FragmentCopier, TargetFailed
from quire.replication.core.fragments import HeldFragment
from quire.replication.freeing.naming import Moved, keep, name

# SPDX-License-Identifier: Apache-2.0


async def move(
    client: Client,
    lock: RepairLock,
    record: LedgerRecord,
    part: HeldFragment,
    bookie: str,
    done: Callable[[Copied], None],
    pace: Pace | None = None,
    memory: Share | None = None,
) -> None:
    """Copies what the one index of a part holds to `bookie`, and names that.  `Replication` says why it could not."""
    (index,) = part.indexes
    where = f"ledger {record.ledger}, entries from {part.first} on"
    copier = FragmentCopier(client.pool, record, part, (), done, pace=pace, memory=memory)
    try:
        await copier.copy(index, bookie)
    except TargetFailed as error:
        raise Replication(f"{where}: {error}") from error
    moved = Moved(part, {index: bookie}, copier)
    if not (await name(client.store, lock, record, [moved])).moved:
        raise Replication(f"{where}: the ensemble was changed meanwhile")
    await keep(client.store, [moved], record.ledger)
