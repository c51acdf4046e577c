"""
The V2 packet header, and where the fields of an add frame are (wire.md 2.1 to 2.4).

    offset  width  field
    0       4      N: bytes after this field
    4       4      header: version, opcode, 16 bits of flags (version 0: the whole word is the opcode, flags are 0)
    8       20     ADD: ledger master key
    28      N-24   ADD: entry body (`digest.py`): ledger id at 28, entry id at 36

Knows: numbers and offsets.  Does not know: messages, connections.
"""

from struct import Struct
from typing import Final

# SPDX-License-Identifier: Apache-2.0

VERSION: Final = 2  # what a client sends

ADD: Final = 1
READ: Final = 2
AUTH: Final = 3
BATCH_READ: Final = 7

FENCE: Final = 0x0001
RECOVERY_ADD: Final = 0x0002
HIGH_PRIORITY: Final = 0x0004
READER_WAITS: Final = 0x4000  # quire's own, of the answer to an add: a reader waits there for what comes next

KEY_BYTES: Final = 20
ADD_BODY_AT: Final = 28  # in the frame, length field included
ADD_HEAD = Struct(">II20s")  # length, header word, master key
assert ADD_HEAD.size == ADD_BODY_AT


def header_word(version: int, operation: int, flags: int = 0) -> int:
    """The header as an unsigned 32-bit number; version 0 has no room for flags."""
    if version == 0:
        return operation
    return version << 24 | operation << 16 | flags


def split_word(word: int) -> tuple[int, int, int]:
    """(version, opcode, flags) of a header word."""
    version = word >> 24
    if version == 0:
        return 0, word & 0xFF, 0
    return version, word >> 16 & 0xFF, word & 0xFFFF
