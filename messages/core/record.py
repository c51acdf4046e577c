"""
One record: what RocketMQ's commit log keeps of a message.

Big-endian; an IPv6 host has 16 bytes where 4 are shown:

    0   4   size of the record
    4   4   magic: daa320a7 (V1), or daa320ab (V2) with a topic above 127 bytes
    8   4   CRC-32 of the body & 7fffffff
    12  4   queue
    16  4   flag
    20  8   queue offset: its position in the queue
    28  8   physical offset: its place in the commit log
    36  4   system flag (`Flag`)
    40  8   born timestamp, ms since 1970
    48  4   born host; then its port, 4
    56  8   store timestamp
    64  4   store host; then its port, 4
    72  4   how often a consumer sent it back
    76  8   offset of the prepared record that a commit belongs to
    84  4   length of the body, and the body
        1   (V2: 2) length of the topic, and the topic, UTF-8
        2   length of the properties, and the properties: `name` 01 `value` 02, repeated; the last 02 may be missing

Of a property that is there twice the last one counts.  The CRC property is the last one, 20 bytes: `__CRC32#` 01, ten
decimal digits with the least significant first, 02; it is the CRC-32 & 7fffffff of the record without these bytes.

Knows: these bytes, RocketMQ's hashes and message ids.  Does not know: where a record is kept.
Safety: `unpack` gives a record only if its lengths add up and its sums are right.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from quire.protocol.message_errors import MessageIllegal, NotAMessage, PropertiesTooLong

# SPDX-License-Identifier: Apache-2.0

V1, V2 = MAGICS = 0xDAA320A7, 0xDAA320AB
# Up to the body, by the two bits of the system flag that say which host is IPv6: size, magic, CRC of the body, queue,
# queue offset, physical offset, system flag, store time, length of the body.
HEADS = tuple(struct.Struct(f">IIIi4xqqi{born + 12}xq{store + 16}xi") for store in (4, 16) for born in (4, 16))
SHORT, LONG = struct.Struct(">h"), struct.Struct(">q")
TWO_LONGS = struct.Struct(">qq")
PORT_AND_OFFSET = struct.Struct(">iq")
BEFORE_BORN_MS, PORT, PORT_AND_TIMES = struct.Struct(">iiqqi"), struct.Struct(">i"), struct.Struct(">iiq")
SIZE_MIN = 91
MAGIC_AT, BODY_CRC_AT, FLAG_AT, QUEUE_OFFSET_AT, OFFSET_AT, SYS_FLAG_AT = 4, 8, 16, 20, 28, 36
BORN_MS_AT, BORN_HOST_AT = 40, 48
TOPIC_BYTES_MAX, V1_TOPIC_BYTES_MAX, PROPERTIES_BYTES_MAX = 255, 127, 32_767
SIGNLESS = 0x7FFFFFFF
CRC_NAME = b"__CRC32#\x01"
CRC_PROPERTY_BYTES = 20
NAME_END, VALUE_END = "\x01", "\x02"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
LEVEL_DIGITS, INNER_NUM_DIGITS = 10, 5  # of Java's int and short
HASHED_AT_ONCE = 512
POWERS = tuple(pow(31, n, 1 << 32) for n in range(HASHED_AT_ONCE + 1))
DIGITS = b"0123456789abcdefghijklmnopqrstu"
REMAINDERS, QUOTIENTS = bytes(DIGITS[n % 31] for n in range(256)), bytes(DIGITS[n // 31] for n in range(256))


class Flag:
    """Bits of the system flag; plain numbers, for members of an enum make `&` of each record six times slower."""

    COMPRESSED = 0x1
    SEVERAL_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC  # both bits: a mask for the state of a transaction, too
    BORN_IPV6 = 0x10
    STORE_IPV6 = 0x20
    UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300  # both bits: a mask for the method, too


class Host(NamedTuple):
    """Address, 4 or 16 bytes, and port."""

    address: bytes
    port: int


class Record(NamedTuple):
    """
    The bytes of one record, and of its fields those that place it; the others are read from the bytes at each use.
    `body_end`: where in the bytes its body ends.
    """

    raw: bytes
    queue: int
    queue_offset: int
    offset: int
    sys_flag: int
    store_ms: int
    body_end: int
    topic: str
    raw_properties: bytes

    @property
    def size(self) -> int:
        return len(self.raw)

    @property
    def magic(self) -> int:
        return self._number(MAGIC_AT, 4)

    @property
    def body_crc(self) -> int:
        return self._number(BODY_CRC_AT, 4)

    @property
    def flag(self) -> int:
        return self._number(FLAG_AT, 4, signed=True)

    @property
    def born_ms(self) -> int:
        return self._number(BORN_MS_AT, 8, signed=True)

    @property
    def born_host(self) -> Host:
        return self._host(BORN_HOST_AT, Flag.BORN_IPV6)

    @property
    def store_host(self) -> Host:
        return self._host(BORN_HOST_AT + (28 if self.sys_flag & Flag.BORN_IPV6 else 16), Flag.STORE_IPV6)

    @property
    def reconsume_times(self) -> int:
        return self._number(self._head_bytes - 16, 4, signed=True)

    @property
    def prepared_offset(self) -> int:
        return self._number(self._head_bytes - 12, 8, signed=True)

    @property
    def body(self) -> bytes:
        return self.raw[self._head_bytes : self.body_end]

    @property
    def _head_bytes(self) -> int:
        return HEADS[self.sys_flag >> 4 & 3].size

    def _number(self, at: int, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.raw[at : at + size], "big", signed=signed)

    def _host(self, at: int, six: int) -> Host:
        end = at + (16 if self.sys_flag & six else 4)
        return Host(self.raw[at:end], self._number(end, 4, signed=True))

    @property
    def properties(self) -> dict[str, str]:
        """Parsed at each call."""
        return parse_properties(self.raw_properties)

    @property
    def message_id(self) -> str:
        return message_id(self.store_host, self.offset)

    @property
    def state(self) -> int:
        """The transaction's: 0, `Flag.PREPARED`, `Flag.COMMIT` or `Flag.ROLLBACK`."""
        return self.sys_flag & Flag.ROLLBACK

    def in_queue(self) -> bool:
        """False for a prepared or rollback record, which has no position in a queue."""
        state = self.sys_flag & Flag.ROLLBACK
        return not state or state == Flag.COMMIT

    def positions(self) -> int:
        """How many positions of its queue it takes: an inner batch that says its base takes one for each message."""
        if b"INNER_BASE" in self.raw_properties:
            properties = self.properties
            if "INNER_BASE" in properties:
                return max(1, _number_in(properties.get("INNER_NUM", ""), INNER_NUM_DIGITS))
        return 1

    def tags_code(self, properties: dict[str, str]) -> int:
        """Gives what a consume queue keeps of its tags; of a delayed record, when it is to be delivered."""
        if self.topic == SCHEDULE_TOPIC:
            level = _number_in(properties.get("DELAY", ""), LEVEL_DIGITS)
            if level:
                return self.store_ms + DELAYS_S[min(level, len(DELAYS_S)) - 1] * 1000
        return _tags_hash(properties.get("TAGS", ""))

    def keys(self, properties: dict[str, str]) -> list[str]:
        """The keys by which it is found: its unique id and each word of KEYS; none of a rollback record."""
        if self.sys_flag & Flag.ROLLBACK == Flag.ROLLBACK:
            return []
        unique, words = properties.get("UNIQ_KEY"), properties.get("KEYS")
        found = [unique] if unique else []
        if words:
            found += filter(None, words.split(" ")) if " " in words else (words,)
        return found


