"""What may be said about pairs of figures: medians, intervals, floors."""

from hypothesis import given
from hypothesis import strategies as st

from bench.ratios import Comparison, interval

FIGURES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=9)


def test_the_median_is_of_ratios_not_a_ratio_of_medians() -> None:
    """Each pair counts once, however fast the machine was just then."""
    found = Comparison("x", [10, 200, 30], [20, 100, 10], goal=2.0)
    assert found.ratios == [0.5, 2.0, 3.0]
    assert found.median == 2.0
    assert found.passed


def test_a_floor_is_reached_and_a_ceiling_kept() -> None:
    """Both bounds include their own value."""
    assert Comparison("x", [45], [100], goal=0.45).passed
    assert not Comparison("x", [44], [100], goal=0.45).passed
    assert Comparison("x", [2], [1], goal=2.0, at_most=True).passed
    assert not Comparison("x", [2.1], [1], goal=2.0, at_most=True).passed


@given(FIGURES)
def test_the_interval_lies_within_the_values_and_around_the_median(values: list[float]) -> None:
    """And the same values always give the same interval."""
    low, high = interval(values, rounds=200)
    assert min(values) <= low <= high <= max(values)
    assert low <= sorted(values)[len(values) // 2]
    assert interval(values, rounds=200) == (low, high)


def test_equal_pairs_leave_no_doubt() -> None:
    """Without scatter the interval is one point; with it, it opens."""
    assert interval([3.0] * 5) == (3.0, 3.0)
    low, high = interval([1.0, 2.0, 3.0, 4.0, 100.0])
    assert low < 3.0 < high


def test_json_carries_every_figure() -> None:
    """Pairs, median, interval, bound, verdict."""
    report = Comparison("x", [1.0, 2.0], [2.0, 2.0], goal=0.5, unit="ms").as_json()
    assert report["ours"] == [1.0, 2.0]
    assert report["median"] == 0.75
    assert report["passed"] is True
    assert {"low", "high", "goal", "at_most", "unit", "name", "theirs"} <= set(report)


def test_a_difference_within_the_noise_is_no_miss_where_the_interval_judges() -> None:
    """A row by interval is missed only when the whole interval is on the wrong side."""
    scattered, worse = [0.8, 0.9, 0.95, 1.1, 1.2], [0.8, 0.85, 0.9, 0.92, 0.95]
    assert not Comparison("x", scattered, [1.0] * 5, goal=1.0).passed
    assert Comparison("x", scattered, [1.0] * 5, goal=1.0, by_interval=True).passed
    assert not Comparison("x", worse, [1.0] * 5, goal=1.0, by_interval=True).passed
    assert Comparison(
        "x", [1 / ratio for ratio in scattered], [1.0] * 5, goal=1.0, at_most=True, by_interval=True
    ).passed
    assert not Comparison(
        "x", [1 / ratio for ratio in worse], [1.0] * 5, goal=1.0, at_most=True, by_interval=True
    ).passed
