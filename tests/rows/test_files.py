"""The file system object: what is built from the system's calls, on a real disk."""

import ctypes
import errno
import fcntl
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quire.rows.files import BUFFERS_MAX, DIRECT, DSYNC, SHORT, Buffer, Files, NotBegun
from tests.bookie.fakes.disk import Disk


class Stingy(Files):
    """A system that takes a few bytes at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        self.calls += 1
        assert len(buffers) <= BUFFERS_MAX
        return super().pwritev(handle, [b"".join(bytes(buffer) for buffer in buffers)[: self.most]], offset)

    def pread(self, handle: int, count: int, offset: int) -> bytes:
        return super().pread(handle, min(count, self.most), offset)


@pytest.mark.parametrize("most", [1, 3, 7, 1000, 1 << 20])
def test_short_writes_and_reads_are_continued(tmp_path: Path, most: int) -> None:
    """However little the system takes at once, all buffers arrive in order, and a read gives all that there is."""
    files = Stingy(most)
    handle = files.open(str(tmp_path / "file"), create=True)
    buffers: list[Buffer] = [b"abc", b"", bytearray(b"defgh"), memoryview(b"ijklmnop"), b"q" * 50]
    assert files.write(handle, buffers, 5) == 5 + 66
    assert files.read(handle, 1000, 0) == bytes(5) + b"abcdefghijklmnop" + b"q" * 50
    assert files.read(handle, 4, 6) == b"bcde"
    assert files.read(handle, 4, 500) == b""
    files.close(handle)


def test_more_buffers_than_one_call_takes(tmp_path: Path) -> None:
    """Above 1,024 buffers several calls are made, the data is one."""
    files = Files()
    handle = files.open(str(tmp_path / "file"), create=True)
    pieces = [bytes([number % 251]) * (number % 5) for number in range(3000)]
    end = files.write(handle, pieces, 0)
    assert end == sum(map(len, pieces)) == files.size(handle)
    assert files.read(handle, end, 0) == b"".join(pieces)
    files.datasync(handle)
    files.sync(handle)
    files.close(handle)


def test_a_write_without_progress_is_an_error(tmp_path: Path) -> None:
    """A system that takes nothing does not hang the writer."""
    files = Stingy(0)
    handle = files.open(str(tmp_path / "file"), create=True)
    with pytest.raises(OSError, match="no progress"):
        files.write(handle, [b"x"], 0)
    files.close(handle)


def test_replace_puts_a_whole_file_in_place(tmp_path: Path) -> None:
    """The new content is under the name, nothing else is left; a leftover of an earlier try does not matter."""
    files = Files()
    path = str(tmp_path / "mark")
    Path(path + ".tmp").write_bytes(b"an older, longer leftover")
    files.replace(path, b"one")
    assert files.read_file(path) == b"one"
    files.replace(path, b"two")
    assert files.read_file(path) == b"two"
    assert files.names(str(tmp_path)) == ["mark"]
    assert files.read_file(path + "2") is None


def test_names_directories_and_usage(tmp_path: Path) -> None:
    """Parents are made; a missing directory has no names; usage has an id for the file system."""
    files = Files()
    path = str(tmp_path / "a" / "b" / "c")
    files.make_directories(path)
    files.make_directories(path)
    assert os.path.isdir(path)
    assert files.names(str(tmp_path / "none")) == []
    files.close(files.open(path + "/2", create=True))
    files.close(files.open(path + "/1", create=True))
    assert files.names(path) == ["1", "2"]
    files.rename(path + "/1", path + "/3")
    files.sync_directory(path)
    files.unlink(path + "/2")
    files.unlink(path + "/2")
    assert files.names(path) == ["3"]
    assert files.exists(path + "/3")
    with pytest.raises(FileNotFoundError):
        files.open(path + "/2")
    usage = files.usage(path)
    assert usage.device == files.usage(str(tmp_path)).device
    assert 0 <= usage.free <= usage.total


def test_a_disk_that_fails_says_nothing_about_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that can't be looked at is not taken for one that there is not."""
    files = Files()
    (tmp_path / "file").write_bytes(b"x")
    assert [files.exists(str(tmp_path / name)) for name in ("file", "other", "file/below")] == [True, False, False]

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "injected", path)

    monkeypatch.setattr(os, "stat", fails)
    with pytest.raises(OSError, match="injected"):
        files.exists(str(tmp_path / "file"))
    with pytest.raises(OSError, match="injected"):
        files.read_file(str(tmp_path / "file"))


def test_a_lock_is_exclusive(tmp_path: Path) -> None:
    """A second lock is refused until the first is closed, also within one process."""
    files = Files()
    path = str(tmp_path / "lock")
    held = files.lock(path)
    with pytest.raises(BlockingIOError):
        files.lock(path)
    files.close(held)
    files.close(files.lock(path))


