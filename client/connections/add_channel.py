"""
An add channel: the adds of one ledger to one bookie, in batches, and what became of them.

Knows: which adds are queued until the connection is made, which are sent and not answered, how many bytes that is, and
whether answers still make progress.
Does not know: frames and transactions (`link_v2`, `link_v3`), quorums, which bookie should come next (the writer's
core).

Safety: an id is reported as acknowledged only when this bookie answered for it on this channel's own connections; a
channel that failed reports nothing more, so a writer never mixes answers from before and after a reconnect.  No add
goes to another incarnation of the bookie than its writer counts on (D19).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

from quire.client.connections.unanswered import Sent, Unanswered
from quire.client.counters import TIMED_EVERY, Requests, name_of
from quire.metadata.clock import Clock, Timer
from quire.protocol.batch import AddBatch
from quire.protocol.errors import OK, BookieHandleNotAvailable

# SPDX-License-Identifier: Apache-2.0

# Of one ledger's writer, by bookie: the incarnation that it counts on; None or no bookie: whichever it meets first.
Incarnations = MutableMapping[str, str | None]


class AddSink(Protocol):
    """The owner of a channel.  Called on the reactor's thread, never from inside `send`."""

    def acked(self, channel: "AddChannel", first: int, count: int, code: int, /) -> None:
        """The bookie answered for `count` ids from `first` on: 0, or a BookKeeper code for exactly those."""

    def failed(self, channel: "AddChannel", code: int, reason: str, /) -> None:
        """All unanswered failed, once: -8 connection, -24 and -102 not let in, -23 no progress, -19 closed."""


class Carrier(ABC):
    """A connection as a channel uses it."""

    incarnation: str | None  # that the bookie at the other end said; None: it did not, as Apache's do
    writable: bool  # the socket takes bytes without piling them up here

    @abstractmethod
    def join(self, channel: "AddChannel") -> None:
        """The channel sends its adds here from now on."""

    @abstractmethod
    def leave(self, channel: "AddChannel") -> None:
        """The channel sends no more; answers to what it sent are ignored."""

    @abstractmethod
    def send_adds(self, channel: "AddChannel", batch: AddBatch, ids: Sequence[int], whole: bool, size: int) -> None:
        """Sends these ids of the batch in one write; `whole`: they are all of it.  `size`: their payload bytes."""


