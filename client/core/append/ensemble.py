"""
The bookies that a writer has now: one replica for each index of the ensemble, and the channels of those in use.

Knows: of each replica what was sent and what came back (the watermark and the stragglers of protocol-rules.md 6.2, the
bytes sent and not yet answered); which channel is whose, which have failed or are out, whether the rest can acknowledge
every entry, and whether one entry is at its ack quorum.
Does not know: what is sent, what a failure leads to (`sending`, `machine`), channels' connections.

Safety: an answer counts only by the channel on which its add was sent; a replica that has failed or was replaced has
none any more.  An acknowledgement never implies a lower one.  The watermark moves over a gap only when the entries in
the gap are settled, which is to say that the writer acknowledged them to its caller already.
"""

from collections import deque
from collections.abc import Container, Sequence
from enum import Enum, auto

from quire.client.core.quorum import Domains, Quorums, shortage
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


class Standing(Enum):
    """The standing of a replica with its writer."""

    FRESH = auto()  # brought by the change under way; at its end it gets all that is not acknowledged
    LIVE = auto()  # it gets every add of its index
    LAPSED = auto()  # its channel failed while nothing unacknowledged needed it; the next append decides
    FAILED = auto()  # it is to be replaced by the ensemble change that is under way or next
    OUT = auto()  # there was no spare for it: the ledger goes on without it (D17)


class Replica:
    """One bookie at one index.  A replacement is a new `Replica`; so is the same bookie after it came back."""

    __slots__ = (
        "backlog",
        "bookie",
        "channel",
        "failure",
        "failure_code",
        "heard",
        "index",
        "missed",
        "opened",
        "sent",
        "skipped",
        "standing",
        "stragglers",
        "unanswered",
        "watermark",
    )

    def __init__(self, index: int, bookie: str, channel: int, settled: int) -> None:
        self.index = index
        self.bookie = bookie
        self.channel = channel  # a number used once in the life of a writer: late answers of other channels are ignored
        self.opened = False
        self.failure = ""  # how it failed
        self.failure_code = 0
        self.heard = False  # whether it answered anything on this channel
        self.standing = Standing.LIVE
        self.missed = False  # whether a lapsed one left adds unanswered
        self.watermark = settled  # every entry of this index up to here was acknowledged, or is settled
        self.stragglers: set[int] = set()  # acknowledged ids above it
        self.skipped = False  # whether it moved over ids that this bookie never answered, for all it is known
        self.sent = settled  # the highest id sent on this channel
        self.unanswered: deque[tuple[int, int]] = deque()  # (last id, bytes) of batches on their way, for the backlog
        self.backlog = 0  # payload bytes sent and not answered

    def send(self, last: int, size: int) -> None:
        """Notes a batch up to `last` with `size` payload bytes for this bookie."""
        self.sent = max(self.sent, last)
        self.unanswered.append((last, size))
        self.backlog += size

    def acknowledge(self, first: int, last: int, settled: int, quorums: Quorums) -> bool:
        """
        Takes the answers to the entries of this index among first..last, which were all sent.  `settled`: the highest
        id acknowledged to the caller.  Returns whether anything new was learned.
        """
        self.heard = True
        mark = self.watermark
        base = mark if mark > settled else settled
        following = quorums.next_of(self.index, base) if quorums.striped else base + 1
        if first > following:  # out of order: something lower has not been answered yet
            before = len(self.stragglers)
            self.stragglers.update(quorums.entries_of(self.index, first, last))
            return len(self.stragglers) != before
        if last <= mark:
            return False
        if mark < settled and first > mark + 1 and first > quorums.next_of(self.index, mark):
            self.skipped = True
        self.watermark = last
        if self.stragglers:
            self._absorb(quorums)
            last = self.watermark
        unanswered = self.unanswered
        while unanswered and unanswered[0][0] <= last:
            self.backlog -= unanswered.popleft()[1]
        return True

    def settle(self, settled: int, quorums: Quorums) -> None:
        """Everything up to `settled` was acknowledged to the caller: gaps below it no longer count."""
        if self.stragglers and self.watermark < settled:
            self.skipped = self.skipped or quorums.next_of(self.index, self.watermark) <= settled
            self.watermark = settled
            self._absorb(quorums)
            mark, unanswered = self.watermark, self.unanswered
            while unanswered and unanswered[0][0] <= mark:
                self.backlog -= unanswered.popleft()[1]

    def _absorb(self, quorums: Quorums) -> None:
        mark, stragglers = self.watermark, self.stragglers
        while (following := quorums.next_of(self.index, mark)) in stragglers:
            mark = following
        self.watermark = mark
        self.stragglers = {entry for entry in stragglers if entry > mark}

    @property
    def owes(self) -> bool:
        """True if it may lack entries that were sent to it: it has not answered them."""
        return bool(self.unanswered) or self.skipped

    def holds(self, entry: int) -> bool:
        """True if this bookie acknowledged `entry`, one of its index that is not settled."""
        return entry <= self.watermark or entry in self.stragglers


