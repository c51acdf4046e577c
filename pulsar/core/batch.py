"""
Messages as columns: what the entries of a topic hold, a list for each column.

The payload of a batch is, for each message: 4 bytes, the size of its metadata; the metadata; its value.  A payload is
compressed as a whole, and encrypted as a whole behind that.

Knows: which column is which field; the messages of a batch, also of one that was compacted or partly acknowledged.
Does not know: entries, how something is decompressed.

A run of messages that differ in number and value only, as a producer without keys sends them, is cut by slices of the
payload, not one by one.
"""

import binascii
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any, NamedTuple

from quire.protocol.schema import parsed
from quire.pulsar.core import schema
from quire.pulsar.core.entry import Frame
from quire.pulsar.core.managed import Decompress
from quire.pulsar.core.positions import PassedOver, Position

# SPDX-License-Identifier: Apache-2.0

SIZE = struct.Struct(">I")
PAYLOAD_BYTES_MAX = 1 << 30  # of a payload that is decompressed
MESSAGE_BYTES = 64  # of a message beside key and value, about
RUN_MIN = 4  # messages that are worth a run
HEAD_MAX = 64  # bytes of the metadata of a message in a run
DIGITS_MAX = 9  # of a number below 2^63, in base 128
FIELD_KEY, FIELD_SIZE, FIELD_SEQUENCE = 0x12, 0x18, 0x40  # the first bytes of these fields of a message's metadata
TOP_BIT = bytes(byte >> 7 for byte in range(256))
NO_PROPERTIES: Mapping[str, str] = {}


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
OF_MESSAGE = ("key", "ordering_key", "value", "properties", "event_ms", "sequence_id")
OF_ENTRY = tuple(name for name in COLUMNS if name not in {*OF_MESSAGE, "batch_index", "topic_index"})


class Rows:
    """The columns of one entry that differ from message to message."""

    __slots__ = ("events", "indexes", "keys", "ordering_keys", "properties", "sequences", "values")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.keys: list[bytes | None] = []
        self.ordering_keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.properties: list[Mapping[str, str]] = []
        self.events: list[int | None] = []
        self.sequences: list[int] = []

    def add(self, index: int, metadata: Any, value: bytes, sequence: int) -> None:
        """One message; `metadata`: of it, or of the entry that is it."""
        self.indexes.append(index)
        self.keys.append(key_of(metadata))
        self.ordering_keys.append(metadata.ordering_key if metadata.HasField("ordering_key") else None)
        self.values.append(None if metadata.null_value else value)
        self.properties.append(schema.texts(metadata.properties) if metadata.properties else NO_PROPERTIES)
        self.events.append(metadata.event_time or None)
        self.sequences.append(sequence)

    def add_plain(self, index: int, key: bytes | None, value: bytes, sequence: int) -> None:
        """One message of a batch that has nothing else."""
        self.indexes.append(index)
        self.keys.append(key)
        self.ordering_keys.append(None)
        self.values.append(value)
        self.properties.append(NO_PROPERTIES)
        self.events.append(None)
        self.sequences.append(sequence)

    def columns(self) -> Iterator[Sequence[Any]]:
        """In the order of `OF_MESSAGE`."""
        return iter((self.keys, self.ordering_keys, self.values, self.properties, self.events, self.sequences))


def key_of(metadata: Any) -> bytes | None:
    """The key of a message or a batch."""
    if metadata.null_partition_key or not metadata.HasField("partition_key"):
        return None
    key: bytes = metadata.partition_key
    if metadata.partition_key_b64_encoded:
        try:
            return binascii.a2b_base64(key)
        except ValueError:
            return key
    return key


