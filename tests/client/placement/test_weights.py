"""Free disk as weights: the cap, unknown values, how often a bookie is chosen."""

from collections import Counter
from random import Random

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.client.connections.answers import InfoAnswer
from quire.client.placement.policy import RandomPlacement
from quire.client.placement.weights import Weights, capped


def test_weights_are_capped_at_a_multiple_of_the_median():
    """A multiple of 0 sets no limit."""
    assert capped([10, 20, 1000], 3) == [10.0, 20.0, 60.0]
    assert capped([10, 20, 1000], 0) == [10.0, 20.0, 1000.0]


def test_who_told_nothing_has_the_smallest_weight():
    """An unknown weight becomes the smallest known one, or 1."""
    assert capped([0, 20, 10], 3) == [10.0, 20.0, 10.0]
    assert capped([0, 0], 3) == [1.0, 1.0]


def test_more_free_disk_means_more_ledgers():
    """A bookie with a larger weight is chosen more often, and each bookie at most once an ensemble."""
    weights = {"a": 1.0, "b": 1.0, "c": 8.0}
    policy = RandomPlacement(Random(5), lambda bookies: [weights[bookie] for bookie in bookies])
    first = Counter(policy.new_ensemble(["a", "b", "c"], 2)[0] for _ in range(1000))
    assert first["c"] > 600
    assert all(len(set(policy.new_ensemble(["a", "b", "c"], 3))) == 3 for _ in range(50))
    spares = Counter(policy.replacement(["a", "b", "c"], ["a"]) for _ in range(1000))
    assert spares["c"] > 700


def test_free_disk_is_asked_for_once_in_an_interval():
    """An answer is the bookie's weight until the interval ends; a bookie that gave none is asked again."""
    clock, free, questions = Clock(), {"a": 10, "b": None, "c": 30}, []

    def info(bookie):
        questions.append(bookie)
        return succeed(InfoAnswer(0, 100, free[bookie]) if free[bookie] is not None else InfoAnswer(-8))

    weights = Weights(clock.seconds, info, 3, 60_000)
    for _ in range(2):
        Deferred.fromCoroutine(weights.learn(["a", "b", "c"]))
    assert questions == ["a", "b", "c", "b"], "one that did not answer is asked again"
    assert weights.weigh(["a", "b", "c"]) == [10.0, 10.0, 30.0]
    clock.advance(61)
    free["a"] = 40
    Deferred.fromCoroutine(weights.learn(["a"]))
    assert weights.weigh(["a", "c"]) == [40.0, 30.0]
