"""
Moving in: directories that live Apache bookies left, cleanly and killed, served as they are; and the guard that keeps
Apache out.
"""

import gc
import os
import pathlib
import shutil

import pytest

from quire.bookie.apache.journal import GUARD, MARK, read_last_mark
from quire.bookie.directory.notes import COPYING, noted_limbo
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.storage import storage
from quire.bookie.storage.write_cache import WriteCache
from quire.protocol.availability import decode
from quire.protocol.digest import last_add_confirmed
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from quire.rows.files import Files, StorageError
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import Cut, Here, ledgers_of, options_for, unpack

KINDS = ("rocksdb", "sorted")


def check_all(here: Here, name: str, moment: str) -> None:
    """Every entry of every ledger is served, alone and in batches, and opens with the digest that its writer chose."""
    held = ledgers_of(name, moment)
    assert sorted(here.storage.ledger_ids()) == sorted(held)
    for ledger, (digest, payloads) in held.items():
        assert [digest.open(ledger, entry, here.read(ledger, entry)) for entry in range(len(payloads))] == payloads
        found: list[bytes] = []
        while len(found) < len(payloads):
            found += here.read_run(ledger, len(found))
        assert digest.open_run(ledger, 0, found) == payloads
        assert decode(here.now(here.storage.entries(ledger))) == [(0, len(payloads))]
        assert here.read(ledger, len(payloads)) is Status.ENOENTRY
        assert here.read(ledger, -1) == found[-1]
        assert here.now(here.storage.lac(ledger)) == last_add_confirmed(found[-1])


def test_a_bookie_that_ended_before_its_first_checkpoint_has_no_index(tmp_path: pathlib.Path) -> None:
    """
    SortedLedgerStorage can end, also when it is stopped, with entries in a log and no index: its mark is still (0, 0),
    and the journal has all of them.  Behind a mark an index must have been, and without a journal nothing is left.
    """
    root = unpack("sorted_bookie0_stopped", tmp_path)
    mark = root / "ledgers/current/lastMark"
    for path in (root / "index/current").rglob("*.idx"):
        path.unlink()
    with pytest.raises(StorageError, match="has no index of them"):
        Here(root)
    mark.write_bytes(MARK.pack(0, 0))
    journal = (root / "journal/current").rename(root / "away")
    (root / "journal/current").mkdir()
    shutil.copy(journal / "VERSION", root / "journal/current")
    with pytest.raises(StorageError, match="has no index of them"):
        Here(root)
    shutil.rmtree(root / "journal/current")
    journal.rename(root / "journal/current")
    for _start in range(2):
        here = Here(root)
        check_all(here, "sorted", "stopped")
        here.close()
    assert read_last_mark(Files(), str(mark.parent), mark.name) == GUARD


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("moment", ["stopped", "killed"])
def test_every_entry_of_an_apache_bookie_is_served(name: str, moment: str, tmp_path: pathlib.Path) -> None:
    """
    Also what a killed one had only in its journal; again after a restart of ours; no entry log is written for what was
    in one.
    """
    root = unpack(f"{name}_bookie0_{moment}", tmp_path)
    log = (root / "ledgers/current/0.log").read_bytes()
    for _start in range(2):
        here = Here(root)
        check_all(here, name, moment)
        here.close()
    assert (root / "ledgers/current/0.log").read_bytes() == log
    assert (root / "ledgers/current/1.log").exists() == (moment == "killed")


def test_limbo_that_apache_left_is_looked_after(tmp_path: pathlib.Path) -> None:
    """
    Its integrity check had marked a ledger: ours says so where it looks for what has to be copied, before Apache is
    kept out.
    """
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    table = LedgerTable(RocksRows(str(root / "index/current/ledgers")))
    row = table.get(4)
    assert row is not None
    table.write({4: row._replace(limbo=True)})
    table.close()
    here = Here(root)
    assert here.storage.limbo_ledgers() == [4]
    assert noted_limbo(Files(), options_for(root)) == COPYING
    here.close()


@pytest.mark.parametrize("name", KINDS)
def test_keys_hold_and_new_entries_join_old_ones(name: str, tmp_path: pathlib.Path) -> None:
    """
    The writer of an open ledger goes on where it was, with its key only; a read goes across the border; a fence stops
    it.
    """
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    here = Here(root)
    digest, payloads = ledgers_of(name, "stopped")[4]
    bodies = [digest.entry(4, entry, entry - 1, 100 * (entry + 1), b"new") for entry in range(200, 210)]
    assert here.storage.add(AddRun(4, 200, bodies, bytes(20), txns=list(range(10)), version=3), "a") is Status.EUA
    assert (
        here.storage.add(AddRun(4, 200, bodies, digest.master_key, txns=list(range(10)), version=3), "b") is Status.EOK
    )
    here.commit()
    assert here.tokens == ["b"]
    for _start in range(2):
        found: list[bytes] = []
        while len(found) < 210:
            found += here.read_run(4, len(found))
        assert digest.open_run(4, 0, found) == [*payloads, *[b"new"] * 10]
        assert decode(here.now(here.storage.entries(4))) == [(0, 210)]
        here.close()
        here = Here(root)
    assert here.storage.fence(4, digest.master_key, "f") is Status.EOK
    here.commit()
    here.close()
    here = Here(root)
    assert here.storage.add(AddRun(4, 210, bodies[:1], digest.master_key, txns=[0], version=3), "c") is Status.EFENCED
    here.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_deleted_ledger_stays_deleted(name: str, tmp_path: pathlib.Path) -> None:
    """Its rows in Apache's index go too, so that neither of us serves it again."""
    root = unpack(f"{name}_bookie0_killed", tmp_path)
    here = Here(root)
    here.storage.delete_ledger(1)
    here.storage.delete_ledger(5)
    here.commit()
    here.close()
    here = Here(root)
    assert sorted(here.storage.ledger_ids()) == [0, 2, 3, 4]
    assert here.read(1, 0) is Status.ENOLEDGER
    digest = ledgers_of(name, "stopped")[1][0]
    assert here.storage.fence(1, digest.master_key, "f") is Status.EOK
    here.commit()
    assert here.read(1, 0) is Status.ENOENTRY
    here.close()


