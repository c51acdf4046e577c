"""
In which directory our index is, and how far it and the ledger table had come at the last checkpoint.

The index is in `runs`, unless a file `quire.index` is there, which says "runs.2" and nothing else: so another can be
made beside it and take its place in one step.

RocksDB replays its log up to the first record that is damaged and forgets the rest without a word; then entries, keys
and fences would seem never to have been here.  Each of its writes has a number, so the number of the last one is
written down once all before it is durable, and compared at the next start; and which of its two directories the index
was in, for the file that says so may be gone, and the other index may be there still.

File `quire.rows` beside the two stores, big-endian, replaced whole:

    0       4   "QROW"
    4       4   version 2; 1 without which directory it was
    8       8   number of the index's last write
    16      8   number of the ledger table's last write
    24      4   0: the index was in `runs`; 1: in `runs.2`
    28      4   CRC32C of all before it

Knows: those files.  Does not know: the stores, who makes another index.  A store that was rebuilt begins at 0 again:
the rebuild removes the file before (`forget`) and writes it again afterwards.
Safety: `quire.index` changes only when the other index is durable.  What is in the other directory is a copy of it, or
was never finished: it may go.
"""

import os
import struct
from collections.abc import Iterable

from crc32c import crc32c

from quire.bookie.index.rocks import WHAT_TO_DO
from quire.bookie.layout import RUNS, SECOND_RUNS, SEQUENCES, SLOT
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import stops

# SPDX-License-Identifier: Apache-2.0

TEXT = f"{SECOND_RUNS}\n".encode()


def index_path(files: Files, directory: str) -> str:
    """The index's directory in `directory` (`<dir>/current`).  `StorageError` names a damaged file."""
    path = os.path.join(directory, SLOT)
    text = files.read_file(path)
    if text is None:
        return os.path.join(directory, RUNS)
    if text != TEXT:
        raise StorageError(
            f"{path} at offset 0: damaged ({len(text)} bytes, not {TEXT!r}); run `quire bookie rebuild-index --conf "
            "FILE`"
        )
    return os.path.join(directory, SECOND_RUNS)


def other_path(files: Files, directory: str) -> str:
    """The directory that the index is not in; whatever is there may go.  As `index_path`."""
    return os.path.join(
        directory, RUNS if index_path(files, directory) == os.path.join(directory, SECOND_RUNS) else SECOND_RUNS
    )


def change(files: Files, directory: str) -> None:
    """Puts the index in the other directory.  Durable on return; `OSError`: in either; `NotBegun`: where it was."""
    if index_path(files, directory) == os.path.join(directory, RUNS):
        files.replace(os.path.join(directory, SLOT), TEXT)
    else:
        files.unlink_durably(os.path.join(directory, SLOT))


LAYOUT = struct.Struct(">4sIQQI")
FIRST_LAYOUT = struct.Struct(">4sIQQ")
HEAD = struct.Struct(">4sI")  # of both
SUM = struct.Struct(">I")
MAGIC, VERSION, FIRST_VERSION = b"QROW", 2, 1
PLACES = (RUNS, SECOND_RUNS)


class Sequences:
    """The file in one index directory (`<dir>/current`)."""

    def __init__(self, files: Files, directory: str, stores: Iterable[str] = ()) -> None:
        """`stores`: looked at for losses before RocksDB removes what it read.  `StorageError`, `OSError`."""
        self.path = os.path.join(directory, SEQUENCES)
        self._files = files
        self._directory = directory
        self._places = {path: stops(path, files) for path in stores}
        self._known, self._place = self._read()

    def _read(self) -> tuple[tuple[int, int], str | None]:
        """The numbers, and the name of the index's directory if it is known."""
        data = self._files.read_file(self.path)
        if data is None:
            return (0, 0), None
        body, check = data[: -SUM.size], data[-SUM.size :]
        if check == SUM.pack(crc32c(body)):
            if len(body) == LAYOUT.size and HEAD.unpack_from(body) == (MAGIC, VERSION):
                _magic, _version, index, table, place = LAYOUT.unpack(body)
                if place < len(PLACES):
                    return (int(index), int(table)), PLACES[place]
            if len(body) == FIRST_LAYOUT.size and HEAD.unpack_from(body) == (MAGIC, FIRST_VERSION):
                _magic, _version, index, table = FIRST_LAYOUT.unpack(body)
                return (int(index), int(table)), None
        raise StorageError(
            f"{self.path} at offset 0: damaged ({len(data)} bytes; its checksum or its layout is wrong); {WHAT_TO_DO}"
        )

    def check(self, index: int | None, table: int, index_path: str, table_path: str) -> None:
        """Compares the numbers of both stores (None: any).  `StorageError` names the store that lost rows."""
        if index is not None and self._place not in (None, self._place_now()):
            raise StorageError(
                f"{os.path.join(self._directory, SLOT)} is missing, or one of before is back: by {self.path} the index "
                f"is in {self._place}; {WHAT_TO_DO}"
            )
        for found, known, path in ((index, self._known[0], index_path), (table, self._known[1], table_path)):
            if found is not None and found < known:
                where = (
                    self._places.get(path) or "its log of writes (*.log in it) holds a bad record, or it was removed"
                )
                gone = f"{known - found} writes that were durable are gone (the last one found is {found} of {known})"
                raise StorageError(f"{path}: damaged: {gone}; {where}; {WHAT_TO_DO}")

    def _place_now(self) -> str:
        """The name of the directory in which `quire.index` says the index is."""
        return os.path.basename(index_path(self._files, self._directory))

    def write(self, index: int, table: int) -> None:
        """Both stores are durable up to these numbers.  Raises `OSError`."""
        if (index, table) != self._known:
            data = LAYOUT.pack(MAGIC, VERSION, index, table, PLACES.index(self._place_now()))
            self._files.replace(self.path, data + SUM.pack(crc32c(data)))
            self._known = (index, table)

    def forget(self) -> None:
        """A store is about to be another one, whose numbers begin again.  Raises `OSError`."""
        self._known = (0, 0)  # before: whatever comes of it, they are written again
        forget(self._files, os.path.dirname(self.path))


def forget(files: Files, directory: str) -> None:
    """A store in `<dir>/current` is about to be rebuilt, so its numbers begin again.  Raises `OSError`."""
    files.unlink_durably(os.path.join(directory, SEQUENCES))
