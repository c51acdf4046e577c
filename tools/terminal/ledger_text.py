"""
How ledgers and their entries look: as text on a terminal, or as JSON.

Knows: the keys of the documents that `quire ledger` prints.  Does not know: where they come from.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import Security
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.client.api import Entry

# SPDX-License-Identifier: Apache-2.0


class Printer:
    """Writes entries to standard output, a batch at a time."""

    def __init__(self, raw: bool, hexadecimal: bool, json_wanted: bool) -> None:
        if raw + hexadecimal + json_wanted > 1:
            raise Usage("--raw, --hex and --json exclude each other")
        self._raw, self._hex, self._json = raw, hexadecimal, json_wanted
        self._out = sys.stdout.buffer

    def entries(self, entries: "Sequence[Entry]") -> None:
        if self._raw:
            text = b"".join([entry.data for entry in entries])
        elif self._hex:
            text = "".join([f"{entry.data.hex()}\n" for entry in entries]).encode()
        elif self._json:
            text = "".join([output.as_json(as_entry(entry)) + "\n" for entry in entries]).encode()
        else:
            text = b"".join([entry.data if entry.data.endswith(b"\n") else entry.data + b"\n" for entry in entries])
        self._out.write(text)
        self._out.flush()


def as_entry(entry: "Entry") -> dict[str, Any]:
    """An entry as JSON: its payload as text where it is UTF-8, else as hexadecimal digits."""
    try:
        return {"ledger": entry.ledger_id, "entry": entry.entry_id, "data": bytes(entry.data).decode()}
    except UnicodeDecodeError:
        return {"ledger": entry.ledger_id, "entry": entry.entry_id, "hex": entry.data.hex()}


def as_document(ledger: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """A ledger's metadata without its password."""
    return {
        "ledger": ledger,
        "state": metadata.state.name,
        "last_entry": metadata.last_entry if metadata.is_closed else None,
        "bytes": metadata.length if metadata.is_closed else None,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest.name if metadata.digest is not None else None,
        "password": "set" if metadata.password else "empty",
        "created": created(metadata),
        "format": metadata.format_version,
        "custom": custom_text(metadata.custom),
        "fragments": [
            {"first": first, "last": last, "bookies": list(bookies)}
            for first, last, bookies in metadata.fragment_ranges()
        ],
    }


def summary(ledger: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """One line of the list."""
    return {
        "ledger": ledger,
        "state": metadata.state.name,
        "entries": metadata.last_entry + 1 if metadata.is_closed else None,
        "bytes": metadata.length if metadata.is_closed else None,
        "copies": metadata.write_quorum,
        "fragments": len(metadata.fragments),
        "created": created(metadata),
    }


def created(metadata: LedgerMetadata) -> str | None:
    return None if metadata.ctime_ms is None else output.iso_time(metadata.ctime_ms)


def custom_text(custom: Mapping[str, bytes]) -> dict[str, str]:
    return {key: value.decode(errors="backslashreplace") for key, value in sorted(custom.items())}


def value_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "-"
    return "-" if value is None else str(value)


def check_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        (
            f"ledger {found['ledger']} ({found['state']}): {found['entries']:,} entries, {found['good']:,} of "
            f"{found['copies']:,} copies are good"
        )
    ]
    fragment = None
    for part in found["missing"]:
        if part["fragment"] != fragment:
            fragment = part["fragment"]
            lines.append(f"  fragment from entry {fragment}:")
        what = "was not asked for" if part["code"] == Security.code else "misses"
        lines.append(f"    {part['bookie']} {what} {part['first']} to {part['last']}: {part['why']}")
    return lines
