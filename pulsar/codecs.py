"""
The compressions of Pulsar: LZ4 (a block without a frame), zlib, zstd, Snappy (without a frame).

Knows: which number is which, and the library that does it (extra `pulsar`).  Does not know: what is compressed.
"""

import zlib

from quire.conf.extras import installs
from quire.protocol.pulsar_errors import NotRead

# SPDX-License-Identifier: Apache-2.0

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
NAMES = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


def decompress(method: int, data: bytes, size: int) -> bytes:
    """
    Decompresses what becomes `size` bytes.  `ValueError`: these bytes are not that; `NotRead`: an unknown method, or
    the library is missing.
    """
    if method == NONE:
        return data
    if not size:
        return b""
    if method == ZLIB:
        made = zlib_bytes(data, size)
    elif method in (LZ4, ZSTD, SNAPPY):
        made = library_bytes(method, data, size)
    else:
        raise NotRead(f"compression {method} of Pulsar is not known: there are {', '.join(NAMES)}")
    if len(made) != size:
        raise ValueError(f"{NAMES[method]} gives {len(made)} bytes, not {size}")
    return made


def zlib_bytes(data: bytes, size: int) -> bytes:
    """Pulsar's Java client flushes what it compresses and does not end it, so an end is not asked for."""
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"ZLIB: {error}") from None


def library_bytes(method: int, data: bytes, size: int) -> bytes:
    try:
        import cramjam
    except ImportError:
        raise NotRead(f"a payload in {NAMES[method]} can't be read here: `{installs('pulsar')}`") from None
    room = bytearray(size)
    try:
        if method == LZ4:
            count = cramjam.lz4.decompress_block_into(data, room, output_len=size)
        elif method == ZSTD:
            count = cramjam.zstd.decompress_into(data, room)
        else:
            count = cramjam.snappy.decompress_raw_into(data, room)
    except (cramjam.DecompressionError, ValueError, OverflowError) as error:
        raise ValueError(f"{NAMES[method]}: {error}") from None
    return bytes(memoryview(room)[:count])
