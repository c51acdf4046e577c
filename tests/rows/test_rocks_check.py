"""
What is looked at before RocksDB opens a directory: each flipped bit of a manifest is reported, a torn end is not;
nothing passes that it never ends with.
"""

import shutil
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, strategies

from quire.rows.files import Files, StorageError
from quire.rows.rocks import RocksRows
from quire.rows.rocks_check import BLOCK_BYTES, check, first_bad, masked, stops

WHOLE, FIRST, MIDDLE, LAST = range(1, 5)


def record(data: bytes, kind: int = WHOLE) -> bytes:
    """By the format's description, for one block."""
    return struct.pack("<IHB", masked(crc32c(bytes([kind]) + data)), len(data), kind) + data


def log_of(*texts: bytes) -> bytes:
    """A log of these records, split into blocks as RocksDB does."""
    log = b""
    for text in texts:
        begun = False
        while True:
            room = BLOCK_BYTES - len(log) % BLOCK_BYTES
            if room < 7:
                log += bytes(room)
                room = BLOCK_BYTES
            part, text = text[: room - 7], text[room - 7 :]
            log += record(part, (LAST if begun else WHOLE) if not text else MIDDLE if begun else FIRST)
            begun = True
            if not text:
                break
    return log


def test_whole_logs_pass() -> None:
    """Records of all sizes, over blocks and at their ends, where too few bytes are left for a head."""
    for rest in range(20):
        log = log_of(b"a", b"b" * (BLOCK_BYTES - 40 + rest), b"c" * 30, b"", b"d" * (2 * BLOCK_BYTES), b"e")
        assert first_bad(log) is None
        assert (
            first_bad(log[: BLOCK_BYTES - 10] + bytes([log[BLOCK_BYTES - 10] ^ 1]) + log[BLOCK_BYTES - 9 :]) is not None
        )
    assert first_bad(b"") is None


@given(strategies.lists(strategies.integers(0, 60), min_size=2, max_size=6), strategies.data())
def test_a_flipped_bit_is_found(sizes: list[int], data: strategies.DataObject) -> None:
    """Wherever it is, at or before the record that it is in, if another follows or not."""
    log = log_of(*(bytes([65 + number]) * size for number, size in enumerate(sizes)))
    at = data.draw(strategies.integers(0, len(log) - 1))
    bad = first_bad(log[:at] + bytes([log[at] ^ 1 << data.draw(strategies.integers(0, 7))]) + log[at + 1 :])
    starts = [sum(sizes[:number]) + 7 * number for number in range(len(sizes))]
    assert bad is not None
    assert bad.offset == max(start for start in starts if start <= at)


def test_the_length_of_the_last_record_is_no_torn_end() -> None:
    """It would be too long for the file, but a shorter one fits the sum."""
    log = log_of(b"one", b"two" * 10)
    broken = log[:15] + b"\xff" + log[16:]
    bad = first_bad(broken)
    assert bad is not None
    assert (bad.offset, bad.why) == (10, "its length is wrong")


def test_a_torn_end_passes() -> None:
    """Cut at any byte, or with zeros where the last write should be, as a crash leaves it."""
    log = log_of(b"one", b"two" * 10, b"three")
    for size in range(len(log)):
        assert first_bad(log[:size]) is None, size
    assert first_bad(log + bytes(50)) is None
    assert first_bad(log + bytes(50) + b"x") is not None


def test_a_type_of_another_kind_of_log_is_endless() -> None:
    """RocksDB reads such a record over and over; in the last one as well, where it seems cut."""
    log = bytearray(log_of(b"one", b"two", b"three"))
    for at in (0, 10, 20):
        broken = log.copy()
        broken[at + 6] ^= 4
        bad = first_bad(bytes(broken))
        assert bad is not None
        assert (bad.offset, bad.endless) == (at, at > 0)  # the first says that the whole log is of that kind


def made(path: Path) -> Path:
    """A killed store with a table, and with several records in its log."""
    rows = RocksRows(str(path / "open"))
    rows.write([(b"a", b"b")])
    rows.close()
    rows = RocksRows(str(path / "open"))
    for number in range(4):
        rows.write([(b"%d" % number, b"x" * 30)])
    rows.sync()
    shutil.copytree(path / "open", path / "killed")
    rows.close()
    return path / "killed"


def test_what_rocksdb_writes_passes(tmp_path: Path) -> None:
    """Its own manifests and logs, whole and cut; no directory at all."""
    store = made(tmp_path)
    check(str(store))
    check(str(tmp_path / "none"))
    assert stops(str(store), Files()) is None
    assert stops(str(tmp_path / "none"), Files()) is None
    for path in (*store.glob("MANIFEST-*"), *store.glob("*.log")):
        data = path.read_bytes()
        assert first_bad(data) is None
        assert all(first_bad(data[:size]) is None for size in range(len(data)))


def test_each_bit_of_a_manifest_is_reported(tmp_path: Path) -> None:
    """With the file and the offset of the record; RocksDB is not even asked."""
    store = made(tmp_path)
    (path,) = store.glob("MANIFEST-*")
    data = path.read_bytes()
    for at in range(len(data)):
        broken = [data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for bit in range(8)]
        assert None not in map(first_bad, broken)
        path.write_bytes(broken[at % 8])
        with pytest.raises(StorageError, match=f"{path} at offset [0-9]+: damaged"):
            check(str(store))
    path.write_bytes(data)
    check(str(store))


def test_a_log_that_would_never_be_read_to_its_end_is_reported(tmp_path: Path) -> None:
    """The other damage of a log of writes is left to RocksDB, which ends there, and to the number of the last write."""
    store = made(tmp_path)
    (path,) = store.glob("*.log")
    data = path.read_bytes()
    second = 7 + struct.unpack_from("<H", data, 4)[0]
    path.write_bytes(data[: second + 6] + b"\x05" + data[second + 7 :])
    with pytest.raises(StorageError, match=f"{path} at offset {second}: damaged.*; ask Ann"):
        RocksRows(str(store), what_to_do="ask Ann")
    assert (
        stops(str(store), Files())
        == f"{path} at offset {second} holds a record of writes, and its type is that of a log which is used again"
    )
    path.write_bytes(data[: second + 20] + b"\xff" + data[second + 21 :])
    assert (
        stops(str(store), Files()) == f"{path} at offset {second} holds a record of writes, and its checksum is wrong"
    )
    rows = RocksRows(str(store))
    assert [key for key, _value in rows.scan(b"", b"z")] == [b"0", b"a"]
    rows.close()


def test_a_bad_current_is_reported(tmp_path: Path) -> None:
    """Each bit of it: no manifest is named, or one that is not there."""
    store = made(tmp_path)
    path = store / "CURRENT"
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(StorageError, match=f"{path} at offset 0: damaged"):
                check(str(store))
