"""
The values of one file of a RocketMQ store, found one behind the other in its bytes.

A record is valid if its magic, size, lengths, physical offset, body CRC and CRC property, if it has one, are right, its
topic is UTF-8, and it ends 8 bytes or more before the file does; an entry, if place, size, index and term are, too, and
its record is valid.  A record that was not written to its end has zeros there: so none in its topic, and none at the
end of its properties.  That is all that the format can tell: a changed byte in, say, a flag or a host has no sum.

Knows: what is valid, and where a value has to begin behind another one.
Does not know: files and how they are read, queues, what is done about bytes that are not valid.
Safety: a value is given only if all of it was looked at.
"""

import struct
from collections.abc import Iterator
from zlib import crc32

from quire.messages.core.layout import (
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    ENTRY_MAGIC,
    FILLER_BYTES,
    MAGICS,
    Rule,
    filler_at,
)
from quire.messages.core.record import (
    CRC_NAME,
    CRC_PROPERTY_BYTES,
    PROPERTIES_BYTES_MAX,
    SHORT,
    SIGNLESS,
    SIZE_MIN,
    TOPIC_BYTES_MAX,
    V1,
    V1_TOPIC_BYTES_MAX,
    V2,
    Flag,
    crc_property,
)

# SPDX-License-Identifier: Apache-2.0

VALUE_BYTES_MAX = 63 << 20  # what a record of a log can be
REST_MIN, REST_MAX = 3, 4 + TOPIC_BYTES_MAX + PROPERTIES_BYTES_MAX  # topic and properties with their lengths
IPV6 = int(Flag.BORN_IPV6 | Flag.STORE_IPV6)  # a plain int, which takes a tenth of the time
CRC_FIRST = CRC_NAME[0]
INNER = b"INNER_"  # properties of inner batches, and of messages that light queues hold, begin so
MAGIC_BEGIN = MAGICS[0][:3]
CANDIDATE_BYTES = ENTRY_HEADER_BYTES + 36  # that show whether a value may begin there


def _head(born_bytes: int, store_bytes: int) -> struct.Struct:
    """Up to the body: size, magic, CRC, queue, queue offset, physical offset, flags, store time, body's length."""
    return struct.Struct(f">IIIi4xqqi{8 + born_bytes + 4}xq{store_bytes + 4}x4x8xi")


HEAD = _head(4, 4)
HEADS = {
    int(Flag.BORN_IPV6): _head(16, 4),
    int(Flag.STORE_IPV6): _head(4, 16),
    IPV6: _head(16, 16),
}


# A valid value: where in the data it begins; its size, a header included; its record's topic, queue, queue offset,
# system flag and store time; False where its properties have to be looked at (`INNER`).  Plain: there are millions.
Seen = tuple[int, int, str, int, int, int, int, bool]


