"""One ledger directory: what is missing or damaged in it is never taken for absent, and what a read of it costs."""

import errno
import random

import pytest

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import KEY, Bookie, Disk, body_of, run_of
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


def test_a_lost_index_or_table_is_noticed() -> None:
    """An index or ledger table that vanished would turn every entry into a "no": the start refuses instead."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.close()
    for name in ("runs", "ledgers"):
        disk = bookie.disk.crashed(None)
        del disk.rows[f"/disk/ledgers0/current/{name}"]
        del disk.inodes[f"/disk/ledgers0/current/{name}/CURRENT"]
        with pytest.raises(StorageError, match=f"{name} is gone"):
            Bookie(disk)


def test_bit_rot_is_eio_never_no() -> None:
    """A flipped bit in an entry log gives EIO for that entry alone; a missing log gives EIO too."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 10), "a")
    bookie.commit()
    bookie.storage.flush()
    (path,) = bookie.disk.find(".log")
    size = len(body_of(1, 0)) + 4
    bookie.disk.flip(path, 1024 + 3 * size + 40)
    assert [bookie.read(1, entry) for entry in range(10)] == [
        body_of(1, entry) if entry != 3 else Status.EIO for entry in range(10)
    ]
    assert bookie.now(bookie.storage.read_run(1, 0, 10, 1 << 20)) == [body_of(1, entry) for entry in range(3)]
    assert bookie.now(bookie.storage.read_run(1, 3, 10, 1 << 20)) is Status.EIO
    assert bookie.storage.counters.read_errors >= 2
    lost = bookie.disk.killed()
    del lost.inodes[path]
    again = Bookie(lost)
    assert again.read(1, 0) is Status.EIO
    assert again.now(again.storage.read_run(1, 0, 10, 1 << 20)) is Status.EIO
    assert again.read(1, -1) is Status.EIO


@pytest.mark.parametrize("sizes", [[20] * 5, [20, 30, 40, 50, 60]])
def test_a_flipped_size_field_is_reported(sizes: list[int]) -> None:
    """A scan of the log would stop there, so a read says so too: that entry is EIO, those before it are served."""
    bookie = Bookie()
    for entry, size in enumerate(sizes):
        bookie.storage.add(run_of(1, entry, size=size), entry)
    bookie.commit()
    bookie.storage.flush()
    (path,) = bookie.disk.find(".log")
    at = 1024 + sum(4 + len(body_of(1, entry, size)) for entry, size in enumerate(sizes[:2]))
    bookie.disk.flip(path, at + 3)
    again = Bookie(bookie.disk.killed())
    assert again.read(1, 2) is Status.EIO
    assert again.read(1, 3) == body_of(1, 3, sizes[3])
    assert again.now(again.storage.read_run(1, 0, 5, 1 << 20)) == [body_of(1, 0, sizes[0]), body_of(1, 1, sizes[1])]
    assert again.now(again.storage.read_run(1, 2, 5, 1 << 20)) is Status.EIO


