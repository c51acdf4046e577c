"""One ledger directory: what is missing or damaged in it is never taken for absent, and what a read of it costs."""

import pytest

from quire.bookie.files import StorageError
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import Bookie, body_of, run_of

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
def test_a_flipped_size_field_is_told(sizes: list[int]) -> None:
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
