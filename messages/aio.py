"""
The asyncio face of message stores.

    async with connect("sqlite:///var/lib/quire/metadata.db") as stores:
        await stores.create("pay", address="10.0.0.5:10911")
        async with await stores.open("pay", stand=True) as store:
            await store.leads(wait_s=30)
            put = await store.put("T", b"body", queue=3, tags="A", keys="k1 k2")
            found = await store.pull("T", 3, position=put.position)

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: records, rows, roles; every decision is made below.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterable
from os import PathLike, fspath
from typing import Any, Literal

from twisted.internet.defer import Deferred, maybeDeferred

from quire.client.gathering import in_batches
from quire.client.loops import Connecting, Handle, ReactorThread, answered, appended, called_here, each, reactor_thread
from quire.conf.client import ClientOptions, store_named
from quire.conf.log import LogOptions
from quire.conf.messages import MessageOptions
from quire.messages import api
from quire.messages.attributes import KnownStore
from quire.messages.message import Message
from quire.messages.putting import WaitingPuts, gathering

# SPDX-License-Identifier: Apache-2.0


def connect(
    uri: str | None = None,
    options: MessageOptions | None = None,
    log_options: LogOptions | None = None,
    client_options: ClientOptions | None = None,
) -> "Connecting[Stores]":
    """
    Opens the message stores of a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers",
    "sqlite:///var/lib/quire/x.db"); without one as the commands do, by QUIRE_METADATA or the client's configuration
    file.  Best used with `async with`, which closes them.  `ValueError` for a URI of no known form, or none anywhere;
    `MetaStore` when the store can't be reached or holds no cluster.
    """
    chosen, logs, given = (
        MessageOptions.given(options),
        LogOptions.given(log_options),
        ClientOptions.given(client_options),
    )
    named = store_named(uri)

    async def opened() -> Stores:
        thread = reactor_thread()
        stores = await thread.wait(
            lambda: api.connect(thread.reactor, named, chosen, logs, given),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Stores(thread, stores, logs)

    return Connecting(opened)


class Stores(Handle):
    """
    The message stores of a cluster.  Made by `connect`.  `metrics`: a collector for Prometheus, whose scrapes may come
    in any thread.
    """

    def __init__(self, thread: ReactorThread, stores: api.Stores, log_options: LogOptions) -> None:
        self._thread = thread
        self._stores = stores
        self._log_options = log_options
        self.metrics = stores.metrics

    async def create(
        self,
        name: str,
        *,
        address: str,
        file_bytes: int = 1 << 30,
        max_body: int = 4 << 20,
        record_crc: bool = False,
        **log_settings: Any,
    ) -> api.StoreInfo:
        """
        Creates an empty store.  `address`: HOST:PORT, the store host of its records and part of their message ids;
        `file_bytes`: F, the length of a commit-log file; `log_settings` as `quire log create --help` lists them.
        `StoreExists`; `ValueError` for a name or settings that can't be.
        """
        return await self._thread.wait(
            lambda: self._stores.create(
                name,
                address=address,
                file_bytes=file_bytes,
                max_body=max_body,
                record_crc=record_crc,
                **log_settings,
            )
        )

    def names(self) -> AsyncIterator[str]:
        """Yields the names of all stores."""
        return each(self._thread, lambda: in_batches(self._stores.names()))

    async def info(self, name: str) -> api.StoreInfo:
        """Describes a store as it is now.  `NoSuchStore`."""
        return await self._thread.wait(lambda: self._stores.info(name))

    async def delete(self, name: str) -> None:
        """Deletes a store and its progress; also one whose import has not ended.  `NoSuchStore`."""
        await self._thread.wait(lambda: self._stores.delete(name))

    async def open(
        self,
        name: str,
        *,
        stand: bool = False,
        on_role: Callable[[str, int], object] | None = None,
        rows: bool = True,
        address: str = "",
        priority: int = 0,
    ) -> "Store":
        """
        Opens a store.  `stand`: this process is a candidate for master; `on_role("master" or "slave", epoch)` hears
        each change, once and in order; `address`: what others are told of a master.  `rows`: with consume queues and
        index beside this process, without which only `get`, `by_id`, `read` and puts go.  `NoSuchStore`,
        `StoreImporting`, `UnknownFormat`, `RowsForeign`.
        """
        told = None if on_role is None else called_here(on_role)
        store = await self._thread.wait(
            lambda: self._stores.open(name, stand=stand, on_role=told, rows=rows, address=address, priority=priority),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Store(self._thread, store, self._log_options)

    async def plan(self, directories: Iterable[str | PathLike[str]], **options: Any) -> api.Plan:
        """
        Tells what an import of these directories would bring; it creates nothing.  `options`: `commit_logs`,
        `group_size`, `single`, `accept_tail`, `end`, as `quire messages import --help` says.  `ImportRefused`,
        `ValueError`, `OSError`.
        """
        given = [fspath(each) for each in directories]
        return await self._thread.wait(lambda: self._stores.plan(given, **options))

    async def import_(
        self, directories: Iterable[str | PathLike[str]], into: str, *, address: str = "", **options: Any
    ) -> api.StoreInfo:
        """
        Copies a store directory of a stopped broker, or those of a DLedger group, into a new store, or goes on with
        that.  `options`: those of `plan`, and `settings` of its logs.  `ImportRefused`; `LogFenced`: a later run took
        over; `ValueError`, `OSError`.
        """
        given = [fspath(each) for each in directories]
        return await self._thread.wait(lambda: self._stores.import_(given, into=into, address=address, **options))

    async def export(self, name: str, directory: str | PathLike[str], *, start: int | None = None) -> api.Report:
        """
        Writes a directory that a RocketMQ broker starts on, or goes on with that, up to what can be read now.  `start`:
        the first file's offset.  `ExportRefused`, `NoSuchStore`, `StoreImporting`, `StoreDamaged`, `OSError`.
        """
        return await self._thread.wait(lambda: self._stores.export(name, fspath(directory), start=start))

    def check(self, name: str) -> AsyncIterator[api.Flaw]:
        """Verifies each record and its position: yields what is wrong.  `NoSuchStore`, `StoreImporting`."""
        return each(self._thread, lambda: in_batches(self._stores.flaws(name)))

    async def close(self) -> None:
        """Ends every store that is open: masters store what was put and resign."""
        await self._thread.wait(self._stores.close)


class Store(Handle, KnownStore):
    """
    A store that is open in this process; `async with` stores what was put and ends it.  Made by `Stores.open`.
    """

    def __init__(self, thread: ReactorThread, store: api.Store, options: LogOptions) -> None:
        self._thread = thread
        self._store = store
        self._puts = WaitingPuts(store)
        self._gathering = gathering(thread, self._puts, options)

    async def leads(self, wait_s: float = 0.0) -> bool:
        """Waits until this process is master, or so many seconds are over: True if it is."""
        return await self._thread.wait(lambda: self._store.leads(wait_s))

    async def put(self, topic: str, body: bytes = b"", **members: Any) -> api.Put:
        """
        Stores a message; `members` as of `Message`.  Waits for room in the window.  `MessageIllegal`,
        `PropertiesTooLong`, `NotOwner`, `NotReady`, `LogFenced`: not in the store; `AppendUnknown`: perhaps.  Each has
        RocketMQ's name for it in `status`.
        """
        return await answered(self._gathering, self._store.drafts([Message(topic, body, **members)])[0])

    def put_async(self, topic: str, body: bytes = b"", **members: Any) -> "Future[api.Put]":
        """
        Stores a message as `put`; what becomes of it comes later.  Calls that come close together travel as one batch.
        Never waits: `put` does, while more than the options' window is under way.
        """
        return appended(self._gathering, self._store.drafts([Message(topic, body, **members)])[0])

    async def put_many(self, messages: Iterable[Message]) -> list[api.Put]:
        """Stores messages in order, each by itself: at a failure a beginning of them may be stored.  Fails as `put`."""
        made = self._store.drafts(list(messages))
        return await self._thread.wait(lambda: self._puts.send(made, atomic=False))

    async def put_group(self, messages: Iterable[Message]) -> list[api.Put]:
        """Stores messages of one topic and queue as one, side by side: all of them or none.  Fails as `put`."""
        made = self._store.draft_group(list(messages))
        return await self._thread.wait(lambda: self._puts.send(made, atomic=True))

    async def commit_offset(self, group: str, topic: str, queue: int, position: int, *, reset: bool = False) -> None:
        """
        Notes that a group has consumed all below a position of a queue; stored within `progress_ms`, and at a close.  A
        lower position than before is passed over, unless `reset`.  `ValueError` above the queue's next position;
        `NotOwner` where this process is not master.
        """
        await self._thread.wait(
            lambda: maybeDeferred(self._store.commit_offset, group, topic, queue, position, reset=reset)
        )

    async def owns_progress(self) -> None:
        """Returns once a master owns the log of offsets, too, which follows its role; `NotOwner`: it is not master."""
        await self._thread.wait(self._store.owns_progress)

    async def committed(self, group: str, topic: str, queue: int) -> int | None:
        """Tells the next position that a group consumes; None: it has committed none."""
        return await self._thread.wait(lambda: self._store.committed(group, topic, queue))

    async def documents(self) -> dict[str, int]:
        """Lists the documents of the broker that an import took over: name and size."""
        return await self._thread.wait(self._store.documents)

    async def get(self, offset: int, *, wait_s: float = 0.0) -> api.StoredMessage:
        """
        Reads the message at a physical offset.  `wait_s`: for one that is put just now.  `NotAMessage` with the `next`
        record's offset where none begins, `BeyondEnd`, `LogTrimmed`, `StoreDamaged`.
        """
        return await self._thread.wait(lambda: self._store.reads.get(offset, wait_s))

    async def by_id(self, message_id: str, *, wait_s: float = 0.0) -> api.StoredMessage:
        """Reads a message by its id.  `NotAMessage` also for the id of another store host; else as `get`."""
        return await self._thread.wait(lambda: self._store.reads.by_id(message_id, wait_s))

    async def pull(
        self,
        topic: str,
        queue: int,
        position: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 256 << 10,
        tags: str | None = None,
        wait_s: float = 0.0,
    ) -> api.Pulled:
        """
        Reads messages of a queue from a position on: status, next position, the queue's first and next, messages.  The
        first one is given even if it is larger than `max_bytes`.  `tags`: "A || B"; None or "*": all.
        """
        return await self._thread.wait(
            lambda: self._store.reads.pull(
                topic,
                queue,
                position,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tags=tags,
                wait_s=wait_s,
            )
        )

    async def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None, max_messages: int = 64
    ) -> list[api.StoredMessage]:
        """Finds the newest messages with a key, at most 64, of a window of store times; by ascending offset."""
        return await self._thread.wait(lambda: self._store.reads.query(topic, key, begin_ms, end_ms, max_messages))

    async def by_unique_id(self, topic: str, unique_id: str) -> list[api.StoredMessage]:
        """Finds the messages with a unique id, at most 32; those of a producer's batch by the batch's."""
        return await self._thread.wait(lambda: self._store.reads.by_unique_id(topic, unique_id))

    async def offset_by_time(
        self, topic: str, queue: int, time_ms: int, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """
        Finds a position by store time: `lower`: the first not before it, the next one if none is; `upper`: the last not
        after it, the first if none is.
        """
        return await self._thread.wait(lambda: self._store.reads.offset_by_time(topic, queue, time_ms, boundary))

    async def topics(self) -> list[str]:
        """Lists the topics that have a queue."""
        return await self._thread.wait(self._store.reads.topics)

    async def queues(self, topic: str) -> dict[int, api.Bounds]:
        """Lists the queues of a topic, with the first position that is still there and the next one."""
        return await self._thread.wait(lambda: self._store.reads.queues(topic))

    async def listing(self, topic: str, queue: int, position: int, count: int = 32) -> list[api.QueueRow]:
        """Lists rows of a queue: position, offset, size, tags code, store time."""
        return await self._thread.wait(lambda: self._store.reads.listing(topic, queue, position, count))

    def read(self, start: int | Literal["begin", "end"] = "begin") -> AsyncIterator[api.StoredMessage]:
        """Yields the messages from a physical offset on that are there now, in the order of the log."""
        return each(self._thread, lambda: self._store.read(start))

    def tail(self, timeout: float, start: int | Literal["begin", "end"] = "end") -> AsyncIterator[api.StoredMessage]:
        """Yields messages as they come, until none has come for so many seconds."""
        return each(self._thread, lambda: self._store.read(start, timeout))

    async def caught_up(self) -> None:
        """Waits until the rows have all that could be read when this was called."""
        await self._thread.wait(self._store.caught_up)

    async def close(self) -> None:
        """Stores what was put, resigns, and ends the rows."""
        await self._thread.wait(self._puts.close)
