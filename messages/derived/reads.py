"""
Reads of a message store: by offset, by id, from a queue, by time, by key.

Knows: RocketMQ's statuses of a pull, what tags and keys select.
Does not know: how rows come to be, where a record is in the log.
Safety: a hash selects nothing by itself: the record has the tags, or the key.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import compress
from typing import NamedTuple, TypeVar

from quire.log.api import Logs
from quire.messages.core.queues import Placing, QueueTable
from quire.messages.core.record import TOPIC_BYTES_MAX, Record, java_hash, key_hash, parse_id, unpack
from quire.messages.derived.finding import Finding, Named
from quire.messages.derived.following import Following
from quire.messages.derived.lookup import Boundary, Lookup
from quire.messages.derived.rows import Bounds, QueueRow
from quire.messages.derived.windows import POSITION, Window, Windows, look_up
from quire.messages.message import KEYS, UNIQUE_ID, StoredMessage
from quire.messages.metrics import StoreCounters
from quire.metadata.clock import pause
from quire.protocol.log_errors import LogTrimmed
from quire.protocol.message_errors import BeyondEnd, NotAMessage, StoreDamaged

# SPDX-License-Identifier: Apache-2.0

PULL_MESSAGES, PULL_BYTES = 32, 256 << 10
LOOK_ROWS = 800  # that a pull looks at for its tags
QUERY_MESSAGES_MAX, UNIQUE_MESSAGES_MAX = 64, 32
QUEUES_MAX = 1 << 31
TURN_S = 0.05  # between two looks at the end of a log
TRIMS_MAX = 8  # that may come between the rows and the records of one read

FOUND, NO_MATCHED_MESSAGE = "FOUND", "NO_MATCHED_MESSAGE"
NO_MESSAGE_IN_QUEUE, OFFSET_TOO_SMALL = "NO_MESSAGE_IN_QUEUE", "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_ONE, OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"

T = TypeVar("T")


class Pulled(NamedTuple):
    """
    The answer to a pull: RocketMQ's status, the position to go on with, the first position of the queue and the one
    behind its last, the messages; and how many records of the log have no rows yet, so that more may be there.
    """

    status: str
    next: int
    min: int
    max: int
    messages: list[StoredMessage]
    lag: int = 0


class Applied(NamedTuple):
    """A queue table, and the index of the first record that is not applied to it."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    table: QueueTable


def tags_of(text: str | None) -> frozenset[str]:
    """The tags of an expression `A || B`; none: all messages."""
    tags = frozenset(filter(None, (word.strip() for word in (text or "").split("||"))))
    return frozenset() if "*" in tags else tags


