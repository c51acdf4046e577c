"""
A log moves to another cluster: copied while it goes on, fenced, copied to its end, gone on with there.

    begun       the log's manifest says where it is to go
    copied      the other cluster has all records but the newest
    fenced      nothing is appended here any more
    rest        the other cluster has all records
    carried     and cursors, publishers, the newest snapshot
    promoted    the copy takes appends
    switched    the directory says that the log is there
    ended       the log's name here says so, too, and the log is deleted here
    settled     the directory has forgotten where it came from

Knows: these steps, their order, how far an earlier try came.
Does not know: how a log is copied (`mirror`), what is carried (`carrying`).

Safety: the log is fenced before its copy is promoted, so at no moment do both take appends; and only a move that is
still in the log's manifest fences it.  Each step is found done when it is tried again, so the same command goes on
where another one was ended, or is beside it: only one of them owns the copy.  The directory follows: what it says late
leads to a log that takes nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from quire.log.api import Logs
from quire.log.clusters.carrying import carry, check_goes, check_has
from quire.log.clusters.directory import Place
from quire.log.clusters.following import forget_moved
from quire.log.clusters.logs import DirectoryLogs, manifest_of
from quire.log.core.manifest import MIRROR, TERMINATED, encode_name
from quire.log.core.moving import (
    AbortMove,
    BeginMove,
    EndMove,
    FenceMove,
    ForgetMove,
    HoldCopy,
    another_move,
    check_move,
    has_all,
)
from quire.log.core.values import Moved
from quire.log.mirror.mirror import Mirror
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.store.paths import name_path
from quire.log.upkeep.tidying import TidyReport, tidy_log
from quire.metadata.records import RecordChanged
from quire.metadata.store import at_once
from quire.metadata.tree import Write
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogError, NoSuchLog

# SPDX-License-Identifier: Apache-2.0


class MoveReport(NamedTuple):
    """
    The outcome of a move: the index up to which the log was copied, from where on it goes on in `cluster`; for how
    long, in seconds, nobody could append; ledgers that stay where it was, and why.  `again`: it had moved before.
    """

    log: str
    source: str
    cluster: str
    end: int
    pause_s: float
    stayed: dict[int, str]
    again: bool = False


Seen = Callable[[int, int], object]  # hears how many records are copied, and how many there are


class Move:
    """One command that moves a log, or goes on with its move."""

    def __init__(self, logs: DirectoryLogs, name: str, cluster: str, seen: Seen = lambda _end, _of: None) -> None:
        self._logs = logs
        self._directory = logs.directory
        self._clock = logs.bk.reactor
        self._name = name
        self._cluster = cluster
        self._seen = seen
        self._reached = logs.reached

    async def run(self) -> MoveReport:
        """
        The log is in the cluster when this returns.  `NoSuchLog`, `LogExists`; `LogError` for a cluster that is not in
        the directory, and while the log is moved elsewhere; the errors of a mirror.
        """
        place = await self._directory.find(self._name)
        if place.cluster == self._cluster and place.source is None:
            return MoveReport(self._name, place.cluster, place.cluster, -1, 0.0, {}, True)
        if place.cluster == self._cluster:
            return await self._end(place.source or "", -1, 0.0)
        if place.source is not None:  # it has come from elsewhere, and is not gone from there yet
            await Move(self._logs, self._name, place.cluster).run()
            place = await self._directory.find(self._name)
        return await self._move(place)

    async def _move(self, place: Place) -> MoveReport:
        source = await self._logs.in_cluster(place.uri)
        target = await self._logs.in_cluster(await self._directory.uri_of(self._cluster))
        context = await source.context(self._name)
        await check_goes(context)
        move = await self._begun(context, target)
        self._reached("move.begun")
        begun, end = self._clock.seconds(), -1
        if not await self._is_promoted(context, target):
            mirror = Mirror(source, self._name, target, self._name)
            await mirror.begin()
            try:
                copy = await target.context(self._name)
                await copy.log.edit(HoldCopy(context.log.log))
                has = partial(check_has, context, copy)
                await has((await context.log.read()).value)
                await mirror.catch_up(self._seen)
                self._reached("move.copied")
                await has((await context.log.read()).value)  # before somebody is deposed for nothing
                begun = self._clock.seconds()
                end = await mirror.fence(partial(check_move, id_=move.id), has)
                if mirror.progress.terminated:  # it was not changed
                    await context.log.edit(FenceMove(move.id), look_up=has)
                self._reached("move.fenced")
                await at_once([self._rest(mirror, end), carry(context, copy, move.id)])
                self._reached("move.carried")
                await mirror.hand_over()
                await self._switched(context, target, place)
                pause_s = self._clock.seconds() - begun
            finally:
                await mirror.close()
        else:
            await self._switched(context, target, place)
            pause_s = self._clock.seconds() - begun
        return await self._end(place.cluster, end, pause_s, move)

    async def _rest(self, mirror: Mirror, end: int) -> None:
        await mirror.copy_until(end)
        self._seen(end, end)
        self._reached("move.rest")

    async def _switched(self, context: LogContext, target: Logs, place: Place) -> None:
        """The copy takes appends by now: it has its end, if the log has, and the directory leads to it."""
        if (await context.log.read()).value.state == TERMINATED:
            await target.terminate(self._name)
        self._reached("move.promoted")
        await self._directory.moved(self._name, place.cluster, self._cluster)
        self._reached("move.switched")

    async def _begun(self, context: LogContext, target: Logs) -> Moved:
        """Begins the move in the log's manifest, or goes on with the one there."""
        await forget_moved(target.bk.store.records, self._name)
        copy = await manifest_of(target, self._name)
        uri, directory = target.bk.store.uri, self._directory.uri
        to = Moved(context.log.new_id(), self._cluster, uri, directory, kept=copy is not None)
        edit = BeginMove(to, "" if copy is None else copy.id)
        moved = (await context.log.edit(edit)).manifest.moved
        assert moved is not None
        return moved

    async def _is_promoted(self, context: LogContext, target: Logs) -> bool:
        """True if an earlier try came so far that the copy takes appends."""
        copy = await manifest_of(target, self._name)
        return copy is not None and copy.mirrored is None and has_all((await context.log.read()).value, copy)

    async def _end(self, source: str, end: int, pause_s: float, move: Moved | None = None) -> MoveReport:
        """Ends that move, or the one found there, once the directory has it: the log goes from where it was."""
        logs = await self._logs.in_cluster(await self._directory.uri_of(source))
        target = await self._logs.in_cluster(await self._directory.uri_of(self._cluster))
        report = TidyReport()
        try:
            context = await logs.context(self._name)
            await self._leave(context, target, move)
        except NoSuchLog:  # it has gone
            context = None
        self._reached("move.ended")
        await self._directory.settled(self._name, source)
        self._reached("move.settled")
        if context is not None:
            await tidy_log(context, report)
        return MoveReport(self._name, source, self._cluster, end, pause_s, report.stayed)

    async def _leave(self, context: LogContext, target: Logs, move: Moved | None) -> None:
        """The log goes from where it was; its name says where it is.  `LogError` for one that is not to go by that."""
        path = name_path(self._name)
        for _ in range(TRIES_MAX):
            found = await self._left_by(context, target, move)
            if found.done:
                return
            version = (await context.log.records.read(path)).version
            steps = [Write(path, encode_name(context.log.log, found), version)]
            try:
                await context.log.edit(EndMove(found.id), beside=lambda _before, _after, steps=steps: steps)  # type: ignore[misc]  # a default of a lambda has no type
            except RecordChanged:
                continue
            return
        raise context.too_many_conflicts()

    async def _left_by(self, context: LogContext, target: Logs, move: Moved | None) -> Moved:
        """The move by which the log goes, which may be done.  `LogError` where it is to stay."""
        source = (await context.log.read()).value
        found = source.moved
        if found is None:
            raise LogError(
                f"the log {self._name!r} is in the cluster {self._cluster}, and the one that it was copied from is no "
                "longer on its way there: nothing was deleted. `quire log rename` or `delete` that one, by the URI of "
                "its cluster, and run this again"
            )
        if found.cluster != self._cluster or (move is not None and move.id != found.id):
            raise another_move(source)
        copy = await manifest_of(target, self._name)
        if not found.done and (copy is None or not has_all(source, copy)):
            raise LogError(
                f"the log {self._name!r} in the cluster {self._cluster} does not have all that it has where it is "
                "copied from: nothing was deleted there"
            )
        return found

    async def abort(self) -> str:
        """
        Gives up the move that is under way, before the log is fenced: the cluster in which it stays.  `LogError` when
        it is too late, and when the copy can't be deleted now: called again, it goes on with that.
        """
        place = await self._directory.find(self._name)
        if place.cluster == self._cluster:
            raise LogError(f"the log {self._name!r} is in the cluster {self._cluster}: there is no move to give up")
        source = await self._logs.in_cluster(place.uri)
        context = await source.context(self._name)
        moved = (await context.log.read()).value.moved
        if moved is None or moved.cluster != self._cluster:
            raise LogError(
                f"the log {self._name!r} is not being moved to the cluster {self._cluster}: nothing to give up"
            )
        await context.log.edit(AbortMove(moved.id))
        self._reached("move.aborted")
        await self._unmade(context, moved)
        await context.log.edit(ForgetMove(moved.id))
        return place.cluster

    async def _unmade(self, context: LogContext, moved: Moved) -> None:
        """Deletes the copy of a move that was given up; one that was there before stays, and is trimmed again."""
        try:
            target = await self._logs.in_cluster(moved.uri)
            if moved.kept:
                with suppress(NoSuchLog):
                    await (await target.context(self._name)).log.edit(HoldCopy(context.log.log, False))
            elif await self._is_copy_of(context.log.log, target):
                await target.delete(self._name, use=MIRROR)
        except LedgerError as error:
            raise LogError(
                f"the log {self._name!r} stays, but its copy in the cluster {moved.cluster} can't be let go now: run "
                f"`quire log move {self._name} {moved.cluster} --abort` again once that cluster answers ({error})"
            ) from error

    async def _is_copy_of(self, log: str, target: Logs) -> bool:
        try:
            mirrored = (await target.info(self._name)).mirrored
        except NoSuchLog:
            return False
        return mirrored is not None and mirrored.log == log
