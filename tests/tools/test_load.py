"""The loads of `quire bench`, on a clock that the test moves."""

import random
from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.tools.load import ClosedLoop, Loop, OpenLoop, appending
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import created

# SPDX-License-Identifier: Apache-2.0


class Cluster:
    """Operations that end when the test says so, or `delay` seconds after they began."""

    def __init__(self, clock: Clock, delay: float | None = None) -> None:
        self.clock = clock
        self.delay = delay
        self.begun: list[tuple[float, int, Deferred[None]]] = []
        self.most = 0

    def operate(self, count: int) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.begun.append((self.clock.seconds(), count, done))
        self.most = max(self.most, sum(count for _, count, each in self.begun if not each.called))
        if self.delay is not None:
            self.clock.callLater(self.delay, done.callback, None)
        return done


def running(load: Loop) -> tuple[list[float], list[BaseException]]:
    """Starts a load; (its result, its error), each empty until then."""
    results: list[float] = []
    errors: list[BaseException] = []
    Deferred.fromCoroutine(load.run()).addCallbacks(results.append, lambda failure: errors.append(failure.value))
    return results, errors


def test_a_closed_loop_keeps_its_window_full() -> None:
    """Never more under way than the window, a batch at a time, and exactly as many entries as asked."""
    clock = Clock()
    cluster = Cluster(clock, 0.01)
    load = ClosedLoop(clock, cluster.operate, 1030, 100, 50)
    results, _ = running(load)
    assert [count for _, count, _ in cluster.begun] == [50, 50]
    clock.pump([0.01] * 11)
    assert cluster.most == 100
    assert [count for _, count, _ in cluster.begun] == [50] * 20 + [30]
    assert results == [pytest.approx(0.11)]
    assert load.latencies.percentiles([0.5, 0.999]) == [pytest.approx(0.01)] * 2


def test_a_window_below_the_batch_holds_one_batch() -> None:
    """One outstanding append is window 1, batch 1; a batch always fits."""
    clock = Clock()
    cluster = Cluster(clock, 0.5)
    running(ClosedLoop(clock, cluster.operate, 30, 1, 10))
    clock.pump([0.5] * 3)
    assert [(at, count) for at, count, _ in cluster.begun] == [(0, 10), (0.5, 10), (1.0, 10)]


def test_operations_that_end_at_once_do_not_nest() -> None:
    """However many entries: the stack stays flat."""
    clock = Clock()

    def operate(count: int) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    results, _ = running(ClosedLoop(clock, operate, 20_000, 10, 1))
    assert results == [0.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda clock, operate: ClosedLoop(clock, operate, 100, 10, 5),
        lambda clock, operate: OpenLoop(clock, operate, 100, 10_000),
    ],
)
def test_the_first_failure_ends_a_load(make: Callable[[Clock, Callable[[int], Deferred[None]]], Loop]) -> None:
    """It starts nothing more, and later failures are not lost in silence: they have the same cause."""
    clock = Clock()
    cluster = Cluster(clock)
    results, errors = running(make(clock, cluster.operate))
    clock.advance(0.001)
    for _, _, done in list(cluster.begun):
        done.errback(OSError("gone"))
    begun = len(cluster.begun)
    clock.pump([0.001] * 20)
    assert len(cluster.begun) == begun
    assert not results
    assert [str(error) for error in errors] == ["gone"]


def test_an_open_loop_arrives_at_its_rate() -> None:
    """Whatever the answers do; fractions of an entry per tick add up."""
    clock = Clock()
    cluster = Cluster(clock)
    load = OpenLoop(clock, cluster.operate, 250, 2500)
    results, _ = running(load)
    clock.pump([0.001] * 40)
    assert [count for _, count, _ in cluster.begun[:4]] == [2, 3, 2, 3]
    assert sum(count for _, count, _ in cluster.begun) == pytest.approx(100, abs=3)
    clock.pump([0.001] * 200)
    assert load.started == 250, "no more than asked"
    for _, _, done in cluster.begun:
        done.callback(None)
    assert len(results) == 1


def test_an_open_loop_counts_from_the_tick_that_was_due() -> None:
    """A client that was held up for half a second sends late, and its lateness is latency."""
    clock = Clock()
    cluster = Cluster(clock, 0.002)
    load = OpenLoop(clock, cluster.operate, 1000, 1000)
    running(load)
    clock.advance(0.5)  # one turn of the reactor took this long
    clock.pump([0.001] * 600)
    assert load.ended == 1000
    median, tail = load.latencies.percentiles([0.5, 0.99])
    assert median < 0.5
    assert tail == pytest.approx(0.5, abs=0.02)
    assert load.latencies.percentiles([0.95])[0] > 0.4


def test_single_operations_of_an_open_loop() -> None:
    """Reads come one entry each, several in a tick."""
    clock = Clock()
    cluster = Cluster(clock, 0.001)
    load = OpenLoop(clock, cluster.operate, 30, 3000, single=True)
    running(load)
    clock.pump([0.001] * 20)
    assert [count for _, count, _ in cluster.begun] == [1] * 30


def test_rates_hold_for_random_numbers() -> None:
    """After t seconds rate * t entries have begun, one tick more or less."""
    dice = random.Random(2)
    for _ in range(20):
        clock = Clock()
        rate = dice.choice([7, 999, 1001, 33_333, 250_000])
        load = OpenLoop(clock, Cluster(clock, 0.001).operate, 10**9, rate)
        running(load)
        clock.pump([dice.random() * 0.01 for _ in range(50)])
        assert load.started == pytest.approx(rate * clock.seconds(), abs=rate * 0.002 + 1)


def test_one_entry_is_appended_by_the_call_for_one() -> None:
    """A batch of one measures `append`, which answers with an id; a larger one `append_many`, with a range."""
    cluster = FakeCluster()
    append = appending(created(cluster), 3)
    answers = [append(1), append(2)]
    cluster.spin(1)
    assert [cluster.succeed(answer) for answer in answers] == [0, range(1, 3)]
