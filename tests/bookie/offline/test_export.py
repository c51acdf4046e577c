"""
Moving back: Apache's index has everything after an export and Apache is let in; what it does then is found again, and
nothing before.
"""

import pathlib
import shutil
import struct
from contextlib import nullcontext

import pytest

from quire.bookie.apache.journal import GUARD, journal_name, read_last_mark
from quire.bookie.index.rocks import open_read_only
from quire.bookie.offline import export
from quire.bookie.offline.stopped import Stopped
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from quire.rows.files import Files, StorageError
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import Here, ledgers_of, options_for, unpack

LEDGER = 4  # left open by its writer, with 200 entries


def appended(root: pathlib.Path, name: str, first: int, count: int) -> None:
    """Our bookie runs and its writer goes on."""
    here = Here(root)
    digest = ledgers_of(name, "stopped")[LEDGER][0]
    bodies = [digest.entry(LEDGER, entry, entry - 1, 100 * entry, b"new") for entry in range(first, first + count)]
    assert (
        here.storage.add(AddRun(LEDGER, first, bodies, digest.master_key, txns=list(range(count)), version=3), "a")
        is Status.EOK
    )
    here.commit()
    here.close()


def checked(root: pathlib.Path) -> list[str]:
    stopped = Stopped(Files(), options_for(root))
    try:
        return export.check(stopped, export.storage_class(stopped, None))
    finally:
        stopped.close()


def exported(root: pathlib.Path, configured: str | None = None) -> export.Exported:
    stopped = Stopped(Files(), options_for(root))
    try:
        storage = export.storage_class(stopped, configured)
        assert not export.obstacles(stopped, storage)
        return export.export(stopped, storage)
    finally:
        stopped.close()


def places_of(root: pathlib.Path, name: str, ledger: int, count: int) -> list[int]:
    """Apache's own view of where the entries lie."""
    if name == "sorted":
        data = (root / f"index/current/0/{ledger:x}/{ledger:x}.idx").read_bytes()
        assert (len(data) - 1024) % 8192 == 0
        return list(struct.unpack_from(f">{count}q", data, 1024))
    rows = open_read_only(str(root / "index/current/locations"))
    try:
        return [
            struct.unpack(">q", rows.get(struct.pack(">qq", ledger, entry)) or bytes(8))[0] for entry in range(count)
        ]
    finally:
        rows.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_apaches_index_has_every_entry_after_an_export(name: str, tmp_path: pathlib.Path) -> None:
    """
    Each place leads to a record with that entry's ids; the mark names the end of the newest journal file, and the check
    agrees.
    """
    root = unpack(f"{name}_bookie0_killed", tmp_path)
    appended(root, name, 200, 300)
    (reason,) = checked(root)
    assert "quire bookie export" in reason
    done = exported(root)
    assert (done.ledgers, done.entries) == (6, 234 + 300)
    for ledger, count in ((0, 234), (LEDGER, 500), (5, 234)):
        for entry, place in enumerate(places_of(root, name, ledger, count)):
            log = (root / f"ledgers/current/{place >> 32:x}.log").read_bytes()
            assert struct.unpack_from(">qq", log, place & 0xFFFFFFFF) == (ledger, entry)
    newest = max(int(path.stem, 16) for path in (root / "journal/current").glob("*.txn"))
    mark = read_last_mark(Files(), str(root / "ledgers/current"), "lastMark")
    assert mark is not None
    assert mark.file == newest
    assert mark.offset > 1000
    assert checked(root) == []


@pytest.mark.parametrize("fails", [False, True])
def test_an_export_leaves_no_store_open(fails: bool, tmp_path: pathlib.Path) -> None:
    """Also one that ends half-way: who mends what was wrong can try again at once."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    appended(root, "rocksdb", 200, 10)
    opened: list[RocksRows] = []

    def open_rows(path: str) -> RocksRows:
        if fails and len(opened) == 2:
            raise OSError("injected")
        opened.append(RocksRows(path))
        return opened[-1]

    stopped = Stopped(Files(), options_for(root))
    with pytest.raises(OSError, match="injected") if fails else nullcontext():
        export.export(stopped, export.DB, open_rows)
    stopped.close()
    assert len(opened) == (2 if fails else 3)
    for rows in opened:
        with pytest.raises(OSError, match="closed"):
            rows.get(b"key")


def test_fences_and_keys_reach_the_idx_files(tmp_path: pathlib.Path) -> None:
    """SortedLedgerStorage keeps them in the header of each ledger's file; a ledger that only we know gets one."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    here = Here(root)
    digest = ledgers_of("sorted", "stopped")[0][0]
    assert here.storage.fence(0, digest.master_key, "f") is Status.EOK
    assert here.storage.fence(0x1234, digest.master_key, "g") is Status.EOK
    here.commit()
    here.close()
    exported(root)
    for path in ("0/0/0.idx", "12/34/1234.idx"):
        assert (root / "index/current" / path).read_bytes()[:40] == struct.pack(
            ">4sii20sii", b"BKLE", 1, 20, digest.master_key, 1, 0
        )


