"""
How far a scrub has come, kept in the metadata store, so that one that was cut off is gone on with from any machine
(metadata-rules.md 13.3).

Knows: the record of each scrub, by its name, and its value.  Does not know: what a scrub does.
"""

import json
from contextlib import suppress
from typing import NamedTuple

from quire.metadata.records import NoRecord, Records, put
from quire.metadata.store import ANY
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

FOLDER = "scrubs"


class Point(NamedTuple):
    """
    Ledgers up to `after` were looked at, but for those that are to be looked at `again`; `counts`: what came of them.
    """

    after: int
    again: list[int]
    begun_ms: int
    counts: dict[str, int]


class Points:
    """The record of the scrubs of one name, of which one is under way."""

    def __init__(self, records: Records, name: str) -> None:
        self._records = records
        self._path = f"{FOLDER}/{name}"

    async def read(self) -> Point | None:
        """Where one was cut off; None where none was, or it can't be read."""
        try:
            value = json.loads((await self._records.read(self._path)).value)
            counts = {str(name): int(count) for name, count in value["counts"].items()}
            return Point(int(value["after"]), list(map(int, value["again"])), int(value["begun_ms"]), counts)
        except (NoRecord, ValueError, KeyError, TypeError, AttributeError):
            return None

    async def write(self, point: Point) -> None:
        """A failure is no matter: then more is looked at again."""
        with suppress(MetaStore):
            await put(self._records, self._path, json.dumps(point._asdict()).encode())

    async def drop(self) -> None:
        """It was ended."""
        with suppress(NoRecord):
            await self._records.delete(self._path, ANY)
