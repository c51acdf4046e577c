"""What stands in a bookie's files, row by row: ours and Apache's, good and damaged."""

import pathlib

import pytest

from quire.bookie.files import Files, StorageError
from quire.bookie.offline import inspection
from tests.bookie.fakes.apache_files import Here, ledgers_of, unpack
from tests.bookie.offline.test_rebuild import lived

FILES = Files()


def entries_of(rows: list[inspection.Row], ledger: int) -> int:
    return sum(row["count"] for row in rows if row["kind"] == "adds" and row["ledger"] == ledger)


def test_a_journal_of_ours_shows_its_blocks(tmp_path: pathlib.Path) -> None:
    """
    Adds with first id and count, keys, deletions, the end of each clean stop; at growing offsets with consecutive
    sequences.
    """
    lived(tmp_path)
    (segment,) = (path for path in (tmp_path / "journal/current").glob("*.qj") if not path.name.startswith("spare"))
    rows = list(inspection.journal(FILES, str(segment)))
    assert (entries_of(rows, 1), entries_of(rows, 2), entries_of(rows, 3)) == (900, 950, 900)
    assert [row["kind"] for row in rows].count("end") == 3
    assert [row["ledger"] for row in rows if row["kind"] == "deleted"] == [3]
    assert rows[-1]["kind"] == "end of what was written"
    sequences = [row["sequence"] for row in rows[:-1]]
    assert sequences == sorted(sequences)


def test_a_journal_of_apaches_shows_its_records(tmp_path: pathlib.Path) -> None:
    """One row for each, behind its version."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    newest = max((root / "journal/current").glob("*.txn"))
    rows = list(inspection.journal(FILES, str(newest)))
    assert rows[0]["kind"] == "version 6"
    assert rows[1] == {"offset": 512, "kind": "key", "ledger": 5, "bytes": 24}
    assert entries_of(rows, 5) == 234
    assert rows[-1]["kind"] == "end of what was written"


def test_an_entry_log_shows_its_records(tmp_path: pathlib.Path) -> None:
    """With sums, so that two copies can be compared; a damaged place ends it with a row that says where."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    log = root / "ledgers/current/0.log"
    rows = list(inspection.entry_log(FILES, str(log)))
    assert rows[0] == {"offset": 0, "kind": "header", "version": 1, "map_offset": 0, "ledgers": 0}
    assert [row["entry"] for row in rows if row["kind"] == "entry" and row["ledger"] == 4] == list(range(200))
    assert rows[-1]["kind"] == "end"
    data = bytearray(log.read_bytes())
    data[rows[10]["offset"]] = 0x7F
    log.write_bytes(data)
    again = list(inspection.entry_log(FILES, str(log)))
    assert again[:10] == rows[:10]
    assert again[-1]["offset"] == rows[10]["offset"]
    assert "no record of an entry begins here" in again[-1]["kind"]


def test_each_index_shows_its_rows(tmp_path: pathlib.Path) -> None:
    """Runs, ledgers without their keys, Apache's locations and .idx files; of one ledger if asked."""
    root = unpack("rocksdb_bookie0_killed", tmp_path / "db")
    here = Here(root)
    assert here.storage.fence(2, ledgers_of("rocksdb", "stopped")[2][0].master_key, "f").name == "EOK"
    here.commit()
    here.close()
    index = root / "index/current"
    runs = list(inspection.index(FILES, str(index / "runs")))
    assert {row["ledger"] for row in runs} == {5}
    assert sum(row["count"] for row in runs) == 234
    ledgers = list(inspection.index(FILES, f"{index / 'ledgers'}/"))
    assert [(row["ledger"], row["fenced"]) for row in ledgers] == [(ledger, ledger == 2) for ledger in range(6)]
    assert not any("key" in row for row in ledgers)
    locations = list(inspection.index(FILES, str(index / "locations"), 4))
    assert [row["entry"] for row in locations] == list(range(200))
    root = unpack("sorted_bookie0_stopped", tmp_path / "sorted")
    rows = list(inspection.index(FILES, str(root / "index/current/0/4/4.idx")))
    assert rows[0] == {"kind": "ledger", "ledger": 4, "fenced": False, "has_key": True}
    assert [row["entry"] for row in rows[1:]] == list(range(200))


@pytest.mark.parametrize("name", ["VERSION", "lastMark", "0.log.tmp"])
def test_other_files_are_refused_by_name(name: str, tmp_path: pathlib.Path) -> None:
    """With what would be right."""
    path = tmp_path / name
    path.write_bytes(b"x")
    for show, said in (
        (inspection.journal, "no journal file"),
        (inspection.entry_log, "no entry log"),
        (inspection.index, "no index"),
    ):
        with pytest.raises(StorageError, match=said):
            list(show(FILES, str(path)))