@pytest.mark.parametrize("sizes", [[100], [100, 200, 300]])
def test_what_a_read_costs(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A random read: one index seek, one read of the entry log.  A sequential reader: one of each for every run, up to 256
    entries.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for entry in range(1024):
        bookie.storage.add(run_of(1, entry, size=sizes[entry % len(sizes)]), entry)
    bookie.commit()
    bookie.storage.flush()
    (log,) = bookie.disk.find(".log")
    again = Bookie(bookie.disk.crashed(None))
    calls: list[str] = []
    rows = again.disk.rows["/disk/ledgers0/current/runs"]
    floor, pread = rows.floor, again.disk.pread

    def counted_floor(key: bytes) -> tuple[bytes, bytes] | None:
        calls.append("seek")
        return floor(key)

    def counted_pread(handle: int, count: int, offset: int) -> bytes:
        calls.append("read")
        return pread(handle, count, offset)

    monkeypatch.setattr(rows, "floor", counted_floor)
    monkeypatch.setattr(again.disk, "pread", counted_pread)
    assert log
    for entry in (700, 3, 1023, 256):
        calls.clear()
        assert again.read(1, entry) == body_of(1, entry, sizes[entry % len(sizes)])
        assert calls == ["seek", "read"]
    calls.clear()
    for entry in range(1024):
        assert again.read(1, entry) == body_of(1, entry, sizes[entry % len(sizes)])
    assert calls.count("read") <= 8
    assert calls.count("seek") <= 16


def opened(disk: Disk, marked: bool = False) -> LedgerDirectory:
    """With logs and rows in one directory."""
    disk.make_directories("/disk/ledgers0/current")
    return LedgerDirectory(disk, disk.open_rows, "/disk/ledgers0", "/disk/ledgers0", 1 << 20, lambda: None, marked)


def bodies(ledger: int, first: int, count: int) -> list[bytes]:
    return [body_of(ledger, entry) for entry in range(first, first + count)]


def test_what_was_flushed_is_read_back_by_entry_by_run_and_as_a_window() -> None:
    """In one flush or in two; what lies between is no entry, and the last one has the LAC."""
    directory = opened(Disk())
    written = directory.flush([(1, 0, bodies(1, 0, 3)), (1, 5, bodies(1, 5, 2)), (2, 9, bodies(2, 9, 1))])
    assert written == sum(len(body) + 4 for body in bodies(1, 0, 6))
    directory.sync()
    directory.flush([(1, 3, bodies(1, 3, 1))])
    assert [directory.read(1, entry) for entry in range(7)] == [*bodies(1, 0, 4), None, *bodies(1, 5, 2)]
    assert directory.read_run(1, 0, 0, 1 << 20) == bodies(1, 0, 4), "over the end of a run, up to the gap"
    assert directory.read_run(1, 1, 2, 1 << 20) == bodies(1, 1, 2)
    assert directory.read_run(1, 4, 9, 1 << 20) == []
    assert directory.window(1, 1, 1 << 20) == bodies(1, 1, 2), "the rest of one run"
    assert directory.window(3, 0, 1 << 20) == []
    assert list(directory.ranges(1)) == [(0, 3), (3, 1), (5, 2)]
    assert (directory.survey(1), directory.survey(3)) == ((6, 5), (-1, -1))
    directory.close()


def test_rows_are_durable_after_a_sync_only_and_never_before_their_records() -> None:
    """After a power loss before it an entry is absent or whole."""
    disk = Disk()
    directory = opened(disk)
    directory.flush([(1, 0, bodies(1, 0, 3))])
    directory.store_rows({1: LedgerRow(KEY)})
    for kept in range(20):
        again = opened(disk.crashed(random.Random(kept)))
        assert [again.read(1, entry) for entry in range(3)] in (bodies(1, 0, 3), [None] * 3)
    directory.sync()
    again = opened(disk.crashed(None), marked=True)
    assert [again.read(1, entry) for entry in range(3)] == bodies(1, 0, 3)
    assert again.table.get(1) == LedgerRow(KEY)


def test_a_new_index_takes_the_place_of_the_old_or_is_removed() -> None:
    """What is flushed while it is made is in it; of the other no file is left after a start."""
    disk = Disk()
    directory = opened(disk)
    directory.flush([(1, 0, bodies(1, 0, 2))])
    made, logs = directory.begin_index()
    assert len(logs) == 1
    directory.give_up_index(made)
    assert directory.index.beside is None
    made, logs = directory.begin_index()
    directory.flush([(1, 2, bodies(1, 2, 1))])
    directory.change_index(made)
    assert [directory.read(1, entry) for entry in range(3)] == [None, None, body_of(1, 2)]
    directory.close()
    after = disk.crashed(None)
    again = opened(after, marked=True)
    assert [again.read(1, entry) for entry in range(3)] == [None, None, body_of(1, 2)]
    assert sorted(after.rows) == ["/disk/ledgers0/current/ledgers", "/disk/ledgers0/current/runs.2"]


def test_too_little_room_is_a_full_disk() -> None:
    """The error is ENOSPC, which is waited for, and names the directory."""
    directory = opened(Disk())
    directory.check_room(1 << 30)
    with pytest.raises(OSError, match="bytes are free") as raised:
        directory.check_room(1 << 60)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, directory.path)


def test_a_failed_directory_closes_without_an_error() -> None:
    """Nothing is lost by that any more; of one that has not failed the error is raised."""

    class BadRows(DictRows):
        def close(self) -> None:
            raise OSError(errno.EIO, "injected")

    disk = Disk()
    disk.make_directories("/disk/ledgers0/current")
    for failed in (None, "injected"):
        directory = LedgerDirectory(
            disk, lambda path: BadRows(), "/disk/ledgers0", "/disk/ledgers0", 1 << 20, lambda: None
        )
        directory.failed = failed
        if failed is None:
            with pytest.raises(OSError, match="injected"):
                directory.close()
        else:
            directory.close()
