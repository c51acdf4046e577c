"""
Adds and explicit LACs that found no room in the storage, how they get in when there is room again, and the budget of
what waits; and copies that a repair stores here, which wait while writers append (`GivingWay`).

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

from collections import deque
from collections.abc import Callable

from quire.bookie.server.budget import Budget
from quire.bookie.server.contract import Peer, WriteRequest
from quire.metadata.clock import Clock, Timer
from quire.metrics.histogram import Histogram
from quire.protocol.messages import AddRun, WriteLac

# SPDX-License-Identifier: Apache-2.0

BUSY_S = 1.0  # for so long after an append others are expected
SHARE = 0.05  # of the time a turn of copies may be under way then
TURN_BYTES = 64 << 10  # begun in one turn, and one run
WAIT_S = 1.0  # of what has waited for so long more is begun, and sooner
LATE_BYTES = 1 << 20
LATE_REST_S = 0.05
REQUEST_BYTES = 512  # that any request takes in memory beside what its sender gave it, about


def size_of(run: WriteRequest) -> int:
    """Returns about how many bytes a run holds in memory."""
    if isinstance(run, WriteLac):
        return REQUEST_BYTES + len(run.master_key) + len(run.body)
    return (
        REQUEST_BYTES + len(run.master_key) + (len(run.frames) if run.frames is not None else sum(map(len, run.bodies)))
    )


class Parking:
    """All connections with parked runs, in turn.  `admit`: False is no room; `pending` counts the bytes that wait."""

    def __init__(self, clock: Clock, admit: Callable[[Peer, WriteRequest], bool], pending: Budget) -> None:
        self.pending = pending
        self.times = Histogram()  # of runs that got in, from when they were parked
        self._clock = clock
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
        peer.parked.append((self._clock.seconds(), run))
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
                since, run = peer.parked[0]
                if not self._admit(peer, run):
                    return
                self._waiting.pop(peer, None)
                if not peer.parked:  # answering it ended the connection
                    continue
                peer.parked.popleft()
                self.times.observe(self._clock.seconds() - since)
                self.pend(peer, -size_of(run))
                if peer.parked:
                    self._waiting[peer] = None
        finally:
            self._admitting = False

    def lost(self, peer: Peer) -> None:
        """Drops parked runs of an ended connection: they were never taken; its fences and forces wait on."""
        self._waiting.pop(peer, None)
        self._shut_out.pop(peer, None)
        self.pending.release(peer)
        peer.parked.clear()
        self._let_in()


class GivingWay:
    """
    The copies of all connections, in the order in which they came.  `begin` hands one to the storage; `pend` counts
    what waits of a connection.

    A recovery add without priority is a copy (wire.md 2.3), of ours and of Apache's.  A bookie that nobody appends to
    takes copies as they come; of one that is appended to they get a turn of a few runs, then a rest that is longer by
    what the share says.  A repair feels the wait, and asks for less.  What waits counts as pending for its connection,
    which stops reading at its limit; nothing waits much longer than `WAIT_S`, for its sender would give up.
    """

    def __init__(self, clock: Clock, begin: Callable[[Peer, AddRun], None], pend: Callable[[Peer, int], None]) -> None:
        self.appended = False  # a writer's add came since the last look
        self.times = Histogram()  # of runs whose turn came
        self._clock = clock
        self._begin = begin
        self._pend = pend
        self._waiting: deque[tuple[float, Peer]] = deque()  # since when the next run of each waits
        self._dropped = 0  # of these, whose connection has ended
        self._busy_until = float("-inf")
        self._began = 0.0  # the turn under way, or the last one
        self._last: AddRun | None = None  # of the turn under way
        self._free_at = float("-inf")  # when the next turn may begin
        self._timer: Timer | None = None
        self._beginning = False

    @property
    def runs(self) -> int:
        """How many wait."""
        return len(self._waiting) - self._dropped

    def take(self, peer: Peer, run: AddRun) -> None:
        """Begins a copy, or lets it wait for its turn."""
        if not self._waiting and not self._busy():
            self._begin(peer, run)
            return
        self._waiting.append((self._clock.seconds(), peer))
        if peer.copies is None:
            peer.copies = deque()
        peer.copies.append(run)
        self._pend(peer, size_of(run))
        self._go_on()

    def lost(self, peer: Peer) -> None:
        """Drops what waits of a connection that has ended: it was never taken."""
        if peer.copies:
            self._dropped += len(peer.copies)
            if 2 * self._dropped > len(self._waiting):
                self._waiting = deque(each for each in self._waiting if each[1] is not peer and each[1].copies)
                self._dropped = 0
        peer.copies = None

    def over(self, run: AddRun) -> None:
        """Notes that a copy was answered.  The last one of a turn says how long the bookie rests from copies."""
        if run is not self._last:
            return
        self._last = None
        now = self._clock.seconds()
        late = bool(self._waiting) and now - self._waiting[0][0] >= WAIT_S
        self._free_at = now + min((now - self._began) * (1 / SHARE - 1), LATE_REST_S if late else WAIT_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._go_on()

    def _busy(self) -> bool:
        now = self._clock.seconds()
        if self.appended:
            self.appended = False
            self._busy_until = now + BUSY_S
        return now < self._busy_until

    def _go_on(self) -> None:
        """Begins the next turn, now or at its time; inside one, after it."""
        while self._waiting and self._timer is None and not self._beginning:
            busy = self._busy()
            left = min(self._free_at, self._busy_until) - self._clock.seconds()
            if busy and left > 0:
                self._timer = self._clock.callLater(left, self._timed)
            else:
                self._turn(busy)

    def _timed(self) -> None:
        self._timer = None
        self._go_on()

    def _turn(self, busy: bool) -> None:
        """Begins what may be begun now.  A turn of whose end nothing is heard is over after `WAIT_S`."""
        now = self._began = self._clock.seconds()
        waiting = self._waiting
        turn: list[tuple[Peer, AddRun]] = []
        size = 0
        while waiting:
            since, peer = waiting[0]
            if busy and size >= (TURN_BYTES if now - since < WAIT_S else LATE_BYTES):
                break
            waiting.popleft()
            self._dropped -= not peer.copies
            if peer.copies:
                run = peer.copies.popleft()
                self.times.observe(now - since)
                self._pend(peer, -size_of(run))
                turn.append((peer, run))
                size += size_of(run)
        if turn and busy:
            self._last = turn[-1][1]
            self._free_at = now + WAIT_S
        self._beginning = True
        try:
            for peer, run in turn:
                self._begin(peer, run)
        finally:
            self._beginning = False
