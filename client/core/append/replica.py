"""
What a writer knows of one bookie at one place of the ensemble: what was sent, what came back.

Knows: the watermark and the stragglers of protocol-rules.md 6.2, and the bytes sent and not yet answered.
Does not know: other replicas, quorums of an entry, channels' connections.

Safety: an acknowledgement never implies a lower one.  The watermark moves over a gap only when the entries in the gap
are settled, which is to say that the writer acknowledged them to its caller already.
"""

from collections import deque
from enum import Enum, auto

from quire.client.core.quorum import Quorums

# SPDX-License-Identifier: Apache-2.0


class Standing(Enum):
    """What a writer does with a replica."""

    FRESH = auto()  # brought by the change under way; at its end it gets all that is not acknowledged
    LIVE = auto()  # it gets every add of its index
    LAPSED = auto()  # its channel failed while nothing unacknowledged needed it; the next append decides
    FAILED = auto()  # it is to be replaced by the ensemble change that is under way or next
    OUT = auto()  # there was no spare for it: the ledger goes on without it (D17)


class Replica:
    """One bookie at one index.  A replacement is a new `Replica`; so is the same bookie after it came back."""

    __slots__ = (
        "backlog",
        "bookie",
        "channel",
        "failure",
        "failure_code",
        "heard",
        "index",
        "missed",
        "opened",
        "sent",
        "standing",
        "stragglers",
        "unanswered",
        "watermark",
    )

    def __init__(self, index: int, bookie: str, channel: int, settled: int) -> None:
        self.index = index
        self.bookie = bookie
        self.channel = channel  # a number used once in the life of a writer: late answers of other channels are ignored
        self.opened = False
        self.failure = ""  # how it failed
        self.failure_code = 0
        self.heard = False  # whether it answered anything on this channel
        self.standing = Standing.LIVE
        self.missed = False  # whether a lapsed one left adds unanswered
        self.watermark = settled  # every entry of this index up to here was acknowledged, or is settled
        self.stragglers: set[int] = set()  # acknowledged ids above it
        self.sent = settled  # the highest id sent on this channel
        self.unanswered: deque[tuple[int, int]] = deque()  # (last id, bytes) of batches on their way, for the backlog
        self.backlog = 0  # payload bytes sent and not answered

    def send(self, last: int, size: int) -> None:
        """Notes a batch up to `last` with `size` payload bytes for this bookie."""
        self.sent = max(self.sent, last)
        self.unanswered.append((last, size))
        self.backlog += size

    def acknowledge(self, first: int, last: int, settled: int, quorums: Quorums) -> bool:
        """
        Takes the answers to the entries of this index among first..last, which were all sent.  `settled`: the highest
        id acknowledged to the caller.  Returns whether anything new was learned.
        """
        self.heard = True
        mark = self.watermark
        base = mark if mark > settled else settled
        following = quorums.next_of(self.index, base)
        if first > following:  # out of order: something lower has not been answered yet
            before = len(self.stragglers)
            self.stragglers.update(quorums.entries_of(self.index, first, last))
            return len(self.stragglers) != before
        if last <= mark:
            return False
        self.watermark = last
        if self.stragglers:
            self._absorb(quorums)
        self._answered()
        return True

    def settle(self, settled: int, quorums: Quorums) -> None:
        """Everything up to `settled` was acknowledged to the caller: gaps below it no longer count."""
        if self.stragglers and self.watermark < settled:
            self.watermark = settled
            self._absorb(quorums)
            self._answered()

    def _absorb(self, quorums: Quorums) -> None:
        mark, stragglers = self.watermark, self.stragglers
        while (following := quorums.next_of(self.index, mark)) in stragglers:
            mark = following
        self.watermark = mark
        self.stragglers = {entry for entry in stragglers if entry > mark}

    def _answered(self) -> None:
        mark, unanswered = self.watermark, self.unanswered
        while unanswered and unanswered[0][0] <= mark:
            self.backlog -= unanswered.popleft()[1]

    def holds(self, entry: int) -> bool:
        """Whether this bookie acknowledged `entry`, one of its index that is not settled."""
        return entry <= self.watermark or entry in self.stragglers
