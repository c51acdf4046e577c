"""
The file system, behind one object: the only caller of file system calls in a bookie's storage and below rows.

Knows: how to make each call, that a write may be short, that one `pwritev` takes at most 1,024 buffers, that a rename
or a new name is durable only once its directory was synced.
Does not know: what the files hold.

A simulated disk replaces the object by overriding the primitive calls; the methods below them are built from these
alone.  Every method raises `OSError` as the system gave it; `NotBegun` where the process or the machine was short of
something and the disk was not asked: an open, a look, a change of names.  A write or a sync never fails so.  Safety: a
failed sync is reported once and never tried again here, for after it the content of the pages is unknown.

Long: one object has every call, so that a simulated disk can take its place, and what each error means is beside it.
"""

import ctypes
import errno
import fcntl
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from mmap import mmap
from typing import NamedTuple

from quire.protocol.errors import Status

# SPDX-License-Identifier: Apache-2.0

BUFFERS_MAX = 1024  # IOV_MAX on Linux
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TEMPORARY = ".tmp"  # what a file is called until it is whole and synced

KEEP_SIZE = 1  # of fallocate(2): the visible size stays
RANGE_WRITE = 2  # of sync_file_range(2): it begins, waits for nothing, and leaves errors to the next sync
STAT_BLOCK = 512  # the unit of st_blocks
TRIM_BYTES_MIN = 1 << 20
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)
FULL = (errno.ENOSPC, errno.EDQUOT)  # what a disk says that has no room, now
DESCRIPTORS = (errno.EMFILE, errno.ENFILE)  # what only a call says that opens something
# what says nothing of a disk: descriptors, memory, a signal
SHORT = (*DESCRIPTORS, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
AGAIN_SECONDS = 0.2  # between two tries of what was not begun
AGAIN_TRIES = 10  # then it is reported, and waited for as a full disk is
# what a disk says that is of no use any more
REFUSED = (errno.EACCES, errno.EPERM)
DEAD = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.EROFS, errno.ESTALE)

NOWAIT = getattr(os, "RWF_NOWAIT", 0)  # a read of what is in memory; 0: this system has no such flag
DIRECT = getattr(os, "O_DIRECT", 0)  # past the page cache; 0: this system has no such flag
DSYNC = getattr(os, "RWF_DSYNC", 0)  # a write that syncs what it wrote; 0: this system has no such flag
# By statfs(2): ext4 (and its elders), XFS, Btrfs, tmpfs.  Others, as FUSE's, may take the flag and leave the sync out.
SYNCING_FILE_SYSTEMS = (0xEF53, 0x58465342, 0x9123683E, 0x01021994)
STATFS_BYTES = 256  # more than statfs(2) fills in; the type comes first

Buffer = bytes | bytearray | memoryview
PWriteV = Callable[[int, Sequence[Buffer], int], int]  # of a handle, at an offset; the bytes written


def memory(size: int) -> mmap:
    """Zeros in memory that begins with a page, as a direct write needs it; of no file."""
    return mmap(-1, size)


