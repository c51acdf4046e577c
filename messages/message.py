"""
Messages as programs see them: what is put, and what was stored.

Knows: which member of a stored message is which field or property of its record; how a stored body is decompressed.
Does not know: logs, queues, rows; how a message becomes a record (`drafting`).
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from quire.conf.extras import installs
from quire.conf.messages import address_text, parsed_address
from quire.messages.core.record import Flag, Host, Record
from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

TAGS, KEYS, UNIQUE_ID = "TAGS", "KEYS", "UNIQ_KEY"
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
