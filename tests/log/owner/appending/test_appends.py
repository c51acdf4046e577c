"""What a user appends: limits, entries, what may share one."""

from collections import deque

import pytest

from quire.log.core.batch import ADVANCE_MAX, Records
from quire.log.owner.appending.appends import (
    RECORDS_PER_ENTRY_MAX,
    VALUE_BYTES_MAX,
    Batch,
    Call,
    alike,
    check,
    checked_skips,
    cut,
    drop_failed,
    gather,
    joined,
    part,
)
from quire.log.owner.appending.encoder import Placed
from quire.protocol.log_errors import AppendUnknown, LogFenced, NotOwner

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("records", "error", "said"),
    [
        (lambda: Records(["text"]), TypeError, "bytes"),
        (lambda: Records([bytes(VALUE_BYTES_MAX + 1)]), ValueError, "larger"),
        (lambda: Records([b""], keys=["k"]), TypeError, "key"),
        (lambda: Records([b""], keys=[bytes(65_537)]), ValueError, "key"),
        (lambda: Records([b""], keys=[]), ValueError, "1 values"),
        (lambda: Records([b""], times=[0.5]), TypeError, "float"),
        (lambda: Records([b""], headers=[[("n", "v")]]), TypeError, "header"),
        (lambda: Records([b""], headers=[{"n": b"v"}]), TypeError, "items"),
        (lambda: Records([b""], headers=[[("n" * 256, b"")]]), ValueError, "name"),
        (lambda: Records([b""], headers=[[("n", bytes(65_536))]]), ValueError, "headers"),
    ],
)
def test_limits(records, error, said):
    """Each is refused before anything is sent, and the error says what is too large or of another kind."""
    with pytest.raises(error, match=said):
        check(records())


@pytest.mark.parametrize("time", [1 << 63, -(1 << 63), 1 << 70])
def test_a_time_has_64_bits(time):
    """And one of them says that there is none."""
    with pytest.raises(ValueError, match="more than 64 bits"):
        check(Records([b"x"], times=[time]))


def test_what_may_be_appended():
    """Its bytes are counted; keys, times and headers may be missing one by one."""
    assert check(Records([b"ab", b""], [None, b"k"], [None, 7], [(), (("n", b"v"),)])) == 3 + 8


def test_headers_that_can_be_read_once():
    """Are stored, and are a record's own: what it takes of a window stays what it was."""
    given = [("n", b"v")]
    records = Records([b"", b""], headers=[iter(given), given])
    assert check(records) == 2 * 8
    given.append(("more", b""))
    assert records.headers == [(("n", b"v"),)] * 2


def test_a_long_list_is_cut():
    """By bytes, of keys and headers as well, and by count; a large value stays whole; all columns go with records."""
    values = [b"%04d" % number for number in range(100)]
    keys = [b"%d" % number for number in range(100)]
    pieces = cut(Records(values, keys), 30)
    assert [len(piece.values) for piece in pieces] == [6, *[5] * 18, 4]
    assert [key for piece in pieces for key in piece.keys] == keys
    assert [len(piece.values) for piece in cut(Records([b"x" * 50] * 2), 30)] == [1, 1]
    headers = [[("name", b"x" * 20)]] * 4
    assert [len(piece.values) for piece in cut(Records([b""] * 4, None, None, headers), 70)] == [2, 2]
    many = Records([b""] * (RECORDS_PER_ENTRY_MAX + 1))
    assert [len(piece.values) for piece in cut(many, 1 << 20)] == [RECORDS_PER_ENTRY_MAX, 1]
    assert cut(many, 1 << 20)[0].keys is None


def test_appends_that_share_an_entry():
    """Those with the same columns, in their order."""
    one, two = Records([b"a"], [b"k"]), Records([b"b", b"c"], [None, b"l"])
    assert alike(one, two)
    assert not alike(one, Records([b"d"]))
    both = joined([one, two])
    assert (both.values, both.keys, both.times) == ([b"a", b"b", b"c"], [b"k", None, b"l"], None)
    assert both.skips is None
    one.skips = [5]
    assert joined([one, two]).skips == [5, 0, 0]
    assert joined([one]) is one
    assert joined([]).values == []


