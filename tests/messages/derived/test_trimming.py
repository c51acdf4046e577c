"""Rows of trimmed records go in steps; those of what is left stay, also when a crash comes between."""

import random

import pytest

from quire.messages.core.queues import Placing
from quire.messages.derived import rows as r
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import Lookup
from quire.messages.derived.trimming import Trimming
from tests.messages.derived.stores import LOG, made, portions
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

VALUES = made([("T", n % 3, n // 3, {"properties": b"KEYS\x01k%d\x02" % (n % 5)}) for n in range(90)])


def dispatched():
    rows = DictRows()
    dispatch = Dispatch(rows, LOG, Placing())
    dispatch.take(portions(VALUES))
    rows.sync()
    return dispatch


def kept(found, begin):
    """What has to be left of rows, by kind."""
    return {
        "q": {key for key, value in found.items() if key[:1] == b"q" and r.queue_row(key, value).offset >= begin},
        "k": {key for key, value in found.items() if key[:1] == b"k" and r.key_row(key, value)[0] >= begin},
        "o": {key for key, value in found.items() if key[:1] == b"o" and r.entry_row(key, value).position >= begin},
    }


def of_kind(found, kind):
    return {key for key in found if key[:1] == kind.encode()}


@pytest.mark.parametrize("first", [1, 20, 23, 60, 89])
def test_what_is_below_goes(first):
    """
    Of queues and entries at once; of keys when a quarter of the positions is below.  The entry that straddles stays.
    """
    dispatch, steps = dispatched(), []
    whole, begin = dispatch.rows.as_dict(), VALUES[first].position
    trimming = Trimming(dispatch, begin, steps.append)
    while trimming.step():
        pass
    found = dispatch.rows.as_dict()
    expected = kept(whole, begin)
    straddles = r.entry_key(VALUES[first - first % 7].position)
    assert of_kind(found, "q") == expected["q"]
    assert of_kind(found, "o") == expected["o"] | {straddles}
    assert of_kind(found, "k") == (expected["k"] if first > 22 else of_kind(whole, "k"))
    assert (found.get(b"s") == r.LONG.pack(begin)) == (first > 22)
    assert set(steps) == {"trim.rows"}
    for queue in range(3):
        bounds = Lookup(dispatch.rows, begin).bounds("T", queue)
        assert bounds == Lookup(DictRows(whole), begin).bounds("T", queue)
        assert r.bounds_of(found[r.bounds_key("T", queue)]) == bounds
    more = made([("T", queue, 30) for queue in range(3)], first=VALUES[-1].position + len(VALUES[-1].value))
    dispatch.take(portions(more, index=90))
    assert Lookup(dispatch.rows, begin).bounds("T", 0).next == 31


def test_a_crash_between_two_steps():
    """What is left counts as gone where it should, and another trim takes it."""
    chance = random.Random(3)
    for _ in range(20):
        dispatch = dispatched()
        whole, begin = dispatch.rows.as_dict(), VALUES[chance.randrange(25, 90)].position
        trimming = Trimming(dispatch, begin)
        for _step in range(chance.randrange(1, 6)):
            trimming.step()
        left = dispatch.rows.crash(chance.randint(0, dispatch.rows.unsynced))
        for queue in range(3):
            assert Lookup(left, begin).bounds("T", queue) == Lookup(DictRows(whole), begin).bounds("T", queue)
        again = Trimming(Dispatch(left, LOG, Placing()), begin)
        while again.step():
            pass
        found, expected = left.as_dict(), kept(whole, begin)
        assert of_kind(found, "q") == expected["q"]
        assert of_kind(found, "k") == expected["k"]


def test_nothing_is_swept_twice():
    """A further trim sweeps keys when a quarter of what was left then is gone."""
    dispatch = dispatched()
    for first, swept in ((45, 45), (50, 45), (60, 60)):
        trimming = Trimming(dispatch, VALUES[first].position)
        while trimming.step():
            pass
        assert dispatch.rows.get(b"s") == r.LONG.pack(VALUES[swept].position)
