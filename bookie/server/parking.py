"""
Adds and explicit LACs that found no room in the storage, how they get in when there is room again, and the account of
what waits.

A bookie that cannot keep up does not refuse them, for a writer takes a refusal for a dead bookie: it keeps them here,
per connection and in order, while fences, reads and recovery of the same connection pass (protocol-rules.md 6.4).

Knows: whose turn it is, and from whom nothing is read because all together have too much that waits.
Does not know: why there was no room, what is written; the bound per connection is the connection's own, which stops
reading from its peer there.
The account has what is parked, and the fences and forces that wait for the journal: those find room always, and wait as
long as it does.
Safety: adds of one connection get in in the order they came; no connection starves another (one run each, in turn).
At the bound nothing is read from those of which something waits, so recovery gets through on the others; at twice the
bound no large frame is read further, so that it holds however many send one.
"""

from collections.abc import Callable

from quire.bookie.server.contract import Peer, WriteRequest
from quire.protocol.messages import WriteLac

# SPDX-License-Identifier: Apache-2.0

REQUEST_BYTES = 512  # that any request takes in memory beside what its sender gave it, about


def size_of(run: WriteRequest) -> int:
    """Bytes that a run holds in memory, about."""
    if isinstance(run, WriteLac):
        return REQUEST_BYTES + len(run.master_key) + len(run.body)
    return (
        REQUEST_BYTES + len(run.master_key) + (len(run.frames) if run.frames is not None else sum(map(len, run.bodies)))
    )


class Parking:
    """
    All connections with parked runs, in the order in which they get their turn.  `admit` takes a run or says False: no
    room; about `bytes_max` may wait.
    """

    def __init__(self, admit: Callable[[Peer, WriteRequest], bool], bytes_max: int) -> None:
        self._admit = admit
        self._bytes_max = bytes_max
        self._waiting: dict[Peer, None] = {}  # an ordered set
        self._shut_out: dict[Peer, None] = {}  # likewise
        self.runs = 0
        self.bytes = 0  # that wait, of all connections
        self._admitting = False

    def park(self, peer: Peer, run: WriteRequest) -> None:
        self._waiting.setdefault(peer)
        self.runs += 1
        peer.parked.append(run)
        self.pend(peer, size_of(run))

    def pend(self, peer: Peer, size: int) -> None:
        """So much more, or less, of a connection waits; nothing of one that has ended is in the account."""
        if peer.alive:
            self.bytes += size
            peer.pend(size)
            self._let_in()

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._bytes_max

    def shuts_out(self, peer: Peer) -> bool:
        """Whether a large frame is not to be read further; its connection is told to look again when it is."""
        if self.bytes < 2 * self._bytes_max:
            return False
        self._shut_out[peer] = None
        return True

    def _let_in(self) -> None:
        while self._shut_out and self.bytes < 2 * self._bytes_max:
            peer = next(iter(self._shut_out))
            del self._shut_out[peer]
            peer.pend(0)

    def relieved(self) -> None:
        """The storage has room again: one run of each connection in turn, until it has none."""
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
                self.runs -= 1
                self.pend(peer, -size_of(run))
                if peer.parked:
                    self._waiting[peer] = None
        finally:
            self._admitting = False

    def lost(self, peer: Peer) -> None:
        """
        A connection has ended: its parked runs were never taken, and are dropped; its fences and forces wait on,
        without their sender.
        """
        self._waiting.pop(peer, None)
        self._shut_out.pop(peer, None)
        self.runs -= len(peer.parked)
        self.bytes -= peer.pending_bytes
        peer.parked.clear()
        peer.pending_bytes = 0
        self._let_in()
