"""Free disk as weights: the cap, what is asked of whom, and that more room means more ledgers."""

from collections import Counter
from random import Random

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.client.connections.answers import InfoAnswer
from quire.client.placement.greedy import Greedy
from quire.client.placement.weights import RETRY_SECONDS, Weights, capped

# SPDX-License-Identifier: Apache-2.0


def test_weights_are_capped_at_a_multiple_of_the_median():
    """A multiple of 0 sets no limit."""
    assert capped([10, 20, 1000], 3) == [10.0, 20.0, 60.0]
    assert capped([10, 20, 1000], 0) == [10.0, 20.0, 1000.0]


def test_a_bookie_that_never_answered_has_the_smallest_weight():
    """An unknown weight becomes the smallest known one, or 1."""
    assert capped([0, 20, 10], 3) == [10.0, 20.0, 10.0]
    assert capped([0, 0], 3) == [1.0, 1.0]


def test_more_free_disk_means_more_ledgers():
    """A bookie with a larger weight is chosen more often, and each bookie at most once an ensemble."""
    weights = {"a": 1.0, "b": 1.0, "c": 8.0}
    policy = Greedy(Random(5), weigh=lambda bookies: [weights[bookie] for bookie in bookies])
    first = Counter(policy.new_ensemble(["a", "b", "c"], 2)[0] for _ in range(1000))
    assert first["c"] > 600
    assert all(len(set(policy.new_ensemble(["a", "b", "c"], 3))) == 3 for _ in range(50))
    spares = Counter(policy.replacement(["a", "b", "c"], ["a"], index=0) for _ in range(1000))
    assert spares["c"] > 700


class Disks:
    """Bookies with free disk; `silent` ones answer with an error."""

    def __init__(self, **free):
        self.free = free
        self.silent = set()
        self.asked = []

    def info(self, bookie):
        self.asked.append(bookie)
        return succeed(InfoAnswer(-8) if bookie in self.silent else InfoAnswer(0, 1000, self.free[bookie]))


def learn(weights, *bookies):
    outcome = []
    Deferred.fromCoroutine(weights.learn(bookies)).addBoth(outcome.append)
    assert outcome == [None]


def test_free_disk_is_asked_for_once_an_interval():
    """What was learned weighs until it is that old; then it is asked for again, and the new number weighs."""
    clock, disks = Clock(), Disks(a=10, b=20)
    weights = Weights(clock.seconds, disks.info, 0, 60_000)
    learn(weights, "b", "a")
    assert disks.asked == ["a", "b"]
    assert weights.weigh(["b", "a"]) == [20.0, 10.0]
    disks.free["a"] = 40
    clock.advance(59.9)
    learn(weights, "a", "b")
    assert disks.asked == ["a", "b"]
    assert weights.weigh(["a", "b"]) == [10.0, 20.0]
    clock.advance(0.1)
    learn(weights, "a")
    assert disks.asked == ["a", "b", "a"]
    assert weights.weigh(["a", "b"]) == [40.0, 20.0]


def test_who_does_not_answer_keeps_its_weight_and_is_asked_again():
    """
    After a while, not at each choice, which would wait for it; a bookie that never answered has the smallest weight.
    """
    clock, disks = Clock(), Disks(a=10, b=20)
    weights = Weights(clock.seconds, disks.info, 0, 3_600_000)
    disks.silent = {"a"}
    learn(weights, "a", "b")
    assert weights.weigh(["a", "b"]) == [20.0, 20.0]
    disks.silent = set()
    learn(weights, "a", "b")
    assert disks.asked == ["a", "b"]
    clock.advance(RETRY_SECONDS)
    learn(weights, "a", "b")
    assert disks.asked == ["a", "b", "a"]
    assert weights.weigh(["a", "b"]) == [10.0, 20.0]
    disks.silent = {"b"}
    clock.advance(3600)
    learn(weights, "b")
    assert weights.weigh(["a", "b"]) == [10.0, 20.0]


def test_weights_have_the_cap_of_the_options():
    """No bookie weighs more than that multiple of the median of those that are weighed."""
    disks = Disks(a=10, b=20, c=1000)
    weights = Weights(Clock().seconds, disks.info, 3, 60_000)
    learn(weights, "a", "b", "c")
    assert weights.weigh(["a", "b", "c"]) == [10.0, 20.0, 60.0]


def test_what_others_answer_weighs_while_one_hangs():
    """Who replaces a bookie waits for a moment only, and the one that hangs may be that bookie."""
    clock, disks, hung = Clock(), Disks(b=10, c=20), Deferred()
    weights = Weights(clock.seconds, lambda bookie: hung if bookie == "a" else disks.info(bookie), 0, 3_600_000)
    learning = Deferred.fromCoroutine(weights.learn(["a", "b", "c"]))
    assert not learning.called
    assert weights.weigh(["a", "b", "c"]) == [10.0, 10.0, 20.0]
    hung.callback(InfoAnswer(-8))
    assert learning.called
