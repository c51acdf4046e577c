"""
Verification of a stopped bookie's files: nothing is wrong with a good one's; each kind of damage is reported
with its place; nothing is changed.
"""

import hashlib
import pathlib
import shutil
from collections.abc import Callable

import pytest

from quire.bookie.apache.idx_files import idx_path
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.format import HEADER, MAGIC
from quire.bookie.offline.stopped import Stopped
from quire.bookie.offline.verify import Report, verify
from quire.protocol.messages import AddRun
from quire.rows.files import Files
from quire.rows.rocks import RocksRows
from quire.rows.rocks_check import SECTOR_BYTES
from tests.bookie.fakes.apache_files import Here, ledgers_of, options_for, unpack
from tests.bookie.offline.test_rebuild import lived, rebuilt

IGNORED = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "rocksdict-config", "quire.lock")


def verified(root: pathlib.Path) -> Report:
    stopped = Stopped(Files(), options_for(root))
    try:
        return verify(stopped)
    finally:
        stopped.close()


def sums(root: pathlib.Path) -> dict[str, str]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith(IGNORED))
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def good(root: pathlib.Path) -> None:
    """A bookie of ours that was stopped, with its cookies."""
    lived(root)
    for name in ("journal", "ledgers", "index"):
        (root / name / "current/VERSION").write_text("5\n")


def test_a_good_bookie_has_no_problem_and_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    """Every entry is counted; no file differs afterwards."""
    good(tmp_path)
    before = sums(tmp_path)
    report = verified(tmp_path)
    assert (report.problems, report.entries, report.entry_logs, report.ledgers) == ([], 1800, 3, 2)
    assert sums(tmp_path) == before


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
@pytest.mark.parametrize("ran", [False, True], ids=["as Apache left it", "taken over"])
def test_apaches_directories_are_verified_too(name: str, ran: bool, tmp_path: pathlib.Path) -> None:
    """Entries by size and ids; what is in the journal only is reported."""
    root = unpack(f"{name}_bookie0_killed", tmp_path)
    if ran:
        Here(root).close()
    report = verified(root)
    assert report.problems == []
    assert report.entries == 234 * 4 + 200 + (234 if ran else 0)
    assert any("the next start takes them over" in note for note in report.notes) is not ran
    log = root / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 15] ^= 1
    log.write_bytes(data)
    (problem,) = verified(root).problems
    assert "0.log at offset 1024" in problem


