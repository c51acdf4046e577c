"""
Where a pass over all ledgers has come to, kept so that another auditor goes on there (metadata-rules.md 13).

Knows: the record of each pass, its value.  Does not know: what a pass does.
"""

import json
from contextlib import suppress
from typing import NamedTuple

from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.records import NoRecord, Records, put
from quire.metadata.store import ANY
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

FOLDER = "autorecovery/passes"


class Stretch(NamedTuple):
    """Ledgers above `after`, to `until` (None: all), are still to be looked at for these bookies."""

    bookies: tuple[str, ...]
    after: int
    until: int | None


class Resume:
    """The record of one pass, by its name."""

    def __init__(self, records: Records, name: str) -> None:
        self._records = records
        self._path = f"{FOLDER}/{name}"

    async def read(self) -> list[Stretch]:
        """What is left of a pass that was cut off; nothing where none was, or its note can't be read."""
        try:
            return decode_left((await self._records.read(self._path)).value)
        except NoRecord:
            return []

    async def write(self, left: list[Stretch]) -> None:
        """What is left now; a failure is no matter: then more is looked at again."""
        with suppress(MetaStore):
            if not left:
                with suppress(NoRecord):
                    await self._records.delete(self._path, ANY)
                return
            await put(self._records, self._path, json.dumps(left).encode())


def decode_left(data: bytes) -> list[Stretch]:
    """What a note says that is left; nothing where it can't be read."""
    try:
        left = [
            Stretch(tuple(map(str, bookies)), int64(after), None if until is None else int64(until))
            for bookies, after, until in parse_json(data)
        ]
    except (ValueError, TypeError):
        return []
    return left if all(each.after >= -1 for each in left) else []
