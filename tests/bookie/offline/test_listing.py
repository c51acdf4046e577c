"""The contents of an index, row by row: ours and Apache's."""

import pathlib

import pytest

from quire.bookie.layout import pairs
from quire.bookie.offline.listing import index as shown
from quire.bookie.offline.listing import last_marks, ledger_in
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import Here, ledgers_of, options_for, unpack

FILES = Files()


def test_each_index_shows_its_rows(tmp_path: pathlib.Path) -> None:
    """Runs, ledgers without their keys, Apache's locations and .idx files; of one ledger if asked."""
    root = unpack("rocksdb_bookie0_killed", tmp_path / "db")
    here = Here(root)
    assert here.storage.fence(2, ledgers_of("rocksdb", "stopped")[2][0].master_key, "f").name == "EOK"
    here.commit()
    here.close()
    index = root / "index/current"
    runs = list(shown(FILES, str(index / "runs")))
    assert {row["ledger"] for row in runs} == {5}
    assert sum(row["count"] for row in runs) == 234
    ledgers = list(shown(FILES, f"{index / 'ledgers'}/"))
    assert [(row["ledger"], row["fenced"]) for row in ledgers] == [(ledger, ledger == 2) for ledger in range(6)]
    assert not any("key" in row for row in ledgers)
    locations = list(shown(FILES, str(index / "locations"), 4))
    assert [row["entry"] for row in locations] == list(range(200))
    root = unpack("sorted_bookie0_stopped", tmp_path / "sorted")
    rows = list(shown(FILES, str(root / "index/current/0/4/4.idx")))
    assert rows[0] == {"kind": "ledger", "ledger": 4, "fenced": False, "has_key": True}
    assert [row["entry"] for row in rows[1:]] == list(range(200))


def test_an_idx_file_is_read_where_it_lies(tmp_path: pathlib.Path) -> None:
    """One in another place is refused: a file beside the directory that was given was read in its stead."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    there = root / "index/current/0/4/4.idx"
    for path in (there.parent / "5.idx", there.parents[1] / "4.idx", root / "4.idx"):
        path.write_bytes(there.read_bytes())
        with pytest.raises(StorageError, match="is not where a bookie keeps it"):
            list(shown(FILES, str(path)))


@pytest.mark.parametrize("name", ["VERSION", "lastMark", "0.log.tmp"])
def test_other_files_are_refused_by_name(name: str, tmp_path: pathlib.Path) -> None:
    """With what would be right."""
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(StorageError, match="no index"):
        list(shown(FILES, str(path)))


@pytest.mark.parametrize("storage", ["rocksdb", "sorted"])
def test_where_a_ledgers_entries_are_also_before_a_bookie_of_ours_came(storage: str, tmp_path: pathlib.Path) -> None:
    """By Apache's index, by both after the takeover, the same; the mark is Apache's, then ours."""
    root = unpack(f"{storage}_bookie0_stopped", tmp_path)
    options = options_for(root)
    (pair,) = pairs(options)
    _row, before = ledger_in(FILES, pair, 4)
    assert [entry for entry, _place in before] == list(range(200))
    ((file, position),) = last_marks(FILES, options)
    assert (root / "journal/current" / file).suffix == ".txn"
    assert 0 < position <= (root / "journal/current" / file).stat().st_size
    here = Here(root)
    here.commit()
    here.close()
    row, after = ledger_in(FILES, pair, 4)
    assert after == before
    assert row is not None
    assert not row.fenced
    assert last_marks(FILES, options)[0][0].endswith(".qj")
