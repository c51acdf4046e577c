"""
Reads that wait for a ledger's last add confirmed to move (wire.md 6.6).

Knows: when a poll is answered at once, what wakes one, and what it is answered.
Does not know: connections beyond `Peer`, how a ledger's LAC comes about.

A poll holds one timer; all polls of a ledger share one watcher.  Both go when the poll is answered or its connection
ends.  An advance of the LAC looks at those that it wakes, and at no others; one peer leaves room for others.  One add
may wake thousands: those of them that find the turn of the reactor full are answered without the entry, which each
reads by itself then.
Safety: a poll is answered once.  Nothing but the end of its connection leaves it unanswered.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from quire.bookie.server.budget import Budget
from quire.bookie.server.contract import Peer
from quire.bookie.server.reads import Reads, then
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer, time_of_day
from quire.protocol import wire
from quire.protocol.digest import LAC_HEADER, explicit_lac
from quire.protocol.errors import Status
from quire.protocol.messages import EVIDENCE_BYTES_MAX, LAST_ENTRY, Read, ReadReply

if TYPE_CHECKING:
    from quire.bookie.storage.ledgers import StoredLedger

# SPDX-License-Identifier: Apache-2.0

NO_ENTRY = -1  # as the entry id of an answer without an entry
GONE_MAX = 64  # polls that wait no longer and are kept in order beside the others
PEER_PART = 4  # of what may wait a peer leaves one in so many to others
WAIT_MS_MAX = 60_000  # an earlier answer than asked for is legal, and a peer that wants to wait for ever may ask again


class Poll:
    """One request that waits; `rank`: the LAC that its reader knows, then which poll of the ledger it is."""

    __slots__ = ("peer", "rank", "request", "timer")

    def __init__(self, peer: Peer, request: Read, timer: Timer, rank: tuple[int, int]) -> None:
        self.peer = peer
        self.request = request
        self.timer = timer
        self.rank = rank

    def __lt__(self, other: "Poll") -> bool:
        return self.rank < other.rank


class Waiters:
    """The polls of one ledger, and what the ledger looked like when the first of them came."""

    __slots__ = ("by_lac", "count", "explicit_lac", "fenced", "polls", "view", "watcher")

    def __init__(self, view: "StoredLedger", explicit_lac: bytes | None, watcher: Callable[[], None]) -> None:
        self.view = view
        self.watcher = watcher
        self.fenced = view.fenced
        self.explicit_lac = explicit_lac
        self.polls: dict[Poll, None] = {}  # in the order in which they came
        self.by_lac: list[Poll] = []  # a heap of them, and of some that wait no longer
        self.count = 0  # that ever came

    def pass_over(self) -> None:
        """Takes polls that wait no longer from the heap, once they are most of it."""
        if len(self.by_lac) > 2 * len(self.polls) + GONE_MAX:
            self.by_lac = list(self.polls)
            heapify(self.by_lac)


class LongPolls:
    """All polls of one bookie."""

    def __init__(self, clock: Clock, options: BookieOptions, reads: Reads) -> None:
        most = options.long_polls_max
        self.waiting = Budget(most, connection_limit=most - most // PEER_PART)
        self._clock = clock
        self._reads = reads
        self._storage = reads.storage
        self._waiters: dict[int, Waiters] = {}
        self.awaited = self._waiters.keys()  # ledgers for whose next entry some reader waits
        self._of_peer: dict[Peer, dict[Poll, None]] = {}

    def add(self, peer: Peer, request: Read) -> None:
        """Answers a poll now or later.  A disk may have to be asked for either, and only so many wait for that."""
        if not self._reads.room(peer) and self._reads.rejects(peer, request):
            return
        if request.timeout_ms is None:
            self._answer(peer, request)
        elif self._storage.ledger(request.ledger) is None:
            # Unknown, or perhaps lost: the storage says which.
            self._reads.follow(
                peer,
                request,
                then(self._storage.read(request.ledger, LAST_ENTRY), lambda found: self._unknown(peer, request, found)),
            )
        else:
            self._reads.follow(
                peer, request, then(self._storage.lac(request.ledger), lambda lac: self._consider(peer, request, lac))
            )

    def lost(self, peer: Peer) -> None:
        """Forgets the polls of a connection that has ended."""
        for poll in list(self._of_peer.get(peer, ())):
            self._remove(poll)

    def _unknown(self, peer: Peer, request: Read, found: bytes | Status) -> None:
        if isinstance(found, Status):
            self._reads.refuse(peer, request, found)
        else:
            self._answer(peer, request)

    def _consider(self, peer: Peer, request: Read, lac: int) -> None:
        view = self._storage.ledger(request.ledger)
        assert request.previous_lac is not None
        assert request.timeout_ms is not None
        if view is None or lac > request.previous_lac or request.timeout_ms <= 0:
            self._answer(peer, request)
        elif self.waiting.is_full_for(peer):
            self._reads.refuse(peer, request, Status.ETOOMANYREQUESTS)
        elif peer.alive:
            self._wait(peer, request, view)

    def _wait(self, peer: Peer, request: Read, view: "StoredLedger") -> None:
        ledger = request.ledger
        waiters = self._waiters.get(ledger)
        if waiters is None:
            waiters = self._waiters[ledger] = Waiters(
                view, self._storage.explicit_lac(ledger), lambda: self._moved(ledger)
            )
            view.watch(waiters.watcher)
        assert request.timeout_ms is not None
        assert request.previous_lac is not None
        poll = Poll(
            peer,
            request,
            self._clock.callLater(min(request.timeout_ms, WAIT_MS_MAX) / 1000, lambda: self._expired(poll)),
            (request.previous_lac, waiters.count),
        )
        waiters.count += 1
        waiters.polls[poll] = None
        heappush(waiters.by_lac, poll)
        self._of_peer.setdefault(peer, {})[poll] = None
        self.waiting.change(peer, 1)

    def _remove(self, poll: Poll) -> None:
        ledger = poll.request.ledger
        of_peer = self._of_peer[poll.peer]
        del of_peer[poll]
        if not of_peer:
            del self._of_peer[poll.peer]
        waiters = self._waiters[ledger]
        del waiters.polls[poll]
        waiters.pass_over()
        self.waiting.change(poll.peer, -1)
        timer = poll.timer
        del poll.timer  # one that has fired holds the poll: both would stay until the collector comes
        if timer.active():
            timer.cancel()
        if not waiters.polls:
            del self._waiters[ledger]
            waiters.view.unwatch(waiters.watcher)

    def _expired(self, poll: Poll) -> None:
        self._remove(poll)
        self._answer(poll.peer, poll.request)

    def _moved(self, ledger: int) -> None:
        """Wakes polls of a ledger whose LAC rose, or that was fenced, deleted, or given an explicit LAC."""
        waiters = self._waiters[ledger]
        explicit_lac = self._storage.explicit_lac(ledger)
        all_of_them = (
            self._storage.ledger(ledger) is not waiters.view
            or waiters.view.fenced != waiters.fenced
            or explicit_lac != waiters.explicit_lac
        )
        waiters.fenced, waiters.explicit_lac = waiters.view.fenced, explicit_lac
        lac = self._storage.lac(ledger)
        if all_of_them or isinstance(lac, Deferred):
            for poll in list(waiters.polls):
                self._remove(poll)
                self._answer(poll.peer, poll.request)
            return
        woken = []
        while waiters.by_lac and waiters.by_lac[0].rank[0] < lac:
            poll = heappop(waiters.by_lac)
            if poll in waiters.polls:
                woken.append(poll)
        for poll in woken:
            if poll in waiters.polls:  # its connection may have ended by the answer to another one
                self._remove(poll)
                self._answer(poll.peer, poll.request, time_of_day())

    def _answer(self, peer: Peer, request: Read, moved_at: float | None = None) -> None:
        """Ends a wait.  `moved_at`: when an ordinary advance of the LAC ended it, seconds since the epoch."""
        if not request.piggyback:
            self._reads.in_turn(peer, request)
        elif request.entry != LAST_ENTRY:
            self._reads.refuse(peer, request, Status.EBADREQ)
        else:
            self._reads.follow(
                peer,
                request,
                then(self._storage.lac(request.ledger), lambda lac: self._piggyback(peer, request, lac, moved_at)),
            )

    def _piggyback(self, peer: Peer, request: Read, lac: int, moved_at: float | None) -> Deferred[None] | None:
        """Sends the LAC, with the entry behind the one that the reader knows of where it is here."""
        assert request.previous_lac is not None
        advanced = lac > request.previous_lac
        # the LAC alone will do: nothing is read for a peer that does not take answers, nor in a turn with many of them
        if advanced and (peer.choked or self._reads.turn_is_full or not self._reads.room(peer)):
            peer.send(wire.answer(request, ReadReply(Status.EOK, request.ledger, NO_ENTRY, None, lac)))
            return None
        entry = request.previous_lac + 1 if advanced else LAST_ENTRY
        reply = ReadReply(Status.EOK, request.ledger, NO_ENTRY, None, lac)

        def send() -> None:
            data = wire.answer(request, reply)
            if reply.body is not None:
                peer.answer_bytes = len(data)
                self._reads.count(len(data))
                if not peer.settled:
                    peer.settle()
            self._reads.send(peer, data)

        def found(bodies: list[bytes] | bytes | Status) -> Deferred[None] | None:
            if not advanced and isinstance(bodies, Status):  # no entry at all, or no ledger any more
                self._reads.refuse(peer, request, bodies)
                return None
            if advanced and not (isinstance(bodies, Status) or peer.choked or self._reads.turn_is_full):
                reply.entry = entry
                reply.lac_time_ms = None if moved_at is None else int(moved_at * 1000)
                if isinstance(bodies, list):
                    reply.body, reply.following = bodies[0], tuple(bodies[1:])
                    return then(self._evidence(request.ledger, lac, reply), lambda _found: send())
                reply.body = bodies
            send()
            return None

        if advanced and request.evidence:
            count = lac - request.previous_lac
            return then(self._storage.read_run(request.ledger, entry, count, EVIDENCE_BYTES_MAX // 2), found)
        return then(self._storage.read(request.ledger, entry), found)

    def _evidence(self, ledger: int, lac: int, reply: ReadReply) -> Deferred[None] | None:
        """Adds what proves the LAC: the writer's own word if that goes so far, else the last entry, if not large."""
        said = self._storage.explicit_lac(ledger)
        if said is not None and len(said) >= LAC_HEADER.size and explicit_lac(said) >= lac:
            reply.lac_body = said
            return None
        room = EVIDENCE_BYTES_MAX - len(reply.body or b"") - sum(map(len, reply.following))

        def found(last: bytes | Status) -> None:
            if isinstance(last, bytes) and len(last) <= room:
                reply.last_body = last

        return then(self._storage.read(ledger, LAST_ENTRY), found)
