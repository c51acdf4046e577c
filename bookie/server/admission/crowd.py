"""
All connections of a bookie, by the address that they come from: how many there may be, what the unfinished frames of
all of them hold, and how fast these must grow.

Knows: who goes when there is too much, of one address or altogether.
Does not know: what was sent; what else a connection holds (`listener`).

An address is one of IPv4, or a /64 of IPv6, of which one machine has any number of addresses.  Nothing here is done
for a whole frame: accounts change when a connection comes, is served for the first time and goes, and when an arrival
ends inside a frame.

Safety: who is too many for its address takes the place of another of its address, and never that of one elsewhere.
What a peer gets by a bound is not renewed by anything but whole requests: the deadline of a frame counts from its
first byte, a connection that was never served goes before all others, and a single byte is no activity.
"""

from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice
from typing import Protocol

from quire.bookie.server.admission.entrance import OUTSIDE_S_MAX
from quire.bookie.server.complaints import Complaints
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0

IDLEST = 64  # found at once, for a look at all costs milliseconds
LATE_AT_ONCE = ENDED_AT_ONCE = 100  # are ended in one turn, or after one look at what all hold
ROOM_PART = 16  # of the bytes that frames may hold: at most so much is free after such a look
FLOOR_S = 10.0  # between two looks at how much a frame has grown
FLOOR_FRAME_BYTES = 64 << 10  # smaller frames have the deadline alone
LARGEST_FRAMES = 2  # for so many there is always room, of each address


class Account:
    """What one address has of it, or all together."""

    __slots__ = ("connections", "idlest", "partial_bytes", "unserved")

    def __init__(self) -> None:
        self.connections = 0
        self.unserved = 0  # of which nothing was served yet
        self.partial_bytes = 0
        self.idlest: list[tuple[float, Member]] = []  # when they were last active, the idlest last


class Member(Protocol):
    """A connection.  It must be hashable."""

    peer: str
    source: str  # the address that it is counted for
    account: Account | None  # that of its address
    alive: bool
    last_active: float  # when whole requests came last
    partial_bytes: int  # kept of an unfinished frame
    partial_since: float | None  # its first byte
    paused_since: float | None  # it is not read from
    outside_since: float | None  # it is not admitted yet
    choked: bool  # it does not take its answers, so it is not read from

    @property
    def frame_bytes(self) -> int:
        """Of the unfinished frame once it is whole."""
        ...

    def abort(self) -> None: ...


def is_large(member: Member) -> bool:
    """
    Whether its unfinished frame must grow, and soon be whole, also while its sender does not take its answers.  Of one
    that reads slowly the last small request may be here in part for as long as it likes.
    """
    return member.frame_bytes > FLOOR_FRAME_BYTES


