"""
Adds and explicit LACs that found no room in the storage, how they get in when there is room again, and the budget of
what waits.

A bookie that cannot keep up does not refuse them, for a writer takes a refusal for a dead bookie: it keeps them here,
per connection and in order, while fences, reads and recovery of the same connection pass (protocol-rules.md 6.4).

Knows: whose turn it is, and from whom nothing is read because all together have too much that waits.
Does not know: why there was no room, what is written; a connection stops reading from its peer at its own limit.
The budget has what is parked, and the fences and forces that wait for the journal: those find room always, and wait as
long as it does.
Safety: adds of one connection get in in the order they came; no connection starves another (one run each, in turn).
At the bound nothing is read from those of which something waits, so recovery gets through on the others; at twice the
bound no large frame is read further, so that it holds however many send one.
"""

from collections.abc import Callable

from quire.bookie.server.budget import Budget
from quire.bookie.server.contract import Peer, WriteRequest
from quire.protocol.messages import WriteLac

# SPDX-License-Identifier: Apache-2.0

REQUEST_BYTES = 512  # that any request takes in memory beside what its sender gave it, about


def size_of(run: WriteRequest) -> int:
    """Returns about how many bytes a run holds in memory."""
    if isinstance(run, WriteLac):
        return REQUEST_BYTES + len(run.master_key) + len(run.body)
    return (
        REQUEST_BYTES + len(run.master_key) + (len(run.frames) if run.frames is not None else sum(map(len, run.bodies)))
    )


class Parking:
    """
    All connections with parked runs, in the order in which they get their turn.  `admit` takes a run or says False: no
    room; `pending` counts the bytes that wait.
    """

    def __init__(self, admit: Callable[[Peer, WriteRequest], bool], pending: Budget) -> None:
        self.pending = pending
        self._admit = admit
        self._waiting: dict[Peer, None] = {}  # an ordered set
        self._shut_out: dict[Peer, None] = {}  # another one
        self._admitting = False

    @property
    def runs(self) -> int:
        """How many are parked."""
        return sum(len(peer.parked) for peer in self._waiting)

    def park(self, peer: Peer, run: WriteRequest) -> None:
        """Lets a run wait behind those of its connection."""
        self._waiting.setdefault(peer)
        peer.parked.append(run)
        self.pend(peer, size_of(run))

    def pend(self, peer: Peer, size: int) -> None:
        """Adds to what waits of a connection, or subtracts; nothing of one that has ended is in the budget."""
        if peer.alive:
            self.pending.change(peer, size)
            peer.flow()
            if self._shut_out:
                self._let_in()

    def shuts_out(self, peer: Peer) -> bool:
        """True if a large frame is not to be read further; its connection looks again (`flow`) when it is."""
        if self._has_room_for_large():
            return False
        self._shut_out[peer] = None
        return True

    def _has_room_for_large(self) -> bool:
        return self.pending.total < 2 * self.pending.limit

    def _let_in(self) -> None:
        while self._shut_out and self._has_room_for_large():
            peer = next(iter(self._shut_out))
            del self._shut_out[peer]
            peer.flow()

    def relieved(self) -> None:
        """Admits one run of each connection in turn, until the storage has no room again."""
        if self._admitting:  # the storage said so from inside an add
            return
        self._admitting = True
        try:
            while self._waiting:
                peer = next(iter(self._waiting))
                run = peer.parked[0]
                if not self._admit(peer, run):
                    return
                self._waiting.pop(peer, None)
                if not peer.parked:  # answering it ended the connection
                    continue
                peer.parked.popleft()
                self.pend(peer, -size_of(run))
                if peer.parked:
                    self._waiting[peer] = None
        finally:
            self._admitting = False

    def lost(self, peer: Peer) -> None:
        """
        Drops the parked runs of a connection that has ended: they were never taken; its fences and forces wait on,
        without their sender.
        """
        self._waiting.pop(peer, None)
        self._shut_out.pop(peer, None)
        self.pending.release(peer)
        peer.parked.clear()
        self._let_in()