def test_preallocated_room_does_not_show_and_is_given_back(tmp_path: Path) -> None:
    """Where the file system knows it: the size stays, the blocks come and go; elsewhere nothing happens."""
    files = Files()
    handle = files.open(str(tmp_path / "file"), create=True)
    files.write(handle, [b"x" * 5000], 0)
    if files.preallocate(handle, 4096, 8 << 20):
        assert os.fstat(handle).st_blocks * 512 >= 8 << 20
    assert files.size(handle) == 5000
    files.trim(handle)
    assert os.fstat(handle).st_blocks * 512 < 1 << 20
    assert files.read(handle, 6000, 0) == b"x" * 5000
    files.close(handle)


def test_a_disk_with_larger_sectors_is_written_through_the_page_cache(tmp_path: Path) -> None:
    """It refuses what is not aligned for it before anything was written; other errors stay errors."""
    refused = [errno.EINVAL]
    calls: list[int] = []

    class Coarse(Files):
        def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
            calls.append(fcntl.fcntl(handle, fcntl.F_GETFL) & DIRECT)
            if refused:
                raise OSError(refused.pop(), "injected")
            return super().pwritev(handle, buffers, offset)

    files = Coarse()
    handle = files.open(str(tmp_path / "file"), create=True)
    files.set_direct(handle)
    assert files.write_aligned(handle, memoryview(b"x" * 700), 512) == 1212
    assert calls[-1] == 0
    assert files.read(handle, 2000, 512) == b"x" * 700
    refused.append(errno.EIO)
    with pytest.raises(OSError, match="injected"):
        files.write_aligned(handle, memoryview(b"y"), 0)
    files.close(handle)


def test_writes_that_sync_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of one do, however little the system takes at once, and other writes do not."""
    files = Stingy(300)
    handle = files.open(str(tmp_path / "file"), create=True)
    flags: list[int] = []
    pwritev = os.pwritev

    def noted(handle: int, buffers: Sequence[Buffer], offset: int, flag: int = 0) -> int:
        flags.append(flag)
        return pwritev(handle, [b"".join(bytes(buffer) for buffer in buffers)[:300]], offset, flag)

    monkeypatch.setattr("quire.rows.files.os.pwritev", noted)
    assert files.write_aligned(handle, memoryview(b"x" * 700), 0, synced=True) == 700
    assert flags == [DSYNC] * 3
    assert files.write_aligned(handle, memoryview(b"y" * 100), 700) == 800
    assert flags[3:] == [0]
    assert files.read(handle, 1000, 0) == b"x" * 700 + b"y" * 100
    files.close(handle)


@pytest.mark.parametrize(("kind", "known"), [(0xEF53, True), (0x58465342, True), (0x65735546, False), (None, False)])
def test_file_systems_that_sync_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int | None, known: bool
) -> None:
    """ext4 and XFS do; FUSE may leave it to a server that does not; where the system does not say, nothing is known."""

    def fstatfs(_handle: int, found: Any) -> int:
        if kind is None:
            return -1
        ctypes.c_long.from_buffer(found).value = kind
        return 0

    files = Files()
    handle = files.open(str(tmp_path / "file"), create=True)
    assert isinstance(files.syncs_writes(handle), bool)
    monkeypatch.setattr("quire.rows.files.FSTATFS", fstatfs)
    assert files.syncs_writes(handle) is known
    monkeypatch.setattr("quire.rows.files.FSTATFS", None)
    assert not files.syncs_writes(handle)
    files.close(handle)


def test_writing_that_is_begun_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The bytes are what they were; a system that has no such call, or a call that fails, changes nothing: only a sync
    reports.
    """
    files = Files()
    handle = files.open(str(tmp_path / "file"), create=True)
    files.write(handle, [b"x" * (2 << 20)], 0)
    files.begin_writing(handle, 0, 2 << 20)
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr("quire.rows.files.SYNC_FILE_RANGE", lambda *words: asked.append(words) or -1)
    files.begin_writing(handle, 4096, 8192)
    assert asked == [(handle, 4096, 8192, 2)], (
        "2: begin, without waiting before or after, which would take the error that a sync must report"
    )
    monkeypatch.setattr("quire.rows.files.SYNC_FILE_RANGE", None)
    files.begin_writing(handle, 4096, 8192)
    files.datasync(handle)
    assert files.read(handle, 3 << 20, 0) == b"x" * (2 << 20)
    files.close(handle)


