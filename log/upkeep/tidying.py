"""
A round of upkeep: of one log, or of all.

Knows: the steps, and that each is idempotent and may be done by any number of processes at once.
Does not know: how often, and who asks.

Safety: a chunk that no line names goes in a step that checks the manifest, so that it is not named meanwhile.
"""

from contextlib import suppress
from dataclasses import dataclass, field, fields

from quire.log.core.manifest import DELETING, Chunk, Manifest
from quire.log.core.merging import Limits
from quire.log.core.streams.compaction import is_due
from quire.log.publish.forgetting import Tended, tend
from quire.log.store.context import LogContext
from quire.log.store.holds import cursors
from quire.log.store.ledgers import Deleted
from quire.log.store.paths import chunk_path
from quire.log.streams import record
from quire.log.streams.compaction import Compaction
from quire.log.streams.retention import begin_of, expire
from quire.log.upkeep.deleting import clear_doomed, remove_log
from quire.log.upkeep.merging import UPKEEP_BYTES, Merges
from quire.log.upkeep.trims import trim, trim_to
from quire.metadata.records import NoRecord, RecordChanged
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Delete
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogTrimmed, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

HOUR_MS = 3600_000
COMPACTION_RESTS = 6.0  # as long as it works


@dataclass
class TidyReport:
    """
    The work that was done, or would be: logs looked at, ledgers deleted, ledgers that stay and why, chunks without a
    line, parts that can't be published, publishers that were forgotten, the index at which each log begins now of which
    something went by age or size, the ids of logs whose rest is gone, and those of logs that could not be tidied and
    why; how many were compacted; how many segments were merged with others.
    """

    logs: int = 0
    deleted: list[int] = field(default_factory=list)
    stayed: dict[int, str] = field(default_factory=dict)
    chunks: int = 0
    parts: int = 0
    txns: int = 0
    expired: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    compacted: int = 0
    merged: int = 0

    def add(self, done: Deleted) -> Deleted:
        """Ledgers."""
        self.deleted += sorted(done.gone)
        self.stayed |= done.stayed
        return done

    def join(self, other: "TidyReport") -> None:
        """Adds another round."""
        for each in fields(self):
            mine, more = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine | more if isinstance(mine, dict) else mine + more)

    def tended(self, done: Tended) -> None:
        """Adds what became of publishers."""
        self.parts += done.parts
        self.txns += done.forgotten
        self.stayed |= done.stayed


async def tidy_log(
    context: LogContext,
    report: TidyReport,
    *,
    dry_run: bool = False,
    abandon: bool = False,
    brief: bool = False,
    compacts: bool = True,
    merge_bytes: int | None = None,
) -> None:
    """
    One round of a log.  `dry_run`: only says what would go.  `abandon`: ledgers whose bookies can't be asked go, too.
    `brief`: without what is worth a look once an hour only.  `compacts`: False without compaction.  `merge_bytes`: most
    bytes that segments are merged to, whatever is set.  `MetaStore` when the store is away.
    """
    report.logs += 1
    try:
        manifest = (await context.log.read()).value
        if dry_run:
            report.deleted += [each.ledger for each in manifest.doomed]
            report.removed += [manifest.id] if manifest.state == DELETING else []
            if manifest.state != DELETING:
                await _retain(context, report, manifest, dry_run)
            return
        if manifest.state == DELETING:
            if not report.add(await remove_log(context, abandon)).stayed:
                report.removed.append(manifest.id)
            return
        if manifest.doomed:
            report.add(await clear_doomed(context, abandon))
        if _is_unfinished(manifest):
            await trim(context)
        await expire(context, manifest)
        await _retain(context, report, manifest, dry_run)
        if not brief:
            await _tidy_cursors(context, report, abandon)
            now_ms = await context.ages.now_ms(context.log.records, manifest.last_stamp)
            await _tidy_chunks(context, report, now_ms)
            report.tended(await tend(context, now_ms, abandon))
        if compacts and is_due(manifest):
            await _compact(context, report)
        await _merge(context, report, manifest, merge_bytes)
    except NoSuchLog:  # it went meanwhile
        return
    except MetaStore:
        raise
    except LedgerError as error:  # the others are tidied nevertheless
        report.failed[context.log.log] = f"{type(error).__name__}: {error}"


async def _compact(context: LogContext, report: TidyReport) -> None:
    """Slowly, so that appends go on."""
    if is_due((await context.log.read()).value):
        report.compacted += await Compaction(context, COMPACTION_RESTS).run()


async def _merge(context: LogContext, report: TidyReport, manifest: Manifest, most: int | None) -> None:
    """Where it is set: slowly, so that appends go on; not while another process does."""
    wanted = manifest.settings.get("merge_bytes", -1)
    limits = Limits(wanted if most is None else min(most, wanted))
    if limits.bytes < 1 or manifest.segment_count < limits.run_min:
        return
    merges = Merges(context, UPKEEP_BYTES)
    if await merges.plan(limits) and await merges.begins():
        done = await merges.run(limits, at_once=1)
        report.merged += sum(each.run.segments for each in done.merged)


async def _retain(context: LogContext, report: TidyReport, manifest: Manifest, dry_run: bool) -> None:
    """Trims what is too old or too much, or says what would go."""
    with suppress(LogTrimmed):  # another process trims it: the next round
        begin = await begin_of(context, manifest)
        if begin > manifest.begin.index:
            report.expired[manifest.id] = (
                begin if dry_run else await trim_to(context, lambda newer: begin_of(context, newer))
            )


def _is_unfinished(manifest: Manifest) -> bool:
    """True if the log begins behind a segment that was the last one then, and now can go."""
    first = manifest.segment(manifest.begin.n)
    return first is not None and first is not manifest.segments[-1] and first.end <= manifest.begin.index


async def _tidy_cursors(context: LogContext, report: TidyReport, abandon: bool) -> None:
    """Deletes the doomed ledgers of cursors, and cursors that are being deleted."""
    for cursor, (value, _version) in await cursors(context.log):
        if value.doomed or value.state == DELETING:
            report.add(await record.clear(context, cursor, abandon))


async def _tidy_chunks(context: LogContext, report: TidyReport, now_ms: int | None) -> None:
    """Deletes chunks that no line names, once they are an hour old."""
    log = context.log
    if now_ms is None:
        return
    names = await log.names(f"{log.path}/chunk")
    if not names:
        return
    manifest, version = await log.read()
    for name in sorted(set(names) - {line.c for line in manifest.chunks}):
        path = chunk_path(log.log, name)
        with suppress(NoRecord, RecordChanged):  # it is gone; or the manifest changed, and may name it: the next round
            chunk = Chunk.decode((await log.records.read(path)).value)
            if chunk.at + HOUR_MS < now_ms:
                await log.records.multi([Check(log.path, version), Delete(path, ANY)])
                report.chunks += 1
