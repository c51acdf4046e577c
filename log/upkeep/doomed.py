"""
Ledgers that are being deleted: brought to their end, deleted, forgotten.

Knows: that order, that a ledger whose bookies can't be asked stays, and the record of one that a log had taken in.
Does not know: why a ledger is doomed.

Safety: a ledger is fenced before it is deleted, and deleted before it is forgotten.
"""

from collections.abc import Iterable

from quire.log.core.manifest import Manifest
from quire.log.core.upkeep_edits import Clear
from quire.log.store.belonging import adoption
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Deleted
from quire.log.store.paths import adopted_path
from quire.metadata.store import ANY
from quire.metadata.tree import Delete, Step

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
    """Whether there is a record that this log has taken the ledger in."""
    found = await adoption(context.log.records, ledger)
    return found is not None and found.log == context.log.log


async def forget_adopted(context: LogContext, ledgers: Iterable[int]) -> None:
    """Removes the records of ledgers that this log had taken in, once they are gone."""
    for ledger in ledgers:
        if await is_adopted(context, ledger):
            await context.log.remove(adopted_path(ledger))
