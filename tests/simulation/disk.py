"""
A disk in memory under the real storage: it knows what was synced, tears what was not when the power goes, fails and
fills up on demand.

Sectors of 512 bytes are written or lost one by one; a name that was not synced with its directory may be lost; a failed
sync keeps or loses what it was for.  The index and the ledger table are `DictRows`, of which a prefix of the unsynced
writes survives.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from errno import EIO
from functools import cache
from random import Random

from quire.rows.contract import Row
from quire.rows.files import Buffer, Files, Usage
from tests.rows.fakes import DictRows

SECTOR = 512
TORN_MAX = 64  # sectors of one write that chance looks at one by one; the rest of a larger one goes together

directory_of = cache(os.path.dirname)


class Inode:
    __slots__ = ("data", "durable", "pending")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        put(self.data, offset, data)

    def sync(self) -> None:
        for offset, data in self.pending:
            put(self.durable, offset, data)
        self.pending.clear()

    def sync_last(self) -> None:
        """The last write alone."""
        put(self.durable, *self.pending.pop())

    def crash(self, rng: Random) -> bool:
        """Keeps any of the unsynced sectors; whether some were kept and some lost."""
        kept = lost = 0
        for offset, data in self.pending:
            step = SECTOR if len(data) <= SECTOR * TORN_MAX else len(data)
            for at in range(0, len(data), step):
                if rng.random() < 0.5:
                    put(self.durable, offset + at, data[at : at + step])
                    kept += 1
                else:
                    lost += 1
        self.pending.clear()
        self.data = bytearray(self.durable)
        return bool(kept and lost)


def put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


class SimRows(DictRows):
    """Rows on a disk; those of some ledgers can't be read any more.  `before` hears of each sync."""

    def __init__(self, before: Callable[[], None], rows: dict[bytes, bytes] | None = None) -> None:
        super().__init__(rows)
        self.rotten: set[int] = set()
        self._before = before

    def sync(self) -> None:
        self._before()
        super().sync()

    def _check(self, *ledgers: int) -> None:
        if not self.rotten.isdisjoint(ledgers):
            raise OSError(EIO, f"simulated: a damaged block of ledgers {ledgers}")

    def floor(self, key: bytes) -> Row | None:
        if self.rotten:
            self._check(ledger_of(key))
        return super().floor(key)

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        if self.rotten:
            self._check(*(ledger for ledger in self.rotten if low <= ledger.to_bytes(8, "big") + bytes(8) < high))
        return super().scan(low, high)

    def crash(self, kept: int = 0) -> "SimRows":
        after = SimRows(self._before, super().crash(kept).as_dict())
        after.rotten = self.rotten
        return after