class Reads:
    """
    Reads of the store `name`.  `following`: its rows; None: only `get` and `by_id`.  `applied`: the queue table, for
    queues of which no record is left.
    """

    def __init__(
        self,
        logs: Logs,
        name: str,
        placing: Placing,
        following: Following | None = None,
        applied: Callable[[], Applied | None] = lambda: None,
        counters: StoreCounters | None = None,
    ) -> None:
        self.counters = counters or StoreCounters()
        self._clock = logs.bk.reactor
        self._finding = Finding(logs, name, following)
        self._placing = placing
        self._following = following
        self._applied = applied
        self._imported = QueueTable(placing)
        self._windows = Windows()

    @property
    def _rows(self) -> Following:
        """The rows; raises what they ended with."""
        following = self._following
        if following is None:
            raise ValueError("this store was opened without rows: queues and keys need a derived_dir")
        if following.failure is not None:
            raise following.failure
        return following

    # -- by offset ---------------------------------------------------------------------------------------------------

    async def get(self, offset: int, wait_s: float = 0) -> StoredMessage:
        """
        The message at a physical offset.  `wait_s`: it may be so long until it is there.  `NotAMessage`, `BeyondEnd`,
        `LogTrimmed`, `StoreDamaged`.
        """
        return self._given(await self._record(offset, wait_s))

    async def by_id(self, text: str, wait_s: float = 0) -> StoredMessage:
        """The message with this id.  As `get`; `NotAMessage` also where another store host wrote what is there."""
        host, offset = parse_id(text)
        record = await self._record(offset, wait_s)
        if record.store_host != host:
            raise NotAMessage(f"no message has the id {text}: the one at {offset} has {record.message_id}")
        return self._given(record)

    def _given(self, record: Record) -> StoredMessage:
        place = self._placing.place(record, record.offset)
        return StoredMessage(record, -1 if place is None else place.position)

    async def _record(self, offset: int, wait_s: float) -> Record:
        deadline = self._clock.seconds() + wait_s
        while True:
            try:
                return await self._finding.record(offset)
            except BeyondEnd:
                left = deadline - self._clock.seconds()
                if left <= 0:
                    raise
            await pause(self._clock, min(left, TURN_S))

    # -- from a queue ------------------------------------------------------------------------------------------------

    async def pull(
        self,
        topic: str,
        queue: int,
        position: int,
        max_messages: int = PULL_MESSAGES,
        max_bytes: int = PULL_BYTES,
        tags: str | None = None,
        wait_s: float = 0,
    ) -> Pulled:
        """
        Messages of a queue from a position on; the first even if it is larger than `max_bytes`.  `tags`: `A || B`, or
        `*` for all.  `wait_s`: at the end, so long for more.
        """
        if max_messages < 1:
            raise ValueError(f"max_messages is {max_messages}: a pull gives 1 message or more")
        deadline = self._clock.seconds() + wait_s
        while True:
            found = await self._untrimmed(lambda: self._pulled(topic, queue, position, max_messages, max_bytes, tags))
            left = deadline - self._clock.seconds()
            is_behind = found.lag > 0 and found.status == OFFSET_OVERFLOW_BADLY
            if left <= 0 or not (is_behind or found.status in (NO_MESSAGE_IN_QUEUE, OFFSET_OVERFLOW_ONE)):
                self.counters.pulls[found.status] += 1
                return found
            await self._rows.more(left)

    async def _pulled(
        self, topic: str, queue: int, position: int, max_messages: int, max_bytes: int, tags: str | None
    ) -> Pulled:
        _check(topic, queue)
        wanted = tags_of(tags)
        codes = frozenset(map(java_hash, wanted))
        count = max(LOOK_ROWS, max_messages) if wanted else max_messages
        window = await self._window((topic, queue), position, count)
        lag = self._rows.lag
        judged = _judged(position, window.bounds)
        if judged is not None:
            return judged._replace(lag=lag)
        chosen, looked = _chosen(window.rows_from(position, count), position, max_messages, max_bytes, codes)
        if looked == position:
            raise StoreDamaged(
                f"the rows of queue {queue} of {topic!r} lack position {position}: remove {self._rows.path}, and they "
                "are made again"
            )
        stored = await self._finding.dispatched(Named([row.offset for row in chosen], window.entries))
        found = list(map(StoredMessage, stored, map(POSITION, chosen)))
        if wanted:
            matching = [message.tags in wanted for message in found]
            found, chosen = list(compress(found, matching)), list(compress(chosen, matching))
        status, following = (FOUND, chosen[-1].next) if chosen else (NO_MATCHED_MESSAGE, looked)
        return Pulled(status, following, *window.bounds, found, lag)

    async def _window(self, queue: tuple[str, int], position: int, count: int) -> Window:
        """Looks up so many rows of a queue from a position on, or as many as there are, unless they are known."""
        version = self._rows.version
        known = self._windows.of(queue, version)
        if known is not None:
            if known.rows_from(position, count):
                return known
            count = known.worth_looking(position, count)
        found = await self._rows.look(partial(look_up, queue, position, count))
        self._windows.remember(queue, version, found)
        return Window(self._empty(*queue), [], {}) if found is None else found

    async def bounds(self, topic: str, queue: int) -> Bounds:
        """
        The first position of a queue and the one behind its last; both are 0 for an unknown queue.  `ValueError` for
        what can't be one.
        """
        _check(topic, queue)
        found = await self._rows.look(lambda rows: rows.bounds(topic, queue))
        return self._empty(topic, queue) if found is None else found

    def _empty(self, topic: str, queue: int) -> Bounds:
        """The bounds of a queue without rows."""
        position = self._table().next(topic, queue)
        return Bounds(position, position)

    def _table(self) -> QueueTable:
        """The queue table, as far as rows go; before that what the import left."""
        applied = self._applied()
        return self._imported if applied is None or applied.index > self._rows.index else applied.table

    async def topics(self) -> list[str]:
        """All topics, in order."""
        found = await self._rows.look(lambda rows: rows.topics())
        return sorted({*found, *self._table().topics()})

    async def queues(self, topic: str) -> dict[int, Bounds]:
        """The queues of a topic, in order, with their bounds."""
        found = await self._rows.look(lambda rows: {queue: rows.bounds(topic, queue) for queue in rows.queues(topic)})
        known = {queue: Bounds(position, position) for queue, position in self._table().queues(topic).items()}
        known |= {queue: bounds for queue, bounds in found.items() if bounds is not None}
        return dict(sorted(known.items()))

    async def listing(self, topic: str, queue: int, position: int, count: int) -> list[QueueRow]:
        """Rows of a queue from a position on, or from its first one."""
        if count < 1:
            raise ValueError(f"count is {count}: a listing gives 1 row or more")
        bounds = await self.bounds(topic, queue)
        first = min(max(position, bounds.first), bounds.next)
        return await self._rows.look(lambda rows: rows.window(topic, queue, first, count))

    async def offset_by_time(self, topic: str, queue: int, ms: int, boundary: Boundary = "lower") -> int:
        """
        "lower": the first position whose store time is not below, the next one if there is none; "upper": the last
        whose store time is not above, the first one if there is none.  0 for an unknown queue.
        """
        if boundary not in ("lower", "upper"):
            raise ValueError(f"a boundary is 'lower' or 'upper', not {boundary!r}")
        bounds = await self.bounds(topic, queue)
        if bounds.first == bounds.next:
            return bounds.first
        return await self._rows.look(lambda rows: rows.by_time(topic, queue, ms, boundary))

    # -- by key ------------------------------------------------------------------------------------------------------

    async def query(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, max_messages: int = QUERY_MESSAGES_MAX
    ) -> list[StoredMessage]:
        """The newest messages with a key and a store time in the window, both ends included, by ascending offset."""
        if not 1 <= max_messages <= QUERY_MESSAGES_MAX:
            raise ValueError(f"max_messages is {max_messages}: a query gives 1 to {QUERY_MESSAGES_MAX}")
        return await self._untrimmed(
            lambda: self._queried(
                topic, key, begin_ms, end_ms, max_messages, lambda found: found.get(KEYS, "").split(" ")
            )
        )

    async def by_unique_id(self, topic: str, unique_id: str) -> list[StoredMessage]:
        """The newest messages with this unique id, at most 32, by ascending offset."""
        return await self._untrimmed(
            lambda: self._queried(
                topic, unique_id, 0, None, UNIQUE_MESSAGES_MAX, lambda found: [found.get(UNIQUE_ID, "")]
            )
        )

    async def _queried(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int | None,
        count: int,
        words: Callable[[dict[str, str]], list[str]],
    ) -> list[StoredMessage]:
        self.counters.queries += 1
        hashed, below = key_hash(topic, key), None
        found: list[Record] = []
        while True:
            look = partial(_keyed, hashed, begin_ms, end_ms, below, count - len(found))
            named, below = await self._rows.look(look)
            for raw in await self._finding.dispatched(named):
                record = unpack(raw, sums=False)
                if record.topic == topic and key in words(record.properties):
                    found.append(record)
                else:
                    self.counters.key_collisions += 1
            if below is None or len(found) == count:
                return [self._given(record) for record in sorted(found, key=lambda record: record.offset)]

    async def _untrimmed(self, read: Callable[[], Awaitable[T]]) -> T:
        """Reads again where a trim took what rows had named."""
        for _again in range(TRIMS_MAX):
            try:
                return await read()
            except LogTrimmed:
                await self._rows.more(TURN_S)  # until the begin is known here, too
        return await read()


