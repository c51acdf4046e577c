"""
Our index over Apache's: ours hides theirs, gaps are filled from below, and a log that only theirs names is in use.
"""

import pathlib

import pytest

from quire.bookie.apache.left_index import JoinedIndex, open_index
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.run import Run, encode_run
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.walk import ledgers_in
from quire.rows.files import Files
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import unpack
from tests.rows.fakes import DictRows


def nothing() -> None:
    """A pause for other work, which there is not."""


def opened(root: pathlib.Path) -> JoinedIndex:
    logs = EntryLogs(Files(), str(root / "ledgers/current"), 1 << 30)
    index = open_index(Files(), RocksRows, str(root / "index/current"), logs, LedgerTable(DictRows()))
    assert isinstance(index, JoinedIndex)
    return index


def own(index: RunIndex, ledger: int, first: int, count: int, log: int) -> None:
    index.put(ledger, first, count, encode_run(log, 5000, [50] * count, [0] * count))
    index.commit()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_ours_hides_theirs_and_theirs_fills_the_gaps(name: str, tmp_path: pathlib.Path) -> None:
    """In single lookups, walks, ranges and the highest entry; whichever way a reader comes."""
    index = opened(unpack(f"{name}_bookie0_stopped", tmp_path))
    assert (index.last(4), index.find(4, 200), index.find(9, 0)) == (199, None, None)
    own(index, 4, 50, 20, 9)
    own(index, 4, 190, 30, 9)
    assert index.last(4) == 219
    for order in (range(220), range(219, -1, -1)):
        logs = {
            entry: run.log
            for entry in order
            if (run := index.find(4, entry)) is not None and run.first <= entry <= run.last
        }
        assert logs == {entry: 9 if 50 <= entry < 70 or entry >= 190 else 0 for entry in range(220)}
    runs = list(index.runs(4))
    assert [entry for run in runs for entry in range(run.first, run.last + 1)] == list(range(220))
    assert {run.log for run in runs if 50 <= run.first < 70 or run.first >= 190} == {9}
    assert sorted({entry for first, count in index.ranges(4) for entry in range(first, first + count)}) == list(
        range(220)
    )
    index.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_a_log_is_in_use_until_nothing_in_it_is_needed(name: str, tmp_path: pathlib.Path) -> None:
    """By Apache's index alone, with no row of ours; entries that ours hides, and deleted ledgers, do not need it."""
    index = opened(unpack(f"{name}_bookie0_stopped", tmp_path))
    assert set(index.uses(nothing)) == {0}
    for ledger in range(4):
        index.delete(ledger)
    assert set(index.uses(nothing)) == {0}
    own(index, 4, 0, 199, 9)
    assert set(index.uses(nothing)) == {0, 9}
    own(index, 4, 199, 1, 9)
    assert set(index.uses(nothing)) == {9}
    index.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_an_entry_that_is_written_again_hides_a_run_of_theirs_that_was_just_read(
    name: str, tmp_path: pathlib.Path
) -> None:
    """A batch read that begins before it does not give out the older form."""
    index = opened(unpack(f"{name}_bookie0_stopped", tmp_path))
    index.find(4, 98)
    ahead = index.find(4, 99)
    own(index, 4, 150, 1, 9)
    before, again = index.find(4, 149), index.find(4, 150)
    assert ahead is not None
    assert ahead.last > 150
    assert before is not None
    assert (before.log, before.last) == (0, 149)
    assert again is not None
    assert again.log == 9
    index.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
@pytest.mark.parametrize("written", [False, True])
def test_what_is_deleted_or_written_again_while_it_is_looked_up_is_not_found_again(
    written: bool, name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looked it up may have its run; nobody after that."""
    index = opened(unpack(f"{name}_bookie0_stopped", tmp_path))
    find = index.apache.find

    def changed_meanwhile(ledger: int, entry: int, count: int) -> Run | None:
        run = find(ledger, entry, count)
        if written:
            own(index, ledger, 100, 1, 9)
        else:
            index.delete(ledger)
        return run

    index.find(4, 98)
    monkeypatch.setattr(index.apache, "find", changed_meanwhile)
    ahead = index.find(4, 99)
    assert ahead is not None
    assert ahead.last > 100
    monkeypatch.undo()
    again = index.find(4, 99)
    assert (None if again is None else again.last) == (99 if written else None)
    index.close()


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_a_repair_of_what_theirs_names_and_no_log_has(name: str, tmp_path: pathlib.Path) -> None:
    """What is copied here because the record is damaged, or its log is lost, can be flushed; the rest is an error."""
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    (root / "ledgers/current/0.log").unlink()
    index = opened(root)
    own(index, 4, 50, 20, 9)
    run = index.find(4, 60)
    assert run is not None
    assert (run.log, run.first, run.last) == (9, 50, 69)
    with pytest.raises(FileNotFoundError):
        index.find(4, 70)
    index.close()


def test_ledgers_of_a_log_without_a_map(tmp_path: pathlib.Path) -> None:
    """From its records."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    assert ledgers_in(EntryLogs(Files(), str(root / "ledgers/current"), 1 << 30), 0) == {0, 1, 2, 3, 4}
