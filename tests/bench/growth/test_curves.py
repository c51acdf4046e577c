"""The curves of growth: their laws and alarms, and that each can be measured."""

import json

import pytest

from bench.growth import __main__ as growth
from bench.growth.__main__ import VERBS
from bench.growth.curves import CURVES, Curve, Law, flat, kept_to, last, slope, steepest_fall

# SPDX-License-Identifier: Apache-2.0


def test_every_curve_can_be_measured_and_judged() -> None:
    """Names are unique, verbs are there, laws are of figures of the curve, points grow."""
    assert len({curve.name for curve in CURVES}) == len(CURVES)
    for curve in CURVES:
        assert curve.verb in VERBS
        assert curve.laws
        assert {law.figure for law in curve.laws} <= set(curve.figures)
        for points in (curve.points, curve.quick):
            assert list(points) == sorted(set(points))
            assert len(points) >= 2


@pytest.mark.parametrize(
    ("law", "points", "verdict"),
    [
        (flat("a"), {1: 5, 10: 5, 100: 5}, "met"),
        (flat("a"), {1: 5, 10: 5 * 10**0.07}, "not met"),
        (flat("a"), {1: 5, 10: 10}, "**alarm**"),
        (flat("a"), {1: 10, 10: 5}, "met"),
        (slope("a", "bytes", 400, 800, 1e6), {1e3: 60.3, 1e5: 90.0}, "met"),
        (slope("a", "bytes", 400, 800, 1e6), {1e3: 60.6, 1e5: 120.0}, "not met"),
        (last("a", "bytes", 4.3, 12), {1: 100, 10: 4.2}, "met"),
        (Law("a", "fall", steepest_fall, -0.1, -0.3), {1: 5, 10: 50, 100: 49}, "met"),
        (Law("a", "fall", steepest_fall, -0.1, -0.3), {1: 5, 10: 50, 100: 5}, "**alarm**"),
        (Law("a", "left", kept_to(5), 0.9, 0.5), {0.1: 100, 5: 95, 10: 20}, "met"),
        (Law("a", "left", kept_to(5), 0.9, 0.5), {0.1: 100, 5: 60, 10: 55}, "not met"),
        (Law("a", "left", kept_to(5), 0.9, 0.5), {0.1: 100, 1: 40}, "**alarm**"),
    ],
)
def test_a_law_is_met_missed_or_raises_its_alarm(law: Law, points: dict[float, float], verdict: str) -> None:
    """An alarm below the bound makes it a bound from below."""
    assert law.verdict(points) == verdict


def test_a_point_is_the_median_of_its_rounds() -> None:
    """A figure that is taken once counts as it is, and has no rounds when another point lacks it."""
    curve = Curve("a", "x", "size", (1, 10), (1, 10), {"y": "y"}, (flat("y"),))
    runs = {10.0: [{"y": 9, "once": 4}, {"y": 1}, {"y": 2}], 1.0: [{"y": 3}, {"y": 5}, {"y": 4}]}
    assert curve.series(runs, "y") == {1.0: 4, 10.0: 2}
    assert curve.rounds_of(runs, "y") == [{1.0: 3, 10.0: 9}, {1.0: 5, 10.0: 1}, {1.0: 4, 10.0: 2}]
    assert curve.series(runs, "once") == {10.0: 4}
    assert curve.rounds_of(runs, "once") == []


def test_a_curve_that_fails_costs_none_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are printed, and the error is raised."""
    before, failing = CURVES[:2]
    found = {"name": before.name, "points": []}

    def measured(curve: Curve, _options: object) -> dict[str, object]:
        if curve is failing:
            raise ConnectionResetError("no answer")
        return found

    monkeypatch.setattr(growth, "measured", measured)
    monkeypatch.setattr(growth, "table", lambda *_: [])
    monkeypatch.setattr(growth, "knees_table", lambda *_: [])
    monkeypatch.setattr(growth.signal, "signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["growth", "--json"])
    with pytest.raises(ConnectionResetError):
        growth.main()
    assert json.loads(capsys.readouterr().out)["curves"] == [found]
