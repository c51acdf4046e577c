"""Why a bookie's process ends, without a process; `test_bookie` of the commands has whole ones."""

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.conf.bookie import BookieOptions
from quire.tools.daemons.serving import Serving

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


def test_a_stop_after_a_failed_start_has_nothing_to_do() -> None:
    """It succeeds at once, and the reason stays."""
    _reactor, serving = begun("what://ever")
    reason = serving.ending
    stopped: list[None] = []
    serving.stop().addCallback(stopped.append)
    assert stopped == [None]
    assert serving.ending is reason


class Started:
    """A bookie that serves."""

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()
        self.reloads = 0
        self.ended.callback(None)

    def reload(self) -> None:
        self.reloads += 1


def test_who_is_told_to_read_files_again_while_it_starts_does_so_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read them by then, and may have a long journal still before it."""
    for asked in (False, True):
        start: Deferred[Started] = Deferred()
        monkeypatch.setattr(Serving, "_start", lambda _serving, start=start: start)
        monkeypatch.setattr("quire.tools.daemons.serving.settle_memory", lambda: None)
        _reactor, serving = begun("memory://here")
        if asked:
            serving.reload()
        bookie = Started()
        start.callback(bookie)
        assert bookie.reloads == asked
        serving.reload()
        assert bookie.reloads == asked + 1
