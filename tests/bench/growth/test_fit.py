"""What a curve of points says: its exponent, its line, its knees."""

import pytest

from bench.growth.curves import BEND, exponent, knees, line, segments

# SPDX-License-Identifier: Apache-2.0

XS = (10.0, 100.0, 1000.0, 10_000.0)


@pytest.mark.parametrize("wanted", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(wanted: float) -> None:
    """Whatever stands before it, and between any two points."""
    points = {x: 7 * x**wanted for x in XS}
    assert exponent(points) == pytest.approx(wanted)
    assert segments(points) == pytest.approx([wanted] * 3)


def test_one_point_has_no_exponent() -> None:
    """Nor does a figure that is nothing at all end the measurement."""
    assert exponent({10.0: 3.0}) == 0
    assert exponent(dict.fromkeys(XS, 0.0)) == 0


def test_a_line_is_found_with_small_points_beside_large_ones() -> None:
    """What is constant counts as much as what grows, though it is a millionth of the largest point."""
    constant, slope = line({x: 5 + 0.25 * x for x in (16.0, 1024.0, 65_536.0, 4_194_304.0)})
    assert (constant, slope) == pytest.approx((5, 0.25))


def test_a_knee_is_where_every_round_bends_the_same_way() -> None:
    """Flat and then linear: at the point where that begins, and nowhere else."""
    bent = {10.0: 1.0, 100.0: 1.0, 1000.0: 10.0, 10_000.0: 100.0}
    assert knees([bent, bent]) == [100.0]
    assert knees([bent, {x: 100 / y for x, y in bent.items()}]) == []
    assert knees([dict.fromkeys(XS, 1.0), bent]) == []


def test_a_gentle_bend_is_none() -> None:
    """A change of the exponent below the bound, or a curve of two points."""
    gentle = {10.0: 1.0, 100.0: 1.0, 1000.0: 10 ** (BEND * 0.9)}
    assert knees([gentle]) == []
    assert knees([{10.0: 1.0, 100.0: 50.0}]) == []
