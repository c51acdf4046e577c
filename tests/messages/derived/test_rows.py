"""Keys and values of rows: their bytes, as drawn, and their order."""

import struct

import pytest

from quire.messages.derived import rows as r
from quire.messages.derived.rows import Bounds, Checkpoint, EntryRow, QueueRow
from quire.protocol.log_errors import UnknownFormat
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

LOG = "6f1c" * 8


def test_a_row_of_a_queue():
    """By topic, queue and position; a record's place, size, tags code, time and positions."""
    row = QueueRow(5, 1 << 40, 237, -3, 1_700_000_000_000, 4)
    key = r.queue_key("Ünd", 7, 5)
    assert key == b"q\0\4\xc3\x9cnd" + struct.pack(">iq", 7, 5)
    assert r.queue_value(*row[1:]) == struct.pack(">qiqqH", 1 << 40, 237, -3, 1_700_000_000_000, 4)
    assert r.queue_row(key, r.queue_value(*row[1:])) == row
    assert row.next == 9
    with pytest.raises(StoreDamaged, match="65536 positions"):
        r.queue_value(*row._replace(positions=1 << 16)[1:])


def test_rows_of_a_queue_are_in_order_and_in_its_range():
    """Ascending positions; no other queue, and no topic that begins alike."""
    keys = [r.queue_key("T", 1, position) for position in (0, 1, 255, 256, 1 << 40)]
    assert keys == sorted(keys)
    low, high = r.range_of(r.queue_prefix("T", 1))
    assert all(low <= key < high for key in keys)
    assert not any(low <= r.queue_key(*other, 0) < high for other in [("T", 2), ("T", 0), ("T\0", 1), ("Tx", 1)])


def test_the_bounds_of_a_queue():
    """By topic and queue."""
    key = r.bounds_key("T", 3)
    assert key == b"m\0\1T" + struct.pack(">i", 3)
    assert r.queue_of(key) == ("T", 3)
    assert r.bounds_value(Bounds(2, 9)) == struct.pack(">qq", 2, 9)
    assert r.bounds_of(r.bounds_value(Bounds(2, 9))) == Bounds(2, 9)


def test_a_row_of_a_key():
    """By hash, the newest record first."""
    key = r.key_key(77, 5)
    assert key == b"k" + struct.pack(">iq", 77, -6)
    assert r.key_row(key, r.key_value(123)) == (5, 123)
    keys = [r.key_key(77, offset) for offset in (1 << 50, 1 << 20, 256, 255, 1, 0)]
    assert keys == sorted(keys)


def test_a_row_of_an_entry():
    """By the place of its first record; where it is, and its records."""
    row = EntryRow(900, 3, 17, 40, 7)
    assert r.entry_key(900) == b"o" + struct.pack(">q", 900)
    assert r.entry_value(row) == struct.pack(">QQQI", 3, 17, 40, 7)
    assert r.entry_row(r.entry_key(900), r.entry_value(row)) == row


def test_the_checkpoint():
    """Format 1; an older one is none, a newer one is refused."""
    checkpoint = Checkpoint(LOG, 9, 1234, 0xDEADBEEF)
    value = r.checkpoint_value(checkpoint)
    assert value == b"\0\1" + bytes.fromhex(LOG) + struct.pack(">QqI", 9, 1234, 0xDEADBEEF)
    assert r.checkpoint_of(value) == checkpoint
    assert r.checkpoint_of(b"\0\0" + value[2:]) is None
    assert r.checkpoint_of(value[:-1]) is None
    with pytest.raises(UnknownFormat, match="format 2"):
        r.checkpoint_of(b"\0\2" + value[2:])


@pytest.mark.parametrize("prefix", [b"m", b"q\0\1T\xff\xff\xff\xff", b"k\xff"])
def test_a_range_has_all_that_begins_so(prefix):
    """Whatever follows, and nothing else; also where its last bytes are the highest."""
    low, high = r.range_of(prefix)
    assert low <= prefix < prefix + b"\xff" * 9 < high
    assert not high.startswith(prefix)
