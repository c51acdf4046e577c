"""
One scrub over all ledgers, or over some, as an operator asks for it: how much there is to do, batch after batch, from
where an earlier one was cut off.

Knows: totals, what is counted, when the point is written.
Does not know: how a batch is looked at (`batches`), how damage is mended (its caller says), what is shown.

Bounded: sixteen bytes a ledger, and one batch.  Restartable at a batch.
"""

from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from quire.client.api import Client
from quire.replication.concurrently import Pace
from quire.replication.scrub.batches import Batches
from quire.replication.scrub.judge import Finding
from quire.replication.scrub.ledgers import copies_bytes
from quire.replication.scrub.plan import LEDGER_BYTES
from quire.replication.scrub.point import Point, Points
from quire.replication.scrub.whole import Scrubbing

# SPDX-License-Identifier: Apache-2.0

READ_AT_ONCE = 64
BATCH_LEDGERS = 256
BATCH_BYTES = 1 << 30
BATCH_PACES = 60  # times what the pace allows at once: half a minute of reading is done again after an interruption
AGAIN_MAX = 1000  # ledgers of a point that are to be looked at again
ALL = ((0, (1 << 63) - 1),)


class Judged(NamedTuple):
    """A finding and what became of it; `reason`: why it was not mended."""

    finding: Finding
    mended: bool = False
    reason: str = ""


