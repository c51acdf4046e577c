"""
The messages of a batch: for each, 4 bytes, the size of its metadata; the metadata; its value.

Three readers, the faster ones for what most batches have: a run of messages of one shape, which differ in bytes at the
same places only, is cut by slices of the payload; messages with properties, key, size, event time and number in the
usual order, all short, are read byte by byte; what is left is read by the parser of protobuf.

Knows: the metadata of one message.  Does not know: entries, what a batch becomes.
Safety: all three give the same of the same bytes, or leave a message to the next one; what that can't read is refused.
"""

import struct
from collections.abc import Iterator, Mapping
from itertools import compress
from typing import NamedTuple

from quire.protocol.schema import parsed
from quire.pulsar.core import schema
from quire.pulsar.core.head import HEAD_MAX, NO_PROPERTIES, ONE_BYTE, key_of, properties_of, varint

# SPDX-License-Identifier: Apache-2.0

SIZE = struct.Struct(">I")
RUN_MIN = 16  # messages that are worth a run
PATIENCE_MAX = 1 << 10  # messages that are read one by one between two looks for a run
PROPERTY, KEY, LENGTH, EVENT, BASE64, NUMBER = 0x0A, 0x12, 0x18, 0x28, 0x30, 0x40  # the first bytes of fields
TOP_BIT = bytes(byte >> 7 for byte in range(256))


class Rows:
    """Messages as columns.  `sequences`: their numbers; `indexes`: in their batches, -1 for a message of its own."""

    __slots__ = ("events", "indexes", "keys", "ordering_keys", "properties", "sequences", "values")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.keys: list[bytes | None] = []
        self.ordering_keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.properties: list[Mapping[str, str]] = []
        self.events: list[int | None] = []
        self.sequences: list[int] = []

    def __len__(self) -> int:
        return len(self.indexes)

    def keep(self, begin: int, wanted: list[bool]) -> None:
        """Leaves of the messages from `begin` on those that are wanted."""
        for name in self.__slots__:
            column = getattr(self, name)
            column[begin:] = compress(column[begin:], wanted)

    def cut(self, count: int) -> None:
        """Leaves the first ones."""
        for name in self.__slots__:
            del getattr(self, name)[count:]


def add_batch(rows: Rows, payload: bytes, size: int, sequence: int) -> None:
    """
    Adds the messages of a batch but those that a compaction took out; `sequence`: the number of those without one.
    `ValueError`: a message can't be read.
    """
    at = index = 0
    patience = 1
    while index < size:
        if size - index >= RUN_MIN:
            count, at = add_run(rows, payload, at, index, size - index, sequence)
            if count:
                index, patience = index + count, 1
                continue
            patience = min(2 * patience, PATIENCE_MAX)
        else:
            patience = size
        stop = min(size, index + patience)
        while index < stop:
            index, at = add_usual(rows, payload, at, index, stop, sequence)
            if index < stop:
                at = add_any(rows, payload, at, index, sequence)
                index += 1


def add_any(rows: Rows, payload: bytes, at: int, index: int, sequence: int) -> int:
    """Adds one message, by the parser; the place behind it."""
    begin = at + SIZE.size
    end = begin + SIZE.unpack_from(payload, at)[0] if begin <= len(payload) else -1
    found = parsed(schema.SingleMessageMetadata, payload[begin:end]) if begin <= end <= len(payload) else None
    if found is None or not 0 <= found.payload_size <= len(payload) - end:
        raise ValueError(f"message {index}")
    stop: int = end + found.payload_size
    if not found.compacted_out:
        has_key = found.HasField("partition_key")
        rows.indexes.append(index)
        rows.keys.append(
            key_of(found.partition_key, found.partition_key_b64_encoded, found.null_partition_key) if has_key else None
        )
        rows.ordering_keys.append(found.ordering_key if found.HasField("ordering_key") else None)
        rows.values.append(None if found.null_value else payload[end:stop])
        rows.properties.append(schema.texts(found.properties) if found.properties else NO_PROPERTIES)
        rows.events.append(found.event_time or None)
        rows.sequences.append(found.sequence_id if found.HasField("sequence_id") else sequence)
    return stop


def add_usual(rows: Rows, payload: bytes, at: int, index: int, stop: int, sequence: int) -> tuple[int, int]:
    """
    Adds messages up to the index `stop`, or the first one that has other fields than most; the index and the place
    where it ends.  Nothing is called for a message without properties: that would take as long as all the rest.
    """
    head_size, total = SIZE.unpack_from, len(payload)
    begun = index
    add_key, add_value, add_number = rows.keys.append, rows.values.append, rows.sequences.append
    add_properties, add_event = rows.properties.append, rows.events.append
    try:
        while index < stop:
            place = at + 4
            end = place + head_size(payload, at)[0]
            tag = payload[place]
            key, properties, event = None, NO_PROPERTIES, None
            if tag == PROPERTY:
                properties, place = properties_of(payload, place, PROPERTY)
                if place < 0:
                    break
                tag = payload[place]
            if tag == KEY:
                begin = place + 2
                size = payload[begin - 1]
                if size >= ONE_BYTE:
                    break
                place = begin + size
                key = payload[begin:place]
                tag = payload[place]
            if tag != LENGTH:
                break
            length = payload[place + 1]
            place += 2
            if length >= ONE_BYTE:
                digit = payload[place]
                place += 1
                length += (digit - 1) << 7
                if digit >= ONE_BYTE:
                    length, place = longer(payload, length, place, end)
            if place < end and payload[place] == EVENT:
                event, place = varint(payload, place + 1, end)
                if place < 0:
                    break
            if place < end and payload[place] == BASE64:
                flag = payload[place + 1]
                if flag > 1:
                    break
                if flag and key is not None:
                    key = key_of(key, True, False)
                place += 2
            number = sequence
            if place < end:
                if payload[place] != NUMBER:
                    break
                number = payload[place + 1]
                place += 2
                if number >= ONE_BYTE:
                    digit = payload[place]
                    place += 1
                    number += (digit - 1) << 7
                    if digit >= ONE_BYTE:
                        number, place = longer(payload, number, place, end)
            if place != end:
                break
            end += length
            if end > total:
                break
            add_key(key)
            add_value(payload[place:end])
            add_number(number)
            add_properties(properties)
            add_event(event or None)
            at = end
            index += 1
    except (IndexError, struct.error):
        pass  # it goes past the end
    rows.indexes += range(begun, index)
    rows.ordering_keys += [None] * (index - begun)
    return index, at


