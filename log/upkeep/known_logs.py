"""
Named logs as an operator sees them: created, found, described, renamed, trimmed, tidied, deleted.

Knows: names and ids, and which room does what.  Does not know: owners, readers, publishers, what the rooms do.
Long: one class has what operators ask of logs.
"""

import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from quire.client.api import Client
from quire.conf.log import LogOptions, LogSettings
from quire.log.core import edits, upkeep_edits
from quire.log.core.machine.lease import new_lease
from quire.log.core.manifest import (
    FROM_START,
    Manifest,
    decode_moved,
    decode_name,
    encode_name,
    moved_error,
    new_manifest,
)
from quire.log.core.publishing import Txn
from quire.log.core.streams.rates import Together
from quire.log.core.uses import check_records, check_use
from quire.log.core.values import Begin, Compacted, Origin, Snapshot
from quire.log.owner.appending.appends import Position
from quire.log.owner.claims import Candidate, candidates_of
from quire.log.publish.forgetting import Tended, Unpublished, tend, unpublished
from quire.log.publish.txns import txns_of
from quire.log.reader.views import Views
from quire.log.store import paths
from quire.log.store.context import Ages, LogContext
from quire.log.store.editing import LogRecords, LookUp, create_log
from quire.log.store.holds import Hold, holds
from quire.log.store.ledgers import LogLedgers
from quire.log.store.metrics import LogMetrics
from quire.log.store.paths import log_names, sharded
from quire.log.streams import cursors, record
from quire.log.streams.compaction import Compaction
from quire.log.streams.cursors import Cursors
from quire.log.upkeep import tidying, trims
from quire.log.upkeep.keeping import KeptOwner as Owner
from quire.log.upkeep.keeping import PublishersRounds
from quire.log.upkeep.orphans import GRACE_S, Orphan, Orphans
from quire.log.upkeep.tidying import TidyReport
from quire.metadata.clock import Boottime, time_of_day
from quire.metadata.records import VALUE_BYTES_MAX, NoRecord, RecordExists, Records
from quire.metadata.store import ANY, Versioned
from quire.metadata.tree import Create, Delete, Step
from quire.metadata.uri import boottime
from quire.protocol.errors import ClientClosed
from quire.protocol.log_errors import LogExists, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

ENTRY_ROOM = 1 << 10  # more than a frame has beside a part's slice


class LogInfo(NamedTuple):
    """The state of a log.  `end`, `end_at`: None while a segment is open."""

    name: str
    id: str
    state: str
    epoch: int
    owner: str | None
    begin: int
    end: int | None
    segments: int
    bytes: int
    settings: dict[str, Any]
    doomed: int
    ledger: int | None  # of the open segment
    begin_at: int  # the byte position of `begin`, and that of `end`
    end_at: int | None
    origins: tuple[Origin, ...] = ()  # logs that it was a copy of; the last one, if that has no end, it is a copy of

    @property
    def mirrored(self) -> Origin | None:
        """The log that it is a copy of, if it is one."""
        return self.origins[-1] if self.origins and self.origins[-1].end is None else None


def info_of(manifest: Manifest) -> LogInfo:
    """Makes the state that a manifest tells."""
    owner = manifest.owner
    return LogInfo(
        manifest.name,
        manifest.id,
        manifest.state,
        manifest.epoch,
        None if owner is None else owner.address or owner.host or owner.token,
        manifest.begin.index,
        None if manifest.open_segment is not None else manifest.closed_end[0],
        manifest.segment_count,
        max(0, manifest.closed_end[1] - manifest.begin.at - manifest.lost_bytes),
        dict(manifest.settings),
        len(manifest.doomed),
        None if manifest.open_segment is None else manifest.open_segment.ledger,
        manifest.begin.at,
        None if manifest.open_segment is not None else manifest.closed_end[1],
        manifest.origins,
    )


def exists(name: str) -> LogExists:
    """The error of a name that is taken."""
    return LogExists(f"there is a log {name!r} already: `quire log show {name}` shows it")


