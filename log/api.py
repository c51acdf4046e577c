"""
Named logs for Twisted programs.

Knows: which handles are open, how the parts are put together.
Does not know: what any of them does.
"""

import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

from twisted.internet.defer import CancelledError

from quire.client.api import connect as connect_client
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.checks import Checking, Finding, SegmentLedgers, segments_of
from quire.log.core.batch import Headers, unpack_headers
from quire.log.core.machine.applying_messages import Role
from quire.log.core.manifest import MIRROR
from quire.log.core.merging import RUN_MIN, Run
from quire.log.core.packed import Packed
from quire.log.core.partitions import partition_name
from quire.log.core.publishing import Part, Txn
from quire.log.core.streams.rates import ReadRates
from quire.log.core.upkeep_edits import Update
from quire.log.core.values import Compacted, Segment, Snapshot
from quire.log.machine.driver import ReplicaDriver
from quire.log.machine.machines import Answer, Machine, pieces_of
from quire.log.machine.replica import Replica
from quire.log.machine.snapshots import SnapshotWriter
from quire.log.machine.standing import while_leading
from quire.log.owner.appending.appends import Appended, Position
from quire.log.owner.appending.encoder import Hook, Prepared
from quire.log.owner.claims import Candidacy, Candidate, check_candidate
from quire.log.owner.lease import check_lease
from quire.log.owner.timers import name_log_in_errors
from quire.log.partitions.cursor import PartitionedCursor
from quire.log.partitions.following import PartitionHandles, Whole
from quire.log.partitions.owner import PartitionedOwner, Placed, Spread, Standing
from quire.log.partitions.reader import PartitionBatch, PartitionedReader, PartitionRecord
from quire.log.publish.adopting import Adopting, PlainLedgers
from quire.log.publish.forgetting import Tended, Unpublished
from quire.log.publish.parts import PartWriter
from quire.log.publish.settling import Receipt
from quire.log.publish.sink import Sink
from quire.log.reader.batches import LogBatch, Piece, Place, Record, Span
from quire.log.reader.reader import LogReader
from quire.log.reader.view import OrSkip
from quire.log.reader.views import Found, Seek, Start, follow
from quire.log.store.holds import Hold
from quire.log.streams.cursor import Backlog, Cursor
from quire.log.streams.cursors import CursorInfo, close_all
from quire.log.upkeep.keeping import KeptOwner as Owner
from quire.log.upkeep.known_logs import LogInfo, info_of
from quire.log.upkeep.merging import AT_ONCE, Merged, Merging
from quire.log.upkeep.orphans import GRACE_S, Orphan
from quire.log.upkeep.partitioned import PartitionedLogs
from quire.log.upkeep.tidying import TidyReport
from quire.metadata.store import Versioned, Watch

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "AT_ONCE",
    "GRACE_S",
    "RUN_MIN",
    "Answer",
    "Appended",
    "Backlog",
    "Candidate",
    "Compacted",
    "Cursor",
    "CursorInfo",
    "Finding",
    "Found",
    "Headers",
    "Hold",
    "Hook",
    "LogBatch",
    "LogInfo",
    "LogReader",
    "Logs",
    "Machine",
    "Merged",
    "Merging",
    "OrSkip",
    "Orphan",
    "Owner",
    "Packed",
    "Part",
    "PartWriter",
    "PartitionBatch",
    "PartitionRecord",
    "PartitionStart",
    "PartitionedCursor",
    "PartitionedOwner",
    "PartitionedReader",
    "Piece",
    "Place",
    "Placed",
    "Position",
    "Prepared",
    "ReadRates",
    "Receipt",
    "Record",
    "Replica",
    "Role",
    "Run",
    "Seek",
    "Segment",
    "Sink",
    "Snapshot",
    "Span",
    "Spread",
    "Start",
    "Tended",
    "TidyReport",
    "Txn",
    "Unpublished",
    "Versioned",
    "connect",
    "unpack_headers",
]


P = TypeVar("P", bound=PartitionHandles[Any])
PartitionStart = Mapping[int, Start] | datetime | Literal["begin", "end"]


