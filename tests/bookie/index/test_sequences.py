"""How far index and ledger table had come: written when it changed, checked at a start, damage reported."""

import shutil
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from quire.bookie.index import sequences
from quire.bookie.index.sequences import Sequences, forget
from quire.rows.files import Files, StorageError
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.disk import Disk
from tests.rows.fakes import DictRows

PLACE = "/index/current"


def test_what_is_written_is_checked() -> None:
    """Equal or higher numbers pass; a lower one is reported with the store's path, and how much is gone."""
    disk = Disk()
    Sequences(disk, PLACE).write(10, 4)
    again = Sequences(disk, PLACE)
    again.check(10, 4, "/runs", "/ledgers")
    again.check(11, 400, "/runs", "/ledgers")
    with pytest.raises(StorageError, match="/runs: damaged: 3 writes"):
        again.check(7, 4, "/runs", "/ledgers")
    with pytest.raises(StorageError, match="/ledgers: damaged: 4 writes"):
        again.check(10, 0, "/runs", "/ledgers")


def test_nothing_is_written_twice() -> None:
    """An idle checkpoint makes no call."""
    disk = Disk()
    sequences = Sequences(disk, PLACE)
    sequences.write(10, 4)
    calls = len(disk.calls)
    sequences.write(10, 4)
    assert len(disk.calls) == calls
    Sequences(disk.crashed(None), PLACE).check(10, 4, "", "")


def test_an_index_in_the_other_directory_is_not_taken() -> None:
    """Where the file that says in which it is has gone; a note of an older build does not say."""
    disk = Disk()
    sequences.change(disk, PLACE)
    Sequences(disk, PLACE).write(10, 4)
    Sequences(disk.killed(), PLACE).check(10, 4, "", "")
    disk.unlink(f"{PLACE}/quire.index")
    with pytest.raises(StorageError, match=rf"{PLACE}/quire\.index is missing.*runs\.2"):
        Sequences(disk, PLACE).check(10, 4, "", "")
    Sequences(disk, PLACE).check(None, 4, "", "")
    older = struct.pack(">4sIQQ", b"QROW", 1, 10, 4)
    disk.replace(f"{PLACE}/quire.rows", older + struct.pack(">I", crc32c(older)))
    Sequences(disk, PLACE).check(10, 4, "", "")
    with pytest.raises(StorageError, match="3 writes"):
        Sequences(disk, PLACE).check(7, 4, "", "")


def test_damage_is_reported() -> None:
    """Any flipped bit and any cut, with the file's name; without the file anything passes, as after a rebuild."""
    disk = Disk()
    Sequences(disk, PLACE).write(10, 4)
    path = f"{PLACE}/quire.rows"
    size = len(disk.inodes[path].data)
    for at in range(size):
        broken = disk.killed()
        broken.flip(path, at, 1 << (at % 8))
        with pytest.raises(StorageError, match=f"{path} at offset 0"):
            Sequences(broken, PLACE)
    broken = disk.killed()
    del broken.inodes[path].data[-1]
    with pytest.raises(StorageError, match=path):
        Sequences(broken, PLACE)
    forget(disk, PLACE)
    Sequences(disk, PLACE).check(0, 0, "", "")
    assert not disk.crashed(None).exists(path)


def test_rocksdb_numbers_its_writes(tmp_path: Path) -> None:
    """Each write and each range delete raises the number, and a start finds it again."""
    path = tmp_path / "runs"
    rows = RocksRows(str(path))
    assert rows.sequence == 0
    numbers = [rows.sequence]
    for key in (b"a", b"b", b"c"):
        rows.write([(key, b"x" * 100)])
        numbers.append(rows.sequence)
    rows.delete_range(b"a", b"b")
    numbers.append(rows.sequence)
    rows.sync()
    rows.close()
    assert numbers == sorted(set(numbers))
    again = RocksRows(str(path))
    assert again.sequence == numbers[-1]
    again.close()


def test_lost_writes_are_noticed(tmp_path: Path) -> None:
    """RocksDB opens without an error when its log is damaged; the numbers show it."""
    path = tmp_path / "runs"
    rows = RocksRows(str(path))
    for number in range(10):
        rows.write([(b"%d" % number, b"x" * 100)])
    rows.sync()
    sequences = Sequences(Files(), str(tmp_path))
    sequences.write(rows.sequence, 0)
    killed = tmp_path / "killed"
    shutil.copytree(path, killed)
    rows.close()
    (log,) = killed.glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    sequences = Sequences(Files(), str(tmp_path), [str(killed)])
    again = RocksRows(str(killed))
    with pytest.raises(
        StorageError,
        match=rf"{killed}: damaged: [0-9]+ writes that were durable are gone .*; "
        rf"{killed}/{log.name} at offset [0-9]+ holds",
    ):
        sequences.check(again.sequence, 0, str(killed), "")
    again.close()


def test_dict_rows_keep_no_number() -> None:
    """The slow twin forgets nothing that was synced, so there is nothing to count."""
    rows = DictRows()
    rows.write([(b"a", b"b")])
    assert rows.sequence == 0
