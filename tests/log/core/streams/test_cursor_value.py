"""The value of a cursor: what upkeep reads of it, and that all else survives."""

import json
from dataclasses import replace

import pytest

from quire.log.core.streams.cursors import CursorValue
from quire.log.core.values import Doomed
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

VALUE = {
    "quire": "cursor",
    "format": 1,
    "name": "billing",
    "edit": "e",
    "ledger": 5,
    "mark": 9,
    "doomed": [{"ledger": 4, "why": "checkpoint", "since": 1}],
    "state": "open",
    "holder": "token",
    "acks": "AAE=",
    "later": {"a": 1},
}


def test_a_value_round_trips():
    """Its ledgers are named; members that are not known stay when another one changes."""
    value = CursorValue.decode(json.dumps(VALUE).encode())
    assert value.ledgers == [5, 4]
    assert value.doomed == (Doomed(4, "checkpoint", 1),)
    assert json.loads(value.encode()) == VALUE
    assert json.loads(replace(value, mark=12).encode()) == {**VALUE, "mark": 12}
    assert replace(value, ledger=None).ledgers == [4]


def test_what_is_none():
    """`LogDamaged`, and a newer format is refused."""
    for wrong in (b"x", b"{}", json.dumps({**VALUE, "mark": "9"}).encode()):
        with pytest.raises(LogDamaged):
            CursorValue.decode(wrong)
    with pytest.raises(UnknownFormat):
        CursorValue.decode(json.dumps({**VALUE, "format": 2}).encode())
