"""The contents of an entry log, record by record: good and damaged."""

import pathlib

import pytest

from quire.bookie.offline.listing import entry_log
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import unpack

FILES = Files()


def test_an_entry_log_shows_its_records(tmp_path: pathlib.Path) -> None:
    """With sums, so that two copies can be compared; a damaged place ends it with a row that says where."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    log = root / "ledgers/current/0.log"
    rows = list(entry_log(FILES, str(log)))
    assert rows[0] == {"offset": 0, "kind": "header", "version": 1, "map_offset": 0, "ledgers": 0}
    assert [row["entry"] for row in rows if row["kind"] == "entry" and row["ledger"] == 4] == list(range(200))
    assert rows[-1]["kind"] == "end"
    data = bytearray(log.read_bytes())
    data[rows[10]["offset"]] = 0x7F
    log.write_bytes(data)
    again = list(entry_log(FILES, str(log)))
    assert again[:10] == rows[:10]
    assert again[-1]["offset"] == rows[10]["offset"]
    assert "no record of an entry begins here" in again[-1]["kind"]


def test_a_log_that_was_written_past_the_cache_is_shown_to_its_end(tmp_path: pathlib.Path) -> None:
    """With `dbStorage_directIOEntryLogger` each flush ends with padding."""
    root = unpack("direct_bookie0_stopped", tmp_path)
    shown = [list(entry_log(FILES, str(root / f"ledgers/current/{log}.log"))) for log in range(3)]
    assert [rows[-1]["kind"] for rows in shown] == ["end"] * 3
    entries = [(row["ledger"], row["entry"]) for rows in shown for row in rows if row["kind"] == "entry"]
    assert sorted(entries) == [(ledger, entry) for ledger in range(5) for entry in range(234)]


@pytest.mark.parametrize("name", ["VERSION", "lastMark", "0.log.tmp"])
def test_other_files_are_refused_by_name(name: str, tmp_path: pathlib.Path) -> None:
    """With what would be right."""
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(StorageError, match="no entry log"):
        list(entry_log(FILES, str(path)))