class Ensemble:
    """`replicas` by index; `channels` are those of the replicas that have not failed.  Both stay the same objects."""

    def __init__(self, quorums: Quorums, domains: Domains | None, bookies: Sequence[str], settled: int) -> None:
        assert len(bookies) == quorums.ensemble
        self._quorums = quorums
        self._domains = domains
        self._next_channel = 0
        self.replicas = [self._replica(index, bookie, settled) for index, bookie in enumerate(bookies)]
        self.channels = {replica.channel: replica for replica in self.replicas}

    @property
    def bookies(self) -> tuple[str, ...]:
        return tuple(replica.bookie for replica in self.replicas)

    def standing(self, *standings: Standing) -> list[Replica]:
        """The replicas with one of these standings, by index."""
        return [replica for replica in self.replicas if replica.standing in standings]

    def failures(self, *standings: Standing) -> str:
        """The failures of the bookies with these standings."""
        return "; ".join(replica.failure for replica in self.standing(*standings))

    def shortage(self, *standings: Standing) -> int:
        """The code of a writer that can't do without the bookies with these standings."""
        return shortage((replica.failure_code for replica in self.standing(*standings)), NotEnoughBookies.code)

    def send(self, channels: Sequence[int], last: int, size: int) -> None:
        """Notes a batch for the replicas of these channels, as each would by itself."""
        for channel in channels:
            replica = self.channels[channel]
            if last > replica.sent:  # noqa: PLR1730  # no call
                replica.sent = last
            replica.unanswered.append((last, size))
            replica.backlog += size

    def install(self, index: int, bookie: str, settled: int) -> Replica:
        """A new replica at `index`, with all up to `settled` behind it; late answers of the old one are ignored."""
        old = self.replicas[index]
        self.channels.pop(old.channel, None)
        replica = self._replica(index, bookie, settled)
        self.replicas[index] = replica
        self.channels[replica.channel] = replica
        return replica

    def _replica(self, index: int, bookie: str, settled: int) -> Replica:
        self._next_channel += 1
        return Replica(index, bookie, self._next_channel, settled)

    def at_quorum(self, entry: int) -> bool:
        """True if enough replicas have acknowledged an entry, in enough fault domains."""
        quorums, replicas = self._quorums, self.replicas
        if self._domains is None:
            return sum([replicas[index].holds(entry) for index in quorums.write_set(entry)]) >= quorums.ack
        holders = [replicas[index].bookie for index in quorums.write_set(entry) if replicas[index].holds(entry)]
        return len(holders) >= quorums.ack and self._domains.suffice(holders, quorums.write)

    def writable_without(self, lost: Container[int]) -> bool:
        """True if every entry can still be acknowledged when none of `lost` answers."""
        quorums, domains = self._quorums, self._domains
        return quorums.writable_without(lost) and (domains is None or domains.serve(quorums, self.bookies, lost))

    def can_lose(self, replicas: Sequence[Replica]) -> bool:
        """True if all can be acknowledged without these replicas, beside all that get nothing already."""
        return self.writable_without(
            {each.index for each in self.replicas if each in replicas or each.channel not in self.channels}
        )