class MessageBatch:
    """
    Messages as columns.  `counts`: how many messages each entry has here; `of_entries`: the columns that have one value
    for each entry, `of_messages`: the others.  `bytes`: of keys and values, and something for each message; `passed`:
    what was passed over since the batch before.
    """

    __slots__ = ("bytes", "counts", "of_entries", "of_messages", "passed")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.of_entries: dict[str, list[Any]] = {name: [] for name in OF_ENTRY}
        self.of_messages: dict[str, list[Any]] = {name: [] for name in COLUMNS if name not in OF_ENTRY}
        self.bytes = 0
        self.passed: list[PassedOver] = []

    def __len__(self) -> int:
        return len(self.of_messages["value"])

    def column(self, name: str) -> list[Any]:
        """A field of `Message`, for each message."""
        if name in self.of_messages:
            return self.of_messages[name]
        return list(chain.from_iterable(map(repeat, self.of_entries[name], self.counts)))

    def messages(self) -> list[Message]:
        """The rows."""
        return list(map(Message._make, zip(*map(self.column, COLUMNS), strict=True)))

    def add(
        self, topic: str, frame: Frame, decompress: Decompress, first: int = 0, unacknowledged: int | None = None
    ) -> None:
        """
        Adds the messages of an entry, from the index `first` of its batch on; `unacknowledged`: a bit for each that is
        wanted.  `MessageDamaged`, `NotRead`: nothing was added.
        """
        metadata = frame.metadata
        size = metadata.num_messages_in_batch if frame.is_batch else 1
        if frame.is_encrypted:
            rows = Rows()
            rows.add(-1, metadata, frame.payload, metadata.sequence_id)
            first, unacknowledged = 0, None
        else:
            rows = rows_of(frame, payload_of(frame, decompress), size)
        if first > 0 or unacknowledged is not None:
            bits = -1 if unacknowledged is None else unacknowledged
            rows = chosen(rows, [index < 0 or (index >= first and bool(bits >> index & 1)) for index in rows.indexes])
        self._extend(topic, frame, rows, size)

    def _extend(self, topic: str, frame: Frame, rows: Rows, size: int) -> None:
        count = len(rows.indexes)
        if not count:
            return
        metadata, entries, columns = frame.metadata, self.of_entries, self.of_messages
        self.counts.append(count)
        for name, value in {
            "topic": topic,
            "ledger": frame.position.ledger,
            "entry": frame.position.entry,
            "batch_size": size,
            "publish_ms": metadata.publish_time,
            "producer": schema.text(metadata.producer_name),
            "schema_version": metadata.schema_version if metadata.HasField("schema_version") else None,
            "broker_ms": frame.broker_ms,
            "replicated_from": schema.text(metadata.replicated_from) if metadata.HasField("replicated_from") else None,
            "encrypted": frame.is_encrypted,
        }.items():
            entries[name].append(value)
        columns["batch_index"] += rows.indexes
        for name, values in zip(OF_MESSAGE, rows.columns(), strict=True):
            columns[name] += values
        if frame.topic_index is None:
            columns["topic_index"].extend(repeat(None, count))
        else:
            last = frame.topic_index  # the broker names the number of the last one
            columns["topic_index"].extend(last if index < 0 else last - size + 1 + index for index in rows.indexes)
        self.bytes += MESSAGE_BYTES * count + sum(map(len, filter(None, rows.values)))
        self.bytes += sum(map(len, filter(None, rows.keys)))


def chosen(rows: Rows, wanted: list[bool]) -> Rows:
    """Returns the rows that are wanted."""
    found = Rows()
    for name in Rows.__slots__:
        setattr(found, name, list(compress(getattr(rows, name), wanted)))
    return found


def payload_of(frame: Frame, decompress: Decompress) -> bytes:
    """The payload of an entry that is not encrypted, decompressed; `MessageDamaged`, `NotRead`."""
    metadata = frame.metadata
    if not metadata.compression:
        return frame.payload
    size = metadata.uncompressed_size
    if size > PAYLOAD_BYTES_MAX:
        raise schema.damaged(frame.position.place, f"it names {size} bytes of payload")
    try:
        return decompress(metadata.compression, frame.payload, size)
    except ValueError as error:
        raise schema.damaged(frame.position.place, f"its payload can't be decompressed: {error}") from None


def rows_of(frame: Frame, payload: bytes, size: int) -> Rows:
    """The messages of a payload; those that a compaction took out are left out.  `MessageDamaged`."""
    rows, metadata = Rows(), frame.metadata
    if not frame.is_batch:
        rows.add(-1, metadata, payload, metadata.sequence_id)
        return rows
    at = index = 0
    alone = 0  # messages to be read one by one before the next look for a run
    patience = 1
    while index < size:
        if alone <= 0 and size - index >= RUN_MIN:
            count, end = run_of(rows, payload, at, index, size - index)
            if count:
                at, index, patience = end, index + count, 1
                continue
            patience = min(2 * patience, 1 << 10)
            alone = patience
        alone -= 1
        begin = at + SIZE.size
        end = begin + SIZE.unpack_from(payload, at)[0] if begin <= len(payload) else -1
        found = quick(payload, begin, end) if begin < end < len(payload) else None
        if found is not None and end + found[1] <= len(payload):
            key, length, number = found
            at = end + length
            rows.add_plain(index, key, payload[end:at], metadata.sequence_id if number is None else number)
            index += 1
            continue
        single = parsed(schema.SingleMessageMetadata, payload[begin:end]) if begin <= end <= len(payload) else None
        if single is None or not 0 <= single.payload_size <= len(payload) - end:
            raise schema.damaged(frame.position.place, f"message {index} of {size} of its batch can't be read")
        at = end + single.payload_size
        if not single.compacted_out:
            sequence = single.sequence_id if single.HasField("sequence_id") else metadata.sequence_id
            rows.add(index, single, payload[end:at], sequence)
        index += 1
    return rows


