"""The run index against a plain dict, on both drivers; and what RocksDB must keep through a SIGKILL."""

import errno
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.bookie.index.run import KEY, Move, Use, encode_run
from quire.bookie.index.run_index import POINT_DELETES_MAX, RunIndex
from quire.rows.contract import Row, Rows
from quire.rows.rocks import RocksRows
from tests.rows.fakes import DictRows

Model = dict[tuple[int, int], tuple[int, int, int, int]]  # (ledger, entry) -> (log, offset, size, sum)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.integers(0, 2),
            st.integers(0, 50),
            st.integers(1, 30),
            st.sampled_from(["equal", "short", "long"]),
        ),
        st.tuples(st.just("delete"), st.integers(0, 2)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("begin")),
        st.tuples(st.just("sync")),
    ),
    max_size=40,
)


@pytest.fixture(params=["dict", "rocksdb"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    made: Rows = DictRows() if request.param == "dict" else RocksRows(str(tmp_path / "rows"))
    yield made
    made.close()


def put(index: RunIndex, model: Model, ledger: int, first: int, count: int, kind: str, log: int) -> None:
    """As a flush does it."""
    rng = random.Random(f"{ledger} {first} {count} {log}")
    high = {"equal": 0, "short": 50_000, "long": 1 << 22}[kind]
    sizes = [100 + rng.randint(0, high) for _ in range(count)]
    sums = [rng.getrandbits(32) for _ in range(count)]
    offset = rng.randrange(1024, 1 << 30)
    index.put_all([(ledger, first, len(sizes), encode_run(log, offset, sizes, sums))], lambda: None)
    for within in range(count):
        model[ledger, first + within] = (log, offset, sizes[within], sums[within])
        offset += sizes[within] + 4


def check(index: RunIndex, rows: Rows, model: Model, entries: int = 90) -> None:
    for ledger in range(3):
        for entry in range(entries):
            run = index.find(ledger, entry)
            found = None
            if run is not None:
                offset, size, check_sum = run.at(entry)
                found = (run.log, offset, size, check_sum)
            assert found == model.get((ledger, entry))
        known = [entry for owner, entry in model if owner == ledger]
        assert index.last(ledger) == max(known, default=-1)
        runs = list(index.runs(ledger))
        assert [entry for run in runs for entry in range(run.first, run.last + 1)] == sorted(known), (
            "disjoint, ascending, complete"
        )
        assert [run.first for run in index.runs(ledger, 20)] == [run.first for run in runs if run.last >= 20]
    assert index.find(3, 0) is None
    assert index.lasts([3, 0, 1, 0]) == [-1, *(index.last(ledger) for ledger in (0, 1, 0))]


def play(rows: Rows, steps: list[tuple[object, ...]]) -> None:
    index = RunIndex(rows)
    model: Model = {}
    for log, step in enumerate(steps):
        match step:
            case ("put", int(ledger), int(first), int(count), str(kind)):
                put(index, model, ledger, first, count, kind, log)
            case ("delete", int(ledger)):
                index.delete(ledger)
                model = {key: value for key, value in model.items() if key[0] != ledger}
            case ("commit",):
                index.commit()
            case ("begin",):
                index.commit()
                index = RunIndex(rows)  # a restart remembers nothing
                index.begin()
            case _:
                index.sync()
    index.commit()
    check(index, rows, model)


@settings(max_examples=250, deadline=None)
@given(STEPS)
def test_the_index_is_a_dict(steps: list[tuple[object, ...]]) -> None:
    """Overlaps, gaps, any order, deletes, restarts: every entry is found where it was put last."""
    play(DictRows(), steps)


def test_the_index_is_a_dict_on_rocksdb_too(tmp_path: Path) -> None:
    """The same stories on the real driver."""
    rng = random.Random(3)
    for story in range(25):
        steps: list[tuple[object, ...]] = []
        for _ in range(40):
            if rng.random() < 0.75:
                steps.append(
                    (
                        "put",
                        rng.randrange(3),
                        rng.randrange(50),
                        rng.randrange(1, 30),
                        rng.choice(["equal", "short", "long"]),
                    )
                )
            else:
                steps.append(rng.choice([("delete", rng.randrange(3)), ("commit",), ("begin",), ("sync",)]))
        rows = RocksRows(str(tmp_path / str(story)))
        play(rows, steps)
        rows.close()


def test_batches_are_small(rows: Rows) -> None:
    """`append` asks for a commit before a write grows beyond 64 KB."""
    index = RunIndex(rows)
    writes = 0
    for number in range(500):
        assert index.above_all(1, number * 256)
        if index.append(1, number * 256, 256, encode_run(0, 1024, [100] * 256, [0] * 256)):
            index.commit()
            writes += 1
    assert 5 <= writes <= 50
    index.sync()
    assert index.last(1) == 500 * 256 - 1


def test_high_ids(rows: Rows) -> None:
    """Ledger and entry ids up to 2^63 - 2 sort as numbers."""
    index = RunIndex(rows)
    top = (1 << 63) - 2
    for ledger, entry in ((0, 0), (255, 255), (256, 256), (top, top)):
        assert index.above_all(ledger, entry)
        index.append(ledger, entry, 1, encode_run(1, 2, [3], [4]))
    index.commit()
    assert [index.last(ledger) for ledger in (0, 255, 256, top)] == [0, 255, 256, top]
    index.delete(255)
    assert index.last(255) == -1
    assert index.last(256) == 256


def test_rows_contract(rows: Rows) -> None:
    """Both drivers: order, floor, scan, range delete, deletes before puts in one write."""
    rows.write([(b"b", b"2"), (b"d", b"4"), (b"a", b"1")])
    assert rows.floor(b"c") == (b"b", b"2")
    assert rows.floor(b"b") == (b"b", b"2")
    assert rows.floor(b"A") is None
    assert rows.floors([b"A", b"c", b"b", b"z"]) == [None, (b"b", b"2"), (b"b", b"2"), (b"d", b"4")]
    assert rows.page(b"a", b"d", 9) == [(b"a", b"1"), (b"b", b"2")]
    assert rows.page(b"a", b"d", 1) == [(b"a", b"1")]
    assert rows.page(b"c", b"d", 2) == []
    assert list(rows.scan(b"a", b"d")) == [(b"a", b"1"), (b"b", b"2")]
    rows.write([(b"b", b"3")], [b"b", b"d"])
    assert rows.get(b"b") == b"3"
    assert rows.get(b"d") is None
    rows.delete_range(b"a", b"b")
    assert list(rows.scan(b"", b"\xff")) == [(b"b", b"3")]
    rows.sync()


def test_a_ledger_whose_rows_are_damaged_is_deleted_unread(rows: Rows) -> None:
    """Others beside it as always; an error of the disk itself is raised."""
    index = RunIndex(rows)
    for ledger in (1, 2, 3):
        put(index, {}, ledger, 0, 5, "equal", ledger)
    index.commit()
    scan, told = rows.scan, [OSError("Corruption: block checksum mismatch")]

    def damaged(low: bytes, high: bytes) -> Iterator[Row]:
        if low == KEY.pack(2, 0):
            raise told[0]
        return scan(low, high)

    with patch.object(rows, "scan", damaged):
        index.delete_all([1, 2])
        assert [index.last(ledger) for ledger in (1, 2, 3)] == [-1, -1, 4]
        told[0] = OSError(errno.EIO, "Input/output error")
        with pytest.raises(OSError, match="Input/output"):
            index.delete(2)


def test_many_runs_are_put_as_one_by_one(rows: Rows) -> None:
    """
    Highest entries are looked up for many ledgers at once, and what overlaps older rows still cuts them; the use of
    logs is counted.
    """
    index = RunIndex(rows)
    runs = [
        (ledger, first, 2, encode_run(7, 2000, [50, 60 + ledger % 2], [1, 2]))
        for ledger in range(200)
        for first in (0, 2)
    ]
    index.put_all(runs, lambda: None)
    index.commit()
    again = RunIndex(rows)
    again.put_all([(ledger, 3, 1, encode_run(8, 4000, [50], [3])) for ledger in range(0, 200, 2)], lambda: None)
    again.commit()
    assert again.lasts(range(200)) == [3] * 200
    assert [(run.first, run.count, run.log) for run in again.runs(6)] == [(0, 2, 7), (2, 1, 7), (3, 1, 8)]
    assert [(run.first, run.count, run.log) for run in again.runs(7)] == [(0, 2, 7), (2, 2, 7)]
    assert again.uses(lambda: None) == {7: Use(400, 100 * (54 + 64 + 54) + 200 * (54 + 65)), 8: Use(100, 5400)}


KNOWN_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 60)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.integers(0, 5)),
        st.tuples(st.just("walk")),
        st.tuples(st.just("walk beside"), st.integers(0, 5)),
    ),
    max_size=30,
)


