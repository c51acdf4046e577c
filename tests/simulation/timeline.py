"""
Virtual time: one queue of events for the whole world, and what each simulated process sees of it.

A `Process` is the reactor that the real code is given.  It can be paused (SIGSTOP: nothing of it runs, everything waits), killed (nothing
of it ever runs again), and its clock can jump.  No real time passes and no thread exists.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

EPOCH = 1_000_000.0  # what processes take the beginning for: a time of 0 is long ago


class Call:
    """One event to come; what `callLater` gives."""

    __slots__ = ("at", "fn", "number", "process")

    def __init__(self, at: float, number: int, process: "Process | None", fn: Callable[[], object]) -> None:
        self.at = at
        self.number = number
        self.process = process
        self.fn: Callable[[], object] | None = fn

    def __lt__(self, other: "Call") -> bool:
        return self.at < other.at or (self.at == other.at and self.number < other.number)

    def cancel(self) -> None:
        self.fn = None

    def active(self) -> bool:
        return self.fn is not None


class Timeline:
    """Events in order of time, then of birth."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[Call] = []
        self._number = 0

    def at(self, delay: float, fn: Callable[[], object], process: "Process | None" = None) -> Call:
        self._number += 1
        call = Call(self.now + delay, self._number, process, fn)
        heappush(self._queue, call)
        return call

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> None:
        """Lets `seconds` pass, or less when `until` becomes true."""
        end = self.now + seconds
        queue = self._queue
        while queue and queue[0].at <= end:
            call = heappop(queue)
            fn = call.fn
            if fn is None:
                continue
            self.now = call.at
            process = call.process
            if process is not None:
                if not process.alive:
                    continue
                if process.paused_until > self.now:
                    self._number += 1
                    call.at, call.number = process.paused_until, self._number
                    heappush(queue, call)
                    continue
            call.fn = None
            self.events += 1
            fn()
            if until is not None and until():
                return
        self.now = end


class Process:
    """One process on one host: the reactor of everything in it."""

    def __init__(self, timeline: Timeline, host: str, connect: Callable[..., Any] | None = None) -> None:
        self.timeline = timeline
        self.host = host
        self.alive = True
        self.paused_until = 0.0
        self.clock_offset = 0.0
        self._connect = connect

    def seconds(self) -> float:
        return EPOCH + self.timeline.now + self.clock_offset

    def callLater(self, delay: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Call:
        return self.timeline.at(delay, (lambda: fn(*args, **kwargs)) if args or kwargs else fn, self)

    def callFromThread(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        self.callLater(0, fn, *args, **kwargs)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> None:
        assert self._connect is not None
        self._connect(self, host, port, factory, timeout)

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.timeline.now + seconds)
