"""
An open message store: puts, reads, roles.

Knows: what a put is answered with, by which name RocketMQ knows an error, who may put; which part answers a read.
Does not know: how records are placed (`core`), how rows are kept (`derived`), how the log is written.
Safety: a caller is told an offset, a position or an id only when the entry is acknowledged; no read passes the last
add confirmed.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from quire.conf.messages import MessageOptions
from quire.log.api import Logs, Replica
from quire.messages.consumption import Consumption
from quire.messages.core.assign import Draft
from quire.messages.core.record import message_id
from quire.messages.derived.directory import RowsDirectory
from quire.messages.derived.dispatch import stored_at
from quire.messages.derived.following import Following
from quire.messages.derived.reads import Applied, Reads
from quire.messages.descriptor import USE, Descriptor
from quire.messages.drafting import Drafting, UniqueIds
from quire.messages.message import Message, StoredMessage, host_of
from quire.messages.metrics import PUT_OK, StoreCounters
from quire.messages.progress import Consumed
from quire.messages.standing import MASTER, Standing
from quire.metadata.clock import time_of_day
from quire.protocol.errors import ClientClosed, LedgerError, NotEnoughBookies, TooManyRequests
from quire.protocol.log_errors import AppendUnknown, BacklogQuota, LogFenced, LogTerminated, NotOwner
from quire.protocol.message_errors import NotReady

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

EVERYTHING = (1 << 63) - 1  # above each byte position
TURN_S = 0.2
ID_OFFSET_DIGITS = 16

STATUS: dict[type[LedgerError], str] = {
    NotOwner: "SERVICE_NOT_AVAILABLE",
    LogFenced: "SERVICE_NOT_AVAILABLE",
    LogTerminated: "SERVICE_NOT_AVAILABLE",
    BacklogQuota: "SERVICE_NOT_AVAILABLE",
    AppendUnknown: "IN_SYNC_REPLICAS_NOT_ENOUGH",
    NotEnoughBookies: "IN_SYNC_REPLICAS_NOT_ENOUGH",
    TooManyRequests: "OS_PAGE_CACHE_BUSY",
    LedgerError: "SERVICE_NOT_AVAILABLE",  # any other, as of a metadata store that is away
}


class Put(NamedTuple):
    """Outcome of a put: its physical offset, position, id, store time, size of its record, unique id."""

    offset: int
    position: int
    message_id: str
    store_ms: int
    size: int
    unique_id: str


def status_of(error: BaseException) -> str:
    """RocketMQ's name for the error of a put; "" for one that it does not have."""
    own: str = getattr(error, "status", "")
    return own or next((name for kind, name in STATUS.items() if isinstance(error, kind)), "")


def _answers(made: Sequence[Draft], id_begin: str) -> list[Put]:
    """Makes the answers to the put of these drafts; `id_begin`: of the message ids, before the offset."""
    offsets = [draft.offset for draft in made]
    columns = zip(
        offsets,
        [draft.position for draft in made],
        [f"{id_begin}{offset:0{ID_OFFSET_DIGITS}X}" for offset in offsets],
        [draft.store_ms for draft in made],
        map(len, made),
        [draft.unique_id for draft in made],
        strict=True,
    )
    new = tuple.__new__  # that of a named tuple, which is a function of Python, takes as long as all else here
    return [new(Put, each) for each in columns]


