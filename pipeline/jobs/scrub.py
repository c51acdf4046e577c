"""
Every copy of every entry of a cluster looked at, in lanes that go side by side.

Knows: the order: plan, first look, a while for what is on its way, second look; and which of it tasks do.
Does not know: what is looked for (`replication.scrub`), who runs tasks: `Each` does, by Spark or in this process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from quire.client.core.quorum import Quorums
from quire.metadata.clock import pause
from quire.pipeline.clients import cluster
from quire.pipeline.core.filters import Bounds
from quire.pipeline.core.selection import Selection
from quire.pipeline.jobs.findings import Scrubbed, summed
from quire.pipeline.reading.ledgers import selected
from quire.replication.fragments import count_on
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Finding, Seen, Suspicion, about_ledger, payload_bytes, suspicions
from quire.replication.scrub.lane import looked_at
from quire.replication.scrub.ledgers import Planned, known, planned
from quire.replication.scrub.pace import Pace
from quire.replication.scrub.plan import Share, everything, lanes, sampled, shares_of
from quire.replication.scrub.second_look import second_look

# SPDX-License-Identifier: Apache-2.0

Each = Callable[[Callable[[Any], list[Any]], Sequence[Any]], list[Any]]  # what a function gives for all tasks, joined
Level = Literal["metadata", "presence", "full"]
LANES = 2
SETTLE_S = 15.0  # an add is acknowledged, or its bookie replaced, within that


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """
    What is looked at, and how.  `sample`: percent of the entries; `lanes` of one bookie at the same time, which
    together read no more than `bytes_per_second`.
    """

    ledgers: str = "all"
    level: Level = "full"
    sample: float = 100.0
    seed: int = 0
    lanes: int = LANES
    bytes_per_second: float | None = None
    settle_s: float = SETTLE_S

    @property
    def pace(self) -> float | None:
        """Of one lane."""
        return self.bytes_per_second and self.bytes_per_second / self.lanes

    @property
    def whole(self) -> bool:
        return self.level == "full" and self.sample >= 100


def scrub(each: Each, uri: str, how: Scrubbing) -> Scrubbed:
    """Changes nothing, fences nothing."""
    plans, found = plan(uri, how)
    wanted = everything if how.sample >= 100 else sampled(how.sample, how.seed)
    shares = [] if how.level == "metadata" else [share for one in plans for share in shares_of_plan(one, wanted)]
    seen: list[Seen] = each(partial(first, uri, how), lanes(shares, how.lanes))
    quorums = {one.ledger: (Quorums.of(one.metadata), one.last) for one in plans}
    suspected = suspicions(quorums, seen)
    if any(not one.settled and is_late(one, suspected) for one in plans):
        ours = cluster(uri)
        ours.wait(lambda: pause(ours.client.reactor, how.settle_s))
    wrong: list[Finding] = each(partial(second, uri, how), dealt(suspected, how.lanes))
    found += wrong_lengths(plans, seen) if how.whole else []
    found = confirmed(uri, how, found) if found else []
    copies = sum(count_on(quorums[share.ledger][0], share.index, share.first, share.last) for share in shares)
    return summed(how.level, len(plans), copies, sum(each.read_bytes for each in seen), found + wrong)


def plan(uri: str, how: Scrubbing, only: Sequence[int] | None = None) -> tuple[list[Planned], list[Finding]]:
    """The ledgers, and what is wrong with their metadata."""
    ours = cluster(uri)

    async def story() -> tuple[list[Planned], list[Finding]]:
        ids = await selected(ours.client, Selection.parse(how.ledgers), Bounds()) if only is None else only
        return await planned(ours.client, ids, await known(ours.client))

    return ours.wait(story)


def shares_of_plan(one: Planned, wanted: Callable[[int, int], bool]) -> list[Share]:
    """None of a ledger whose entries can't be checked."""
    return [] if one.metadata.digest is None else shares_of(one.ledger, one.metadata, one.last, wanted)


def first(uri: str, how: Scrubbing, lane: Sequence[Share]) -> list[Seen]:
    """A task of the first look."""
    ours = cluster(uri)
    manner = Manner(Pace(ours.client.reactor, how.pace))
    return ours.wait(lambda: looked_at(ours.client, lane, manner, how.level == "presence"))


def second(uri: str, how: Scrubbing, suspected: Sequence[Suspicion]) -> list[Finding]:
    """A task of the second look."""
    ours = cluster(uri)
    manner = Manner(Pace(ours.client.reactor, how.pace))

    async def story() -> list[Finding]:
        return [
            finding
            for one in suspected
            for finding in await second_look(ours.client, one, manner, how.level == "presence")
        ]

    return ours.wait(story)


def dealt(suspected: Sequence[Suspicion], tasks: int) -> list[list[Suspicion]]:
    """Among as many tasks as may ask one bookie."""
    return [part for part in (list(suspected[start::tasks]) for start in range(tasks)) if part]


def is_late(one: Planned, suspected: Sequence[Suspicion]) -> bool:
    """Whether what is suspected of a ledger that is being written may be on its way."""
    return any(
        each.ledger == one.ledger and any(last >= one.metadata.last_fragment.first for _, _, last in each.copies)
        for each in suspected
    )


def wrong_lengths(plans: Sequence[Planned], seen: Sequence[Seen]) -> list[Finding]:
    """Closed ledgers whose entries are not as long together as their metadata says."""
    by_ledger: dict[int, list[Seen]] = {}
    for each in seen:
        by_ledger.setdefault(each.share.ledger, []).append(each)
    found = []
    for one in plans:
        if one.metadata.is_closed:
            size = payload_bytes(Quorums.of(one.metadata), one.last, by_ledger.get(one.ledger, []))
            if size is not None and size != one.metadata.length:
                text = f"its entries have {size} bytes together, its metadata says {one.metadata.length}"
                found.append(about_ledger(one.ledger, "length", text))
    return found


def confirmed(uri: str, how: Scrubbing, found: Sequence[Finding]) -> list[Finding]:
    """What is wrong with metadata now as well; and lengths, which don't change, of ledgers that are still there."""
    plans, again = plan(uri, how, sorted({each.ledger for each in found}))
    there = {one.ledger for one in plans}
    still = {(each.ledger, each.kind, each.fragment, each.bookie) for each in again}
    return [
        each
        for each in found
        if (each.kind == "length" and each.ledger in there)
        or (each.ledger, each.kind, each.fragment, each.bookie) in still
    ]
