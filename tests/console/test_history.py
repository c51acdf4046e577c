"""Numbers of bookies over the last hours."""

import math

import pytest

from quire.client.connections.answers import InfoAnswer
from quire.console.history import (
    BY_KEY,
    METRICS,
    POINTS_MAX,
    QUANTITIES,
    Curve,
    History,
    buckets,
    latest,
    thinned,
    together,
)
from quire.tools.commands.doctor.bookies import Visit, samples_in
from tests.reactor import run
from tests.tools.commands.doctor.conftest import World

# SPDX-License-Identifier: Apache-2.0


def visit(text: str = "", bookie: str = "b:1", info: InfoAnswer | None = None) -> Visit:
    """What a bookie with these metrics answers."""
    return Visit(bookie, info or InfoAnswer(0, 100, 25), {}, samples_in(text.encode()))


def added(count: float, bookie: str = "b:1") -> Visit:
    return visit(f"quire_adds_total {count}\n", bookie)


def test_each_metric_is_one_that_bookies_have(world: World) -> None:
    """A curve of a name that nobody gives would be empty for ever."""

    async def story() -> set[str]:
        return {name for bookie in world.bookies for name in samples_in(bookie.metrics.text())}

    assert run(story) >= METRICS


def test_a_rate_is_between_two_looks() -> None:
    """The first look has none; a bookie that was started again counts from nothing."""
    history = History()
    assert "adds" not in history.take(100, [added(1000)])["b:1"]
    assert history.take(110, [added(1500)])["b:1"]["adds"] == 50
    assert history.take(120, [added(30)])["b:1"]["adds"] == 3
    assert history.curves("adds", ["b:1"])[0].values[1:] == [50, 3]


def test_a_look_without_an_answer_leaves_a_gap() -> None:
    """The rate behind it is that of the whole time."""
    history = History()
    history.take(0, [added(0)])
    history.take(10, [Visit("b:1", InfoAnswer(0), None, None, "why")])
    history.take(20, [])
    assert history.take(30, [added(300)])["b:1"]["adds"] == 10
    values = history.curves("adds", ["b:1"])[0].values
    assert [math.isnan(value) for value in values] == [True, True, True, False]


def test_disks_need_no_look_before() -> None:
    """Every bookie says them, Apache's, too."""
    assert History().take(0, [visit()])["b:1"]["disk"] == 75


def test_a_quantile_is_of_what_came_between_two_looks() -> None:
    """Within a bucket it is where its share lies; above the last bound, that bound; nothing came: none."""

    def look(one: int, two: int, more: int) -> Visit:
        name = "quire_add_seconds_bucket"
        return visit(f'{name}{{le="0.01"}} {one}\n{name}{{le="0.1"}} {two}\n{name}{{le="+Inf"}} {more}\n')

    history = History()
    history.take(0, [look(500, 500, 500)])
    assert history.take(1, [look(500, 600, 600)])["b:1"]["latency"] == pytest.approx(10 + 0.99 * 90)
    assert history.take(2, [look(500, 600, 700)])["b:1"]["latency"] == pytest.approx(100)
    assert "latency" not in history.take(3, [look(500, 600, 700)])["b:1"]
    assert "latency" not in history.take(4, [look(1, 1, 1)])["b:1"], "it was started again"
    assert buckets(None, "quire_add_seconds") == {}


def test_the_rings_turn() -> None:
    """The oldest looks go, and a bookie that was in none of those that are kept."""
    history = History(3)
    history.take(0, [added(0), added(0, "gone:1")])
    for look in range(1, 6):
        history.take(look, [added(10 * look * look)])
    assert history.times == [3, 4, 5]
    assert history.curves("adds", ["b:1"])[0].values == [50, 70, 90]
    assert history.curves("adds", ["gone:1"]) == []


def test_several_are_joined() -> None:
    """A sum of rates, the most of latencies; what is not known does not count."""
    history = History()
    history.take(0, [added(0), added(0, "b:2")])
    history.take(1, [added(5), added(7, "b:2")])
    assert together(BY_KEY["adds"], history.curves("adds", ["b:1", "b:2"]), "all").values[1] == 12
    late = [Curve("", [3.0]), Curve("", [4.0]), Curve("", [math.nan])]
    assert together(BY_KEY["latency"], late, "all") == Curve("all", [4])


def test_many_numbers_are_thinned() -> None:
    """Of rates the mean stays, of latencies the most; all that is unknown stays so."""
    assert thinned(BY_KEY["adds"], [1, 3, 5, math.nan, 9], 2) == [2, 5, 9]
    assert thinned(BY_KEY["latency"], [1, 3, 5, 2], 2) == [3, 5]
    assert math.isnan(thinned(BY_KEY["adds"], [math.nan] * 4, 2)[0])
    assert thinned(BY_KEY["adds"], [1, 2], 1) == [1, 2]
    history = History(2 * POINTS_MAX)
    for look in range(3 * POINTS_MAX):
        history.take(look, [added(0)])
    assert history.times == list(range(POINTS_MAX, 3 * POINTS_MAX, 2))
    assert len(history.curves("adds", ["b:1"])[0].values) == POINTS_MAX


def test_a_number_that_is_not_known_is_none() -> None:
    """So that a page shows a dash for it."""
    assert [latest({"adds": 1.0, "cpu": math.nan}, each.key) for each in QUANTITIES if each.key in ("adds", "cpu")] == [
        1,
        None,
    ]
