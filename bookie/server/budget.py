"""
A budget: what connections hold of one thing of which a server has only so much: places, requests or bytes.

Knows: how much each connection, each address and all together hold, and their limits.
Does not know: what is held, and what happens at a limit; docs/security.md 11 has both, for each budget.

A change costs one call, whatever was sent, and a connection that holds nothing has no entry.

Safety: an address pays for itself: as long as one holds more than its limit, only its own connections are ended.
"""

from collections.abc import Iterable, Iterator
from sys import maxsize

from quire.bookie.server.contract import Peer

# SPDX-License-Identifier: Apache-2.0

Scope = str | None  # one address, or all together


class Budget:
    """Counts what connections hold of one thing.  `limit`: all; `address_limit`, `connection_limit`: one."""

    __slots__ = ("address_limit", "by_address", "connection_limit", "held", "limit", "total")

    def __init__(self, limit: int = maxsize, address_limit: int = maxsize, connection_limit: int = maxsize) -> None:
        self.limit = limit
        self.address_limit = address_limit
        self.connection_limit = connection_limit
        self.total = 0
        self.by_address: dict[str, int] = {}  # only where an address has a limit
        self.held: dict[Peer, int] = {}  # in the order in which connections began to hold something

    def change(self, peer: Peer, size: int) -> bool:
        """Adds to what a connection holds, or subtracts; True if its address, or all together, hold too much now."""
        self.total += size
        held = self.held
        if own := held.get(peer, 0) + size:
            held[peer] = own
        else:
            held.pop(peer, None)
        if self.address_limit == maxsize:
            return self.total > self.limit
        by_address, source = self.by_address, peer.source
        if of_address := by_address.get(source, 0) + size:
            by_address[source] = of_address
        else:
            by_address.pop(source, None)
        return self.total > self.limit or of_address > self.address_limit

    def release(self, peer: Peer) -> None:
        """Subtracts all that a connection holds."""
        if peer in self.held:
            self.change(peer, -self.held[peer])

    @property
    def is_full(self) -> bool:
        """True if all together hold their limit."""
        return self.total >= self.limit

    def is_full_for(self, peer: Peer) -> bool:
        """True if this connection, or all together, hold their limit."""
        return self.total >= self.limit or self.held.get(peer, 0) >= self.connection_limit

    def limit_of(self, scope: Scope) -> int:
        """Returns what an address may hold, or all together."""
        return self.limit if scope is None else self.address_limit

    def amount(self, scope: Scope) -> int:
        """Returns what an address holds, or all together."""
        return self.total if scope is None else self.by_address.get(scope, 0)

    def holders(self, scope: Scope) -> Iterator[Peer]:
        """Yields the connections of an address that hold something, or all of them, the first to do so first."""
        return (peer for peer in self.held if scope is None or peer.source == scope)

    def overdrawn(self, source: str) -> Iterator[Scope]:
        """Yields an address while it holds more than its limit, then None while all together do."""
        while self.by_address.get(source, 0) > self.address_limit:
            yield source
        while self.total > self.limit:
            yield None

    def pay(self, scope: Scope, payers: Iterable[Peer], room_part: int) -> Iterator[Peer]:
        """
        Yields those of `payers` that are to be ended, in their order, and counts them no more: as many as hold what is
        too much, then small ones until nearly one in `room_part` of the limit is free, so that the next look is not
        soon.
        """
        limit = self.limit_of(scope)
        for peer in payers:
            free = limit - self.amount(scope)
            if free >= 0 and free + self.held.get(peer, 0) > limit // room_part:
                return
            yield peer
            self.release(peer)
