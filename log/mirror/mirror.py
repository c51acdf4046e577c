"""
A mirror: it keeps a log of one cluster in another one, with the same records at the same indexes.

Knows: how a copy is made, taken up where it ends, and followed; when two logs are not the same; the order in which the
log goes over to its copy.
Does not know: how a batch is stored (`carrying`), what is written down of a copy (`core.mirroring`).

Safety: the position is the end of the copy, which its owner settles, and nothing else; the copy has one owner, which
stores a batch at its place or not at all.  In a planned change the one log ceases to take appends before the other
begins to.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from twisted.internet.defer import Deferred

from quire.log.api import LogInfo, Logs, Owner, Record
from quire.log.core.manifest import MIRROR, TERMINATED, Manifest
from quire.log.core.mirroring import Lineage, check_copy, diverged, in_common, promoted_at, unchecked
from quire.log.core.values import Begin, Origin
from quire.log.mirror.carrying import Carrying
from quire.log.mirror.lag import Lag
from quire.log.mirror.metrics import MirrorProgress
from quire.log.mirror.places import copy_cursors
from quire.log.mirror.turning import promote
from quire.log.store.editing import LookUp
from quire.log.upkeep.keeping import replayed
from quire.metadata.clock import pause
from quire.metadata.store import WrongCluster
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import (
    AppendUnknown,
    BacklogQuota,
    LogError,
    LogExists,
    LogFenced,
    LogTrimmed,
    NoSuchLog,
    NotOwner,
)

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 1.0  # between two looks at the end of the log that is copied
AGAIN_S, AGAIN_MAX_S = 1.0, 30.0  # after a failure, each time twice as long
EVER_S = 1e9
NEAR_S = 0.2  # a round of copying that takes no longer is followed by the fence
ROUNDS_MAX = 100  # a log that grows faster than it is copied is fenced nevertheless
OVERTAKEN_S = 10.0  # a takeover by force that another one overtook waits so long for that one to go
SETTINGS_LEFT_OUT = ("partition_of",)  # what only means something in the cluster that the log is in


class Mirror:
    """
    Copies the log `name` of the cluster of `source` to `copy_name` in that of `copy`, by default the same name.
    `fail_back`: a log of that name which takes appends, and has none that the other one lacks, becomes its copy; its
    owner is fenced.  Nothing is done before `begin`.
    """

    def __init__(self, source: Logs, name: str, copy: Logs, copy_name: str = "", *, fail_back: bool = False) -> None:
        self.name = name
        self.copy_name = copy_name or name
        self._source = source
        self._copy = copy
        self._clock = copy.bk.reactor
        self._fail_back = fail_back
        self._owner: Owner | None = None
        self._begin = 0
        self._lag = Lag(self._clock.seconds(), 0)
        self._records = self._bytes = 0
        self._terminated = False
        self._trouble = ""
        self._looks = False
        self._unseen = False  # whether the copy's last record could not be read in the log
        self._closed = False
        self._resigning: list[Deferred[None]] = []  # owners that are done, and give their claims back

    @property
    def progress(self) -> MirrorProgress:
        """How far it is, and by how much the copy is behind."""
        lag, now = self._lag, self._clock.seconds()
        return MirrorProgress(
            self._begin,
            lag.end,
            lag.source_end,
            lag.records,
            int(lag.seconds(now) * 1000),
            int((now - lag.looked_at) * 1000),
            self._records,
            self._bytes,
            self._terminated,
            self._trouble,
        )

    # -- the copy --------------------------------------------------------------------------------------------------

    async def begin(self, wait_s: float | None = None) -> None:
        """
        Makes the copy, with the settings of the log, or takes it up where it ends, and owns it; waits while another
        mirror has it, at most `wait_s` seconds (`NotOwner`).  `MirrorDiverged`: it has records that the log does not
        have there; `LogExists`: it has nothing to do with the log; `LogTrimmed`: the log begins behind its end;
        `LogFenced`: it was promoted meanwhile; `ValueError`, `NoSuchLog`, the errors of owning and reading.
        """
        await self._leave()
        source = await self._source.info(self.name)
        check_can_be_copied(source)
        try:
            copy = await self._copy.info(self.copy_name)
        except NoSuchLog:
            copy = await self._made(source)
        if copy.id == source.id:
            raise ValueError(f"the log {self.name!r} can't be a copy of itself: name two clusters, or another name")
        if copy.mirrored is None or copy.mirrored.log != source.id:
            await self._turn(copy, source)
        owner = await self._copy.own(self.copy_name, use=MIRROR, wait_s=wait_s)
        self._owner = owner
        try:
            await self._check(owner.end.index)
            copy = await self._copy.info(self.copy_name)
            if owner.end.index == copy.begin > 0 and copy.settings.get("dedup"):  # what was trimmed is not copied
                owner.remember(await replayed(await self._source.context(self.name)), copy.begin)
        except BaseException:
            await self._leave()
            raise
        self._begin = copy.begin
        self._lag = Lag(self._clock.seconds(), owner.end.index)
        await self._look()

    async def _origin(self, source: LogInfo, start: int = 0) -> Origin:
        return Origin(await self._source.cluster(), source.id, self.name, self._source.bk.store.uri, start)

    async def _made(self, source: LogInfo) -> LogInfo:
        settings: dict[str, Any] = {k: v for k, v in source.settings.items() if k not in SETTINGS_LEFT_OUT}
        origins = (*Lineage(source.id, source.origins).closed.origins, await self._origin(source))
        begin = Begin(0, source.begin, source.begin_at)
        try:
            return await self._copy.create_copy(self.copy_name, begin, origins, **settings)
        except LogExists:  # another mirror was faster, whose copy is looked at as any that is there
            return await self._copy.info(self.copy_name)

    async def _turn(self, copy: LogInfo, source: LogInfo) -> None:
        """Makes a log that is there a copy, which it was not, or not of this log."""
        name, lineage = self.copy_name, Lineage(copy.id, copy.origins)
        if in_common(lineage, Lineage(source.id, source.origins)) is None:
            raise LogExists(
                f"there is a log {name!r}, which has nothing to do with the one that is to be copied: nothing was "
                "changed; give the copy another name with --name"
            )
        promoted = promoted_at(lineage, Lineage(source.id, source.origins))
        if promoted is not None:  # which a mirror that is merely run again must not undo
            raise LogFenced(
                f"the log {name!r} was a copy of this one until it was promoted, at index {promoted}: nothing was "
                "changed; where that is to count no more, `quire log rename` or `delete` makes room"
            )
        if source.mirrored is not None and source.mirrored.log == copy.id:
            raise ValueError(
                f"the log {self.name!r} is a copy of this very log {name!r}: nothing was changed; promote it first, "
                f"with `quire log mirror {self.name} --promote`, or exchange --from and --to"
            )
        if not self._fail_back:
            raise ValueError(
                f"the log {name!r} is there and takes appends: nothing was changed; --fail-back fences its owner and "
                "makes it a copy, if it has no record that the other log lacks"
            )
        owner = await self._copy.own(name, use=MIRROR if copy.mirrored is not None else "", force=True)
        try:
            end = owner.end.index
            check_copy(lineage, name, end, Lineage(source.id, source.origins))
            await owner.become_copy(await self._origin(source, end))
        finally:
            await owner.close()

    async def _check(self, end: int) -> None:
        """Holds the copy, which ends there, against the log."""
        copy, source = await self._copy.info(self.copy_name), await self._source.info(self.name)
        if copy.mirrored is None or copy.mirrored.log != source.id:
            raise LogFenced(f"the log {self.copy_name!r} is no copy of {self.name!r} any more: begin again")
        check_copy(Lineage(copy.id, copy.origins), self.copy_name, end, Lineage(source.id, source.origins))
        self._check_ends(source, end)
        if end > max(copy.begin, source.begin):
            mine = await record_at(self._copy, self.copy_name, end - 1)
            theirs = await record_at(self._source, self.name, end - 1)
            self._unseen = theirs is None  # as the bookies that answer may not know the end of an open segment yet
            if not self._unseen and mine != theirs:
                raise diverged(self.copy_name, max(copy.begin, source.begin), end)

    def _check_ends(self, source: LogInfo, end: int) -> None:
        if source.end is not None and source.end < end:  # while a segment is open, its records may not be known yet
            raise diverged(self.copy_name, source.end, end)
        if source.begin > end:
            error = LogTrimmed(
                f"records {end} to {source.begin - 1} of the log {self.name!r} were trimmed before they were copied: "
                f"the copy {self.copy_name!r} ends at {end} and can't go on without them; `quire log mirror "
                "--set-aside NEW` keeps it under another name, and begins a copy at the record that is left"
            )
            error.begin = source.begin
            raise error

    async def _leave(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            self._resigning.append(owner.close())
        resigning, self._resigning = self._resigning, []
        for each in resigning:
            await each

    # -- copying ---------------------------------------------------------------------------------------------------

    async def copy_until(self, end: int | None = None) -> int:
        """
        Copies up to that index at least, by default to the end of the log as it is now: where the copy ends then.
        The errors of appending and of reading; the mirror may be begun again after them.
        """
        self._owned()
        if end is None:
            end = await self._look()
        while self._lag.end < end:
            await self._carry(LOOK_S, end)
        return self._lag.end

    async def catch_up(self, seen: Callable[[int, int], object] = lambda _end, _of: None) -> None:
        """
        Copies in rounds, each to the end of the log as it is then, until one is short: so that little is left while
        the log goes over.  `seen` hears after each where the copy is, and how far the log was.
        """
        for _ in range(ROUNDS_MAX):
            begun = self._clock.seconds()
            await self.copy_until()
            seen(self._lag.end, self._lag.source_end)
            if self._clock.seconds() - begun <= NEAR_S:
                return

    async def follow(self, timeout: float | None = None) -> None:
        """
        Copies what is there, and what comes, until nothing came for so many seconds, None: for ever, or the log is
        terminated and copied whole.  Begins again after failures that can pass; the other errors of `begin`.
        """
        looking = Deferred.fromCoroutine(self._keep_looking())
        looking.addErrback(lambda _failure: None)  # cancelled with what follows
        wait_s = AGAIN_S
        try:
            while True:
                before = self._records
                try:
                    if self._owner is None:
                        await self.begin()
                    self._trouble = ""
                    await self._carry(EVER_S if timeout is None else timeout)
                except LedgerError as error:
                    self._trouble = str(error)
                    deposed = self._owner is not None and isinstance(error, LogFenced | NotOwner)
                    await self._leave()
                    if is_final(error) and not deposed:  # why it was deposed, `begin` tells
                        raise
                else:
                    return
                wait_s = AGAIN_S if self._records > before else min(AGAIN_MAX_S, 2 * wait_s)
                await pause(self._clock, wait_s)
        finally:
            looking.cancel()

    async def _carry(self, timeout: float, until: int | None = None) -> None:
        """Copies until nothing came for so many seconds, or at least up to that index; `LogFenced` before that."""
        owner = self._owned()
        reader = await self._source.read(self.name, self._lag.end)

        def stop() -> None:
            """Ends the reading, which would wait for the next record."""
            Deferred.fromCoroutine(reader.close())

        owner.on_lost = stop
        try:
            if not owner.lost:
                await Carrying(owner, self._copied, stop).carry(reader.tail(timeout), until)
        finally:
            owner.on_lost = None
            await reader.close()
        if owner.lost and (until is None or self._lag.end < until):
            raise LogFenced(f"this mirror does not own the copy {self.copy_name!r} any more: another one does")

    def _copied(self, end: int, records: int, size: int) -> None:
        self._lag.copied(end)
        self._records += records
        self._bytes += size

    def _owned(self) -> Owner:
        if self._owner is None:
            raise LogFenced(f"this mirror of the log {self.name!r} does not own the copy: begin it first")
        return self._owner

    async def _look(self) -> int:
        """Where the log ends; `MirrorDiverged`, `LogTrimmed`."""
        asked = self._clock.seconds()
        info = await self._source.info(self.name)
        if info.end is None:
            reader = await self._source.read(self.name, "end")
            end = reader.index
            await reader.close()
        else:
            end = info.end
        self._terminated = info.state == TERMINATED
        if self._unseen:
            await self._check(self._lag.end)
        self._lag.looked(asked, end)
        return end

    async def _keep_looking(self) -> None:
        while True:
            await pause(self._clock, LOOK_S)
            try:
                await self._look()
            except LedgerError:
                continue  # `progress.silent_ms` says for how long; what it means is for who reads to judge

    async def copy_cursors(self) -> int:
        """
        Lets cursors of the copy follow those of the log, of the same names, and makes those that are missing: how many
        have moved.  `LogFenced`: the copy was promoted; the errors of cursors.
        """
        return await copy_cursors(self._source, self.name, self._copy, self.copy_name)

    # -- the way over ----------------------------------------------------------------------------------------------

    async def switch(self, cursors: bool = False) -> int:
        """
        Lets the log go over to its copy: its owner is fenced and it becomes a copy of its copy, the rest is copied, and
        the copy takes appends from the index on that this gives; that of a terminated log takes none.  Ended anywhere,
        it goes on when it is called again; the mirror has to be begun before.  Nobody can append meanwhile: `catch_up`
        first.  `cursors`: those of the copy are brought to the places of the log's before.
        """
        await self.copy_until(await self.fence())
        if cursors and await self._owned().end_segment():
            await self.copy_cursors()
        return await self.hand_over()

    async def fence(self, check: Callable[[Manifest], object] = unchecked, look_up: LookUp | None = None) -> int:
        """
        The first step of `switch`: the log takes no appends any more, for it is a copy of its copy; or has its end: at
        which index.  `check` and `look_up` are given its manifest in that very edit, and may refuse.
        """
        self._owned()
        source, copy = await self._source.info(self.name), await self._copy.info(self.copy_name)
        self._terminated = source.state == TERMINATED
        if self._terminated and source.end is not None:
            end = source.end
        elif source.mirrored is not None and source.mirrored.log == copy.id:
            end = source.mirrored.start
        elif copy.mirrored is None or copy.mirrored.log != source.id:
            raise LogFenced(f"the log {self.copy_name!r} is no copy of {self.name!r} any more: nothing was changed")
        else:
            cluster, uri = await self._copy.cluster(), self._copy.bk.store.uri
            use = "" if source.mirrored is None else MIRROR
            owner = await self._source.own(self.name, use=use, force=True, wait_s=OVERTAKEN_S)
            try:
                end = owner.end.index
                if end < self._lag.end:  # which may not have been known before
                    raise diverged(self.copy_name, end, self._lag.end)
                await owner.become_copy(Origin(cluster, copy.id, self.copy_name, uri, end), check, look_up)
            finally:
                self._resigning.append(owner.close())  # while the rest is copied
        self._lag.looked(self._clock.seconds(), end)
        return end

    async def hand_over(self) -> int:
        """
        The last step of `switch`, once all is copied: the copy takes appends, from the index on that this gives, or has
        its end there as the log has.
        """
        owner = self._owned()
        try:
            promoted = await owner.promote(terminated=self._terminated)
        except LogFenced:
            await self._leave()
            return await promote(self._copy, self.copy_name, terminated=self._terminated)
        return promoted.origins[-1].end or 0

    async def is_switching(self) -> bool:
        """True if the log is a copy of its copy by now: a way over was begun, and did not come to its end."""
        source, copy = await self._source.info(self.name), await self._copy.info(self.copy_name)
        return source.mirrored is not None and source.mirrored.log == copy.id and copy.mirrored is not None

    async def switched(self) -> int | None:
        """
        Tells at which index the log went over to its copy, if it did and has not come back: it can't be begun then,
        for there is nothing left to do.  None also where there is no copy.
        """
        source = await self._source.info(self.name)
        try:
            copy = await self._copy.info(self.copy_name)
        except NoSuchLog:
            return None
        self._terminated = source.state == TERMINATED
        last = copy.origins[-1] if copy.origins else None
        if last is None or last.end is None or last.log != source.id:
            return None
        has_ended = self._terminated and copy.state == TERMINATED and source.end == copy.end == last.end
        is_copy = source.mirrored is not None and source.mirrored.log == copy.id
        return last.end if is_copy or has_ended else None

    async def close(self) -> None:
        """Ends the mirror; the copy stays one."""
        await self._leave()


def check_can_be_copied(source: LogInfo) -> None:
    """`ValueError` for a log that has more than records."""
    count, use = source.settings.get("partitions", 0), source.settings.get("use", "")
    if count:
        raise ValueError(
            f"the log {source.name!r} has {count} partitions and no records of its own: mirror each of the logs "
            f"{source.name}/0 to {source.name}/{count - 1}"
        )
    if use:
        raise ValueError(
            f"the log {source.name!r} is kept by `quire {use}`, which keeps more than records beside it: it can't be "
            "mirrored"
        )


async def record_at(logs: Logs, name: str, index: int) -> Record | None:
    """The record with that index; None where it can't be read now."""
    reader = await logs.read(name, index)
    try:
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                return batch.records()[0]
        return None
    finally:
        await reader.close()


def is_final(error: LedgerError) -> bool:
    """True of what does not pass."""
    passes = not isinstance(error, LogError) or isinstance(error, AppendUnknown | BacklogQuota)
    return isinstance(error, WrongCluster | ClientClosed) or not passes
