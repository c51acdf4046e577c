"""
Everything that reads: entries, batches, the last add confirmed, the list of entries.

Knows: whose turn it is, and how what the storage found becomes an answer (wire.md 2.4, 3.5, 6.4, 8).
Does not know: fences and long polls, which end in a read here; protocol versions.

Reads that the cache answers are answered at once.  Those that wait for the disk do not block others; a connection has
at most `READS_AT_ONCE` of them under way, fewer if its answers are large, and none is begun while it does not take its
answers; the others wait in its line.  What recovery asks for (priority) overtakes the line, and twice as many may be
under way.  A bookie whose lines are full says ETOOMANYREQUESTS, and the reader turns to the next replica.

An answer leaves in the reactor's next turn, with others that come in this one; at once when it is all that its
connection waits for.

Large answers take time to be put together: those beyond `TURN_BYTES_MAX` wait until the reactor looks at what is due,
in one line, which recovery overtakes as well, and what was found for them beyond `PUT_OFF_BYTES_MAX` is dropped and
read again then, once and a turn's worth at a time.  A turn of the reactor has at most two such shares, for it looks at
that between what threads bring and what connections send.

Safety: a disk that fails is EIO, never "no such entry"; nor is a bookie that has no descriptor left for a file.  Of a
connection that does not take its answers no more than `BLOCKED_BYTES_MAX` and one answer are kept, and one answer where
those of all together are `answers_bytes_max`: what was read beyond that is dropped, and read again when it takes them.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from quire.bookie.server.budget import Budget
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Peer, ReadRequest, ServiceCounters
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer
from quire.metrics.histogram import Histogram
from quire.protocol import wire
from quire.protocol.errors import Status
from quire.protocol.messages import (
    LAST_ENTRY,
    BatchRead,
    BatchReply,
    LacReply,
    ListEntries,
    ListReply,
    Read,
    ReadLac,
    ReadReply,
    Reply,
)
from quire.rows.files import StorageError, status_of

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage

# SPDX-License-Identifier: Apache-2.0

READS_AT_ONCE = 64  # of one connection
READS_AT_ONCE_MIN = 2  # however large the answers
FIRST_ANSWER_BYTES = 1 << 20  # how large a connection's answers are taken to be before one is known
ANSWERS_BYTES_AHEAD = 4 << 20  # read for one connection at once, except that `READS_AT_ONCE_MIN` answers may be larger
BLOCKED_BYTES_MAX = 8 << 20  # of answers that one does not take; so what an ordinary reader asked for is not dropped
LARGE_BYTES = 64 << 10  # an answer that takes time
TURN_BYTES_MAX = 8 << 20  # of large answers between two looks at what is due, and one more: some 10 ms
PUT_OFF_BYTES_MAX = 64 << 20  # found, and put off to other turns
ENTRIES_UNLIMITED = (1 << 31) - 1  # means "count max <= 0" in a batch read


def then(found: object, use: Callable[[Any], Deferred[None] | None]) -> Deferred[None] | None:
    """Uses a result at once (and gives None, unless `use` has to wait), or when it comes."""
    if isinstance(found, Deferred):
        return cast("Deferred[None]", found.addCallback(use))
    return use(found)


class Reads:
    """All reads of one bookie."""

    def __init__(
        self,
        clock: Clock,
        options: BookieOptions,
        storage: "Storage",
        tally: ServiceCounters,
        complaints: Complaints,
    ) -> None:
        self.storage = storage
        self._clock = clock
        self.times = Histogram()  # of reads that the disk answers, and of arrivals whose reads memory answers
        self.line_times = Histogram()  # of reads that waited in their connection's line
        self._answered = 0  # reads since they were last observed
        self.under_way = 0  # that wait for the disk
        self.turn_is_full = False  # this turn of the reactor has answered as much as one may
        self._turn_bytes = 0  # of large answers, in this turn of the reactor
        self._turn_over: Timer | None = None
        self._put_off: deque[Deferred[None]] = deque()  # what it has no room for
        self._put_off_bytes = 0  # found for these, and kept
        self._again: set[int] = set()  # the ids of requests whose turn has come, and which are read again for it
        self._again_bytes = 0  # of these
        self.waiting = Budget(options.reads_pending_max or sys.maxsize)  # under way or in line
        # Bytes of answers that are not taken; `UnsentAnswers` counts them.
        self.blocked = Budget(options.answers_bytes_max, connection_limit=BLOCKED_BYTES_MAX)
        self._tally = tally
        self._complaints = complaints
        self._batch_bytes_max = options.batch_read_bytes_max
        self._start: dict[type, Callable[[Any, Any], Deferred[None] | None]] = {
            Read: self._read,
            BatchRead: self._batch,
            ReadLac: self._lac,
            ListEntries: self._list,
        }

    def in_turn(self, peer: Peer, request: ReadRequest) -> None:
        """Begins a read, or puts it in its connection's line, or refuses it."""
        if not peer.alive:
            return
        if peer.choked or (peer.held and not request.priority) or not self.room(peer, 2 if request.priority else 1):
            if not self.rejects(peer, request):
                self.waiting.change(peer, 1)
                held = self._clock.seconds(), request
                (peer.held.appendleft if request.priority else peer.held.append)(held)
            return
        self._begin(peer, request)

    def rejects(self, peer: Peer, request: ReadRequest) -> bool:
        """Refuses a read for which its connection has no room if too many wait already; True if it did."""
        if self.waiting.total < self.waiting.limit:
            return False
        self._tally.reads_rejected += 1
        self.refuse(peer, request, Status.ETOOMANYREQUESTS)
        return True

    def room(self, peer: Peer, times: int = 1) -> bool:
        """True if one more read of a connection may be under way, with `times` the ordinary limits."""
        under_way = peer.reads_under_way
        if under_way < READS_AT_ONCE_MIN * times:
            return True
        return under_way < READS_AT_ONCE * times and under_way * peer.answer_bytes < ANSWERS_BYTES_AHEAD * times

    def advance(self, peer: Peer) -> None:
        """Begins the next reads of a connection's line, as many as it can take."""
        held = peer.held
        while held and peer.alive and not peer.choked and self.room(peer):
            self.waiting.change(peer, -1)
            since, request = held.popleft()
            self.line_times.observe(self._clock.seconds() - since)
            self._begin(peer, request)

    def lost(self, peer: Peer) -> None:
        """Drops the line of a connection that has ended; what is under way of it counts until it is over."""
        self.waiting.change(peer, -len(peer.held))
        peer.held.clear()

    def answer(self, peer: Peer, request: ReadRequest, reply: Reply) -> int:
        """Sends an answer with a body and returns its length; 0: too much is not taken, so it is put back in line."""
        if peer.choked and self.blocked.is_full_for(peer):
            if peer.alive:
                self._tally.reads_again += 1
                self.waiting.change(peer, 1)
                peer.held.appendleft((self._clock.seconds(), request))
            return 0
        data = wire.answer(request, reply)
        if len(data) > LARGE_BYTES:
            self.count(len(data))
        peer.answer_bytes = len(data)
        self._answered += 1
        if not peer.settled and reply.status is Status.EOK:
            peer.settle()
        self.send(peer, data)
        return len(data)

    def observe(self, began: float) -> None:
        """Measures what was answered since the last time, which took as long as since `began`."""
        if self._answered:
            self.times.observe(self._clock.seconds() - began, self._answered)
            self._answered = 0

    def count(self, size: int) -> None:
        """Adds the size of an answer to what was put together in this turn of the reactor."""
        self._turn_bytes += size
        self.turn_is_full = self._turn_bytes >= TURN_BYTES_MAX
        self._go_on()

    def send(self, peer: Peer, data: bytes) -> None:
        """Sends at once what is all that the connection waits for: others that come in this turn would be one write."""
        lone, peer.lone = peer.lone and peer.reads_under_way <= 1, False
        (peer.send_at_once if lone else peer.send)(data)

    def _go_on(self) -> None:
        if self._turn_over is None:
            self._turn_over = self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over, self._turn_bytes, self.turn_is_full = None, 0, False
        while self._put_off and not self.turn_is_full and self._again_bytes < TURN_BYTES_MAX:
            self._put_off.popleft().callback(None)

    def _waits(self, request: ReadRequest, size: int) -> bool:
        """True if such an answer has to wait for another turn: a small one never does, nor one that waited."""
        return size > LARGE_BYTES and id(request) not in self._again

    def _later(
        self, peer: Peer, request: ReadRequest, size: int, use: Callable[[], Deferred[None] | None]
    ) -> Deferred[None]:
        """
        Uses the bytes that were found when this turn, which has answered as much as one may, is over, and there is
        room.  Where too many are kept for that already, they are read again then.
        """
        turn: Deferred[None] = Deferred()
        (self._put_off.appendleft if request.priority else self._put_off.append)(turn)

        def kept(_over: None) -> Deferred[None] | None:
            self._put_off_bytes -= size
            return use() if peer.alive else None

        def again(_over: None) -> Deferred[None] | None:
            if not peer.alive:
                return None
            self._again.add(id(request))
            self._again_bytes += size
            found = cast("Deferred[None]", maybeDeferred(self._start[type(request)], peer, request))
            return found.addBoth(answered)

        def answered(result: Failure | None) -> Failure | None:
            self._again.discard(id(request))
            self._again_bytes -= size
            self._go_on()
            return result

        if self._put_off_bytes < PUT_OFF_BYTES_MAX:
            self._put_off_bytes += size
            return turn.addCallback(kept)
        self._tally.reads_again += 1
        return turn.addCallback(again)

    def refuse(self, peer: Peer, request: ReadRequest, status: Status) -> None:
        self._tally.refusals += 1
        self._tally.reads_refused += 1
        self.send(peer, wire.refusal(request, status))

    def follow(self, peer: Peer, request: ReadRequest, under_way: Deferred[None] | None) -> None:
        """Counts a read that waits for the disk until it has ended; a failure of it is answered and logged."""
        if under_way is None:
            return
        self.under_way += 1
        peer.reads_under_way += 1
        self.waiting.change(peer, 1)
        under_way.addBoth(self._ended, peer, request, self._clock.seconds())

    def _begin(self, peer: Peer, request: ReadRequest) -> None:
        try:
            under_way = self._start[type(request)](peer, request)
        except (StorageError, OSError):  # the ledger's row can't be read
            self._failed(Failure(), peer, request)  # type: ignore[no-untyped-call]  # Twisted's has no annotations
            return
        self.follow(peer, request, under_way)

    def _failed(self, failure: Failure, peer: Peer, request: ReadRequest) -> None:
        self._complaints.failed(type(request).__name__, request.ledger, failure)
        self.refuse(peer, request, status_of(failure.value))

    def _ended(self, result: Failure | None, peer: Peer, request: ReadRequest, began: float) -> None:
        try:
            if result is not None:
                self._failed(result, peer, request)
            self.observe(began)
        finally:
            self.under_way -= 1
            peer.reads_under_way -= 1
            self.waiting.change(peer, -1)
            if peer.held:
                self.advance(peer)

    def _read(self, peer: Peer, request: Read) -> Deferred[None] | None:
        self._tally.reads += 1
        alone = peer.lone and not peer.reads_under_way
        found = self.storage.read(request.ledger, request.entry, alone)
        return then(found, lambda found: self._found(peer, request, found))

    def _found(self, peer: Peer, request: Read, found: bytes | Status) -> Deferred[None] | None:
        if isinstance(found, Status):
            self.refuse(peer, request, found)
            return None
        if self.turn_is_full and self._waits(request, len(found)):
            return self._later(peer, request, len(found), lambda: self._found(peer, request, found))

        def with_lac(lac: int | None) -> None:
            if self.answer(peer, request, ReadReply(Status.EOK, request.ledger, request.entry, found, lac)):
                self._tally.read_entries += 1
                self._tally.read_bytes += len(found)

        if request.txn is None or request.fence:  # V2 has no field for the LAC; a fencing read's answer leaves it out
            with_lac(None)
            return None
        return then(self.storage.lac(request.ledger), with_lac)

    def _batch(self, peer: Peer, request: BatchRead) -> Deferred[None] | None:
        self._tally.batch_reads += 1
        count_max = request.count_max if request.count_max > 0 else ENTRIES_UNLIMITED
        bytes_max = min(request.bytes_max, self._batch_bytes_max)
        found = self.storage.read_run(request.ledger, request.first, count_max, bytes_max)
        if isinstance(found, Deferred):
            peer.answer_bytes = bytes_max  # until it is known
        return then(found, lambda bodies: self._found_batch(peer, request, bodies))

    def _found_batch(self, peer: Peer, request: BatchRead, found: list[bytes] | Status) -> Deferred[None] | None:
        if isinstance(found, Status):
            self.refuse(peer, request, found)
            return None
        if self.turn_is_full and self._waits(request, size := sum(map(len, found))):
            return self._later(peer, request, size, lambda: self._found_batch(peer, request, found))
        size = self.answer(
            peer, request, BatchReply(Status.EOK, request.ledger, request.first, request.request_id, found)
        )
        if size:
            self._tally.read_entries += len(found)
            self._tally.read_bytes += size
        return None

    def _lac(self, peer: Peer, request: ReadLac) -> Deferred[None] | None:
        return then(self.storage.read(request.ledger, LAST_ENTRY), lambda last: self._found_lac(peer, request, last))

    def _found_lac(self, peer: Peer, request: ReadLac, last: bytes | Status) -> Deferred[None] | None:
        """Answers with each part that is there; a ledger that may lack entries never says that there are none."""
        if self.turn_is_full and isinstance(last, bytes) and self._waits(request, len(last)):
            return self._later(peer, request, len(last), lambda: self._found_lac(peer, request, last))
        lac_body = self.storage.explicit_lac(request.ledger)
        if isinstance(last, bytes):
            reply = LacReply(Status.EOK, request.ledger, request.txn, lac_body, last)
        elif last not in (Status.ENOENTRY, Status.ENOLEDGER):
            reply = LacReply(last, request.ledger, request.txn, lac_body)
        else:
            reply = LacReply(Status.ENOENTRY if lac_body is None else Status.EOK, request.ledger, request.txn, lac_body)
        self.answer(peer, request, reply)
        return None

    def _list(self, peer: Peer, request: ListEntries) -> Deferred[None] | None:
        return then(self.storage.entries(request.ledger), lambda found: self._found_list(peer, request, found))

    def _found_list(self, peer: Peer, request: ListEntries, found: bytes | Status) -> Deferred[None] | None:
        if isinstance(found, Status):
            self.refuse(peer, request, found)
            return None
        if self.turn_is_full and self._waits(request, len(found)):
            return self._later(peer, request, len(found), lambda: self._found_list(peer, request, found))
        self.answer(peer, request, ListReply(Status.EOK, request.ledger, request.txn, found))
        return None
