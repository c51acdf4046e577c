"""
Watches the turns of a bookie's reactor: none may take more than `TURN_S` of the reactor thread's own CPU time, for as
long as it takes no other peer is served.

What took too long is appended to a file, with the place where it was seen.

Wall time is not looked at: on a busy machine a thread waits for the processor.  Excused is the start, until the
collector's heap is frozen, right before the bookie says that it is ready, and a turn that imports: what few bookies
need, as the client for a restore, is loaded at its first use.
"""

import gc
import os
import sys
import threading
import time
import traceback
from sys import _current_frames
from typing import Any

# SPDX-License-Identifier: Apache-2.0

TURN_S = 0.05
SEEN_S = 0.04  # of a turn that is older the place is noted, once
LOOK_S = 0.005


class Turns:
    """Those of the one thread that calls `turn`, between two turns."""

    def __init__(self, report: str) -> None:
        self._report = report
        self._began: float | None = None  # CPU time of the thread; None before the first turn that is watched
        self._place = ""
        self._modules = 0
        self._clock = 0

    def turn(self) -> None:
        """One ends, the next begins."""
        now = time.thread_time()
        if self._began is None:
            if not gc.get_freeze_count():
                return
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
            threading.Thread(
                target=self._look, args=(threading.get_ident(),), name="watch of turns", daemon=True
            ).start()
        elif now - self._began > TURN_S and len(sys.modules) == self._modules:
            self._tell(now - self._began)
        self._began, self._place, self._modules = now, "", len(sys.modules)

    def _look(self, thread: int) -> None:
        """In a thread of its own: notes where the reactor is while a turn is long."""
        never = threading.Event()
        while not never.wait(LOOK_S):
            began = self._began
            try:
                long = began is not None and time.clock_gettime(self._clock) - began > SEEN_S
            except OSError:  # the thread has ended
                return
            if long and not self._place:
                place = "".join(traceback.format_stack(_current_frames().get(thread)))
                if self._began == began:
                    self._place = place

    def _tell(self, seconds: float) -> None:
        text = (
            f"process {os.getpid()}: a turn of the reactor took {1000 * seconds:.0f} ms of CPU time; "
            f"{' '.join(sys.orig_argv[1:])}\n{self._place}"
        )
        with open(self._report, "a", encoding="utf-8") as out:
            out.write(text)


def watch(report: str) -> None:
    """Each reactor of this process, from its next turn on."""
    sys.modules.setdefault("OpenSSL", None)  # type: ignore[arg-type]  # a bookie does without it
    from twisted.internet.base import ReactorBase

    turns = Turns(report)
    go_on = ReactorBase.runUntilCurrent

    def watched(reactor: Any) -> None:
        turns.turn()
        go_on(reactor)

    ReactorBase.runUntilCurrent = watched  # type: ignore[method-assign]
