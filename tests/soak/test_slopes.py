"""The judge of slopes: what does not grow passes whatever its noise, and a leak of a known size is found."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from tests.soak.slopes import Judged, Sample, Verdict, blocks_of, judge, slope_of, table

# SPDX-License-Identifier: Apache-2.0

EVERY_S, WARM_S, BLOCK_S = 20.0, 300.0, 240.0
HOURS = 1.5

Value = Callable[[float, Random], float]  # hours of a life -> what is measured


def lives_of(dice: Random, value: Value, ends: int = 2) -> list[list[Sample]]:
    """One process, measured all the time, that is killed so many times."""
    moments = [0.0, *sorted(dice.uniform(0, HOURS * 3600) for _ in range(ends)), HOURS * 3600]
    lives = []
    for begin, end in pairwise(moments):
        times = [begin + EVERY_S * n for n in range(int((end - begin) // EVERY_S))]
        lives.append([(at, value((at - begin) / 3600, dice)) for at in times])
    return lives


def judged(value: Value, leaking: Value | None = None, processes: int = 12, seed: int = 1) -> list[Judged]:
    """A kind of twelve processes, of which the first may be another."""
    dice = Random(seed)
    lives = {f"p{n}": lives_of(dice, leaking if leaking and not n else value, ends=n % 3) for n in range(processes)}
    return judge("kind", "memory", lives, (0.5, 0.02), WARM_S, BLOCK_S)


def noisy(hours: float, dice: Random) -> float:
    """Memory that fills in the first minutes, and then goes up and down, seldom far."""
    return 80 - 20 * 2.7 ** (-hours * 40) + dice.gauss(0, 1) + (30 if dice.random() < 0.02 else 0)


def sawtooth(hours: float, dice: Random) -> float:
    """What is collected every three minutes."""
    return 80 + 30 * (hours * 20 % 1) + dice.gauss(0, 0.2)


def fixed(_hours: float, _dice: Random) -> float:
    return 17


FLAT: dict[str, Value] = {"noisy": noisy, "sawtooth": sawtooth, "fixed": fixed}


@pytest.mark.parametrize("name", FLAT)
def test_what_does_not_grow_passes(name: str) -> None:
    """With noise, outliers, collections and restarts, from ten seeds."""
    for seed in range(10):
        assert {row.verdict for row in judged(FLAT[name], seed=seed)} <= {Verdict.FLAT, Verdict.FALLS}


@pytest.mark.parametrize("name", FLAT)
def test_a_leak_is_found(name: str) -> None:
    """Ten an hour, of each process, though restarts begin anew; its size is told."""
    for seed in range(10):
        row = judged(lambda hours, dice: FLAT[name](hours, dice) + 10 * hours, seed=seed)[0]
        assert row.verdict is Verdict.GROWS
        assert row.slope is not None
        assert abs(row.slope.per_hour - 10) < 1


def test_one_of_many_that_leaks_is_named() -> None:
    """As the auditor might, which is one of the AutoRecoveries."""
    rows = judged(noisy, lambda hours, dice: noisy(hours, dice) + 15 * hours)
    assert [(row.process, row.verdict) for row in rows] == [("", Verdict.FLAT), ("p0", Verdict.GROWS)]


def test_descriptors_that_leak_one_by_one_are_found() -> None:
    """Whole numbers, with many ties."""
    row = judged(lambda hours, dice: 30 + int(hours * 5) + dice.choice([0, 0, 0, 1]))[0]
    assert row.verdict is Verdict.GROWS


def test_a_time_that_is_too_short_says_so() -> None:
    """Neither that it grows nor that it does not."""
    dice = Random(1)
    minutes = [[(EVERY_S * n, 80 + dice.gauss(0, 10)) for n in range(60)]]
    assert slope_of([life[:20] for life in minutes], WARM_S, BLOCK_S) is None
    (row,) = judge("kind", "memory", {"p": minutes}, (0.1, 0.0), 0.0, 120.0)
    assert row.verdict is Verdict.SHORT


def test_no_slope_goes_across_a_restart() -> None:
    """A life that has more than the one before is no growth."""
    lives = [[(EVERY_S * (n + 200 * life), 50.0 + 40 * life) for n in range(200)] for life in range(3)]
    (row,) = judge("kind", "memory", {"p": lives}, (0.1, 0.0), WARM_S, BLOCK_S)
    assert row.verdict is Verdict.FLAT


def test_a_block_is_its_median() -> None:
    """Without what is warm-up."""
    life = [(10.0 * n, float(n)) for n in range(10)] + [(100.0, 999.0)]
    assert blocks_of(life, 30.0, 40.0) == [(45.0, 4.5), (85.0, 8.5)]


def test_the_table_has_a_line_for_each_row() -> None:
    """With its verdict at the end."""
    lines = table(judged(fixed, lambda hours, dice: 17 + 50 * hours)).splitlines()
    assert [line.split()[-1] for line in lines] == ["verdict", "flat", "GROWS"]
