"""
Messages as programs see them: what is put, and what was stored.

Knows: which member of a message is which field or property of its record; how a stored body is decompressed; what a
store does not take.
Does not know: logs, queues, rows.
"""

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import NamedTuple

from quire.conf.extras import installs
from quire.conf.messages import StoreSettings, address_text, parsed_address
from quire.messages.core.assign import Draft
from quire.messages.core.layout import FILLER_BYTES, fits
from quire.messages.core.record import Flag, Host, Record, pack, pack_properties, store_time_at
from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import MessageIllegal, StoreDamaged

# SPDX-License-Identifier: Apache-2.0

OF_BATCHES, CRC = frozenset({"INNER_BASE", "INNER_NUM"}), "__CRC32#"
TAGS, KEYS, UNIQUE_ID = "TAGS", "KEYS", "UNIQ_KEY"
DELAYS = frozenset({"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
NOT_PUT = Flag.UNWRAP | Flag.INNER_BATCH | Flag.PREPARED  # a rollback record has the last bit, too
HOSTS = Flag.BORN_IPV6 | Flag.STORE_IPV6
BEYOND = 1 << 31  # the least number that has no room in 32 bits
IDS_AT_ONCE = 64
METHODS = {0: "ZLIB", Flag.LZ4: "LZ4", Flag.ZSTD: "ZSTD", Flag.ZLIB: "ZLIB"}
BODY_BYTES_MAX = 1 << 30  # of a body that is decompressed


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    A message that is put.  `keys`: words by which it is found; `properties`: further ones.  `sys_flag`: of a body that
    is compressed already, the method.  `born_ms`: ms since 1970, by default now; `born_host`: HOST:PORT, by default the
    store's address; `unique_id`: by default 32 random hex digits.
    """

    topic: str = field(kw_only=False)
    body: bytes = field(default=b"", kw_only=False)
    queue: int = 0
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_ms: int | None = None
    born_host: str = ""
    reconsume_times: int = 0
    prepared_offset: int = 0
    unique_id: str = ""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """
    A message of a store.  `offset`: its physical offset; `position`: in its queue, -1 where it has none; `raw`: its
    record; `stored_body`: as it is kept; `properties`: all of them.
    """

    topic: str
    queue: int
    offset: int
    position: int
    tags: str
    keys: str
    unique_id: str
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    message_id: str
    stored_body: bytes
    raw: bytes

    @property
    def body(self) -> bytes:
        """Decompressed at each call; `UnknownFormat` names what is missing for that, `StoreDamaged`."""
        if not self.sys_flag & Flag.COMPRESSED:
            return self.stored_body
        return decompressed(self.sys_flag, self.stored_body)


def stored(record: Record, position: int) -> StoredMessage:
    properties = record.properties
    return StoredMessage(
        record.topic,
        record.queue,
        record.offset,
        position,
        properties.get(TAGS, ""),
        properties.get(KEYS, ""),
        properties.get(UNIQUE_ID, ""),
        properties,
        record.flag,
        record.sys_flag,
        record.born_ms,
        address_text(*record.born_host),
        record.store_ms,
        address_text(*record.store_host),
        record.reconsume_times,
        record.prepared_offset,
        record.message_id,
        record.body,
        record.raw,
    )


@lru_cache(1024)
def host_of(address: str) -> Host:
    """The host HOST:PORT; `ValueError`."""
    return Host(*parsed_address(address))


class UniqueIds:
    """Gives unique ids, 32 random hex digits each; many are drawn at a time.  In any thread."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._drawn: list[str] = []

    def __call__(self) -> str:
        while True:
            try:
                return self._drawn.pop()
            except IndexError:  # perhaps another thread took the last one
                pass
            digits = f"{self._random.getrandbits(128 * IDS_AT_ONCE):0{32 * IDS_AT_ONCE}X}"
            self._drawn.extend(digits[at : at + 32] for at in range(0, len(digits), 32))


class Drafted(NamedTuple):
    """The draft of a message, and the message's unique id."""

    draft: Draft
    unique_id: str


def drafted(message: Message, settings: StoreSettings, now_ms: int, new_id: Callable[[], str]) -> Drafted:
    """
    The draft of a message, with a new unique id where it has none.  `MessageIllegal`, `PropertiesTooLong`.
    """
    try:
        return _encoded(message, settings, now_ms, new_id)
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise MessageIllegal(f"a member of the message can't be in a record: {error}") from None


def _encoded(message: Message, settings: StoreSettings, now_ms: int, new_id: Callable[[], str]) -> Drafted:
    if message.sys_flag & NOT_PUT:
        raise MessageIllegal(
            f"the system flag {message.sys_flag:#x} marks an inner batch, or a prepared or rollback record: such a"
            " record can be imported, not put"
        )
    if len(message.body) > settings.max_body:
        raise MessageIllegal(
            f"the body has {len(message.body)} bytes: the store takes {settings.max_body} (its setting max_body)"
        )
    if not (
        0 <= message.queue < BEYOND and -BEYOND <= message.flag < BEYOND and -BEYOND <= message.reconsume_times < BEYOND
    ):
        raise _out_of_range(message)
    topic = message.topic
    unique_id = message.unique_id or message.properties.get(UNIQUE_ID) or new_id()
    if "\0" in topic or topic in (".", ".."):
        raise MessageIllegal(f"the topic is {topic!r}: one with a zero, or a directory's name, is of no broker")
    pairs = {KEYS: message.keys} if message.keys else {}
    if message.tags:
        pairs[TAGS] = message.tags
    pairs[UNIQUE_ID] = unique_id
    for name, value in message.properties.items():
        if name in OF_BATCHES:
            raise MessageIllegal(f"the property {name} marks an inner batch, which can be imported, not put")
        if name != CRC:  # of another record; a store with `record_crc` adds its own
            pairs.setdefault(name, value)
    store_host = host_of(settings.address)
    born_host = host_of(message.born_host) if message.born_host else store_host
    record = pack(
        topic,
        message.body,
        queue=message.queue,
        flag=message.flag,
        sys_flag=message.sys_flag & ~HOSTS,
        born_ms=now_ms if message.born_ms is None else message.born_ms,
        born_host=born_host,
        store_host=store_host,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
        properties=pack_properties(pairs),
        with_crc=settings.record_crc,
    )
    check_fits(len(record), "record", settings.file_bytes)
    draft = Draft(record, (topic, message.queue), store_time_at(born_host), settings.record_crc)
    return Drafted(draft, unique_id)


def _out_of_range(message: Message) -> MessageIllegal:
    """The error for a number that has no room in a record."""
    if not 0 <= message.queue < BEYOND:
        return MessageIllegal(f"queue is {message.queue}: it has 32 bits, and begins at 0")
    name = "reconsume_times" if -BEYOND <= message.flag < BEYOND else "flag"
    return MessageIllegal(f"{name} is {getattr(message, name)}: it has 32 bits")


def drafted_group(
    messages: Sequence[Message], settings: StoreSettings, now_ms: int, new_id: Callable[[], str]
) -> list[Drafted]:
    """The drafts of messages that are put as one.  `MessageIllegal`, `PropertiesTooLong`."""
    if not messages:
        raise MessageIllegal("a group has at least one message")
    first = messages[0]
    if any((each.topic, each.queue) != (first.topic, first.queue) for each in messages):
        raise MessageIllegal("a group is of one topic and queue")
    if any(DELAYS & set(each.properties) for each in messages):
        raise MessageIllegal("a message of a group has no delay")
    made = [drafted(each, settings, now_ms, new_id) for each in messages]
    size = sum(len(draft) for draft, _ in made)
    check_fits(size, "group", settings.file_bytes)
    for draft, _ in made:
        draft.group = 0
    made[0][0].group = size
    return made


def check_fits(size: int, what: str, file_bytes: int) -> None:
    """`MessageIllegal` for what no file of the store could hold."""
    if not fits(size, file_bytes):
        raise MessageIllegal(
            f"the {what} has {size} bytes: a file of {file_bytes} holds {file_bytes - FILLER_BYTES} (file_bytes)"
        )


def decompressed(sys_flag: int, data: bytes) -> bytes:
    """`UnknownFormat` names the command that installs what is missing; `StoreDamaged`."""
    method = METHODS.get(sys_flag & Flag.ZLIB)
    try:
        if method == "LZ4":
            return _lz4(data)
        if method == "ZSTD":
            return _zstd(data)
        inflate = zlib.decompressobj()
        body = inflate.decompress(data, BODY_BYTES_MAX)
        if not inflate.eof:
            raise ValueError("it is cut off, or above 1 GiB")
        return body
    except (ValueError, RuntimeError, zlib.error) as error:
        raise StoreDamaged(f"a body can't be decompressed as {method}: {error}") from None


def _zstd(data: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise UnknownFormat(f"a body is compressed with ZSTD, which is not installed: {installs('zstd')}") from None
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=BODY_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def _lz4(data: bytes) -> bytes:
    try:
        import lz4.frame
    except ImportError:
        raise UnknownFormat(f"a body is compressed with LZ4, which is not installed: {installs('lz4')}") from None
    return bytes(lz4.frame.decompress(data))
