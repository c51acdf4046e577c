"""
Protobuf's variable-length integers, by hand: 7 bits a byte, low bits first, the top bit set on all but the last.

Knows: encoding of signed and unsigned 64-bit numbers, and of many ascending ones, and decoding of one.  Does not know:
fields.
"""

from typing import Final

# SPDX-License-Identifier: Apache-2.0

MASK: Final = (1 << 64) - 1
SIZES_KEPT: Final = 4096
BYTES_MAX: Final = 10  # of one number
LOW: list[bytes] = [bytes([value | 128]) for value in range(128)]  # the first byte of a longer number
ONE: list[bytes] = [bytes([value]) for value in range(128)]
LOW_BYTES = bytes(range(128, 256))
PLAIN_BYTES = bytes(range(128))


def encode(value: int) -> bytes:
    """A number from -2^63 to 2^64 - 1; negative ones take 10 bytes."""
    if 0 <= value < 128:
        return ONE[value]
    if 0 < value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if 0 < value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if 0 < value < 1 << 28:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21))
    value &= MASK
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, offset: int = 0) -> tuple[int, int]:
    """The number at an offset and the offset after it; `ValueError` when it is cut off or has more than 10 bytes."""
    value = 0
    for index, byte in enumerate(data[offset : offset + BYTES_MAX]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, offset + index + 1
    raise ValueError(f"the number at byte {offset} of {len(data)} is cut off or longer than {BYTES_MAX} bytes")


def value_of(encoded: bytes) -> int:
    """The number that all of these bytes are the encoding of; of up to 9 bytes, so not negative."""
    size = len(encoded)
    if size == 1:
        return encoded[0]
    if size == 2:
        return encoded[0] & 127 | encoded[1] << 7
    if size == 3:
        return encoded[0] & 127 | (encoded[1] & 127) << 7 | encoded[2] << 14
    return decode(encoded)[0]


class Sizes(dict[int, bytes]):
    """Encodings of lengths, which repeat."""

    def __missing__(self, value: int) -> bytes:
        if len(self) >= SIZES_KEPT:
            self.clear()
        made = self[value] = encode(value)
        return made


SIZES = Sizes()


def size_within(total: int, width: int) -> bytes:
    """The length field that, together with what it counts, takes `total` bytes; `width` is a guess at its own width."""
    made = SIZES[total - width]
    return made if len(made) == width else SIZES[total - len(made)]


def low_bytes(value: int, count: int) -> bytes:
    """The first bytes of `count` numbers from `value` on, all within one block of 128."""
    at = value & 127
    return (LOW_BYTES if value >> 7 else PLAIN_BYTES)[at : at + count]


class Ascending:
    """Encodes numbers that mostly ascend: the part above the low 7 bits is encoded once per block of 128."""

    __slots__ = ("_upper", "_upper_bytes")

    def __init__(self) -> None:
        self._upper = -1
        self._upper_bytes = b""

    def encode(self, value: int) -> bytes:
        if value < 128:
            return encode(value)
        if value >> 7 != self._upper:
            self._upper = value >> 7
            self._upper_bytes = encode(self._upper)
        return LOW[value & 127] + self._upper_bytes
