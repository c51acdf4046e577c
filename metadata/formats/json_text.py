"""
JSON that somebody else wrote: a peer, the metadata store, a file.

Knows: what is JSON, with Python's NaN and Infinity.  Does not know: what a document means.
Safety: whatever the bytes are, there is a value that can be written again, or a `ValueError`.
"""

import json
import re
from typing import Any

# SPDX-License-Identifier: Apache-2.0

ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
LONG_NUMBER = re.compile("[0-9]{19}")  # such a one may have more than 64 bits
DEEP = 100  # of fewer brackets none is too deep
FRAMES = 60  # of Python, of which whoever writes a value has so many more than who read it


def parse_json(data: bytes | str) -> Any:
    """
    The value.  `ValueError` says what is wrong: no text, no JSON, nested too deep, half of a character, an integer of
    more than 64 bits.
    """
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
    try:
        found = _loaded(text, FRAMES if text.count("[") + text.count("{") > DEEP else 0)
        if ESCAPED_SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return found


def _loaded(text: str, frames: int) -> Any:
    if frames:
        return _loaded(text, frames - 1)
    return json.loads(text, parse_int=int64 if LONG_NUMBER.search(text) else None)


def int64(value: Any) -> int:
    """A number that was read, as an integer that fits into 64 bits.  `ValueError`, `TypeError` when it is none."""
    try:
        found = int(value)
    except OverflowError:  # Infinity
        raise ValueError("a number has no end") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError("a number has more than 64 bits")
    return found
