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

from quire.pipeline.clients import cluster
from quire.pipeline.jobs.scrub import Each
from quire.replication.autorecovery.notes import queued
from quire.replication.concurrently import all_of
from quire.replication.decommission import decommission
from quire.replication.lost_bookies import check_known, ledgers_naming, refuse_registered
from quire.replication.mending import Mended, Mending, mend
from quire.replication.scrub.judge import Finding, about_ledger

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 4  # ledgers of one task
TASK_LEDGERS = 64
TASK_ENTRIES = 20_000

Work = tuple[int, list[Finding]]


def repair(each: Each, uri: str, findings: Sequence[Finding], how: Mending) -> list[Mended]:
    """Mends all that was found; returns what was done, by ledger."""
    ordered = sorted(findings, key=lambda one: one.ledger)
    work = [(ledger, list(some)) for ledger, some in groupby(ordered, key=lambda one: one.ledger)]
    return sorted(each(partial(mended, uri, how), cut(work)), key=lambda one: one.ledger)


def queue(uri: str, findings: Sequence[Finding]) -> int:
    """Hands what copies make good to AutoRecovery's repair queue; how many ledgers were marked."""
    ours = cluster(uri)
    return ours.wait(lambda: queued(ours.client, findings))


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
    """Mends the ledgers of one task."""
    ours = cluster(uri)

    async def one(ledger: int, findings: Sequence[Finding]) -> Mended:
        return await mend(ours.client, ledger, findings, how)

    async def story() -> list[Mended]:
        done: list[Mended] = []
        for start in range(0, len(work), AT_ONCE):
            done += await all_of([one(*each) for each in work[start : start + AT_ONCE]])
        return done

    return ours.wait(story)


def drain(each: Each, uri: str, bookies: Sequence[str], how: Mending, remove: bool) -> list[Mended]:
    """
    Frees all ledgers from bookies that are down; with `remove` their cookies go once no ledger names them.  `IllegalOp`
    while one is registered, `BookieHandleNotAvailable` for one that nobody knows.
    """
    ours = cluster(uri)

    async def begin() -> list[int]:
        await check_known(ours.client, bookies)
        await refuse_registered(ours.client, bookies)
        return await ledgers_naming(ours.client, bookies)

    gone = [
        about_ledger(ledger, "unreachable", "it is to go", bookie=bookie)
        for ledger in ours.wait(begin)
        for bookie in bookies
    ]
    done = repair(each, uri, gone, how)
    if remove and not how.dry_run and not any(one.left for one in done):
        for bookie in bookies:
            ours.wait(partial(decommission, ours.client, bookie))
    return done
