"""
JSON that somebody else wrote: a peer, the metadata store, a file.

Knows: what is JSON (RFC 8259).  Does not know: what a document means.
Safety: whatever the bytes are, there is a value or a `ValueError`; no number is infinite or none at all, so that
`int()` of it can't fail.
"""

import json
import math
from typing import Any, NoReturn

# SPDX-License-Identifier: Apache-2.0


def parse_json(data: bytes | str) -> Any:
    """The value.  `ValueError` says what is wrong: no UTF-8, no JSON, nested too deep, a number that is too large."""
    try:
        return DECODER.decode(data if isinstance(data, str) else data.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def int64(value: Any) -> int:
    """A number that was read, as an integer that fits into 64 bits.  `ValueError`, `TypeError` when it is none."""
    found = int(value)
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError("a number has more than 64 bits")
    return found


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"a number is too large: {text[:40]}")
    return found


def _none(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_none)
