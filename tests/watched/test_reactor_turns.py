"""The watch of reactor turns complains of computing, not of waiting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# SPDX-License-Identifier: Apache-2.0

IMPORTING = '(compute(0.2), __import__("colorsys"))'
PROGRAM = """
import gc, threading, time
from twisted.internet import reactor
from quire.metadata.readiness import straighten
straighten(reactor)

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:  # a look is the kernel's time, which says no place
        sum(range(2000))

def call_once():
    sum(range(10_000_000))

class Called:
    def __call__(self, depth):
        return depth and nested(depth - 1)

def nested(depth):
    return Called()(depth)

def call_much(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        nested(20)

def wait(seconds):
    threading.Event().wait(seconds)

def in_short_turns(count=10):
    compute(0.01)
    if count:
        reactor.callLater(0, in_short_turns, count - 1)

def settle():
    compute(0.1)
    gc.freeze()

turns = [settle, lambda: {}, reactor.stop]

def go_on():
    turns.pop(0)()
    if turns:
        reactor.callLater(0.3, go_on)

reactor.callWhenRunning(go_on)
reactor.run()
"""


@pytest.mark.parametrize(
    ("turn", "place"),
    [
        ("compute(0.3)", "in compute"),  # with less, beside other load, too few ticks may meet it
        ("call_much(2)", "in call_much"),  # frames come and go while it is looked at
        ("call_once()", "in call_once"),  # which keeps the interpreter's lock
        ("wait(0.06)", None),
        ("in_short_turns()", None),
        (IMPORTING, None),
    ],
)
def test_only_a_turn_that_computes_is_too_long(turn: str, place: str | None, tmp_path: Path) -> None:
    """
    Neither the start nor a wait is reported, nor many short turns, nor one that imports; one of 300 ms of CPU time
    is reported with its place.
    """
    report = tmp_path / "long"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TURNS_WATCHED": str(report)}
    program = PROGRAM.replace("{}", turn)
    subprocess.run(
        [sys.executable, "-c", program, "quire.tools.daemons.bookie"], env=environment, check=True, timeout=60
    )
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    reported = place is not None
    assert ("a turn of the reactor took" in text, reported and place in text) == (reported, reported)