def unpack(data: bytes, at: int = 0, *, sums: bool = True) -> Record:
    """
    The record that begins at `at`; `NotAMessage` says what is wrong.  Without `sums` these are not looked at: for what
    was verified, and where all must take what one has taken.
    """
    left = len(data) - at
    try:
        head = HEADS[data[at + SYS_FLAG_AT + 3] >> 4 & 3]
        size, magic, body_crc, queue, queue_offset, offset, sys_flag, store_ms, length = head.unpack_from(data, at)
    except (struct.error, IndexError):
        raise NotAMessage(f"{left} bytes are left, a record has at least {SIZE_MIN}") from None
    if magic not in MAGICS:
        raise NotAMessage(f"its magic is {magic:08x}, not {V1:08x} or {V2:08x}")
    if not SIZE_MIN <= size <= left:
        raise NotAMessage(f"its size is {size}, with {left} bytes left")
    if length < 0:
        raise NotAMessage(f"the length of its body is {length}")
    raw = data if size == left and not at else data[at : at + size]
    begin = head.size
    body_end = begin + length
    try:
        if magic == V1:
            topic_bytes, place = raw[body_end], body_end + 1
        else:
            topic_bytes, place = SHORT.unpack_from(raw, body_end)[0], body_end + 2
        topic_end = place + topic_bytes
        topic = raw[place:topic_end]
        properties_bytes = SHORT.unpack_from(raw, topic_end)[0]
    except (struct.error, IndexError):
        raise NotAMessage(f"its lengths lead beyond its size, {size}") from None
    if topic_bytes < 0 or properties_bytes < 0 or (magic == V1 and topic_bytes > V1_TOPIC_BYTES_MAX):
        raise NotAMessage("the length of its topic or properties is negative")
    place = topic_end + 2
    if place + properties_bytes != size:
        raise NotAMessage(f"its lengths add up to {place + properties_bytes}, its size is {size}")
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        raise NotAMessage("its topic is not UTF-8") from None
    properties = raw[place:]
    if sums:
        if crc32(raw[begin:body_end]) & SIGNLESS != body_crc:
            raise NotAMessage("the CRC of its body is wrong")
        if CRC_NAME in properties:
            _check_crc_property(raw, properties)
    # not by the named tuple's own, which is a function of Python
    return tuple.__new__(Record, (raw, queue, queue_offset, offset, sys_flag, store_ms, body_end, name, properties))


