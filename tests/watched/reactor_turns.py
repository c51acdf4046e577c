"""
Watches the turns of a bookie's reactor: none may take more than `TURN_S` of the reactor thread's own CPU time, for as
long as it takes no other peer is served.

What took too long is appended to a file, with the places where it was seen: a timer of CPU time interrupts the process
every few milliseconds, and a handler of Python's notes where it is, of a call of C when that returns.  It is not
faulthandler that does: the frames which it walks whenever the signal comes may be half made, and it crashed a bookie.

Wall time is not looked at: on a busy machine a thread waits for the processor.  CPU time alone is not believed either:
a virtual machine that is taken off its processor counts that as the running thread's own, but its timer stands still.
Excused is the start, until the collector's heap is frozen, right before the bookie says that it is ready, and a turn
that imports: what few bookies need, as the client for a restore, is loaded at its first use.
"""

import atexit
import gc
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

# SPDX-License-Identifier: Apache-2.0

TURN_S = 0.05
TICK_S = 0.005  # so often, in CPU time, the place is noted: in truth with each tick of the kernel, 4 or 10 ms
TICKED_S_MIN = 0.02  # a turn of `TURN_S` has so much by these ticks
TIMER_S = 1e6  # never over


class Turns:
    """Those of the one thread that calls `turn`, between two turns.  It must be the main thread."""

    def __init__(self, report: str) -> None:
        self._report = report
        self._began: float | None = None  # CPU time of the thread; None before the first turn that is watched
        self._started = False
        self._freeze, gc.freeze = gc.freeze, self._end_start
        self._modules = 0
        self._places: list[str] = []

    def _end_start(self) -> None:
        """Freezes the collector's heap.  How much is frozen is not asked: gc walks through all of it to count."""
        self._freeze()
        self._started = True

    def turn(self) -> None:
        """One ends, the next begins."""
        if not self._started:
            return
        now = time.thread_time()
        if self._began is None:
            signal.signal(signal.SIGVTALRM, self._note)
            atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0)  # no handler is left after that
        elif now - self._began > TURN_S and len(sys.modules) == self._modules:
            self._tell(now - self._began)
        self._began, self._modules = now, len(sys.modules)
        self._places.clear()
        signal.setitimer(signal.ITIMER_VIRTUAL, TICK_S, TICK_S)  # of the program alone: says where
        signal.setitimer(signal.ITIMER_PROF, TIMER_S)  # of the kernel for it, too: says how long

    def _note(self, _number: int, frame: FrameType | None) -> None:
        lines = []
        while frame is not None:
            lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n')
            frame = frame.f_back
        self._places.append("".join(lines))

    def _tell(self, seconds: float) -> None:
        left, _interval = signal.getitimer(signal.ITIMER_PROF)
        if TIMER_S - left < TICKED_S_MIN:
            return
        text = (
            f"process {os.getpid()}: a turn of the reactor took {1000 * seconds:.0f} ms of CPU time; "
            f"{' '.join(sys.orig_argv[1:])}\n" + "\n".join(self._places) + "\n"
        )
        with open(self._report, "a", encoding="utf-8") as out:
            out.write(text)


def watch(report: str) -> None:
    """Each reactor of this process, from its next turn on."""
    sys.modules.setdefault("OpenSSL", None)  # type: ignore[arg-type]  # a bookie does without it
    from twisted.internet.epollreactor import EPollReactor

    from quire.metadata.readiness import Straight

    turns = Turns(report)
    for kind in (EPollReactor, Straight):

        def watched(reactor: Any, timeout: float | None, go_on: Any = kind.doIteration) -> None:
            turns.turn()
            go_on(reactor, timeout)

        kind.doIteration = watched
