"""
The asyncio face: the same names as the blocking one with `async with`, `await` and `async for`.

    async with connect("sqlite:///var/lib/quire/metadata.db") as logs:
        await logs.create("orders")
        async with await logs.own("orders") as owner:
            at = await owner.append(b"one", key=b"k")
        async with await logs.read("orders") as reader:
            async for record in reader: ...

Knows: how to carry results from the reactor's thread to an asyncio loop, once per batch.
Does not know: segments, owners, manifests; every decision is made below (`api`).

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.client.aio import Client, Handle
from quire.client.background import ReactorThread, reactor_thread
from quire.client.gathering import in_batches
from quire.client.loops import Watches, end, pulled, wait, watched
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.api import (
    GRACE_S,
    Candidate,
    Compacted,
    CursorInfo,
    Finding,
    Found,
    Hold,
    Hook,
    LogInfo,
    Machine,
    Orphan,
    OrSkip,
    Position,
    Receipt,
    Seek,
    Segment,
    Snapshot,
    Start,
    Tended,
    TidyReport,
    Txn,
    Unpublished,
)
from quire.log.api import Logs as CoreLogs
from quire.log.api import Owner as CoreOwner
from quire.log.api import connect as open_logs
from quire.log.handles.aio import Cursor, LogReader, Owner, Replica, Sink

# SPDX-License-Identifier: Apache-2.0


T = TypeVar("T")


class Connecting:
    """What `connect` answers: `async with` it, or `await` it and close the logs yourself."""

    def __init__(self, uri: str, options: LogOptions | None, client_options: ClientOptions | None) -> None:
        self._uri = uri
        self._options = LogOptions.given(options)
        self._client_options = ClientOptions.given(client_options)
        self._logs: Logs | None = None

    def __await__(self) -> Generator[object, None, "Logs"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "Logs":
        self._logs = await self._connect()
        return self._logs

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._logs is not None:
            await self._logs.__aexit__(kind, error, trace)

    async def _connect(self) -> "Logs":
        thread = reactor_thread()
        logs = await wait(
            thread,
            lambda: open_logs(thread.reactor, self._uri, self._options, self._client_options),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Logs(thread, logs, self._client_options)


def connect(uri: str, options: LogOptions | None = None, client_options: ClientOptions | None = None) -> Connecting:
    """
    Opens the logs of a cluster by its metadata URI.  `ValueError` for a URI of no known form; `MetaStore` when the
    store can't be used.
    """
    return Connecting(uri, options, client_options)


class Logs(Handle):
    """The named logs of a cluster; see `quire.log.blocking.Logs` for each operation."""

    def __init__(self, thread: ReactorThread, logs: CoreLogs, client_options: ClientOptions) -> None:
        self._thread = thread
        self._logs = logs
        self.options = logs.options
        self.bk = Client(thread, logs.bk, client_options)
        self.metrics = logs.metrics
        self._watches: Watches = set()

    async def create(self, name: str, *, begin_at: int = 0, **settings: Any) -> LogInfo:
        return await wait(self._thread, lambda: self._logs.create(name, begin_at=begin_at, **settings))

    async def info(self, name: str) -> LogInfo:
        return await wait(self._thread, lambda: self._logs.info(name))

    async def manifest(self, name: str) -> bytes:
        return await wait(self._thread, lambda: self._logs.manifest(name))

    async def holds(self, name: str) -> list[Hold]:
        return await wait(self._thread, lambda: self._logs.holds(name))

    async def snapshots(self, name: str) -> list[Snapshot]:
        return await wait(self._thread, lambda: self._logs.snapshots(name))

    def segments(self, name: str, index: int = 0) -> AsyncIterator[Segment]:
        return self._each(lambda: self._logs.segments(name, index))

    def txns(self, name: str) -> AsyncIterator[Txn]:
        return self._each(lambda: self._logs.txns(name))

    def unpublished(self, name: str) -> AsyncIterator[Unpublished]:
        return self._each(lambda: self._logs.unpublished(name))

    async def janitor(self, name: str, abandon: bool = False) -> Tended:
        return await wait(self._thread, lambda: self._logs.janitor(name, abandon))

    def candidates(self, name: str) -> AsyncIterator[Candidate]:
        return self._each(lambda: self._logs.candidates(name))

    def names(self) -> AsyncIterator[str]:
        """Of all logs, by shard, then by name."""
        return self._each(self._logs.names)

    async def _each(self, begin: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
        async with aclosing(pulled(self._thread, lambda: in_batches(begin()))) as pages:
            async for page in pages:
                for item in page:
                    yield item

    async def update(self, name: str, **settings: Any) -> LogInfo:
        return await wait(self._thread, lambda: self._logs.update(name, **settings))

    async def rename(self, name: str, new: str) -> LogInfo:
        return await wait(self._thread, lambda: self._logs.rename(name, new))

    async def delete(self, name: str) -> None:
        await wait(self._thread, lambda: self._logs.delete(name))

    async def own(
        self,
        name: str,
        *,
        wait_s: float | None = None,
        force: bool = False,
        priority: int = 0,
        address: str = "",
        before_append: Hook | None = None,
    ) -> Owner:
        """The log's owner, once this handle is.  `before_append` is called on the reactor's thread."""
        owner = await wait(
            self._thread,
            lambda: self._logs.own(
                name, wait_s=wait_s, force=force, priority=priority, address=address, before_append=before_append
            ),
            CoreOwner.close,
        )
        return Owner(self._thread, owner, self.options, before_append is not None)

    async def replica(
        self, name: str, make: Callable[[], Machine], *, stand: bool = False, address: str = "", priority: int = 0
    ) -> Replica:
        """A replica, once it is near the log's end.  The machine works on the reactor's thread."""
        replica = await wait(
            self._thread,
            lambda: self._logs.replica(name, make, stand=stand, address=address, priority=priority),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Replica(self._thread, replica)

    async def read(
        self,
        name: str,
        start: Start = "begin",
        *,
        compacted: bool = False,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
    ) -> LogReader:
        return LogReader(
            self._thread,
            await wait(
                self._thread,
                lambda: self._logs.read(name, start, compacted=compacted, on_trim=on_trim, on_loss=on_loss),
            ),
        )

    async def seek(self, name: str, time_ms: int) -> Seek:
        return await wait(self._thread, lambda: self._logs.seek(name, time_ms))

    async def find(self, name: str, position: int) -> Found:
        return await wait(self._thread, lambda: self._logs.find(name, position))

    async def cursor(self, name: str, cursor: str, *, start: Start = "end", create: bool = True) -> Cursor:
        opened = await wait(
            self._thread,
            lambda: self._logs.cursor(name, cursor, start=start, create=create),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Cursor(self._thread, opened)

    def cursors(self, name: str) -> AsyncIterator[CursorInfo]:
        return self._each(lambda: self._logs.cursors(name))

    async def delete_cursor(self, name: str, cursor: str) -> None:
        await wait(self._thread, lambda: self._logs.delete_cursor(name, cursor))

    async def sink(self, name: str, txn: str, run: str, *, first_batch: int | None = None) -> Sink:
        return Sink(
            self._thread,
            await wait(self._thread, lambda: self._logs.sink(name, txn, run, first_batch=first_batch)),
        )

    async def adopt(self, name: str, ledgers: Iterable[int]) -> Receipt:
        taken = list(ledgers)
        return await wait(self._thread, lambda: self._logs.adopt(name, taken))

    def check(self, name: str) -> AsyncIterator[Finding]:
        return self._each(lambda: self._logs.check(name))

    async def watch(self, name: str) -> AsyncIterator[LogInfo | None]:
        """
        What the log is like now and after changes (not every one in between), None while there is no such log. Leaving
        the loop ends the watch; the close of the logs ends it with `ClientClosed`.
        """
        async with aclosing(watched(self._thread, partial(self._logs.watch, name), self._watches)) as news:
            async for info in news:
                yield info

    async def purge(self, instance_id: str) -> None:
        await wait(self._thread, lambda: self._logs.purge(instance_id))

    async def compact(self, name: str) -> Compacted | None:
        return await wait(self._thread, lambda: self._logs.compact(name))

    async def trim(self, name: str, before: int) -> int:
        return await wait(self._thread, lambda: self._logs.trim(name, before))

    async def terminate(self, name: str) -> Position:
        return await wait(self._thread, lambda: self._logs.terminate(name))

    async def truncate(self, name: str) -> int:
        return await wait(self._thread, lambda: self._logs.truncate(name))

    async def give_up(self, name: str, segment: int, records: int | None = None) -> range:
        return await wait(self._thread, lambda: self._logs.give_up(name, segment, records))

    async def mark(
        self, name: str, segment: int, value: Mapping[str, Any] | None, expected: Mapping[str, Any] | None
    ) -> None:
        await wait(self._thread, lambda: self._logs.mark(name, segment, value, expected))

    async def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> TidyReport:
        return await wait(self._thread, lambda: self._logs.tidy(name, dry_run, abandon))

    def orphans(self, delete: bool = False, *, really: bool = False, grace_s: float = GRACE_S) -> AsyncIterator[Orphan]:
        return self._each(lambda: self._logs.orphans(delete, really=really, grace_s=grace_s))

    async def close(self) -> None:
        """Ends every handle: owners store what was appended and resign."""
        try:
            await wait(self._thread, self._logs.close)
        finally:
            end(self._watches)
