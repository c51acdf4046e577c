"""Which index Apache left: its kind, and what is refused (`test_takeover` has the refusals at a whole start)."""

import pathlib

import pytest

from quire.bookie.apache.left_index import IDX, check_left, has_idx, has_locations, kind_of, open_left
from quire.bookie.layout import APACHE_KIND, LOCATIONS
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import unpack
from tests.rows.fakes import DictRows

FILES = Files()


def kind_in(index: pathlib.Path) -> str:
    return kind_of(has_locations(FILES, str(index)), has_idx(FILES, str(index)))


@pytest.mark.parametrize(("name", "kind"), [("rocksdb", LOCATIONS), ("sorted", IDX)])
def test_the_kind_is_known_by_what_is_there(name: str, kind: str, tmp_path: pathlib.Path) -> None:
    """RocksDB's files, or files for ledgers; nothing, where there is neither."""
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    assert kind_in(root / "index/current") == kind
    (tmp_path / "empty").mkdir()
    assert kind_in(tmp_path / "empty") == ""


def test_where_there_is_none_nothing_is_opened(tmp_path: pathlib.Path) -> None:
    """No store is made there."""
    asked: list[str] = []

    def open_rows(path: str) -> DictRows:
        asked.append(path)
        return DictRows()

    assert open_left(FILES, open_rows, str(tmp_path), lambda log, offset, count: b"", lambda ledger: None) is None
    assert not asked


def test_an_index_that_was_there_once_is_missed(tmp_path: pathlib.Path) -> None:
    """Its kind was noted, and there is none, or one of the other kind."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    ledgers, index = str(root / "ledgers/current"), root / "index/current"
    check_left(FILES, ledgers, str(index), 1)
    with pytest.raises(StorageError, match="over all 2 ledger directories"):
        check_left(FILES, ledgers, str(index), 2)
    (index / APACHE_KIND).write_text(f"{IDX}\n")
    check_left(FILES, ledgers, str(index), 1)
    (index / APACHE_KIND).write_text(f"{LOCATIONS}\n")
    with pytest.raises(StorageError, match="it is gone"):
        check_left(FILES, ledgers, str(index), 1)
