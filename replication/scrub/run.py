"""
One scrub over all ledgers, or over some, as an operator asks for it: how much there is to do, batch after batch, from
where an earlier one was cut off, on any machine: its point is in the metadata store (metadata-rules.md 13.3).

Knows: totals, what is counted, when the point is written; the order of the steps of a batch (`whole`), how many lanes
go at the same time, that a copy which seems missing may be on its way, so that its second look comes a while later,
while other batches are looked at. Does not know: how damage is mended (its caller says), what is shown.

Bounded: sixteen bytes a ledger, lanes, whose pieces are in memory, and suspicions that wait.  Restartable at a batch.
"""

import json
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.ledger import check_ledger_id
from quire.metadata.records import NoRecord, Records, put
from quire.metadata.store import ANY
from quire.protocol.errors import IncorrectParameter, MetaStore
from quire.replication.concurrently import Pace, each_of
from quire.replication.core.progress import RunProgress
from quire.replication.scrub.examine import Manner
from quire.replication.scrub.judge import Finding, Seen, Suspicion
from quire.replication.scrub.ledgers import copies_bytes
from quire.replication.scrub.plan import LEDGER_BYTES, Share
from quire.replication.scrub.whole import Scrubbing, confirmed, first_look, plan_of, second_looks

# SPDX-License-Identifier: Apache-2.0

FOLDER = "scrubs"
AUDITOR = "auditor"  # the name of its scrubs


class Point(NamedTuple):
    """Ledgers up to `after` were looked at, except those to be looked at `again`; `counts`: what came of them."""

    after: int
    again: list[int]
    begun_ms: int
    counts: dict[str, int]


class Points:
    """The record of the scrubs of one name.  `lasting`: between two it says when the last one began."""

    def __init__(self, records: Records, name: str, *, lasting: bool = False) -> None:
        self._records = records
        self._path = f"{FOLDER}/{name}"
        self._lasting = lasting

    async def read(self) -> Point | None:
        """Where one was cut off; None where none was, or it can't be read."""
        return decode_point(await self._data())

    async def ended(self) -> int | None:
        """When the last one began, in ms since 1970; None while one is under way, or was cut off, or there was none."""
        return decode_end(await self._data())

    async def write(self, point: Point) -> None:
        """A failure is no matter: then more is looked at again."""
        with suppress(MetaStore):
            await put(self._records, self._path, json.dumps(point._asdict()).encode())

    async def end(self, begun_ms: int) -> None:
        """The one that began then is over."""
        if self._lasting:
            await put(self._records, self._path, json.dumps({"begun_ms": begun_ms}).encode())
            return
        with suppress(NoRecord):
            await self._records.delete(self._path, ANY)

    async def _data(self) -> bytes:
        """Empty where there is no record."""
        try:
            return (await self._records.read(self._path)).value
        except NoRecord:
            return b""


def decode_point(data: bytes) -> Point | None:
    """Reads a point from a record; None where it says none, or can't be read."""
    try:
        value = parse_json(data)
        counts = {str(name): int64(count) for name, count in value["counts"].items()}
        again = list(map(int64, value["again"]))
        for ledger in again:
            check_ledger_id(ledger)
        return Point(int64(value["after"]), again, int64(value["begun_ms"]), counts)
    except (IncorrectParameter, ValueError, KeyError, TypeError, AttributeError):
        return None


def decode_end(data: bytes) -> int | None:
    """When one began that has ended, in ms since 1970; None where the record does not say so, or can't be read."""
    try:
        value = parse_json(data)
        return None if "counts" in value else int64(value["begun_ms"])
    except (ValueError, KeyError, TypeError):
        return None


LANES_AT_ONCE = 8
LOOKS_AT_ONCE = 8  # second ones
WAITING_MAX = 10_000  # ledgers whose second look is to come

T = TypeVar("T")


class Late(NamedTuple):
    """A ledger whose second look is to come at `due`, and what is wrong with it whatever that sees."""

    due: float
    suspicion: Suspicion
    known: list[Finding]