def system_fallocate() -> "Callable[[int, int, int, int], int] | None":
    """Linux's fallocate(2) for 64-bit offsets, which Python has without its flags only; None elsewhere."""
    system = ctypes.CDLL(None, use_errno=True)
    call = getattr(system, "fallocate64", None) or getattr(system, "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        call.restype = ctypes.c_int
    return call


def system_sync_file_range() -> "Callable[[int, int, int, int], int] | None":
    """Linux's sync_file_range(2), which Python has not; None elsewhere."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        call.restype = ctypes.c_int
    return call


def system_fstatfs() -> "Callable[[int, ctypes.Array[ctypes.c_char]], int] | None":
    """Linux's fstatfs(2), whose type of the file system Python leaves out; None elsewhere."""
    return getattr(ctypes.CDLL(None, use_errno=True), "fstatfs", None) if DSYNC else None


FALLOCATE = system_fallocate()
FSTATFS = system_fstatfs()
SYNC_FILE_RANGE = system_sync_file_range()


class StorageError(Exception):
    """The storage can't be used; the text names the file, and the offset where there is one."""


class NotBegun(OSError):
    """The call has done nothing, for want of something (`SHORT`) that is no disk's: it may be tried again."""


def status_of(error: object) -> Status:
    """The status for a client: EIO; ETOOMANYREQUESTS where nothing was begun: others may do it, and this one later."""
    return Status.ETOOMANYREQUESTS if isinstance(error, NotBegun) else Status.EIO


class BeginsNothing:
    """Around a call that has no effect when it fails: raises `NotBegun` for `SHORT`."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in SHORT and not isinstance(error, NotBegun):
            raise NotBegun(error.errno, error.strerror, error.filename) from error


BEGINS_NOTHING = BeginsNothing()


def is_dead(error: OSError) -> bool:
    """True if the disk itself has failed; RocksDB has only the words of it."""
    return error.errno in DEAD or (error.errno is None and any(os.strerror(number) in str(error) for number in DEAD))


def is_refused(failure: OSError) -> bool:
    """True if the system refuses this user something; RocksDB has only the words of it."""
    return failure.errno in REFUSED or (failure.errno is None and os.strerror(errno.EACCES) in str(failure))


def is_full(failure: OSError) -> bool:
    """True if there is no room on a disk; RocksDB has only the words of it."""
    return failure.errno in FULL or (failure.errno is None and any(os.strerror(each) in str(failure) for each in FULL))


def error_at(path: str, directory: str, failure: OSError) -> str:
    """The error of a call on `path` of a configured directory, with the next step where the system refuses it."""
    text = f"{path}: {failure.strerror or failure}"
    return f"{text}.  {owner_advice(path, directory)}" if is_refused(failure) else text


def owner_advice(path: str, directory: str) -> str:
    """
    A sentence on the user of this process, the owner of `path` (or of the nearest directory above it), and the next
    step.  That concerns `directory`, a configured one, and nothing above it.
    """
    at = path
    while True:
        try:
            state = os.stat(at)
            break
        except OSError:
            if os.path.dirname(at) == at:
                return f"This process runs as {user(os.geteuid())}, which may not look at {path}"
            at = os.path.dirname(at)
    me, owner = os.geteuid(), state.st_uid
    try:
        os.stat(directory)
    except FileNotFoundError:
        step = f"{directory} does not exist: `install -d -o {user(me)} -m 750 {directory}`"
    except OSError:
        step = f"let {user(me)} reach {directory} (`chmod o+x {at}`)"
    else:
        step = (
            f"`chown -R {user(me)}: {directory}`"
            if owner != me
            else f"`chmod -R u+rwX {directory}`, and see what else guards it (a flag of chattr, a read-only mount, "
            "SELinux)"
        )
    return (
        f"This process runs as {user(me)}, and {at} belongs to {user(owner)} (mode {stat.S_IMODE(state.st_mode):o}).  "
        f"Nothing is lost: {step}, as root, and start again as before"
    )


def user(number: int) -> str:
    """The name of a user; the number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


class Usage(NamedTuple):
    """One file system: an id that is equal for directories on the same one, and its bytes."""

    device: int
    total: int
    free: int


class Files:
    """
    The real file system.  A file is a handle (an int) from `open` until `close`.  What is made is for the process's
    user and group: entries are there, and the keys of ledgers.
    """

    def make_directories(self, path: str) -> None:
        """Makes the directory and its parents, and syncs the names of those that it made."""
        made = []
        at = os.path.abspath(path)
        with BEGINS_NOTHING:
            while not self.is_directory(at):
                made.append(at)
                at = os.path.dirname(at)
            os.makedirs(path, 0o750, exist_ok=True)
        for directory in made:
            self.sync_directory(os.path.dirname(directory))

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        try:
            with BEGINS_NOTHING:
                return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Not of a path that can't be looked at: a disk that fails says nothing about its files."""
        try:
            with BEGINS_NOTHING:
                os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        """As `exists`; `os.path.isdir` would take any error for a no."""
        try:
            with BEGINS_NOTHING:
                return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def open(self, path: str, create: bool = False) -> int:
        """Opens for reading and writing; `create` makes the file if it is missing."""
        with BEGINS_NOTHING:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o640)

    def set_direct(self, handle: int, on: bool = True) -> None:
        """Lets writes to the file go past the page cache, where that can be; such a write needs `write_aligned`."""
        flags = fcntl.fcntl(handle, fcntl.F_GETFL)
        try:
            fcntl.fcntl(handle, fcntl.F_SETFL, flags | DIRECT if on else flags & ~DIRECT)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise

    def close(self, handle: int) -> None:
        with suppress(InterruptedError):  # Linux has closed it then
            os.close(handle)

    def size(self, handle: int) -> int:
        with BEGINS_NOTHING:
            return os.fstat(handle).st_size

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """One system call with at most `BUFFERS_MAX` buffers; returns the bytes written, perhaps fewer than given."""
        return os.pwritev(handle, buffers, offset)

    def syncs_writes(self, handle: int) -> bool:
        """True if the file system is one of those that are known to honour `pwritev_synced`."""
        found = ctypes.create_string_buffer(STATFS_BYTES)
        if FSTATFS is None or FSTATFS(handle, found) != 0:
            return False
        return ctypes.c_long.from_buffer(found).value in SYNCING_FILE_SYSTEMS

    def pwritev_synced(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """
        `pwritev` and a data sync of the bytes that it wrote in one system call: they, and what is needed to find them,
        are on stable storage on return.  Nothing that was written to the file before is.  With EOPNOTSUPP the kernel
        has refused it, and nothing was written.
        """
        return os.pwritev(handle, buffers, offset, DSYNC)

    def preallocate(self, handle: int, offset: int, count: int) -> bool:
        """Takes room on the disk behind `offset`, the visible size unchanged; False where the file system can't."""
        if FALLOCATE is None:
            return False
        number = errno.EINTR
        while number == errno.EINTR:  # a signal came
            if FALLOCATE(handle, KEEP_SIZE, offset, count) == 0:
                return True
            number = ctypes.get_errno()
        if number in UNSUPPORTED:
            return False
        with BEGINS_NOTHING:
            raise OSError(number, os.strerror(number))

    def begin_writing(self, handle: int, offset: int, count: int) -> None:
        """Sends what was written on its way to the disk, so that the next sync has less to do.  Proves nothing."""
        if SYNC_FILE_RANGE is not None:
            SYNC_FILE_RANGE(handle, offset, count, RANGE_WRITE)

    def trim(self, handle: int) -> None:
        """Gives back what was preallocated behind the file's end."""
        with BEGINS_NOTHING:
            found = os.fstat(handle)
            if found.st_blocks * STAT_BLOCK > found.st_size + TRIM_BYTES_MIN:
                os.ftruncate(handle, found.st_size)

    def pread(self, handle: int, count: int, offset: int) -> bytes:
        """One system call; fewer bytes at the end of the file, and perhaps elsewhere."""
        with BEGINS_NOTHING:
            return os.pread(handle, count, offset)

    def pread_in_memory(self, handle: int, count: int, offset: int) -> bytes | None:
        """Reads from the page cache, without waiting for the disk; None when it has not all, or can't say so."""
        if not NOWAIT:
            return None
        data = bytearray(count)
        try:
            return bytes(data) if os.preadv(handle, [data], offset, NOWAIT) == count else None
        except OSError:  # EAGAIN, mostly; what else there is, an ordinary read will say
            return None

    def datasync(self, handle: int) -> None:
        """The file's bytes, and its length if that changed, are on stable storage afterwards."""
        os.fdatasync(handle)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def open_directory(self, path: str) -> int:
        with BEGINS_NOTHING:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_names(self, handle: int) -> None:
        """The names in the directory are on stable storage afterwards."""
        os.fsync(handle)

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` if it exists."""
        with BEGINS_NOTHING:
            os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Removes a name; a missing one is fine."""
        try:
            with BEGINS_NOTHING:
                os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all in it; a missing one is fine, and another try removes what an error left."""
        if self.is_directory(path):
            with BEGINS_NOTHING:
                shutil.rmtree(path)

    def rename_aside(self, path: str, aside: str) -> None:
        """Gives a directory another name, under which an older one goes; a missing one is fine."""
        if self.is_directory(path):
            self.remove_tree(aside)
            self.rename(path, aside)

    def lock(self, path: str) -> int:
        """
        Locks the file, which is made if it is missing, or the directory, until the handle is closed or the process
        ends; `BlockingIOError`: another has it.
        """
        handle = self.open_directory(path) if self.is_directory(path) else self.open(path, create=True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close(handle)
            raise
        return handle

    def salt(self) -> int:
        """64 random bits for a journal segment or an incarnation; a simulated disk chooses its own."""
        return int.from_bytes(os.urandom(8), "big")

    def usage(self, path: str) -> Usage:
        with BEGINS_NOTHING:
            found, device = os.statvfs(path), os.stat(path).st_dev
        return Usage(device, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def usage_of(self, paths: Iterable[str]) -> tuple[int, int]:
        """(total, free) bytes of the file systems that these lie on, each counted once; a dead one is left out."""
        usages: dict[int, Usage] = {}
        for path in paths:
            with suppress(OSError):  # it will fail, or has made the bookie read-only
                usage = self.usage(path)
                usages[usage.device] = usage
        return sum(usage.total for usage in usages.values()), sum(usage.free for usage in usages.values())

    def boot_id(self) -> bytes:
        """The id of the machine's boot; empty where the system has none."""
        try:
            with BEGINS_NOTHING:
                handle = os.open(BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
        except NotBegun:
            raise  # it has one, but not now
        except OSError:
            return b""
        try:
            with BEGINS_NOTHING:
                return os.read(handle, 64)
        finally:
            self.close(handle)

    # What follows is made of the calls above.

    @contextmanager
    def closing(self, handle: int) -> Iterator[int]:
        """The handle of a file or directory, which is closed behind the block."""
        try:
            yield handle
        finally:
            self.close(handle)

    def write(self, handle: int, buffers: Sequence[Buffer], offset: int, synced: bool = False) -> int:
        """
        Writes all buffers one behind the other; returns the offset behind the last byte.  `synced`: each write is a
        `pwritev_synced`, so all of them are on stable storage on return.
        """
        pwritev = self.pwritev_synced if synced else self.pwritev
        for start in range(0, len(buffers), BUFFERS_MAX):
            part = buffers[start : start + BUFFERS_MAX] if len(buffers) > BUFFERS_MAX else buffers
            wanted = sum(map(len, part))
            done = pwritev(handle, part, offset)
            if done < wanted:
                self._write_rest(pwritev, handle, part, offset, done)
            offset += wanted
        return offset

    def write_aligned(self, handle: int, data: memoryview, offset: int, synced: bool = False) -> int:
        """
        Writes one buffer that lies at the beginning of a page, in sectors, for a file that is written directly.
        A disk with larger sectors refuses that before it writes anything; then the file goes through the page cache.
        """
        try:
            return self.write(handle, [data], offset, synced)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        self.set_direct(handle, False)
        return self.write(handle, [data], offset, synced)

    def _write_rest(self, pwritev: PWriteV, handle: int, buffers: Sequence[Buffer], offset: int, done: int) -> None:
        """The slow way after a short write: one piece at a time."""
        for buffer in buffers:
            size = len(buffer)
            skip = min(done, size)
            done -= skip
            offset += skip
            view = memoryview(buffer)[skip:]
            while view:
                written = pwritev(handle, [view], offset)
                if written <= 0:
                    raise OSError(f"a write at offset {offset} made no progress")
                view = view[written:]
                offset += written

    def read(self, handle: int, count: int, offset: int) -> bytes:
        """`count` bytes, or as many as the file has behind `offset`."""
        data = self.pread(handle, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        have = len(data)
        while have < count and (data := self.pread(handle, count - have, offset + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def sync_directory(self, path: str) -> None:
        """The directory's names are on stable storage afterwards."""
        with self.closing(self.open_directory(path)) as handle:
            self.sync_names(handle)

    def rename_durably(self, old: str, new: str) -> None:
        """Renames, and syncs; with `NotBegun` it has the old name still, for what must be opened is opened first."""
        with self.closing(self.open_directory(os.path.dirname(new))) as handle:
            self.rename(old, new)
            self.sync_names(handle)

    def unlink_durably(self, path: str) -> None:
        """A removal, on stable storage afterwards; with `NotBegun` the name is still there."""
        with self.closing(self.open_directory(os.path.dirname(path))) as handle:
            self.unlink(path)
            self.sync_names(handle)

    def read_file(self, path: str) -> bytes | None:
        """A whole (small) file; None when there is none."""
        if not self.exists(path):
            return None
        with self.closing(self.open(path)) as handle:
            return self.read(handle, self.size(handle), 0)

    def replace(self, path: str, data: bytes) -> None:
        """Puts a whole file in place: a crash leaves the old or the new one.  Durable; with `NotBegun` the old one."""
        temporary = path + TEMPORARY
        self.unlink(temporary)
        handle = self.open(temporary, create=True)
        try:
            self.write(handle, [data], 0)
            self.sync(handle)
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = path  # a write knows its handle only
            raise
        finally:
            self.close(handle)
        self.rename_durably(temporary, path)
