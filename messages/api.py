"""
Message stores for Twisted programs.

Knows: which stores are open, how the parts are put together.
Does not know: what any of them does.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.conf.messages import MessageOptions, StoreSettings
from quire.log.api import Logs
from quire.log.api import connect as connect_logs
from quire.messages import known
from quire.messages.check import Checked, Flaw, checked
from quire.messages.derived.reads import Pulled
from quire.messages.derived.rows import Bounds, QueueRow
from quire.messages.known import PROGRESS, StoreInfo
from quire.messages.message import Message, StoredMessage
from quire.messages.metrics import MessageMetrics, StoreCounters
from quire.messages.rocketmq.exported import exported
from quire.messages.rocketmq.exporting import Report
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.plan import Plan, Told
from quire.messages.rocketmq.source import Tree, Wanted
from quire.messages.store import Put, Store

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "Bounds",
    "Checked",
    "Flaw",
    "Message",
    "Plan",
    "Pulled",
    "Put",
    "QueueRow",
    "Report",
    "Store",
    "StoreInfo",
    "StoredMessage",
    "Stores",
    "connect",
]

PLANNING = ("commit_logs", "group_size", "single", "accept_tail", "end")


class Stores:
    """The message stores of a cluster, over its named logs.  `metrics`: a collector for Prometheus."""

    def __init__(
        self,
        logs: Logs,
        options: MessageOptions | None = None,
        owns_logs: bool = False,
        reached: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`reached`: after each step that a test may want to end the process at."""
        self.logs = logs
        self._reached = reached
        self.options = MessageOptions.given(options)
        self.metrics = MessageMetrics()
        self._owns_logs = owns_logs
        self._open: dict[Store, None] = {}

    async def create(
        self,
        name: str,
        *,
        address: str,
        file_bytes: int = 1 << 30,
        max_body: int = 4 << 20,
        record_crc: bool = False,
        **log_settings: Any,
    ) -> StoreInfo:
        """
        An empty store.  `address`: HOST:PORT, the store host of its records; `log_settings`: of both its logs.
        `StoreExists`; `ValueError` for a name or settings that can't be.
        """
        settings = StoreSettings.made(
            address=address, file_bytes=file_bytes, max_body=max_body, record_crc=record_crc, progress=name + PROGRESS
        )
        await known.create_store(self.logs, name, settings, **log_settings)
        self._reached("store.created")
        return await self.info(name)

    def names(self) -> AsyncGenerator[str, None]:
        """The names of all stores."""
        return known.names(self.logs)

    async def info(self, name: str) -> StoreInfo:
        """Describes a store as it is now.  `NoSuchStore`."""
        return await known.described_all(self.logs, name)

    async def delete(self, name: str) -> None:
        """Deletes a store and its progress; also one whose import has not ended.  `NoSuchStore`."""
        await known.delete_store(self.logs, name)

    async def open(
        self,
        name: str,
        *,
        stand: bool = False,
        on_role: Callable[[str, int], object] | None = None,
        rows: bool = True,
        address: str = "",
        priority: int = 0,
    ) -> Store:
        """
        Opens a store.  `stand`: this process is a candidate for master; `on_role("master" or "slave", epoch)` hears
        each change, and `address` is what others are told of a master; `rows`: with consume queues and index beside
        this process, which `get` and puts do without.  `NoSuchStore`, `StoreImporting`, `UnknownFormat`, `RowsForeign`;
        the errors of a replica.
        """
        descriptor = await known.ready(self.logs, name)
        store = Store(
            self.logs,
            name,
            descriptor,
            self.options,
            self.metrics.of(name),
            lambda: self._open.pop(store, None),
            self._reached,
        )
        self._open[store] = None
        try:
            await store.begin(stand, on_role, rows, address, priority)
        except BaseException:
            await store.close()
            raise
        return store

    async def check(self, name: str) -> AsyncGenerator[Checked, None]:
        """Verifies each record and its position; after each batch, how far it is.  `NoSuchStore`, `StoreImporting`."""
        descriptor = await known.ready(self.logs, name)
        async for progress in checked(self.logs, name, descriptor):
            yield progress

    async def plan(
        self,
        directories: Sequence[str],
        *,
        commit_logs: Sequence[str] = (),
        group_size: int | None = None,
        single: bool = False,
        accept_tail: bool = False,
        end: int | None = None,
        in_use: bool = False,
        told: Told = lambda _done, _total: None,
    ) -> Plan:
        """
        Tells what an import of these directories would bring; it creates nothing.  `in_use`: also of a directory that a
        broker has.  `told(bytes done, bytes in all)`.  `ImportRefused`, `ValueError`, `OSError`.
        """
        wanted = Wanted(tuple(directories), tuple(commit_logs), group_size, single, accept_tail, end)
        tree = Tree()
        try:
            return await planned(self.logs, tree, wanted, told, in_use=in_use)
        finally:
            tree.close()

    async def carry_out(
        self,
        plan: Plan,
        into: str,
        *,
        address: str = "",
        settings: Mapping[str, Any] | None = None,
        told: Told = lambda _done, _total: None,
    ) -> StoreInfo:
        """
        Copies what was planned into a new store, or goes on with that.  `settings`: of its logs.  `ImportRefused`,
        `LogFenced`: a later run took over; `ValueError`; `OSError`.
        """
        counted = counting(told, self.metrics.of(into), "import_bytes")
        tree = Tree()
        try:
            await Importing(self.logs, tree, into, plan, address=address, settings=settings, told=counted).run()
        finally:
            tree.close()
        return await self.info(into)

    async def import_(self, directories: Sequence[str], *, into: str, **options: Any) -> StoreInfo:
        """Plans an import and carries it out; `options` are those of both.  Their errors."""
        planning = {key: options.pop(key) for key in PLANNING if key in options}
        return await self.carry_out(await self.plan(directories, **planning), into, **options)

    async def export(
        self, name: str, directory: str, *, start: int | None = None, told: Told = lambda _done, _total: None
    ) -> Report:
        """
        Writes a directory that a RocketMQ broker starts on, or goes on with that, up to what can be read now.  `start`:
        the first file's offset.  `ExportRefused`, `NoSuchStore`, `StoreImporting`, `StoreDamaged`; `OSError`.
        """
        counted = counting(told, self.metrics.of(name), "export_bytes")
        return await exported(self.logs, name, directory, start, told=counted)

    async def flaws(self, name: str) -> AsyncGenerator[Flaw, None]:
        """Yields what `check` finds wrong."""
        async for progress in self.check(name):
            for flaw in progress.flaws:
                yield flaw

    async def close(self) -> None:
        """Ends every store that is open: masters store what was put and resign."""
        await gatherResults([Deferred.fromCoroutine(store.close()) for store in list(self._open)])
        if self._owns_logs:
            await self.logs.close()


def counting(told: Told, counters: StoreCounters, name: str) -> Told:
    """Counts what is done, too."""
    before = 0

    def count(done: int, total: int) -> None:
        nonlocal before
        setattr(counters, name, getattr(counters, name) + done - before)
        before = done
        told(done, total)

    return count


async def connect(
    reactor: Any,
    uri: str | None = None,
    options: MessageOptions | None = None,
    log_options: LogOptions | None = None,
    client_options: ClientOptions | None = None,
) -> Stores:
    """Opens the cluster at `uri`.  The errors of `quire.client.api.connect`."""
    chosen = MessageOptions.given(options)
    return Stores(await connect_logs(reactor, uri, log_options, client_options), chosen, owns_logs=True)
