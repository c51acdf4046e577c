"""
What is said of connections that were closed: a line a minute for each host and kind of reason, then how many more there
were.

Knows: who was told of when.  Does not know: connections, why one is closed.

Peers can close connections as fast as they like; the log lies on a disk that a bookie needs.  So its growth is bounded:
`HOSTS_MAX` hosts are remembered for a minute, all others are told together.
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
        # (host, kind) -> when its line was written, how many were not since; oldest first
        self._told: dict[tuple[str, str], list[float]] = {}

    def tell(self, peer: str, kind: str, reason: str, failure: Failure | None = None) -> None:
        """The connection from `peer` is closed, for a reason of this kind; where in our code with `failure`."""
        key = (peer.rpartition(":")[0] or peer, kind)
        told = self._told
        if key not in told and len(told) >= HOSTS_MAX:
            key = (OTHERS, kind)
        if key in told:
            told[key][1] += 1
            return
        told[key] = [self._clock.seconds(), 0]
        text = "closing the connection from {peer}: {reason}"
        if failure is None:
            self._log.warn(text, peer=peer, reason=reason)
        else:
            self._log.failure(text, failure, peer=peer, reason=reason)

    def sweep(self) -> None:
        """Tells of those that were left out, once their minute is over."""
        now = self._clock.seconds()
        while self._told:
            (host, kind), (since, more) = next(iter(self._told.items()))
            if now - since < QUIET_S:
                return
            del self._told[host, kind]
            if more:
                self._log.warn(
                    "{more:.0f} more connections from {host} were closed for {kind}", more=more, host=host, kind=kind
                )