def flip(path: pathlib.Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


Harm = Callable[[pathlib.Path], object]
HARMS: dict[str, tuple[Harm, str]] = {
    "an entry": (lambda root: flip(root / "ledgers/current/1.log", 3000), "1.log at offset"),
    "a log's head": (lambda root: flip(root / "ledgers/current/1.log", 1), "1.log at offset 0: no header"),
    "a log that is gone": (lambda root: (root / "ledgers/current/2.log").unlink(), "2.log: No such file"),
    "the mark": (lambda root: flip(root / "ledgers/current/quire.mark", 14), "quire.mark: the mark is damaged"),
    "a cookie that is gone": (lambda root: (root / "index/current/VERSION").unlink(), "VERSION is missing"),
    "a foreign cookie": (lambda root: (root / "ledgers/current/VERSION").write_text("5\nx"), "VERSION differs"),
    "an index that is gone": (lambda root: shutil.rmtree(root / "index/current/runs"), "quire bookie rebuild-index"),
    "a table that is gone": (lambda root: shutil.rmtree(root / "index/current/ledgers"), "quire bookie rebuild-index"),
    "how far the index had come": (
        lambda root: flip(root / "index/current/quire.rows", 10),
        "quire.rows at offset 0: damaged",
    ),
    "a manifest": (lambda root: flip(next((root / "index/current/runs").glob("MANIFEST-*")), 30), "runs/MANIFEST-"),
    "a manifest's place": (
        lambda root: flip(next((root / "index/current/ledgers").glob("MANIFEST-*")), 30),
        " at offset 0: damaged",
    ),
    "a journal's foot": (lambda root: flip(max((root / "journal/current").glob("0*.qj")), -500), ".qj"),
}


@pytest.mark.parametrize("what", HARMS)
def test_each_kind_of_damage_is_reported(what: str, tmp_path: pathlib.Path) -> None:
    """With the file, and the offset where there is one; the rest is verified all the same."""
    good(tmp_path)
    harm, said = HARMS[what]
    harm(tmp_path)
    report = verified(tmp_path)
    assert any(said in problem for problem in report.problems), report.problems
    assert report.entry_logs >= 2


def test_a_manifest_that_a_power_loss_tore_wants_a_start(tmp_path: pathlib.Path) -> None:
    """It is told, without a word of a rebuild, and left as it is; a start mends it."""
    good(tmp_path)
    store = tmp_path / "index/current/runs"
    manifest = store / (store / "CURRENT").read_text().strip()
    end = manifest.stat().st_size
    manifest.write_bytes(manifest.read_bytes() + bytes(SECTOR_BYTES - end % SECTOR_BYTES) + b"the rest of a record")
    before = sums(tmp_path)
    (problem,) = verified(tmp_path).problems
    assert f"{manifest} at offset {end}: a power loss tore" in problem
    assert "rebuild-index" not in problem
    assert sums(tmp_path) == before
    Here(tmp_path).close()
    assert verified(tmp_path).problems == []


def test_damage_in_the_journal_is_reported(tmp_path: pathlib.Path) -> None:
    """A bad group with a good one behind it; a torn one at the end is only a note."""
    good(tmp_path)
    here = Here(tmp_path)
    digest = ledgers_of("rocksdb", "stopped")[0][0]
    for ledger in (11, 12, 13):
        here.storage.fence(ledger, digest.master_key, "f")
        here.commit()
    killed = tmp_path / "killed"
    for name in ("journal", "ledgers", "index"):
        shutil.copytree(tmp_path / name, killed / name)
    here.close()
    report = verified(killed)
    assert (report.problems, report.journal_groups >= 3) == ([], True)
    (segment,) = [path for path in (killed / "journal/current").glob("0*.qj") if digest.master_key in path.read_bytes()]
    data = segment.read_bytes()
    last = data.rindex(digest.master_key)
    flip(segment, data.rindex(digest.master_key, 0, last))
    assert any(str(segment) in problem and "journal damage" in problem for problem in verified(killed).problems)


def without_rows(root: pathlib.Path, ledger: int, first: int, last: int) -> None:
    """The index loses them without a word."""
    rows = RocksRows(str(root / "index/current/runs"))
    index = RunIndex(rows)
    gone = [run for run in index.runs(ledger) if first <= run.first and run.last <= last]
    assert gone
    rows.write([], [run.row[0] for run in gone])
    rows.sync()
    rows.close()


def test_records_that_no_index_names_are_a_problem(tmp_path: pathlib.Path) -> None:
    """The other way, from the logs to the index; a rebuild mends it."""
    good(tmp_path)
    without_rows(tmp_path, 1, 300, 899)
    problems = verified(tmp_path).problems
    assert [problem.split("current/")[1].split(", though")[0] for problem in problems] == [
        "1.log at offset 1024: 300 entries of ledger 1 (300 to 599) are in no index",
        "2.log at offset 1024: 300 entries of ledger 1 (600 to 899) are in no index",
    ]
    assert all("`quire bookie rebuild-index --conf FILE`" in problem for problem in problems)
    assert rebuilt(tmp_path).entries >= 1800
    assert verified(tmp_path).problems == []


def test_what_was_written_before_all_that_is_indexed_is_a_note(tmp_path: pathlib.Path) -> None:
    """An earlier ledger of that id, or a copy that was given up, left as much."""
    good(tmp_path)
    without_rows(tmp_path, 1, 0, 599)
    report = verified(tmp_path)
    assert report.problems == []
    assert sum("are in no index; all that is indexed of it was written later" in note for note in report.notes) == 2


@pytest.mark.parametrize("row", ["gone", "limbo", "dropped"])
def test_a_row_of_the_table_explains_what_is_missing(row: str, tmp_path: pathlib.Path) -> None:
    """A ledger that was deleted, whose logs remain; one in limbo; a copy that was dropped."""
    good(tmp_path)
    without_rows(tmp_path, 1, 0, 899)
    table = LedgerTable(RocksRows(str(tmp_path / "index/current/ledgers")))
    before = table.get(1)
    assert before is not None
    table.write(
        {1: {"gone": None, "limbo": before._replace(limbo=True), "dropped": before._replace(dropped=True)}[row]}
    )
    table.sync()
    table.close()
    report = verified(tmp_path)
    assert report.problems == []
    assert not any("no index" in note for note in report.notes)


def test_what_the_journal_brings_back_is_no_problem(tmp_path: pathlib.Path) -> None:
    """A process that was killed after a flush wrote the log and before it wrote the index; a ledger just deleted."""
    good(tmp_path)
    here = Here(tmp_path)
    digest = ledgers_of("rocksdb", "stopped")[0][0]
    bodies = [digest.entry(1, entry, entry - 1, 10, b"late") for entry in range(900, 1000)]
    here.storage.add(AddRun(1, 900, bodies, digest.master_key, txns=list(range(100)), version=3), "a")
    here.storage.delete_ledger(2)
    here.commit()
    killed = tmp_path / "killed"
    for name in ("journal", "ledgers", "index"):
        shutil.copytree(tmp_path / name, killed / name)
    here.close()
    newest = tmp_path / "ledgers/current/3.log"
    assert newest.exists()
    shutil.copy(newest, killed / "ledgers/current")
    without_rows(killed, 2, 0, 899)
    report = verified(killed)
    assert (report.problems, report.entry_logs) == ([], 4)


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_what_apaches_index_lost_is_reported_before_the_takeover(name: str, tmp_path: pathlib.Path) -> None:
    """A problem where the ledger is known; a ledger without a row is a note, for most of these were deleted."""
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    if name == "rocksdb":
        (log,) = (root / "index/current/locations").glob("*.log")
        log.write_bytes(log.read_bytes()[:26000])
    else:
        index = root / "index/current" / idx_path(4)
        index.write_bytes(index.read_bytes()[:1024])
        (root / "index/current" / idx_path(2)).unlink()
    report = verified(root)
    (problem,) = report.problems
    assert "200 entries of ledger 4 (0 to 199) are in no index" in problem
    assert any("entries of 1 ledgers that no ledger table knows" in note for note in report.notes) is (name == "sorted")


def test_a_damaged_log_of_writes_of_apaches_is_a_problem(tmp_path: pathlib.Path) -> None:
    """RocksDB ends there without a word."""
    root = unpack("rocksdb_bookie0_stopped", tmp_path)
    (log,) = (root / "index/current/ledgers").glob("*.log")
    flip(log, 20)
    assert any("ledgers/000004.log at offset" in problem and "limbo" in problem for problem in verified(root).problems)


def test_an_empty_log_was_made_ahead(tmp_path: pathlib.Path) -> None:
    """As Apache leaves one; where an index names anything in it that is a problem, and so is half a header."""
    root = unpack("sorted_bookie0_stopped", tmp_path)
    made = root / "ledgers/current/1.log"
    made.write_bytes(b"")
    report = verified(root)
    assert (report.problems, any("1.log is empty" in note for note in report.notes)) == ([], True)
    made.write_bytes(HEADER.pack(MAGIC, 1, 0, 0)[:10])
    assert "1.log at offset 0: no header" in verified(root).problems[0]
    (root / "ledgers/current/0.log").write_bytes(b"")
    assert len(verified(root).problems) >= 1000
