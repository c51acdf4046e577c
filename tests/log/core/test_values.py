"""JSON objects as values: what is kept, left out and refused."""

import pytest

from quire.log.core.values import Begin, Counts, Doomed, Segment, from_json, to_json
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


def test_unknown_members_are_kept():
    """And written behind the known ones; a member with its default is left out."""
    found = Doomed.parse({"ledger": 1, "later": {"a": [1]}, "why": "x", "since": 2})
    assert found.extra == {"later": {"a": [1]}}
    assert to_json(found) == '{"ledger":1,"why":"x","since":2,"later":{"a":[1]}}'
    assert to_json(Segment(1, 2, 3, 4, 5)) == '{"n":1,"ledger":2,"epoch":3,"first":4,"at":5}'


@pytest.mark.parametrize(
    "data", [None, [], "x", {}, {"n": 0, "index": 0}, {"n": "0", "index": 0, "at": 0}, {"n": True, "index": 0, "at": 0}]
)
def test_what_is_no_value(data):
    """Another kind of JSON, a missing member, one of another type."""
    with pytest.raises(LogDamaged, match="begin"):
        Begin.parse(data)


def test_formats():
    """A higher one is of a newer quire; none, or another object, is damage."""
    assert from_json(b'{"quire":"log","format":1}', "log")["format"] == 1
    with pytest.raises(UnknownFormat):
        from_json(b'{"quire":"log","format":2}', "log")
    for data in (b"{", b"[]", b'{"quire":"log"}', b'{"quire":"chunk","format":1}', b'{"quire":"log","format":0}'):
        with pytest.raises(LogDamaged):
            from_json(data, "log")


def test_a_segment_that_is_closed():
    """It ends after its records; its first stamp is not above its last."""
    segment = Segment(1, 2, 3, 40, 500)
    assert (segment.is_open, segment.end, segment.end_at) == (True, 40, 500)
    closed = segment.closed(Counts(10, 100, 2, 7), 9)
    assert (closed.is_open, closed.end, closed.end_at, closed.t) == (False, 50, 600, (7, 7))