class Store:
    """A store that is open in this process.  Made by `Stores.open`; `close` ends it."""

    def __init__(
        self,
        logs: Logs,
        name: str,
        descriptor: Descriptor,
        options: MessageOptions,
        counters: StoreCounters,
        on_close: Callable[[], object],
        reached: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`reached`: after each step of a put."""
        self.name = name
        self.settings = descriptor.store_settings
        self._logs = logs
        self._descriptor = descriptor
        self._options = options
        self._on_close = on_close
        self._reached = reached
        self._on_role: Callable[[str, int], object] | None = None
        self._id_begin = message_id(host_of(self.settings.address), 0)[:-ID_OFFSET_DIGITS]
        self._drafting = Drafting(self.settings, UniqueIds(logs.bk.random))
        self._counters = counters
        self._seconds = logs.bk.reactor.seconds
        self._standing = Standing(descriptor, self._changed, counters, self._seconds, reached)
        self._sent = self._seen = 0  # messages, and when the thread of the rows looked last
        self._consumption = Consumption(logs, self.settings.progress, options.progress_ms / 1000)
        self._replica: Replica | None = None
        self._following: Following | None = None
        self._closed: Deferred[None] | None = None
        self.reads = Reads(logs, name, descriptor.placing, counters=counters)
        counters.look = self._look

    async def begin(
        self, stand: bool, on_role: Callable[[str, int], object] | None, rows: bool, address: str, priority: int
    ) -> None:
        """Opens the rows and the queue table; the arguments are those of `Stores.open`."""
        self._on_role = on_role
        info = await self._logs.info(self.name)
        if rows:
            directory = RowsDirectory(str(self._options.derived_dir), info.id)
            placing = self._descriptor.placing
            following = Following(self._logs, self.name, info.id, placing, directory, is_putting=self._is_putting)
            await following.open()
            self._following = following
        if rows or stand:
            self._replica = await self._logs.replica(
                self.name,
                self._standing.make,
                stand=stand,
                address=address,
                priority=priority,
                before_append=self._standing.hook,
                use=USE,
            )
        self.reads = Reads(
            self._logs, self.name, self._descriptor.placing, self._following, self._applied, self._counters
        )

    def _applied(self) -> Applied | None:
        replica, table = self._replica, self._standing.table
        return None if replica is None or table is None else Applied(replica.applied, table)

    async def close(self) -> None:
        """Stores what was put and resigns; ends the rows.  Never fails."""
        if self._closed is None:
            self._closed = Deferred.fromCoroutine(self._close())
            self._on_close()
        await self._closed

    async def _close(self) -> None:
        try:
            await self._consumption.close()
        finally:
            try:
                if self._replica is not None:
                    await self._replica.close()
            finally:
                if self._following is not None:
                    await self._following.close()
                self._look()
                self._counters.look = lambda: None

    # -- roles -----------------------------------------------------------------------------------------------------

    @property
    def role(self) -> str:
        """`master` once this process owns the log and has applied all that was there before; else `slave`."""
        return self._standing.role

    @property
    def epoch(self) -> int:
        """The number of the term in which this process is master, or was last; 0: it never was."""
        return self._standing.epoch

    async def leads(self, wait_s: float = 0.0) -> bool:
        """True once this process is master; False when so many seconds are over."""
        return await self._table.leads(wait_s)

    def _changed(self, role: str, epoch: int) -> None:
        if role == MASTER:
            self._consumption.lead()
        else:
            self._consumption.follow()
        if self._on_role is not None:
            self._on_role(role, epoch)

    # -- puts ------------------------------------------------------------------------------------------------------

    def put(self, message: Message) -> Deferred[Put]:
        """
        Stores a message.  `MessageIllegal`, `PropertiesTooLong`, and nothing was sent; `NotOwner` with the master's
        address, `NotReady`, `LogFenced`, `TooManyRequests`: not in the store; `AppendUnknown`: perhaps.  Each has
        RocketMQ's name for it in `status`.
        """
        return self._tried(1, lambda: self.send(self.drafts([message]))).addCallback(itemgetter(0))

    def put_group(self, messages: Sequence[Message]) -> Deferred[list[Put]]:
        """Stores messages of one topic and queue as one, side by side: all of them or none.  Fails as `put`."""
        return self._tried(len(messages), lambda: self.send(self.draft_group(messages), atomic=True))

    def put_many(self, messages: Sequence[Message]) -> Deferred[list[Put]]:
        """Stores messages in order, each by itself: at a failure a beginning of them may be stored.  Fails as `put`."""
        return self._tried(len(messages), lambda: self.send(self.drafts(messages)))

    def drafts(self, messages: Sequence[Message]) -> list[Draft]:
        """Encodes messages that are to be sent; in any thread.  `MessageIllegal`, `PropertiesTooLong`."""
        return self._drafting.drafts(messages, round(time_of_day() * 1000))

    def draft_group(self, messages: Sequence[Message]) -> list[Draft]:
        """Encodes the messages of a group; in any thread.  `MessageIllegal`, `PropertiesTooLong`."""
        return self._drafting.group(messages, round(time_of_day() * 1000))

    def send(self, made: Sequence[Draft], atomic: bool = False) -> Deferred[list[Put]]:
        """Stores drafts in order, as one with `atomic`.  Fails as `put`."""
        owner = self._replica.owner if self._replica is not None and self.role == MASTER else None
        begun = self._seconds()
        if owner is None:
            return Deferred.fromCoroutine(self._refused()).addErrback(self._failed, len(made))
        self._sent += len(made)
        sent = owner.append_many(made, atomic=atomic)
        return sent.addCallbacks(lambda _at: self._acknowledged(made, begun), self._failed, errbackArgs=(len(made),))

    async def _refused(self) -> list[Put]:
        """Raises what a put fails with where this process is not master."""
        replica = self._replica
        if replica is not None:
            if replica.error is not None:
                raise replica.error
            if replica.owner is not None:
                raise NotReady(f"the store {self.name!r} is this process's and not all of it is applied yet: put again")
        address = (await self._logs.info(self.name)).owner or ""
        error = NotOwner(
            f"this process is not the master of the store {self.name!r}"
            f"{f', {address} is' if address else ''}: nothing was sent"
        )
        error.address = address
        raise error

    def _is_putting(self) -> bool:
        """True if puts are under way, or were sent since this was asked before; in any thread."""
        owner = None if self._replica is None else self._replica.owner
        seen, self._seen = self._seen, self._sent
        return self._seen != seen or (owner is not None and owner.under_way[0] > 0)

    async def room(self, messages: int, size: int) -> None:
        """Waits until the window has room for so many messages and bytes; at once where this process does not lead."""
        owner = None if self._replica is None else self._replica.owner
        if owner is not None:
            await owner.ready(messages, size)

    def _tried(self, count: int, send: Callable[[], Deferred[T]]) -> Deferred[T]:
        try:
            return send()
        except LedgerError as error:
            failed: Deferred[T] = fail(error)
            return failed.addErrback(self._failed, count)

    def _acknowledged(self, made: Sequence[Draft], begun: float) -> list[Put]:
        self._reached("put.acked")
        self._counters.puts[PUT_OK] += len(made)
        self._counters.put_seconds.observe(self._seconds() - begun)
        return _answers(made, self._id_begin)

    def _failed(self, failure: Failure, count: int) -> Failure:
        """Counts the failure, and gives it RocketMQ's name in `status`."""
        error: Any = failure.value
        error.status = status_of(error)
        self._counters.puts[error.status or "UNKNOWN_ERROR"] += count
        return failure

    def _look(self) -> None:
        """Brings the gauges up to date."""
        counters, following = self._counters, self._following
        counters.role = int(self.role == MASTER)
        if following is not None:
            counters.rebuilds, counters.dispatch_lag_records = following.rebuilds, following.lag
            counters.dispatch_lag_seconds = following.lag_s

    @property
    def _table(self) -> Replica:
        if self._replica is None:
            raise ValueError(f"the store {self.name!r} was opened for reading only: `stand` makes it a candidate")
        return self._replica

    # -- progress --------------------------------------------------------------------------------------------------

    def commit_offset(self, group: str, topic: str, queue: int, position: int, *, reset: bool = False) -> None:
        """
        Notes that a group has consumed all below a position; stored within `progress_ms`, and at a close.  A lower
        position than before is passed over, unless `reset`.  `ValueError` above the queue's next position; `NotOwner`.
        """
        self._consumption.commit(Consumed(group, topic, queue), position, self._standing.next(topic, queue), reset)

    async def owns_progress(self) -> None:
        """Returns once a master owns the log of offsets, too; `NotOwner`: this process is not master."""
        await self._consumption.owned()

    async def committed(self, group: str, topic: str, queue: int) -> int | None:
        """The next position that a group consumes; None: it has committed none."""
        return await self._consumption.committed(Consumed(group, topic, queue))

    async def documents(self) -> dict[str, int]:
        """The name and size of each document of the broker that an import took over."""
        return await self._consumption.documents()

    # -- in the order of the log -----------------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """How many records that are known here have no rows yet."""
        return 0 if self._following is None else self._following.lag

    async def catching_up(self) -> AsyncGenerator[tuple[int, int], None]:
        """
        (records that got rows, records in all), now and each time some did, until the rows have all that could be read
        at its begin.  `ClientClosed`: the store was closed before; the error with which the rows ended.
        """
        following = self._following
        if following is None:
            return
        end = (await self._logs.find(self.name, EVERYTHING)).index
        first = max(following.index, (await self._logs.info(self.name)).begin)
        done = -1
        while first < end:
            if following.failure is not None:
                raise following.failure
            now = max(0, min(following.index, end) - first)
            if now > done:
                yield now, end - first
                done = now
            if done == end - first:
                return
            if following.closed:
                raise ClientClosed(f"the store {self.name!r} was closed before its rows had all that it has")
            await following.more(TURN_S)

    async def caught_up(self) -> None:
        """Waits until the rows have all that could be read when this was called.  Fails as `catching_up`."""
        async for _so_far in self.catching_up():
            continue

    async def read(
        self, start: int | Literal["begin", "end"] = "begin", timeout: float | None = None
    ) -> AsyncGenerator[list[StoredMessage], None]:
        """
        The messages from a physical offset on, in the order of the log, an entry at a time: those that are there, or
        with a `timeout` also those that come, until none has come for so many seconds.
        """
        index: int | Literal["begin", "end"] = start if isinstance(start, str) else await self._index(start)
        reader = await self._logs.read(self.name, index)
        placing = self._descriptor.placing
        try:
            async for batch in reader.batches() if timeout is None else reader.tail(timeout):
                given = []
                for position, value in zip(batch.positions, batch.values, strict=True):
                    offset, record = stored_at(value, position)
                    place = placing.place(record, offset)
                    given.append(StoredMessage(record, -1 if place is None else place.position))
                yield given
        finally:
            await reader.close()

    async def _index(self, offset: int) -> int:
        """The index of the record that is at a physical offset or holds it."""
        return (await self._logs.find(self.name, offset)).index
