"""Large batches cut where their parts are: every piece is right, whatever the sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.core import batch as columns
from quire.log.core.batch import Records, encode_body
from quire.log.core.pieces import Cutter
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


def cut(body, records, part_bytes):
    """The slices of all parts, by part."""
    cutter = Cutter(records, len(body))
    found = []
    for at in range(0, len(body), part_bytes):
        assert not cutter.is_done
        found.append(cutter.feed(body[at : at + part_bytes]))
    assert cutter.is_done
    return found


def fed(cutter, body, sizes):
    """Feeds a body in parts of these sizes."""
    at = 0
    for size in sizes:
        cutter.feed(body[at : at + size])
        at += size


@given(
    st.lists(st.tuples(st.binary(max_size=70), st.none() | st.binary(max_size=9)), min_size=1, max_size=20),
    st.booleans(),
    st.integers(1, 90),
)
def test_pieces_make_the_values(rows, keyed, part_bytes):
    """In order, each record whole, no piece larger than a part, none in two parts, none empty but of an empty value."""
    values = [value for value, _ in rows]
    body = encode_body(Records(values, [key for _, key in rows] if keyed else None))
    found = cut(body, len(values), part_bytes)
    slices = [each for part in found for each in part]
    assert [each.record for each in slices] == sorted(each.record for each in slices)
    for number, value in enumerate(values):
        own = [each for each in slices if each.record == number]
        assert [(each.number, each.of) for each in own] == [(place, len(own)) for place in range(len(own))]
        assert b"".join(each.data for each in own) == value
        assert all(each.data for each in own) or value == b""
        assert all(len(each.data) <= part_bytes for each in own)


BODY = encode_body(Records([b"one", b"two" * 20], [b"k", None]))


def test_what_contradicts_the_page():
    """Parts of other sizes, columns that do not fit, too few records: damage; a newer column: `UnknownFormat`."""
    for records, body, parts in (
        (2, BODY, (20, 19)),
        (2, BODY, (0,)),
        (2, BODY + b"x", (20,) * 9),
        (3, BODY, (200,)),
        (1, BODY, (200,)),
        (40, BODY, (200,)),
        (2, BODY[:1] + bytes((columns.VALUES,)) + BODY[2:], (200,)),
        (2, BODY[:6] + bytes((columns.SKIPS,)) + BODY[7:], (200,)),
    ):
        with pytest.raises(LogDamaged):
            fed(Cutter(records, len(body)), body, parts)
    with pytest.raises(LogDamaged):
        Cutter(0, 10)
    with pytest.raises(LogDamaged):
        Cutter(2, len(BODY) - 1).feed(BODY)
    with pytest.raises(UnknownFormat):
        Cutter(2, len(BODY)).feed(BODY[:1] + b"\x90" + BODY[2:])


def test_no_flipped_byte_gives_an_error_of_its_own():
    """Damage is told as such, or the pieces have the sizes that they say."""
    for place in range(len(BODY)):
        damaged = BODY[:place] + bytes((BODY[place] ^ 0x41,)) + BODY[place + 1 :]
        try:
            found = cut(damaged, 2, 25)
        except (LogDamaged, UnknownFormat):
            continue
        assert {each.record for part in found for each in part} == {0, 1}
