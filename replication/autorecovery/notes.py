"""
Why ledgers are still in the repair queue: what workers tried and could not do, and what a scrub saw, kept beside the
queue for people and for other workers (metadata-rules.md 13).

Knows: where a note is, its value; which findings of a scrub copies make good, that their note comes before the mark,
and that a mark which names nothing new is made afresh: a repair that is under way began without the note.
Does not know: how a ledger is repaired; a note about a ledger that is not in the queue means nothing.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import groupby
from socket import gethostname
from typing import NamedTuple

from quire.client.api import Client
from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.records import NoRecord, RecordChanged, RecordExists, Records, parent_of, put
from quire.metadata.store import ANY
from quire.replication.scrub.judge import MENDED_BY_COPIES, Finding

# SPDX-License-Identifier: Apache-2.0

FOLDER = "autorecovery/notes"
LEDGER = re.compile("[0-9]{1,19}")
LEDGERS = range((1 << 63) - 1)  # ids that there are (metadata-rules.md 3.1)
BUCKETS = 256  # a folder of records takes some thousands
REASON_CHARS_MAX = 1000
FOUND = "found"  # the outlook of a note that a scrub left: all copies on the named bookies are to be read


class Note(NamedTuple):
    """
    `outlook`: what is next for the ledger; `tries` of the worker at `host`, the last at `at_ms`, before `due_ms`.
    `mark`: the version of the queue's mark that was tried, if any.  `version`: of the record, once it was read.
    """

    ledger: int
    outlook: str
    reason: str
    tries: int
    at_ms: int
    due_ms: int
    host: str
    version: int = ANY
    mark: int | None = None

    @property
    def is_of_a_scrub(self) -> bool:
        """A copy is wrong though its bookie has it: all is to be read before the ledger leaves the queue."""
        return self.outlook == FOUND

    def encode(self) -> bytes:
        value = self._asdict() | {"reason": self.reason[:REASON_CHARS_MAX]}
        del value["version"]
        return json.dumps(value).encode()

    @classmethod
    def decode(cls, ledger: int, data: bytes, version: int = ANY) -> "Note":
        """Reads a note from any text: one that can't be read says so."""
        try:
            value = parse_json(data)
            mark = value.get("mark")
            return cls(
                ledger,
                str(value["outlook"]),
                str(value["reason"]),
                int64(value["tries"]),
                int64(value["at_ms"]),
                int64(value["due_ms"]),
                str(value["host"]),
                version,
                None if mark is None else int64(mark),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(ledger, "FAILED", "the note about it can't be read", 0, 0, 0, "", version)


def path_of(ledger: int) -> str:
    """Returns the path of a ledger's record."""
    return f"{FOLDER}/{ledger % BUCKETS:02x}/{ledger}"


class Notes:
    """The notes of a cluster."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def read_one(self, ledger: int) -> Note | None:
        """Reads the note of a ledger, if there is one."""
        try:
            return Note.decode(ledger, *await self._records.read(path_of(ledger)))
        except NoRecord:
            return None

    async def write(self, note: Note) -> None:
        """In place of what was noted of the ledger."""
        await put(self._records, path_of(note.ledger), note.encode())

    async def replace(self, before: Note | None, note: Note) -> None:
        """In place of what was noted `before`, unless something else was noted since, which stays."""
        path, data = path_of(note.ledger), note.encode()
        with suppress(NoRecord, RecordExists, RecordChanged):
            if before is not None:
                await self._records.write(path, data, before.version)
                return
            await self._records.folder(parent_of(path))
            await self._records.create(path, data)

    async def drop(self, note: Note) -> None:
        """Nothing is to be said of the ledger any more, unless something was noted since."""
        with suppress(NoRecord, RecordChanged):
            await self._records.delete(path_of(note.ledger), note.version)

    async def ledgers(self) -> AsyncIterator[int]:
        """All of which something is noted."""
        for bucket in await self._names(FOLDER):
            for name in await self._names(f"{FOLDER}/{bucket}"):
                if LEDGER.fullmatch(name) and int(name) in LEDGERS:
                    yield int(name)

    async def _names(self, path: str) -> list[str]:
        found: list[str] = []
        try:
            while page := await self._records.children(path, found[-1] if found else ""):
                found += page
        except NoRecord:
            return found
        return found


async def queued(client: Client, findings: Sequence[Finding]) -> int:
    """How many ledgers were marked, each with a note by which its copies are read before it leaves the queue."""
    store, notes = client.store, Notes(client.store.records)
    wanted = sorted((each for each in findings if each.kind in MENDED_BY_COPIES), key=lambda each: each.ledger)
    count = 0
    for ledger, some in groupby(wanted, key=lambda each: each.ledger):
        ours = list(some)
        now_ms = await store.records.clock()
        kinds = ", ".join(sorted({each.kind for each in ours}))
        await notes.write(Note(ledger, FOUND, f"a scrub found: {kinds}", 0, now_ms, now_ms, gethostname()))
        await store.repairs.mark(ledger, sorted({each.bookie for each in ours}), now_ms, afresh=True)
        count += 1
    return count
