"""
The bookies that a writer has now: one replica for each index of the ensemble, and the channels of those in use.

Knows: which replica a channel belongs to, which have failed or are out, whether the rest can acknowledge every entry,
and whether one entry is at its ack quorum.
Does not know: what is sent, what a failure leads to (`sending`, `machine`).

Safety: an answer counts only by the channel on which its add was sent; a replica that has failed or was replaced has
none any more.
"""

from collections.abc import Container, Sequence

from quire.client.core.append.replica import Replica, Standing
from quire.client.core.quorum import Domains, Quorums, shortage
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


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

    def install(self, index: int, bookie: str, settled: int) -> Replica:
        """
        A new replica at `index`, with everything up to `settled` behind it; the one before it is forgotten, and so are
        its late answers.
        """
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
        """Whether enough replicas have acknowledged an entry, in enough fault domains."""
        quorums, replicas = self._quorums, self.replicas
        if self._domains is None:
            return sum([replicas[index].holds(entry) for index in quorums.write_set(entry)]) >= quorums.ack
        holders = [replicas[index].bookie for index in quorums.write_set(entry) if replicas[index].holds(entry)]
        return len(holders) >= quorums.ack and self._domains.suffice(holders, quorums.write)

    def writable_without(self, lost: Container[int]) -> bool:
        """Whether every entry can still be acknowledged when none of `lost` answers."""
        quorums, domains = self._quorums, self._domains
        return quorums.writable_without(lost) and (domains is None or domains.serve(quorums, self.bookies, lost))

    def can_lose(self, replicas: Sequence[Replica]) -> bool:
        """The same of these, beside all that get nothing already."""
        return self.writable_without(
            {each.index for each in self.replicas if each in replicas or each.channel not in self.channels}
        )
