"""Rows of records: one by one, beside the reference, and over crashes."""

import random

import pytest

from quire.messages.core.queues import Placing
from quire.messages.core.record import key_hash
from quire.messages.derived import rows as r
from quire.messages.derived.dispatch import Dispatch, Portion, stored_at
from quire.messages.derived.rows import Bounds
from quire.protocol.message_errors import StoreDamaged
from quire.rows.contract import BATCH_BYTES_MAX
from quire.rows.rocks import RocksRows
from tests.messages.archives import BROKERS, unpack
from tests.messages.derived.stores import LOG, cut, made, portions, values_of
from tests.messages.reference import parser
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


def rows_of(values, placing=None, a_batch=7):
    rows = DictRows()
    Dispatch(rows, LOG, placing or Placing()).take(portions(values, a_batch))
    return rows.as_dict()


def resumed(rows, values, placing=None):
    """Dispatches what is missing, from the checkpoint on."""
    dispatch = Dispatch(rows, LOG, placing or Placing())
    first = 0 if dispatch.checkpoint is None else dispatch.checkpoint.index
    left = [cut(each, max(0, first - each.first)) for each in portions(values) if first < each.first + len(each.values)]
    dispatch.take(left)
    return dispatch


def queue_rows(found):
    return [r.queue_row(key, found[key]) for key in sorted(found) if key[:1] == b"q"]


@pytest.mark.parametrize("name", BROKERS)
def test_the_rows_of_a_broker(tmp_path, name):
    """Queues and keys as the reference has them; a row for each entry."""
    directory = unpack(name, tmp_path)
    values = values_of(directory)
    found = rows_of(values)
    queues, keys = parser.dispatched(directory)
    for (topic, queue), expected in queues.items():
        low, high = r.range_of(r.queue_prefix(topic, queue))
        rows = [r.queue_row(key, found[key]) for key in sorted(found) if low <= key < high]
        assert [(row.position, row.offset, row.size, row.tags_code) for row in rows] == expected
        assert r.bounds_of(found[r.bounds_key(topic, queue)]) == Bounds(expected[0][0], expected[-1][0] + 1)
    assert {r.key_key(hashed, at): r.key_value(ms) for hashed, at, ms, _text in keys} == {
        key: value for key, value in found.items() if key[:1] == b"k"
    }
    entries = [r.entry_row(key, found[key]) for key in sorted(found) if key[:1] == b"o"]
    assert [row.first for row in entries] == list(range(0, len(values), 7))
    checkpoint = r.checkpoint_of(found[b"d"])
    assert checkpoint is not None
    assert checkpoint[:3] == (LOG, len(values), values[-1].position + len(values[-1].value))


def test_a_crash_leaves_a_prefix_that_fits(tmp_path):
    """After any number of writes: rows of just the records below the checkpoint; and the same ones in the end."""
    values = values_of(unpack("plain-killed", tmp_path))
    rows = DictRows()
    dispatch = Dispatch(rows, LOG, Placing())
    for portion in portions(values, 3):
        dispatch.take([portion])
    whole = rows_of(values)
    for kept in range(rows.unsynced + 1):
        left = rows.crash(kept)
        stored = left.get(b"d")
        checkpoint = None if stored is None else r.checkpoint_of(stored)
        count = 0 if checkpoint is None else checkpoint.index
        places = {each.position for each in values[:count]}
        assert {row.offset for row in queue_rows(left.as_dict())} <= places
        expected = rows_of(values[:count], a_batch=3) if count else {}
        assert left.as_dict() == expected
        again = resumed(left, values)
        assert {key: value for key, value in again.rows.as_dict().items() if key[:1] != b"o"} == {
            key: value for key, value in whole.items() if key[:1] != b"o"
        }


def test_an_entry_that_is_cut_by_a_crash_keeps_its_row():
    """What begins inside an entry adds none for it, unless the log begins there."""
    values = made([("T", 0, n, {"body": bytes(100)}) for n in range(10)])
    (portion,) = portions(values, 10)
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take([Portion(0, portion.positions[:4], portion.values[:4], portion.entry)])
    Dispatch(rows, LOG, Placing()).take([cut(portion, 4)])
    assert rows.as_dict() == rows_of(values, a_batch=10)
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take([cut(portion, 4)])
    (key,) = [key for key in rows.as_dict() if key[:1] == b"o"]
    assert r.entry_row(key, rows.as_dict()[key]) == (values[4].position, 0, 0, 4, 6)


