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
from quire.messages.core.record import Flag, Host, Record, unpack
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


class StoredMessage:
    """
    A message of a store.  `offset`: its physical offset; `position`: in its queue, -1 where it has none; `raw`: its
    record; `stored_body`: as it is kept; `properties`: all of them.  Members are taken from the record when they are
    asked for.
    """

    __slots__ = ("_properties", "_stored", "position")

    def __init__(self, record: Record | bytes, position: int) -> None:
        """`record`: or its bytes, of which it is known that they are one."""
        self._stored = record
        self._properties: Mapping[str, str] | None = None
        self.position = position

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return self.raw == other.raw and self.position == other.position

    def __hash__(self) -> int:
        return hash((self.raw, self.position))

    def __repr__(self) -> str:
        return f"StoredMessage({', '.join(f'{name}={getattr(self, name)!r}' for name in MEMBERS)})"

    @property
    def _record(self) -> Record:
        stored = self._stored
        if isinstance(stored, bytes):
            self._stored = stored = unpack(stored, sums=False)
        return stored

    @property
    def topic(self) -> str:
        return self._record.topic

    @property
    def queue(self) -> int:
        return self._record.queue

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def tags(self) -> str:
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        return self.properties.get(KEYS, "")

    @property
    def unique_id(self) -> str:
        return self.properties.get(UNIQUE_ID, "")

    @property
    def properties(self) -> Mapping[str, str]:
        if self._properties is None:
            self._properties = self._record.properties
        return self._properties

    @property
    def flag(self) -> int:
        return self._record.flag

    @property
    def sys_flag(self) -> int:
        return self._record.sys_flag

    @property
    def born_ms(self) -> int:
        return self._record.born_ms

    @property
    def born_host(self) -> str:
        return address_text(*self._record.born_host)

    @property
    def store_ms(self) -> int:
        return self._record.store_ms

    @property
    def store_host(self) -> str:
        return address_text(*self._record.store_host)

    @property
    def reconsume_times(self) -> int:
        return self._record.reconsume_times

    @property
    def prepared_offset(self) -> int:
        return self._record.prepared_offset

    @property
    def message_id(self) -> str:
        return self._record.message_id

    @property
    def stored_body(self) -> bytes:
        return self._record.body

    @property
    def raw(self) -> bytes:
        return self._stored if isinstance(self._stored, bytes) else self._stored.raw

    @property
    def body(self) -> bytes:
        """Decompressed at each call; `UnknownFormat` names what is missing for that, `StoreDamaged`."""
        if not self.sys_flag & Flag.COMPRESSED:
            return self.stored_body
        return decompressed(self.sys_flag, self.stored_body)


# Of a stored message, in the order in which it is shown.
MEMBERS = (
    *("topic", "queue", "offset", "position", "tags", "keys", "unique_id", "properties", "flag", "sys_flag"),
    *("born_ms", "born_host", "store_ms", "store_host", "reconsume_times", "prepared_offset", "message_id"),
    *("stored_body", "raw"),
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
