"""
A V3 connection: every operation, matched by transaction id.

Knows: which run of transactions an answer belongs to, by bisection; a batch of adds, or of reads, is one run, never one
object per entry.  The key is (transaction, operation): an answer of another operation is dropped (wire.md
3.4).
Does not know: which operations V2 could have carried (`pool`).

V3 has no batch read; `read_run` sends single reads as one piece and answers like a batch read.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred

from quire.client.connections.add_channel import AddChannel
from quire.client.connections.answers import Answer, BatchAnswer, InfoAnswer, LacAnswer, ListAnswer
from quire.client.connections.link import TIMED_OUT, Link, PendingRequest
from quire.client.connections.unanswered import RunTable, Sent
from quire.protocol import v3
from quire.protocol.batch import AddBatch
from quire.protocol.errors import OK, code_of
from quire.protocol.errors import Read as ReadFailed
from quire.protocol.messages import (
    AddAcks,
    BatchReply,
    BookieInfo,
    Force,
    InfoReply,
    LacReply,
    ListEntries,
    ListReply,
    Read,
    ReadLac,
    ReadReply,
    Reply,
    StatusReply,
    WriteLac,
)

# SPDX-License-Identifier: Apache-2.0

WRITE_LAC = 6  # operation numbers, which StatusReply carries
FORCE = 10
RUN_ENTRIES_MAX = 500  # reads in one emulated batch read
RUN_ENTRIES_FIRST = 8  # of them before the size of these is known
RUN_GROWTH = 8  # times as many as came are asked for next, for these may be larger
ASSUMED_ENTRY_BYTES = 8192  # until a connection has seen an entry
ADD_ENVELOPE_BYTES = 128  # more than an add's frame has around the entry body

SendLarge = Callable[[AddChannel, AddBatch, int], None]
Numbered = Read | ReadLac | WriteLac | Force | ListEntries | BookieInfo

A = TypeVar("A")


class RequestKind(Generic[A]):
    """One kind of request: what answers it, the answer made from that, and the answer made from a code alone."""

    def __init__(
        self, reply: type, of: Callable[[Any], A], blank: Callable[[int], A], operation: int | None = None
    ) -> None:
        self.reply = reply
        self.of = of
        self.blank = blank
        self.operation = operation

    def fits(self, reply: Reply) -> bool:
        return type(reply) is self.reply and (
            self.operation is None or (isinstance(reply, StatusReply) and reply.operation == self.operation)
        )


def _code(code: int) -> int:
    return code


READ: RequestKind[Answer] = RequestKind(ReadReply, Answer.of_read, Answer)
POLL: RequestKind[Answer] = RequestKind(ReadReply, Answer.of_poll, Answer)
LAC: RequestKind[LacAnswer] = RequestKind(LacReply, LacAnswer.of, LacAnswer)
SET_LAC: RequestKind[int] = RequestKind(
    StatusReply, lambda reply: code_of(reply.status, writing=True), _code, WRITE_LAC
)
SYNC: RequestKind[int] = RequestKind(StatusReply, lambda reply: code_of(reply.status, writing=True), _code, FORCE)
LIST: RequestKind[ListAnswer] = RequestKind(ListReply, ListAnswer.of, lambda code: ListAnswer(code, []))
INFO: RequestKind[InfoAnswer] = RequestKind(InfoReply, InfoAnswer.of, InfoAnswer)


class One(PendingRequest[Any]):
    """One request; its run has one transaction."""

    __slots__ = ("answer", "kind", "left")

    def __init__(self, deferred: Deferred[Any], deadline: float, kind: RequestKind[Any]) -> None:
        super().__init__(deferred, deadline, kind.blank)
        self.kind = kind
        self.left = 1
        self.answer: Any = None

    def take(self, index: int, reply: Reply) -> None:
        if index == 0 and self.kind.fits(reply):
            self.left = 0
            self.answer = self.kind.of(reply)


class ReadRun(PendingRequest[BatchAnswer]):
    """
    Reads of consecutive entries that answer as one: up to the first that failed, within a number of bytes.  `left` are
    asked for at first; once all of these came, `ask(first, stop)` is called with the rest as far as it probably fits,
    by the mean size of what came, and again while that is less than half of the bytes.
    """

    __slots__ = ("_ask", "_bodies", "_bytes_max", "_code", "_count", "_size", "_stop", "left")

    def __init__(
        self,
        deferred: Deferred[BatchAnswer],
        deadline: float,
        left: int,
        count: int,
        bytes_max: int,
        ask: Callable[[int, int], None],
    ) -> None:
        super().__init__(deferred, deadline, BatchAnswer)
        self.left = left
        self._ask = ask
        self._count = count  # the most that is asked for
        self._size = 0
        self._bodies: list[bytes | None] = [None] * self.left
        self._stop = count  # the first that failed, so far
        self._code = OK
        self._bytes_max = bytes_max

    def take(self, index: int, reply: Reply) -> None:
        """One answer, for the `index`-th entry; a second one for the same entry counts as none."""
        if not isinstance(reply, ReadReply) or index >= len(self._bodies) or self._bodies[index] is not None:
            return
        code = code_of(reply.status, writing=False)
        self._bodies[index] = reply.body or b""
        self._size += len(reply.body or b"")
        self.left -= 1
        if (code or not reply.body) and index < self._stop:
            self._stop = index
            self._code = code or ReadFailed.code
        asked = len(self._bodies)
        if self.left or self._stop < self._count:
            return
        if asked <= RUN_ENTRIES_FIRST or self._size * 2 < self._bytes_max:
            room = max(0, self._bytes_max - self._size)
            self.left = min(self._count - asked, room * asked // self._size, RUN_GROWTH * asked)
            self._bodies += [None] * self.left
            self._ask(asked, asked + self.left)

    @property
    def answer(self) -> BatchAnswer:
        if not self._stop:
            return BatchAnswer(self._code)
        out: list[bytes] = []
        room = self._bytes_max
        for body in self._bodies[: self._stop]:
            room -= len(body or b"")
            if out and room < 0:
                break
            out.append(body or b"")
        return BatchAnswer(OK, out)


class Packing:
    """
    Shared by the V3 connections of one pool: the counter of transactions, and the frames of the batch that was packed
    last, so that a batch that goes to several bookies is packed once and they get the same bytes.
    """

    def __init__(self) -> None:
        self._next = 1
        self._batch: AddBatch | None = None
        self._txn = 0
        self._frames = b""

    def take(self, count: int) -> int:
        """The first of `count` unused transactions."""
        txn = self._next
        self._next += count
        return txn

    def whole(self, batch: AddBatch, above: int) -> tuple[int, bytes]:
        """(first transaction, frames) of a batch; transactions are above `above`, the connection's last."""
        if self._batch is not batch or self._txn <= above:
            self._txn = self.take(batch.count)
            self._frames = v3.pack_adds(batch, self._txn)
            self._batch = batch
        return self._txn, self._frames