class AddChannel:
    """Adds of one ledger to one bookie.  Made by `BookiePool.add_channel`; of no use after `failed` or `close`."""

    def __init__(
        self,
        clock: Clock,
        bookie: str,
        ledger: int,
        sink: AddSink,
        incarnations: Incarnations | None = None,
        requests: Requests | None = None,
    ) -> None:
        """
        `incarnations`: of the writer, shared by all its channels, which note in it whom they met first; `requests`:
        where adds to this bookie are counted.
        """
        self.bookie = bookie
        self.ledger = ledger
        self._clock = clock
        self._requests = requests or Requests()
        self._timed = -1  # the last id of the batch whose answer is timed, if any, and when it was sent
        self._timed_at = 0.0
        self._sink: AddSink | None = sink
        self.reader_waits: Callable[[str], object] | None = None  # called with the bookie when it says so
        self._incarnations: Incarnations = {} if incarnations is None else incarnations
        self._link: Carrier | None = None
        self._beside: Carrier | None = None  # for adds that the connection itself can't carry
        self._large: set[int] = set()  # those ids, each sent by itself
        self._due: set[int] = set()  # those of them for which `_beside` is not up yet
        self._queued: list[tuple[AddBatch, Sequence[int], bool]] = []  # (batch, ids, all of it)
        self._queued_bytes = 0
        self.unanswered = Unanswered()
        self._progress_at = 0.0  # when the last answer came, or the first add went out after a silence
        self._overtaken_at = 0.0  # since when a later batch has been answered while the oldest waits; 0: not so

    @property
    def outstanding_bytes(self) -> int:
        """Payload bytes sent or queued here and not answered."""
        return self._queued_bytes + self.unanswered.bytes

    @property
    def is_open(self) -> bool:
        return self._sink is not None

    @property
    def idle(self) -> bool:
        """True if nothing is queued here and everything sent was answered."""
        return not self._queued and not self._due and not self.unanswered

    @property
    def writable(self) -> bool:
        """True if the connection is up and its socket takes bytes without piling them up here."""
        return self._link is not None and self._link.writable

    def send(self, batch: AddBatch, entries: Sequence[int] | None = None) -> None:
        """
        Sends every entry of the batch, or those ids (ascending) only; before the connection is up they wait here.
        After `failed` or `close` nothing happens.
        """
        if self._sink is None:
            return
        if batch.ledger != self.ledger:
            raise ValueError(f"a batch of ledger {batch.ledger} on a channel of ledger {self.ledger}")
        whole = entries is None
        ids: Sequence[int] = range(batch.first, batch.first + batch.count) if entries is None else entries
        if not ids:
            return
        if self._link is not None:
            self._link.send_adds(self, batch, ids, whole, batch.bytes if whole else self._size(batch, len(ids)))
        else:
            self._queued.append((batch, ids, whole))
            self._queued_bytes += self._size(batch, len(ids))

    def hand_over(self, sink: AddSink) -> None:
        """Reports to this sink from now on."""
        if self._sink is not None:
            self._sink = sink

    def close(self) -> None:
        """Says no more to the sink.  What is under way stays under way: the bookie may still store it."""
        self._sink = None
        self._queued.clear()
        self._due.clear()
        self._queued_bytes = 0
        links = (self._link, self._beside)
        self._link = self._beside = None
        if self._large:  # answers to the others are ignored, and `_beside` must not wait for it
            self.unanswered = self.unanswered.only(self._large)
        for link in links:
            if link is not None:
                link.leave(self)

    # from here on: called by the pool and the link

    def attach(self, link: Carrier) -> None:
        """The connection is up: sends everything queued."""
        if self._sink is None or not self._counts_on(link):
            return
        self._link = link
        link.join(self)
        queued, self._queued = self._queued, []
        self._queued_bytes = 0
        for batch, ids, whole in queued:
            self._pass(link, batch, ids, whole)

    def await_beside(self, batch: AddBatch, entry: int) -> None:
        """Keeps one add here until another connection to the same bookie is up: `send_beside`."""
        self._due.add(entry)
        self._queued_bytes += self._size(batch, 1)

    def send_beside(self, link: Carrier, batch: AddBatch, entry: int) -> None:
        """Sends that add over the other connection; the end of either is the channel's."""
        if not self._counts_on(link):
            return
        self._due.discard(entry)
        self._queued_bytes -= self._size(batch, 1)
        if self._beside is None:
            self._beside = link
            link.join(self)
        self._large.add(entry)
        self._pass(link, batch, [entry], False)

    def _counts_on(self, link: Carrier) -> bool:
        """True if the bookie's incarnation is the one that the writer means.  If not, the channel fails, soon."""
        wanted, met = self._incarnations.get(self.bookie), link.incarnation
        if wanted is None:
            self._incarnations[self.bookie] = met
        elif met != wanted:
            reason = (
                f"bookie {self.bookie} is not the one that this ledger's entries went to: it began again, empty "
                f"(incarnation {met or 'unknown'} instead of {wanted})"
            )
            self._clock.callLater(0, self.fail, BookieHandleNotAvailable.code, reason)
            return False
        return True

    def took(self, ids: Sequence[int], size: int) -> Sent:
        """The link is about to send these ids."""
        table = self.unanswered.table
        if table.head >= len(table.runs):
            self._progress_at = self._clock.seconds()
        if self._requests.untimed:
            self._requests.untimed -= 1
        elif self._timed < 0:
            self._requests.untimed = TIMED_EVERY - 1
            self._timed, self._timed_at = ids[-1], self._clock.seconds()
        return self.unanswered.add(ids, size)

    def answered(self, runs: list[tuple[int, int]], code: int, now: float) -> None:
        """The link got answers for these runs of ids, which were open until now."""
        if not runs:
            return
        self._progress_at = now
        if not self.unanswered.overtaken:
            self._overtaken_at = 0.0
        elif not self._overtaken_at:
            self._overtaken_at = now
        for first, count in runs:
            if first <= self._timed < first + count:
                if code == OK:
                    self._requests.times.observe(now - self._timed_at)
                self._timed = -1
            if code == OK:
                self._requests.done += count
            else:
                self._requests.fail(name_of(code), count)
            if self._sink is not None:
                self._sink.acked(self, first, count, code)

    def heard_of_reader(self) -> None:
        """A reader waits at the bookie for what comes next."""
        if self._sink is not None and self.reader_waits is not None:
            self.reader_waits(self.bookie)

    def stuck(self, now: float, seconds: float) -> str | None:
        """Why this channel has failed for want of answers, or None: it may be slow, only silence counts."""
        if now - self._progress_at <= seconds and not self._overtaken_at:  # most channels, and without a call
            return None
        if self._sink is None or not self.unanswered:
            return None
        if now - self._progress_at > seconds:
            return f"no add was answered for {now - self._progress_at:.1f} s"
        if self._overtaken_at and now - self._overtaken_at > seconds:
            return f"an add was passed over by later ones for {now - self._overtaken_at:.1f} s"
        return None

    def fail(self, code: int, reason: str) -> None:
        sink = self._sink
        if sink is None:
            return
        queued = sum(len(ids) for _batch, ids, _whole in self._queued) + len(self._due)
        if left := queued + sum(sent.left for sent in self.unanswered.table.open()):
            self._requests.fail(name_of(code), left)
        self.close()
        sink.failed(self, code, reason)

    def _size(self, batch: AddBatch, count: int) -> int:
        return batch.bytes if count == batch.count else batch.bytes * count // max(1, batch.count)

    def _pass(self, link: Carrier, batch: AddBatch, ids: Sequence[int], whole: bool) -> None:
        link.send_adds(self, batch, ids, whole, self._size(batch, len(ids)))