class Walk:
    """
    A walk through the values of one file, from the place `place` on.  `last`: index and term of the entry before; -1:
    there is none, and any will do.

    Behind each call of `values`, `place` is where the walk stopped, and `needed` how many bytes from there on it takes
    to go on; 0: whatever comes, no valid value begins there.
    """

    __slots__ = (
        "_end",
        "_limit",
        "_rule",
        "index",
        "is_foreign",
        "is_too_large",
        "needed",
        "place",
        "records",
        "term",
        "topics",
    )

    def __init__(
        self, rule: Rule, place: int, end: int, last: tuple[int, int] = (-1, -1), stop: int | None = None
    ) -> None:
        """`end`: of the file; `stop`: no value that ends above it is wanted."""
        self._rule = rule
        self._end = end
        self._limit = end - FILLER_BYTES if stop is None else min(end - FILLER_BYTES, stop)
        self.place = place
        self.index, self.term = last
        self.needed = self._header_bytes if place + self._header_bytes <= self._limit else 0
        self.records = 0  # that were given
        self.is_too_large = False  # the value at `place` would be valid, but for its size
        self.is_foreign = False  # the entry at `place` would be valid, but for its magic
        self.topics: dict[bytes, str] = {}  # that were seen

    @property
    def _header_bytes(self) -> int:
        return HEAD.size + (ENTRY_HEADER_BYTES if self._rule == "dledger" else 0)

    def values(self, data: bytes, at: int = 0) -> Iterator[Seen]:
        """The values from `place` on, whose byte is data[at], as far as the data goes."""
        base, end = self.place - at, len(data)
        limit = self._limit - base
        over = ENTRY_HEADER_BYTES if self._rule == "dledger" else 0
        least = over + HEAD.size
        index, term, topics = self.index, self.term, self.topics
        view, unpack, unpack_short, find = memoryview(data), HEAD.unpack_from, SHORT.unpack_from, data.find
        entry_bytes = needed = records = 0
        head_bytes = HEAD.size
        while True:
            if at + least > end:
                needed = least
                break
            begin = at + over
            if over:
                magic, entry_bytes, index_here, term_here, place, zero, zero_2, zero_3, length = (
                    ENTRY_HEADER.unpack_from(data, at)
                )
                if place != base + at or entry_bytes != over + length or zero or zero_2 or zero_3:
                    break
                if (index_here != index + 1 and index >= 0) or index_here < 0 or term_here < term or term_here < 0:
                    break
                if magic != ENTRY_MAGIC:
                    self.is_foreign = True
                    break
            size, magic, body_crc, queue, queue_offset, offset, flags, store_ms, length = unpack(data, begin)
            if (magic != V1 and magic != V2) or offset != base + begin:  # noqa: PLR1714  # half the time of `in`
                break
            if flags & IPV6:
                head = HEADS[flags & IPV6]
                head_bytes = head.size
                if begin + head_bytes > end:
                    needed = over + head_bytes
                    break
                *_, store_ms, length = head.unpack_from(data, begin)
            stop = begin + size
            if length < 0 or not REST_MIN <= size - head_bytes - length <= REST_MAX or size < SIZE_MIN or stop > limit:
                break
            if over and entry_bytes != over + size:
                break
            if over + size > VALUE_BYTES_MAX:
                self.is_too_large = True
                break
            if stop > end:
                needed = over + size
                break
            body = begin + head_bytes
            topic_at = body + length
            if crc32(view[body:topic_at]) & SIGNLESS != body_crc:
                break
            if magic == V1:
                topic_bytes = data[topic_at]
                topic_at += 1
                if topic_bytes > V1_TOPIC_BYTES_MAX:
                    break
            else:
                topic_bytes = unpack_short(data, topic_at)[0]
                topic_at += 2
            topic_end = topic_at + topic_bytes
            properties_at = topic_end + 2
            if topic_bytes < 0 or properties_at > stop:
                break
            if properties_at + (data[topic_end] << 8 | data[topic_end + 1]) != stop:
                break
            if not data[stop - 1] and properties_at < stop:
                break
            name = data[topic_at:topic_end]
            topic = topics.get(name)
            if topic is None:
                try:
                    topic = topics[name] = name.decode()
                except UnicodeDecodeError:
                    break
                if 0 in name:
                    del topics[name]
                    break
            crc_at = stop - CRC_PROPERTY_BYTES
            if data[crc_at] == CRC_FIRST and crc_at >= properties_at and not _has_its_crc(data, begin, stop):
                break
            yield at, over + size, topic, queue, queue_offset, flags, store_ms, find(INNER, properties_at, stop) < 0
            if over:
                index, term = index_here, term_here
            head_bytes = HEAD.size
            at = stop
            records += 1
        self.place, self.index, self.term = base + at, index, term
        self.records += records
        self.needed = needed if at + needed <= limit else 0

    def filler(self, data: bytes, at: int) -> bool:
        """True if data[at], the byte at `place`, begins a filler of what the file has left."""
        return len(data) - at >= FILLER_BYTES and filler_at(self._rule, data, at) == self._end - self.place


def _has_its_crc(data: bytes, begin: int, stop: int) -> bool:
    """True if the CRC property at the end of a record is right, or its last property is another one."""
    crc_at = stop - CRC_PROPERTY_BYTES
    return not data.startswith(CRC_NAME, crc_at) or data[crc_at:stop] == crc_property(data[begin:crc_at])


def candidates(rule: Rule, data: bytes, place: int, least: int) -> Iterator[int]:
    """Where in the data values may begin, from `least` on, by magic and offset.  `place`: of its first byte."""
    over = ENTRY_HEADER_BYTES if rule == "dledger" else 0
    at = data.find(MAGIC_BEGIN, least + over + 4)
    while at >= 0:
        begin = at - 4
        if data[at : at + 4] in MAGICS and data[begin + 28 : begin + 36] == (place + begin).to_bytes(8, "big"):
            yield begin - over
        at = data.find(MAGIC_BEGIN, at + 1)
