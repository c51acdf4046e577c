"""
The log lines about connections that were closed, or refused something: one a minute for each host and kind of reason,
then how many more there were.

Knows: which host was logged when; how many there were of each kind.  Does not know: connections, why one is closed.

Peers can close connections as fast as they like; the log is on a disk that a bookie needs.  So its growth is bounded:
`HOSTS_MAX` hosts are remembered for a minute, all others share one line.
"""

from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0

QUIET_S = 60.0  # after a line, for its host and kind
HOSTS_MAX = 1000  # with their kinds
OTHERS = "other hosts"


class Complaints:
    """The lines of one listener."""

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self.counts: dict[str, int] = {}  # kind -> how many there were since the start
        # (host, kind) -> when its line was written, how many were not since; oldest first
        self._reported: dict[tuple[str, str], list[float]] = {}

    def report(
        self, peer: str, kind: str, reason: str, failure: Failure | None = None, *, closing: bool = True
    ) -> None:
        """
        The connection from `peer` is closed, or else it is refused something, for a reason of this kind; where in our
        code with `failure`.
        """
        self.counts[kind] = self.counts.get(kind, 0) + 1
        key = (peer.rpartition(":")[0] or peer, kind)
        reported = self._reported
        if key not in reported and len(reported) >= HOSTS_MAX:
            key = (OTHERS, kind)
        if key in reported:
            reported[key][1] += 1
            return
        reported[key] = [self._clock.seconds(), 0]
        text = "closing the connection from {peer}: {reason}" if closing else "refusing what {peer} asks: {reason}"
        if failure is None:
            self._log.warn(text, peer=peer, reason=reason)
        else:
            self._log.failure(text, failure, peer=peer, reason=reason)

    def sweep(self) -> None:
        """Logs how many were left out, once their minute is over."""
        now = self._clock.seconds()
        while self._reported:
            (host, kind), (since, more) = next(iter(self._reported.items()))
            if now - since < QUIET_S:
                return
            del self._reported[host, kind]
            if more:
                self._log.warn(
                    "{more:.0f} more connections from {host} were closed for {kind}", more=more, host=host, kind=kind
                )
