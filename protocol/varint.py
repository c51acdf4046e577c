"""
Protobuf's variable-length integers, by hand: 7 bits a byte, low bits first, the top bit set on all but the last.

Knows: encoding and decoding of signed and unsigned 64-bit numbers.  Does not know: fields.
Safety: decoding never reads past `end` and never more than 10 bytes.
"""

from typing import Final

# SPDX-License-Identifier: Apache-2.0

MASK: Final = (1 << 64) - 1
SIGN: Final = 1 << 63
LOW: list[bytes] = [bytes([value | 128]) for value in range(128)]  # the first byte of a longer number
ONE: list[bytes] = [bytes([value]) for value in range(128)]


def encode(value: int) -> bytes:
    """A number from -2^63 to 2^64 - 1; negative ones take 10 bytes."""
    if 0 <= value < 128:
        return ONE[value]
    value &= MASK
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(unsigned value, offset behind it); offset -1 when it is cut short or longer than 10 bytes."""
    value = shift = 0
    stop = min(end, at + 10)
    while at < stop:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & MASK, at
        shift += 7
    return 0, -1


def signed(value: int) -> int:
    """The int64 with these 64 bits."""
    return value - (SIGN << 1) if value & SIGN else value
