"""One bookie's process under supervision: when it is begun again, what is kept of what it says."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from quire.tools.host.child import LINE_BYTES_MAX, SETTLED_S, WAIT_S_MAX, WAIT_S_MIN, Child, Ended, environment

# SPDX-License-Identifier: Apache-2.0

READY = json.dumps({"ready": "m-0", "metrics": "http://127.0.0.1:1/metrics", "token_file": "/t"}).encode() + b"\n"


class Transport:
    def __init__(self, number: int) -> None:
        self.pid = number
        self.signals: list[str] = []
        self.reaped = False

    def signalProcess(self, name: str) -> None:
        if self.reaped:
            raise ProcessExitedAlready
        self.signals.append(name)


class Machine(Clock):
    """A reactor whose processes do what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[Any, Transport]] = []
        self.full = False

    def spawnProcess(self, protocol: Any, program: str, arguments: list[str], env: dict[str, str]) -> Transport:
        if self.full:
            raise OSError("no process left")
        assert "--stop-with-stdin" in arguments
        self.begun.append((protocol, Transport(len(self.begun))))
        return self.begun[-1][1]

    def end(self, status: int | None = None, signal: int | None = None) -> None:
        reason = ProcessTerminated(status, signal) if status or signal else ProcessDone(0)
        self.begun[-1][0].processEnded(Failure(reason))


def child_of(machine: Machine) -> tuple[Child, list[Ended]]:
    ends: list[Ended] = []

    def ended(child: Child, how: Ended) -> None:
        ends.append(how)
        child.begin_later()

    return Child(cast(Any, machine), "m-0", Path("/d/bookie.conf"), ended), ends


def test_it_serves_from_its_ready_line_to_its_end() -> None:
    """The line may come in pieces; what comes after it means nothing."""
    machine = Machine()
    child, ends = child_of(machine)
    child.begin()
    pipes = machine.begun[0][0]
    pipes.outReceived(READY[:9])
    assert child.ready is None
    pipes.outReceived(READY[9:] + b"more\n")
    assert child.ready is not None
    assert child.served.called
    machine.end()
    assert child.ready is None
    assert child.pid is None
    assert ends == [Ended(0, "")]


def test_the_wait_doubles_until_it_has_served_for_a_while() -> None:
    """Up to a maximum; a machine without processes counts as an end."""
    machine = Machine()
    child, _ends = child_of(machine)
    child.begin()
    waits = []
    for _ in range(7):
        machine.end(1)
        (timer,) = machine.getDelayedCalls()
        waits.append(timer.getTime() - machine.seconds())
        machine.full = not machine.full
        machine.advance(waits[-1])
        while machine.full:
            (timer,) = machine.getDelayedCalls()
            waits.append(timer.getTime() - machine.seconds())
            machine.full = False
            machine.advance(waits[-1])
    expected = [min(WAIT_S_MAX, WAIT_S_MIN * 2**number) for number in range(len(waits))]
    assert waits == expected
    assert child.restarts == len(waits)
    machine.advance(SETTLED_S)
    machine.end(1)
    (timer,) = machine.getDelayedCalls()
    assert timer.getTime() - machine.seconds() == WAIT_S_MIN


def test_it_is_told_to_read_files_again_while_it_serves() -> None:
    """Before its ready line the signal might end it, so it comes then; one that has just ended needs none."""
    machine = Machine()
    child, _ends = child_of(machine)
    child.reload()
    child.begin()
    protocol, transport = machine.begun[-1]
    child.reload()
    assert transport.signals == []
    protocol.outReceived(READY)
    assert transport.signals == ["HUP"]
    child.reload()
    assert transport.signals == ["HUP", "HUP"]
    transport.reaped = True
    child.reload()
    machine.end(1)
    machine.advance(WAIT_S_MIN)
    protocol, transport = machine.begun[-1]
    protocol.outReceived(READY)
    assert transport.signals == []


def test_a_stop_waits_for_its_end_and_begins_nothing() -> None:
    """While it runs: a signal, once, however often it is asked; while it waits: its timer goes."""
    machine = Machine()
    child, ends = child_of(machine)
    child.begin()
    over: list[None] = []
    for _ in range(2):
        Deferred.fromCoroutine(child.stop()).addCallback(over.append)
    assert machine.begun[0][1].signals == ["TERM"]
    assert not over
    machine.end(signal=15)
    assert over == [None, None]
    assert ends == []
    waiting, _ends = child_of(machine)
    waiting.begin()
    machine.end(1)
    Deferred.fromCoroutine(waiting.stop()).addCallback(over.append)
    assert over == [None] * 3
    assert machine.getDelayedCalls() == []


def test_the_last_line_of_its_log_says_why() -> None:
    """Without the time that it begins with; cut where it has no end; a signal is a negative number."""
    machine = Machine()
    child, ends = child_of(machine)
    child.begin()
    pipes = machine.begun[0][0]
    pipes.errReceived(b"2026-11-23T07:17:45+0000 [quire.bookie#info] first\nquire: the jour")
    pipes.errReceived(b"nal is gone\n")
    machine.end(1)
    machine.advance(WAIT_S_MIN)
    pipes = machine.begun[1][0]
    pipes.errReceived(b"x" * (LINE_BYTES_MAX + 5))
    pipes.errReceived(b"2026-11-23T07:17:45+0000 [-] half a li")
    machine.end(signal=9)
    assert ends == [Ended(1, "quire: the journal is gone"), Ended(-9, "[-] half a li")]


def test_a_child_takes_no_options_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in its configuration already; and the host alone answers the service manager."""
    monkeypatch.setenv("BK_bookiePort", "1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("KEPT", "1")
    found = environment()
    assert found["KEPT"] == "1"
    assert not {"BK_bookiePort", "NOTIFY_SOCKET"} & set(found)


def test_a_stop_of_one_that_has_just_ended_waits_for_what_it_said() -> None:
    """It was reaped, and its pipes are not at their end: a signal has nobody, and the others are waited for."""
    machine = Machine()
    child, ends = child_of(machine)
    child.begin()
    machine.begun[0][1].reaped = True
    over: list[None] = []
    Deferred.fromCoroutine(child.stop()).addCallback(over.append)
    assert not over
    machine.end(signal=9)
    assert over == [None]
    assert ends == []
