"""
Limits of connections: a bookie ends some when there are too many, when their unfinished frames hold too much, and when
they are late; and when answers that their peers do not take are too many.

Knows: how many there are and what their frames hold, of each address and altogether, and who goes first; how much each
transport keeps of its answers, since when its peer has taken nothing, and the bound of all.
Does not know: what was sent, what was asked and read (`reads`).

An address is one of IPv4, or a /64 of IPv6, of which one machine has any number of addresses.  Nothing here is done
for a whole frame: budgets change when a connection comes, is served for the first time and goes, and when an arrival
ends inside a frame.

Safety: a connection that is one too many for its address takes the place of another of its address, and never that of
one elsewhere; one that has more than half of the answers that are not taken pays for them.  What a peer gets by a bound
is not renewed by anything but whole requests: the deadline of a frame counts from its first byte, a connection that was
never served goes before all others, and a single byte is no activity.
"""

from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice

from quire.bookie.server.admission.entrance import OUTSIDE_S_MAX
from quire.bookie.server.budget import Budget, Scope
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Peer
from quire.bookie.server.transport import unsent_bytes
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0

LOOK_PART = 8  # of the bound is given between two looks, and about as much is free after one that found too much


class UnsentAnswers:
    """
    The unsent answers of one bookie.  `blocked`: what peers that take none are given meanwhile; `connections`: all that
    may hold answers.

    What transports keep of their answers is looked at only after all together were given an eighth of the bound, so an
    answer costs an addition here, whoever takes it.  A connection has taken nothing since a look when it has not taken
    what it had been given until then.
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
        """Counts an answer given to a transport.  Where all keep too much, connections close after this turn."""
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


IDLEST = 64  # found at once, for a look at all costs milliseconds
LATE_AT_ONCE = ENDED_AT_ONCE = 100  # are ended in one turn, or after one look at what all hold
ROOM_PART = 16  # of the bytes that frames may hold: at most so much is free after such a look
FLOOR_S = 10.0  # between two looks at how much a frame has grown
FLOOR_FRAME_BYTES = 64 << 10  # smaller frames have the deadline alone
LARGEST_FRAMES = 2  # for so many there is always room, of each address


def is_large(peer: Peer) -> bool:
    """
    True if its unfinished frame must grow, and soon be whole, also while its sender does not take its answers.  Of one
    that reads slowly the last small request may be here in part for as long as it likes.
    """
    return peer.frame_bytes > FLOOR_FRAME_BYTES


class ConnectionLimits:
    """The limits of one bookie's connections, and what counts against them."""

    def __init__(self, clock: Clock, options: BookieOptions, complaints: Complaints) -> None:
        self._clock = clock
        self._complaints = complaints
        self.open = Budget(options.connections_max, options.connections_per_address_max)
        self.unserved = Budget(self.open.limit, self.open.address_limit)  # of these, before their first request
        least = LARGEST_FRAMES * options.frame_bytes_max
        self.partial = Budget(  # bytes of frames that are not whole
            max(options.partial_bytes_max, least), max(options.partial_bytes_per_address_max, least)
        )
        self._idlest: dict[Scope, list[tuple[float, Peer]]] = {}  # when they were last active, the idlest last
        self._partial_s = options.partial_frame_ms_max / 1000
        self._floor_bytes = options.partial_frame_bytes_per_second_min * FLOOR_S
        self._floor_at = clock.seconds() + FLOOR_S
        self._large: dict[Peer, tuple[float | None, int]] = {}  # since when, and its size at the last look

    # connections

    def opened(self, peer: Peer) -> None:
        """Counts one more; where that is one too many, for its address or altogether, the one missed least goes."""
        self.open.change(peer, 1)
        for scope in self.open.overdrawn(peer.source):
            most = self.open.limit_of(scope)
            if scope is None:
                kind, reason = "their silence", f"more than {most} are open (connectionsMax)"
            else:
                kind = "too many connections of an address"
                reason = f"more than {most} of its address are open (connectionsPerAddressMax)"
            idlest = self._find_idlest(scope)
            self._complaints.report(idlest.peer, kind, f"{reason}, and it was silent longest")
            idlest.abort()
        self.unserved.change(peer, 1)

    def gone(self, peer: Peer) -> None:
        """Forgets a connection that has ended, or is being closed."""
        for budget in (self.open, self.unserved, self.partial):
            budget.release(peer)
        if peer.source not in self.open.by_address:
            self._idlest.pop(peer.source, None)

    def _find_idlest(self, scope: Scope) -> Peer:
        """Returns the oldest of those never served; without such, the one that was silent longest."""
        if self.unserved.amount(scope):
            return next(self.unserved.holders(scope))
        idlest = self._idlest.setdefault(scope, [])
        while True:
            while idlest:
                last_active, peer = idlest.pop()
                if peer.alive and peer.last_active == last_active:
                    return peer
            found = nsmallest(IDLEST, self.open.holders(scope), key=lambda peer: peer.last_active)
            idlest += [(peer.last_active, peer) for peer in reversed(found)]

    # frames that are not whole

    def trim(self, source: str) -> None:
        """Ends connections while unfinished frames, of this address or altogether, hold too much."""
        for scope in self.partial.overdrawn(source):
            self._end_slowest(scope)

    def _end_slowest(self, scope: Scope) -> None:
        """
        Ends, of those whose frames hold most, half as much as the largest at least, the slowest since its first byte;
        last those that are not read from because what they sent waits: they can't finish.  A look at all is long, so
        more go after it where they are small, until some room is free.
        """
        now, held = self._clock.seconds(), self.partial.held
        holding = list(self.partial.holders(scope))
        read = [peer for peer in holding if peer.paused_since is None or peer.choked] or holding
        half = max(held[peer] for peer in read) / 2

        def bytes_per_second(peer: Peer) -> float:
            age = now - (now if peer.partial_since is None else peer.partial_since)
            return held[peer] / age if age > 0 else float("inf")

        large = (peer for peer in read if held[peer] >= half)
        slowest = nsmallest(ENDED_AT_ONCE, large, key=lambda peer: (bytes_per_second(peer), -held[peer]))
        whose = "(partialFramesSizeMB)" if scope is None else "of one address (partialFramesPerAddressSizeMB)"
        reason = f"more than {self.partial.limit_of(scope)} bytes of frames that are not whole {whose}"
        for peer in self.partial.pay(scope, slowest, ROOM_PART):
            said = f"{reason}, and its own is among the largest and the slowest"
            self._complaints.report(peer.peer, "unfinished frames", said)
            peer.abort()

    def late(self) -> bool:
        """Ends connections that are outside, or in a frame, for too long; True if there may be more of them."""
        now = self._clock.seconds()
        outside = [
            peer
            for peer in self.open.held
            if peer.outside_since is not None and now - peer.outside_since >= OUTSIDE_S_MAX
        ]
        for peer in outside[:LATE_AT_ONCE]:
            reason = f"TLS was not on, or its client was not known, after {OUTSIDE_S_MAX:.0f} s"
            self._complaints.report(peer.peer, "late handshakes", reason)
            peer.abort()
        begun = {
            peer: peer.partial_since
            for peer in self.partial.held
            if peer.partial_since is not None and (peer.paused_since is None or (peer.choked and is_large(peer)))
        }
        late = [peer for peer, since in begun.items() if now - since >= self._partial_s]
        for peer in islice(late, LATE_AT_ONCE):
            self._complaints.report(peer.peer, "late frames", f"a frame was not whole after {self._partial_s:.0f} s")
            peer.abort()
        if len(late) <= LATE_AT_ONCE and now >= self._floor_at:
            self._floor_at = now + FLOOR_S
            self._end_slow(peer for peer in begun if peer.alive and is_large(peer) and not peer.choked)
        return len(late) > LATE_AT_ONCE or len(outside) > LATE_AT_ONCE

    def _end_slow(self, begun: Iterable[Peer]) -> None:
        """Ends those whose frame is the same as at the last look and has hardly grown since."""
        held = self.partial.held
        before, self._large = self._large, {}
        for peer in begun:
            since, size = before.get(peer, (None, 0))
            if since == peer.partial_since and held[peer] - size < self._floor_bytes:
                self._complaints.report(
                    peer.peer,
                    "slow frames",
                    f"{held[peer] - size} bytes of a frame of {peer.frame_bytes} came in {FLOOR_S:.0f} s "
                    "(partialFrameBytesPerSecondMin)",
                )
                peer.abort()
            else:
                self._large[peer] = (peer.partial_since, held[peer])
