"""
Merging: runs of small segments are written again as one large segment each, and a manifest names that in their place.

Knows: the order of plan, ledger, edit and deletion; that of many small ledgers several are read ahead, how many runs
are worked on at once, and how fast; that a run may be trimmed, marked or merged by another one meanwhile.
Does not know: which segments make a run, how an entry is rewritten (`core.merging`), who asks.

Safety: the new ledger was found CLOSED, with what the segments hold, after the manifest was read that the edit
replaces.  What it was made of goes only after that edit, as all that is doomed; a reader who meets that looks at the
manifest and goes on at the same index.  A ledger that was not named is deleted only where no edit can name it any more.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.client.api import Entry, Writer
from quire.conf.log import LogSettings
from quire.log.core.manifest import Chunk, Manifest
from quire.log.core.merging import Limits, Merge, Rewriting, Run, may_be_small, merged, planned, touched
from quire.log.core.streams.rates import UNLIMITED, ReadRates
from quire.log.core.upkeep_edits import DOOMED_MAX
from quire.log.core.values import Segment
from quire.log.reader.one_segment import SegmentReader
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.editing import moved
from quire.log.store.ledgers import Tags
from quire.log.store.paths import chunk_path
from quire.log.streams.turn import Turn
from quire.log.upkeep.deleting import clear_doomed
from quire.metadata.clock import pause
from quire.metadata.records import NoRecord
from quire.metadata.store import at_once as side_by_side
from quire.metadata.tree import Check
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, LogError, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 2  # runs
UPKEEP_BYTES = 16 << 20  # a second, of rounds of upkeep
AHEAD = 16  # segments that are read before it is their turn
AHEAD_BYTES = 1 << 20  # of a segment that is read whole so; of a larger one only its ledger is opened
UNDER_WAY = 8  # writes of a merged ledger without an acknowledgement yet


class Merged(NamedTuple):
    """A run that became one segment, `n`, with that ledger."""

    run: Run
    n: int
    ledger: int


@dataclass
class Merging:
    """The work that was done, or would be: runs that were planned, those that were merged, why others were not."""

    planned: list[Run] = field(default_factory=list)
    merged: list[Merged] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


Told = Callable[[Merging], object]  # after each run


def nobody(_done: Merging) -> None:
    """Tells nobody."""


async def limits_of(context: LogContext, to_bytes: int | None, run_min: int) -> Limits:
    """By default of what the log is set to.  `ValueError`, `NoSuchLog`."""
    settings = (await context.log.read()).value.settings
    if to_bytes is None:
        wanted = settings.get("merge_bytes", -1)
        to_bytes = wanted if wanted > 0 else settings.get("roll_bytes", 0)
    limits = Limits(to_bytes, run_min)
    limits.check()
    return limits


class Merges:
    """The merges of one log.  `rate`: most bytes a second that are written, -1 for any."""

    def __init__(self, context: LogContext, rate: int = UNLIMITED) -> None:
        """`ValueError`."""
        if type(rate) is not int or rate == 0 or rate < UNLIMITED:
            raise ValueError(f"a rate is bytes a second, or -1 for any, not {rate!r}")
        self._context = context
        self._log = context.log
        self._clock = context.client.reactor
        self._rates = ReadRates(self._clock.seconds)
        self._rates.bytes = rate
        self._turn = Turn(context.log, "merger")

    async def begins(self) -> bool:
        """True if this handle may; False: another process merges the log.  `NoSuchLog`, `MetaStore`."""
        return await self._turn.take()

    async def begin(self) -> None:
        """`LogError` when another process merges the log; `NoSuchLog`, `MetaStore`."""
        if not await self.begins():
            raise LogError(
                f"the log {self._log.name!r} is being merged by another process, so nothing was done: once that one "
                f"has ended, `quire log merge {self._log.name}` merges what is left"
            )

    async def end(self) -> None:
        """Others may merge it."""
        await self._turn.give_back()

    async def run(
        self, limits: Limits, at_once: int = AT_ONCE, told: Told = nobody, done: Merging | None = None
    ) -> Merging:
        """Merges what is worth it; adds to `done`, if given.  The errors of `begin`, `plan` and `merge`."""
        found = Merging() if done is None else done
        await self.begin()
        try:
            waiting = deque(await self.plan(limits, found))

            async def work() -> None:
                while waiting:
                    run = waiting.popleft()
                    made = await self.merge(run)
                    if isinstance(made, Merged):
                        found.merged.append(made)
                    else:
                        found.left.append(made)
                    told(found)

            await side_by_side([work() for _ in range(min(at_once, len(waiting)))])
        finally:
            await self.end()
        return found

    async def plan(self, limits: Limits, done: Merging | None = None) -> list[Run]:
        """The runs that are worth it now, which are added to `done`, too.  `NoSuchLog`, `LogDamaged`, `MetaStore`."""
        for _ in range(TRIES_MAX):
            await self._log.records.sync()
            manifest = (await self._log.read()).value
            segments: list[Segment | None] = []
            try:
                for line in manifest.chunks:
                    if may_be_small(line, limits):
                        segments += (await self._log.chunk(line.c)).segments
                    else:
                        segments.append(None)
            except NoRecord:  # it was trimmed, or another one took its place
                continue
            found = planned(manifest, [*segments, *manifest.segments], limits)
            if done is not None:
                done.planned += found
            return found
        raise self._context.too_many_conflicts()

    async def merge(self, run: Run) -> Merged | str:
        """
        Merges a run; or why it was not merged, with nothing changed.  The errors of ledgers that are still named,
        `LogFull`, `NoSuchLog`, `MetaStore`.
        """
        before = await self._standing(run)
        if before is None:
            return self._moved(run)
        joined = Joined(self._context, self._rates)
        try:
            segment = await joined.written(before)
        except LedgerError:
            await joined.discard()
            if await self._standing(run) == before:
                raise
            return self._moved(run)
        except BaseException:  # who is cancelled leaves what was written to the search for orphans
            joined.leave()
            raise
        self._context.reached("merge.written")
        if not await self._named(run, before, segment):
            return self._moved(run)
        self._context.reached("merge.named")
        await clear_doomed(self._context)
        return Merged(run, segment.n, segment.ledger)

    def _moved(self, run: Run) -> str:
        """Says why a run was not merged."""
        return (
            f"segments {run.first} to {run.last} of the log {self._log.name!r} were trimmed, offloaded or merged by "
            "another one meanwhile, and are as they were: merge again"
        )

    async def _standing(self, run: Run) -> tuple[Segment, ...] | None:
        """The run's segments, if they stand as when it was planned."""
        manifest = (await self._log.read()).value
        try:
            chunked = await self._chunked(manifest, run)
        except NoRecord:
            return None
        return run.of_these([*(each for some in chunked.values() for each in some), *manifest.segments])

    async def _chunked(self, manifest: Manifest, run: Run) -> dict[str, Sequence[Segment]]:
        """The chunks that have some of a run.  `NoRecord`."""
        return {line.c: (await self._log.chunk(line.c)).segments for line in touched(manifest, run.first, run.last)}

    async def _named(self, run: Run, before: tuple[Segment, ...], segment: Segment) -> bool:
        """
        True if the manifest names the segment now.  What could not be named is deleted, but for what an edit whose
        outcome is not known may name yet.
        """
        log, id_, is_known = self._log, self._log.new_id(), True
        for tries in range(TRIES_MAX):
            try:
                manifest, version = await log.read()
                if id_ in manifest.recent or await self._has(manifest, run, segment):
                    return True
                if len(manifest.doomed) > DOOMED_MAX:
                    await clear_doomed(self._context)
                    manifest, version = await log.read()
                found = Merge.of(
                    manifest, await self._chunked(manifest, run), before, segment, log.new_id(), log.now_ms()
                )
                if found is None or not await self._is_closed(segment.ledger):
                    break
                if await self._swapped(found, id_, version):
                    return True
            except NoRecord:  # a chunk was trimmed, or another one took its place
                await log.records.sync()
            except MetaStore:
                is_known = False
                if tries == TRIES_MAX - 1:
                    raise
                await pause(self._clock, self._context.options.poll_ms / 1000)
            except LedgerError:  # a refusal
                if is_known:
                    await self._context.ledgers.delete_all([segment.ledger])
                raise
        if is_known:
            await self._context.ledgers.delete_all([segment.ledger])
        return False

    async def _swapped(self, found: tuple[Merge, list[tuple[str, Chunk]]], id_: str, version: int) -> bool:
        """The chunks are there before the manifest names them; where it does not, they go."""
        log, (edit, chunks) = self._log, found
        paths = [chunk_path(log.log, name) for name, _chunk in chunks]
        made = [await log.records.create(path, chunk.encode()) for path, (_, chunk) in zip(paths, chunks, strict=True)]
        done = await log.edit(
            edit, id_, lambda _before, _after: [Check(path) for path in paths], look_up=moved, looked=version
        )
        if not done.done:  # the version has moved: they can't be named any more
            for path, each in zip(paths, made, strict=True):
                await log.remove(path, each)
        return done.done

    async def _has(self, manifest: Manifest, run: Run, segment: Segment) -> bool:
        """True if the manifest names the segment's ledger."""
        chunked = await self._chunked(manifest, run)
        here = [*manifest.segments, *(each for some in chunked.values() for each in some)]
        return any(each.ledger == segment.ledger for each in here)

    async def _is_closed(self, ledger: int) -> bool:
        try:
            return (await self._context.client.metadata(ledger)).is_closed
        except NoSuchLedger:
            return False


