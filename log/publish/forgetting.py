"""
Publishers that are over: the parts that they left go, and then what is known of them.

Knows: how long a publisher may be silent, and the order of aborting, cleaning and forgetting.
Does not know: how often this is done, who asks.

Safety: a batch whose publisher was silent for too long is aborted by a change of the very txn that was found old, and
only then is anything of it deleted.  A txn goes by its version, in one step with its empty folder of intents: a run
that comes meanwhile moves the version, and a task that comes later finds no folder.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.log.core.publishing import Intent, Txn, given_up, is_single
from quire.log.publish.sink import Sink
from quire.log.publish.txns import Txns
from quire.log.store.context import LogContext
from quire.log.store.editing import LogRecords
from quire.log.store.paths import decoded
from quire.metadata.records import NoRecord, RecordChanged, RecordHasChildren
from quire.metadata.store import ANY, at_once
from quire.metadata.tree import Delete

# SPDX-License-Identifier: Apache-2.0

DAY_MS = 24 * 3600_000
TXN_DAYS = 90  # of silence, after which a publisher is forgotten
TXNS_MAX = 10_000  # with more of them a day is enough, as it is for a txn of a single run
AT_ONCE = 50  # intents that are read


class Unpublished(NamedTuple):
    """Parts of one publisher that are not published, yet or for good; `since_ms`: its last sign of life, since 1970."""

    txn: str
    run: str
    parts: int
    ledgers: int
    since_ms: int


@dataclass
class Tended:
    """Publishers that were looked at and forgotten, parts that were deleted, ledgers that stay and why."""

    publishers: int = 0
    forgotten: int = 0
    parts: int = 0
    stayed: dict[int, str] = field(default_factory=dict)


async def unpublished(log: LogRecords) -> AsyncGenerator[Unpublished, None]:
    """The publishers of a log that have such parts.  `LogDamaged`."""
    parts = await log.names(f"{log.path}/txn")
    for start in range(0, len(parts), AT_ONCE):
        some = [Txns(log, decoded(part)) for part in parts[start : start + AT_ONCE]]
        named = await at_once([txns.names() for txns in some])
        for txns in (txns for txns, names in zip(some, named, strict=True) if names):
            with suppress(NoRecord):  # it is forgotten meanwhile
                found = await _unpublished(txns, (await txns.read()).value)
                if found.parts:
                    yield found


async def _unpublished(txns: Txns, txn: Txn) -> Unpublished:
    names = await txns.names()
    intents: list[Intent] = []
    for start in range(0, len(names), AT_ONCE):
        found = await at_once([_intent(txns, name) for name in names[start : start + AT_ONCE]])
        intents += [each for each in found if each is not None]
    since_ms = max([txn.at, *(each.at for each in intents)])
    return Unpublished(txn.txn, txn.run, len(intents), sum(len(each.ledgers) for each in intents), since_ms)


async def _intent(txns: Txns, name: str) -> Intent | None:
    try:
        return (await txns.intent(name)).value
    except NoRecord:
        return None


async def tend(context: LogContext, now_ms: int | None, abandon: bool = False) -> Tended:
    """
    Deletes what can't be published any more, aborts what a publisher left that was silent for too long, and forgets
    such publishers.  `now_ms`: the time since 1970; None: it is not known, so nothing goes by age.  `abandon`: ledgers
    whose bookies can't be asked go, too.  `LogDamaged`, `NoSuchLog`, `MetaStore`.
    """
    log, done = context.log, Tended()
    names = await log.names(f"{log.path}/txn")
    for part in names:
        txns = Txns(log, decoded(part))
        done.publishers += 1
        await _clean(context, txns, done, abandon)
        if now_ms is None:
            continue
        with suppress(NoRecord, RecordChanged, RecordHasChildren):  # it goes on, or another one was faster: see _forget
            done.forgotten += await _forget(context, txns, done, now_ms, len(names) > TXNS_MAX, abandon)
    return done


async def _clean(context: LogContext, txns: Txns, done: Tended, abandon: bool) -> None:
    if await txns.names():
        sink = Sink(context, txns.txn, "", 0)
        cleaned = await sink.clean(abandon)
        done.parts += cleaned.parts
        done.stayed |= cleaned.stayed


async def _forget(context: LogContext, txns: Txns, done: Tended, now_ms: int, many: bool, abandon: bool) -> bool:
    """
    Removes the txn; True if it went.  `RecordHasChildren`: a task named a part between the look at its folder and this
    step, in which the next round finds a young intent, or one that is dead.
    """
    txn, version = await txns.read()
    old_ms = now_ms - (DAY_MS if many or is_single(txn) else TXN_DAYS * DAY_MS)
    if txn.at >= old_ms:
        return False
    if await txns.names():
        if (await _unpublished(txns, txn)).since_ms >= old_ms:
            return False
        marked = given_up(txn, context.log.new_id())
        if marked is not None and not await txns.write(marked, version):
            return False
        context.reached("forget.aborted")
        await _clean(context, txns, done, abandon)
        if await txns.names():  # ledgers that stay, and are told
            return False
        txn, version = await txns.read()
        if txn.at >= old_ms:
            return False
    await context.log.records.multi([Delete(txns.path, version), Delete(txns.intents, ANY)])
    context.reached("forget.done")
    return True