def longer(payload: bytes, number: int, place: int, end: int) -> tuple[int, int]:
    """Reads the digits of a number behind the first two, and the place behind it: past `end` where it is too large."""
    more, place = varint(payload, place, end)
    return number + ((more - 1) << 14), place if place > 0 and more >> 49 == 0 else end + 1


class Shape(NamedTuple):
    """
    A message by the places of what may differ in others of its shape, each from the begin of the message on; these are
    `size` bytes long each, the last of them the value, from `value` on.
    """

    names: list[str]  # of properties
    texts: list[range]
    key: range | None
    is_base64: bool  # the key
    event: range
    number: range
    value: int
    size: int

    def fixed(self) -> Iterator[int]:
        """Yields the places of all bytes that are the same in others."""
        loose = {*self.event, *self.number}.union(*self.texts, self.key or ())
        return (place for place in range(self.value) if place not in loose)


def shape_of(payload: bytes, at: int) -> Shape | None:
    """The shape of a message that `add_usual` would take; None for another."""
    if len(payload) < at + SIZE.size:
        return None
    size = SIZE.size + SIZE.unpack_from(payload, at)[0]
    head = payload[at : at + size]
    if not SIZE.size < len(head) == size < HEAD_MAX:
        return None
    names: list[str] = []
    texts: list[range] = []
    key, place = None, SIZE.size
    try:
        if head[place] == PROPERTY:
            properties, stop = properties_of(head, place, PROPERTY)
            names = [*properties]
            while place < stop:
                end = place + 2 + head[place + 1]
                texts.append(range(place + 6 + head[place + 3], end))
                place = end
            if stop < 0 or len(texts) != len(names):
                return None
        if head[place] == KEY:
            key = range(place + 2, place + 2 + head[place + 1])
            if len(key) >= ONE_BYTE:
                return None
            place = key.stop
        if head[place] != LENGTH:
            return None
    except IndexError:
        return None
    length, place = varint(head, place + 1, size)
    event = number = range(0)
    is_base64 = False
    if 0 < place < size and head[place] == EVENT:
        event = range(place + 1, varint(head, place + 1, size)[1])
        place = event.stop
    if 0 < place < size and head[place] == BASE64:
        flag = head[place + 1 : place + 2]
        is_base64 = flag == b"\1"
        place = place + 2 if flag in (b"\0", b"\1") and flag else -1
    if 0 < place < size and head[place] == NUMBER:
        number = range(place + 1, varint(head, place + 1, size)[1])
        place = number.stop
    return Shape(names, texts, key, is_base64, event, number, size, size + length) if place == size else None


def add_run(rows: Rows, payload: bytes, at: int, index: int, most: int, sequence: int) -> tuple[int, int]:
    """
    Adds messages from `at` on as long as they have the shape of the first one; how many these were, 0 where they are
    too few, and where they end.
    """
    shape = shape_of(payload, at)
    if shape is None:
        return 0, at
    stride = shape.size
    last = at + (RUN_MIN - 1) * stride
    count = min(most, (len(payload) - at) // stride)
    if payload[at : at + SIZE.size + 2] != payload[last : last + SIZE.size + 2]:
        return 0, at
    for place in shape.fixed():
        if count < RUN_MIN:
            return 0, at
        column = payload[at + place : at + count * stride : stride]
        count -= len(column.lstrip(column[:1]))
    parts = []
    for part in (shape.event, shape.number):
        columns = [payload[at + digit : at + count * stride : stride] for digit in part]
        parts.append(columns)
        for column in columns:
            end = b"\0" if column is columns[-1] else b"\1"  # of the last digit the highest bit is 0
            count = min(count, len(column) - len(column.translate(TOP_BIT).lstrip(end)))
    if count < RUN_MIN:
        return 0, at
    events, numbers = (numbers_of([column[:count] for column in columns]) for columns in parts)

    def column_of(part: range) -> list[bytes]:
        size, begin = len(part), at + part.start
        return [payload[each : each + size] for each in range(begin, begin + count * stride, stride)]

    rows.indexes += range(index, index + count)
    if shape.key is None:
        rows.keys += [None] * count
    elif shape.is_base64:
        rows.keys += [key_of(each, True, False) for each in column_of(shape.key)]
    else:
        rows.keys += column_of(shape.key)
    rows.values += column_of(range(shape.value, stride))
    if shape.names:
        texts = [map(schema.text, column_of(part)) for part in shape.texts]
        rows.properties += [dict(zip(shape.names, each, strict=True)) for each in zip(*texts, strict=True)]
    else:
        rows.properties += [NO_PROPERTIES] * count
    rows.sequences += numbers or [sequence] * count
    rows.events += [event or None for event in events] or [None] * count
    rows.ordering_keys += [None] * count
    return count, at + count * stride


def numbers_of(columns: list[bytes]) -> list[int]:
    """Numbers of base 128, of which each column has one digit, the lowest first; none without columns."""
    if not columns:
        return []
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
