"""
The files of a stopped bookie as Arrow batches: entries of its entry logs and journals, rows of its indexes.

Knows: which files a directory has, how an entry's sum is checked without the ledger's metadata.
Does not know: formats (`quire.bookie.offline`), Spark.

Safety: nothing is changed and no lock is taken.  Where an entry log is damaged there is a row of the kind `hole` with
its place and size, and reading goes on where a record begins again whose sum holds.  A journal or an index is read to
its first damage, and the other files all the same.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quire.bookie.layout import LEDGERS, LOCATIONS, RUNS, SECOND_RUNS
from quire.bookie.logs.format import log_id
from quire.bookie.offline import listing, salvage
from quire.conf.pipeline import FileReading
from quire.pipeline import columns
from quire.pipeline.clients import password
from quire.protocol.digest import HEADER, Digest, DigestType, entry_id
from quire.protocol.errors import DigestMatch
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

SCHEMA = {
    "file": "string",
    "pos": "bigint",
    "kind": "string",
    "ledger_id": "bigint",
    "entry_id": "bigint",
    "lac": "bigint",
    "length": "bigint",
    "bytes": "bigint",
    "digest_ok": "boolean",
    "payload": "binary",
}
TYPES = {
    "file": pa.string(),
    "pos": pa.int64(),
    "kind": pa.string(),
    "ledger_id": pa.int64(),
    "entry_id": pa.int64(),
    "lac": pa.int64(),
    "length": pa.int64(),
    "bytes": pa.int64(),
    "digest_ok": pa.bool_(),
    "payload": pa.binary(),
}
NAMES = tuple(SCHEMA)
INDEXES = {RUNS, SECOND_RUNS, LEDGERS, LOCATIONS}
ROW_BYTES = 200  # of a row besides its payload, about
ROWS_MAX = 20_000  # of a batch
Row = tuple[str, int, str, int | None, int | None, int | None, int | None, int | None, bool | None, bytes | None]


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A part of one file, from a record's begin to another one's, or all of it."""

    kind: str
    path: str
    begin: int
    end: int


def kind_of(path: str) -> str | None:
    """Returns the kind of a file by its name alone; None for a file that is none of these."""
    name = os.path.basename(path)
    if name.endswith((".qj", ".txn")):
        return "journal"
    if log_id(name) is not None:  # a bookie's own messages may be in a file with that ending, too
        return "entrylog"
    return "index" if name.endswith(".idx") else None


def is_index(path: str) -> bool:
    """A directory with a database in it; a bookie's own directory may be named `ledgers`, too."""
    return os.path.basename(path) in INDEXES and os.path.isfile(os.path.join(path, ROCKSDB_FILE))


def found(path: str) -> Iterator[tuple[str, str]]:
    """(kind, path) of each file below a directory, or of the path itself.  `ValueError` when there is none."""
    kind = kind_of(path)
    if (os.path.isfile(path) and kind is not None) or is_index(path):
        yield kind or "index", path
        return
    if not os.path.isdir(path):
        raise ValueError(f"{path} is no directory of a bookie, no entry log, journal or index")
    some = False
    for place, folders, names in os.walk(path):
        for name in sorted(folders):
            if is_index(os.path.join(place, name)):
                folders.remove(name)
                some = True
                yield "index", os.path.join(place, name)
        folders.sort()
        for name in sorted(names):
            kind = kind_of(name)
            if kind is not None:
                some = True
                yield kind, os.path.join(place, name)
    if not some:
        raise ValueError(f"{path} has no entry log, journal or index of a bookie, and none is below it")


def planned(options: FileReading) -> list[list[FilePiece]]:
    """Divides files among tasks.  `ValueError`; `OSError` for what can't be read."""
    wanted = {kind.strip() for kind in options.kinds.split(",")}
    if not wanted <= {"entrylog", "journal", "index"}:
        raise ValueError(f"option 'kinds': {options.kinds!r}: there are entrylog, journal, index")
    files = Files()
    groups: list[list[FilePiece]] = []
    room = 0
    for path in options.path.split(","):
        for kind, place in found(path.strip()):
            if kind not in wanted:
                continue
            for begin, end in salvage.bounds(files, place, options.split_bytes) if kind == "entrylog" else [(0, 0)]:
                if room <= 0 or not groups:
                    groups.append([])
                    room = options.split_bytes
                groups[-1].append(FilePiece(kind, place, begin, end))
                room -= (end - begin) or options.split_bytes
    return groups


