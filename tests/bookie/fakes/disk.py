"""
A disk in memory for the storage's tests: it remembers what was synced, and a crash keeps any part of the rest.

Also the shapes that the tests write: runs of adds in both protocol generations, and storages on such a disk.
"""

import os
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import Upkeep
from quire.conf.bookie import BookieOptions
from quire.protocol.digest import Digest, DigestType
from quire.protocol.messages import AddRun
from quire.rows.contract import Row
from quire.rows.files import BEGINS_NOTHING, Buffer, Files, Usage
from tests.bookie.fakes.workers import InlineWorkers
from tests.clock import Clock
from tests.rows.fakes import DictRows

SECTOR = 512
# an error of these leaves something behind; all others began nothing
EFFECTS = ("write", "sync", "sync directory", "write rows", "delete rows", "sync rows")
DIGEST = Digest(DigestType.CRC32C, b"secret")
KEY = DIGEST.master_key
OTHER_KEY = Digest(DigestType.CRC32C, b"wrong").master_key
ADD_V2 = 0x02010000


class Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        put(self.data, offset, data)

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.pending = []

    def sync_last(self) -> None:
        """The last write alone."""
        put(self.durable, *self.pending.pop())

    def after_crash(self, rng: random.Random | None) -> "Inode":
        """Each unsynced sector is kept or lost independently (None: all are lost)."""
        data = bytearray(self.durable)
        for offset, written in self.pending if rng is not None else ():
            assert rng is not None
            for at in range(0, len(written), SECTOR):
                if rng.random() < 0.5:
                    put(data, offset + at, written[at : at + SECTOR])
        return Inode(bytes(data))


def put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


class WatchedRows(DictRows):
    """Rows that report each change to their disk before it is made."""

    def __init__(self, rows: DictRows | None, report: Callable[[str], None]) -> None:
        super().__init__(rows.as_dict() if rows is not None else None)
        self._report = report

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        self._report("write rows")
        super().write(puts, deletes)

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._report("delete rows")
        super().delete_range(low, high)

    def get(self, key: bytes) -> bytes | None:
        self._report("read rows")
        return super().get(key)

    def floor(self, key: bytes) -> Row | None:
        self._report("read rows")
        return super().floor(key)

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        self._report("read rows")
        return super().scan(low, high)

    def sync(self) -> None:
        self._report("sync rows")
        super().sync()