class Logs(PartitionedLogs):
    """The named logs of a cluster."""

    @cached_property
    def _replicas(self) -> dict[Replica, None]:
        """The open replicas, in the order in which they were asked for."""
        return {}

    @cached_property
    def _wholes(self) -> dict[PartitionHandles[Any], None]:
        """The open handles of partitioned logs."""
        return {}

    async def own(
        self,
        name: str,
        *,
        wait_s: float | None = None,
        force: bool = False,
        priority: int = 0,
        address: str = "",
        before_append: Hook | None = None,
        use: str = "",
    ) -> Owner:
        """
        The log's owner, once this handle is.  `wait_s`: `NotOwner` when others have had the claim for so long,
        `MetaStore` when the store fails to answer after it, None: waits on.  `LogFenced` when another took over before
        that; `LogTerminated`, `NoSuchLog`, `NotEnoughBookies`, `SegmentLost`; `ValueError` when `lease_ms` is more than
        half of the session's time-out, `priority` has more than 64 bits, or the log's `use` is another one.
        """
        check_candidate(address, priority)
        with name_log_in_errors(name):
            context = await self._context_for(name, use)
            candidacy = Candidacy(address, socket.gethostname(), priority, use == MIRROR)
            owner = Owner(context, candidacy, before_append, lambda: self._owners.pop(owner, None))
            self._owners[owner] = None
            try:
                await owner.start(force, wait_s)
            except CancelledError:  # no caller is left who would close it
                owner.close()
                raise
            return owner

    async def replica(
        self,
        name: str,
        make: Callable[[], Machine],
        *,
        stand: bool = False,
        address: str = "",
        priority: int = 0,
        use: str = "",
        before_append: Hook | None = None,
    ) -> Replica:
        """
        A machine of the user's to which the log is applied, once it is near the log's end; from then on trims keep what
        its snapshots need.  `stand`: it also waits to own the log, again whenever it lost it; `address` is what others
        are told then, and `before_append` the hook of each of its owners, which is asked only where the replica leads:
        the machine is given what the hook made.
        `NoSuchLog`, `SnapshotDamaged`, `ApplyFailed`, `SegmentLost`, `LogDamaged`; `LogError` when `make` raises or
        gives no machine; `ValueError` for another use, and where it stands as for `own`.
        """
        check_candidate(address, priority)
        if not callable(make):
            raise TypeError(f"a replica is given what makes its machine, a class or a function, not {make!r}")
        context = await self._context_for(name, use)
        settings = (await context.log.read()).value.settings
        if stand:
            check_lease(name, settings.get("lease_ms", 0), self.bk.options.session_timeout_ms)
        if not settings.get("needs_snapshot"):
            await context.log.edit(Update({"needs_snapshot": True}))
        view = self._views.take(context.log)

        def closed(replica: Replica) -> None:
            self._replicas.pop(replica, None)
            self._views.give_back(view)

        hook = before_append and while_leading(before_append, name, lambda: replica.role is Role.LEADING)
        own = partial(self.own, name, address=address, priority=priority, before_append=hook, use=use)
        replica = Replica(ReplicaDriver(context, name, view, make, own if stand else None), closed)
        self._replicas[replica] = None
        try:
            await replica.begin()
        except BaseException:
            await replica.close()
            raise
        return replica

    async def save_snapshot(
        self, name: str, index: int, pieces: Iterable[bytes], machine: str, *, use: str = ""
    ) -> int:
        """
        Writes the state of a machine that has applied all below `index`, as its replicas load it, without a replica:
        the index of the newest snapshot then.  `machine`: the name of what saved it.  `ValueError` for an index that
        the log does not have, and another use; `NoSuchLog`, the errors of writing a ledger.
        """
        data = pieces_of(pieces, "a snapshot is")
        context = await self._context_for(name, use)
        end = await self._views.index(context.log, "end")
        manifest = (await context.log.read()).value
        if not manifest.begin.index <= index <= end:
            raise ValueError(
                f"the log {name!r} has records from index {manifest.begin.index} to before {end}: there can be no "
                f"snapshot of what is below index {index}"
            )
        return await SnapshotWriter(context).write(data, index, manifest.epoch, machine)

    async def read(
        self,
        name: str,
        start: Start = "begin",
        *,
        compacted: bool = False,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
    ) -> LogReader:
        """
        A reader from an index on, from "begin" or "end", or from the first record whose stamp is not below a
        `datetime`, which has to know its zone; an index is an int always.  `compacted`: what the last compaction left,
        then the log behind it.  `NoSuchLog`, `ValueError`.
        """
        return await self._views.read(await self._open(name), start, on_trim, on_loss, compacted)

    async def own_partitions(
        self,
        name: str,
        partitions: Iterable[int] | None = None,
        *,
        stand: bool = False,
        wait_s: float | None = None,
        force: bool = False,
        priority: int = 0,
        address: str = "",
    ) -> PartitionedOwner:
        """
        The owner of these partitions of a log, by default of all, also of those that come, once this handle owns them.
        `stand`: it also waits for the others, and for those that it loses, and gives those that it did not choose back
        to a handle that chose them; where it chose none, it returns within a second and shares them evenly with the
        others that stand, each with an address of its own.  The other parameters, and errors, are those of `own`.
        """
        check_candidate(address, priority)
        if stand and not address:  # by which others tell it from those that stand beside it
            address = f"{socket.gethostname()}/{self.bk.random.getrandbits(32):08x}"

        def own(part: str, own_priority: int, first: bool) -> Coroutine[Any, Any, Owner]:
            own_wait_s = wait_s if first else None
            return self.own(part, wait_s=own_wait_s, force=force and first, priority=own_priority, address=address)

        standing = Standing(own, self.candidates, priority, stand, address)
        return await self._begun(PartitionedOwner(await self._whole(name), partitions, standing))

    async def read_partitions(
        self,
        name: str,
        start: PartitionStart = "begin",
        *,
        partitions: Iterable[int] | None = None,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
    ) -> PartitionedReader:
        """
        A reader of these partitions of a log, by default of all, also of those that come.  `start`: as for `read`, or
        an index for each partition, and those without begin at their begin.  The errors of `read`.
        """
        if isinstance(start, int):
            raise ValueError("partitions have indexes of their own: give a start for each, as {0: 17, 1: 4}")

        async def opened(number: int, is_new: bool) -> LogReader:
            own = start.get(number, "begin") if isinstance(start, Mapping) else start
            part = partition_name(name, number)
            return await self.read(part, "begin" if is_new else own, on_trim=on_trim, on_loss=on_loss)

        return await self._begun(PartitionedReader(await self._whole(name), partitions, opened))

    async def partition_cursor(
        self,
        name: str,
        cursor: str,
        *,
        start: Start = "end",
        create: bool = True,
        partitions: Iterable[int] | None = None,
    ) -> PartitionedCursor:
        """
        A durable cursor of one name in these partitions of a log, by default in all, also in those that come, held by
        this handle; who held it there before is fenced.  The other parameters, and errors, are those of `cursor`.
        """
        if isinstance(start, int):
            raise ValueError("partitions have indexes of their own: a cursor over them begins at a time, begin or end")

        async def opened(number: int, is_new: bool) -> Cursor:
            part = partition_name(name, number)
            return await self.cursor(part, cursor, start="begin" if is_new else start, create=create or is_new)

        return await self._begun(PartitionedCursor(await self._whole(name), partitions, opened, cursor))

    async def _whole(self, name: str) -> Whole:
        """A partitioned log; `ValueError` for another one."""
        count = len(await self._make_missing(name))
        if not count:
            raise ValueError(
                f"the log {name!r} has no partitions: `own`, `read` and `cursor` are for it; `quire log create NAME "
                "--partitions N` makes one with partitions"
            )
        return Whole(name, count, self.bk.reactor, self.watch, lambda handle: self._wholes.pop(handle, None))

    async def _begun(self, handle: P) -> P:
        self._wholes[handle] = None
        await handle.begin()
        return handle

    async def seek(self, name: str, time_ms: int) -> Seek:
        """
        (index, trimmed): the first record whose stamp is not below a time in ms since 1970, or the end; whether there
        may have been an earlier one.  `NoSuchLog`.
        """
        return await self._views.seek(await self._open(name), time_ms)

    async def find(self, name: str, position: int) -> Found:
        """
        (index, position): the record that holds a byte of the log; the one behind, where a skip holds it; the end.
        `NoSuchLog`, `LogTrimmed`, `SegmentLost`.
        """
        return await self._views.find(await self._open(name), position)

    async def entries(self, name: str, places: Iterable[Place]) -> list[LogBatch]:
        """
        The whole batches at these places, as `LogReader.entries`, which asks the store for less while it is open.
        `NoSuchLog`, the errors of reading.
        """
        reader = await self.read(name)
        try:
            return await reader.entries(places)
        finally:
            await reader.close()

    async def sink(self, name: str, txn: str, run: str, *, first_batch: int | None = None, use: str = "") -> Sink:
        """A publisher of closed ledgers, exactly once by (txn, batch).  `NoSuchLog`, `ValueError`."""
        context = await self._context_for(name, use)
        return Sink(context, txn, run, first_batch, partial(self._rounds.after, context))

    async def adopt(self, name: str, ledgers: Sequence[int], *, use: str = "") -> Receipt:
        """
        Closed plain ledgers, at most 1,000, become segments in that order, each of their entries a record; their
        deletion is the log's from then on.  `PublishRefused` names the ledger; `LogTerminated`, `NoSuchLog`,
        `ValueError`; `MetaStore`: unknown, called again it gives the receipt of the first time.
        """
        context = await self._context_for(name, use)
        plain = PlainLedgers(self.bk, self._records, ledgers)
        return await Adopting(context, plain, partial(self._rounds.after, context)).run()

    async def cursor(self, name: str, cursor: str, *, start: Start = "end", create: bool = True) -> Cursor:
        """
        A durable cursor, held by this handle from now on; who held it before is fenced.  One that is not there is made
        at `start`, as a reader begins there, or with `create` False is `NoSuchCursor`.  `LogTrimmed` for a start below
        the first record, `LogFull`, `NoSuchLog`, `ValueError`.
        """
        return await self._cursors.open(await self._context(name), cursor, start, create)

    async def carried_cursor(self, name: str, cursor: str, token: str) -> Cursor:
        """
        A cursor that came here with its log, for a handle that held it where that was, and has this token for it in all
        clusters.  `LogFenced` once another one has opened it here; `NoSuchCursor`, `NoSuchLog`.
        """
        return await self._cursors.open(await self._context(name), cursor, "end", False, token)

    async def cursors(self, name: str) -> AsyncGenerator[CursorInfo, None]:
        """Describes each cursor, by name.  `NoSuchLog`, the errors of reading."""
        async for info in self._cursors.infos(await self._context_with_records(name)):
            yield info

    async def segments(self, name: str, index: int = 0) -> AsyncGenerator[Segment, None]:
        """In order, from the first that the log still has and that ends behind an index.  `NoSuchLog`, `LogDamaged`."""
        async for some in segments_of(await self._open(name), index):
            for segment in some:
                yield segment

    async def check(self, name: str) -> AsyncGenerator[Finding, None]:
        """
        Finds what is wrong with the log: its segments, and of each that its ledger is there and holds what it says.
        """
        log = await self._open(name)
        ledgers = SegmentLedgers(self.bk, self._records, self._ledgers, log.log)
        async for finding in Checking(log, ledgers).run():
            yield finding

    def watch(self, name: str, fn: Callable[[LogInfo | None], object]) -> Watch:
        """Calls `fn` now and after changes, not after each; None while there is no such log."""
        return follow(self._records, name, lambda found: fn(None if found is None else info_of(found)))

    async def close(self) -> None:
        """Ends every handle: owners store what was appended and resign."""
        self._closed = True
        try:
            await close_all(self._wholes)
            await self._cursors.close()
            await close_all(self._replicas)
            await self._views.close()
            await close_all(self._owners)
        finally:
            if self._owns_client:
                await self.bk.close()


async def connect(
    reactor: Any, uri: str | None = None, options: LogOptions | None = None, client_options: ClientOptions | None = None
) -> Logs:
    """Opens the cluster at `uri`.  The errors of `quire.client.api.connect`."""
    chosen = LogOptions.given(options)
    return Logs(await connect_client(reactor, uri, client_options), chosen, owns_client=True)
