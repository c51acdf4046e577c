"""
Partitioned logs as an operator sees them: created, grown, given settings, deleted.

A partitioned log is a log without records, whose setting `partitions` says how many there are; a partition is a log
whose setting `partition_of` names it by its id (`core.partitions`).  All else of a partition is that of any log.

Knows: in which order the whole and its partitions are made and deleted, and what an interrupted call has left.
Does not know: owners, readers, which key belongs where.

Safety: the whole is made first and deleted first, in one step each, and says how many partitions there are.  A
partition is made only in a step that checks the version of the whole which says so: so none is made of a whole that is
being deleted.  What a call leaves when it is interrupted, the next one finishes: partitions that are missing are made
by whoever looks for them, and those that are left, each of an id that no log has any more, are deleted when they are
met.  They are made from the first on and deleted from the last on, so what is left begins with the first.  A partition
whose cursors are still to be made has a hold of its own from its first step on; the next one is made once that is gone,
so only the last one may have it.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from quire.conf.log import PARTITIONED, LogSettings
from quire.log.core.manifest import DELETING, Manifest
from quire.log.core.merging import RUN_MIN, Limits
from quire.log.core.partitions import parted, partition_name
from quire.log.core.uses import check_use
from quire.log.store.editing import CONFLICTS_MAX, LogRecords
from quire.log.store.paths import encoded
from quire.log.streams import cursors
from quire.log.upkeep.known_logs import KnownLogs, LogInfo
from quire.log.upkeep.merging import AT_ONCE, Merges, Merging, limits_of
from quire.log.upkeep.tidying import TidyReport
from quire.metadata.records import RecordChanged
from quire.metadata.store import Versioned
from quire.metadata.tree import Check
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogExists, NoSuchCursor, NoSuchLog

# SPDX-License-Identifier: Apache-2.0

OWN = ("partitions", "partition_of", "use")  # the settings that a whole and its partitions do not share


class PartitionedLogs(KnownLogs):
    """As `KnownLogs`, of which some are partitioned: those are changed as a whole."""

    async def create(
        self, name: str, *, begin_at: int = 0, children: Mapping[str, bytes] | None = None, **settings: Any
    ) -> LogInfo:
        """
        A new log; with `partitions` a partitioned one, whose partitions have the other settings.  `children`: child
        records by their names, made in the same step, and gone with the log.  What an interrupted call of the same name
        has left is finished, or is in the way no more.  `LogExists`; `ValueError` for a name or settings that can't be.
        """
        if settings.get("partitions", 0) not in (0, "0"):
            settings.setdefault("use", PARTITIONED)
            if begin_at:
                raise ValueError("the partitions of a log begin at the byte position 0: begin_at is for one log")
        if settings.get("partition_of"):
            raise ValueError("partitions are made with their log: `quire log create NAME --partitions N`")
        made = LogSettings.made(**settings)
        if made.partitions:
            encoded(partition_name(name, made.partitions - 1))
            await self._clear(name)
        try:
            info = await super().create(name, begin_at=begin_at, children=children, **settings)
        except LogExists:
            if made.partitions:
                await self._make_missing(name)  # an interrupted call may have left some to be made
            raise
        if made.partitions:
            await self._make_missing(name)
        return info

    async def partitions(self, name: str) -> list[str]:
        """
        The names of a log's partitions, each of them a log, in the order of their numbers; of a log that is not
        partitioned its own.  `NoSuchLog`.
        """
        return await self._make_missing(name) or [name]

    async def merge(
        self,
        name: str,
        *,
        to_bytes: int | None = None,
        run_min: int = RUN_MIN,
        at_once: int = AT_ONCE,
        rate: int = -1,
        dry_run: bool = False,
    ) -> Merging:
        """
        Runs of at least `run_min` small closed segments become one each, of about `to_bytes` (by default `merge_bytes`,
        else `roll_bytes` of the log), with the same records at the same indexes; `at_once` runs at a time, `rate` bytes
        a second at most.  Of a partitioned log those of each partition.  `dry_run`: only plans.  `LogError`: another
        process is at it; `ValueError` for such a limit and for a log with a `use`; `NoSuchLog`, `LogFull`, `MetaStore`,
        the errors of ledgers.
        """
        if type(at_once) is not int or at_once < 1:
            raise ValueError(f"at least 1 run is merged at once, not {at_once!r}")
        done = Merging()
        for each in await self.partitions(name):
            merges, limits = await self.merging(each, to_bytes, run_min, rate)
            await (merges.run(limits, at_once, done=done) if not dry_run else merges.plan(limits, done))
        return done

    async def merging(
        self, name: str, to_bytes: int | None = None, run_min: int = RUN_MIN, rate: int = -1
    ) -> tuple[Merges, Limits]:
        """The merges of one log, for who divides the runs among processes, and what `merge` goes by.  Its errors."""
        context = await self._context_for(name, "")
        return Merges(context, rate), await limits_of(context, to_bytes, run_min)

    async def update(self, name: str, **settings: Any) -> LogInfo:
        """
        Other settings; those of storage count from the next segment on, and `lease_ms` once the former lease is over.
        Of a partitioned log the partitions get them, too, and `partitions` lets it grow; a call that was interrupted is
        finished by the same one.  `ValueError`, also when another change came at the same time and both together can't
        be, with nothing changed; `NoSuchLog`.
        """
        before = (await (await self._open(name)).read()).value.settings
        count = LogSettings.changed(before, **settings).get("partitions")
        if count:
            encoded(partition_name(name, count - 1))
        info = await super().update(name, **settings)
        if info.settings.get("partitions"):
            shared = {key: value for key, value in settings.items() if key not in OWN}
            for each in await self._make_missing(name):
                if shared:
                    await super().update(each, **shared)
        return info

    async def rename(self, name: str, new: str, *, use: str = "") -> LogInfo:
        """
        `NoSuchLog`, also when the name was taken from the log meanwhile; `LogExists`; `ValueError`: another use, or a
        partitioned log or a partition, which keep their names.
        """
        log = await self._open(name)
        manifest = (await log.read()).value
        if manifest.settings.get("partitions") or await self._whole_of(manifest) is not None:
            raise ValueError(
                f"the log {name!r} is partitioned, or a partition, and keeps its name: partitions are found by it"
            )
        check_use(manifest, use)
        return await self._rename(log, new)

    async def delete(self, name: str, *, use: str = "") -> None:
        """
        The name is free when this returns, and so are those of a partitioned log's partitions; upkeep does the rest.  A
        call that was interrupted is finished by the same one.  `NoSuchLog`, also when the name was taken from the log
        meanwhile; `ValueError`: another use, or a partition, which goes with its log.
        """
        try:
            log = await self._open(name)
            manifest = (await log.read()).value
        except NoSuchLog:
            if await self._clear(name):
                return
            raise
        whole = await self._whole_of(manifest)
        if whole is not None:
            raise ValueError(
                f"the log {name!r} is a partition of {whole!r}, and is deleted with it: `quire log delete {whole}`; "
                f"`quire log truncate {name}` removes its records"
            )
        count = manifest.settings.get("partitions", 0)
        check_use(manifest, PARTITIONED if count else use)
        await self._delete(log)
        for number in reversed(range(count)):
            await self._delete_left(partition_name(name, number))

    async def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> TidyReport:
        """
        A round of upkeep, of all logs and what is left of deleted ones without a name; of a partitioned log that of its
        partitions.  `dry_run`: only says which doomed ledgers and deleted logs would go.  `abandon`: ledgers whose
        bookies can't be asked go, too.
        """
        if name is None:
            if not dry_run:
                async for each in self.names():
                    if parted(each) is not None:
                        await self._delete_left(each)
            return await super().tidy(None, dry_run, abandon)
        report = TidyReport()
        for each in await self.partitions(name):
            report.join(await super().tidy(each, dry_run, abandon))
        return report

    async def delete_cursor(self, name: str, cursor: str) -> None:
        """
        Deletes a cursor, of a partitioned log in all partitions: its name is free when this returns, and its holder is
        fenced.  `NoSuchCursor`, `NoSuchLog`.
        """
        found = 0
        missing: NoSuchCursor | None = None
        for each in await self.partitions(name):
            try:
                await super().delete_cursor(each, cursor)
                found += 1
            except NoSuchCursor as error:
                missing = error
        if missing is not None and not found:
            raise missing

    # -- how ---------------------------------------------------------------------------------------------------------

    async def _make_missing(self, name: str) -> list[str]:
        """Makes the partitions that are missing; the names of all, of a log that is not partitioned none."""
        log = await self._open(name)
        known = await log.read()
        names = [partition_name(name, number) for number in range(known.value.settings.get("partitions", 0))]
        for number, each in enumerate(names):
            if not await self._is_partition(each, log.log):
                if number:
                    await self._share_cursors(names[0], names[number - 1])
                await self._make(log, each, names[0] if number else "")
        if len(names) > 1:
            await self._share_cursors(names[0], names[-1])
        return names

    async def _is_partition(self, name: str, whole: str) -> bool:
        """
        True if this is the partition of the log with that id.  One that an interrupted call has left goes.
        `LogExists`: it is another log.
        """
        try:
            manifest = (await (await self._open(name)).read()).value
        except NoSuchLog:
            return False
        if manifest.settings.get("partition_of") == whole:
            return manifest.state != DELETING
        if await self._delete_left(name):
            return False
        raise LogExists(
            f"there is a log {name!r} already, which is no partition of the log that is to have one of this name: "
            f"`quire log rename {name} NEW` makes room, and the same command then goes on"
        )

    async def _make(self, log: LogRecords, name: str, first: str) -> None:
        """Makes one partition, which is held whole until it has the cursors that the `first` one has."""
        for _ in range(CONFLICTS_MAX):
            known: Versioned[Manifest] = await log.read()
            if known.value.state == DELETING:
                raise log.gone()
            settings = {key: value for key, value in known.value.settings.items() if key not in OWN}
            made = LogSettings.of(settings | {"partition_of": log.log})
            has_cursors = bool(first and await cursors.names(await self._open(first)))
            try:
                await self._create(name, made, beside=[Check(log.path, known.version)], held=has_cursors)
            except RecordChanged:  # the whole, meanwhile
                continue
            except LogExists:  # another call has made it
                if not await self._is_partition(name, log.log):
                    continue
            return
        raise MetaStore(f"the log {log.name!r} changed {CONFLICTS_MAX} times while its partition {name!r} was made")

    async def _share_cursors(self, first: str, name: str) -> None:
        """
        Gives a partition that is held for it the cursors of another, at its begin; then it is held no more.  One that
        is not has got them: those that it lacks were deleted there.
        """
        made = await self._open(name)
        if not await cursors.is_held(made):
            return
        async for record in cursors.listed(await self._open(first)):
            await cursors.make(made, record.name, "begin")
        await cursors.let_go(made)

    async def _whole_of(self, manifest: Manifest) -> str | None:
        """The name of the log that this is a partition of; None for one that is none, or is left of a deleted one."""
        id_ = manifest.settings.get("partition_of", "")
        if not id_:
            return None
        await self._records.sync()  # before a log is taken for missing
        with suppress(NoSuchLog):
            whole = (await self._uncounted(id_, id_).read()).value
            return None if whole.state == DELETING else whole.name
        return None

    async def _delete_left(self, name: str) -> bool:
        """Deletes a partition whose log was deleted; True if there is none of this name then."""
        try:
            manifest = (await (await self._open(name)).read()).value
            if not manifest.settings.get("partition_of") or await self._whole_of(manifest) is not None:
                return False
            await super().delete(name, use=manifest.settings.get("use", ""))
        except NoSuchLog:
            return True
        return True

    async def _clear(self, name: str) -> bool:
        """Deletes the partitions that an interrupted call has left of a log of that name; True if there were any."""
        left: list[str] = []
        while True:
            each = partition_name(name, len(left))
            try:
                manifest = (await (await self._open(each)).read()).value
            except (NoSuchLog, ValueError):  # the latter: a name that can't be one of a partition
                break
            if not manifest.settings.get("partition_of") or await self._whole_of(manifest) is not None:
                break
            left.append(each)
        for each in reversed(left):
            await self._delete_left(each)
        return bool(left)
