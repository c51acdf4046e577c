"""Changes as bytes: Debezium's members, and each value as it was."""

import json
import math

import pytest
from envelope import Change, change_of, key_bytes, row_bytes, row_of, value_bytes

# SPDX-License-Identifier: Apache-2.0

SOURCE = {"connector": "sqlite", "table": "items", "capture": "1"}
VALUES = [None, 0, -(2**63), 0.1 + 0.2, 1e300, -0.0, math.inf, -math.inf, "", 'ä"\n', "\0", b"", bytes(range(256))]


def test_the_members_are_those_of_debezium():
    """`op`, `before`, `after`, `source`, `ts_ms`, and the key by itself; compact, for there are many."""
    change = Change(41, "u", 17, {"id": 7}, {"id": 7, "note": "old"}, {"id": 7, "note": "ä"}, SOURCE)
    assert key_bytes(change) == b'{"id":7}'
    assert value_bytes(change).startswith(b'{"op":"u","before":{')
    assert json.loads(value_bytes(change)) == {
        "op": "u",
        "before": {"id": 7, "note": "old"},
        "after": {"id": 7, "note": "ä"},
        "source": {**SOURCE, "snapshot": False, "sequence": 41},
        "ts_ms": 17,
    }
    assert json.loads(value_bytes(change._replace(op="r", before=None)))["source"]["snapshot"] is True


@pytest.mark.parametrize(("op", "before", "after"), [("r", 0, 1), ("c", 0, 1), ("u", 1, 1), ("d", 1, 0)])
def test_a_change_comes_back(op, before, after):
    """Each of its values is of the same type, to the last bit."""
    row = {f"column {number}": value for number, value in enumerate(VALUES)}
    change = Change(2**63, op, 17, {"id": b"\0", "more": 1.5}, row if before else None, row if after else None, SOURCE)
    again = change_of(key_bytes(change), value_bytes(change))
    assert again == change
    assert repr(again) == repr(change)
    assert repr(row_of(row_bytes(row))) == repr(row)


MEMBERS = {
    "op": "c",
    "before": None,
    "after": {"id": 1},
    "source": {"table": "t", "capture": "1", "snapshot": False, "sequence": 1},
    "ts_ms": 1,
}
OTHERS = [
    {"op": "x"},
    {"op": "d"},
    {"after": None},
    {"after": 7},
    {"after": {"id": {}}},
    {"source": None},
    {"source": {"snapshot": False, "sequence": 1}},
]


def test_other_records_are_refused():
    """By their content, and with nothing but `ValueError`."""
    key, value = b'{"id":1}', json.dumps(MEMBERS).encode()
    assert change_of(key, value).after == {"id": 1}
    wrong = [(key, b"text"), (key, b"[]"), (key, b"{}"), (None, value), (b"1", value)]
    wrong += [(key, json.dumps(MEMBERS | other).encode()) for other in OTHERS]
    for each in wrong:
        with pytest.raises(ValueError, match="not a change of a row"):
            change_of(*each)
