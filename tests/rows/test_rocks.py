"""RocksDB behind `Rows`: closed when it says so, with reads still open; and a full disk that gets room again."""

import errno
import os
import shutil
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from twisted.internet.task import Clock

from quire.bookie.directory.ledger_directory import LedgerDirectory, SyncFailed
from quire.bookie.index.sequences import Sequences
from quire.bookie.storage.storage import Storage
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows import rocks
from quire.rows.contract import StorePiece
from quire.rows.files import AGAIN_SECONDS, Files, NotBegun, StorageError, Usage
from quire.rows.rocks import RocksRows
from tests.bookie.fakes.disk import Bookie, Disk, body_of, options_of
from tests.bookie.fakes.workers import InlineWorkers
from tests.crash.lives import Life, RealDisk
from tests.rows.fakes import DictRows


def filled(path: Path, count: int = 10) -> RocksRows:
    rows = RocksRows(str(path))
    rows.write([(b"%04d" % number, b"x" * 100) for number in range(count)])
    rows.sync()
    return rows


def copied(live: Path, path: Path) -> None:
    """Copies the files of stores that are open, whose own threads may remove one meanwhile."""
    for _ in range(100):
        with suppress(shutil.Error):
            shutil.copytree(live, path)
            return
        shutil.rmtree(path)
    raise AssertionError(f"{live} does not stay as it is for as long as a copy takes")


def test_a_scan_that_was_broken_off_does_not_keep_the_store_open(tmp_path: Path) -> None:
    """Its iterator is given back at the close; a scan that goes on raises an error, never a false end."""
    rows = filled(tmp_path / "rows")
    scan = rows.scan(b"", b"z")
    ended = rows.scan(b"", b"0002")
    assert next(scan)[0] == b"0000"
    assert len(list(ended)) == 2
    rows.close()
    again = RocksRows(str(tmp_path / "rows"))
    with pytest.raises(OSError, match="closed in the midst of a scan"):
        next(scan)
    assert list(ended) == []
    assert len(list(again.scan(b"", b"z"))) == 10
    again.close()


def test_an_error_that_is_kept_does_not_keep_the_store_open(tmp_path: Path) -> None:
    """
    Reads of a damaged table fail, with what to do; a caller keeps their errors, and the store can be opened again at
    once.
    """
    rows = filled(tmp_path / "rows")
    rows.close()
    filled(tmp_path / "rows").close()  # the rows of its log become a table
    for table in (tmp_path / "rows").glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[5] ^= 1
        table.write_bytes(data)
    rows = RocksRows(str(tmp_path / "rows"))
    kept = []
    for read in (lambda: rows.floor(b"0005"), lambda: list(rows.scan(b"", b"z")), lambda: rows.get(b"0005")):
        try:
            read()
        except OSError as error:
            kept.append(error)
    assert len(kept) == 3
    assert all("put it back" in str(error) for error in kept)
    assert all(str(tmp_path) in str(error) and error.__traceback__ is not None for error in kept)
    rows.close()
    RocksRows(str(tmp_path / "rows")).close()
    assert traceback.format_exception(kept[0])


def test_a_directory_that_can_not_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    """Apache's index is damaged: the table and our own index are closed again."""
    current = tmp_path / "ledgers0" / "current"
    current.mkdir(parents=True)
    opened = LedgerDirectory(
        Files(), RocksRows, str(tmp_path / "ledgers0"), str(tmp_path / "ledgers0"), 1 << 20, lambda: None
    )
    opened.close()
    filled(current / "locations").close()
    (current / "locations" / "CURRENT").write_text("nothing\n")
    kept = []
    for _ in range(2):
        with pytest.raises(StorageError, match="locations/CURRENT at offset 0") as raised:
            LedgerDirectory(
                Files(), RocksRows, str(tmp_path / "ledgers0"), str(tmp_path / "ledgers0"), 1 << 20, lambda: None
            )
        kept.append(raised)


class Links:
    """
    The next logs of writes of some stores are on a disk that is full: /dev/full, under the names that RocksDB will
    take.
    """

    def __init__(self, *stores: Path) -> None:
        self._links = [
            link for store in stores for number in range(6, 40) if not (link := store / f"{number:06d}.log").exists()
        ]
        for link in self._links:
            link.symlink_to("/dev/full")

    def remove(self) -> None:
        for link in self._links:
            if link.is_symlink():
                link.unlink()