@patch("quire.bookie.index.run_index.SCAN_ROWS", 32)  # so that a walk has steps
@given(KNOWN_STEPS)
@settings(max_examples=200, deadline=None)
def test_what_is_known_of_the_use_of_logs_is_what_a_walk_finds(steps: list[tuple[str, int, int]]) -> None:
    """
    Whatever is put, cut, moved and deleted, by a range or row by row, also in the midst of a walk: of finished logs it
    is the same, or nothing is known where rows changed in the midst of the walk.
    """
    rows = DictRows()
    index = RunIndex(rows)
    current = 2  # logs below it are finished
    many = POINT_DELETES_MAX + 8
    for ledger, log in ((0, 0), (1, 0), (2, 1), (3, 1)):
        sizes = range(1, 3 if ledger % 2 else 2)
        index.put_all(
            [(ledger, first, len(sizes), encode_run(log, 2000, sizes, sizes)) for first in range(0, 2 * many, 2)],
            lambda: None,
        )
    index.commit()
    index.uses(lambda: None, range(current))
    known = index.known_uses()
    for name, *words in steps:
        if name == "put":
            index.put(words[0], words[1], 2, encode_run(current, 2000, [7, 7], [1, 1]))
            index.commit()
        elif name == "delete":
            index.delete_all([words[0], words[0] + 1])
        elif name == "move":
            index.move(
                Move(run.ledger, run.first, run.count, run.log, run.offset, 100, run.log ^ 1, 5000)
                for run in list(index.runs(words[0]))[:3]
                if run.log < 2
            )
        elif name == "walk":
            current += 1
            index.uses(lambda: None, range(current))
            assert set(index.known_uses()) == set(range(current)), "nothing went meanwhile"
        else:
            index.uses(partial(index.delete, words[0]), range(current))
        assert index.known_uses() or name == "walk beside" or not known
        known = index.known_uses()
        walked = RunIndex(rows).uses(lambda: None)
        assert {log: walked.get(log, Use(0, 0)) for log in known} == known