def test_preallocation_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not known to the file system or not to the system: false.  Interrupted: tried again.  Anything else is raised."""
    handle = Files().open(str(tmp_path / "file"), create=True)
    failures = [errno.EOPNOTSUPP, errno.EINTR, errno.ENOSYS, errno.ENOSPC, errno.EIO]

    def fallocate(*arguments: int) -> int:
        ctypes.set_errno(failures.pop(0))
        return -1

    monkeypatch.setattr("quire.rows.files.FALLOCATE", fallocate)
    for _ in range(2):
        assert not Files().preallocate(handle, 0, 1 << 20)
    for number in (errno.ENOSPC, errno.EIO):
        with pytest.raises(OSError, match=os.strerror(number)) as raised:
            Files().preallocate(handle, 0, 1 << 20)
        assert raised.value.errno == number
    assert not failures
    monkeypatch.setattr("quire.rows.files.FALLOCATE", None)
    assert not Files().preallocate(handle, 0, 1 << 20)
    Files().close(handle)


@pytest.mark.parametrize("number", SHORT)
def test_only_what_began_nothing_may_be_tried_again(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each system call fails with each of the errors that are no disk's: opens, looks and changes of names differ from
    writes and syncs.
    """

    class Short:
        def __getattr__(self, name: str) -> Any:
            def call(*args: Any, **more: Any) -> Any:
                raise OSError(number, os.strerror(number))

            return call if callable(getattr(os, name)) and name not in ("strerror", "fspath") else getattr(os, name)

    files = Files()
    path = str(tmp_path / "file")
    handle = files.open(path, create=True)
    with monkeypatch.context() as patched:
        patched.setattr("quire.rows.files.os", Short())
        for began_nothing, call in (
            (True, lambda: files.open(path)),
            (True, lambda: files.open_directory(str(tmp_path))),
            (True, lambda: files.names(str(tmp_path))),
            (True, lambda: files.exists(path)),
            (True, lambda: files.is_directory(path)),
            (True, lambda: files.size(handle)),
            (True, lambda: files.pread(handle, 1, 0)),
            (True, lambda: files.trim(handle)),
            (True, lambda: files.rename(path, path)),
            (True, lambda: files.unlink(path)),
            (True, lambda: files.remove_tree(path)),
            (True, lambda: files.usage(path)),
            (True, lambda: files.lock(path)),
            (True, files.boot_id),
            (False, lambda: files.pwritev(handle, [b"x"], 0)),
            (False, lambda: files.pwritev_synced(handle, [b"x"], 0)),
            (False, lambda: files.datasync(handle)),
            (False, lambda: files.sync(handle)),
            (False, lambda: files.sync_names(handle)),
        ):
            with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
                call()
            assert isinstance(caught.value, NotBegun) is began_nothing
            assert caught.value.errno == number
    files.close(handle)


def test_a_new_name_is_begun_when_all_is_open() -> None:
    """
    Without a descriptor for the directory a file keeps its old content, a name its file: nothing has to be made undone.
    """
    disk = Disk()
    disk.replace("/d/file", b"old")

    def each(call: str, path: str) -> None:
        if call == "open directory":
            raise OSError(errno.EMFILE, "injected", path)

    disk.each = each
    with pytest.raises(NotBegun):
        disk.replace("/d/file", b"new")
    with pytest.raises(NotBegun):
        disk.unlink_durably("/d/file")
    assert disk.read_file("/d/file") == b"old"


def test_what_is_in_memory_is_read_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the bytes or none: what the page cache or the file lacks, and what fails, is for an ordinary read."""
    files = Files()
    handle = files.open(str(tmp_path / "file"), create=True)
    files.write(handle, [b"abcdefgh"], 0)
    try:
        says_so = os.preadv(handle, [bytearray(3)], 2, os.RWF_NOWAIT) == 3
    except OSError:
        says_so = False  # this file system can't
    assert files.pread_in_memory(handle, 3, 2) == (b"cde" if says_so else None)
    assert files.pread_in_memory(handle, 3, 6) is None
    assert files.pread_in_memory(-1, 3, 2) is None
    for number in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EIO):

        def refuse(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "preadv", refuse)
        assert files.pread_in_memory(handle, 3, 2) is None
    monkeypatch.undo()
    monkeypatch.setattr("quire.rows.files.NOWAIT", 0)
    assert files.pread_in_memory(handle, 3, 2) is None
    files.close(handle)


def test_what_is_made_is_for_its_user_and_group(tmp_path: Path) -> None:
    """Keys of ledgers are there, and entries."""
    files, before = Files(), os.umask(0)
    try:
        files.make_directories(str(tmp_path / "a" / "current"))
        files.close(files.open(str(tmp_path / "a" / "current" / "file"), create=True))
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "current").stat().st_mode & 0o007 == 0
    assert (tmp_path / "a" / "current" / "file").stat().st_mode & 0o777 == 0o640