def test_writes_are_small_and_each_has_the_checkpoint():
    """Also of a record with very many keys, of which some go before it."""
    many = b"KEYS\x01" + b" ".join(b"%x" % n for n in range(6000)) + b"\x02"
    values = made([("T", 0, n, {"properties": many if n == 300 else b"KEYS\x01k%d\x02" % n}) for n in range(1500)])
    rows, sizes, steps = DictRows(), [], []
    write = rows.write

    def watched(puts, deletes=()):
        sizes.append(sum(len(key) + len(value) for key, value in puts))
        write(puts, deletes)
        stored = rows.get(b"d")
        count = 0 if stored is None else r.checkpoint_of(stored).index
        found = queue_rows(rows.as_dict())
        assert [row.position for row in found] == list(range(count))
        bounds = rows.get(r.bounds_key("T", 0))
        assert (0 if bounds is None else r.bounds_of(bounds).next) == count

    rows.write = watched
    Dispatch(rows, LOG, Placing(), steps.append).take(portions(values, 1500))
    assert max(sizes) <= BATCH_BYTES_MAX + 256
    assert len(sizes) > 3
    assert set(steps) == {"dispatch.written"}
    assert r.key_key(key_hash("T", "176f"), values[300].position) in rows.as_dict()


def test_places_of_an_import():
    """A shift, a double, prepared and rollback records, inner batches with and without a base (section 5)."""
    inner = b"INNER_NUM\x014\x02"
    values = made(
        [
            ("T", 0, 5),
            ("T", 0, 5, {"body": b"double"}),
            ("T", 0, 6),
            ("T", 0, 9),
            ("T", 0, 10),
            ("T", 1, 0, {"sys_flag": 0x4, "properties": b"KEYS\x01p\x02"}),
            ("T", 1, 0, {"sys_flag": 0xC, "properties": b"KEYS\x01r\x02"}),
            ("T", 1, 0, {"sys_flag": 0x8}),
            ("I", 0, 0, {"sys_flag": 0xC0, "properties": inner + b"INNER_BASE\x010\x02"}),
            ("I", 0, 4, {"sys_flag": 0xC0, "properties": inner}),
        ]
    )
    at = [each.position for each in values]
    placing = Placing(shifts=[("T", 0, 0, 3), ("T", 0, at[3], 5)], doubles=[at[1]], end=1 << 40)
    rows = DictRows(rows_of(values, placing))
    places = {
        (key[3:4], row.position, row.positions, row.offset)
        for key, row in ((key, r.queue_row(key, value)) for key, value in rows.as_dict().items() if key[:1] == b"q")
    }
    assert places == {
        (b"T", 2, 1, at[0]), (b"T", 3, 1, at[2]), (b"T", 4, 1, at[3]), (b"T", 5, 1, at[4]),
        (b"T", 0, 1, at[7]), (b"I", 0, 4, at[8]), (b"I", 4, 1, at[9]),
    }  # fmt: skip
    assert rows.get(r.key_key(key_hash("T", "p"), at[5])) is not None
    assert rows.get(r.key_key(key_hash("T", "r"), at[6])) is None
    later = DictRows()
    Dispatch(later, LOG, placing).take(portions(values[3:], index=3))  # made again behind a trim
    kept = {key: value for key, value in later.as_dict().items() if key[:1] == b"q"}
    assert kept == {key: value for key, value in rows.as_dict().items() if key in kept}
    assert len(kept) == 5


@pytest.mark.parametrize("position", [1, 4])
def test_a_queue_with_a_gap_or_a_double_is_refused(position):
    """With queue and offset."""
    values = made([("T", 7, 0), ("T", 7, 1), ("T", 7, 2), ("T", 7, position)])
    with pytest.raises(StoreDamaged, match=rf"at {values[3].position} has position {position} in queue 7 of 'T'.* 3;"):
        rows_of(values)


def test_records_that_a_reader_left_out_are_refused():
    """Their rows would be missing for good."""
    values = made([("T", 0, n) for n in range(9)])
    first, _second, third = portions(values, 3)
    dispatch = Dispatch(DictRows(), LOG, Placing())
    dispatch.take([first])
    with pytest.raises(StoreDamaged, match="records 3 to 5 of the log were not given out"):
        dispatch.take([third])


def test_a_damaged_record_is_refused():
    """Each byte of its body, another place, another size."""
    (good,) = made([("T", 0, 0)])
    assert stored_at(good.value, 0)[0] == 0
    flipped = bytearray(good.value)
    flipped[89] ^= 1
    for value, position, words in (
        (bytes(flipped), 0, "damaged: the CRC of its body"),
        (good.value, 100, "says it has .* at 0, and the log has"),
        (good.value + b"x", 0, "and the log has"),
    ):
        with pytest.raises(StoreDamaged, match=words):
            stored_at(value, position)


def test_rocksdb_has_the_same_rows(tmp_path):
    """In random portions, opened again in between."""
    values = values_of(unpack("upgraded-killed", tmp_path))
    given, whole = portions(values), rows_of(values)
    chance = random.Random(7)
    while given:
        rows = RocksRows(str(tmp_path / "rows"))
        count = chance.randint(1, 3)
        Dispatch(rows, LOG, Placing()).take(given[:count])
        given = given[count:]
        if not given:
            assert dict(rows.scan(b"", b"\xff")) == whole
        rows.close()
