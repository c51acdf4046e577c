"""
How records look: as text on a terminal, or as JSON.

Knows: the columns, and the keys of the documents.  Does not know: where records come from.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quire.tools.terminal import output
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.log.api import Record

# SPDX-License-Identifier: Apache-2.0


class RecordPrinter:
    """Writes records to standard output, a batch at a time."""

    def __init__(self, values: bool, json_wanted: bool) -> None:
        if values and json_wanted:
            raise Usage("--values and --json exclude each other")
        self._line = as_value if values else as_json if json_wanted else as_line
        self._out = sys.stdout.buffer

    def records(self, records: "Sequence[Record]") -> None:
        """One a line."""
        self._out.write(b"".join(map(self._line, records)))
        self._out.flush()


def as_value(record: "Record") -> bytes:
    """The value alone, with a line end if it has none."""
    return record.value if record.value.endswith(b"\n") else record.value + b"\n"


def as_line(record: "Record") -> bytes:
    """Index, time, key and value, parted by tabs."""
    key = b"-" if record.key is None else record.key
    return b"%d\t%s\t%s\t%s" % (record.index, time_text(record.stamp_ms).encode(), key, as_value(record))


def as_json(record: "Record") -> bytes:
    """All that it has; key and value as text where they are UTF-8, else as `hex:…`."""
    document: dict[str, Any] = {
        "index": record.index,
        "at": record.at,
        "stamp_ms": record.stamp_ms,
        "key": record.key,
        "value": record.value,
        "time_ms": record.time_ms,
        "headers": [list(header) for header in record.headers],
    }
    return output.as_json(document).encode() + b"\n"


def time_text(ms: int) -> str:
    """A stamp for people, in UTC."""
    return output.iso_time(ms).replace("+00:00", "Z")