class Sums:
    """Tells whether entries are what was written, by the sum that their ledger was found to have."""

    def __init__(self, kind: str, secret: bytes) -> None:
        kinds = [DigestType.CRC32C, DigestType.CRC32] + ([DigestType.MAC] if secret else [])
        if kind != "auto":
            kinds = [DigestType.named(kind)]
        self._sums = [Digest(each, secret) for each in kinds]
        self._known: dict[int, Digest] = {}

    def opened(self, ledger: int, entry: int, body: bytes) -> bytes | None:
        """Returns an entry's payload; None of a damaged one, for where it begins is not known."""
        known = self._known.get(ledger)
        for each in self._sums if known is None else [known, *self._sums]:
            try:
                payload = each.open(ledger, entry, body)
            except DigestMatch:
                continue
            self._known[ledger] = each
            return payload
        return None


def rows(piece: FilePiece, sums: Sums) -> Iterator[Row]:
    """Yields the rows of one piece."""
    files = Files()
    if piece.kind == "entrylog":
        yield from _entry_log(files, piece, sums)
    elif piece.kind == "journal":
        yield from _journal(files, piece.path, sums)
    else:
        yield from _index(files, piece.path)


def entry(path: str, at: int, body: bytes, payload: bytes | None) -> Row:
    """The row of an entry's body."""
    if len(body) < HEADER.size:
        return path, at, "entry", None, None, None, None, len(body), False, None
    ledger, number, lac, length = HEADER.unpack_from(body)
    return path, at, "entry", ledger, number, lac, length, len(body), payload is not None, payload


def _entry_log(files: Files, piece: FilePiece, sums: Sums) -> Iterator[Row]:
    path = piece.path
    for offset, size, body, payload in salvage.entries(files, path, piece.begin, piece.end, sums.opened):
        if body is None:
            yield path, offset, "hole", None, None, None, None, size, None, None
        else:
            yield entry(path, offset, body, payload)


def _journal(files: Files, path: str, sums: Sums) -> Iterator[Row]:
    at = 0
    try:
        for row in listing.journal(files, path, bodies_wanted=True):
            at = row["offset"]
            if row["kind"] == "adds":
                for body in map(bytes, row["bodies"]):
                    yield entry(path, at, body, sums.opened(row["ledger"], entry_id(body), body))
            elif row.get("ledger") is not None and row["kind"] != "end":  # the mark of a clean stop names ledger 0
                yield path, at, row["kind"], row["ledger"], None, None, None, row["bytes"], None, None
    except StorageError:
        yield path, at, "hole", None, None, None, None, None, None, None


def _index(files: Files, path: str) -> Iterator[Row]:
    try:
        for row in listing.index(files, path):
            first = row.get("first", row.get("entry"))
            yield (
                *(path, row.get("offset", 0), row["kind"], row.get("ledger"), first, row.get("explicit_lac")),
                *(row.get("count"), row.get("bytes"), None, None),
            )
    except (StorageError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk; RocksDB's about damage has no number
        yield path, 0, "hole", None, None, None, None, None, None, None


def batches(pieces: Sequence[FilePiece], names: Sequence[str], options: FileReading) -> Iterator[Any]:
    """The rows of these pieces as Arrow batches of about `batch_bytes`."""
    sums = Sums(options.digest, password(options))
    gathered: list[Row] = []
    size = 0
    for piece in pieces:
        for row in rows(piece, sums):
            gathered.append(row)
            size += ROW_BYTES + len(row[9] or b"")
            if size >= options.batch_bytes or len(gathered) >= ROWS_MAX:
                yield arrow(gathered, names)
                gathered, size = [], 0
    if gathered:
        yield arrow(gathered, names)


def arrow(gathered: Sequence[Row], names: Sequence[str]) -> Any:
    """Makes one batch."""
    given = dict(zip(NAMES, zip(*gathered, strict=True), strict=True))
    made: dict[str, columns.Column] = {
        name: lambda name=name: pa.array(given[name], TYPES[name])  # type: ignore[misc]  # binds this turn's
        for name in names
    }
    return columns.batch(names, made, TYPES)