class Parting:
    """
    The sink of channels whose writer, or whose recovery, has closed its ledger: what they have queued is still sent,
    and each is closed when its last add is answered or it fails.  So a copy above the ack quorum is not left out
    because its bookie was slower than the close.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._channels: set[AddChannel] = set()
        self._waits: list[tuple[int | None, Deferred[None], Timer]] = []  # (of one ledger or all, answer, its end)

    def take(self, channel: AddChannel) -> None:
        if channel.idle:
            channel.close()
        elif channel.is_open:
            self._channels.add(channel)
            channel.hand_over(self)

    def acked(self, channel: AddChannel, first: int, count: int, code: int, /) -> None:
        if channel.idle:
            channel.close()
            self._ended(channel)

    def failed(self, channel: AddChannel, code: int, reason: str, /) -> None:
        self._ended(channel)

    def wait(self, seconds: float, ledger: int | None = None) -> Deferred[None]:
        """Until every channel, or every one of this ledger, has ended, at most that long."""
        if not self._has(ledger):
            return succeed(None)
        answer: Deferred[None] = Deferred()
        self._waits.append((ledger, answer, self._clock.callLater(seconds, self._give_up, answer)))
        return answer

    def close(self) -> None:
        """The others are closed as they are."""
        channels, self._channels = self._channels, set()
        for channel in channels:
            channel.close()
        self._answer()

    def _has(self, ledger: int | None) -> bool:
        return any(ledger is None or channel.ledger == ledger for channel in self._channels)

    def _ended(self, channel: AddChannel) -> None:
        self._channels.discard(channel)
        self._answer()

    def _answer(self) -> None:
        """Ends the waits for nothing."""
        over = [each for each in self._waits if not self._has(each[0])]
        self._waits = [each for each in self._waits if each not in over]
        for _ledger, answer, timer in over:
            timer.cancel()
            answer.callback(None)

    def _give_up(self, answer: Deferred[None]) -> None:
        self._waits = [each for each in self._waits if each[1] is not answer]
        answer.callback(None)
