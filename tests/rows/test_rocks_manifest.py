"""What a manifest says: by the description of its fields, by RocksDB's own list of tables, and in Java's files."""

import struct
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from quire.protocol import varint
from quire.rows.rocks_check import Edit, State, records
from tests.bookie.fakes.apache_files import unpack

# SPDX-License-Identifier: Apache-2.0

LOG, NEXT_FILE, LAST_WRITE, GONE, SECOND_LOG, OLDEST_LOG, TABLE = 2, 3, 4, 6, 9, 10, 103


def fields(*values: int | bytes) -> bytes:
    """Numbers, and strings behind their lengths."""
    return b"".join(
        varint.encode(value) if isinstance(value, int) else varint.encode(len(value)) + value for value in values
    )


def table(number: int, last: int, *more: int | bytes, level: int = 0) -> bytes:
    """A new table with these fields of its own."""
    return fields(TABLE, level, number, 4096, b"first key", b"last key", 1, last, *more, 1)


SNAPSHOT = fields(LOG, 8, LAST_WRITE, 45) + table(9, 45)
FLUSH = fields(LOG, 17, SECOND_LOG, 0, NEXT_FILE, 19, LAST_WRITE, 170) + table(
    18, 159, 5, b"\x01", 3, struct.pack("<Q", 8)
)
COMPACTION = fields(NEXT_FILE, 21, GONE, 0, 9, GONE, 0, 18) + table(20, 0, level=6)


def state_of(*edits: bytes) -> State:
    state = State()
    for edit in edits:
        state.apply(edit)
    return state


def test_edits_add_up() -> None:
    """A snapshot, a flush, a compaction: tables, the logs that are needed, and which writes are in tables."""
    state = state_of(fields(1, b"leveldb.BytewiseComparator"), SNAPSHOT)
    assert (state.tables, state.log, state.in_tables, state.is_snapshot) == ({(0, 9)}, 8, 0, True)
    state.apply(FLUSH)
    assert (state.tables, state.log, state.oldest_log) == ({(0, 9), (0, 18)}, 17, 8)
    assert (state.in_tables, state.had_rest, state.is_snapshot) == (159, True, False)
    state.apply(COMPACTION)
    assert (state.tables, state.log, state.in_tables) == ({(6, 20)}, 17, 159)
    state.apply(fields(LOG, 22, NEXT_FILE, 24, LAST_WRITE, 170))
    assert (state.log, state.in_tables, state.had_rest) == (22, 170, False)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (fields(201, b"another"), "a field 201"),
        (fields(8192 + 3, b""), "a field 8195"),
        (table(9, 1, 4, b"\x07"), "a table with a field 4"),
        (table(9, 1, 65, b"\x01"), "a table with a field 65"),
        (table(9, 1, 3, b"\x01"), "a table with a field 3"),
        (fields(SECOND_LOG, 7), "a second log"),
        (fields(LOG, 1 << 63, NEXT_FILE, (1 << 64) - 1) + b"\x04" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (FLUSH[:-1], "cut off"),
        (fields(1) + varint.encode(9) + b"short", "cut off"),
        (fields(GONE, 0, 77), "table 77, which is not there"),
        (fields(LOG, 8, NEXT_FILE, 9), "which write was the last"),
    ],
)
def test_what_is_not_known_is_refused(record: bytes, why: str) -> None:
    """Fields, tables and numbers."""
    with pytest.raises(ValueError, match=why):
        state_of(SNAPSHOT, record)


def test_a_cut_edit_is_refused() -> None:
    """Wherever that is not between two fields."""
    between = {2, 4, 6, 9}  # behind the numbers before the table
    for size in range(1, len(FLUSH)):
        if size in between:
            Edit(FLUSH[:size])
        else:
            with pytest.raises(ValueError, match="cut off"):
                Edit(FLUSH[:size])


def test_the_tables_are_those_that_rocksdb_has(tmp_path: Path) -> None:
    """After flushes, range deletes, moves and compactions, and another start."""
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    path = tmp_path / "rows"
    for life in range(3):
        rows = Rdict(str(path), options)
        for step in range(6):
            for key in range(step, 40, step + 1):
                rows[b"%d-%03d" % (life, key)] = b"x" * 50
            if step % 2:
                rows.delete_range(b"%d-%03d" % (life, step), b"%d-%03d" % (life, step + 5))
            rows.flush()
            if step == 3:
                rows.compact_range(None, None)
            (manifest,) = path.glob(f"{(path / 'CURRENT').read_text().strip()}")
            state = state_of(*(record for record, _end in records(manifest.read_bytes())))
            live = {(each["level"], int(Path(each["name"]).stem)) for each in rows.live_files()}
            assert state.tables == live
            assert state.in_tables == rows.latest_sequence_number()
            assert (path / f"{state.log:06}.log").exists()
        rows.close()


def test_what_java_wrote_is_known(tmp_path: Path) -> None:
    """Apache's ledger table and locations: each record, and the tables are there."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    currents = list(root.rglob("CURRENT"))
    assert currents
    for current in currents:
        manifest = current.with_name(current.read_text().strip())
        *_ends, (_record, end) = records(manifest.read_bytes())
        assert end == manifest.stat().st_size
        state = state_of(*(record for record, _end in records(manifest.read_bytes())))
        assert all(current.with_name(f"{number:06}.sst").exists() for _level, number in state.tables)
