"""
The taped disk with real RocksDB below: its files are copied at every write and sync, so that a crash can put them back.

Everything else of the disk is simulated.  Of RocksDB a crash leaves what was in its files at the last sync, or at any
write since then, its log of writes perhaps cut in the midst of the last one.
"""

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from quire.rows.contract import Row, Rows
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.disk import Disk, Inode
from tests.crash.tape import Event, Ground, RecordingDisk, Tearable

# SPDX-License-Identifier: Apache-2.0

NUMBERS = count()  # of places
LEFT_OUT = ("LOG", "LOCK", "OPTIONS", "IDENTITY")  # nothing is taken from these


def copy_store(source: Path, target: Path) -> None:
    """RocksDB's files as they are now; what is never written again is only linked."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".sst":
            os.link(path, target / path.name)
        elif not path.name.startswith(LEFT_OUT):
            shutil.copyfile(path, target / path.name)


@dataclass(frozen=True)
class Copy(Tearable):
    """The files of one store at some moment."""

    path: Path
    log: str = ""  # the newest log of writes
    before: int = 0  # its bytes before the last write
    end: int = 0  # and after it; what is behind is not there

    def tears(self, dice: random.Random, every: bool) -> Iterator["Copy"]:
        if self.end - self.before > 1:
            for cut in (
                {self.before + 1, dice.randrange(self.before + 1, self.end), self.end - 1}
                if every
                else {dice.randrange(self.before + 1, self.end)}
            ):
                yield Copy(self.path, self.log, self.before, cut)

    def put(self, target: Path) -> None:
        copy_store(self.path, target)
        if self.log:
            os.truncate(target / self.log, self.end)


class CopiedRows(Rows):
    """RocksDB at `place`, which goes to the tape as `path`."""

    def __init__(self, disk: "RecordingRocks", path: str, place: Path) -> None:
        self._disk = disk
        self._path = path
        self._place = place
        self._rows = RocksRows(str(place))
        self._log_bytes = self._newest()

    def _newest(self) -> tuple[str, int]:
        """The log that is written to, and its bytes."""
        newest = max(self._place.glob("*.log"))
        return newest.name, newest.stat().st_size

    def copy(self) -> Copy:
        """The files now."""
        target = self._disk.scratch / f"copy{next(NUMBERS)}"
        copy_store(self._place, target)
        (name, before), self._log_bytes = self._log_bytes, self._newest()
        log, end = self._log_bytes
        return Copy(target, log, before if name == log else 0, end)

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        self._disk.change("write rows", self._path)
        self._rows.write(puts, deletes)
        self._disk.events.append(Event("rows", self._path, self.copy()))

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._disk.change("delete rows", self._path)
        self._rows.delete_range(low, high)
        self._disk.events.append(Event("rows", self._path, self.copy()))

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def floor(self, key: bytes) -> Row | None:
        return self._rows.floor(key)

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        return self._rows.floors(keys)

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        return self._rows.page(low, high, most)

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        return self._rows.scan(low, high)

    def sync(self) -> None:
        self._disk.change("sync rows", self._path)
        self._rows.sync()
        self._disk.events.append(Event("rows", self._path, self.copy()))  # what RocksDB did in the background meanwhile
        self._disk.events.append(Event("sync rows", self._path))

    @property
    def sequence(self) -> int:
        return self._rows.sequence

    def close(self) -> None:
        self._rows.close()


class RecordingRocks(RecordingDisk):
    """A taped disk whose rows are RocksDB, below `scratch`; it begins as `left`."""

    def __init__(self, scratch: Path, left: Disk | None = None) -> None:
        super().__init__(left)
        self.scratch = scratch
        self.start = Ground(self, last, partial(rocks_disk, scratch))
        self._copies = dict(left.copies) if isinstance(left, RocksDisk) else {}
        self.start.rows = dict(self._copies)

    def change(self, call: str, path: str) -> None:
        """A change of rows is about to be made."""
        self._call(call, path)

    def remove_tree(self, path: str) -> None:
        super().remove_tree(path)
        self._copies.pop(path, None)

    def open_rows(self, path: str) -> Rows:  # type: ignore[override]  # any rows do
        place = self.scratch / f"live{next(NUMBERS)}"
        if path in self._copies:
            self._copies[path].put(place)
        rows = CopiedRows(self, path, place)
        if path in self._copies:  # RocksDB makes a table of what was in its log, and syncs it
            self.events += [Event("rows", path, rows.copy()), Event("sync rows", path)]
        else:
            self.tape_new(path, rows.copy())
        return rows


def last(image: object, copies: Sequence[Copy]) -> Copy:
    """Each copy is a whole one."""
    return copies[-1]


class RocksDisk(Disk):
    """A disk on which a crash left `copies` of RocksDB; what is opened of them is put below `scratch`."""

    def __init__(self, scratch: Path, copies: dict[str, Copy]) -> None:
        super().__init__()
        self.copies = copies
        self._scratch = scratch / "after"
        shutil.rmtree(self._scratch, ignore_errors=True)  # of the crash before

    def remove_tree(self, path: str) -> None:
        super().remove_tree(path)
        self.copies.pop(path, None)
        shutil.rmtree(self._place(path), ignore_errors=True)

    def _place(self, path: str) -> Path:
        return self._scratch / path.strip("/").replace("/", "-")

    def open_rows(self, path: str) -> Rows:  # type: ignore[override]  # any rows do
        place = self._place(path)
        if not place.exists() and path in self.copies:
            self.copies[path].put(place)
        place.parent.mkdir(exist_ok=True)
        self.inodes.setdefault(f"{path}/CURRENT", Inode())
        return RocksRows(str(place))


def rocks_disk(scratch: Path, images: dict[str, Any]) -> Disk:
    return RocksDisk(scratch, images)