class Batches:
    """`pace` of all that is read, of all bookies together.  `heard` is told of bytes as they are read."""

    def __init__(
        self,
        client: Client,
        how: Scrubbing,
        pace: Pace | None = None,
        heard: Callable[[int], object] = lambda _bytes: None,
    ) -> None:
        self.copies = 0  # that were looked at
        self._client = client
        self._how = how
        self._pace = pace
        self._heard = heard
        self._waiting: deque[Late] = deque()

    @property
    def waiting(self) -> list[int]:
        """Ledgers whose second look is to come."""
        return [each.suspicion.ledger for each in self._waiting]

    async def look(self, ledgers: Sequence[int]) -> list[Finding]:
        """
        Finds what is wrong with these, and with earlier ones whose time has come, but for those that wait: who goes on
        after an interruption looks at these anew, so all that is wrong with them is told at once.
        """
        plan = await plan_of(self._client, ledgers)
        manner, seen = self._manner(), list[Seen]()

        async def look(lane: Sequence[Share]) -> None:
            seen.extend(await first_look(self._client, self._how, lane, manner))

        await each_of(plan.lanes(self._how), look, LANES_AT_ONCE)
        self.copies += plan.copies(self._how)
        found = plan.findings + plan.wrong_lengths(seen)
        found = await confirmed(self._client, found) if found else []
        now, late = list[Suspicion](), set[int]()
        due = self._client.reactor.seconds() + self._how.settle_s
        for each in plan.suspected(seen):
            if each.late and self._how.settle_s:
                late.add(each.ledger)
                self._waiting.append(Late(due, each, [one for one in found if one.ledger == each.ledger]))
            else:
                now.append(each)
        found = [each for each in found if each.ledger not in late] + await self._look_again(now)
        if len(self._waiting) > WAITING_MAX:
            await pause(self._client.reactor, max(0.0, self._waiting[0].due - self._client.reactor.seconds()))
        return found + await self._rest_of(self._due())

    async def rest(self) -> list[Finding]:
        """Finds what is wrong of all that still waits, once its time has come."""
        found: list[Finding] = []
        while self._waiting:
            await pause(self._client.reactor, max(0.0, self._waiting[0].due - self._client.reactor.seconds()))
            found += await self._rest_of(self._due())
        return found

    def _due(self) -> list[Late]:
        now, due = self._client.reactor.seconds(), list[Late]()
        while self._waiting and self._waiting[0].due <= now:
            due.append(self._waiting.popleft())
        return due

    async def _rest_of(self, late: Sequence[Late]) -> list[Finding]:
        known = [finding for each in late for finding in each.known]
        return known + await self._look_again([each.suspicion for each in late])

    async def _look_again(self, suspected: Sequence[Suspicion]) -> list[Finding]:
        manner, found = self._manner(), list[Finding]()

        async def look(one: Suspicion) -> None:
            found.extend(await second_looks(self._client, self._how, [one], manner))

        await each_of(suspected, look, LOOKS_AT_ONCE)
        return sorted(found, key=lambda each: (each.ledger, each.first, each.index))

    def _manner(self) -> Manner:
        """Makes a manner of its own for each look: a bookie that one did not reach is asked again by the next."""
        return Manner(self._pace, heard=self._heard)


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
class ScrubProgress(RunProgress):
    """How far a scrub is: all ledgers are looked at, and what they have is read."""

    ledger_bytes = LEDGER_BYTES

    findings: int = 0
    mended: int = 0


@dataclass(slots=True)
class Scrubbed:
    """The result of a scrub, with what was counted before it was cut off.  `after`: where it was gone on with."""

    after: int = -1
    begun_ms: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("ledgers", "copies", "bytes", "findings", "mended", "left"), 0)
    )


@dataclass(slots=True)
class Told:
    """The listeners of a scrub: to how far it is, what it found, and where it goes on."""

    progress: Callable[[ScrubProgress], object] = lambda _progress: None
    judged: Callable[[Judged], object] = lambda _judged: None
    goes_on: Callable[[Point], object] = lambda _point: None


async def at_once(_ledgers: int) -> None:
    """For who may look at all of them now."""


async def only_found(findings: Sequence[Finding]) -> list[Judged]:
    """The answer of a scrub that changes nothing."""
    return [Judged(each) for each in findings]


class ScrubRun:
    """One.  `ranges` of ledgers, inclusive, ascending, apart.  `turn` returns when so many ledgers may be read."""

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
        self.progress = ScrubProgress()
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
        self.progress = self.progress.plus(**more)
        self._told.progress(self.progress)
