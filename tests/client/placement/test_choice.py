"""Choosing bookies: who is excluded, who is picked last, what a shortage says."""

from collections import Counter
from random import Random

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.client.connections.answers import InfoAnswer
from quire.client.placement.choice import LEARN_SECONDS_MAX, RETRY_SECONDS, BookieChoice, Weights, capped
from quire.client.placement.greedy import Greedy
from quire.client.placement.health import HealthLimits
from quire.client.placement.topology import Topology
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList, ServiceInfo
from quire.protocol.errors import MetaStore, NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

INFO = ServiceInfo.of("127.0.0.1", 1)


class Store:
    def __init__(self, *names):
        self.names = names
        self.heard = None  # whom the handle knows, if not all
        self.asked = 0
        self.down = False

    def known_bookies(self):
        return self.bookies() if self.heard is None else succeed(BookieList(dict.fromkeys(self.heard, INFO), {}))

    def bookies(self):
        self.asked += 1
        if self.down:
            return fail(MetaStore("the store is down"))
        return succeed(BookieList(dict.fromkeys(self.names, INFO), {"r0": INFO}))


def choice_among(*names):
    store, clock = Store(*names), Clock()
    return BookieChoice(clock, store, Greedy(Random(1))), store, clock


def result(story):
    outcome = []
    Deferred.fromCoroutine(story).addBoth(outcome.append)
    value = outcome[0]
    if hasattr(value, "raiseException"):
        value.raiseException()
    return value


def replaced(chosen, *failed, must=False, bookies=("a", "b", "c")):
    return result(chosen.replace(bookies, [bookies.index(name) for name in failed], must))


def test_an_ensemble_is_of_writable_bookies():
    """All registered bookies can be chosen, and more than these raise `NotEnoughBookies`."""
    chosen, _store, _clock = choice_among("a", "b", "c", "d")
    assert set(result(chosen.ensemble(4))) == {"a", "b", "c", "d"}
    with pytest.raises(NotEnoughBookies):
        result(chosen.ensemble(5))


def test_a_replacement_is_neither_in_the_ensemble_nor_failed():
    """The others keep their places, and the result names the bookies that were seen."""
    chosen, _store, _clock = choice_among("a", "b", "c", "d", "e")
    picked = replaced(chosen, "a", "b")
    assert set(picked.bookies) == {"c", "d", "e"}
    assert picked.bookies[2] == "c"
    assert picked.shortage == ""
    assert picked.seen == {"a", "b", "c", "d", "e"}


def test_as_many_as_there_are_spares_are_replaced():
    """The rest stays, and the shortage lists the bookies that could not be used."""
    chosen, _store, _clock = choice_among("b", "c", "d")
    picked = replaced(chosen, "a", "b", must=True)
    assert picked.bookies == ("d", "b", "c")
    assert "all that are writable are in the ensemble or failed lately: b, c, d" in picked.shortage


def test_a_suspect_is_picked_only_when_there_must_be_one():
    """Without `must` the failed bookie stays in the ensemble."""
    chosen, _store, _clock = choice_among("b", "c", "d")
    chosen.suspect("d")
    assert replaced(chosen, "a").bookies == ("a", "b", "c")
    assert replaced(chosen, "a", must=True).bookies == ("d", "b", "c")


def test_suspicion_ends_with_time_or_when_the_bookie_left():
    """A bookie is no suspect after the maximum, or once a list lacked it."""
    chosen, store, clock = choice_among("b", "c", "d")
    chosen.suspect("d")
    clock.advance(HealthLimits().memory_ms / 1000 + 1)
    assert chosen.suspects(store.names) == []
    chosen.suspect("d")
    assert chosen.suspects(["b", "c"]) == []
    assert chosen.suspects(["b", "c", "d"]) == []


def test_a_store_that_is_down_is_a_shortage():
    """A replacement leaves the ensemble as it is with a reason; a new ensemble raises."""
    chosen, store, _clock = choice_among("b", "c", "d")
    store.down = True
    picked = replaced(chosen, "a")
    assert picked.bookies == ("a", "b", "c")
    assert "the store is down" in picked.shortage
    with pytest.raises(MetaStore):
        result(chosen.ensemble(3))


def test_the_store_is_asked_only_where_too_few_are_known():
    """Who has come since is found then; otherwise choosing costs the store nothing."""
    chosen, store, _clock = choice_among("a", "b", "c", "d")
    store.heard = ("a", "b", "c")
    assert set(result(chosen.ensemble(3))) == {"a", "b", "c"}
    assert store.asked == 0
    assert set(result(chosen.ensemble(4))) == {"a", "b", "c", "d"}
    assert store.asked == 1
    assert replaced(chosen, "a").bookies == ("d", "b", "c")
    assert store.asked == 2


@pytest.mark.parametrize("fact", ["places", "disks"])
def test_who_replaces_a_bookie_waits_for_a_moment_only(fact):
    """A script or a bookie that hangs holds up no entries where a spare will do; what it says later is not lost."""
    clock, answers = Clock(), []

    def asked(_what):
        answers.append(Deferred())
        return answers[-1]

    facts = (
        {"topology": Topology(clock.seconds, asked)}
        if fact == "places"
        else {"weights": Weights(clock.seconds, asked, 3, 86_400_000)}
    )
    chosen = BookieChoice(clock, Store("a", "b", "c", "d"), Greedy(Random(1)), **facts)
    replacing = Deferred.fromCoroutine(chosen.replace(("a", "b", "c"), [0]))
    clock.advance(LEARN_SECONDS_MAX - 0.1)
    assert not replacing.called
    clock.advance(0.1)
    assert replacing.result.bookies == ("d", "b", "c")
    must = Deferred.fromCoroutine(chosen.replace(("a", "b", "d"), [0, 1, 2], must=True))
    clock.advance(3 * LEARN_SECONDS_MAX)
    assert not must.called, "there is a spare for one only: of another the place may be known in a moment"
    creating = Deferred.fromCoroutine(chosen.ensemble(3))
    for answer in answers:
        answer.callback({"a": "/r"} if fact == "places" else InfoAnswer(0, 10, 10))
    assert must.called
    assert creating.called
    assert clock.getDelayedCalls() == []


class Careless:
    """A policy of a user's that draws with replacement, or loses count."""

    def __init__(self, more=0):
        self.more = more

    def new_ensemble(self, available, size, _exclude=(), **_wish):
        return available[: size + self.more] if self.more else [*available[: size - 1], available[0]]

    def replacement(self, _available, ensemble, _excluded=(), **_wish):
        return ensemble[0]


def test_a_policy_that_gives_a_bookie_twice_is_refused():
    """
    Two copies on one bookie would be acknowledged as two, and lost as one.  Who makes ledgers again and again knows the
    error, and tries again.
    """
    store = Store("a", "b", "c", "d")
    chosen = BookieChoice(Clock(), store, Careless())
    with pytest.raises(NotEnoughBookies, match="3 different bookies are needed; the placement policy gave a, b, a"):
        result(chosen.ensemble(3))
    for more in (-1, 1):
        with pytest.raises(NotEnoughBookies, match="gave a, b"):
            result(BookieChoice(Clock(), store, Careless(more)).ensemble(3))
    picked = replaced(chosen, "b")
    assert picked.bookies == ("a", "b", "c")
    assert "gave a, which the ensemble has" in picked.shortage
    metadata = LedgerMetadata.new(3, 3, 2, ("a:1", "b:1", "c:1"))
    with pytest.raises(NotEnoughBookies, match="gave a"):
        result(chosen.spare(("a", "b", "c"), 1, (), metadata))


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
