"""
A process that is stopped, and has stopped when the call returns: a signal is taken by one of its threads, and the
others work on until that one has had its turn.
"""

import os
import signal
import time
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

STOP_S = 60.0  # only a machine that hangs takes so long


def stop(pid: int) -> None:
    """SIGSTOP, until no thread of the process runs."""
    os.kill(pid, signal.SIGSTOP)
    wait(pid)


def wait(pid: int) -> None:
    """Until a process has stopped that stops itself: a SIGCONT before that is lost."""
    deadline = time.monotonic() + STOP_S
    while not all(state(task) in "TXZ" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        os.sched_yield()


def state(task: Path) -> str:
    """The letter that proc(5) has for a thread; X for one that has gone."""
    try:
        return task.joinpath("stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