def ledger_of(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


class SimDisk(Files):
    """
    All files of one bookie.  `before(call, path)` hears of each changing call and may raise `OSError`.  `number`: the
    disk's, from which its random bits follow.
    """

    def __init__(self, number: int = 0) -> None:
        self.inodes: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.rows: dict[str, SimRows] = {}
        self.boots = 1  # of its machine
        self.before: Callable[[str, str], None] | None = None
        self._handles: dict[int, tuple[str, Inode]] = {}
        self._next = 3
        self._salts = Random(number)
        self._locked: dict[str, int] = {}

    # Files

    def make_directories(self, path: str) -> None:
        """Directories are implied by names."""

    def names(self, path: str) -> list[str]:
        return sorted(os.path.basename(name) for name in self.inodes if directory_of(name) == path)

    def exists(self, path: str) -> bool:
        return path in self.inodes

    def open(self, path: str, create: bool = False) -> int:
        inode = self.inodes.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            inode = self.inodes[path] = Inode()
        return self._opened(path, inode)

    def _opened(self, path: str, inode: Inode) -> int:
        self._next += 1
        self._handles[self._next] = (path, inode)
        return self._next

    def set_direct(self, handle: int, on: bool = True) -> None:
        """There is no page cache."""

    def close(self, handle: int) -> None:
        path, _inode = self._handles.pop(handle)
        if self._locked.get(path) == handle:
            del self._locked[path]

    def size(self, handle: int) -> int:
        return len(self._handles[handle][1].data)

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        path, inode = self._handles[handle]
        if self.before is not None:
            self.before("write", path)
        data = b"".join(buffers)
        inode.write(offset, data)
        return len(data)

    def syncs_writes(self, handle: int) -> bool:
        return True

    def pwritev_synced(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """The power may go between the two; what was written before stays unsynced."""
        done = self.pwritev(handle, buffers, offset)
        path, inode = self._handles[handle]
        if self.before is not None:
            self.before("sync", path)
        inode.sync_last()
        return done

    def preallocate(self, handle: int, offset: int, count: int) -> bool:
        """Nothing shows it."""
        return True

    def begin_writing(self, handle: int, offset: int, count: int) -> None:
        """What is not synced may be lost all the same."""

    def trim(self, handle: int) -> None: ...

    def pread(self, handle: int, count: int, offset: int) -> bytes:
        return bytes(self._handles[handle][1].data[offset : offset + count])

    def pread_in_memory(self, handle: int, count: int, offset: int) -> bytes | None:
        """Every second piece of 256 bytes is in memory."""
        data = self.pread(handle, count, offset)
        return data if len(data) == count and offset >> 8 & 1 else None

    def datasync(self, handle: int) -> None:
        path, inode = self._handles[handle]
        if self.before is not None:
            self.before("sync", path)
        inode.sync()

    def sync(self, handle: int) -> None:
        self.datasync(handle)

    def open_directory(self, path: str) -> int:
        return self._opened(path, Inode())

    def sync_names(self, handle: int) -> None:
        path, _inode = self._handles[handle]
        if self.before is not None:
            self.before("sync directory", path)
        for name in [name for name in self.durable if directory_of(name) == path]:
            del self.durable[name]
        self.durable.update({name: inode for name, inode in self.inodes.items() if directory_of(name) == path})

    def rename(self, old: str, new: str) -> None:
        if self.before is not None:
            self.before("rename", new)
        self.inodes[new] = self.inodes.pop(old)

    def unlink(self, path: str) -> None:
        if self.before is not None:
            self.before("unlink", path)
        self.inodes.pop(path, None)

    def remove_tree(self, path: str) -> None:
        """
        Rows are all that lies in directories of their own.  It is durable at once: who counts on more has done
        something wrong.
        """
        if path in self.rows:
            if self.before is not None:
                self.before("remove rows", path)
            del self.rows[path]
            self.inodes.pop(f"{path}/CURRENT", None)
            self.durable.pop(f"{path}/CURRENT", None)

    def lock(self, path: str) -> int:
        if path in self._locked:
            raise BlockingIOError(path)
        handle = self.open(path, create=True)
        self._locked[path] = handle
        return handle

    def salt(self) -> int:
        return self._salts.getrandbits(64)

    def boot_id(self) -> bytes:
        return b"boot %d" % self.boots

    def usage(self, path: str) -> Usage:
        return Usage(1, 1 << 30, 1 << 29)

    def open_rows(self, path: str) -> SimRows:
        rows = self.rows.get(path)
        if rows is None:
            self.inodes[f"{path}/CURRENT"] = self.durable[f"{path}/CURRENT"] = Inode()
            rows = self.rows[path] = SimRows(lambda: self._tell_sync(path))
        return rows

    def _tell_sync(self, path: str) -> None:
        if self.before is not None:
            self.before("sync", path)

    # what happens to it

    def lose(self, directory: str) -> None:
        """A directory is gone, with all that is in it."""
        self.inodes = {name: inode for name, inode in self.inodes.items() if not name.startswith(directory + "/")}
        self.durable = {name: inode for name, inode in self.durable.items() if not name.startswith(directory + "/")}
        self.rows = {path: rows for path, rows in self.rows.items() if not path.startswith(directory + "/")}

    def take(self, paths: Sequence[str]) -> dict[str, Inode]:
        """These files are gone; returns them."""
        for path in paths:
            self.durable.pop(path, None)
        return {path: self.inodes.pop(path) for path in paths}

    def put_back(self, files: dict[str, Inode]) -> None:
        """What `take` returned is there again."""
        self.inodes.update(files)
        self.durable.update(files)

    def rot(self, path: str, offset: int) -> None:
        """Bits flip: no record begins there any more."""
        for data in (self.inodes[path].data, self.inodes[path].durable):
            put(data, offset, b"\x7f\xff\xff\xff")

    def process_ended(self) -> None:
        """kill -9: what was handed to the system stays."""
        self._handles.clear()
        self._locked.clear()
        self.before = None

    def power_lost(self, rng: Random) -> bool:
        """What was not synced may be gone; whether something was torn in the middle."""
        self.process_ended()
        self.boots += 1
        torn = False
        for name in {**self.durable, **self.inodes}:
            inode = self.durable.get(name)
            current = self.inodes.get(name)
            if current is not inode and rng.random() < 0.5:
                inode = current  # a change of names that was not synced came through all the same
            if inode is None:
                self.inodes.pop(name, None)
            else:
                self.inodes[name] = inode
        for inode in {id(inode): inode for inode in self.inodes.values()}.values():
            torn |= inode.crash(rng)
        self.durable = dict(self.inodes)
        self.rows = {path: rows.crash(rng.randint(0, rows.unsynced)) for path, rows in self.rows.items()}
        return torn
