"""
Which bookies may take copies: how much, and in which ensembles.

Knows: what bookies say of their disks; that a bookie is taken only if the placement policy would take it in that place,
and no write set comes nearer together, in racks, regions, zones or machines, than it is.
Does not know: who gives copies, and why.
"""

from collections.abc import Mapping
from typing import NamedTuple

from twisted.internet.defer import gatherResults

from quire.client.api import Client
from quire.client.core.quorum import Domains, Quorums, near
from quire.client.placement.choice import wish_of
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import OK, BookieHandleNotAvailable, NotEnoughBookies
from quire.replication.core.levels import Disk
from quire.replication.scrub.ledgers import domains_of

# SPDX-License-Identifier: Apache-2.0

RESERVE = 0.05  # of a disk stays free, as bookies turn read-only there by themselves


class Taking(NamedTuple):
    """The bookies that take part, and why others don't."""

    disks: dict[str, Disk]
    left_out: dict[str, str]


async def disks_of(client: Client, capacities: Mapping[str, int]) -> Taking:
    """
    What every bookie that is up has, as it says itself, or as these `capacities` say.  `BookieHandleNotAvailable` for
    one of them that is not up; `MetaStore`.
    """
    listed = await client.store.bookies()
    bookies = sorted({*listed.writable, *listed.read_only})
    for each in capacities:
        if each not in bookies:
            raise BookieHandleNotAvailable(f"bookie {each} is not up; `quire bookie list` shows those there are")
    found = Taking({}, {})
    answers = await gatherResults([client.pool.info(bookie) for bookie in bookies])
    for bookie, answer in zip(bookies, answers, strict=True):
        capacity = capacities.get(bookie) or answer.total_bytes
        if answer.code != OK:
            found.left_out[bookie] = f"it does not answer (code {answer.code})"
        elif not capacity:
            found.left_out[bookie] = "it does not say how large its disks are: give it a --capacity"
        else:
            room = (answer.free_bytes or 0) - round(RESERVE * (answer.total_bytes or 0))
            found.disks[bookie] = Disk(capacity, max(0, room) if bookie in listed.writable else 0)
    return found


class Rules:
    """What holds for one client's placement now."""

    def __init__(self, client: Client, domains: Domains | None) -> None:
        self.client = client
        self._domains = domains

    @classmethod
    async def of(cls, client: Client) -> "Rules":
        """`MetaStore`."""
        await client.choice.available(ask=True)  # the policy learns what it has to know
        return cls(client, await domains_of(client, await client.store.known_bookies()))

    async def takes(self, bookie: str) -> bool:
        """Whether it is writable, as far as was heard."""
        return bookie in (await self.client.store.known_bookies()).writable

    def fit(self, metadata: LedgerMetadata, bookies: tuple[str, ...], index: int, target: str) -> bool:
        """Whether `target` may stand at an index of an ensemble."""
        if self._domains is not None:
            quorums = Quorums.of(metadata)
            after = (*bookies[:index], target, *bookies[index + 1 :])
            if self._domains.spread(quorums, after) < self._domains.spread(quorums, bookies):
                return False
        host_of = self.client.hosts.host_of
        beside = {
            host_of(bookie)
            for at, bookie in enumerate(bookies)
            if at != index and near(at, index, len(bookies), metadata.write_quorum)
        }
        if host_of(target) in beside and host_of(bookies[index]) not in beside:
            return False
        try:
            self.client.choice.placement.replacement([target], bookies, index=index, wish=wish_of(metadata))
        except NotEnoughBookies:
            return False
        return True
