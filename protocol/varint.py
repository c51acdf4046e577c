"""
Protobuf's variable-length integers, by hand: 7 bits a byte, low bits first, the top bit set on all but the last.

Knows: encoding and decoding of signed and unsigned 64-bit numbers, and a pattern that finds one.  Does not know: fields.
Safety: the pattern matches exactly what a 64-bit number can be: at most 10 bytes, the tenth 0 or 1.
"""

from functools import lru_cache
from typing import Final

# SPDX-License-Identifier: Apache-2.0

MASK: Final = (1 << 64) - 1
SIGN: Final = 1 << 63
LOW: list[bytes] = [bytes([value | 128]) for value in range(128)]  # the first byte of a longer number
ONE: list[bytes] = [bytes([value]) for value in range(128)]
PATTERN: Final = rb"([\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"


def encode(value: int) -> bytes:
    """A number from -2^63 to 2^64 - 1; negative ones take 10 bytes."""
    if 0 <= value < 128:
        return ONE[value]
    if 0 < value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if 0 < value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    value &= MASK
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


size = lru_cache(maxsize=4096)(encode)  # for lengths, which repeat


def number(data: bytes) -> int:
    """The unsigned value of what `PATTERN` found."""
    width = len(data)
    if width == 1:
        return data[0]
    if width == 2:
        return data[0] & 127 | data[1] << 7
    if width == 3:
        return data[0] & 127 | (data[1] & 127) << 7 | data[2] << 14
    value = 0
    for byte in reversed(data):
        value = value << 7 | byte & 127
    return value


def signed(data: bytes) -> int:
    """The signed value of what `PATTERN` found."""
    value = number(data)
    return value - (SIGN << 1) if value & SIGN else value


def length_within(total: int, width: int) -> bytes:
    """The length field that, together with what it counts, takes `total` bytes; `width` is a guess at its own width."""
    made = size(total - width)
    return made if len(made) == width else size(total - len(made))
