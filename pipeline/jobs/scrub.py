"""
Every copy of every entry of a cluster looked at, in lanes that go side by side.

Knows: which steps tasks do, and the while between them for what is on its way.
Does not know: the steps (`replication.scrub.whole`), who runs tasks: `Each` does, by Spark or in this process.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from quire.metadata.clock import pause
from quire.pipeline.clients import cluster
from quire.pipeline.core.filters import Bounds
from quire.pipeline.core.selection import Selection
from quire.pipeline.jobs.findings import Scrubbed, summed
from quire.pipeline.reading.ledgers import selected
from quire.replication.scrub.judge import Finding, Seen, Suspicion
from quire.replication.scrub.whole import Plan, Scrubbing, confirmed, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

Each = Callable[[Callable[[Any], list[Any]], Sequence[Any]], list[Any]]  # what a function gives for all tasks, joined


def scrub(each: Each, uri: str, ledgers: str, how: Scrubbing) -> Scrubbed:
    """Changes nothing, fences nothing.  `ledgers`: as `7,9-20`, or `all`."""
    ours = cluster(uri)

    async def begin() -> Plan:
        return await plan_of(ours.client, await selected(ours.client, Selection.parse(ledgers), Bounds()))

    plan = ours.wait(begin)
    seen: list[Seen] = each(partial(first, uri, how), plan.lanes(how))
    suspected = plan.suspected(seen)
    if any(each.late for each in suspected):
        ours.wait(lambda: pause(ours.client.reactor, how.settle_s))
    found = plan.findings + plan.wrong_lengths(seen)
    found = ours.wait(lambda: confirmed(ours.client, found)) if found else []
    found += each(partial(second, uri, how), dealt(suspected, how.lanes))
    return summed(how.level, len(plan.ledgers), plan.copies(how), sum(one.read_bytes for one in seen), found)


def first(uri: str, how: Scrubbing, lane: Sequence[Any]) -> list[Seen]:
    """A task of the first look."""
    ours = cluster(uri)
    return ours.wait(lambda: first_look(ours.client, how, lane))


def second(uri: str, how: Scrubbing, suspected: Sequence[Suspicion]) -> list[Finding]:
    """A task of the second look."""
    ours = cluster(uri)
    return ours.wait(lambda: second_looks(ours.client, how, suspected))


def dealt(suspected: Sequence[Suspicion], tasks: int) -> list[list[Suspicion]]:
    """Among as many tasks as may ask one bookie."""
    return [part for part in (list(suspected[start::tasks]) for start in range(tasks)) if part]
