"""
The asyncio face of named logs.

    async with connect("sqlite:///var/lib/quire/metadata.db") as logs:
        await logs.create("orders")
        async with await logs.own("orders") as owner:
            at = await owner.append(b"one", key=b"k")
        async with await logs.read("orders") as reader:
            async for record in reader: ...

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: segments, owners, manifests; every decision is made below.
Long: one class has all that a program asks of logs.

A batch hops between threads once: `append_many` as a whole, a reader once per batch of records, and single appends that
arrive together as one.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.client.aio import Client
from quire.client.gathering import Stream, in_batches
from quire.client.loops import Connecting, ReactorThread, each, reactor_thread
from quire.conf.client import ClientOptions, store_named
from quire.conf.log import LogOptions
from quire.log import api
from quire.log.clusters.logs import connect as open_logs
from quire.log.handles.aio import Cursor, LogReader, Owner, Replica, Sink
from quire.log.handles.loops import WatchedLogs
from quire.log.handles.partitions.aio import OpenPartitions
from quire.log.machine.machines import pieces_of

# SPDX-License-Identifier: Apache-2.0


T = TypeVar("T")


def connect(
    uri: str | None = None, options: LogOptions | None = None, client_options: ClientOptions | None = None
) -> "Connecting[Logs]":
    """
    Opens the logs of a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers", "sqlite:///var/lib/quire/x.db"), or
    of all clusters of a directory ("directory+zk://127.0.0.1:2181/ledgers", docs/clusters.md); without one as the
    commands do, by QUIRE_METADATA or the client's configuration file.  Best used with `async with`, which closes them.
    `ValueError` for a URI of no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no
    cluster.
    """
    chosen, given, named = LogOptions.given(options), ClientOptions.given(client_options), store_named(uri)

    async def opened() -> Logs:
        thread = reactor_thread()
        logs = await thread.wait(
            lambda: open_logs(thread.reactor, named, chosen, given), lambda made: Deferred.fromCoroutine(made.close())
        )
        return Logs(thread, logs, given)

    return Connecting(opened)


class Logs(WatchedLogs, OpenPartitions):
    """
    The named logs of a cluster.  Made by `connect`.  `bk` is the ledger client of the same session, `metrics` a
    collector for Prometheus, whose scrapes may come in any thread.
    """

    def __init__(self, thread: ReactorThread, logs: api.Logs, client_options: ClientOptions) -> None:
        super().__init__(thread, logs)
        self.options = logs.options
        self.bk = Client(thread, logs.bk, client_options)
        self.metrics = logs.metrics

    async def create(
        self, name: str, *, begin_at: int = 0, children: Mapping[str, bytes] | None = None, **settings: Any
    ) -> api.LogInfo:
        """
        Creates a log.  `begin_at`: the byte position of its first record; `children`: child records by their names,
        made in the same step, and gone with the log; `settings` as `quire log create --help` lists them, and with
        `partitions` the log is partitioned.  `LogExists`; `ValueError` for a name or settings that can't be.
        """
        return await self._thread.wait(
            lambda: self._logs.create(name, begin_at=begin_at, children=children, **settings)
        )

    async def child(self, name: str, child: str) -> api.Versioned[bytes] | None:
        """
        Reads a child record: its value and version; None where the log was made without one of that name.  `NoSuchLog`,
        `ValueError`.
        """
        return await self._thread.wait(lambda: self._logs.child(name, child))

    async def write_child(self, name: str, child: str, value: bytes, version: int) -> int:
        """
        Replaces a child record whose version this is: the new one.  `RecordChanged`: it has another one by now, perhaps
        by an earlier try of this very write; `MetaStore`: its outcome is unknown.  `ValueError`: the log was made
        without it; `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.write_child(name, child, value, version))

    async def info(self, name: str) -> api.LogInfo:
        """Describes the log as it is now.  `NoSuchLog`."""
        return await self._thread.wait(lambda: self._logs.info(name))

    async def manifest(self, name: str) -> bytes:
        """Reads the record that says what the log consists of, as it is stored: JSON.  `NoSuchLog`."""
        return await self._thread.wait(lambda: self._logs.manifest(name))

    async def holds(self, name: str) -> list[api.Hold]:
        """Lists what keeps the log from being trimmed.  `NoSuchLog`, `LogDamaged`."""
        return await self._thread.wait(lambda: self._logs.holds(name))

    async def snapshots(self, name: str) -> list[api.Snapshot]:
        """Lists the stored snapshots of replicas of the log, oldest first.  `NoSuchLog`."""
        return await self._thread.wait(lambda: self._logs.snapshots(name))

    def segments(self, name: str, index: int = 0) -> AsyncIterator[api.Segment]:
        """Yields the log's segments, from the first that ends behind an index.  `NoSuchLog`, `LogDamaged`."""
        return self._each(lambda: self._logs.segments(name, index))

    def txns(self, name: str) -> AsyncIterator[api.Txn]:
        """Yields what is known of each publisher.  `NoSuchLog`."""
        return self._each(lambda: self._logs.txns(name))

    def unpublished(self, name: str) -> AsyncIterator[api.Unpublished]:
        """Yields what publishers have written and not published, by publisher.  `NoSuchLog`, `LogDamaged`."""
        return self._each(lambda: self._logs.unpublished(name))

    async def janitor(self, name: str, abandon: bool = False) -> api.Tended:
        """
        Does the part of `tidy` that looks after publishers: what can't be published any more goes, what was silent for
        too long is aborted and forgotten.  `abandon`: ledgers whose bookies can't be asked go, too.  `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.janitor(name, abandon))

    def candidates(self, name: str) -> AsyncIterator[api.Candidate]:
        """Yields the owner of the log and the handles that wait for it.  `NoSuchLog`."""
        return self._each(lambda: self._logs.candidates(name))

    def names(self) -> AsyncIterator[str]:
        """Yields the names of all logs, by shard, then by name."""
        return self._each(self._logs.names)

    def _each(self, begin: Callable[[], Stream[T]]) -> AsyncIterator[T]:
        return each(self._thread, lambda: in_batches(begin()))

    async def update(self, name: str, **settings: Any) -> api.LogInfo:
        """
        Changes settings, of a partitioned log those of its partitions, too; those of storage count from the next
        segment on, and a higher `partitions` lets it grow.  `ValueError`, `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.update(name, **settings))

    async def rename(self, name: str, new: str, *, use: str = "") -> api.LogInfo:
        """Gives the log another name.  `NoSuchLog`, `LogExists`; `ValueError`: the log's `use` is another one."""
        return await self._thread.wait(lambda: self._logs.rename(name, new, use=use))

    async def delete(self, name: str, *, use: str = "") -> None:
        """
        Deletes the log, with its partitions; its name is free when this returns.  `NoSuchLog`; `ValueError`: the log's
        `use` is another one, or it is a partition.
        """
        await self._thread.wait(lambda: self._logs.delete(name, use=use))

    async def own(
        self,
        name: str,
        *,
        wait_s: float | None = None,
        force: bool = False,
        priority: int = 0,
        address: str = "",
        before_append: api.Hook | None = None,
        use: str = "",
    ) -> Owner:
        """
        Becomes the log's owner; returns once this handle is.  `wait_s`: `NotOwner` when another one has it after so
        many seconds, `MetaStore` when the store fails to answer then, None: waits on.  `before_append` is called on the
        reactor's thread.  `LogTerminated`, `NoSuchLog`, `NotEnoughBookies`, `SegmentLost`; `ValueError`: the log's
        `use` is another one.
        """
        owner = await self._thread.wait(
            lambda: self._logs.own(
                name,
                wait_s=wait_s,
                force=force,
                priority=priority,
                address=address,
                before_append=before_append,
                use=use,
            ),
            api.Owner.close,
        )
        return Owner(self._thread, owner, self.options, before_append is not None)

    async def replica(
        self,
        name: str,
        make: Callable[[], api.Machine],
        *,
        stand: bool = False,
        address: str = "",
        priority: int = 0,
        use: str = "",
        before_append: api.Hook | None = None,
    ) -> Replica:
        """
        Applies the log to a machine of the user's, on the reactor's thread, so it must not block; returns once it is at
        the log's end.  From then on trims keep what its snapshots need.  `stand`: it also waits to own the log, again
        whenever it lost it; other replicas name its `address` then, and `before_append` is the hook of its appends, on
        the reactor's thread, asked only while it leads: the machine is given what the hook made.  `NoSuchLog`,
        `SnapshotDamaged`, `ApplyFailed`, `SegmentLost`, `LogDamaged`; `LogError` when `make` raises or gives no
        machine; `ValueError`: the log's `use` is another one.
        """
        replica = await self._thread.wait(
            lambda: self._logs.replica(
                name,
                make,
                stand=stand,
                address=address,
                priority=priority,
                use=use,
                before_append=before_append,
            ),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Replica(self._thread, replica)

    async def save_snapshot(
        self, name: str, index: int, pieces: Iterable[bytes], machine: str, *, use: str = ""
    ) -> int:
        """
        Writes the state of a machine that has applied all below `index`, as its replicas load it, without a replica:
        the index of the newest snapshot then.  `machine`: the name of what saved it.  `ValueError` for an index that
        the log does not have, and another `use`; `NoSuchLog`, the errors of writing a ledger.
        """
        taken = list(pieces_of(pieces, "a snapshot is"))
        return await self._thread.wait(lambda: self._logs.save_snapshot(name, index, taken, machine, use=use))

    async def read(
        self,
        name: str,
        start: api.Start = "begin",
        *,
        compacted: bool = False,
        on_trim: api.OrSkip = "raise",
        on_loss: api.OrSkip = "raise",
    ) -> LogReader:
        """
        Opens a reader that begins at an index, at "begin" or "end", or at the first record whose stamp is not below a
        `datetime`, which has to know its zone.  `compacted`: what the last compaction left, then the log behind it.
        `NoSuchLog`, `ValueError`.
        """
        reader = await self._thread.wait(
            lambda: self._logs.read(name, start, compacted=compacted, on_trim=on_trim, on_loss=on_loss)
        )
        return LogReader(self._thread, reader)

    async def seek(self, name: str, time_ms: int) -> api.Seek:
        """
        Finds (index, trimmed): the first record whose stamp is not below a time in ms since 1970, or the end; and if
        there may have been an earlier one.  `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.seek(name, time_ms))

    async def find(self, name: str, position: int) -> api.Found:
        """
        Finds (index, position): the record that holds a byte of the log; the one behind, where a skip holds it; the
        end.  `NoSuchLog`, `LogTrimmed`, `SegmentLost`.
        """
        return await self._thread.wait(lambda: self._logs.find(name, position))

    async def entries(self, name: str, places: Iterable[api.Place]) -> list[api.LogBatch]:
        """
        Reads the whole batches at these places, as `LogReader.entries`, which asks the store for less while it is open.
        `NoSuchLog`, the errors of reading.
        """
        taken = list(places)
        return await self._thread.wait(lambda: self._logs.entries(name, taken))

    async def cursor(self, name: str, cursor: str, *, start: api.Start = "end", create: bool = True) -> Cursor:
        """
        Opens a durable cursor, held by this handle from now on; the handle that held it before is fenced.  One that is
        not there is made at `start`, as a reader begins there, or with `create` False is `NoSuchCursor`.  `LogTrimmed`
        for a start below the first record, `LogFull`, `NoSuchLog`, `ValueError`.
        """
        opened = await self._thread.wait(
            lambda: self._logs.cursor(name, cursor, start=start, create=create),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Cursor(self._thread, opened)

    def cursors(self, name: str) -> AsyncIterator[api.CursorInfo]:
        """Yields what there is to say about each cursor, by name.  `NoSuchLog`, the errors of reading."""
        return self._each(lambda: self._logs.cursors(name))

    async def delete_cursor(self, name: str, cursor: str) -> None:
        """
        Deletes a cursor: its name is free when this returns, and the handle that holds it is fenced.  `NoSuchCursor`,
        `NoSuchLog`.
        """
        await self._thread.wait(lambda: self._logs.delete_cursor(name, cursor))

    async def sink(self, name: str, txn: str, run: str, *, first_batch: int | None = None, use: str = "") -> Sink:
        """Opens a publisher of closed ledgers, exactly once by (txn, batch).  `NoSuchLog`, `ValueError`."""
        sink = await self._thread.wait(lambda: self._logs.sink(name, txn, run, first_batch=first_batch, use=use))
        return Sink(self._thread, sink)

    async def adopt(self, name: str, ledgers: Iterable[int], *, use: str = "") -> api.Receipt:
        """
        Makes closed plain ledgers, at most 1,000, segments in that order, each of their entries a record; their
        deletion is the log's from then on.  `PublishRefused` names the ledger; `LogTerminated`, `NoSuchLog`,
        `ValueError`; `MetaStore`: unknown, called again it gives the receipt of the first time.
        """
        taken = list(ledgers)
        return await self._thread.wait(lambda: self._logs.adopt(name, taken, use=use))

    def check(self, name: str) -> AsyncIterator[api.Finding]:
        """
        Yields what does not hold of the log: its segments, and of each that its ledger is there and holds what it says.
        """
        return self._each(lambda: self._logs.check(name))

    async def purge(self, instance_id: str) -> None:
        """
        Removes the logs of a former cluster of that id at this address; their ledgers are gone with it.  `WrongCluster`
        when those here are of another one, or of the present one.
        """
        await self._thread.wait(lambda: self._logs.purge(instance_id))

    async def trim(self, name: str, before: int) -> int:
        """
        Lets the log begin at index `before`, or where its open segment begins: at which.  What is before goes.
        `ValueError` names what needs the log from a lower index on; `LogFull`, `NoSuchLog`.
        """
        return await self._thread.wait(lambda: self._logs.trim(name, before))

    async def compact(self, name: str) -> api.Compacted | None:
        """
        Writes the newest record of each key in the closed segments to ledgers of their own; None: nothing was closed
        since the last time, or another one is at it.  `ValueError` unless `compaction` is on; `NoSuchLog`,
        `SegmentLost`, `MetaStore`, the errors of ledgers.
        """
        return await self._thread.wait(lambda: self._logs.compact(name))

    async def terminate(self, name: str, *, use: str = "") -> api.Position:
        """
        Ends the log for good, whoever owns it: it takes nothing more.  Its end.  `NoSuchLog`, `SegmentLost`;
        `ValueError`: the log's `use` is another one.
        """
        return await self._thread.wait(lambda: self._logs.terminate(name, use=use))

    async def truncate(self, name: str, *, use: str = "") -> int:
        """
        Removes all records; the log goes on with the same index: which.  Cursors move there.  `ValueError` names what
        else needs records, or another `use`; `NoSuchLog`, `SegmentLost`.
        """
        return await self._thread.wait(lambda: self._logs.truncate(name, use=use))

    async def give_up(self, name: str, segment: int, records: int | None = None) -> range:
        """
        Goes on without a segment whose ledger is gone: the indexes that are lost.  `records`: of one that was open, by
        default 2^32.  `ValueError` when the ledger is there, `SegmentLost` when the segment is gone.
        """
        return await self._thread.wait(lambda: self._logs.give_up(name, segment, records))

    async def merge(
        self,
        name: str,
        *,
        to_bytes: int | None = None,
        run_min: int = api.RUN_MIN,
        at_once: int = api.AT_ONCE,
        rate: int = -1,
        dry_run: bool = False,
    ) -> api.Merging:
        """
        Makes one segment each of runs of at least `run_min` small closed ones, of about `to_bytes` (by default
        `merge_bytes`, else `roll_bytes` of the log), with the same records at the same indexes; `at_once` runs at a
        time, `rate` bytes a second at most.  Of a partitioned log those of each partition.  `dry_run`: only plans.
        `LogError`: another process is at it; `ValueError` for such a limit and for a log with a `use`; `NoSuchLog`,
        `LogFull`, `MetaStore`, the errors of ledgers.
        """
        return await self._thread.wait(
            lambda: self._logs.merge(
                name, to_bytes=to_bytes, run_min=run_min, at_once=at_once, rate=rate, dry_run=dry_run
            )
        )

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
        "deleted"; with that its ledger goes, and readers use `LogOptions.openers`.  `ledger`: the one that was copied,
        which a segment that was merged has to be named with.  `PublishRefused` when the mark is not `expected`,
        `SegmentLost` when the segment is gone or another ledger, `ValueError`.
        """
        await self._thread.wait(lambda: self._logs.mark(name, segment, value, expected, ledger))

    async def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> api.TidyReport:
        """
        Does a round of upkeep, of all logs and what is left of deleted ones without a name.  `dry_run`: only says which
        doomed ledgers and deleted logs would go.  `abandon`: ledgers whose bookies can't be asked go, too.
        """
        return await self._thread.wait(lambda: self._logs.tidy(name, dry_run, abandon))

    def orphans(
        self, delete: bool = False, *, really: bool = False, grace_s: float = api.GRACE_S
    ) -> AsyncIterator[api.Orphan]:
        """
        Yields the ledgers that were made for logs and that none names.  `delete`: those older than `grace_s` are
        deleted.  `LogError` when more than 10,000, or a fifth of all, would be deleted and it is not `really` wanted.
        """
        return self._each(lambda: self._logs.orphans(delete, really=really, grace_s=grace_s))

    async def close(self) -> None:
        """Ends every handle: owners store what was appended and resign."""
        await super().close()
