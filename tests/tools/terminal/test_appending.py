"""Appending a long input: the pace of the window, the first failure, the end, and the news of the last entry."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.protocol.errors import LedgerFenced, Write
from quire.tools.terminal.appending import PAUSE_S, Appender

# SPDX-License-Identifier: Apache-2.0


class Window:
    """A writer: appends wait until the test answers them, `ready` until it opens the window."""

    def __init__(self) -> None:
        self.given: list[list[bytes]] = []
        self.answers: list[Deferred[range]] = []
        self.full: Deferred[None] | None = None
        self.closed = False
        self.ensemble_changes = 0
        self.lacs_written = 0
        self.on_ensemble_change: Any = None

    def ready(self) -> Deferred[None]:
        return self.full or succeed(None)

    def append_many(self, payloads: list[bytes]) -> Deferred[range]:
        self.given.append(payloads)
        self.answers.append(Deferred())
        return self.answers[-1]

    def write_lac(self) -> Deferred[None]:
        self.lacs_written += 1
        failed: Deferred[None] = Deferred()
        failed.errback(Write("a courtesy that fails is no failure"))
        return failed


def outcome(coroutine: Any) -> list[Any]:
    """What came of it; empty while it waits."""
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found


@pytest.fixture
def writer() -> Window:
    return Window()


def test_batches_follow_as_the_window_allows(writer: Window) -> None:
    """Without a wait for their answers; while the window is full the next one waits."""
    appender = Appender(writer)  # type: ignore[arg-type]
    assert outcome(appender.send([b"a"])) == [None]
    assert outcome(appender.send([b"b"])) == [None]
    writer.full = Deferred()
    waiting = outcome(appender.send([b"c"]))
    assert (waiting, writer.given) == ([], [[b"a"], [b"b"]])
    writer.full.callback(None)
    assert (waiting, writer.given[2:]) == ([None], [[b"c"]])


def test_the_end_waits_for_every_answer(writer: Window) -> None:
    """Of an appender that has sent nothing it does not wait."""
    appender = Appender(writer)  # type: ignore[arg-type]
    assert outcome(appender.flush()) == [None]
    for payload in (b"a", b"b"):
        outcome(appender.send([payload]))
    ending = outcome(appender.flush())
    writer.answers[1].callback(range(1, 2))
    assert ending == []
    writer.answers[0].callback(range(1))
    assert ending == [None]


def test_the_first_failure_is_the_one_that_is_reported(writer: Window) -> None:
    """A wait for the end gets it, and each batch after it, which is not sent."""
    appender = Appender(writer)  # type: ignore[arg-type]
    for payload in (b"a", b"b"):
        outcome(appender.send([payload]))
    ending = outcome(appender.drain())
    writer.answers[0].errback(LedgerFenced("first"))
    assert [str(error) for error in ending] == ["first"]
    assert str(outcome(appender.drain())[0]) == "first", "what still waits is not waited for"
    writer.answers[1].errback(Write("second"))
    assert str(outcome(appender.send([b"c"]))[0]) == "first"
    assert str(outcome(appender.flush())[0]) == "first"
    assert len(writer.given) == 2


def test_after_a_pause_the_last_entry_is_confirmed(writer: Window) -> None:
    """Once, when everything is acknowledged and nothing follows; not after the end, nor of a closed ledger."""
    clock = Clock()
    appender = Appender(writer, clock)  # type: ignore[arg-type]
    outcome(appender.send([b"a"]))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 0, "not acknowledged yet"
    writer.answers[0].callback(range(1))
    clock.advance(PAUSE_S / 2)
    outcome(appender.send([b"b"]))
    clock.advance(PAUSE_S / 2)
    assert writer.lacs_written == 0, "something follows"
    writer.answers[1].callback(range(1, 2))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 1
    writer.closed = True
    outcome(appender.send([b"c"]))
    writer.answers[2].callback(range(2, 3))
    clock.advance(PAUSE_S)
    assert writer.lacs_written == 1
    outcome(appender.send([b"d"]))
    writer.answers[3].callback(range(3, 4))
    assert outcome(appender.flush()) == [None]
    assert clock.getDelayedCalls() == []


def test_an_ensemble_change_is_waited_for(writer: Window) -> None:
    """As long as was said; one that has happened is there at once."""
    clock = Clock()
    appender = Appender(writer)  # type: ignore[arg-type]
    waiting = outcome(appender.ensemble_changed(clock, 5))
    clock.advance(4)
    writer.on_ensemble_change(("a",), ("b",))
    writer.on_ensemble_change(("b",), ("c",))
    assert waiting == [True]
    assert outcome(appender.ensemble_changed(clock, 5)) == [True]
    other = Window()
    late = outcome(Appender(other).ensemble_changed(clock, 5))  # type: ignore[arg-type]
    clock.advance(5)
    assert late == [False]
    other.ensemble_changes = 1
    assert outcome(Appender(other).ensemble_changed(clock, 5)) == [True]  # type: ignore[arg-type]
