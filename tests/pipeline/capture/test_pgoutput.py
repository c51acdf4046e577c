"""The messages of `pgoutput`: rows of transactions, in order, with the values that their texts mean."""

import json
import math
import struct

import pytest
from pgoutput import transactions, value_of

# SPDX-License-Identifier: Apache-2.0

TABLE, OTHER = 16_385, 16_400
RELATION = b"R" + struct.pack(">I", TABLE) + b"public\0items\0f" + struct.pack(">H", 3)
RELATION += b"".join(
    b"\1" + name + b"\0" + struct.pack(">Ii", number, -1) for name, number in ((b"id", 20), (b"note", 25), (b"raw", 17))
)


def begun(xid=7):
    return b"B" + struct.pack(">QqI", 100, 0, xid)


def ended(end, seconds=0):
    return b"C\0" + struct.pack(">QQq", end - 8, end, seconds * 1_000_000)


def row(*values):
    """A tuple of texts; None, and `...` for a large value that is not sent again."""
    kinds = {None: b"n", ...: b"u"}
    parts = [
        kinds[value] if value in kinds else b"t" + struct.pack(">I", len(value.encode())) + value.encode()
        for value in values
    ]
    return struct.pack(">H", len(values)) + b"".join(parts)


def changed(kind, *parts, table=TABLE):
    """A message of rows: each part is a letter and its row."""
    return kind + struct.pack(">I", table) + b"".join(letter + values for letter, values in parts)


def told(*messages):
    """What transactions say."""
    return list(transactions(messages, TABLE, "capture_x"))


def test_rows_of_transactions():
    """Each says end, time, number, and rows with what was before; what another table has is passed over."""
    found = told(
        begun(),
        RELATION,
        changed(b"I", (b"N", row("1", "ä", "\\x00ff"))),
        changed(b"I", (b"N", row("9", None, None)), table=OTHER),
        changed(b"U", (b"O", row("1", "ä", "\\x00ff")), (b"N", row("1", None, ...))),
        ended(200, 1),
        begun(8),
        changed(b"D", (b"O", row("1", None, "\\x00ff"))),
        b"T" + struct.pack(">IBII", 2, 0, OTHER, TABLE),
        b"T" + struct.pack(">IBI", 1, 0, OTHER),
        ended(300),
    )
    first = {"id": 1, "note": "ä", "raw": b"\0\xff"}
    second = {**first, "note": None}
    assert [(each.end, each.ts_ms, each.xid) for each in found] == [
        (200, 946_684_801_000, 7),
        (300, 946_684_800_000, 8),
    ]
    assert [each.rows for each in found] == [
        [("c", None, first), ("u", first, second)],
        [("d", second, None), ("t", None, None)],
    ]


def test_rows_of_the_snapshot():
    """They are messages with the name of the slot; others are passed over."""
    content = json.dumps([["id", 20, "1"], ["note", 25, None]]).encode()
    messages = [
        b"M\1" + struct.pack(">Q", 50) + name + b"\0" + struct.pack(">I", len(content)) + content
        for name in (b"capture_x", b"other")
    ]
    (found,) = told(begun(), *messages, ended(200))
    assert found.rows == [("r", None, {"id": 1, "note": None})]


@pytest.mark.parametrize(
    "parts", [((b"K", row("1", None, None)), (b"N", row("2", "", ""))), ((b"N", row("1", "", "")),)]
)
def test_an_update_without_its_old_row_is_refused(parts):
    """The replica identity of the table is not FULL any more."""
    with pytest.raises(ValueError, match="has to be FULL"):
        told(begun(), RELATION, changed(b"U", *parts))


def test_values():
    """Booleans, bytes, whole and floating numbers; all else as its text."""
    assert [value_of(16, "t"), value_of(16, "f"), value_of(17, "\\x"), value_of(23, "-1")] == [True, False, b"", -1]
    assert [value_of(701, "-Infinity"), value_of(700, "0.1"), value_of(1700, "0.10"), value_of(25, None)] == [
        -math.inf,
        0.1,
        "0.10",
        None,
    ]
