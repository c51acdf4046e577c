"""
Answers that peers do not take, and which connections are ended when these are too many.

Knows: how much each transport keeps, since when its peer has taken nothing, and the bound of all (`answers_bytes_max`).
Does not know: what was asked and read (`reads`).

What transports keep of their answers is looked at only after all together were given an eighth of the bound, so an
answer costs an addition here, whoever takes it.  A connection has taken nothing since a look when it has not taken what
it had been given until then.

Safety: an address that has more than half of what is not taken pays for it, and none elsewhere.
"""

from collections.abc import Iterable

from quire.bookie.server.budget import Budget
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Peer
from quire.bookie.server.transport import unsent_bytes
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0

LOOK_PART = 8  # of the bound is given between two looks, and about as much is free after one that found too much


class UnsentAnswers:
    """
    The unsent answers of one bookie.  `blocked`: what peers that take none are given meanwhile; `connections`: all that
    may hold answers.
    """

    def __init__(self, clock: Clock, blocked: Budget, complaints: Complaints, connections: Iterable[Peer]) -> None:
        self.blocked = blocked
        self._clock = clock
        self._look_bytes = blocked.limit // LOOK_PART
        self._complaints = complaints
        self._connections = connections
        self._idle: dict[Peer, int] = {}  # what each had been given when it was seen first, longest ago first
        self._given = 0  # to all, since the last look
        self._look_soon: Timer | None = None

    def gave(self, peer: Peer, size: int) -> None:
        """
        Counts an answer that a transport was given, which it may keep.  When all keep too much, connections are closed,
        but not inside what is being done.
        """
        peer.given_bytes += size
        self._given += size
        if peer.choked:  # perhaps by this one
            self.blocked.change(peer, size)
        if self._given > self._look_bytes and self._look_soon is None:
            self._look_soon = self._clock.callLater(0, self._look)

    def took(self, peer: Peer) -> None:
        """Forgets a connection that has taken its answers, or has ended."""
        self.blocked.release(peer)
        self._idle.pop(peer, None)

    def _look(self) -> None:
        self._look_soon, self._given = None, 0
        unsent = {peer: size for peer in self._connections if (size := unsent_bytes(peer.transport))}
        self._idle = {
            peer: given
            for peer, given in self._idle.items()
            if peer in unsent and peer.given_bytes - unsent[peer] < given
        }
        for peer, size in unsent.items():
            self._idle.setdefault(peer, peer.given_bytes)
            if size < (before := self.blocked.held.get(peer, 0)):  # it took a part
                self.blocked.change(peer, size - before)
        if sum(unsent.values()) > self.blocked.limit:
            self._end_longest(unsent)

    def _end_longest(self, sizes: dict[Peer, int]) -> None:
        """Ends those that took nothing for the longest time, first of an address that has more than half."""
        most = self.blocked.limit
        unsent = Budget(most, address_limit=most)
        for peer, size in sizes.items():
            unsent.change(peer, size)
        half = unsent.total / 2
        reason = f"more than {most} bytes of answers are not taken (answersSizeMB), its own for the longest time"
        crowded = {source for source, size in unsent.by_address.items() if size > half}
        payers = sorted(self._idle, key=lambda peer: peer.source not in crowded)
        for peer in unsent.pay(None, payers, LOOK_PART):
            said = f"{reason} of its address, which has most of them" if peer.source in crowded else reason
            self._complaints.report(peer.peer, "answers not taken", said)
            self.took(peer)
            peer.abort()
