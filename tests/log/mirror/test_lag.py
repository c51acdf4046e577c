"""How far a copy is behind, by looks at the end of the log."""

from quire.log.mirror.lag import LOOKS_MAX, Lag

# SPDX-License-Identifier: Apache-2.0


def test_a_copy_is_as_old_as_the_last_end_that_it_has_reached():
    """It ages while nothing is copied, and while the log can't be looked at; each look that is reached makes it new."""
    lag = Lag(100.0, 5)
    assert (lag.records, lag.seconds(100.0)) == (0, 0.0)
    lag.looked(101.0, 5)
    assert lag.seconds(101.5) == 0.5
    lag.looked(102.0, 8)
    lag.looked(103.0, 9)
    assert (lag.records, lag.seconds(104.0)) == (4, 3.0)
    lag.copied(8)
    assert (lag.records, lag.seconds(104.0)) == (1, 2.0)
    lag.copied(12)
    assert (lag.records, lag.seconds(104.0), lag.source_end) == (0, 1.0, 12)
    lag.looked(105.0, 11)  # a look that came late
    assert (lag.records, lag.seconds(105.0)) == (0, 0.0)


def test_looks_that_are_not_reached_are_bounded():
    """Without the oldest the copy looks older than it is, never newer."""
    lag = Lag(0.0, 0)
    for number in range(1, LOOKS_MAX + 10):
        lag.looked(float(number), number)
    lag.copied(5)
    assert lag.seconds(float(LOOKS_MAX + 10)) == LOOKS_MAX + 10
    lag.copied(LOOKS_MAX)
    assert lag.seconds(float(LOOKS_MAX + 10)) == 10
