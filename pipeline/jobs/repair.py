"""
Making good what a scrub found, and freeing ledgers from bookies that are to go, ledger by ledger in many tasks.

Knows: how the work is divided, what it adds up to.
Does not know: how a ledger is mended (`replication.mending`), who runs tasks.

Each ledger is one task's, and its repair lock is held while it is mended; what a task that was killed had done stays
done, and its next attempt goes on.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from quire.client.api import Client
from quire.pipeline.clients import cluster
from quire.pipeline.core.filters import Bounds
from quire.pipeline.core.selection import Selection
from quire.pipeline.jobs.scrub import Each
from quire.pipeline.reading.ledgers import selected
from quire.protocol.errors import NoSuchLedger
from quire.replication.concurrently import all_of
from quire.replication.decommission import decommission
from quire.replication.fragments import fragments_naming
from quire.replication.lost_bookies import check_known, refuse_registered
from quire.replication.mending import Mended, Mending, mend
from quire.replication.scrub.judge import Finding, about_ledger

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 4  # ledgers of one task
TASK_LEDGERS = 64
TASK_ENTRIES = 100_000
PAGE = 1000  # ledgers whose metadata one task reads
READ_AT_ONCE = 64

Work = tuple[int, list[Finding]]


def repair(each: Each, uri: str, findings: Sequence[Finding], how: Mending) -> list[Mended]:
    """All that was found; what was done, by ledger."""
    ordered = sorted(findings, key=lambda one: one.ledger)
    work = [(ledger, list(some)) for ledger, some in groupby(ordered, key=lambda one: one.ledger)]
    return sorted(each(partial(mended, uri, how), cut(work)), key=lambda one: one.ledger)


def cut(work: Sequence[Work]) -> list[list[Work]]:
    """Tasks: so many ledgers, or fewer with more to copy."""
    tasks: list[list[Work]] = []
    entries = 0
    for one in work:
        size = sum(finding.entries for finding in one[1])
        if not tasks or len(tasks[-1]) == TASK_LEDGERS or entries + size > TASK_ENTRIES:
            tasks.append([])
            entries = 0
        tasks[-1].append(one)
        entries += size
    return tasks


def mended(uri: str, how: Mending, work: Sequence[Work]) -> list[Mended]:
    """One task."""
    ours = cluster(uri)

    async def story() -> list[Mended]:
        done: list[Mended] = []
        for start in range(0, len(work), AT_ONCE):
            done += await all_of([_one(ours.client, *one, how) for one in work[start : start + AT_ONCE]])
        return done

    return ours.wait(story)


async def _one(client: Client, ledger: int, findings: Sequence[Finding], how: Mending) -> Mended:
    return await mend(client, ledger, findings, how)


def drain(each: Each, uri: str, bookies: Sequence[str], how: Mending, remove: bool) -> list[Mended]:
    """
    Frees all ledgers from bookies that are down; with `remove` their cookies go once no ledger names them.  `IllegalOp`
    while one is registered, `BookieHandleNotAvailable` for one that nobody knows.
    """
    ours = cluster(uri)

    async def ids() -> list[int]:
        await check_known(ours.client, bookies)
        await refuse_registered(ours.client, bookies)
        return await selected(ours.client, Selection.parse("all"), Bounds())

    ledgers = ours.wait(ids)
    tasks = [ledgers[start : start + PAGE] for start in range(0, len(ledgers), PAGE)]
    named: list[Work] = each(partial(naming, uri, bookies), tasks)
    done: list[Mended] = each(partial(mended, uri, how), cut(named))
    if remove and not how.dry_run and not any(one.left for one in done):
        for bookie in bookies:
            ours.wait(partial(decommission, ours.client, bookie))
    return sorted(done, key=lambda one: one.ledger)


def naming(uri: str, bookies: Sequence[str], ledgers: Sequence[int]) -> list[Work]:
    """Those of the ledgers that name one of the bookies, and by that have something to be made good."""
    ours = cluster(uri)

    async def one(ledger: int) -> list[Work]:
        try:
            metadata = await ours.client.metadata(ledger)
        except NoSuchLedger:
            return []
        named = fragments_naming(metadata, bookies)
        return [
            (ledger, [about_ledger(ledger, "unreachable", "it is to go", 0, bookie) for bookie in bookies])
            for _ in named[:1]
        ]

    async def story() -> list[Work]:
        found: list[Work] = []
        for start in range(0, len(ledgers), READ_AT_ONCE):
            for some in await all_of([one(ledger) for ledger in ledgers[start : start + READ_AT_ONCE]]):
                found += some
        return found

    return ours.wait(story)
