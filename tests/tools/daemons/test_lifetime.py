"""What a daemon serves, from begin to stop, without a process."""

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from quire.tools.daemons.lifetime import Lifetime
from tests.tools.daemons.test_serving import Turns

# SPDX-License-Identifier: Apache-2.0


class Play(Lifetime):
    """Starts two parts; `going` says how it goes on."""

    name = "the play"
    failures = (OSError,)

    def __init__(self, reactor: Turns) -> None:
        super().__init__(cast(Any, reactor))
        self.stopped: list[str] = []
        self.going: Deferred[None] = Deferred()

    async def serve(self) -> None:
        for part in ("first", "second"):
            self.to_stop.append(lambda part=part: self._note(part))
        await self.going
        self.started = True
        await Deferred()

    async def _note(self, part: str) -> None:
        self.stopped.append(part)


def begun() -> tuple[Turns, Play]:
    reactor = Turns()
    play = Play(reactor)
    play.begin()
    return reactor, play


def test_what_was_started_is_stopped_latest_first() -> None:
    """After its start, and in the middle of it."""
    for started in (True, False):
        _reactor, play = begun()
        if started:
            play.going.callback(None)
        ended: list[None] = []
        play.stop().addCallback(ended.append)
        assert play.stopped == ["second", "first"]
        assert ended == [None]
        assert play.ending is None


@pytest.mark.parametrize("failure", [OSError("gone"), RuntimeError("a fault of ours")])
def test_a_part_that_can_t_be_stopped_keeps_none_running(failure: Exception) -> None:
    """It is in the log; the parts that were started before are stopped."""
    _reactor, play = begun()
    play.going.callback(None)

    async def fails() -> None:
        raise failure

    play.to_stop.append(fails)
    ended: list[None] = []
    with capturedLogs() as events:
        play.stop().addCallback(ended.append)
    assert play.stopped == ["second", "first"]
    assert ended == [None]
    assert [event["log_failure"].value for event in events] == [failure]


def test_why_it_ends() -> None:
    """A failure that is expected is told as it is, a bad value is wrong usage, another one is in the log."""
    for failure, reason, wrong_usage in (
        (OSError("no port"), "no port", False),
        (OSError(), "OSError", False),
        (ValueError("bad URI"), "bad URI", True),
    ):
        reactor, play = begun()
        play.going.errback(failure)
        assert play.ending is not None
        assert (play.ending.reason, play.ending.wrong_usage) == (reason, wrong_usage)
        assert reactor.running
        reactor.advance(0)
        assert not reactor.running


def test_a_fault_of_ours_ends_it_too() -> None:
    """With a reason that points to the log."""
    _reactor, play = begun()
    play.going.errback(RuntimeError("no"))
    assert play.ending is not None
    assert "its log has the place" in play.ending.reason
