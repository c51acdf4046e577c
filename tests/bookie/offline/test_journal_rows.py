"""The contents of a journal file, block by block: ours and Apache's."""

import pathlib

import pytest

from quire.bookie.offline.listing import Row, journal
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import unpack
from tests.bookie.offline.test_rebuild import lived

FILES = Files()


def entries_of(rows: list[Row], ledger: int) -> int:
    return sum(row["count"] for row in rows if row["kind"] == "adds" and row["ledger"] == ledger)


def test_a_journal_of_ours_shows_its_blocks(tmp_path: pathlib.Path) -> None:
    """
    Adds with first id and count, keys, deletions, the end of each clean stop; at growing offsets with consecutive
    sequences.
    """
    lived(tmp_path)
    (segment,) = (path for path in (tmp_path / "journal/current").glob("*.qj") if not path.name.startswith("spare"))
    rows = list(journal(FILES, str(segment)))
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
    rows = list(journal(FILES, str(newest)))
    assert rows[0]["kind"] == "version 6"
    assert rows[1] == {"offset": 512, "kind": "key", "ledger": 5, "bytes": 24}
    assert entries_of(rows, 5) == 234
    assert rows[-1]["kind"] == "end of what was written"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("1a.txn", b"junk" * 99, "neither a header nor a whole record"),
        ("zz.txn", b"", "is not a journal file's number"),
        ("1A.txn", b"", "is not a journal file's number"),
    ],
)
def test_a_file_of_apaches_that_is_none(name: str, data: bytes, said: str, tmp_path: pathlib.Path) -> None:
    """By its bytes, or by a name that Apache does not give."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StorageError, match=said):
        list(journal(FILES, str(tmp_path / name)))


@pytest.mark.parametrize("name", ["VERSION", "lastMark", "0.log.tmp"])
def test_other_files_are_refused_by_name(name: str, tmp_path: pathlib.Path) -> None:
    """With what would be right."""
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(StorageError, match="no journal file"):
        list(journal(FILES, str(path)))
