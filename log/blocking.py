# Made from log/aio.py by `make manual`: edit that file, not this one.
"""
The blocking face of named logs.

    with connect("sqlite:///var/lib/quire/metadata.db") as logs:
        logs.create("orders")
        with logs.own("orders") as owner:
            at = owner.append(b"one", key=b"k")
        with logs.read("orders") as reader:
            for record in reader: ...

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: segments, owners, manifests; every decision is made below.
Long: one class has all that a program asks of logs.

A batch hops between threads once: `append_many` as a whole, a reader once per batch of records, and single appends that
arrive together as one.

Handles may be used from several threads at a time.  An interrupt while a call waits cancels its operation; an append
that was sent stays sent.  A call on the reactor's own thread, or in a forked child, raises `RuntimeError` instead of
waiting for ever.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.client.blocking import Client
from quire.client.gathering import Stream, in_batches
from quire.client.threads import ReactorThread, documented, each, reactor_thread
from quire.conf.client import ClientOptions, store_named
from quire.conf.log import LogOptions
from quire.log import aio, api
from quire.log.clusters.logs import connect as open_logs
from quire.log.handles.blocking import Cursor, LogReader, Owner, Replica, Sink
from quire.log.handles.partitions.blocking import OpenPartitions
from quire.log.handles.threads import WatchedLogs
from quire.log.machine.machines import pieces_of

# SPDX-License-Identifier: Apache-2.0


T = TypeVar("T")


def connect(
    uri: str | None = None, options: LogOptions | None = None, client_options: ClientOptions | None = None
) -> "Logs":
    """
    Opens the logs of a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers", "sqlite:///var/lib/quire/x.db"), or
    of all clusters of a directory ("directory+zk://127.0.0.1:2181/ledgers", docs/clusters.md); without one as the
    commands do, by QUIRE_METADATA or the client's configuration file.  Best used with `with`, which closes them.
    `ValueError` for a URI of no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no
    cluster.
    """
    chosen, given, named = LogOptions.given(options), ClientOptions.given(client_options), store_named(uri)

    def opened() -> Logs:
        thread = reactor_thread()
        logs = thread.wait(
            lambda: open_logs(thread.reactor, named, chosen, given), lambda made: Deferred.fromCoroutine(made.close())
        )
        return Logs(thread, logs, given)

    return opened()


@documented(aio.Logs)
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

    def create(
        self, name: str, *, begin_at: int = 0, children: Mapping[str, bytes] | None = None, **settings: Any
    ) -> api.LogInfo:
        return self._thread.wait(lambda: self._logs.create(name, begin_at=begin_at, children=children, **settings))

    def child(self, name: str, child: str) -> api.Versioned[bytes] | None:
        return self._thread.wait(lambda: self._logs.child(name, child))

    def write_child(self, name: str, child: str, value: bytes, version: int) -> int:
        return self._thread.wait(lambda: self._logs.write_child(name, child, value, version))

    def info(self, name: str) -> api.LogInfo:
        return self._thread.wait(lambda: self._logs.info(name))

    def manifest(self, name: str) -> bytes:
        return self._thread.wait(lambda: self._logs.manifest(name))

    def holds(self, name: str) -> list[api.Hold]:
        return self._thread.wait(lambda: self._logs.holds(name))

    def snapshots(self, name: str) -> list[api.Snapshot]:
        return self._thread.wait(lambda: self._logs.snapshots(name))

    def segments(self, name: str, index: int = 0) -> Iterator[api.Segment]:
        return self._each(lambda: self._logs.segments(name, index))

    def txns(self, name: str) -> Iterator[api.Txn]:
        return self._each(lambda: self._logs.txns(name))

    def unpublished(self, name: str) -> Iterator[api.Unpublished]:
        return self._each(lambda: self._logs.unpublished(name))

    def janitor(self, name: str, abandon: bool = False) -> api.Tended:
        return self._thread.wait(lambda: self._logs.janitor(name, abandon))

    def candidates(self, name: str) -> Iterator[api.Candidate]:
        return self._each(lambda: self._logs.candidates(name))

    def names(self) -> Iterator[str]:
        return self._each(self._logs.names)

    def _each(self, begin: Callable[[], Stream[T]]) -> Iterator[T]:
        return each(self._thread, lambda: in_batches(begin()))

    def update(self, name: str, **settings: Any) -> api.LogInfo:
        return self._thread.wait(lambda: self._logs.update(name, **settings))

    def rename(self, name: str, new: str, *, use: str = "") -> api.LogInfo:
        return self._thread.wait(lambda: self._logs.rename(name, new, use=use))

    def delete(self, name: str, *, use: str = "") -> None:
        self._thread.wait(lambda: self._logs.delete(name, use=use))

    def own(
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
        owner = self._thread.wait(
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

    def replica(
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
        replica = self._thread.wait(
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

    def save_snapshot(self, name: str, index: int, pieces: Iterable[bytes], machine: str, *, use: str = "") -> int:
        taken = list(pieces_of(pieces, "a snapshot is"))
        return self._thread.wait(lambda: self._logs.save_snapshot(name, index, taken, machine, use=use))

    def read(
        self,
        name: str,
        start: api.Start = "begin",
        *,
        compacted: bool = False,
        on_trim: api.OrSkip = "raise",
        on_loss: api.OrSkip = "raise",
    ) -> LogReader:
        reader = self._thread.wait(
            lambda: self._logs.read(name, start, compacted=compacted, on_trim=on_trim, on_loss=on_loss)
        )
        return LogReader(self._thread, reader)

    def seek(self, name: str, time_ms: int) -> api.Seek:
        return self._thread.wait(lambda: self._logs.seek(name, time_ms))

    def find(self, name: str, position: int) -> api.Found:
        return self._thread.wait(lambda: self._logs.find(name, position))

    def entries(self, name: str, places: Iterable[api.Place]) -> list[api.LogBatch]:
        taken = list(places)
        return self._thread.wait(lambda: self._logs.entries(name, taken))

    def cursor(self, name: str, cursor: str, *, start: api.Start = "end", create: bool = True) -> Cursor:
        opened = self._thread.wait(
            lambda: self._logs.cursor(name, cursor, start=start, create=create),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Cursor(self._thread, opened)

    def cursors(self, name: str) -> Iterator[api.CursorInfo]:
        return self._each(lambda: self._logs.cursors(name))

    def delete_cursor(self, name: str, cursor: str) -> None:
        self._thread.wait(lambda: self._logs.delete_cursor(name, cursor))

    def sink(self, name: str, txn: str, run: str, *, first_batch: int | None = None, use: str = "") -> Sink:
        sink = self._thread.wait(lambda: self._logs.sink(name, txn, run, first_batch=first_batch, use=use))
        return Sink(self._thread, sink)

    def adopt(self, name: str, ledgers: Iterable[int], *, use: str = "") -> api.Receipt:
        taken = list(ledgers)
        return self._thread.wait(lambda: self._logs.adopt(name, taken, use=use))

    def check(self, name: str) -> Iterator[api.Finding]:
        return self._each(lambda: self._logs.check(name))

    def purge(self, instance_id: str) -> None:
        self._thread.wait(lambda: self._logs.purge(instance_id))

    def trim(self, name: str, before: int) -> int:
        return self._thread.wait(lambda: self._logs.trim(name, before))

    def compact(self, name: str) -> api.Compacted | None:
        return self._thread.wait(lambda: self._logs.compact(name))

    def terminate(self, name: str, *, use: str = "") -> api.Position:
        return self._thread.wait(lambda: self._logs.terminate(name, use=use))

    def truncate(self, name: str, *, use: str = "") -> int:
        return self._thread.wait(lambda: self._logs.truncate(name, use=use))

    def give_up(self, name: str, segment: int, records: int | None = None) -> range:
        return self._thread.wait(lambda: self._logs.give_up(name, segment, records))

    def merge(
        self,
        name: str,
        *,
        to_bytes: int | None = None,
        run_min: int = api.RUN_MIN,
        at_once: int = api.AT_ONCE,
        rate: int = -1,
        dry_run: bool = False,
    ) -> api.Merging:
        return self._thread.wait(
            lambda: self._logs.merge(
                name, to_bytes=to_bytes, run_min=run_min, at_once=at_once, rate=rate, dry_run=dry_run
            )
        )

    def mark(
        self,
        name: str,
        segment: int,
        value: Mapping[str, Any] | None,
        expected: Mapping[str, Any] | None,
        ledger: int | None = None,
    ) -> None:
        self._thread.wait(lambda: self._logs.mark(name, segment, value, expected, ledger))

    def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> api.TidyReport:
        return self._thread.wait(lambda: self._logs.tidy(name, dry_run, abandon))

    def orphans(
        self, delete: bool = False, *, really: bool = False, grace_s: float = api.GRACE_S
    ) -> Iterator[api.Orphan]:
        return self._each(lambda: self._logs.orphans(delete, really=really, grace_s=grace_s))

    def close(self) -> None:
        super().close()