class AddsRun:
    """A batch of adds; transaction i of the run is its i-th id."""

    __slots__ = ("channel", "sent")

    def __init__(self, channel: AddChannel, sent: Sent) -> None:
        self.channel = channel
        self.sent = sent

    @property
    def left(self) -> int:
        return self.sent.left if self.channel.is_open else 0


class LinkV3(Link):
    """`send_large` takes an add whose frame would be above the limit that bookies have too."""

    generation = 3

    def __init__(self, packing: Packing, send_large: SendLarge, *args: Any) -> None:
        super().__init__(*args)
        self.decoder = v3.Replies(self._answer_bytes_max)
        self._packing = packing
        self._send_large = send_large
        self._body_bytes_max = self._options.frame_bytes_max - ADD_ENVELOPE_BYTES
        self._last_txn = 0
        self._table: RunTable[One | ReadRun | AddsRun] = RunTable()
        self._channels: list[AddChannel] = []  # several may serve one ledger
        self._deserted = False  # a channel left, so what it sent waits for nothing and can be dropped
        self._entry_bytes = ASSUMED_ENTRY_BYTES  # moving average of what was read

    def request(self, kind: RequestKind[A], request: Numbered, deferred: Deferred[A], more_ms: int = 0) -> None:
        """Sends one request under a new transaction; `more_ms` on top of the usual time-out."""
        alone = not self.waiting()  # it leaves at once; others that come in its turn leave together
        request.txn = self._number(1, One(deferred, self.deadline(more_ms), kind))
        self.write(v3.pack_request(request), alone)

    def read_run(
        self,
        ledger: int,
        first: int,
        count_max: int,
        bytes_max: int,
        deferred: Deferred[BatchAnswer],
        fence_key: bytes | None = None,
        priority: int = 0,
    ) -> None:
        """
        Single reads of entries from `first` on, in a few writes: as many as probably fit into `bytes_max`, at most
        `count_max` (<= 0: no limit).  Like a batch read it answers with at least one entry or an error.
        """
        count = min(count_max, RUN_ENTRIES_MAX) if count_max > 0 else RUN_ENTRIES_MAX
        at_first = min(count, RUN_ENTRIES_FIRST, max(1, bytes_max // self._entry_bytes))
        fence = fence_key is not None

        def ask(start: int, stop: int) -> None:
            reads = [Read(ledger, first + i, fence, fence_key, priority, txn + i, 3) for i in range(start, stop)]
            if reads:
                self.write(b"".join(map(v3.pack_request, reads)))

        run = ReadRun(deferred, self.deadline(), at_first, count, bytes_max, ask)
        txn = self._number(count, run)
        ask(0, at_first)

    def _number(self, count: int, run: One | ReadRun | AddsRun) -> int:
        txn = self._packing.take(count)
        self._register(txn, count, run)
        return txn

    def _register(self, txn: int, count: int, run: One | ReadRun | AddsRun) -> None:
        self._last_txn = txn + count - 1
        self._table.add(txn, run)

    def take(self, reply: Reply) -> None:
        if isinstance(reply, BatchReply) or reply.txn is None:  # V2's
            return
        if isinstance(reply, AddAcks):
            self._take_adds(reply.txn, reply.count, code_of(reply.status, writing=True))
            if reply.reader_waits:
                for channel in self._channels:
                    if channel.ledger == reply.ledger:
                        channel.heard_of_reader()
            return
        at = self._table.at(reply.txn)
        if at < self._table.head:
            return
        run = self._table.runs[at]
        if isinstance(run, AddsRun) or not run.left:
            return
        run.take(reply.txn - self._table.firsts[at], reply)
        if isinstance(reply, ReadReply) and reply.body:
            self._entry_bytes = max(1, (self._entry_bytes * 7 + len(reply.body)) // 8)
        if not run.left:
            self._table.settle(at)
            run.deferred.callback(run.answer)

    def _take_adds(self, txn: int, count: int, code: int) -> None:
        """Answers to `count` transactions; they may belong to several batches, and to none."""
        table = self._table
        stop = txn + count
        while txn < stop and table:
            at = table.at(txn)
            if at >= table.head:
                run = table.runs[at]
                index = txn - table.firsts[at]
                if isinstance(run, AddsRun) and index < run.sent.count:
                    covered = min(stop - txn, run.sent.count - index)
                    answered = run.channel.unanswered.answer_sent(run.sent, index, covered)
                    if answered and not run.sent.left:
                        table.settle(at)
                    txn += covered
                    run.channel.answered(answered, code, self.heard_at)
                    continue
            if at + 1 >= len(table.firsts):
                return
            txn = table.firsts[at + 1]

    def join(self, channel: AddChannel) -> None:
        self._channels.append(channel)

    def leave(self, channel: AddChannel) -> None:
        self._channels = [each for each in self._channels if each is not channel]
        self._deserted = True

    def send_adds(self, channel: AddChannel, batch: AddBatch, ids: Sequence[int], whole: bool, size: int) -> None:
        if batch.bytes + batch.digest.overhead > self._body_bytes_max:  # of a part `size` is no more than its share
            ids, whole, size = self._without_large(channel, batch, ids, whole, size)
            if not ids:
                return
        run = AddsRun(channel, channel.took(ids, size))
        if whole:
            txn, frames = self._packing.whole(batch, self._last_txn)
            self._register(txn, len(ids), run)
            self.write(frames)
        else:
            self.write(v3.pack_adds(batch, self._number(len(ids), run), ids))

    def _without_large(
        self, channel: AddChannel, batch: AddBatch, ids: Sequence[int], whole: bool, size: int
    ) -> tuple[Sequence[int], bool, int]:
        """Returns what is left of such a call when the adds that fit no frame have been given away."""
        payload_bytes_max = self._body_bytes_max - batch.digest.overhead
        sizes = {entry: len(batch.payloads[entry - batch.first]) for entry in ids}
        large = [entry for entry in ids if sizes[entry] > payload_bytes_max]
        if not large:
            return ids, whole, size
        for entry in large:
            self._send_large(channel, batch, entry)
            del sizes[entry]
        return list(sizes), False, sum(sizes.values())

    def channels(self) -> list[AddChannel]:
        return list(self._channels)

    def expire(self, now: float) -> int:
        table = self._table
        waiting = table.runs[table.head :] if table.head else table.runs
        over = [run for run in waiting if not isinstance(run, AddsRun) and run.deadline <= now and run.left]
        for run in over:
            run.left = 0
        if over or self._deserted:
            self._deserted = False
            table.compact()
        for run in over:
            run.end(TIMED_OUT)
        return len(over)

    def waiting(self) -> bool:
        return self._table.any_open()

    def drain(self) -> list[PendingRequest[Any]]:
        everything: list[PendingRequest[Any]] = [run for run in self._table.open() if not isinstance(run, AddsRun)]
        self._table.clear()
        return everything
