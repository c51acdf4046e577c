"""
What is left of a log whose name is gone: its ledgers go, then its records, the manifest last.

Knows: all that a log may name, and the order.
Does not know: who deleted it.

Safety: a ledger is fenced before it is deleted, and the record that names it goes after it, by the version that was
read: what comes late finds a log that is being deleted, or no parent.
"""

from collections.abc import Iterable
from contextlib import suppress

from quire.log.core.manifest import DELETING, Manifest
from quire.log.core.publishing import Intent
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.holds import cursors
from quire.log.store.ledgers import Deleted
from quire.log.upkeep.doomed import delete_ledgers, forget_adopted
from quire.metadata.records import NoRecord, RecordChanged, RecordHasChildren
from quire.protocol.log_errors import LogError, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

NAMING = frozenset({"cursor", "intents"})  # folders of records that name ledgers


async def remove_log(context: LogContext, abandon: bool = False) -> Deleted:
    """
    Removes a log that is being deleted.  Ledgers whose bookies can't be asked stay, and the records with them.
    `LogError` when records came as fast as they went.
    """
    found = Deleted(set(), {})
    for _ in range(TRIES_MAX):
        try:
            manifest, version = await context.log.read()
        except NoSuchLog:
            break
        if manifest.state != DELETING:
            break
        with suppress(RecordChanged, RecordHasChildren):  # something came late: from the beginning
            found.stayed.clear()
            await context.log.remove(
                f"{context.log.path}/owner"
            )  # it learns from the manifest that it owns nothing more
            named = await _named(context, manifest)
            await _delete(context, named, found, abandon)
            await _remove_naming(context, found, abandon)
            if found.stayed:
                break
            await forget_adopted(context, (ledger for ledger, raw in named.items() if raw))
            await _remove_children(context)
            context.reached("delete.children")
            await context.log.remove(context.log.path, version)
            context.reached("delete.done")
    else:
        raise LogError(
            f"what is left of the log {context.log.log} got new records {TRIES_MAX} times while it was removed: tidy "
            "again"
        )
    return found


async def _named(context: LogContext, manifest: Manifest) -> dict[int, bool]:
    """The ledgers of its segments, the doomed, snapshots and compacted ones; whether it had taken them in."""
    segments = list(manifest.segments)
    for line in manifest.chunks:
        with suppress(NoRecord):  # another one does the same work, and is further
            segments += (await context.log.chunk(line.c)).segments
    named = dict.fromkeys(sorted(manifest.named_ledgers()), False)
    named |= {each.ledger: each.raw for each in segments}
    return named | {each.ledger: each.raw for each in manifest.doomed}


async def _delete(context: LogContext, ledgers: Iterable[int], found: Deleted, abandon: bool) -> bool:
    """Whether all of them are gone."""
    done = await delete_ledgers(context, ledgers, "delete.fenced", "delete.ledger", abandon)
    found.gone.update(done.gone)
    found.stayed.update(done.stayed)
    return not done.stayed


async def _remove_naming(context: LogContext, found: Deleted, abandon: bool) -> None:
    """
    Intents and cursors, each after the ledgers that this very version of it names: a task that goes on may name one
    more meanwhile.
    """
    log = context.log
    for cursor, (value, version) in await cursors(log):
        if await _delete(context, value.ledgers, found, abandon):
            await log.remove(f"{log.path}/cursor/{cursor}", version)
    for txn in await log.names(f"{log.path}/intents"):
        folder = f"{log.path}/intents/{txn}"
        for name in await log.names(folder):
            with suppress(NoRecord):
                data, version = await log.records.read(f"{folder}/{name}")
                await log.records.sync()  # before a ledger of a task is taken for missing
                if await _delete(context, Intent.decode(data).ledgers, found, abandon):
                    await context.log.remove(f"{folder}/{name}", version)
        if not found.stayed:
            await context.log.remove(folder)


async def _remove_children(context: LogContext) -> None:
    """What names no ledger any more; a folder of what might is removed only when it is empty."""
    path = context.log.path
    for part in await context.log.names(path):
        if part not in NAMING:
            for name in await context.log.names(f"{path}/{part}"):
                await context.log.remove(f"{path}/{part}/{name}")
        await context.log.remove(f"{path}/{part}")
