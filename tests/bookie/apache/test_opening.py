"""The index of a ledger directory is opened: ours alone, or above Apache's; a failure leaves nothing open."""

import errno
import pathlib

import pytest

from quire.bookie.apache.idx_files import Pages
from quire.bookie.apache.index import Locations
from quire.bookie.apache.left_index import JoinedIndex, open_index
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.entry_logs import EntryLogs
from quire.rows.contract import OpenRows, Rows
from quire.rows.files import Files
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import unpack
from tests.rows.fakes import DictRows

FILES = Files()


def opened(root: pathlib.Path, open_rows: OpenRows) -> RunIndex:
    logs = EntryLogs(FILES, str(root / "ledgers/current"), 1 << 30)
    return open_index(FILES, open_rows, str(root / "index/current"), logs, LedgerTable(DictRows()))


@pytest.mark.parametrize(("name", "kind"), [("rocksdb", Locations), ("sorted", Pages)])
def test_ours_is_above_the_one_that_apache_left(name: str, kind: type, tmp_path: pathlib.Path) -> None:
    """Of either kind."""
    index = opened(unpack(f"{name}_bookie0_stopped", tmp_path), RocksRows)
    assert isinstance(index, JoinedIndex)
    assert isinstance(index.apache, kind)
    index.close()


def test_ours_is_alone_where_apache_left_none(tmp_path: pathlib.Path) -> None:
    """A directory that only our bookies had."""
    for name in ("ledgers", "index"):
        (tmp_path / name / "current").mkdir(parents=True)
    assert type(opened(tmp_path, lambda _path: DictRows())) is RunIndex


def test_a_failure_leaves_nothing_open(tmp_path: pathlib.Path) -> None:
    """Apache's rows are on a dead disk: ours are closed again."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    closed = []

    class Watched(DictRows):
        def close(self) -> None:
            closed.append(self)

    def open_rows(path: str) -> Rows:
        if path.endswith("locations"):
            raise OSError(errno.EIO, "the disk is dead", path)
        return Watched()

    with pytest.raises(OSError, match="the disk is dead"):
        opened(root, open_rows)
    assert len(closed) == 1