def _check_crc_property(raw: bytes, properties: bytes) -> None:
    """Verifies the CRC property, if the last property is one."""
    last = properties[-CRC_PROPERTY_BYTES:]
    if not last.startswith(CRC_NAME):
        return
    if last != crc_property(raw[:-CRC_PROPERTY_BYTES]):
        raise NotAMessage("the CRC in its properties is wrong")


def crc_property(rest: bytes) -> bytes:
    """The CRC property of a record, by its bytes before it."""
    return CRC_NAME + f"{crc32(rest) & SIGNLESS:010d}"[::-1].encode() + b"\x02"


class Form(NamedTuple):
    """
    The bytes that are the same in all records that differ in body, properties, and when they were born alone.
    `behind_born_ms`: from the host to the length of the body; `fixed_bytes`: of a record without body and properties.
    """

    head: struct.Struct
    magic: int
    before_born_ms: bytes
    behind_born_ms: bytes
    topic: bytes
    has_crc: bool
    fixed_bytes: int

    def record(self, body: bytes, born_ms: int, properties: bytes) -> bytes:
        """The bytes of one; `PropertiesTooLong`."""
        head, magic, before, behind, topic, has_crc, fixed_bytes = self
        if has_crc and properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        count, properties_bytes = len(body), len(properties)
        size = fixed_bytes + count + properties_bytes
        if has_crc:
            properties_bytes += CRC_PROPERTY_BYTES
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLong(f"the properties need {properties_bytes} bytes: at most {PROPERTIES_BYTES_MAX} fit")
        start = head.pack(size, magic, crc32(body) & SIGNLESS, before, born_ms, behind, count)
        made = b"".join((start, body, topic, SHORT.pack(properties_bytes), properties))
        return made + crc_property(made) if has_crc else made


def form(
    topic: str,
    *,
    queue: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    offset: int = 0,
    sys_flag: int = 0,
    born_host: Host,
    store_ms: int = 0,
    store_host: Host,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    with_crc: bool = False,
    magic: int | None = None,
) -> Form:
    """
    The form of such records.  `with_crc`: with the CRC property behind the properties.  `magic`: by the topic's length,
    unless given.  `MessageIllegal` for a topic that is empty or above 255 bytes.
    """
    name = topic.encode()
    if not 0 < len(name) <= TOPIC_BYTES_MAX:
        raise MessageIllegal(f"the topic has {len(name)} bytes: 1 to {TOPIC_BYTES_MAX} are possible")
    if magic is None:
        magic = V2 if len(name) > V1_TOPIC_BYTES_MAX else V1
    if len(born_host.address) == 16:
        sys_flag |= Flag.BORN_IPV6
    if len(store_host.address) == 16:
        sys_flag |= Flag.STORE_IPV6
    length = SHORT.pack(len(name)) if magic == V2 else bytes((len(name),))
    before = BEFORE_BORN_MS.pack(queue, flag, queue_offset, offset, sys_flag)
    behind = b"".join(
        (
            *(born_host.address, PORT.pack(born_host.port), LONG.pack(store_ms)),
            *(store_host.address, PORT_AND_TIMES.pack(store_host.port, reconsume_times, prepared_offset)),
        )
    )
    head = struct.Struct(f">III{len(before)}sq{len(behind)}si")
    fixed_bytes = head.size + len(length) + len(name) + SHORT.size + (CRC_PROPERTY_BYTES if with_crc else 0)
    return Form(head, magic, before, behind, length + name, with_crc, fixed_bytes)