def _check(topic: str, queue: int) -> None:
    """`ValueError` for what can't be a queue."""
    if not 0 <= queue < QUEUES_MAX or len(topic.encode()) > TOPIC_BYTES_MAX:
        raise ValueError(f"a queue is 0 to {QUEUES_MAX - 1}, and a topic has {TOPIC_BYTES_MAX} bytes at most")


def _keyed(
    hashed: int, begin_ms: int, end_ms: int | None, below: int | None, count: int, rows: Lookup
) -> tuple[Named, int | None]:
    """Looks as `Lookup.keyed`, and for the entries that hold what it found."""
    offsets, below = rows.keyed(hashed, begin_ms, end_ms, below, count)
    return Named.by(rows, offsets), below


def _judged(position: int, bounds: Bounds) -> Pulled | None:
    """The outcome of a pull at a position where no message is."""
    low, high = bounds
    if high == 0:
        return Pulled(NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if position < low:
        return Pulled(OFFSET_TOO_SMALL, low, low, high, [])
    if position == high:
        return Pulled(OFFSET_OVERFLOW_ONE, high, low, high, [])
    return Pulled(OFFSET_OVERFLOW_BADLY, high, low, high, []) if position > high else None


def _chosen(
    rows: list[QueueRow], position: int, max_messages: int, max_bytes: int, codes: frozenset[int]
) -> tuple[list[QueueRow], int]:
    """The rows that a pull reads, and the position behind what it has looked at."""
    chosen: list[QueueRow] = []
    size, looked = 0, position
    for row in rows:
        if not codes or row.tags_code in codes:
            size += row.size
            if len(chosen) == max_messages or (chosen and size > max_bytes):
                break
            chosen.append(row)
        looked = row.next
    return chosen, looked
