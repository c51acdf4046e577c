"""
One named thread that does jobs in groups, in the order they were given.

Knows: how to gather what waits into one group, and how to end.  Does not know: what a job is.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

# SPDX-License-Identifier: Apache-2.0

J = TypeVar("J")

GROUP_JOBS_MAX = 256


class Worker(Generic[J]):
    """
    `perform(jobs)` is called on the thread with everything that waits, at most `GROUP_JOBS_MAX`; it must not raise.
    The thread starts with the first job and is a daemon: a program that forgets to close a store still ends.
    """

    def __init__(self, name: str, perform: Callable[[list[J]], None]) -> None:
        self._name = name
        self._perform = perform
        self._jobs: SimpleQueue[J | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def submit(self, job: J) -> None:
        """From any thread; jobs given after `end` are not done."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def end(self) -> None:
        """The thread ends after the jobs that were given before."""
        self._ended = True
        self._jobs.put(None)

    def join(self, timeout_s: float) -> bool:
        """Waits for the end; whether it came."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            group: list[J] = []
            while job is not None:
                group.append(job)
                if len(group) >= GROUP_JOBS_MAX:
                    break
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
            if group:
                self._perform(group)
            if job is None:
                return