def check_child(child: str, value: bytes) -> None:
    """`TypeError`, `ValueError` for what can't be the value of a child record."""
    if not isinstance(value, bytes):
        raise TypeError(f"the child record {child!r} is bytes, not {type(value).__name__}")
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"the child record {child!r} has {len(value)} bytes: at most {VALUE_BYTES_MAX} are allowed")


def fitting(options: LogOptions, frame_bytes_max: int) -> LogOptions:
    """Gives the options with parts that fit into a frame."""
    most = frame_bytes_max - ENTRY_ROOM
    return options if options.part_bytes <= most else options.model_copy(update={"part_bytes": most})


class KnownLogs:
    """
    `bk` is the ledger client of the same session, `metrics` a collector for Prometheus.  `reached(name)` is called
    right after each step that a test may want to end the process at.
    """

    def __init__(
        self,
        client: Client,
        options: LogOptions | None = None,
        *,
        reached: Callable[[str], None] = lambda _name: None,
        now: Callable[[], float] = time_of_day,
        boottime: Boottime = boottime,
        owns_client: bool = False,
    ) -> None:
        self.bk = client
        self.options = fitting(options or LogOptions(), client.options.frame_bytes_max)
        self._reached = reached
        self._now = now
        self._owns_client = owns_client
        self._ledgers = LogLedgers(client, self.options.password)
        self._ages = Ages(now, boottime)
        self._together = Together(self.options.process_bytes)
        self._rounds = PublishersRounds()
        self._owners: dict[Owner, None] = {}  # in the order in which they were asked for
        self._views = Views(client, self.options)
        self._cursors = Cursors(self._views)
        self.metrics = LogMetrics(lambda: [(owner.name, *owner.under_way) for owner in self._owners.copy()])
        self._closed = False

    @property
    def _records(self) -> Records:
        if self._closed:
            raise ClientClosed("these logs were closed")
        return self.bk.store.records

    def _log(self, id_: str, name: str) -> LogRecords:
        counters = self.metrics.of(name)
        return LogRecords(self._records, self.bk.reactor, self.bk.random, self._now, id_, name, counters)

    def _uncounted(self, id_: str, name: str) -> LogRecords:
        """For a look at many logs: they get no metrics of their own."""
        return LogRecords(self._records, self.bk.reactor, self.bk.random, self._now, id_, name)

    async def create(
        self, name: str, *, begin_at: int = 0, children: Mapping[str, bytes] | None = None, **settings: Any
    ) -> LogInfo:
        """
        A new log.  `children`: child records by their names, made in the same step, and gone with the log.
        `LogExists`; `ValueError` for a name or settings that can't be.
        """
        for child, value in (children or {}).items():
            check_child(child, value)
        if begin_at < 0:
            raise ValueError(f"a log begins at a byte position of 0 or more, not {begin_at}")
        return await self._create(name, LogSettings.made(**settings), Begin(0, 0, begin_at), children=children or {})

    async def create_copy(self, name: str, begin: Begin, origins: Sequence[Origin], **settings: Any) -> LogInfo:
        """
        A new log that is a copy of the last of `origins`, and begins where that does.  `LogExists`; `ValueError` for a
        name or settings that can't be.
        """
        return await self._create(name, LogSettings.made(**settings), begin, tuple(origins))

    async def cluster(self) -> str:
        """The id of the cluster.  `NoCluster`, `WrongCluster`, `MetaStore`."""
        return await self._records.cluster()

    async def _create(
        self,
        name: str,
        made: LogSettings,
        begin: Begin = FROM_START,
        origins: tuple[Origin, ...] = (),
        children: Mapping[str, bytes] | None = None,
        beside: Sequence[Step] = (),
        held: bool = False,
    ) -> LogInfo:
        """
        `beside`: what else changes in the same step, or is checked then.  `held`: nothing of it is trimmed until
        `cursors.let_go`.  `LogExists`.
        """
        path = paths.name_path(name)
        id_ = f"{self.bk.random.getrandbits(128):032x}"
        log = self._log(id_, name)
        manifest = new_manifest(name, id_, log.new_id(), made.model_dump(), begin, origins)
        lease = new_lease(bool(made.lease_ms), manifest.edit).encode()
        beside = [*([cursors.hold(log)] if held else []), *beside]
        try:
            await create_log(
                self._records, path, id_, edits.encoded(manifest), encode_name(id_), lease, children or {}, beside
            )
        except RecordExists:
            if await self._id_of(name) != id_:
                raise exists(name) from None
        self._reached("create.done")
        return info_of(manifest)

    async def child(self, name: str, child: str) -> Versioned[bytes] | None:
        """
        A child record and its version; None: the log was made without one of that name.  `NoSuchLog`, `ValueError`.
        """
        log = await self._open(name)
        try:
            return await self._records.read(paths.child_path(log.log, child))
        except NoRecord:
            await log.read()  # else it is the log that is gone
        return None

    async def write_child(self, name: str, child: str, value: bytes, version: int) -> int:
        """
        Replaces a child record whose version this is: the new one.  `RecordChanged`: it has another one by now, perhaps
        by an earlier try of this very write; `MetaStore`: its outcome is unknown.  `ValueError`: the log was made
        without it; `NoSuchLog`.
        """
        check_child(child, value)
        log = await self._open(name)
        try:
            return await self._records.write(paths.child_path(log.log, child), value, version)
        except NoRecord:
            await log.read()
            raise ValueError(
                f"the log {name!r} has no child record {child!r}: a log is given its child records when it is created"
            ) from None

    async def _id_of(self, name: str) -> str:
        path = paths.name_path(name)
        try:
            found = (await self._records.read(path)).value
        except NoRecord:
            await self._records.sync()  # a server of the store may be behind
            try:
                found = (await self._records.read(path)).value
            except NoRecord:
                raise NoSuchLog(f"there is no log {name!r}: `quire log list` shows those that there are") from None
        moved = decode_moved(found)
        if moved is not None:
            raise moved_error(name, moved)
        return decode_name(found)

    async def _open(self, name: str) -> LogRecords:
        return self._log(await self._id_of(name), name)

    async def _open_for(self, name: str, use: str) -> LogRecords:
        """A log that a caller with this use may change.  `NoSuchLog`; `ValueError` for another use than the log's."""
        log = await self._open(name)
        check_use((await log.read()).value, use)
        return log

    def _has_name(self, log: LogRecords) -> LookUp:
        """
        Before an edit that takes the log's name away.  A name's record changes only in one step with the manifest of
        the log that it points at: so one that points at this log after the manifest was read does so in the edit's
        step.  `NoSuchLog` when it does not: another log may have the name by now, and keeps it.
        """

        async def has_name(manifest: Manifest) -> bool:
            if await self._id_of(log.name) == log.log:
                return True
            raise NoSuchLog(
                f"the log {log.name!r} was renamed to {manifest.name!r} or deleted meanwhile, and another log has its "
                "name: nothing was changed; `quire log list` shows those that there are"
            )

        return has_name

    async def info(self, name: str) -> LogInfo:
        """`NoSuchLog`."""
        return info_of((await (await self._open(name)).read()).value)

    async def manifest(self, name: str) -> bytes:
        """The record that says what the log consists of, as it is stored: JSON.  `NoSuchLog`."""
        log = await self._open(name)
        try:
            return (await self._records.read(log.path)).value
        except NoRecord:
            raise log.gone() from None

    async def snapshots(self, name: str) -> list[Snapshot]:
        """Lists the stored replica snapshots, oldest first.  `NoSuchLog`."""
        return list((await (await self._open(name)).read()).value.snapshots)

    async def holds(self, name: str) -> list[Hold]:
        """Lists what keeps the log from being trimmed.  `NoSuchLog`, `LogDamaged`."""
        log = await self._open(name)
        return await holds(log, (await log.read()).value)

    async def txns(self, name: str) -> AsyncGenerator[Txn, None]:
        """Lists what is known of each publisher.  `NoSuchLog`."""
        async for txn in txns_of(await self._open(name)):
            yield txn

    async def unpublished(self, name: str) -> AsyncGenerator[Unpublished, None]:
        """Lists what publishers have written and not published, by publisher.  `NoSuchLog`, `LogDamaged`."""
        async for each in unpublished(await self._open(name)):
            yield each

    async def janitor(self, name: str, abandon: bool = False) -> Tended:
        """
        The part of `tidy` that looks after publishers: what can't be published any more goes, what was silent for too
        long is aborted and forgotten.  `abandon`: ledgers whose bookies can't be asked go, too.  `NoSuchLog`.
        """
        context = await self._context(name)
        manifest = (await context.log.read()).value
        return await tend(context, await self._ages.now_ms(self._records, manifest.last_stamp), abandon)

    async def candidates(self, name: str) -> AsyncGenerator[Candidate, None]:
        """Lists the handles that own the log or wait for it.  `NoSuchLog`."""
        log = await self._open(name)
        async for candidate in candidates_of(self._records, log.path):
            yield candidate

    def names(self) -> AsyncGenerator[str, None]:
        """Lists the names of all logs, by shard, then by name."""
        return log_names(self._records)

    async def update(self, name: str, **settings: Any) -> LogInfo:
        """
        Other settings; those of storage count from the next segment on, and `lease_ms` once the former lease is over.
        `ValueError`, also when another change came at the same time and both together can't be, with nothing changed;
        `NoSuchLog`.
        """
        log = await self._open(name)
        changed = LogSettings.changed((await log.read()).value.settings, **settings)
        edit = upkeep_edits.Update(changed, LogSettings.check)
        done = await (self._context_of(log).leases.edit(edit, log.edit) if "lease_ms" in changed else log.edit(edit))
        assert done is not None
        return info_of(done.manifest)

    async def rename(self, name: str, new: str, *, use: str = "") -> LogInfo:
        """`NoSuchLog`, also when the name was taken from the log meanwhile; `LogExists`; `ValueError`: another use."""
        return await self._rename(await self._open_for(name, use), new)

    async def _rename(self, log: LogRecords, new: str) -> LogInfo:
        """Renames the log that was opened, if it still has its name."""
        old_path, new_path = paths.name_path(log.name), paths.name_path(new)
        await self._records.folder(new_path.rpartition("/")[0])
        try:
            done = await log.edit(
                upkeep_edits.Rename(new),
                beside=lambda _before, _after: [Delete(old_path, ANY), Create(new_path, encode_name(log.log))],
                look_up=self._has_name(log),
            )
        except RecordExists:
            raise exists(new) from None
        return info_of(done.manifest)

    async def delete(self, name: str, *, use: str = "") -> None:
        """
        The name is free when this returns; upkeep does the rest.  `NoSuchLog`, also when the name was taken from the
        log meanwhile; `ValueError`: another use.
        """
        await self._delete(await self._open_for(name, use))

    async def _delete(self, log: LogRecords) -> None:
        """Deletes the log that was opened, if it still has its name."""
        path = paths.name_path(log.name)
        await log.edit(
            upkeep_edits.Delete(), beside=lambda _before, _after: [Delete(path, ANY)], look_up=self._has_name(log)
        )
        self._reached("delete.unnamed")

    async def context(self, name: str) -> LogContext:
        """The context of work on one log, for what is built on logs.  `NoSuchLog`."""
        return await self._context(name)

    async def _context(self, name: str) -> LogContext:
        return self._context_of(await self._open(name))

    async def _context_for(self, name: str, use: str) -> LogContext:
        return self._context_of(await self._open_for(name, use))

    async def _context_with_records(self, name: str) -> LogContext:
        """`ValueError` for a log whose records are in its partitions."""
        context = await self._context(name)
        check_records((await context.log.read()).value)
        return context

    def _context_of(self, log: LogRecords) -> LogContext:
        return LogContext(self.bk, log, self._ledgers, self.options, self._ages, self._reached, self._together)

    async def trim(self, name: str, before: int) -> int:
        """
        The log begins at index `before`, or where its open segment begins: at which.  What is before goes.
        `ValueError` names what needs the log from a lower index on; `LogFull`, `NoSuchLog`.
        """
        return await trims.trim(await self._context_with_records(name), before)

    async def compact(self, name: str) -> Compacted | None:
        """
        The newest record of each key in the closed segments, written to ledgers of its own; None: nothing was closed
        since the last time, or another one is at it.  `ValueError` unless `compaction` is on; `NoSuchLog`,
        `SegmentLost`, `MetaStore`, the errors of ledgers.
        """
        context = await self._context_with_records(name)
        if not (await context.log.read()).value.settings.get("compaction"):
            raise ValueError(f"the log {name!r} is not to be compacted: `quire log set {name} compaction=true`")
        return (await context.log.read()).value.compacted if await Compaction(context).run() else None

    async def terminate(self, name: str, *, use: str = "") -> Position:
        """
        The log takes nothing more, whoever owns it; where it ends.  `NoSuchLog`, `SegmentLost`; `ValueError`: another
        use.
        """
        return await trims.terminate(await self._context_for(name, use))

    async def truncate(self, name: str, *, use: str = "") -> int:
        """
        The log has no record any more and goes on with the same index: which.  Cursors move there.  `ValueError` names
        what else needs records, or another use; `NoSuchLog`, `SegmentLost`.
        """
        return await trims.truncate(await self._context_for(name, use))

    async def give_up(self, name: str, segment: int, records: int | None = None) -> range:
        """
        Goes on without a segment whose ledger is gone: the indexes that are lost.  `records`: of one that was open, by
        default 2^32.  `ValueError` when the ledger is there, `SegmentLost` when the segment is gone.
        """
        return await trims.give_up(await self._context(name), segment, records, socket.gethostname())

    async def mark(
        self,
        name: str,
        segment: int,
        value: Mapping[str, Any] | None,
        expected: Mapping[str, Any] | None,
        ledger: int | None = None,
    ) -> None:
        """
        Says where a copy of a closed segment is: `state` "copying" or "complete", `uri`, and `bookies` "kept" or
        "deleted"; with that its ledger goes, and readers use `LogOptions.openers`.  `ledger`: the one copied, needed of
        a merged segment.  `PublishRefused`: the mark is not `expected`; `SegmentLost`: it is gone; `ValueError`.
        """
        await trims.mark(await self._context(name), segment, value, expected, ledger)

    async def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> TidyReport:
        """
        A round of upkeep, of all logs and what is left of deleted ones without a name.  `dry_run`: only says which
        doomed ledgers and deleted logs would go.  `abandon`: ledgers whose bookies can't be asked go, too.
        """
        report = TidyReport()
        if name is not None:
            await tidying.tidy_log(await self._context(name), report, dry_run=dry_run, abandon=abandon)
            return report
        async for id_ in sharded(self._records, "logs"):  # those that are being deleted, too
            context = self._context_of(self._uncounted(id_, id_))
            await tidying.tidy_log(context, report, dry_run=dry_run, abandon=abandon)
        return report

    async def delete_cursor(self, name: str, cursor: str) -> None:
        """
        Deletes a cursor: its name is free when this returns, and its holder is fenced.  `NoSuchCursor`, `NoSuchLog`.
        """
        context = await self._context(name)
        await record.clear(context, (await cursors.unname(context.log, cursor)).id)

    def orphans(
        self, delete: bool = False, *, really: bool = False, grace_s: float = GRACE_S
    ) -> AsyncGenerator[Orphan, None]:
        """
        The ledgers that were made for logs and that none names.  `delete`: those older than `grace_s` are deleted.
        `LogError` when more than 10,000, or a fifth of all, would be deleted and it is not `really` wanted.
        """
        left = self.metrics.found_orphans
        search = Orphans(self.bk, self._ledgers, self._uncounted, self._now, self._reached, left)
        return search.run(delete, really, grace_s)

    async def purge(self, instance_id: str) -> None:
        """
        Removes the logs of a former cluster of that id at this address; their ledgers are gone with it.  `WrongCluster`
        when those here are of another one, or of the present one.
        """
        await self._records.purge(instance_id)
