"""
Copies that a repair stores here, which wait while writers append.

Knows: that a recovery add without priority is a copy (wire.md 2.3), of ours and of Apache's; how much of the time
copies get of a bookie that is appended to: a turn of a few runs, and a rest that is longer by what the share says.
Does not know: what a run holds, who repairs what.  A repair feels the wait, and asks for less.

A bookie that nobody appends to takes copies as they come.  What waits counts as pending for its connection, which
stops reading at its limit; nothing waits much longer than `WAIT_S`, for its sender would give up.
"""

from collections import deque
from collections.abc import Callable

from quire.bookie.server.contract import Peer
from quire.bookie.server.parking import size_of
from quire.metadata.clock import Clock, Timer
from quire.protocol.messages import AddRun

# SPDX-License-Identifier: Apache-2.0

BUSY_S = 1.0  # for so long after an append others are expected
SHARE = 0.05  # of the time a turn of copies may be under way then
TURN_BYTES = 64 << 10  # begun in one turn, and one run
WAIT_S = 1.0  # of what has waited for so long more is begun, and sooner
LATE_BYTES = 1 << 20
LATE_REST_S = 0.05


class GivingWay:
    """
    The copies of all connections, in the order in which they came.  `begin` hands one to the storage; `pend` counts
    what waits of a connection.
    """

    def __init__(self, clock: Clock, begin: Callable[[Peer, AddRun], None], pend: Callable[[Peer, int], None]) -> None:
        self.appended = False  # a writer's add came since the last look
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