def test_apache_is_kept_out_while_we_hold_the_directories(tmp_path: pathlib.Path) -> None:
    """Its mark names a journal file that there is not, so it refuses to start; the true files are untouched."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    journals = {path.name: path.read_bytes() for path in (root / "journal/current").glob("*.txn")}
    Here(root).close()
    assert read_last_mark(Files(), str(root / "ledgers/current"), "lastMark") == GUARD
    assert {path.name: path.read_bytes() for path in (root / "journal/current").glob("*.txn")} == journals


def test_a_journal_larger_than_the_cache_is_flushed_on_the_way(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Apache's journal holds need not fit into memory."""

    class Counting(Files):
        syncs = 0

        def datasync(self, handle: int) -> None:
            self.syncs += 1
            super().datasync(handle)

    syncs = []
    for size in (2, 64 << 20):
        root = unpack("rocksdb_bookie0_killed", tmp_path / str(size))
        files = Counting()
        monkeypatch.setattr(storage, "WriteCache", lambda bytes_max, size=size: WriteCache(size))
        here = Here(root, files)
        for ledger, (digest, payloads) in ledgers_of("rocksdb", "killed").items():
            assert [isinstance(here.read(ledger, entry), bytes) for entry in range(len(payloads))] == [True] * len(
                payloads
            ), digest
        syncs.append(files.syncs)
        here.close()
    assert syncs[0] > syncs[1], "there is one flush more for each block that does not fit"


def test_a_first_start_that_was_cut_off_is_done_again(tmp_path: pathlib.Path) -> None:
    """At every change of a file: whatever was done, the next start serves everything."""

    fresh = unpack("rocksdb_bookie0_killed", tmp_path / "fresh")
    calls = 0
    while True:
        root = shutil.copytree(fresh, tmp_path / f"cut{calls}")
        disk = Cut(calls)
        try:
            here = Here(root, files=disk)
        except KeyboardInterrupt:
            calls += 3
        else:
            disk.left = 1 << 30
            here.close()
            break
        gc.collect()  # a process that ends gives up its locks; here RocksDB's objects must go
        here = Here(root)
        check_all(here, "rocksdb", "killed")
        here.close()
        shutil.rmtree(root)
    assert calls > 9


def test_a_missing_journal_file_stops_the_start(tmp_path: pathlib.Path) -> None:
    """The mark says that entries of it were stored nowhere else."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    first, _second = sorted((root / "journal/current").glob("*.txn"))
    first.unlink()
    with pytest.raises(StorageError, match=f"{first.name} is missing"):
        Here(root)


@pytest.mark.parametrize(
    ("name", "gone", "said"),
    [("rocksdb", "locations", "no index"), ("rocksdb", "ledgers", "keys and fences"), ("sorted", "0", "no index")],
)
def test_a_missing_index_stops_the_start(name: str, gone: str, said: str, tmp_path: pathlib.Path) -> None:
    """At the first start and later: entries would seem never to have been here."""
    root = unpack(f"{name}_bookie0_stopped", tmp_path / "a")
    shutil.rmtree(root / "index/current" / gone)
    with pytest.raises(StorageError, match=said):
        Here(root)
    root = unpack(f"{name}_bookie0_stopped", tmp_path / "b")
    Here(root).close()
    shutil.rmtree(root / "index/current" / gone)
    with pytest.raises(StorageError, match="gone"):
        Here(root)


def test_several_directories_of_the_sorted_storage_are_refused(tmp_path: pathlib.Path) -> None:
    """A ledger's entries may lie in any of them; the text says what to do instead."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    with pytest.raises(StorageError, match=r"all 2 ledger directories.*quire decommission"):
        Here(
            root,
            ledger_directories=(str(root / "ledgers"), str(root / "ledgers2")),
            index_directories=(str(root / "index"), str(root / "index2")),
        )


def test_a_damaged_record_of_apaches_is_an_error_never_absent(tmp_path: pathlib.Path) -> None:
    """Its ids are wrong, or the log is cut off or gone: EIO."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    log = root / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 15] ^= 1  # the id of the first record
    log.write_bytes(data[:-10])
    here = Here(root)
    assert here.read(0, 0) is Status.EIO
    assert not isinstance(here.read(0, 1), Status)
    assert here.read(4, 199) is Status.EIO
    here.close()
    os.unlink(log)
    here = Here(root)
    assert here.read(0, 1) is Status.EIO
    here.close()


def test_a_lone_mark_is_of_sixteen_bytes(tmp_path: pathlib.Path) -> None:
    """Another size is as good as none, as Apache has it: everything there is is read again."""
    root = unpack("sorted_bookie0_killed", tmp_path)
    (root / "ledgers/current/lastMark").write_bytes(MARK.pack(1, 2)[:-1])
    here = Here(root)
    check_all(here, "sorted", "killed")
    assert here.storage.counters.replayed_entries == 234 * 5 + 200
    here.close()
