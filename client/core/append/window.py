"""
A writer's window: payloads that have ids and wait to be sent, batches that were sent and are not settled.

Knows: how an append is cut into batches, how much may be under way, and the ledger's length at any id above the head.
Does not know: bookies, acknowledgements.

Safety: batches are kept until every entry in them is acknowledged to the caller, so that all of them can be sent again.
"""

from bisect import insort
from collections import deque
from typing import NamedTuple

from quire.client.core.append.messages import Limits
from quire.protocol.batch import AddBatch

# SPDX-License-Identifier: Apache-2.0


class Waiting(NamedTuple):
    """Payloads with ids that wait.  `length`: the ledger's before the first, where it is known (recovery)."""

    first: int
    payloads: list[bytes]
    size: int
    length: int | None


class Window:
    """`sent_last`: highest id sent; `length`: payload bytes of everything sent."""

    __slots__ = (
        "_batch_bytes_max",
        "_batch_entries_max",
        "flying_bytes",
        "length",
        "limits",
        "pending",
        "sent_last",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, limits: Limits, last: int, length: int) -> None:
        self.limits = limits
        self._batch_entries_max = min(limits.batch_entries_max, limits.window_entries_max)
        self._batch_bytes_max = min(limits.batch_bytes_max, limits.window_bytes_max)
        self.sent_last = last
        self.length = length
        self.pending: deque[AddBatch] = deque()  # sent, not all of it acknowledged, by first id
        self.flying_bytes = 0
        self.waiting: deque[Waiting] = deque()
        self.waiting_bytes = 0

    @property
    def overfull(self) -> bool:
        """True if as much waits as may be under way: no more is taken."""
        return self.waiting_bytes >= self.limits.window_bytes_max or len(self.waiting) >= self.limits.window_entries_max

    def take(self, first: int, payloads: list[bytes], length: int | None) -> None:
        """Queues payloads, cut into batches within the limits; a single payload may exceed them."""
        entries_max, bytes_max = self._batch_entries_max, self._batch_bytes_max
        size = sum(map(len, payloads))
        self.waiting_bytes += size
        if len(payloads) <= entries_max and size <= bytes_max:
            waiting = Waiting(first, payloads, size, length)
            if self.waiting:
                self._wait(waiting)
            else:
                self.waiting.append(waiting)
            return
        start = taken = 0
        for place, payload in enumerate(payloads):
            if place > start and (place - start >= entries_max or taken + len(payload) > bytes_max):
                self._wait(Waiting(first + start, payloads[start:place], taken, length))
                length = None if length is None else length + taken
                start, taken = place, 0
            taken += len(payload)
        self._wait(Waiting(first + start, payloads[start:], taken, length))

    def _wait(self, waiting: Waiting) -> None:
        if not self.waiting or waiting.first > self.waiting[-1].first:
            self.waiting.append(waiting)
        else:  # advanced mode: the lowest goes first, for what is above a gap can't be settled
            insort(self.waiting, waiting, key=lambda other: other.first)

    def fills_gap(self, head: int) -> bool:
        """True if all that is under way waits for the next one (advanced mode), which then must not wait for it."""
        return bool(self.pending) and self.waiting[0].first == head + 1

    def has_room(self, head: int) -> bool:
        """True if the next one that waits may be sent.  When nothing is under way anything may."""
        following = self.waiting[0]
        return (
            not self.pending
            or following.first == head + 1
            or (
                self.flying_bytes + following.size <= self.limits.window_bytes_max
                and following.first + len(following.payloads) - 1 - head <= self.limits.window_entries_max
            )
        )

    def following(self) -> Waiting:
        """Takes the next one out, to be sent; `length` is then the ledger's length before it."""
        following = self.waiting.popleft()
        self.waiting_bytes -= following.size
        if following.length is not None:
            self.length = following.length
        return following

    def sent(self, batch: AddBatch) -> None:
        size = batch.bytes
        self.length += size
        self.flying_bytes += size
        if batch.last > self.sent_last:
            self.sent_last = batch.last
            self.pending.append(batch)
        else:  # advanced mode, into a gap
            insort(self.pending, batch, key=lambda other: other.first)

    def settle(self, head: int) -> None:
        """Forgets the batches that are acknowledged whole."""
        pending = self.pending
        while pending and pending[0].last <= head:
            self.flying_bytes -= pending.popleft().bytes

    def length_at(self, head: int) -> int:
        """Payload bytes of the entries up to `head`, below which everything is settled."""
        length = self.length
        for batch in self.pending:
            passed = head + 1 - batch.first
            length -= batch.bytes if passed <= 0 else sum(map(len, batch.payloads[passed:]))
        return length

    def clear(self, last: int, length: int) -> None:
        """Drops everything; the ledger ends at `last`."""
        self.pending.clear()
        self.waiting.clear()
        self.waiting_bytes = self.flying_bytes = 0
        self.sent_last, self.length = last, length
