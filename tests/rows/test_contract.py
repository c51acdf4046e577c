"""Rows in memory, which lose what a disk would."""

from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


def test_dict_rows_lose_what_was_not_synced() -> None:
    """A crash keeps what was synced and a prefix of the writes after it, each whole."""
    rows = DictRows()
    rows.write([(b"a", b"1"), (b"b", b"1")])
    rows.sync()
    rows.write([(b"a", b"2"), (b"c", b"2")], [b"b"])
    rows.delete_range(b"a", b"b")
    assert rows.crash(0).as_dict() == {b"a": b"1", b"b": b"1"}
    assert rows.crash(1).as_dict() == {b"a": b"2", b"c": b"2"}
    assert rows.crash(2).as_dict() == {b"c": b"2"}
    assert rows.unsynced == 2
    assert rows.crash(0).unsynced == 0
