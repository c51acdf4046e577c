"""
The index rebuilt from entry logs: ours and Apache's, with and without a ledger table, and when a log is damaged.
"""

import pathlib
import shutil

import pytest

from quire.bookie.directory import notes
from quire.bookie.directory.notes import COPYING, noted_limbo
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.sequences import Sequences
from quire.bookie.logs.format import HEADER, MAGIC, ledgers_map
from quire.bookie.offline.rebuild import Rebuilt, rebuild
from quire.bookie.offline.stopped import Stopped
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from quire.rows.files import Files, StorageError
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.apache_files import Cut, Here, ledgers_of, options_for, unpack


def rebuilt(root: pathlib.Path, **more: bool) -> Rebuilt:
    stopped = Stopped(Files(), options_for(root))
    try:
        (found,) = rebuild(stopped, **more)
        return found
    finally:
        stopped.close()


def rows_of(root: pathlib.Path, name: str = "runs") -> dict[bytes, bytes]:
    rows = open_read_only(str(root / "index/current" / name))
    try:
        return dict(rows.scan(b"", b"\xff" * 17))
    finally:
        rows.close()


def lived(root: pathlib.Path) -> None:
    """A bookie of ours: three ledgers, one written twice in part, one deleted, in three entry logs."""
    digest = ledgers_of("rocksdb", "stopped")[0][0]
    for name in ("journal", "ledgers", "index"):
        (root / name).mkdir()

    def add(here: Here, ledger: int, first: int, count: int, payload: bytes, recovery: bool = False) -> None:
        bodies = [
            digest.entry(ledger, entry, entry - 1, 10, payload + str(entry).encode())
            for entry in range(first, first + count)
        ]
        run = AddRun(ledger, first, bodies, digest.master_key, recovery=recovery, txns=list(range(count)), version=3)
        assert here.storage.add(run, "a") is Status.EOK

    for turn in range(3):
        here = Here(root)
        for ledger in (1, 2, 3):
            add(here, ledger, turn * 300, 300, b"%d " % ledger)
        if turn == 2:
            add(here, 2, 100, 50, b"again ", recovery=True)
            here.storage.delete_ledger(3)
        here.commit()
        here.close()


def served(root: pathlib.Path, ledger: int) -> list[bytes]:
    here = Here(root)
    try:
        return [here.read(ledger, entry)[36:] for entry in range(900)]
    finally:
        here.close()


def expected(ledger: int) -> list[bytes]:
    return [
        b"%s%d" % (b"again " if ledger == 2 and 100 <= entry < 150 else b"%d " % ledger, entry) for entry in range(900)
    ]


def test_a_lost_index_is_the_same_again(tmp_path: pathlib.Path) -> None:
    """The same entries at the same places; the later of two copies; nothing of a deleted ledger; keys are kept."""
    lived(tmp_path)
    assert served(tmp_path, 2) == expected(2)
    shutil.rmtree(tmp_path / "index/current/runs")
    with pytest.raises(StorageError, match="rebuild-index"):
        Here(tmp_path)
    found = rebuilt(tmp_path)
    assert (found.logs, found.ledgers, found.problems, found.limbo, found.new_table) == (3, 2, [], 0, False)
    for ledger in (1, 2):
        assert served(tmp_path, ledger) == expected(ledger)
    here = Here(tmp_path)
    assert here.read(3, 0) is Status.ENOLEDGER
    assert here.storage.fence(1, bytes(20), "f") is Status.EUA
    here.close()


def test_what_was_dropped_and_came_back_counts_as_stored(tmp_path: pathlib.Path) -> None:
    """The logs still have a copy that was dropped: once the index has it again, its log is needed."""
    lived(tmp_path)
    table = LedgerTable(RocksRows(str(tmp_path / "index/current/ledgers")))
    row = table.get(1)
    assert row is not None
    table.write({1: row._replace(dropped=True)})
    table.sync()
    sequence = table.sequence
    table.close()
    Sequences(Files(), str(tmp_path / "index/current")).write(0, sequence)
    assert rebuilt(tmp_path).ledgers == 2
    table = LedgerTable(open_read_only(str(tmp_path / "index/current/ledgers")))
    assert table.get(1) == row
    table.close()


