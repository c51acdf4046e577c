"""What `before_append` makes of appends that share an entry."""

import pytest
from twisted.internet.task import Clock

from quire.log.core.batch import Records
from quire.log.core.counters import LogCounters
from quire.log.core.values import Segment
from quire.log.owner.appending.appends import Batch, Call
from quire.log.owner.appending.encoder import Encoder, Prepared
from quire.log.owner.appending.sending import SLOW_S, prepare, timed
from quire.protocol.errors import TooManyRequests
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0


def made(*values, keys=None):
    """An entry of several appends of one record, and what encodes it behind 10 records of 100 bytes."""
    encoder = Encoder(Segment(1, 1, 1, 10, 100), 5, 1 << 20, "none")
    return Batch(Records(list(values), keys), [(Call(1, True, 0.0), 1) for _ in values]), encoder


def test_the_hook_sees_the_whole_entry_once():
    """Where its first record will be, its stamp, never below the one before; the calls stay as they are."""
    seen = []

    def hook(index, at, stamp, values):
        seen.append((index, at, stamp, values))
        return [value * 2 for value in values]

    batch, encoder = made(b"a", b"b", keys=[b"k", None])
    stored, refused = prepare(hook, batch, encoder, 3)
    assert (stored.values, stored.keys, stored.skips, refused) == ([b"aa", b"bb"], [b"k", None], None, [])
    assert seen == [(10, 100, 5, [b"a", b"b"])]
    assert batch.records.values == [b"a", b"b"]


def test_what_it_raises_fails_that_append_only():
    """The others of the entry are asked about one by one, each where it will be without those that failed."""
    seen = []

    def hook(index, at, _stamp, values):
        seen.append((index, at, values))
        if b"bad" in values:
            raise ValueError("bad")
        return Prepared([value + b"!" for value in values], [7] * len(values)) if values == [b"c"] else values

    batch, encoder = made(b"a", b"bad", b"c", b"d", keys=[b"1", b"2", b"3", None])
    calls = [call for call, _ in batch.calls]
    stored, refused = prepare(hook, batch, encoder, 9)
    assert (stored.values, stored.keys, stored.skips) == ([b"a", b"c!", b"d"], [b"1", b"3", None], [0, 7, 0])
    assert seen[1:] == [(10, 100, [b"a"]), (11, 101, [b"bad"]), (11, 101, [b"c"]), (12, 110, [b"d"])]
    assert [(each.batch.calls[0][0], str(each.error)) for each in refused] == [(calls[1], "bad")]
    assert [call for call, _ in batch.calls] == [calls[0], *calls[2:]]
    assert batch.records.values == [b"a", b"c", b"d"]


def test_an_entry_of_which_nothing_is_left():
    """All are refused: the batch is empty, whether it was of one append or of several."""
    for values in ((b"a",), (b"a", b"b")):
        batch, encoder = made(*values)
        for wrong in (lambda *_: [], lambda *_: ["text"] * 2, lambda *_: Prepared([b""] * 2, [1]), lambda *_: 1 // 0):
            batch, encoder = made(*values)
            stored, refused = prepare(wrong, batch, encoder, 0)
            assert not stored.values
            assert not batch.calls
            assert [each.batch.records.values for each in refused] == [[value] for value in values]


def test_a_hook_that_refuses_as_a_full_window_does():
    """Is no full window: who waits for room would append the same again for ever, an empty entry each time."""

    def hook(*_asked):
        raise TooManyRequests("not so fast")

    batch, encoder = made(b"a", b"b")
    errors = [each.error for each in prepare(hook, batch, encoder, 0)[1]]
    assert [type(error) for error in errors] == [LogError] * 2
    assert "TooManyRequests('not so fast')" in str(errors[0])


def test_slow_calls_are_counted():
    """Those above the limit, also one that raises; what the hook gives and is given is as without."""
    clock, counters = Clock(), LogCounters()

    def hook(index, at, stamp, values):
        clock.advance(index / 100)
        if at:
            raise ValueError("no")
        return [b"%d" % stamp, *values]

    call = timed(hook, clock, counters)
    for hundredths in (0, 5, 9):
        assert call(hundredths, 0, 7, [b"x"]) == [b"7", b"x"]
    assert counters.hook_slow == 0
    call(SLOW_S * 100 + 1, 0, 7, [b"x"])
    with pytest.raises(ValueError, match="no"):
        call(50, 1, 7, [b"x"])
    assert counters.hook_slow == 2


@pytest.mark.parametrize("skips", [[-1, 0], [1 << 32, 0]])
def test_skips_of_a_hook_that_can_not_be(skips):
    """The appends fail that it was asked about, by a text that names the skip."""
    batch, encoder = made(b"a", b"b")

    def hook(_index, _at, _stamp, values):
        return Prepared(values, skips[: len(values)])

    _stored, refused = prepare(hook, batch, encoder, 9)
    assert f"a skip of {skips[0]} bytes before a value of 1" in str(refused[0].error)
