"""
Deletes for good: doomed ledgers, and all that is left of a log whose name is gone.

Knows: all that a log may name, and the order: its ledgers go, then its records, the manifest last; that a ledger whose
bookies can't be asked stays, and the record of one that a log had taken in.
Does not know: who deleted it, why a ledger is doomed.

Safety: a ledger is fenced before it is deleted, and deleted before it is forgotten; the record that names it goes after
it, by the version that was read: what comes late finds a log that is being deleted, or no parent.
"""

from collections.abc import Iterable
from contextlib import suppress

from quire.log.core.manifest import DELETING, Manifest
from quire.log.core.publishing import Intent
from quire.log.core.upkeep_edits import Clear
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.holds import cursors
from quire.log.store.ledgers import Deleted, adoption
from quire.log.store.paths import adopted_path
from quire.metadata.records import NoRecord, RecordChanged, RecordHasChildren
from quire.metadata.store import ANY
from quire.metadata.tree import Delete, Step
from quire.protocol.log_errors import LogError, NoSuchLog

# SPDX-License-Identifier: Apache-2.0


async def delete_ledgers(
    context: LogContext, ledgers: Iterable[int], fenced: str, deleted: str, abandon: bool = False
) -> Deleted:
    """Fences and deletes; `fenced` and `deleted` are the points.  `MetaStore` when the store is away."""
    reached = context.reached
    return await context.ledgers.delete_all(
        list(dict.fromkeys(ledgers)), lambda: reached(fenced), lambda: reached(deleted), abandon
    )


async def clear_doomed(context: LogContext, abandon: bool = False) -> Deleted:
    """Deletes the doomed ledgers of the log, and then forgets them."""
    doomed = (await context.log.read()).value.doomed
    done = await delete_ledgers(context, (each.ledger for each in doomed), "trim.fenced", "trim.deleted", abandon)
    if done.gone:
        adopted = {each.ledger for each in doomed if each.raw} & done.gone
        there = {ledger for ledger in adopted if await is_adopted(context, ledger)}

        def beside(before: Manifest, _after: Manifest) -> list[Step]:
            return [Delete(adopted_path(each.ledger), ANY) for each in before.doomed if each.ledger in there]

        await context.log.edit(Clear(done.gone), beside=beside)
        context.reached("trim.cleared")
    return done


async def is_adopted(context: LogContext, ledger: int) -> bool:
    """True if there is a record that this log has taken the ledger in."""
    found = await adoption(context.log.records, ledger)
    return found is not None and found.log == context.log.log


async def forget_adopted(context: LogContext, ledgers: Iterable[int]) -> None:
    """Removes the records of ledgers that this log had taken in, once they are gone."""
    for ledger in ledgers:
        if await is_adopted(context, ledger):
            await context.log.remove(adopted_path(ledger))


NAMING = frozenset({"cursor", "intents"})  # folders of records that name ledgers


async def remove_log(context: LogContext, abandon: bool = False) -> Deleted:
    """Removes a deleted log, without ledgers whose bookies can't be asked.  `LogError`: records kept coming."""
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
    """Deletes these ledgers; True if all of them are gone."""
    done = await delete_ledgers(context, ledgers, "delete.fenced", "delete.ledger", abandon)
    found.gone.update(done.gone)
    found.stayed.update(done.stayed)
    return not done.stayed


async def _remove_naming(context: LogContext, found: Deleted, abandon: bool) -> None:
    """Removes intents and cursors, each after the ledgers of this very version: a task may name more meanwhile."""
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
    """Removes what names no ledger any more; a folder of what might is removed only when it is empty."""
    path = context.log.path
    for part in await context.log.names(path):
        if part not in NAMING:
            for name in await context.log.names(f"{path}/{part}"):
                await context.log.remove(f"{path}/{part}/{name}")
        await context.log.remove(f"{path}/{part}")
