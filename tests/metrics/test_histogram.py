"""Buckets, quantiles, and what is recent."""

from hypothesis import given
from hypothesis import strategies as st

from quire.metrics.histogram import PARTS, ROLL_S, SIZE, Histogram, below, lower_end, quantiles, total

# SPDX-License-Identifier: Apache-2.0


def test_each_number_is_in_the_bucket_of_its_size() -> None:
    """Every bucket begins where the one before it ends; what is larger than all is in the last."""
    near_powers = [(1 << power) + more for power in range(3, 41) for more in (-1, 0, 1)]
    for number in (*range(3000), *near_powers):
        histogram = Histogram(scale=1)
        histogram.observe(number, 3)
        (bucket,) = (place for place, count in enumerate(histogram.buckets) if count)
        assert lower_end(bucket) <= number
        assert number < lower_end(bucket + 1) or bucket == SIZE - 1
        assert (histogram.count, histogram.sum) == (3, 3 * number)


def test_a_clock_that_goes_back_costs_nothing() -> None:
    """What seems to have taken less than no time is counted as none."""
    histogram = Histogram()
    histogram.observe(-0.5)
    assert histogram.buckets[0] == 1


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_is_right_to_an_eighth(values: list[float], share: float) -> None:
    """It is not below the value of that share, and above it by a bucket at most."""
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    ordered = sorted(values)
    wanted = next(value for place, value in enumerate(ordered, 1) if place >= share * len(ordered))
    (found,) = quantiles(histogram.buckets, [share])
    assert wanted <= found <= (wanted + 2e-6) * (1 + 1 / PARTS)


def test_nothing_observed_has_no_quantiles() -> None:
    """NaN, as Prometheus shows it."""
    assert all(found != found for found in quantiles(Histogram().buckets, [0.5, 1.0]))


def test_recent_is_what_came_in_the_last_minute_or_two() -> None:
    """By the clock of the one that asks; the sums since the start stay."""
    histogram = Histogram()
    assert sum(histogram.recent(0.0)) == 0
    histogram.observe(0.001)
    assert sum(histogram.recent(1.0)) == 1
    assert sum(histogram.recent(ROLL_S)) == 1
    histogram.observe(0.002, 5)
    assert sum(histogram.recent(ROLL_S + 1)) == 6
    assert sum(histogram.recent(2 * ROLL_S)) == 5
    assert sum(histogram.recent(3 * ROLL_S)) == 0
    assert histogram.count == 6


def test_counts_below_ends() -> None:
    """As Prometheus' own histograms have them, and of several as of one."""
    one, other = Histogram(), Histogram()
    one.observe(10e-6, 2)
    other.observe(100e-6)
    assert below(total([one.buckets, other.buckets]), [8e-6, 16e-6, 64e-6, 1.0]) == [0, 2, 2, 3]
