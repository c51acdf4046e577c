"""Why a bookie's process ends, without a process; `test_bookie` of the commands has whole ones."""

from typing import Any, cast

from twisted.internet.task import Clock

from quire.conf.bookie import BookieOptions
from quire.tools.daemons.serving import Ending, Serving

# SPDX-License-Identifier: Apache-2.0


class Turns(Clock):
    """A reactor whose turns a test makes."""

    running = True

    def stop(self) -> None:
        self.running = False


def begun(uri: str) -> tuple[Turns, Serving]:
    reactor = Turns()
    options = BookieOptions(metadata_uri=uri, journal_directories=("/nowhere",), ledger_directories=("/nowhere",))
    serving = Serving(cast(Any, reactor), options, restore=False, as_json=False)
    serving.begin()
    return reactor, serving


def test_a_metadata_uri_that_no_driver_serves_is_wrong_usage() -> None:
    """The reason names the URI, and the reactor stops in a turn of its own."""
    reactor, serving = begun("what://ever")
    assert serving.ending is not None
    assert serving.ending.wrong_usage
    assert "what://ever" in serving.ending.reason
    assert reactor.running
    reactor.advance(0)
    assert not reactor.running


def test_the_first_failure_is_the_reason() -> None:
    """What fails while everything stops does not take its place; a stop after a failed start has nothing to do."""
    _reactor, serving = begun("what://ever")
    first = serving.ending
    serving._end(Ending("later"))
    assert serving.ending is first
    stopped: list[None] = []
    serving.stop().addCallback(stopped.append)
    assert stopped == [None]
