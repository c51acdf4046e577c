"""
What a curve of points says: y = a * x^b, where it bends, and y = c0 + c1 * x where that is the law.

Knows: points.  Does not know: what they are of.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

# SPDX-License-Identifier: Apache-2.0

Points = Mapping[float, float]  # y by x
BEND = 0.3  # a change of the exponent that counts as a knee
FLOOR = 1e-9  # a y below it has no logarithm worth having


def logs(points: Points) -> list[tuple[float, float]]:
    return [(math.log(x), math.log(max(y, FLOOR))) for x, y in sorted(points.items())]


def exponent(points: Points) -> float:
    """The b of y = a * x^b by least squares on logarithms; 0 of fewer than two points."""
    if len(points) < 2:
        return 0.0
    found = statistics.linear_regression(*zip(*logs(points), strict=True))
    return found.slope


def segments(points: Points) -> list[float]:
    """The exponent between each point and the next."""
    return [(after - before) / (right - left) for (left, before), (right, after) in pairwise(logs(points))]


def line(points: Points) -> tuple[float, float]:
    """(c0, c1) of y = c0 + c1 * x, by least squares of relative errors, so that small points count as large ones do."""
    weights = [1 / max(y, FLOOR) ** 2 for y in points.values()]
    total = sum(weights)
    x_mean = sum(weight * x for weight, x in zip(weights, points, strict=True)) / total
    y_mean = sum(weight * y for weight, y in zip(weights, points.values(), strict=True)) / total
    across = sum(weight * (x - x_mean) ** 2 for weight, x in zip(weights, points, strict=True))
    both = sum(weight * (x - x_mean) * (y - y_mean) for weight, (x, y) in zip(weights, points.items(), strict=True))
    slope = both / across if across else 0.0
    return y_mean - slope * x_mean, slope


def knees(rounds: Sequence[Points]) -> list[float]:
    """
    Where the curve bends: each x at which the exponent changes by more than `BEND`, in the same direction in every
    round.  What only one round shows is the machine.
    """
    inner = sorted(rounds[0])[1:-1]
    bends = [[after - before for before, after in pairwise(segments(points))] for points in rounds]
    return [
        x
        for x, changes in zip(inner, zip(*bends, strict=True), strict=True)
        if min(changes) > BEND or max(changes) < -BEND
    ]
