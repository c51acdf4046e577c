"""
How far a scrub has come, kept in the metadata store, so that one that was cut off is gone on with from any machine; or
when the last one began (metadata-rules.md 13.3).

Knows: the record of each scrub, by its name, and its value.  Does not know: what a scrub does.
"""

import json
from contextlib import suppress
from typing import NamedTuple

from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.ledger import check_ledger_id
from quire.metadata.records import NoRecord, Records, put
from quire.metadata.store import ANY
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

FOLDER = "scrubs"
AUDITOR = "auditor"  # the name of its scrubs


class Point(NamedTuple):
    """
    Ledgers up to `after` were looked at, but for those that are to be looked at `again`; `counts`: what came of them.
    """

    after: int
    again: list[int]
    begun_ms: int
    counts: dict[str, int]


class Points:
    """
    The record of the scrubs of one name, of which one is under way.  `lasting`: between two it says when the last one
    began.
    """

    def __init__(self, records: Records, name: str, *, lasting: bool = False) -> None:
        self._records = records
        self._path = f"{FOLDER}/{name}"
        self._lasting = lasting

    async def read(self) -> Point | None:
        """Where one was cut off; None where none was, or it can't be read."""
        return decode_point(await self._data())

    async def ended(self) -> int | None:
        """When the last one began, in ms since 1970; None while one is under way, or was cut off, or there was none."""
        return decode_end(await self._data())

    async def write(self, point: Point) -> None:
        """A failure is no matter: then more is looked at again."""
        with suppress(MetaStore):
            await put(self._records, self._path, json.dumps(point._asdict()).encode())

    async def end(self, begun_ms: int) -> None:
        """The one that began then is over."""
        if self._lasting:
            await put(self._records, self._path, json.dumps({"begun_ms": begun_ms}).encode())
            return
        with suppress(NoRecord):
            await self._records.delete(self._path, ANY)

    async def _data(self) -> bytes:
        """Empty where there is no record."""
        try:
            return (await self._records.read(self._path)).value
        except NoRecord:
            return b""


def decode_point(data: bytes) -> Point | None:
    """Reads a point from a record; None where it says none, or can't be read."""
    try:
        value = parse_json(data)
        counts = {str(name): int64(count) for name, count in value["counts"].items()}
        again = list(map(int64, value["again"]))
        for ledger in again:
            check_ledger_id(ledger)
        return Point(int64(value["after"]), again, int64(value["begun_ms"]), counts)
    except (IncorrectParameter, ValueError, KeyError, TypeError, AttributeError):
        return None


def decode_end(data: bytes) -> int | None:
    """When one began that has ended, in ms since 1970; None where the record does not say so, or can't be read."""
    try:
        value = parse_json(data)
        return None if "counts" in value else int64(value["begun_ms"])
    except (ValueError, KeyError, TypeError):
        return None