@pytest.mark.parametrize(
    ("stored", "error", "said"),
    [
        (0, LogFenced, LogFenced),
        (1, LogFenced, AppendUnknown),
        (1, AppendUnknown, AppendUnknown),
        (1, ValueError, AppendUnknown),
        (0, ValueError, ValueError),
    ],
)
def test_a_call_does_not_deny_what_is_in_the_log(stored, error, said):
    """When the first of its entries are stored and a later one is not, the error is not that nothing is."""
    call = Call(2, False, 0.0)
    for number in range(stored):
        batch = Batch(Records([b"v"]), [(call, 1)])
        batch.placed = Placed(number, [number], number + 1)
        batch.acknowledged()
    failures = []
    call.done.addErrback(failures.append)
    call.fail(error("no"))
    call.fail(NotOwner("again"))
    assert [type(each.value) for each in failures] == [said]
    assert ("the first 1 of 2" in failures[0].getErrorMessage()) is (stored == 1 and error is not AppendUnknown)


def test_the_next_entry_of_what_was_gathered():
    """As much as one entry takes, with the same columns; what belongs to a call that has failed is left out."""
    calls = [Call(1, True, 0.0) for _ in range(5)]
    waiting = deque(zip([Records([b"x" * 10]) for _ in range(4)] + [Records([b"y"], [b"k"])], calls, strict=True))
    calls[1].done.errback(ValueError("too large"))
    calls[1].done.addErrback(lambda failure: failure.trap(ValueError))
    ((batch,), dropped) = gather(waiting, 25, 1)
    assert (batch.calls, batch.records.values) == ([(calls[0], 1), (calls[2], 1)], [b"x" * 10] * 2)
    assert [records.size for records in dropped] == [10]
    batches, dropped = gather(waiting, 1000, 10)
    assert [batch.calls for batch in batches] == [[(calls[3], 1)], [(calls[4], 1)]]
    assert batches[1].records.keys == [b"k"]
    assert gather(waiting, 0, 10) == (dropped, []) == ([], [])


def test_skips_stay_with_their_records():
    """Where a long list is cut, whose pieces count them; and where some calls of an entry have failed."""
    values, skips = [b"%02d" % number for number in range(6)], [0, 3, 0, 500, 0, 1]
    pieces = cut(Records(values, skips=skips), 10)
    assert [piece.skips for piece in pieces] == [[0, 3, 0], [500], [0, 1]]
    assert [value for piece in pieces for value in piece.values] == values
    assert part(Records(values), 1, 3).skips is None
    calls = [Call(2, False, 0.0) for _ in range(3)]
    batch = Batch(Records(values, skips=skips), [(call, 2) for call in calls])
    calls[1].done.addErrback(lambda _failure: None).errback(LogFenced("gone"))
    assert [each.skips for each in drop_failed(batch)] == [[0, 500]]
    assert batch.records.skips == [0, 3, 0, 1]


@pytest.mark.parametrize(
    ("skips", "error", "said"),
    [
        ([1], ValueError, "there are 2 values, and 1 skips"),
        ([0, -1], ValueError, "a skip of -1 bytes"),
        ([0, ADVANCE_MAX], ValueError, "both have at most 4294967295 bytes together"),
        ([0, 1.5], TypeError, "float"),
    ],
)
def test_skips_that_can_not_be(skips, error, said):
    """Each is refused by its number; the largest one that fits is taken."""
    with pytest.raises(error, match=said):
        checked_skips(skips, [b"", b"x"])
    assert checked_skips([0, ADVANCE_MAX - 1], [b"", b"x"]) == [0, ADVANCE_MAX - 1]
    assert checked_skips(None, [b""]) is None
