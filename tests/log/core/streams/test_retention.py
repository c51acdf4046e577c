"""What may go by age and size, never above a hold; what a backlog above its quota is."""

from dataclasses import replace

import pytest

from quire.log.core.streams.retention import Backlog, Limits, Verdict, has_quota, over_quota, verdict
from quire.log.core.values import Segment

# SPDX-License-Identifier: Apache-2.0

NOW, HOUR = 1_700_000_000_000, 3_600_000
AGES = {"old": (4, 3, 2, 1), "young": (0.4, 0.3, 0.2, 0.1)}  # hours since the last record of each segment
SIZES = {"large": 100, "small": 10}  # bytes of each
# The log has four closed segments of ten records.  Where it begins then, without a cursor and with one; -: as before.
TABLE = """
    time size   age   bytes   no cursor  at 15  at 0
    -1   -1     young small   -          -      -
    -1   -1     young large   -          -      -
    -1   -1     old   small   -          -      -
    -1   -1     old   large   -          -      -
    -1   0      young small   30         15     -
    -1   0      young large   30         15     -
    -1   0      old   small   30         15     -
    -1   0      old   large   30         15     -
    -1   250    young small   -          -      -
    -1   250    young large   20         15     -
    -1   250    old   small   -          -      -
    -1   250    old   large   20         15     -
    0    -1     young small   30         15     -
    0    -1     young large   30         15     -
    0    -1     old   small   30         15     -
    0    -1     old   large   30         15     -
    0    0      young small   30         15     -
    0    0      young large   30         15     -
    0    0      old   small   30         15     -
    0    0      old   large   30         15     -
    0    250    young small   30         15     -
    0    250    young large   30         15     -
    0    250    old   small   30         15     -
    0    250    old   large   30         15     -
    3.5  -1     young small   -          -      -
    3.5  -1     young large   -          -      -
    3.5  -1     old   small   10         10     -
    3.5  -1     old   large   10         10     -
    3.5  0      young small   30         15     -
    3.5  0      young large   30         15     -
    3.5  0      old   small   30         15     -
    3.5  0      old   large   30         15     -
    3.5  250    young small   -          -      -
    3.5  250    young large   20         15     -
    3.5  250    old   small   10         10     -
    3.5  250    old   large   20         15     -
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
CASES = [(*row[:4], hold, row[4 + number]) for row in ROWS for number, hold in enumerate((None, 15, 0))]


def limits(hours, size):
    return Limits(int(float(hours) * HOUR) if float(hours) > 0 else int(hours), int(size))


def segments(ages=AGES["old"], size=100, is_open=False):
    """Of ten records each; the last may be open."""
    found = [
        Segment(n, 100 + n, 1, n * 10, n * size, 10, size, 3, (0, NOW - int(hours * HOUR)))
        for n, hours in enumerate(ages)
    ]
    return [*found, Segment(len(ages), 99, 1, len(ages) * 10, len(ages) * size)] if is_open else found


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_time_limit_size_limit_age_size_and_cursor(case):
    """108 cases, written down."""
    hours, most, age, size, hold, begin = case
    given = segments(AGES[age], SIZES[size])
    found = verdict(given, given[-1].n, given[-1].end_at, limits(hours, most), NOW, hold)
    assert str(found.begin if found else "-") == begin


def test_without_a_time_nothing_goes_by_age():
    """By size it does, and with no retention at all."""
    given = segments()
    for wanted, most in ((None, (3.5, -1)), (20, (3.5, 250)), (30, (0, -1))):
        found = verdict(given, 3, 400, limits(*most), None)
        assert (found and found.begin) == wanted


def test_the_first_that_stays_ends_it():
    """One behind it that is old stays, too: what is left is one piece."""
    given = segments((1, 9, 9, 9))
    assert verdict(given, 3, 400, limits(3.5, -1), NOW) is None


def test_the_last_segment_stays():
    """Open or closed; before an open one all closed ones may go."""
    for is_open, begin in ((False, 30), (True, 40)):
        given = segments(is_open=is_open)
        assert verdict(given, given[-1].n, 400, limits(0, 0), NOW) == Verdict(begin, "age")
    assert verdict([], 0, 0, limits(0, 0), NOW) is None
    assert verdict(segments(is_open=True)[-1:], 4, 400, limits(0, 0), NOW) is None


def test_why():
    """Size is said before age."""
    given = segments()
    assert verdict(given, 3, 400, limits(3.5, -1), NOW) == (10, "age")
    assert verdict(given, 3, 400, limits(-1, 350), NOW) == (10, "size")
    assert verdict(given, 3, 400, limits(1.5, 350), NOW) == (30, "age")
    assert verdict(given, 3, 400, limits(-1, 0), NOW) == (30, "size")


def test_exactly_at_a_limit_nothing_goes():
    """More than that has to be there, or older."""
    given = segments()
    assert verdict(given, 3, 400, limits(-1, 400), NOW) is None
    assert verdict(given, 3, 400, limits(-1, 399), NOW) == (10, "size")
    assert verdict(given, 3, 400, limits(4, -1), NOW) is None
    assert verdict(given, 3, 400, limits(4, -1), NOW + 1) == (10, "age")


def test_limits_of_settings():
    """-1 is none, as is a setting of an older version that has none."""
    assert not Limits.of({}).any
    assert Limits.of({"retention_ms": 5}) == (5, -1)
    assert Limits.of({"retention_bytes": 0}).any


def test_quota():
    """By bytes and by time, each above its limit only."""
    for settings, backlog, over in (
        ({}, Backlog(1, 1 << 60, 1 << 60), False),
        ({"quota_bytes": 10}, Backlog(1, 10, 9), False),
        ({"quota_bytes": 10}, Backlog(1, 11, 0), True),
        ({"quota_ms": 10}, Backlog(1, 99, 10), False),
        ({"quota_ms": 10}, Backlog(1, 0, 11), True),
        ({"quota_bytes": 0, "quota_ms": -1}, Backlog(1, 1, 0), True),
    ):
        assert bool(over_quota(settings, backlog)) is over
        assert has_quota(settings) is bool(settings)
    assert "11 bytes" in over_quota({"quota_bytes": 10}, Backlog(1, 11, 0))


def test_what_was_given_up_has_no_size():
    """Neither when it was closed nor when it was open and counts as many bytes as anybody can have been told of."""
    given = segments()
    lost = [replace(given[1], lost=True), replace(given[2], at=200, bytes=1 << 40, lost=True)]
    lost.append(replace(given[3], at=200 + (1 << 40)))
    for most, begin in ((200, None), (199, 10), (100, 10), (99, 30)):
        found = verdict([given[0], *lost], 3, 200, limits(-1, most), NOW)
        assert (found and found.begin) == begin
