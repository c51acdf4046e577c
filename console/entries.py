"""
Entries of a ledger, read when a user of the console asks for them, as text, JSON or hexadecimal digits.

Knows: how many and how much of each is shown.  Does not know: the page.

Safety: never fences.  A password is an argument and nothing else: it is neither kept nor logged.
"""

import json
from typing import TYPE_CHECKING, NamedTuple

from quire.metadata.formats.json_text import parse_json

if TYPE_CHECKING:
    from quire.client.api import Client

# SPDX-License-Identifier: Apache-2.0

COUNT_MAX = 50
BYTES_MAX = 4096  # of one entry that are shown
LINE = 16  # bytes, of hexadecimal digits
FORMS = ("text", "json", "hex")


class Shown(NamedTuple):
    """One entry: its id, its size in bytes, what is shown of it, and if that is not all."""

    entry: int
    size: int
    text: str
    cut: bool


class Some(NamedTuple):
    """Entries of a ledger whose last one that can be read is `end`."""

    entries: list[Shown]
    end: int


async def some_of(client: "Client", ledger: int, password: bytes, first: int, count: int, form: str) -> Some:
    """Reads entries; the errors of `Client.open_ledger` and of reading."""
    reader = await client.open_ledger(ledger, password, recover=False)
    try:
        end = reader.last_entry_id
        last = min(first + min(count, COUNT_MAX) - 1, end)
        found = await reader.read(first, last) if first <= last else []
        return Some([shown(each.entry_id, bytes(each.data), form) for each in found], end)
    finally:
        await reader.close()


def shown(entry: int, data: bytes, form: str) -> Shown:
    """Makes what is shown of an entry."""
    part, cut = data[:BYTES_MAX], len(data) > BYTES_MAX
    if form == "json" and not cut:
        try:
            return Shown(entry, len(data), json.dumps(parse_json(data), indent=2, ensure_ascii=False), False)
        except ValueError as error:
            return Shown(entry, len(data), f"this is no JSON ({error}):\n{text_of(part)}", False)
    return Shown(entry, len(data), hex_of(part) if form == "hex" else text_of(part), cut)


def text_of(data: bytes) -> str:
    """Returns bytes as text; what is none, or can't be seen, with a backslash."""
    text = data.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text)


def hex_of(data: bytes) -> str:
    """Returns bytes as hexadecimal digits, with their places and their letters."""
    lines = []
    for start in range(0, len(data), LINE):
        part = data[start : start + LINE]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * LINE - 1}}  {letters}")
    return "\n".join(lines)