def test_a_start_after_an_export_that_apache_did_not_use_keeps_our_rows(tmp_path: pathlib.Path) -> None:
    """It is as if there had been none; Apache is kept out again, and what comes then is served beside all else."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    appended(root, "rocksdb", 200, 10)
    exported(root)
    appended(root, "rocksdb", 210, 10)
    assert read_last_mark(Files(), str(root / "ledgers/current"), "lastMark") == GUARD
    assert len(checked(root)) == 1
    here = Here(root)
    assert decode(here.now(here.storage.entries(LEDGER))) == [(0, 220)]
    here.close()


def test_a_start_after_apache_ran_believes_apaches_index(tmp_path: pathlib.Path) -> None:
    """
    Apache may have moved entries to other logs and removed those that our rows name: they are forgotten, and nothing is
    lost.
    """
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    appended(root, "rocksdb", 200, 10)
    exported(root)
    # Apache opened its next journal file, and its compaction moved log 1 to log 7.
    newest = max(int(path.stem, 16) for path in (root / "journal/current").glob("*.txn"))
    (root / "journal/current" / journal_name(newest + 1)).write_bytes(struct.pack(">4si", b"BKLG", 6).ljust(512, b"\0"))
    (root / "ledgers/current/1.log").rename(root / "ledgers/current/7.log")
    rows = RocksRows(str(root / "index/current/locations"))
    rows.write(
        [
            (struct.pack(">qq", LEDGER, entry), struct.pack(">q", (place & 0xFFFFFFFF) | 7 << 32))
            for entry, place in moved(rows)
        ]
    )
    rows.close()
    here = Here(root)
    assert [here.read(LEDGER, entry)[-3:] for entry in range(200, 210)] == [b"new"] * 10
    here.close()


def moved(rows: RocksRows) -> list[tuple[int, int]]:
    found = rows.scan(struct.pack(">qq", LEDGER, 200), struct.pack(">qq", LEDGER, 300))
    return [(struct.unpack(">qq", key)[1], struct.unpack(">q", value)[0]) for key, value in found]


def test_an_unclean_stop_can_not_be_exported(tmp_path: pathlib.Path) -> None:
    """What is only in our journal would be missing."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    appended(root, "rocksdb", 200, 10)
    here = Here(root)
    digest = ledgers_of("rocksdb", "stopped")[LEDGER][0]
    here.storage.fence(LEDGER, digest.master_key, "f")
    here.commit()
    with pytest.raises(StorageError, match="in use"):
        Stopped(Files(), options_for(root))
    copy = tmp_path / "copy"

    shutil.copytree(root, copy)
    here.close()
    reasons = checked(copy)
    assert any("0 entries and" in reason and "stop it cleanly" in reason for reason in reasons)


def test_directories_that_were_never_ours_are_named(tmp_path: pathlib.Path) -> None:
    """Nothing was stored by us: Apache may have them as they are, and the check says so."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    reasons = checked(root)
    assert any("as they are" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("configured", "storage"),
    [(None, export.SORTED), ("org.x.ldb.DbLedgerStorage", export.DB), ("org.x.SortedLedgerStorage", export.SORTED)],
)
def test_without_an_index_the_configuration_says_which_one_is_made(
    configured: str | None, storage: str, tmp_path: pathlib.Path
) -> None:
    """
    A bookie of ours that was never Apache's, or one that was killed before it wrote an index; unset means the sorted
    one, as for Apache.
    """
    root = unpack("sorted_bookie0_killed", tmp_path)
    shutil.rmtree(root / "index/current/0")
    (root / "ledgers/current/0.log").unlink()
    (root / "ledgers/current/lastMark").unlink()
    here = Here(root)
    assert here.storage.counters.replayed_entries == 234 * 5 + 200
    here.close()
    done = exported(root, configured)
    assert done == (storage, 6, 234 * 5 + 200)
    assert all(places_of(root, "sorted" if storage == export.SORTED else "rocksdb", 5, 234))
    assert checked(root) == []


@pytest.mark.parametrize(("name", "refused"), [("rocksdb", False), ("sorted", True)])
def test_ledgers_in_limbo_go_to_the_storage_that_knows_limbo_only(
    name: str, refused: bool, tmp_path: pathlib.Path
) -> None:
    """The sorted one would deny what may be missing."""
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    here = Here(root)
    assert here.storage.set_limbo(2, True) is Status.EOK
    here.commit()
    here.close()
    assert any("in limbo (the first is 2)" in reason for reason in checked(root)) is refused