class Disk(Files):
    """
    `before(call, path)` is called before each changing call and may raise `OSError`, as may `each`, before every call.
    `short`: writes take only a part.  `in_memory`: whether the page cache has what was written.  `boot`: the id of the
    machine's.
    """

    def __init__(self) -> None:
        self.inodes: dict[str, Inode] = {}  # names as the process sees them
        self.durable: dict[str, Inode] = {}  # names as a crash leaves them
        self.rows: dict[str, DictRows] = {}
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda call, path: None
        self.each: Callable[[str, str], None] = lambda call, path: None
        self.short = False
        self.free = 1 << 39
        self.preallocates = self.one_call = True
        self.in_memory = False
        self.boot = b"boot"
        self.reserved: dict[str, int] = {}
        self.begun: list[tuple[str, int, int]] = []
        self._handles: dict[int, tuple[str, Inode]] = {}
        self._next = 3
        self.salts = 0
        self._locked: dict[str, int] = {}

    def _call(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        self.before(call, path)
        self._ask(call, path)

    def _ask(self, call: str, path: str) -> None:
        if call in EFFECTS:
            self.each(call, path)
        else:
            with BEGINS_NOTHING:
                self.each(call, path)

    def make_directories(self, path: str) -> None:
        """Directories are implied by names."""
        self._ask("make directories", path)

    def names(self, path: str) -> list[str]:
        self._ask("names", path)
        return sorted(os.path.basename(name) for name in self.inodes if os.path.dirname(name) == path)

    def exists(self, path: str) -> bool:
        self._ask("exists", path)
        return path in self.inodes

    def open(self, path: str, create: bool = False) -> int:
        self._ask("open", path)
        if path not in self.inodes:
            if not create:
                raise FileNotFoundError(path)
            self.inodes[path] = Inode()
        return self._opened(path, self.inodes[path])

    def _opened(self, path: str, inode: Inode) -> int:
        self._next += 1
        self._handles[self._next] = (path, inode)
        return self._next

    def set_direct(self, handle: int, on: bool = True) -> None:
        """There is no page cache."""

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._locked = {path: held for path, held in self._locked.items() if held != handle}

    def size(self, handle: int) -> int:
        self._ask("size", self._handles[handle][0])
        return len(self._handles[handle][1].data)

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        assert len(buffers) <= 1024
        path, inode = self._handles[handle]
        self._call("write", path)
        data = b"".join(bytes(buffer) for buffer in buffers)
        if self.short and len(data) > 1:
            data = data[: len(data) * 2 // 3]
        inode.write(offset, data)
        return len(data)

    def syncs_writes(self, handle: int) -> bool:
        return self.one_call

    def pwritev_synced(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """A crash may come between the two; what was written before stays unsynced."""
        done = self.pwritev(handle, buffers, offset)
        path, inode = self._handles[handle]
        self._call("sync", path)
        inode.sync_last()
        return done

    def preallocate(self, handle: int, offset: int, count: int) -> bool:
        """`reserved` says how far each file has room; nothing else shows it."""
        path, _inode = self._handles[handle]
        self._call("preallocate", path)
        if not self.preallocates:
            return False
        self.reserved[path] = offset + count
        return True

    def begin_writing(self, handle: int, offset: int, count: int) -> None:
        """Noted in `begun`; what is not synced may be lost all the same."""
        self.begun.append((self._handles[handle][0], offset, count))

    def trim(self, handle: int) -> None:
        path, _inode = self._handles[handle]
        self._call("trim", path)
        self.reserved.pop(path, None)

    def pread(self, handle: int, count: int, offset: int) -> bytes:
        self._ask("read", self._handles[handle][0])
        return bytes(self._handles[handle][1].data[offset : offset + count])

    def pread_in_memory(self, handle: int, count: int, offset: int) -> bytes | None:
        data = bytes(self._handles[handle][1].data[offset : offset + count])
        return data if self.in_memory and len(data) == count else None

    def datasync(self, handle: int) -> None:
        path, inode = self._handles[handle]
        self._call("sync", path)
        inode.sync()

    def sync(self, handle: int) -> None:
        self.datasync(handle)

    def open_directory(self, path: str) -> int:
        self._ask("open directory", path)
        return self._opened(path, Inode())

    def sync_names(self, handle: int) -> None:
        path, _inode = self._handles[handle]
        self._call("sync directory", path)
        for name in [name for name in self.durable if os.path.dirname(name) == path]:
            del self.durable[name]
        self.durable.update({name: inode for name, inode in self.inodes.items() if os.path.dirname(name) == path})

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        self.inodes[new] = self.inodes.pop(old)

    def unlink(self, path: str) -> None:
        if path in self.inodes:
            self._call("unlink", path)
            del self.inodes[path]

    def remove_tree(self, path: str) -> None:
        """
        Rows are all that lies in directories of their own.  It is durable at once: who counts on more has done
        something wrong.
        """
        if f"{path}/CURRENT" in self.inodes:
            self._call("remove rows", path)
            del self.inodes[f"{path}/CURRENT"]
            self.durable.pop(f"{path}/CURRENT", None)
            self.rows.pop(path, None)

    def lock(self, path: str) -> int:
        if path in self._locked:
            raise BlockingIOError(path)
        handle = self.open(path, create=True)
        self._locked[path] = handle
        return handle

    def salt(self) -> int:
        """The same in each run."""
        self.salts += 1
        return random.Random(self.salts).getrandbits(64)

    def boot_id(self) -> bytes:
        return self.boot

    def usage(self, path: str) -> Usage:
        self._ask("usage", path)
        return Usage(1, 1 << 40, self.free)

    def open_rows(self, path: str) -> DictRows:
        self._ask("open rows", path)
        rows = self.rows.get(path)
        if not isinstance(rows, WatchedRows):
            self.inodes[f"{path}/CURRENT"] = self.durable[f"{path}/CURRENT"] = Inode()
            rows = self.rows[path] = WatchedRows(
                rows, lambda call: (self._ask if call == "read rows" else self._call)(call, path)
            )
        return rows

    def process_ended(self) -> None:
        """Killed: its files are closed, its locks are free."""
        self._handles, self._locked = {}, {}

    @property
    def open_files(self) -> int:
        return len(self._handles)

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Bit rot."""
        inode = self.inodes[path]
        inode.data[offset] ^= mask
        inode.sync()

    def find(self, suffix: str) -> list[str]:
        return sorted(name for name in self.inodes if name.endswith(suffix))

    def killed(self) -> "Disk":
        """What a process finds after kill -9: all that was handed to the system."""
        after = Disk()
        after.salts = self.salts
        after.inodes = {name: Inode(bytes(inode.data)) for name, inode in self.inodes.items()}
        after.durable = dict(after.inodes)
        after.rows = {path: DictRows(rows.as_dict()) for path, rows in self.rows.items()}
        return after

    def crashed(self, rng: random.Random | None) -> "Disk":
        """
        What a process finds after a power loss: all that was synced, and of the rest what chance kept (None: nothing).
        """
        after = Disk()
        after.salts = self.salts
        for name in {**self.durable, **self.inodes}:
            inode = self.durable.get(name)
            if self.inodes.get(name) is not inode and rng is not None and rng.random() < 0.5:
                inode = self.inodes.get(name)  # a change of names that was not synced came through all the same
            if inode is not None:
                after.inodes[name] = inode.after_crash(rng)
        after.durable = dict(after.inodes)
        after.rows = {
            path: rows.crash(rng.randint(0, rows.unsynced) if rng is not None else 0)
            for path, rows in self.rows.items()
        }
        return after


def body_of(ledger: int, entry: int, size: int = 20, lac: int | None = None) -> bytes:
    payload = random.Random(ledger * 1_000_003 + entry).randbytes(size)
    return DIGEST.entry(ledger, entry, entry - 1 if lac is None else lac, size * (entry + 1), payload)


def frame_of(body: bytes, key: bytes = KEY, flags: int = 0) -> bytes:
    return struct.pack(">ii20s", 24 + len(body), ADD_V2 | flags, key) + body


def run_of(
    ledger: int,
    first: int,
    count: int = 1,
    *,
    size: int = 20,
    v3: bool = False,
    key: bytes = KEY,
    recovery: bool = False,
) -> AddRun:
    """
    Adds of entries first … first + count - 1 as they come from a writer; entry e's body is `body_of(ledger, e, size)`.
    """
    bodies = [body_of(ledger, entry, size) for entry in range(first, first + count)]
    if v3:
        return AddRun(ledger, first, bodies, key, recovery=recovery, txns=list(range(count)), version=3)
    return AddRun(
        ledger,
        first,
        bodies,
        key,
        recovery=recovery,
        frames=b"".join(frame_of(body, key, 2 if recovery else 0) for body in bodies),
    )


def options_of(root: str = "/disk", journals: int = 1, ledgers: int = 1, **changes: Any) -> BookieOptions:
    values: dict[str, Any] = {
        "metadata_uri": "memory://tests",
        "journal_directories": tuple(f"{root}/journal{number}" for number in range(journals)),
        "ledger_directories": tuple(f"{root}/ledgers{number}" for number in range(ledgers)),
        "journal_segment_bytes": 1 << 20,
        "write_cache_bytes_max": 2 << 20,
    }
    return BookieOptions(**{**values, **changes})


class HeldWorkers(InlineWorkers):
    """A storage pool whose jobs wait for `release`."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def run(self, job: Callable[..., Any], *args: Any) -> Deferred[Any]:
        self._jobs.append((Deferred(), job, args))
        return self._jobs[-1][0]

    @property
    def held(self) -> int:
        return len(self._jobs)

    def release(self) -> None:
        """Does the jobs that wait now, in order."""
        jobs, self._jobs = self._jobs, []
        for deferred, job, args in jobs:
            maybeDeferred(job, *args).chainDeferred(deferred)


class Events:
    """What a storage reports, by a callable each."""

    def __init__(
        self,
        durable: Callable[[list[object]], None] = lambda tokens: None,
        relieved: Callable[[], None] = lambda: None,
        failed: Callable[[str], None] = lambda reason: None,
        read_only: Callable[[str | None], None] = lambda reason: None,
        refused: Callable[[object, object], None] = lambda token, error: None,
    ) -> None:
        self.durable, self.relieved, self.failed, self.read_only = durable, relieved, failed, read_only
        self.refused = refused


class LimboOf:
    """Puts ledgers in limbo where a bookie would, and counts how often they could be copied."""

    def __init__(self, storage: Storage) -> None:
        self.ready = 0
        self._storage = storage

    async def mark_incomplete(self, rows: Mapping[int, LedgerRow]) -> None:
        await self._storage.mark_limbo(rows)

    def ready_to_copy(self) -> None:
        self.ready += 1


async def stop_all(upkeep: Upkeep, storage: Storage) -> None:
    """Passes and rebuilds stop before the storage closes."""
    await upkeep.stop()
    await storage.close()


class Bookie:
    """A storage on a simulated disk, with a clock, and what came back from it."""

    def __init__(self, disk: Disk | None = None, workers: InlineWorkers | None = None, **changes: Any) -> None:
        self.disk = disk if disk is not None else Disk()
        self.clock = Clock()
        self.options = options_of(**changes)
        self.tokens: list[object] = []
        self.refused: list[object] = []
        self.failures: list[str] = []
        self.relieved = 0
        self.storage = Storage(
            self.options, self.clock, self.disk, open_rows=self.disk.open_rows, workers=workers or InlineWorkers()
        )
        self.reasons: list[str | None] = []  # why it turned read-only, and None when it was writable again
        self.storage.listen(
            Events(self.tokens.extend, self._relieved, self.failures.append, self.reasons.append, self._refused)
        )
        self.storage.start()
        self.limbo = LimboOf(self.storage)
        self.upkeep = Upkeep(self.storage, self.clock, self.limbo)

    def _relieved(self) -> None:
        self.relieved += 1

    def _refused(self, token: object, error: object) -> None:
        self.refused.append(token)

    def commit(self) -> None:
        """Lets the journal write and sync what is queued."""
        self.clock.advance(0)
        self.clock.advance(0)

    def close(self) -> None:
        done: list[object] = []
        self.stop().addBoth(done.append)
        self.commit()
        assert done == [None], done

    def stop(self) -> "Deferred[None]":
        """A clean stop, in the order of a bookie's."""
        return Deferred.fromCoroutine(stop_all(self.upkeep, self.storage))

    def now(self, result: Any) -> Any:
        """The value of a result that may be a Deferred, which has fired."""
        if not hasattr(result, "addBoth"):
            return result
        found: list[Any] = []
        result.addCallbacks(found.append, found.append)
        assert found, "not fired"
        return found[0]

    def read(self, ledger: int, entry: int) -> Any:
        return self.now(self.storage.read(ledger, entry))


def left_behind() -> Bookie:
    """
    A stopped bookie that gave up its second ledger directory, and then wrote so much that the journal segment which the
    mark there names is gone.
    """
    bookie = Bookie(ledgers=2)
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    assert bookie.storage.fail_directory("/disk/ledgers1", "injected")
    for entry in range(60):
        bookie.storage.add(run_of(0, entry, size=100_000), entry)
        bookie.commit()
    bookie.close()
    return bookie


def records(ledger: int, first: int, count: int, size: int = 20) -> bytes:
    """Consecutive records of an entry log."""
    return b"".join(
        struct.pack(">i", len(body)) + body
        for body in (body_of(ledger, entry, size) for entry in range(first, first + count))
    )


def reader(data: bytes) -> Callable[[int, int], bytes]:
    """Reads bytes in memory as (offset, count)."""
    return lambda offset, count: data[offset : offset + count]
