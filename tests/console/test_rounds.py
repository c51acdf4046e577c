"""A look that is repeated in the background."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import Clock

from quire.console.rounds import WRONG, Round
from quire.protocol.errors import MetaStore
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class Looks:
    """Looks that end when the test says so, and how."""

    def __init__(self, share: float = 1.0) -> None:
        self.clock = Clock()
        self.under_way: list[Deferred[int]] = []
        self.round = Round(self.clock, "looking", 15, self._look, share)

    async def _look(self) -> int:
        self.under_way.append(Deferred())
        return await self.under_way[-1]


def test_the_last_result_stays_while_others_fail() -> None:
    """Its age grows, and why the last try failed is said, until one succeeds."""
    looks = Looks()
    looks.round.start()
    assert (looks.round.value, looks.round.age) == (None, None)
    looks.under_way[0].callback(7)
    looks.clock.advance(14)
    assert (looks.round.value, looks.round.age, len(looks.under_way)) == (7, 14, 1)
    looks.clock.advance(1)
    looks.under_way[1].errback(MetaStore("the store is away"))
    assert (looks.round.value, looks.round.age, looks.round.problem) == (7, 15, "the store is away")
    looks.clock.advance(15)
    looks.under_way[2].errback(DeferredTimeout())
    assert looks.round.problem == "there was no answer in time"
    looks.clock.advance(15)
    looks.under_way[3].callback(8)
    assert (looks.round.value, looks.round.age, looks.round.problem) == (8, 0, "")


def test_one_look_is_under_way_at_a_time() -> None:
    """The next begins a period after the end of the one before."""
    looks = Looks()
    looks.round.start()
    looks.clock.advance(1000)
    assert len(looks.under_way) == 1


def test_a_long_look_is_made_seldom() -> None:
    """So that all looks take no more than their share of the time."""
    looks = Looks(share=0.1)
    looks.round.start()
    looks.clock.advance(10)
    looks.under_way[0].callback(1)
    looks.clock.advance(89)
    assert len(looks.under_way) == 1
    looks.clock.advance(1)
    assert len(looks.under_way) == 2


def test_a_fault_of_a_look_is_logged_and_looked_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that something is wrong; the next look is made all the same."""
    logged: list[str] = []

    class Log:
        def failure(self, *_: object, name: str) -> None:
            logged.append(name)

    monkeypatch.setattr(Round, "log", Log())
    looks = Looks()
    looks.round.start()
    looks.under_way[0].errback(KeyError("a bug"))
    assert (logged, looks.round.problem) == (["looking"], WRONG)
    looks.clock.advance(15)
    assert len(looks.under_way) == 2


def test_a_stop_ends_it() -> None:
    """A look that is under way, and one that waits."""
    for ends_first in (False, True):
        looks = Looks()
        looks.round.start()
        if ends_first:
            looks.under_way[0].callback(1)
        run(looks.round.stop)
        looks.clock.advance(100)
        assert len(looks.under_way) == 1
        assert looks.clock.getDelayedCalls() == []