class Joined:
    """The ledger that a run becomes."""

    def __init__(self, context: LogContext, rates: ReadRates) -> None:
        self._context = context
        self._rates = rates
        self._writer: Writer | None = None
        self._under_way: deque[Deferred[range]] = deque()

    async def written(self, before: Sequence[Segment]) -> Segment:
        """The segment that these become.  The errors of ledgers; `LogDamaged`, `UnknownFormat` that name the entry."""
        context, log = self._context, self._context.log
        settings = LogSettings.of((await log.read()).value.settings)
        tags = Tags("log-merged", log.log, log.name, log.new_id(), {"segments": f"{before[0].n}-{before[-1].n}"})
        self._writer = writer = await context.ledgers.create(settings, tags)
        context.reached("merge.created")
        rewriting = Rewriting()
        async with aclosing(Ahead(context, before).lists()) as lists:
            async for segment, entries in lists:
                if entries is None:
                    rewriting.end()
                    continue
                if not entries[0].entry_id:
                    rewriting.begin(segment)
                await self._write(_fed(rewriting, segment, entries))
        await self._acknowledged()
        await context.ledgers.close(writer)
        ended = await context.ledgers.end(writer.id)
        if ended.counts[:3] != rewriting.counts[:3]:
            raise LogDamaged(
                f"ledger {writer.id} ends with {ended.counts}, written were {rewriting.counts}: `quire ledger check "
                f"{writer.id}` looks further"
            )
        return merged(before, writer.id, rewriting.entries)

    async def _write(self, entries: list[bytes]) -> None:
        writer = self._writer
        assert writer is not None, "it was created"
        if not entries:
            return
        while (wait_s := self._rates.wait_s) > 0:
            await pause(self._context.client.reactor, wait_s)
        self._rates.take(0, sum(map(len, entries)))
        await writer.ready()
        self._under_way.append(writer.append_many(entries))
        await self._acknowledged(UNDER_WAY - 1)

    async def _acknowledged(self, left: int = 0) -> None:
        """Returns when so many have no acknowledgement yet, the latest ones."""
        while len(self._under_way) > left:
            await self._under_way.popleft()

    async def discard(self) -> None:
        """Deletes what was written, as far as that is possible now; the rest is for the search for orphans."""
        self.leave()
        if self._writer is not None:
            await self._context.ledgers.delete_all([self._writer.id])

    def leave(self) -> None:
        """Ends the writer."""
        if self._writer is not None:
            self._writer.shut_down()
        for each in self._under_way:
            each.addErrback(lambda _failure: None)  # the first one was told


