# Made from messages/aio.py by `make manual`: edit that file, not this one.
"""
The blocking face of message stores.

    with connect("sqlite:///var/lib/quire/metadata.db") as stores:
        stores.create("pay", address="10.0.0.5:10911")
        with stores.open("pay", stand=True) as store:
            store.leads(wait_s=30)
            put = store.put("T", b"body", queue=3, tags="A", keys="k1 k2")
            found = store.pull("T", 3, position=put.position)

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: records, rows, roles; every decision is made below.

Handles may be used from several threads at a time.  An interrupt while a call waits cancels its operation; an append
that was sent stays sent.  A call on the reactor's own thread, or in a forked child, raises `RuntimeError` instead of
waiting for ever.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from os import PathLike, fspath
from typing import Any, Literal

from twisted.internet.defer import Deferred, maybeDeferred

from quire.client.gathering import in_batches
from quire.client.threads import (
    Handle,
    ReactorThread,
    answered,
    appended,
    called_here,
    documented,
    each,
    reactor_thread,
)
from quire.conf.client import ClientOptions, store_named
from quire.conf.log import LogOptions
from quire.conf.messages import MessageOptions
from quire.messages import aio, api
from quire.messages.attributes import KnownStore
from quire.messages.message import Message
from quire.messages.putting import WaitingPuts, gathering

# SPDX-License-Identifier: Apache-2.0


def connect(
    uri: str | None = None,
    options: MessageOptions | None = None,
    log_options: LogOptions | None = None,
    client_options: ClientOptions | None = None,
) -> "Stores":
    """
    Opens the message stores of a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers",
    "sqlite:///var/lib/quire/x.db"); without one as the commands do, by QUIRE_METADATA or the client's configuration
    file.  Best used with `with`, which closes them.  `ValueError` for a URI of no known form, or none anywhere;
    `MetaStore` when the store can't be reached or holds no cluster.
    """
    chosen, logs, given = (
        MessageOptions.given(options),
        LogOptions.given(log_options),
        ClientOptions.given(client_options),
    )
    named = store_named(uri)

    def opened() -> Stores:
        thread = reactor_thread()
        stores = thread.wait(
            lambda: api.connect(thread.reactor, named, chosen, logs, given),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Stores(thread, stores, logs)

    return opened()


@documented(aio.Stores)
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

    def create(
        self,
        name: str,
        *,
        address: str,
        file_bytes: int = 1 << 30,
        max_body: int = 4 << 20,
        record_crc: bool = False,
        **log_settings: Any,
    ) -> api.StoreInfo:
        return self._thread.wait(
            lambda: self._stores.create(
                name,
                address=address,
                file_bytes=file_bytes,
                max_body=max_body,
                record_crc=record_crc,
                **log_settings,
            )
        )

    def names(self) -> Iterator[str]:
        return each(self._thread, lambda: in_batches(self._stores.names()))

    def info(self, name: str) -> api.StoreInfo:
        return self._thread.wait(lambda: self._stores.info(name))

    def delete(self, name: str) -> None:
        self._thread.wait(lambda: self._stores.delete(name))

    def open(
        self,
        name: str,
        *,
        stand: bool = False,
        on_role: Callable[[str, int], object] | None = None,
        rows: bool = True,
        address: str = "",
        priority: int = 0,
    ) -> "Store":
        told = None if on_role is None else called_here(on_role)
        store = self._thread.wait(
            lambda: self._stores.open(name, stand=stand, on_role=told, rows=rows, address=address, priority=priority),
            lambda made: Deferred.fromCoroutine(made.close()),
        )
        return Store(self._thread, store, self._log_options)

    def plan(self, directories: Iterable[str | PathLike[str]], **options: Any) -> api.Plan:
        given = [fspath(each) for each in directories]
        return self._thread.wait(lambda: self._stores.plan(given, **options))

    def import_(
        self, directories: Iterable[str | PathLike[str]], into: str, *, address: str = "", **options: Any
    ) -> api.StoreInfo:
        given = [fspath(each) for each in directories]
        return self._thread.wait(lambda: self._stores.import_(given, into=into, address=address, **options))

    def export(self, name: str, directory: str | PathLike[str], *, start: int | None = None) -> api.Report:
        return self._thread.wait(lambda: self._stores.export(name, fspath(directory), start=start))

    def check(self, name: str) -> Iterator[api.Flaw]:
        return each(self._thread, lambda: in_batches(self._stores.flaws(name)))

    def close(self) -> None:
        self._thread.wait(self._stores.close)


@documented(aio.Store)
class Store(Handle, KnownStore):
    """
    A store that is open in this process; `with` stores what was put and ends it.  Made by `Stores.open`.
    """

    def __init__(self, thread: ReactorThread, store: api.Store, options: LogOptions) -> None:
        self._thread = thread
        self._store = store
        self._puts = WaitingPuts(store)
        self._gathering = gathering(thread, self._puts, options)

    def leads(self, wait_s: float = 0.0) -> bool:
        return self._thread.wait(lambda: self._store.leads(wait_s))

    def put(self, topic: str, body: bytes = b"", **members: Any) -> api.Put:
        return answered(self._gathering, self._store.drafts([Message(topic, body, **members)])[0])

    def put_async(self, topic: str, body: bytes = b"", **members: Any) -> "Future[api.Put]":
        return appended(self._gathering, self._store.drafts([Message(topic, body, **members)])[0])

    def put_many(self, messages: Iterable[Message]) -> list[api.Put]:
        made = self._store.drafts(list(messages))
        return self._thread.wait(lambda: self._puts.send(made, atomic=False))

    def put_group(self, messages: Iterable[Message]) -> list[api.Put]:
        made = self._store.draft_group(list(messages))
        return self._thread.wait(lambda: self._puts.send(made, atomic=True))

    def commit_offset(self, group: str, topic: str, queue: int, position: int, *, reset: bool = False) -> None:
        self._thread.wait(lambda: maybeDeferred(self._store.commit_offset, group, topic, queue, position, reset=reset))

    def owns_progress(self) -> None:
        self._thread.wait(self._store.owns_progress)

    def committed(self, group: str, topic: str, queue: int) -> int | None:
        return self._thread.wait(lambda: self._store.committed(group, topic, queue))

    def documents(self) -> dict[str, int]:
        return self._thread.wait(self._store.documents)

    def get(self, offset: int, *, wait_s: float = 0.0) -> api.StoredMessage:
        return self._thread.wait(lambda: self._store.reads.get(offset, wait_s))

    def by_id(self, message_id: str, *, wait_s: float = 0.0) -> api.StoredMessage:
        return self._thread.wait(lambda: self._store.reads.by_id(message_id, wait_s))

    def pull(
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
        return self._thread.wait(
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

    def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None, max_messages: int = 64
    ) -> list[api.StoredMessage]:
        return self._thread.wait(lambda: self._store.reads.query(topic, key, begin_ms, end_ms, max_messages))

    def by_unique_id(self, topic: str, unique_id: str) -> list[api.StoredMessage]:
        return self._thread.wait(lambda: self._store.reads.by_unique_id(topic, unique_id))

    def offset_by_time(
        self, topic: str, queue: int, time_ms: int, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        return self._thread.wait(lambda: self._store.reads.offset_by_time(topic, queue, time_ms, boundary))

    def topics(self) -> list[str]:
        return self._thread.wait(self._store.reads.topics)

    def queues(self, topic: str) -> dict[int, api.Bounds]:
        return self._thread.wait(lambda: self._store.reads.queues(topic))

    def listing(self, topic: str, queue: int, position: int, count: int = 32) -> list[api.QueueRow]:
        return self._thread.wait(lambda: self._store.reads.listing(topic, queue, position, count))

    def read(self, start: int | Literal["begin", "end"] = "begin") -> Iterator[api.StoredMessage]:
        return each(self._thread, lambda: self._store.read(start))

    def tail(self, timeout: float, start: int | Literal["begin", "end"] = "end") -> Iterator[api.StoredMessage]:
        return each(self._thread, lambda: self._store.read(start, timeout))

    def caught_up(self) -> None:
        self._thread.wait(self._store.caught_up)

    def close(self) -> None:
        self._thread.wait(self._puts.close)