Answer = Callable[[Sequence[Finding]], Awaitable[list[Judged]]]


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far a run is.  `ledgers_total` are to be looked at, the metadata of `ledgers_seen` of them was read,
    `ledgers_done` of them were looked at.  `bytes` were read of `bytes_total`, in which nothing counts whose end is not
    known.
    """

    ledgers_total: int = 0
    ledgers_seen: int = 0
    ledgers_done: int = 0
    bytes: int = 0
    bytes_total: int = 0
    findings: int = 0
    mended: int = 0

    @property
    def surveyed(self) -> bool:
        """Whether the metadata of all ledgers was seen, so that the totals are whole."""
        return self.ledgers_seen == self.ledgers_total

    @property
    def ledgers_to_do(self) -> int:
        """How many are to be looked at."""
        return self.ledgers_total

    @property
    def share(self) -> float:
        """Of the time that reading takes in all, as much as is over, 0 to 1; means something once it is `surveyed`."""
        whole = self.bytes_total + LEDGER_BYTES * self.ledgers_total
        return min(1.0, (self.bytes + LEDGER_BYTES * self.ledgers_done) / whole) if whole else 1.0


@dataclass(slots=True)
class Scrubbed:
    """What a scrub came to, with what was counted before it was cut off.  `after`: where it was gone on with."""

    after: int = -1
    begun_ms: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("ledgers", "copies", "bytes", "findings", "mended", "left"), 0)
    )


@dataclass(slots=True)
class Told:
    """Who hears of it: how far it is, what it found, and where it goes on."""

    progress: Callable[[Progress], object] = lambda _progress: None
    judged: Callable[[Judged], object] = lambda _judged: None
    goes_on: Callable[[Point], object] = lambda _point: None


async def at_once(_ledgers: int) -> None:
    """For who may look at all of them now."""


async def only_found(findings: Sequence[Finding]) -> list[Judged]:
    """The answer of a scrub that changes nothing."""
    return [Judged(each) for each in findings]


class Run:
    """
    One.  `ranges`: of ledgers, both ends included, ascending and apart.  `turn` returns when the metadata of so many
    ledgers may be read.
    """

    def __init__(
        self,
        client: Client,
        points: Points,
        told: Told,
        how: Scrubbing = Scrubbing(),
        pace: Pace | None = None,
        answer: Answer = only_found,
        turn: Callable[[int], Awaitable[None]] = at_once,
    ) -> None:
        self.progress = Progress()
        self._client = client
        self._points = points
        self._told = told
        self._answer = answer
        self._turn = turn
        self._done = Scrubbed()
        self._again: list[int] = []  # of the point, as far as they were not looked at yet
        self._batches = Batches(client, how, pace, self._heard)
        self._batch_bytes = BATCH_BYTES if pace is None else min(BATCH_BYTES, pace.at_once * BATCH_PACES)

    async def run(self, ranges: Sequence[tuple[int, int]] = ALL, *, anew: bool = False) -> Scrubbed:
        """To its end, which the point says then.  `anew`: not from where an earlier one was cut off."""
        done, point = self._done, None if anew else await self._points.read()
        done.begun_ms = await self._client.store.records.clock()
        if point is not None:
            done.after, done.begun_ms, self._again = point.after, point.begun_ms, point.again
            done.counts.update({name: count for name, count in point.counts.items() if name in done.counts})
            self._told.goes_on(point)
        ids, sizes = await self._survey(ranges)
        before = done.after
        for start, end in self._cut(sizes):
            some = ids[start:end].tolist()
            await self._turn(len(some))
            read = self.progress.bytes
            await self._judge(await self._batches.look(some))
            planned, size = sum(sizes[start:end]), self.progress.bytes - read
            # the last ones are done when nothing waits
            self._count(ledgers_done=len(some) if end < len(ids) else 0, bytes_total=size - planned)
            done.counts["ledgers"] += sum(ledger > before for ledger in some)  # the others were counted
            done.after = max(done.after, some[-1])
            self._again = self._again[len(some) :]
            await self._note()
        await self._judge(await self._batches.rest())
        last = self.progress
        self._count(ledgers_done=len(ids) - last.ledgers_done, bytes_total=last.bytes - last.bytes_total)
        await self._points.end(done.begun_ms)
        done.after = before
        return done

    async def _survey(self, ranges: Sequence[tuple[int, int]]) -> tuple["array[int]", "array[int]"]:
        """The ids, and how many bytes all copies of each have."""
        ids = array("q", self._again)
        for first, last in ranges:
            at = max(first - 1, self._done.after)
            while at < last and (page := await self._client.ledger_ids(at)):
                ids.extend(ledger for ledger in page if ledger <= last)
                at = page[-1]
        self._count(ledgers_total=len(ids))
        sizes = array("q")
        for start in range(0, len(ids), READ_AT_ONCE):
            await self._turn(len(ids[start : start + READ_AT_ONCE]))
            some = await copies_bytes(self._client, ids[start : start + READ_AT_ONCE].tolist())
            sizes.extend(some)
            self._count(ledgers_seen=len(some), bytes_total=sum(some))
        return ids, sizes

    def _cut(self, sizes: "array[int]") -> Iterator[tuple[int, int]]:
        """Batches (start, end)."""
        start = size = 0
        for at, each in enumerate(sizes):
            if at > start and (at - start == BATCH_LEDGERS or size + each > self._batch_bytes):
                yield start, at
                start, size = at, 0
            size += each
        if start < len(sizes):
            yield start, len(sizes)

    async def _judge(self, findings: Sequence[Finding]) -> None:
        counts = self._done.counts
        for judged in await self._answer(findings) if findings else []:
            counts["findings"] += 1
            counts["mended" if judged.mended else "left"] += 1
            self._count(findings=1, mended=int(judged.mended))
            self._told.judged(judged)
        counts["copies"], self._batches.copies = counts["copies"] + self._batches.copies, 0

    async def _note(self) -> None:
        done, again = self._done, sorted({*self._again, *self._batches.waiting})
        if len(again) <= AGAIN_MAX:
            await self._points.write(Point(done.after, again, done.begun_ms, done.counts))

    def _heard(self, size: int) -> None:
        self._done.counts["bytes"] += size
        self._count(bytes=size)

    def _count(self, **more: int) -> None:
        self.progress = replace(
            self.progress, **{name: getattr(self.progress, name) + amount for name, amount in more.items()}
        )
        self._told.progress(self.progress)
