"""
Messages as columns: what the entries of a topic hold, a list for each column.

A payload is compressed as a whole, and encrypted as a whole behind that.

Knows: which column is which field; which messages of a batch are wanted that was partly acknowledged.
Does not know: entries, the form of a batch, how something is decompressed.
"""

from collections.abc import Mapping
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from quire.pulsar.core import schema
from quire.pulsar.core.entry import Frame
from quire.pulsar.core.managed import Decompress
from quire.pulsar.core.positions import PassedOver, Position
from quire.pulsar.core.singles import Rows, add_batch

# SPDX-License-Identifier: Apache-2.0

PAYLOAD_BYTES_MAX = 1 << 30  # of a payload that is decompressed
MESSAGE_BYTES = 64  # of a message beside key and value, about


class Message(NamedTuple):
    """
    A message.  `key`: as bytes, decoded where it was base64; `value` None: there is none, which deletes the key of a
    compacted topic.  `publish_ms`, `event_ms`, `broker_ms`: ms since 1970.  `topic_index`: its number in the topic,
    where brokers count.  `encrypted`: `value` is the payload as it is stored, of `batch_size` messages together.
    """

    topic: str
    ledger: int
    entry: int
    batch_index: int
    batch_size: int
    key: bytes | None
    ordering_key: bytes | None
    value: bytes | None
    properties: Mapping[str, str]
    publish_ms: int
    event_ms: int | None
    producer: str
    sequence_id: int
    schema_version: bytes | None
    topic_index: int | None
    broker_ms: int | None
    replicated_from: str | None
    encrypted: bool

    @property
    def position(self) -> Position:
        """The place in the topic."""
        return Position(self.ledger, self.entry, self.batch_index)


COLUMNS = Message._fields
OF_ENTRY = (
    *("topic", "ledger", "entry", "batch_size", "publish_ms", "producer", "schema_version", "broker_ms"),
    *("replicated_from", "encrypted"),
)
OF_ROWS = {
    "batch_index": "indexes",
    "key": "keys",
    "ordering_key": "ordering_keys",
    "value": "values",
    "properties": "properties",
    "event_ms": "events",
    "sequence_id": "sequences",
}


class MessageBatch:
    """
    Messages as columns.  `counts`: how many messages each entry has here; `bytes`: about those that it takes;
    `passed`: what was passed over since the batch before.
    """

    __slots__ = ("_entries", "_rows", "_topic_indexes", "bytes", "counts", "passed")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._entries: list[tuple[Any, ...]] = []  # of each the values of `OF_ENTRY`
        self._rows = Rows()
        self._topic_indexes: list[int | None] = []
        self.bytes = 0
        self.passed: list[PassedOver] = []

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> list[Any]:
        """A field of `Message`, for each message."""
        if name in OF_ENTRY:
            return list(chain.from_iterable(map(repeat, self.of_entries(name), self.counts)))
        return self._topic_indexes if name == "topic_index" else getattr(self._rows, OF_ROWS[name])

    def of_entries(self, name: str) -> list[Any]:
        """A field that has one value for all messages of an entry (`OF_ENTRY`), for each entry."""
        return list(map(itemgetter(OF_ENTRY.index(name)), self._entries))

    def messages(self) -> list[Message]:
        """The rows."""
        return list(map(Message._make, zip(*map(self.column, COLUMNS), strict=True)))

    def add(
        self,
        topic: str,
        frame: Frame,
        decompress: Decompress,
        first: int = 0,
        unacknowledged: int | None = None,
        end: int | None = None,
    ) -> None:
        """
        Adds the messages of an entry, from the index `first` of its batch on, those before `end`; `unacknowledged`: a
        bit for each that is wanted.  `MessageDamaged`, `NotRead`: nothing was added.
        """
        head, rows = frame.head, self._rows
        begin, payload = len(rows), frame.payload
        if head.compression and not head.encrypted:
            payload = decompressed(frame, decompress)
        if head.is_batch and not head.encrypted:
            try:
                add_batch(rows, payload, head.size, frame.sequence_id)
            except ValueError as error:
                rows.cut(begin)
                text = f"{error} of {head.size} of its batch can't be read"
                raise schema.damaged((frame.ledger, frame.entry), text) from None
            if first > 0 or unacknowledged is not None or end is not None:
                bits = -1 if unacknowledged is None else unacknowledged
                wanted = range(first, head.size if end is None else end)
                rows.keep(begin, [index in wanted and bool(bits >> index & 1) for index in rows.indexes[begin:]])
        else:
            rows.indexes.append(-1)
            rows.keys.append(head.key(frame.key))
            rows.ordering_keys.append(head.ordering_key)
            rows.values.append(None if head.null_value else payload)
            rows.properties.append(frame.properties)
            rows.events.append(head.event_ms)
            rows.sequences.append(frame.sequence_id)
        count = len(rows) - begin
        if not count:
            return
        self.counts.append(count)
        self._entries.append(
            (
                topic,
                frame.ledger,
                frame.entry,
                head.size,
                frame.publish_ms,
                head.producer,
                head.schema_version,
                frame.broker_ms,
                head.replicated_from,
                head.encrypted,
            )
        )
        last = frame.topic_index  # the broker names the number of the last one
        if last is None:
            self._topic_indexes += [None] * count
        elif head.is_batch and not head.encrypted:
            self._topic_indexes += [last - head.size + 1 + index for index in rows.indexes[begin:]]
        else:
            self._topic_indexes.append(last)
        self.bytes += MESSAGE_BYTES * count + len(payload)


def decompressed(frame: Frame, decompress: Decompress) -> bytes:
    """The payload of an entry that is compressed and not encrypted; `MessageDamaged`, `NotRead`."""
    head = frame.head
    size = head.uncompressed_size
    if size > PAYLOAD_BYTES_MAX:
        raise schema.damaged((frame.ledger, frame.entry), f"it names {size} bytes of payload")
    try:
        return decompress(head.compression, frame.payload, size)
    except ValueError as error:
        raise schema.damaged((frame.ledger, frame.entry), f"its payload can't be decompressed: {error}") from None