def test_a_rebuild_of_a_good_index_changes_nothing(tmp_path: pathlib.Path) -> None:
    """Row by row, where no entry was written twice; the old one is kept beside it."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    Here(root).close()
    before = rows_of(root)
    assert rebuilt(root).problems == []
    after = rows_of(root)
    assert rows_of(root, "runs.old") == before
    assert {key: after[key] for key in before} == before
    assert rebuilt(root).entries == 234 * 5 + 200


@pytest.mark.parametrize("name", ["rocksdb", "sorted"])
def test_apaches_logs_without_any_index(name: str, tmp_path: pathlib.Path) -> None:
    """
    Every entry is served from them alone; keys are gone, so every ledger is fenced and takes its key from the next
    caller.
    """
    root = unpack(f"{name}_bookie0_stopped", tmp_path)
    for path in (root / "index/current").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    with pytest.raises(StorageError, match="rebuild-index"):
        Here(root)
    found = rebuilt(root)
    assert (found.entries, found.ledgers, found.new_table) == (234 * 4 + 200, 5, True)
    here = Here(root)
    for ledger, (digest, payloads) in ledgers_of(name, "stopped").items():
        assert [digest.open(ledger, entry, here.read(ledger, entry)) for entry in range(len(payloads))] == payloads
        body = digest.entry(ledger, 999, -1, 1, b"x")
        assert (
            here.storage.add(AddRun(ledger, 999, [body], digest.master_key, txns=[0], version=3), "a") is Status.EFENCED
        )
        assert here.storage.fence(ledger, digest.master_key, "f") is Status.EOK
        assert here.storage.fence(ledger, bytes(19) + b"x", "g") is Status.EUA
    here.commit()
    here.close()


def test_logs_that_were_written_past_the_cache(tmp_path: pathlib.Path) -> None:
    """All of their entries, those behind padding, too; without a map nothing is in limbo either."""
    root = unpack("direct_bookie0_stopped", tmp_path)
    shutil.rmtree(root / "index/current/locations")
    log = root / "ledgers/current/0.log"
    log.write_bytes(b"BKLO" + bytes(1020) + log.read_bytes()[1024:])
    found = rebuilt(root)
    assert (found.entries, found.ledgers, found.problems, found.limbo) == (5 * 234, 5, [], 0)


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "unmapped"])
def test_a_damaged_log_puts_in_limbo_what_it_may_have_held(mapped: bool, tmp_path: pathlib.Path) -> None:
    """
    Its ledgers map says whose records are missing; without one they may be any ledger's.  Nothing is denied, what is
    there is served.
    """
    lived(tmp_path)
    log = tmp_path / "ledgers/current/1.log"
    data = bytearray(log.read_bytes())
    if mapped:
        share = (len(data) - 1024) // 3
        data[:20] = HEADER.pack(MAGIC, 1, len(data), 2)
        data += b"".join(ledgers_map({1: share, 2: share}))
    at = 1024 + (len(data) - 1024) // 2  # within ledger 2's part
    data[at : at + 4000] = b"\x7f" * 4000
    log.write_bytes(data)
    shutil.rmtree(tmp_path / "index/current/runs")
    found = rebuilt(tmp_path)
    assert len(found.problems) == 1
    assert "1.log at offset" in found.problems[0]
    assert found.limbo == (1 if mapped else 2)
    assert noted_limbo(Files(), options_for(tmp_path)) == COPYING, "the next start copies what they lack"
    assert notes.noted_failed(Files(), [str(tmp_path / "ledgers")]) == [str(tmp_path / "ledgers")]
    notes.forget_failed(Files(), [str(tmp_path / "ledgers")])  # or all that is left of the journal is read again, too
    here = Here(tmp_path)
    answers = [here.read(2, entry) for entry in range(900)]
    assert answers[:300] == [body for body in answers[:300] if isinstance(body, bytes)]
    assert Status.EUNKNOWNLEDGERSTATE in answers[300:600]
    assert Status.ENOENTRY not in answers
    assert all(isinstance(body, bytes) for body in answers[600:])
    assert here.read(1, 950) is (Status.ENOENTRY if mapped else Status.EUNKNOWNLEDGERSTATE)
    here.close()


def test_a_bookie_that_runs_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Its directories are locked."""
    lived(tmp_path)
    here = Here(tmp_path)
    with pytest.raises(StorageError, match="in use"):
        rebuilt(tmp_path)
    here.close()


def damage_writes(store: pathlib.Path) -> None:
    """The first record of RocksDB's log of writes; the ones behind it are gone with it."""
    (path,) = store.glob("*.log")
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