class Crowd:
    """Those of one bookie."""

    def __init__(self, clock: Clock, options: BookieOptions, complaints: Complaints) -> None:
        self._clock = clock
        self._complaints = complaints
        self._all = Account()
        self._accounts: dict[str, Account] = {}
        self.members: dict[Member, None] = {}  # in the order in which they came
        self._unserved: dict[Member, None] = {}  # in the same order
        self._connections_max = options.connections_max
        self._connections_per_address_max = options.connections_per_address_max
        least = LARGEST_FRAMES * options.frame_bytes_max
        self._partial_bytes_max = max(options.partial_bytes_max, least)
        self._partial_bytes_per_address_max = max(options.partial_bytes_per_address_max, least)
        self._partial_s = options.partial_frame_ms_max / 1000
        self._floor_bytes = options.partial_frame_bytes_per_second_min * FLOOR_S
        self._floor_at = clock.seconds() + FLOOR_S
        self._large: dict[Member, tuple[float | None, int]] = {}  # since when, and its size at the last look

    @property
    def partial_bytes(self) -> int:
        """Of all unfinished frames."""
        return self._all.partial_bytes

    @property
    def addresses(self) -> int:
        """How many addresses the connections come from."""
        return len(self._accounts)

    # connections

    def opened(self, member: Member) -> None:
        """One more; where that is one too many, for its address or altogether, the one that is missed least goes."""
        account = self._accounts.get(member.source)
        if account is not None and account.connections >= self._connections_per_address_max:
            most = f"more than {self._connections_per_address_max} of its address are open (connectionsPerAddressMax)"
            self._make_room(account, "too many connections of an address", most)
        if self._all.connections >= self._connections_max:
            self._make_room(self._all, "their silence", f"more than {self._connections_max} are open (connectionsMax)")
        account = member.account = self._accounts.setdefault(member.source, Account())
        self.members[member] = None
        self._unserved[member] = None
        for one in (account, self._all):
            one.connections += 1
            one.unserved += 1

    def served(self, member: Member) -> None:
        """The first request of a connection was served."""
        account = member.account
        if account is not None and member in self._unserved:
            del self._unserved[member]
            account.unserved -= 1
            self._all.unserved -= 1

    def gone(self, member: Member) -> None:
        """It has ended, or is being closed."""
        account = member.account
        if account is None or member not in self.members:
            return
        self.keeps(member, 0)
        self.served(member)
        del self.members[member]
        account.connections -= 1
        self._all.connections -= 1
        if not account.connections:
            del self._accounts[member.source]

    def _make_room(self, account: Account, kind: str, reason: str) -> None:
        idlest = self._idlest(account)
        self._complaints.report(idlest.peer, kind, f"{reason}, and it was silent longest")
        idlest.abort()

    def _idlest(self, account: Account) -> Member:
        """Of those that nothing was served of yet, the oldest; without such, the one that was silent longest."""
        if account.unserved:
            if account is self._all:
                return next(iter(self._unserved))
            return next(member for member in self._unserved if member.account is account)
        while True:
            while account.idlest:
                last_active, member = account.idlest.pop()
                if member.alive and member.last_active == last_active:
                    return member
            of_account = (member for member in self.members if account in (member.account, self._all))
            found = nsmallest(IDLEST, of_account, key=lambda member: member.last_active)
            account.idlest = [(member.last_active, member) for member in reversed(found)]

    # frames that are not whole

    def keeps(self, member: Member, size: int) -> None:
        """So much of an unfinished frame is kept now.  Where that is too much, `_end_slowest` says who goes."""
        account = member.account
        if account is None or member not in self.members:
            return
        more = size - member.partial_bytes
        member.partial_bytes = size
        account.partial_bytes += more
        self._all.partial_bytes += more
        if more > 0:
            while account.partial_bytes > (most := self._partial_bytes_per_address_max):
                self._end_slowest(account, most, "of one address (partialFramesPerAddressSizeMB)")
            while self._all.partial_bytes > (most := self._partial_bytes_max):
                self._end_slowest(self._all, most, "(partialFramesSizeMB)")

    def _end_slowest(self, account: Account, most: int, whose: str) -> None:
        """
        Of those whose frames hold most, half as much as the largest at least, the slowest since its first byte goes;
        last those that are not read from because what they sent waits: they can't finish.  A look at all is long, so
        more go after it where they are small, until some room is free.
        """
        now = self._clock.seconds()
        holding = [member for member in self.members if member.partial_bytes and account in (member.account, self._all)]
        read = [member for member in holding if member.paused_since is None or member.choked] or holding
        half = max(member.partial_bytes for member in read) / 2

        def bytes_per_second(member: Member) -> float:
            age = now - (now if member.partial_since is None else member.partial_since)
            return member.partial_bytes / age if age > 0 else float("inf")

        large = (member for member in read if member.partial_bytes >= half)
        slowest = nsmallest(ENDED_AT_ONCE, large, key=lambda member: (bytes_per_second(member), -member.partial_bytes))
        room = most // ROOM_PART
        reason = f"more than {most} bytes of frames that are not whole {whose}"
        for member in slowest:
            if account.partial_bytes <= most and most - account.partial_bytes + member.partial_bytes > room:
                return
            said = f"{reason}, and its own is among the largest and the slowest"
            self._complaints.report(member.peer, "unfinished frames", said)
            member.abort()

    def late(self) -> bool:
        """
        Ends connections that have been outside for too long, and those whose frame has been unfinished for too long, or
        grows too slowly; whether that were so many that there may be more.
        """
        now = self._clock.seconds()
        outside = [
            member
            for member in self.members
            if member.outside_since is not None and now - member.outside_since >= OUTSIDE_S_MAX
        ]
        for member in outside[:LATE_AT_ONCE]:
            reason = f"TLS was not on, or its client was not known, after {OUTSIDE_S_MAX:.0f} s"
            self._complaints.report(member.peer, "late handshakes", reason)
            member.abort()
        begun = {
            member: member.partial_since
            for member in self.members
            if member.partial_since is not None
            and (member.paused_since is None or (member.choked and is_large(member)))
        }
        late = [member for member, since in begun.items() if now - since >= self._partial_s]
        for member in islice(late, LATE_AT_ONCE):
            self._complaints.report(member.peer, "late frames", f"a frame was not whole after {self._partial_s:.0f} s")
            member.abort()
        if len(late) <= LATE_AT_ONCE and now >= self._floor_at:
            self._floor_at = now + FLOOR_S
            self._end_slow(member for member in begun if member.alive and is_large(member) and not member.choked)
        return len(late) > LATE_AT_ONCE or len(outside) > LATE_AT_ONCE

    def _end_slow(self, begun: Iterable[Member]) -> None:
        """Those of frames that are the same as at the last look and have hardly grown since."""
        before, self._large = self._large, {}
        for member in begun:
            since, size = before.get(member, (None, 0))
            if since == member.partial_since and member.partial_bytes - size < self._floor_bytes:
                self._complaints.report(
                    member.peer,
                    "slow frames",
                    f"{member.partial_bytes - size} bytes of a frame of {member.frame_bytes} came in {FLOOR_S:.0f} s "
                    "(partialFrameBytesPerSecondMin)",
                )
                member.abort()
            else:
                self._large[member] = (member.partial_since, member.partial_bytes)