class Full:
    """A store that filled its disk, which has room again unless it `stays` full."""

    def __init__(self, path: Path, stays: bool = False) -> None:
        self.rows = RocksRows(str(path), write_buffer_bytes=64 << 10)
        self.written: list[bytes] = []
        self.links = Links(path)
        try:
            while True:
                key = b"%06d" % len(self.written)
                self.rows.write([(key, os.urandom(1000))])
                self.written.append(key)
        except OSError as error:
            self.error = error
        if not stays:
            self.links.remove()


def test_a_full_disk_is_reported_as_one_and_has_a_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    RocksDB's text becomes ENOSPC; nothing is tried before there is room; then all that was written is there, and
    durable after the next sync.
    """
    full = Full(tmp_path / "rows")
    rows = full.rows
    assert full.error.errno == errno.ENOSPC
    assert str(tmp_path / "rows") in str(full.error)
    monkeypatch.setattr(Files, "usage", lambda files, path: Usage(1, 1 << 30, rocks.REOPEN_BYTES - 1))
    for attempt in (lambda: rows.write([(b"a", b"b")]), lambda: rows.delete_range(b"a", b"b"), rows.sync):
        with pytest.raises(OSError, match="bytes are free") as raised:
            attempt()
        assert raised.value.errno == errno.ENOSPC
    assert [key for key, _value in rows.scan(b"", b"z")] == full.written
    scan = rows.scan(b"", b"z")
    monkeypatch.undo()
    rows.sync()
    with pytest.raises(OSError, match="closed in the midst"):
        next(scan)
    copied(tmp_path / "rows", tmp_path / "killed")
    rows.write([(b"a", b"b")])
    rows.sync()
    rows.close()
    for path, more in (("killed", []), ("rows", [b"a"])):
        again = RocksRows(str(tmp_path / path))
        assert [key for key, _value in again.scan(b"", b"z")] == [*full.written, *more]
        again.close()


@pytest.mark.parametrize("life", range(3))
def test_a_write_does_not_wait_for_tables_that_a_full_disk_refuses(tmp_path: Path, life: int) -> None:
    """
    RocksDB's own wait ends in a deadlock when it begins right before the flush fails, with the interpreter lock held:
    one of some fourteen such lives never ended.
    """
    rows = RocksRows(str(tmp_path / "rows"), write_buffer_bytes=64 << 10)
    for number in range(20 + life, 120):
        (tmp_path / "rows" / f"{number:06d}.sst").symlink_to("/dev/full")
    count, error = 0, None
    while error is None:
        try:
            rows.write([(b"%08d-%d" % (count, row), os.urandom(200)) for row in range(50)])
            count += 1
        except OSError as raised:
            error = raised
    assert error.errno == errno.ENOSPC
    for link in (tmp_path / "rows").glob("*.sst"):
        if link.is_symlink():
            link.unlink()
    rows.write([(b"z", b"")])
    rows.close()
    rows = RocksRows(str(tmp_path / "rows"))
    assert [len(value) for _key, value in rows.scan(b"", b"\xff")] == [200] * 50 * count + [0]
    rows.close()


def test_a_stalled_write_is_tried_again_until_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the disk has room; then it is a full disk, and the same write is done when there is some."""
    tries: list[None] = []
    room = iter([1 << 30, 1 << 30, 0])
    now = iter(range(0, 1000, 3))
    whole = rocks.Rdict

    class Stalling:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._store = whole(*arguments, **options)

        def write(self, *arguments: Any) -> None:
            if len(tries) < 4:
                tries.append(None)
                raise Exception("Result incomplete: Write stall")
            self._store.write(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    monkeypatch.setattr(rocks, "Rdict", Stalling)
    rows = RocksRows(str(tmp_path / "rows"))
    with monkeypatch.context() as patch:
        patch.setattr(rocks.time, "monotonic", lambda: next(now))
        patch.setattr(Files, "usage", lambda files, path: Usage(1, 1 << 30, next(room)))
        with pytest.raises(OSError, match="Write stall") as raised:
            rows.write([(b"a", b"b")])
    assert (raised.value.errno, len(tries), rows.is_stuck) == (errno.ENOSPC, 4, True)
    rows.write([(b"a", b"b")])
    assert rows.get(b"a") == b"b"
    rows.close()


def test_the_floors_of_many_keys_are_those_of_each(tmp_path: Path) -> None:
    """Ascending ones, of which several have one row, and others; below the first row, behind the last, without rows."""
    store = RocksRows(str(tmp_path / "rows"))
    assert store.floors([b"a", b"b"]) == [None, None]
    store.write([(b"%02d" % number, b"v%d" % number) for number in range(10, 90, 5)])
    keys = [b"%02d%s" % (number, more) for number in range(100) for more in (b"", b"\0", b"z")]
    for asked in (keys, keys[::-1], keys[7::11] + keys[3::13], [b"50"] * 3, []):
        assert store.floors(asked) == [store.floor(key) for key in asked]
    assert store.floors([b"09", b"10", b"14", b"15", b"99"]) == [
        None,
        *((key, b"v" + key) for key in (b"10", b"10", b"15", b"85")),
    ]
    store.close()


def test_a_range_of_nothing_counts_no_write(tmp_path: Path) -> None:
    """Else the durable number of rows would be above what RocksDB finds in its logs."""
    rows = filled(tmp_path / "rows")
    before = rows.sequence
    rows.delete_range(b"b", b"b")
    rows.delete_range(b"b", b"a")
    assert rows.sequence == before
    rows.delete_range(b"a", b"b")
    assert rows.sequence == before + 1
    rows.close()


def test_a_bookie_whose_index_is_full_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only meanwhile, the directory does not fail; then everything is stored, and there after a kill."""
    monkeypatch.setattr(RealDisk, "open_rows", lambda disk, path: RocksRows(path, write_buffer_bytes=64 << 10))
    life = Life(RealDisk(), root=str(tmp_path / "live"), ledgers=2)
    links = Links(*(tmp_path / "live").glob("ledgers*/current/runs"))
    count = 0
    while life.storage.read_only is None:
        for ledger in range(8):
            assert life.add(ledger, count * 250, 250, size=0) is Status.EOK
        life.commit()
        life.storage.flush().addErrback(lambda failure: None)
        count += 1
    assert life.storage.read_only is not None
    assert os.strerror(errno.ENOSPC) in life.storage.read_only
    assert life.add(0, count * 250) is Status.EREADONLY
    for ledger in range(8):
        assert life.now(life.storage.read(ledger, count * 250 - 1)) == body_of(ledger, count * 250 - 1, 0)
    links.remove()
    life.flush()
    assert (life.storage.read_only, life.storage.counters.directories_lost, life.failures) == (None, 0, [])
    copied(tmp_path / "live", tmp_path / "killed")
    life.close()
    for root in ("live", "killed"):
        life = Life(RealDisk(), root=str(tmp_path / root), ledgers=2)
        for ledger in range(8):
            assert decode(life.now(life.storage.entries(ledger))) != []
            for entry in range(0, count * 250, 49):
                assert life.now(life.storage.read(ledger, entry)) == body_of(ledger, entry, 0)
        life.close()


def test_a_store_that_can_not_be_opened_again_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads fail until it could be; then nothing is missing."""
    full = Full(tmp_path / "rows")

    def no_room(path: str) -> None:
        raise OSError(f"IO error: {os.strerror(errno.EDQUOT)}: {path}")

    monkeypatch.setattr(rocks.rocks_check, "check", no_room)
    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)) as raised:
        full.rows.write([(b"a", b"b")])
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="rows"):
        full.rows.get(b"a")
    monkeypatch.undo()
    full.rows.write([(b"a", b"b")])
    assert [key for key, _value in full.rows.scan(b"", b"z")] == [*full.written, b"a"]
    full.rows.close()