def killed(root: pathlib.Path, size: int = 300) -> pathlib.Path:
    """
    A bookie of ours that was killed after a checkpoint and some more adds: ledger 1 is in the index, ledger 5 in the
    journal only.
    """
    live = root / "live"
    for name in ("journal", "ledgers", "index"):
        (live / name).mkdir(parents=True)
    here = Here(live)
    digest = ledgers_of("rocksdb", "stopped")[0][0]

    def add(ledger: int, first: int) -> None:
        bodies = [digest.entry(ledger, entry, entry - 1, 10, bytes(size)) for entry in range(first, first + 5)]
        assert (
            here.storage.add(AddRun(ledger, first, bodies, digest.master_key, txns=list(range(5)), version=3), "a")
            is Status.EOK
        )

    add(1, 0)
    here.storage.fence(5, digest.master_key, "f")  # so its key is in the table, and behind the mark in no journal
    here.commit()
    here.now(here.storage.flush())
    add(1, 5)
    here.commit()
    here.now(here.storage.flush())
    bodies = [digest.entry(5, entry, entry - 1, 10, b"recovered") for entry in range(3)]
    assert (
        here.storage.add(AddRun(5, 0, bodies, digest.master_key, recovery=True, txns=[0, 1, 2], version=3), "r")
        is Status.EOK
    )
    here.commit()
    shutil.copytree(live, root / "killed")
    here.close()
    return root / "killed"


def test_a_rebuilt_index_has_its_numbers(tmp_path: pathlib.Path) -> None:
    """A loss of writes is noticed before the rebuild, mended by it, and noticed again right after it."""
    root = killed(tmp_path)
    damage_writes(root / "index/current/runs")
    with pytest.raises(StorageError, match=r"index/current/runs: damaged: .*rebuild-index"):
        Here(root)
    assert rebuilt(root).problems == []
    current = root / "index/current"
    for index, table, name in ((0, 1 << 40, "runs"), (1 << 40, 0, "ledgers")):
        with pytest.raises(StorageError, match=f"^{name}: damaged"):
            Sequences(Files(), str(current)).check(index, table, "runs", "ledgers")
    here = Here(root)
    assert [isinstance(here.read(1, entry), bytes) for entry in range(11)] == [True] * 10 + [False]
    assert isinstance(here.read(5, 2), bytes)
    here.close()
    Here(root).close()


def test_a_table_that_lost_rows_is_not_believed(tmp_path: pathlib.Path) -> None:
    """
    Entries of the ledgers that it forgot would pass for deleted; rebuilt it knows every ledger of the logs and of the
    journal, fenced.
    """
    root = killed(tmp_path)
    damage_writes(root / "index/current/ledgers")
    for attempt in (lambda: Here(root), lambda: rebuilt(root), lambda: Here(root)):
        with pytest.raises(StorageError, match=r"index/current/ledgers: damaged: .*--ledgers"):
            attempt()
    found = rebuilt(root, new_table=True)
    assert (found.ledgers, found.new_table, found.passed_over) == (1, True, 0)
    here = Here(root)
    digest = ledgers_of("rocksdb", "stopped")[0][0]
    for ledger, count in ((1, 10), (5, 3)):
        assert [isinstance(here.read(ledger, entry), bytes) for entry in range(count)] == [True] * count
        body = digest.entry(ledger, 999, -1, 1, b"x")
        assert (
            here.storage.add(AddRun(ledger, 999, [body], digest.master_key, txns=[0], version=3), "a") is Status.EFENCED
        )
    here.commit()
    here.close()


@pytest.mark.parametrize("new_table", [False, True], ids=["kept table", "new table"])
def test_a_rebuild_that_was_interrupted_denies_nothing(new_table: bool, tmp_path: pathlib.Path) -> None:
    """
    Wherever it ends: a start is refused, twice, or all is there; and the next rebuild, with or without a new table, is
    a whole one.
    """
    root = killed(tmp_path)
    left = 0
    refused = served = 0
    while True:
        here = tmp_path / "here"
        shutil.copytree(root, here)
        stopped = Stopped(Cut(left), options_for(here))
        try:
            rebuild(stopped, new_table=new_table)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            stopped.close()
        for attempt in range(3):  # refused twice, then rebuilt; or served each time
            try:
                storage = Here(here)
            except StorageError as error:
                refused += "rebuild-index" in str(error)
                if attempt == 1:
                    rebuilt(here)
                continue
            assert [
                isinstance(storage.read(ledger, entry), bytes) for ledger, entry in ((1, 0), (1, 9), (5, 2), (1, 10))
            ] == [True] * 3 + [False]
            storage.close()
            served += 1
        shutil.rmtree(here)
        left += 1
    assert left >= 4
    assert refused >= 4
    assert refused + served == 3 * left
    assert served >= left