def pack(topic: str, body: bytes = b"", *, born_ms: int = 0, properties: bytes = b"", **fields: Any) -> bytes:
    """The bytes of a record by itself; `fields`: those of `form`.  `MessageIllegal`, `PropertiesTooLong`."""
    return form(topic, **fields).record(body, born_ms, properties)


def store_time_at(born_host: Host) -> int:
    """Where in a record its store timestamp is."""
    return BORN_HOST_AT + len(born_host.address) + 4


def _number_in(text: str, digits: int) -> int:
    """The number that a property says; 0 for any other text, and for more digits than that: `int` refuses very many."""
    return int(text) if len(text) <= digits and text.isascii() and text.isdigit() else 0


def parse_properties(data: bytes) -> dict[str, str]:
    pairs = {}
    for piece in data.decode(errors="replace").split(VALUE_END):
        name, found, value = piece.partition(NAME_END)
        if found:
            pairs[name] = value
    return pairs


def pack_properties(pairs: dict[str, str]) -> bytes:
    """`MessageIllegal` for a name or value that holds what ends one."""
    text = "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in pairs.items()])
    if not text.count(NAME_END) == text.count(VALUE_END) == len(pairs) or "" in pairs:
        for name, value in pairs.items():
            if not name or NAME_END in name + value or VALUE_END in name + value:
                raise MessageIllegal(
                    f"the property {name!r} is empty, or holds a character 1 or 2, which ends a property"
                )
    return text.encode(errors="replace")


def java_hash(text: str) -> int:
    """Java's hash of a string: over UTF-16 units, signed, 32 bits."""
    value = _hashed_on(0, text)
    return value - (1 << 32) if value >> 31 else value


def key_hash(topic: str, key: str) -> int:
    """The hash of a key in RocketMQ's index: the absolute value of that of `topic#key`."""
    (value,) = key_hashes(topic, (key,))
    return value


def key_hashes(topic: str, keys: Iterable[str]) -> set[int]:
    """The hashes of some keys of one topic."""
    before, found = _topic_hash(topic), set()
    for key in keys:
        count = len(key)
        if key.isascii() and 0 < count <= HASHED_AT_ONCE:
            raw = key.encode()
            number = int(raw.translate(REMAINDERS), 31) + 31 * int(raw.translate(QUOTIENTS), 31)
            value = before * POWERS[count] + number & 0xFFFFFFFF
        else:
            value = _hashed_on(before, key)
        found.add(value if value <= SIGNLESS else -value & SIGNLESS)  # of the least, which has no opposite, 0
    return found


def _hashed_on(before: int, text: str) -> int:
    """The hash, without sign, of what has the hash `before` and then that text."""
    if text.isascii():
        raw, high = text.encode(), b""
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        raw, high = units[1::2], units[::2]
    for start in range(0, len(raw), HASHED_AT_ONCE):
        some = raw[start : start + HASHED_AT_ONCE]
        before = before * POWERS[len(some)] + _hash_of(some)
        if high:
            before += _hash_of(high[start : start + HASHED_AT_ONCE]) << 8
        before &= 0xFFFFFFFF
    return before


def _hash_of(units: bytes) -> int:
    """
    The hash of units of 8 bits, of any size: digits of a number of base 31, but for their size; so each is taken apart
    into two that are digits.
    """
    return int(units.translate(REMAINDERS), 31) + 31 * int(units.translate(QUOTIENTS), 31)


@lru_cache(1024)
def _tags_hash(tags: str) -> int:
    return java_hash(tags)


@lru_cache(1024)
def _topic_hash(topic: str) -> int:
    return _hashed_on(0, f"{topic}#")


def message_id(host: Host, offset: int) -> str:
    """32 hex digits, 56 with an IPv6 host."""
    return (host.address + PORT_AND_OFFSET.pack(host.port, offset)).hex().upper()


def parse_id(text: str) -> tuple[Host, int]:
    """(store host, offset); `NotAMessage` for what is no message id."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28) or len(text) != 2 * len(raw):  # digits alone: spaces are passed over above
        raise NotAMessage(f"{text!r} is no message id: one has 32 hex digits, 56 with an IPv6 host")
    port, offset = PORT_AND_OFFSET.unpack(raw[-12:])
    return Host(raw[:-12], port), offset
