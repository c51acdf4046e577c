"""
Virtual time: one queue of events for the whole world, and what each simulated process sees of it.

A `Process` is the reactor that the real code is given.  It can be paused (SIGSTOP: nothing of it runs, everything
waits), killed (nothing of it ever runs again), and its clock can jump.  No real time passes and no thread exists.

Twisted's reactor measures by the wall clock: `callLater` notes the time of day at which it is due.  So when the clock
is set, what waits comes that much too early or too late.  What is done by the network, a disk or another machine does
not wait for this clock: it is put on the timeline itself.  (The programs of quire give their reactor a clock that is
never set; another program may not.)
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from twisted.python.failure import Failure

EPOCH = 1_000_000.0  # what processes take the beginning for: a time of 0 is long ago


class Call:
    """One event to come; what `callLater` gives."""

    __slots__ = ("at", "fn", "number", "process", "timer")

    def __init__(self, at: float, number: int, process: "Process | None", fn: Callable[[], object]) -> None:
        self.at = at
        self.number = number
        self.process = process
        self.fn: Callable[[], object] | None = fn
        self.timer = False  # due by the clock of its process

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

    def clock_set(self, process: "Process", seconds: float) -> None:
        """The clock of a process was set forward, or back where `seconds` is negative."""
        for call in self._queue:
            if call.timer and call.process is process:
                call.at = max(self.now, call.at - seconds)
        heapify(self._queue)

    def asleep(self, seconds: float) -> None:
        """The whole world is halted for so long, and then goes on where it was."""
        self.now += seconds
        for call in self._queue:
            call.at += seconds

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

    def __init__(
        self, timeline: Timeline, host: str, connect: Callable[..., Any] | None = None, name: str = ""
    ) -> None:
        self.timeline = timeline
        self.host = host
        self.name = name or host
        self.alive = True
        self.paused_until = 0.0
        self.clock_offset = 0.0
        self.clock_ahead = 0.0  # as far as it ever was
        self._connect = connect

    def seconds(self) -> float:
        return EPOCH + self.timeline.now + self.clock_offset

    def callLater(self, delay: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Call:
        call = self.timeline.at(delay, (lambda: fn(*args, **kwargs)) if args or kwargs else fn, self)
        call.timer = True
        return call

    def call_by_the_world(self, delay: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> Call:
        """The same for what does not wait for the process's clock: an answer, a disk."""
        return self.timeline.at(delay, (lambda: fn(*args, **kwargs)) if args or kwargs else fn, self)

    def callFromThread(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        self.call_by_the_world(0, fn, *args, **kwargs)

    def getThreadPool(self) -> "Pool":
        return Pool(self)

    def set_clock(self, offset: float) -> None:
        """So many seconds before the right time from now on."""
        change, self.clock_offset = offset - self.clock_offset, offset
        self.clock_ahead = max(self.clock_ahead, offset)
        self.timeline.clock_set(self, change)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> Any:
        assert self._connect is not None
        return self._connect(self, host, port, factory, timeout)

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.timeline.now + seconds)


THREAD_S = 0.001


class Pool:
    """A process's threads: what one is given takes a while, and then happens at once."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def callInThreadWithCallback(
        self, told: Callable[[bool, Any], object], fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        def work() -> None:
            try:
                found = fn(*args, **kwargs)
            except Exception:
                told(False, Failure())
            else:
                told(True, found)

        self._process.call_by_the_world(THREAD_S, work)