def _fed(rewriting: Rewriting, segment: Segment, entries: Sequence[Entry]) -> list[bytes]:
    found: list[bytes] = []
    for entry in entries:
        try:
            found += rewriting.feed(entry.data)
        except (LogDamaged, UnknownFormat) as error:
            raise type(error)(
                f"log segment {segment.n}, ledger {segment.ledger}, entry {entry.entry_id}: {error}"
            ) from None
    return found


Read = SegmentReader | Sequence[Entry]  # a segment that is opened, or all of it


class Ahead:
    """The entries of segments in order, of which some are opened, and small ones read, before it is their turn."""

    def __init__(self, context: LogContext, segments: Sequence[Segment]) -> None:
        self._context = context
        self._waiting = deque(segments)
        self._coming: deque[tuple[Segment, Deferred[Read]]] = deque()

    async def lists(self) -> AsyncGenerator[tuple[Segment, Sequence[Entry] | None], None]:
        """Lists of a segment's entries, the first with its first; then None at its end.  The errors of a ledger."""
        try:
            while self._waiting or self._coming:
                while self._waiting and len(self._coming) < AHEAD:
                    segment = self._waiting.popleft()
                    self._coming.append((segment, Deferred.fromCoroutine(self._read(segment))))
                segment, coming = self._coming.popleft()
                read = await coming
                if isinstance(read, SegmentReader):
                    async with aclosing(read), aclosing(read.lists_from(0)) as lists:
                        async for entries in lists:
                            yield segment, entries
                else:
                    yield segment, read
                yield segment, None
        finally:
            for _segment, coming in self._coming:
                coming.addCallbacks(_forget, lambda _failure: None)

    async def _read(self, segment: Segment) -> Read:
        reader = await SegmentReader.opened(self._context.client, segment, AHEAD_BYTES)
        if (segment.bytes or 0) > AHEAD_BYTES:
            return reader
        async with aclosing(reader):
            return [entry async for entries in reader.lists_from(0) for entry in entries]


def _forget(read: Read) -> None:
    if isinstance(read, SegmentReader):
        Deferred.fromCoroutine(read.aclose())
