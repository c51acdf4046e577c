"""
Entries and nodes as a broker writes them, made here field by field, without the tables of `quire.pulsar`.

Knows: protobuf's wire form, the layout of an entry, the order in which a Java producer writes its fields.
"""

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping

import cramjam
from crc32c import crc32c

# SPDX-License-Identifier: Apache-2.0

Field = tuple[int, int | bytes | str]
NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def proto(*fields: Field) -> bytes:
    """A message: numbers as varints, the rest with its length."""
    found = b""
    for number, value in fields:
        if isinstance(value, int):
            found += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            found += varint(number << 3 | 2) + varint(len(raw)) + raw
    return found


def pairs(number: int, properties: Mapping[str, str]) -> list[Field]:
    return [(number, proto((1, key), (2, value))) for key, value in properties.items()]


def compressed(method: int, data: bytes) -> bytes:
    makers = {
        NONE: lambda: data,
        LZ4: lambda: cramjam.lz4.compress_block(data, store_size=False),
        ZLIB: lambda: zlib.compress(data),
        ZSTD: lambda: cramjam.zstd.compress(data),
        SNAPPY: lambda: cramjam.snappy.compress_raw(data),
    }
    return bytes(makers[method]())


def metadata(
    *more: Field,
    producer: str = "p",
    sequence: int = 0,
    publish: int = 1000,
    properties: Mapping[str, str] | None = None,
    key: str | None = None,
) -> bytes:
    fields: list[Field] = [(1, producer), (2, sequence), (3, publish), *pairs(4, properties or {})]
    if key is not None:
        fields.append((6, key))
    return proto(*fields, *more)


def entry(head: bytes, payload: bytes, *, summed: bool = True, broker: tuple[int, int] | None = None) -> bytes:
    """An entry; `broker`: time and index that a broker adds."""
    body = struct.pack(">I", len(head)) + head + payload
    if summed:
        body = b"\x0e\x01" + struct.pack(">I", crc32c(body)) + body
    if broker is not None:
        raw = proto((1, broker[0]), (2, broker[1]))
        body = b"\x0e\x02" + struct.pack(">I", len(raw)) + raw + body
    return body


def single(
    value: bytes,
    *,
    sequence: int | None = None,
    key: str | None = None,
    properties: Mapping[str, str] | None = None,
    more: Iterable[Field] = (),
) -> bytes:
    """One message of a batch."""
    fields = pairs(1, properties or {})
    if key is not None:
        fields.append((2, key))
    fields.append((3, len(value)))
    if sequence is not None:
        fields.append((8, sequence))
    raw = proto(*sorted([*fields, *more], key=lambda field: field[0]))
    return struct.pack(">I", len(raw)) + raw + value


def batch(messages: list[bytes], *more: Field, method: int = NONE, **named: object) -> bytes:
    """An entry that is a batch of what `single` made."""
    payload = b"".join(messages)
    told: list[Field] = [(8, method), (9, len(payload))] if method else []
    return entry(
        metadata(*told, (11, len(messages)), *more, **named),  # type: ignore[arg-type]  # whatever `metadata` takes
        compressed(method, payload),
    )


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ledger_info(ledger: int, entries: int = 0, size: int = 0, closed_ms: int = 0, *more: Field) -> Field:
    """A ledger in a topic's node."""
    known: list[Field] = [(2, entries), (3, size), (4, closed_ms)] if closed_ms else []
    return 1, proto((1, ledger), *known, *more)


def node(raw: bytes, method: int) -> bytes:
    """A compressed node."""
    head = proto((1, method), (2, len(raw)))
    return b"\x47\x78" + struct.pack(">I", len(head)) + head + compressed(method, raw)


def place(ledger: int, entry_id: int) -> bytes:
    return proto((1, ledger), (2, entry_id))
