"""
The log lines about connections that were closed, or refused something: one a minute for each host and kind of reason,
then how many more there were.  Also those about requests that failed, for each ledger.

Knows: which host or ledger was logged when; how many there were of each kind.
Does not know: connections, why one is closed.

Peers can close connections, and ask for what can't be read, as fast as they like; the log is on a disk that a bookie
needs.  So its growth is bounded: `HOSTS_MAX` are remembered for a minute, all others share one line.
"""

from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

QUIET_S = 60.0  # after a line, for its host and kind
HOSTS_MAX = 1000  # or ledgers, with their kinds
OTHERS, OTHER_LEDGERS = "other hosts", "other ledgers"
CLOSED = "{more} more connections from {what} were closed for {kind}"
REFUSED = "{more} more requests from {what} were refused for {kind}"
FAILED = "{more} more of {kind} of {what} failed"


class Line:
    """A line that was written, and what is left out since."""

    __slots__ = ("more", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.more = 0


class Complaints:
    """The lines of one listener, or of one service."""

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self.counts: dict[str, int] = {}  # kind -> how many connections were closed for it since the start
        self._lines: dict[tuple[str, str, str], Line] = {}  # by host or ledger, kind and summary; oldest first

    def report(
        self, peer: str, kind: str, reason: str, failure: Failure | None = None, *, closing: bool = True
    ) -> None:
        """Logs that a connection is closed, or a request refused, for such a reason; `failure` if in our code."""
        if closing:
            self.counts[kind] = self.counts.get(kind, 0) + 1
        summary = CLOSED if closing else REFUSED
        if not self._is_new(peer.rpartition(":")[0] or peer, kind, OTHERS, summary):
            return
        text = "closing the connection from {peer}: {reason}" if closing else "refusing what {peer} asks: {reason}"
        if failure is None:
            self._log.warn(text, peer=peer, reason=reason)
        else:
            self._log.failure(text, failure, peer=peer, reason=reason)

    def failed(self, request: str, ledger: int | None, failure: Failure) -> None:
        """Logs that a request of this ledger failed, because of a disk or, then with the place, of our code."""
        what = "the bookie" if ledger is None else f"ledger {ledger}"
        if not self._is_new(what, request, OTHER_LEDGERS, FAILED):
            return
        text, reason = "{request} of {what} failed: {reason}", failure.getErrorMessage()
        if isinstance(failure.value, StorageError | OSError):
            self._log.error(text, request=request, what=what, reason=reason)
        else:
            self._log.failure(text, failure, request=request, what=what, reason=reason)

    def sweep(self) -> None:
        """Logs how many were left out, once their minute is over."""
        now = self._clock.seconds()
        while self._lines:
            (what, kind, summary), line = next(iter(self._lines.items()))
            if now - line.since < QUIET_S:
                return
            del self._lines[what, kind, summary]
            if line.more:
                self._log.warn(summary, more=line.more, what=what, kind=kind)

    def _is_new(self, what: str, kind: str, others: str, summary: str) -> bool:
        key = (what, kind, summary)
        if key not in self._lines and len(self._lines) >= HOSTS_MAX:
            key = (others, kind, summary)
        if key in self._lines:
            self._lines[key].more += 1
            return False
        self._lines[key] = Line(self._clock.seconds())
        return True