def quick(payload: bytes, at: int, end: int) -> tuple[bytes | None, int, int | None] | None:
    """
    Reads the metadata of a message that has a short key or none, the size of its value, and a number or none, and
    nothing else: most have.  None: it has more, or can't be read so.  `end` is before the end of the payload.
    """
    key, number = None, None
    tag = payload[at]
    if tag == FIELD_KEY:
        begin = at + 2
        at = begin + payload[at + 1]
        if at >= end or payload[begin - 1] > 127:
            return None
        key = payload[begin:at]
        tag = payload[at]
    if tag != FIELD_SIZE:
        return None
    length, at = varint(payload, at + 1, end)
    if 0 < at < end and payload[at] == FIELD_SEQUENCE:
        number, at = varint(payload, at + 1, end)
    return (key, length, number) if at == end else None


def varint(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads a number below 2^63 that ends before `end`, and the place behind it: -1 where there is none."""
    number = shift = 0
    while at < end:
        digit = payload[at]
        at += 1
        if digit < 128:
            return (number | digit << shift, at) if shift < DIGITS_MAX * 7 else (0, -1)
        number |= (digit & 127) << shift
        shift += 7
    return 0, -1


def run_of(rows: Rows, payload: bytes, at: int, index: int, most: int) -> tuple[int, int]:
    """
    Takes messages from `at` on as long as all bytes before their values are those of the first one, but for their
    sequence numbers, which have equally many bytes; how many these were, and where they end.
    """
    begin = at + SIZE.size
    if begin >= len(payload):
        return 0, at
    size = SIZE.unpack_from(payload, at)[0]
    metadata = payload[begin : begin + size]
    single = parsed(schema.SingleMessageMetadata, metadata) if 0 < size == len(metadata) < HEAD_MAX else None
    if single is None or metadata[0] != FIELD_SIZE or single.payload_size < 0:
        return 0, at
    fixed = 2
    while fixed < size and metadata[fixed - 1] >= 0x80:
        fixed += 1
    if fixed >= size or metadata[fixed] != FIELD_SEQUENCE or metadata[-1] >= 0x80:
        return 0, at
    digits = range(SIZE.size + fixed + 1, SIZE.size + size)
    if len(digits) > DIGITS_MAX or any(payload[at + digit] < 0x80 for digit in digits[:-1]):
        return 0, at  # another field follows
    stride = SIZE.size + size + single.payload_size
    count = min(most, (len(payload) - at) // stride)
    for offset in range(SIZE.size + fixed + 1):
        if count < RUN_MIN:
            return 0, at
        column = payload[at + offset : at + count * stride : stride]
        count -= len(column.lstrip(column[:1]))
    numbers = [payload[at + digit : at + count * stride : stride] for digit in digits]
    for column in numbers[:-1]:
        count = min(count, len(column) - len(column.translate(TOP_BIT).lstrip(b"\1")))
    if numbers:
        count = min(count, len(numbers[-1]) - len(numbers[-1].translate(TOP_BIT).lstrip(b"\0")))
    if count < RUN_MIN:
        return 0, at
    end = at + count * stride
    length = single.payload_size
    rows.indexes += range(index, index + count)
    values = range(begin + size, begin + size + count * stride, stride)
    rows.values += [payload[each : each + length] for each in values]
    rows.sequences += numbers_of([column[:count] for column in numbers])
    rows.keys += [None] * count
    rows.ordering_keys += [None] * count
    rows.properties += [NO_PROPERTIES] * count
    rows.events += [None] * count
    return count, end


def numbers_of(columns: list[bytes]) -> list[int]:
    """Numbers of base 128, of which each column has one digit, the lowest first."""
    if len(columns) == 1:
        return list(columns[0])
    if len(columns) == 2:
        return [low & 127 | high << 7 for low, high in zip(*columns, strict=True)]
    if len(columns) == 3:
        return [low & 127 | (middle & 127) << 7 | high << 14 for low, middle, high in zip(*columns, strict=True)]
    found = [0] * len(columns[0])
    for place, column in enumerate(columns):
        shift = 7 * place
        found = [number | (digit & 127) << shift for number, digit in zip(found, column, strict=True)]
    return found
