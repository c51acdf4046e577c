"""
A scrub of many ledgers in its steps, for whoever runs them: plan, first look in lanes, second look.

Knows: what each step needs of the one before; that a lane's shares are read several at a time, each by the metadata as
it is then.
Does not know: in which process a step runs.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from quire.client.api import Client
from quire.protocol.errors import MetadataSerialization, NoSuchLedgerExistsOnMetadataServer, Replication
from quire.replication.concurrently import each_of
from quire.replication.scrub.examine import Manner, Subject
from quire.replication.scrub.judge import Finding, Seen, Suspicion, about_ledger, payload_bytes, suspicions
from quire.replication.scrub.ledgers import Planned, known, planned
from quire.replication.scrub.plan import Share, entries_of, everything, lanes, sampled, shares_of
from quire.replication.scrub.second_look import second_look

# SPDX-License-Identifier: Apache-2.0

Level = Literal["metadata", "presence", "full"]
LANES = 2
SHARES_AT_ONCE = 3  # of a lane: one is being read while another's digests are checked
SETTLE_S = 15.0  # an add is acknowledged, or its bookie replaced, within that


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """Settings.  `sample`: percent of entries; `lanes` of a bookie at once share `bytes_per_second`."""

    level: Level = "full"
    sample: float = 100.0
    seed: int = 0
    lanes: int = LANES
    bytes_per_second: float | None = None
    settle_s: float = SETTLE_S

    def manner(self, client: Client) -> Manner:
        """Makes the manner of one lane."""
        return Manner.at(client.reactor, self.bytes_per_second and self.bytes_per_second / self.lanes)

    @property
    def by_lists(self) -> bool:
        return self.level == "presence"


@dataclass(slots=True)
class Plan:
    """The ledgers, and what is wrong with their metadata."""

    ledgers: list[Planned]
    findings: list[Finding]

    def lanes(self, how: Scrubbing) -> list[list[Share]]:
        """Returns what tasks look at first."""
        return lanes(self._shares(how), how.lanes)

    def copies(self, how: Scrubbing) -> int:
        """How many these are."""
        quorums = {one.ledger: one.quorums for one in self.ledgers}
        return sum(entries_of(share, quorums[share.ledger]) for share in self._shares(how))

    def _shares(self, how: Scrubbing) -> list[Share]:
        """None of a ledger whose entries can't be checked."""
        wanted = everything if how.sample >= 100 else sampled(how.sample, how.seed)
        able = [one for one in self.ledgers if how.level != "metadata" and one.metadata.digest is not None]
        return [share for one in able for share in shares_of(one.ledger, one.metadata, one.last, wanted)]

    def suspected(self, seen: Sequence[Seen]) -> list[Suspicion]:
        """Returns what deserves a second look."""
        return suspicions({one.ledger: (one.quorums, one.last) for one in self.ledgers}, seen)

    def wrong_lengths(self, seen: Sequence[Seen]) -> list[Finding]:
        """Closed ledgers whose entries, where all were read, are not as long together as their metadata says."""
        by_ledger: dict[int, list[Seen]] = {}
        for each in seen:
            by_ledger.setdefault(each.share.ledger, []).append(each)
        found = []
        for one in self.ledgers:
            size = payload_bytes(one.last, by_ledger.get(one.ledger, []))
            if one.metadata.is_closed and one.ledger in by_ledger and size not in (None, one.metadata.length):
                text = f"its entries have {size} bytes together, its metadata says {one.metadata.length}"
                found.append(about_ledger(one.ledger, "length", text))
        return found


async def plan_of(client: Client, ledgers: Sequence[int]) -> Plan:
    """`MetaStore`."""
    return Plan(*await planned(client, ledgers, await known(client)))


async def first_look(client: Client, how: Scrubbing, lane: Sequence[Share], manner: Manner | None = None) -> list[Seen]:
    """Looks at each share of a lane, in no order, by the metadata as it is now; nothing of a deleted ledger."""
    manner = manner or how.manner(client)
    found: list[Seen] = []

    async def one(given: tuple[Share, Subject]) -> None:
        share, subject = given
        if subject.metadata.fragment_at(share.first).bookies[share.index] != share.bookie:
            found.append(Seen(share, [], {}, 0, moved=True))
            return
        examination = subject.examination(share.bookie, manner)
        if how.by_lists:
            missing = await examination.present(share.index, share.first, share.last)
            found.append(Seen(share, missing, {}, 0))
            return
        sums = subject.sums()
        missing = await examination.run(share.index, share.first, share.last, sums)
        found.append(Seen(share, missing, sums.found, examination.read_bytes))

    await each_of(_with_subjects(client, lane), one, SHARES_AT_ONCE)
    return found


async def _with_subjects(client: Client, lane: Iterable[Share]) -> AsyncIterator[tuple[Share, Subject]]:
    for ledger, shares in groupby(lane, key=lambda share: share.ledger):
        try:
            subject = Subject(client.pool, ledger, (await client.store.read_ledger(ledger)).value)
        except (NoSuchLedgerExistsOnMetadataServer, MetadataSerialization):
            continue  # deleted meanwhile; or the plan has a finding for it
        for share in shares:
            yield share, subject


async def second_looks(
    client: Client, how: Scrubbing, suspected: Sequence[Suspicion], manner: Manner | None = None
) -> list[Finding]:
    """At each ledger, one after the other; in a lane's manner, unless another one is given."""
    manner = manner or how.manner(client)
    found: list[Finding] = []
    for one in suspected:
        try:
            found += await second_look(client, one, manner, how.by_lists)
        except Replication as error:
            found.append(about_ledger(one.ledger, "changing", str(error)))
    return found


async def confirmed(client: Client, found: Sequence[Finding]) -> list[Finding]:
    """Keeps what is wrong with metadata now as well; and lengths, which don't change, while the ledger is there."""
    again = await plan_of(client, sorted({each.ledger for each in found}))
    there = {one.ledger for one in again.ledgers}
    still = {(each.ledger, each.kind, each.fragment, each.bookie) for each in again.findings}
    return [
        each
        for each in found
        if (each.kind == "length" and each.ledger in there)
        or (each.ledger, each.kind, each.fragment, each.bookie) in still
    ]
