"""A reactor that is told twice to stop; `test_process` and `test_running` send the signals."""

from typing import Any

from twisted.internet.selectreactor import SelectReactor

from quire.tools.stopping import stop_once

# SPDX-License-Identifier: Apache-2.0


def stops(*, early: bool) -> int:
    """How often what is put away before the end was put away, with two calls in the first turn or before it."""
    reactor: Any = SelectReactor()
    stop_once(reactor)
    put_away: list[None] = []
    reactor.addSystemEventTrigger("before", "shutdown", put_away.append, None)
    for _ in range(2):
        if early:
            reactor.stop()
        else:
            reactor.callWhenRunning(reactor.stop)
    reactor.run(installSignalHandlers=False)
    reactor.stop()  # and after its end
    return len(put_away)


def test_the_second_stop_changes_nothing() -> None:
    """In the same turn, and after the end."""
    assert stops(early=False) == 1


def test_a_reactor_that_does_not_run_yet_stops_in_its_first_turn() -> None:
    """As a command does whose work is over before."""
    assert stops(early=True) == 1
