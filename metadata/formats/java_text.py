r"""
Protobuf text format, written byte for byte as Java writes it (metadata-rules.md 4.3).

Knows: Java's escapes (`\a \b \t \n \v \f \r \" \' \\`, octal for other control bytes and for each from 127 on) and
its line shape.  Python's own printer writes bytes 7, 8, 11 and 12 otherwise, so it can't be used for writing.
Does not know: which messages there are.
"""

import re

from quire.protocol.errors import MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

NAMED = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 39: "'", 92: "\\"}
ESCAPES = [
    f"\\{NAMED[byte]}" if byte in NAMED else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in range(256)
]
BYTE_OF = {name: byte for byte, name in NAMED.items()} | {"?": 63}
ESCAPED = re.compile(r"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)", re.DOTALL)


def quote(data: bytes | str) -> str:
    """A string or bytes value in double quotes, escaped; text is taken as UTF-8."""
    raw = data.encode() if isinstance(data, str) else data
    return '"' + "".join([ESCAPES[byte] for byte in raw]) + '"'


def unquote(text: str) -> bytes:
    """The bytes of one quoted value (quotes included); `MetadataSerialization` when it isn't one."""
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        raise MetadataSerialization(f"{text[:40]!r} is no quoted value")
    out = bytearray()
    at = 1
    end = len(text) - 1
    while at < end:
        if text[at] != "\\":
            out += text[at].encode("utf-8", "surrogateescape")
            at += 1
            continue
        found = ESCAPED.match(text, at, end)
        if found is None:
            raise MetadataSerialization(f"{text[:40]!r} ends in the middle of an escape")
        out.append(_byte(found.group(1)))
        at = found.end()
    return bytes(out)


def _byte(escape: str) -> int:
    if escape[0] in "01234567":
        value = int(escape, 8)
    elif escape[0] in "xX" and len(escape) > 1:
        value = int(escape[1:], 16)
    elif escape in BYTE_OF:
        value = BYTE_OF[escape]
    else:
        raise MetadataSerialization(f"the escape \\{escape} is unknown")
    if value > 255:
        raise MetadataSerialization(f"the escape \\{escape} is above one byte")
    return value