WRITER = """
import struct, sys
from quire.rows.rocks import RocksRows
rows = RocksRows(sys.argv[1])
for number in range(10**9):
    rows.write([(struct.pack(">Q", number), bytes(500))] * 1)
    if number % 50 == 49:
        rows.sync()
        print(number, flush=True)
"""


def test_rocksdb_keeps_what_was_synced_through_sigkill(tmp_path: Path) -> None:
    """Killed while it writes: all rows up to the last sync that was reported are there, without holes."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "rows")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    synced = 0
    for line in process.stdout:
        synced = int(line)
        if synced > 3000:
            break
    process.kill()
    process.wait()
    rows = RocksRows(str(tmp_path / "rows"))
    keys = [struct.unpack(">Q", key)[0] for key, _value in rows.scan(b"", b"\xff" * 9)]
    rows.close()
    assert keys == list(range(len(keys)))
    assert len(keys) > synced


def test_a_copy_taken_at_a_sync_opens(tmp_path: Path) -> None:
    """A directory copied right after a sync, while the database is open, holds all that was synced."""
    rows = RocksRows(str(tmp_path / "rows"))
    for number in range(200):
        rows.write([(struct.pack(">Q", number), bytes(1000))])
        if number % 40 == 39:
            rows.sync()
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "rows", copy)
            opened = RocksRows(str(copy))
            assert len(list(opened.scan(b"", b"\xff" * 9))) == number + 1
            opened.close()
    rows.close()
