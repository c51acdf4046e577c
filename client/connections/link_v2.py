"""
A V2 connection: adds, reads and batch reads at the least cost per entry.

Knows: that a V2 answer carries only (ledger, entry, operation), or a request id for batch reads (wire.md
2.6).  So on one connection at most one handle has a given key outstanding: `admits_adds` and `admits_read` say whether
a key is free, and who finds it taken goes over V3, where every request has a number of its own.
Does not know: fencing reads of one entry, which never come here, and recovery adds, of which only those come that fit
no V3 frame (`pool`).

Safety: a key stays taken after its request expired, until the late answer came or the connection ended; so a late
answer is never given to another request.
"""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from quire.client.connections.add_channel import AddChannel
from quire.client.connections.answers import Answer, BatchAnswer
from quire.client.connections.link import TIMED_OUT, Link, PendingRequest
from quire.client.connections.unanswered import Unanswered
from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.errors import OK, Status, code_of
from quire.protocol.errors import Read as ReadFailed
from quire.protocol.messages import AddAcks, BatchRead, BatchReply, Read, ReadReply, Reply

# SPDX-License-Identifier: Apache-2.0

LATE_KEYS_MAX = 10_000  # reads that expired and may still be answered; beyond it the connection is closed


class LinkV2(Link):
    generation = 2

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.decoder = v2.Replies(self._answer_bytes_max)
        self._channels: dict[int, AddChannel] = {}  # by ledger
        self._left: dict[int, Unanswered] = {}  # ledgers whose channel left before everything was answered
        self._reads: dict[tuple[int, int], PendingRequest[Answer]] = {}
        self._late: set[tuple[int, int]] = set()
        self._batches: dict[int, PendingRequest[BatchAnswer]] = {}
        self._request_id = 0

    def admits_adds(self, ledger: int, channel: AddChannel | None = None) -> bool:
        """True if a new channel may send adds of the ledger, or `channel`, which may be the one that does already."""
        return self._channels.get(ledger, channel) is channel and ledger not in self._left

    def admits_read(self, ledger: int, entry: int) -> bool:
        return (ledger, entry) not in self._reads and (ledger, entry) not in self._late

    def read(self, request: Read, deferred: Deferred[Answer]) -> None:
        """A plain read whose key `admits_read`."""
        alone = not (self._reads or self._batches)
        self._reads[request.ledger, request.entry] = PendingRequest(deferred, self.deadline(), Answer)
        self.write(v2.pack_read(request), alone)

    def batch_read(self, request: BatchRead, deferred: Deferred[BatchAnswer]) -> None:
        """Plain or fencing; it gets its request id here."""
        alone = self._reads_nothing
        self._request_id += 1
        request.request_id = self._request_id
        self._batches[self._request_id] = PendingRequest(deferred, self.deadline(), BatchAnswer)
        self.write(v2.pack_batch_read(request), alone)

    def take(self, reply: Reply) -> None:
        if type(reply) is AddAcks:
            ledger, first, count, status = reply.ledger, reply.first, reply.count, reply.status
            if ledger in self._channels:
                channel = self._channels[ledger]
                code = OK if status is Status.EOK else code_of(status, writing=True)
                channel.answered(channel.unanswered.answer(first, count), code, self.heard_at)
                if reply.reader_waits:
                    channel.heard_of_reader()
            elif ledger in self._left:
                self._left[ledger].answer(first, count)
                if not self._left[ledger]:
                    del self._left[ledger]
        elif isinstance(reply, ReadReply):
            key = (reply.ledger, reply.entry)
            self._late.discard(key)
            read = self._reads.pop(key, None)
            if read is not None:
                code = OK if reply.status is Status.EOK else code_of(reply.status, writing=False)
                if not code and reply.body is None:
                    code = ReadFailed.code
                read.deferred.callback(Answer(code, reply.body, None, reply.entry))
        elif isinstance(reply, BatchReply):
            batch = self._batches.pop(reply.request_id, None)
            if batch is not None:
                code = code_of(reply.status, writing=False)
                if not code and not reply.bodies:
                    code = ReadFailed.code
                batch.deferred.callback(BatchAnswer(code, reply.bodies))
        # an unrequested AUTH answer is ignored (wire.md 10.2)

    def join(self, channel: AddChannel) -> None:
        assert self.admits_adds(channel.ledger), f"ledger {channel.ledger} has a channel on {self.name}"
        self._channels[channel.ledger] = channel

    def leave(self, channel: AddChannel) -> None:
        if self._channels.get(channel.ledger) is channel:
            del self._channels[channel.ledger]
            if channel.unanswered:
                self._left[channel.ledger] = channel.unanswered

    def send_adds(self, channel: AddChannel, batch: AddBatch, ids: Sequence[int], whole: bool, size: int) -> None:
        channel.took(ids, size)
        self.write((batch.packed or batch.frames()) if whole else v2.pack_adds(batch, ids), at_once=True)

    def channels(self) -> list[AddChannel]:
        return list(self._channels.values())

    def expire(self, now: float) -> int:
        late = [key for key, read in self._reads.items() if read.deadline <= now]
        over: list[PendingRequest[Any]] = [self._reads.pop(key) for key in late]
        self._late.update(late)
        over += [self._batches.pop(number) for number, batch in list(self._batches.items()) if batch.deadline <= now]
        for waiting in over:
            waiting.end(TIMED_OUT)
        if len(self._late) > LATE_KEYS_MAX:
            self.end(TIMED_OUT, f"{self.name} left {len(self._late)} reads without an answer")
        return len(over)

    @property
    def _reads_nothing(self) -> bool:
        """A read that waits for no other leaves at once; others that come in its turn leave together."""
        return not (self._reads or self._batches)

    def waiting(self) -> bool:
        return not self._reads_nothing or any(channel.unanswered for channel in self._channels.values())

    def drain(self) -> list[PendingRequest[Any]]:
        everything: list[PendingRequest[Any]] = [*self._reads.values(), *self._batches.values()]
        self._reads.clear()
        self._batches.clear()
        self._late.clear()
        self._left.clear()
        return everything