class Refused(RocksRows):
    """A store of which `refuse` is what a write does that meets the limit of open files."""

    def refuse(self) -> None:
        self._stuck = NotBegun(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("store", ["runs", "ledgers"])
def test_a_store_that_a_refused_write_left_closed_is_opened_by_an_idle_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """
    A background write, such as a compaction's, met the limit of open files twice; no write follows.  Reads are refused
    meanwhile, not for ever.
    """
    opened: dict[str, Refused] = {}
    monkeypatch.setattr(RealDisk, "open_rows", lambda disk, path: opened.setdefault(Path(path).name, Refused(path)))
    life = Life(RealDisk(), root=str(tmp_path / "live"))
    life.add(1, 0, 10)
    life.commit()
    life.flush()
    life.clock.advance(life.options.flush_interval_ms / 1000)
    rows = opened[store]
    rows.refuse()

    def no_descriptor(path: str) -> None:
        raise NotBegun(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as patch:
        patch.setattr(rocks.rocks_check, "check", no_descriptor)
        for attempt in (lambda: rows.write([(b"a", b"b")]), rows.sync, lambda: rows.sequence):
            with pytest.raises(NotBegun):
                attempt()
        if store == "runs":
            assert life.now(life.storage.read(1, 5)) is Status.ETOOMANYREQUESTS
        life.clock.advance(life.options.flush_interval_ms / 1000)
        assert life.storage.read_only is None
        for _ in range(40):
            life.clock.advance(AGAIN_SECONDS)
        assert "no checkpoint could be begun" in str(life.storage.read_only)
    for _ in range(4):
        life.clock.advance(life.options.flush_interval_ms / 1000)
    assert (life.storage.read_only, life.storage.counters.directories_lost, life.failures) == (None, 0, [])
    assert life.now(life.storage.read(1, 5)) == body_of(1, 5)
    life.close()


def test_many_threads_open_a_full_store_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first writer after a full disk opens it; the others wait for that, and readers get rows or an error."""
    full = Full(tmp_path / "rows")
    opened: list[str] = []
    check = rocks.rocks_check.check
    monkeypatch.setattr(rocks.rocks_check, "check", lambda path: (opened.append(path), check(path)))
    start = Barrier(8)

    def write(number: int) -> None:
        start.wait(30)
        left = 100
        while left:
            try:
                full.rows.write([(b"%06d-%03d" % (number, left), b"x")])
                left -= 1
            except OSError as error:
                if error.errno != errno.ENOSPC:  # a reader held it at that moment
                    raise

    def read() -> None:
        start.wait(30)
        for _ in range(300):
            with suppress(OSError):
                row = full.rows.floor(full.written[5])
                assert row is not None
                assert row[0] == full.written[5]

    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(write, number) for number in range(6)] + [threads.submit(read) for _ in range(2)]
        for each in done:
            each.result(60)
    assert opened
    assert len(list(full.rows.scan(b"", b"z"))) == len(full.written) + 600
    full.rows.close()


def test_a_full_store_that_closes_is_closed(tmp_path: Path) -> None:
    """RocksDB complains then, which is reported; the directory is free all the same, and has what was written."""
    full = Full(tmp_path / "rows", stays=True)  # else RocksDB may have gone on by itself before the close
    with pytest.raises(OSError, match="closed with an error"):
        full.rows.close()
    full.links.remove()
    again = RocksRows(str(tmp_path / "rows"))
    assert [key for key, _value in again.scan(b"", b"z")] == full.written
    again.close()


class Sticky(DictRows):
    """Rows that complain when they are closed."""

    def __init__(self, closed: list[str], path: str) -> None:
        super().__init__()
        self._closed = closed
        self._path = path

    def close(self) -> None:
        self._closed.append(self._path)
        raise OSError(f"{self._path} complains")


def test_everything_is_closed_whichever_close_fails(tmp_path: Path) -> None:
    """A directory's stores, and a bookie's directories and locks; a start that failed raises its own error."""
    disk = Disk()
    closed: list[str] = []
    bookie = Bookie(disk, ledgers=2)
    bookie.close()
    again = Storage(
        options_of(ledgers=2), Clock(), disk, open_rows=lambda path: Sticky(closed, path), workers=InlineWorkers()
    )
    Sequences(disk, "/disk/ledgers1/current").write(5, 5)
    with pytest.raises(StorageError, match="/disk/ledgers1/current/runs: damaged: 5 writes"):
        again.start()
    assert sorted(closed) == [
        f"/disk/ledgers{number}/current/{name}" for number in range(2) for name in ("ledgers", "runs")
    ]
    assert disk.open_files == 0
    (tmp_path / "current").mkdir()
    directory = LedgerDirectory(
        Files(), lambda path: Sticky(closed, path), str(tmp_path), str(tmp_path), 1 << 20, lambda: None
    )
    with pytest.raises(OSError, match="complains"):
        directory.close()
    directory.failed = "it is dead"
    directory.close()


def test_a_sync_that_failed_is_final_and_one_without_room_is_not(tmp_path: Path) -> None:
    """Rows say ENOSPC when nothing was begun; entry logs say it of a sync that failed."""
    (tmp_path / "current").mkdir()
    directory = LedgerDirectory(Files(), lambda path: DictRows(), str(tmp_path), str(tmp_path), 1 << 20, lambda: None)

    def fails() -> None:
        raise OSError(errno.ENOSPC, "no room")

    for part, expected in ((directory.index, OSError), (directory.table, OSError), (directory.logs, SyncFailed)):
        good = part.sync
        part.sync = fails  # type: ignore[method-assign]
        with pytest.raises(expected):
            directory.sync()
        part.sync = good  # type: ignore[method-assign]
    directory.sync()
    directory.close()


def test_rocksdb_that_can_not_be_opened_names_its_path(tmp_path: Path) -> None:
    """A second opener, and a file that is gone, with the directory in the text."""
    path = tmp_path / "rows"
    first = RocksRows(str(path))
    with pytest.raises(OSError, match=str(path)):
        RocksRows(str(path))
    first.close()
    (path / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(StorageError, match=f"{path}/CURRENT at offset 0.*put it back"):
        RocksRows(str(path))


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.sst"))


def test_a_store_is_compacted_by_pieces(tmp_path: Path) -> None:
    """
    Pieces have all keys, each once; afterwards deleted rows take no room.  Rows are read and written meanwhile, and a
    close from another thread waits for the piece.
    """
    rows = RocksRows(str(tmp_path / "rows"), write_buffer_bytes=64 << 10)
    assert rows.pieces() == [(None, None, 0)]
    for start in range(0, 20_000, 100):
        rows.write([(b"%08d" % number, os.urandom(100)) for number in range(start, start + 100)])
    for piece in rows.pieces():
        rows.compact(piece)
    before = size_of(tmp_path / "rows")
    rows.delete_range(b"00000100", b"00019900")
    with ThreadPoolExecutor(1) as pool:
        compacting = [pool.submit(rows.compact, piece) for piece in rows.pieces()]
        assert rows.get(b"00019900") is not None
        rows.write([(b"00000150", b"new")])
        for each in compacting:
            each.result()
        assert size_of(tmp_path / "rows") < before / 10
        assert [key for key, _value in rows.scan(b"000001", b"000199")] == [b"00000150"]
        last = pool.submit(rows.compact, rows.pieces()[0])
        rows.close()
        with suppress(OSError):  # the close may have been first
            last.result()
    with pytest.raises(OSError, match="rows"):
        rows.compact(StorePiece(None, None, 0))
    again = RocksRows(str(tmp_path / "rows"))
    assert len(list(again.scan(b"", b"z"))) == 201
    again.close()


def test_pieces_end_where_files_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the deepest level; the first has all keys below it, each later one what follows the one before."""
    rows = filled(tmp_path / "rows")

    class Files:
        def live_files(self) -> list[dict[str, object]]:
            ends = [(0, b"z", 1), (6, b"m", 30), (6, b"f", 20), (5, b"p", 2), (6, b"t", 40)]
            return [{"level": level, "end_key": end, "size": size} for level, end, size in ends]

    with monkeypatch.context() as patched:
        patched.setattr(rows, "_db", Files())
        found = rows.pieces()
    assert found == [(None, b"f", 20), (b"f\0", b"m", 30), (b"m\0", None, 40)]
    rows.close()


def test_a_store_that_takes_no_writes_is_not_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for its next write, which opens it again, and says so."""
    rows = filled(tmp_path / "rows")
    monkeypatch.setattr(rows, "_stuck", OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="takes no writes") as refused:
        rows.compact(StorePiece(None, None, 0))
    assert refused.value.errno == errno.ENOSPC
    rows.close()
