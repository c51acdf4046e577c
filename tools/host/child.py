"""
One bookie's process, begun again whenever it ends until the host stops.

Knows: its ready line, its log line by line, how long to wait before it is begun again.
Does not know: its configuration, the other bookies.

It stops when its standard input closes, so it does not outlive the host, however that ends.
Safety: a signal goes only to the process that was begun here and has not been reaped.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.conf.properties import overrides
from quire.metadata.clock import Timer
from quire.tools.daemons.process import BOOKIE

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

log = Logger(namespace="quire.host")

WAIT_S_MIN, WAIT_S_MAX = 1.0, 30.0  # before it is begun again: twice as long each time
SETTLED_S = 60.0  # it served so long: the next wait is the first one again
LINE_BYTES_MAX = 65_536  # a longer line of its log is cut
TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+ ")  # that a line of its log begins with: ours says it again
NOTIFY = "NOTIFY_SOCKET"  # the service manager's: this process's to answer, not its children's


class Ended(NamedTuple):
    """How a process ended: its exit status, or the negative number of the signal; the last line of its log."""

    status: int
    line: str


def environment() -> dict[str, str]:
    """Makes a child's environment: options that this process's has are in the child's configuration already."""
    return {name: value for name, value in os.environ.items() if name != NOTIFY and not overrides({name: value})}


class Child:
    """`ended` is called at each end that was not asked for; `served` fires at the first ready line."""

    def __init__(
        self, reactor: "ProcessReactor", bookie: str, conf: Path, ended: Callable[["Child", Ended], None]
    ) -> None:
        self.id = bookie
        self.restarts = 0
        self.ready: dict[str, Any] | None = None  # what it said; None while it does not serve
        self.served: Deferred[None] = Deferred()
        self._reactor = reactor
        self._conf = conf
        self._on_end = ended
        self._process: Any = None  # Twisted's transport, while it runs
        self._began = self._wait_s = 0.0
        self._timer: Timer | None = None
        self._stopping: Deferred[None] | None = None
        self._line = ""
        self._reads_again = False  # once it serves

    @property
    def pid(self) -> int | None:
        return None if self._process is None else cast(int, self._process.pid)

    def begin(self) -> None:
        """Starts the process.  `OSError` where the machine has none to give."""
        self._timer = None
        self._began = self._reactor.seconds()
        command = [sys.executable, "-m", BOOKIE.module, "--conf", str(self._conf), "--json", "--stop-with-stdin"]
        self._process = self._reactor.spawnProcess(Pipes(self), command[0], command, env=environment())

    def reload(self) -> None:
        """Has it read its files again, if it runs, once it serves: before that the signal might end it."""
        self._reads_again = self._process is not None and self.ready is None
        if self._process is not None and self.ready is not None:
            with suppress(ProcessExitedAlready):
                self._process.signalProcess("HUP")

    async def stop(self) -> None:
        """Asks it to end, if it runs, and waits; it is not begun again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._process is None:
            return
        if self._stopping is None:
            self._stopping = Deferred()
            with suppress(ProcessExitedAlready):  # just now, and its pipes are not at their end
                self._process.signalProcess("TERM")
        over: Deferred[None] = Deferred()
        self._stopping.addCallback(over.callback)
        await over

    # -- what its pipes say

    def said(self, line: str) -> None:
        """A line of its log."""
        self._line = TIME.sub("", line, count=1)
        log.info("{bookie}: {line}", bookie=self.id, line=self._line)

    def serves(self, line: str) -> None:
        """Takes in the ready line."""
        self.ready = json.loads(line)
        if self._reads_again:  # it may have read them before it was asked
            self.reload()
        if not self.served.called:
            self.served.callback(None)

    def over(self, status: int) -> None:
        """Takes in the end of the process, which has been reaped and has said all."""
        self._process, self.ready = None, None
        if self._stopping is not None:
            self._stopping.callback(None)
            return
        self._on_end(self, Ended(status, self._line))

    def begin_later(self) -> None:
        """Once more, after a while."""
        settled = self._reactor.seconds() - self._began >= SETTLED_S
        self._wait_s = WAIT_S_MIN if settled or not self._wait_s else min(2 * self._wait_s, WAIT_S_MAX)
        log.info("{bookie} begins again in {wait:.0f} s", bookie=self.id, wait=self._wait_s)
        self._timer = self._reactor.callLater(self._wait_s, self._again)

    def _again(self) -> None:
        self.restarts += 1
        try:
            self.begin()
        except OSError as failure:
            log.error("{bookie} can't be begun: {reason}", bookie=self.id, reason=str(failure))
            self.begin_later()


class Pipes(ProcessProtocol):
    """Standard output and error of one run."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._out = b""
        self._err = b""

    def outReceived(self, data: bytes) -> None:
        line, found, _rest = (self._out + data).partition(b"\n")
        self._out = line[:LINE_BYTES_MAX]
        if found and self._child.ready is None:
            self._child.serves(line.decode())

    def errReceived(self, data: bytes) -> None:
        *lines, rest = (self._err + data).split(b"\n")
        self._err = rest if len(rest) < LINE_BYTES_MAX else b""
        for line in lines if self._err or not rest else [*lines, rest]:
            self._child.said(line[:LINE_BYTES_MAX].decode(errors="replace"))

    def processEnded(self, reason: Failure) -> None:
        if self._err:
            self._child.said(self._err.decode(errors="replace"))
        found = reason.value
        status = found.status if isinstance(found, ProcessTerminated) else 0
        signal = found.signal if isinstance(found, ProcessTerminated) else None
        code = found.exitCode if isinstance(found, ProcessTerminated) else 0
        self._child.over(-signal if signal else code if code is not None else status)
