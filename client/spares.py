"""
Picking bookies: ensembles for new ledgers, replacements for failed ones.

Knows: which bookies are registered (from the store), which of them failed for this client lately (`health`), and that a policy has to
be told of places and weights before it chooses.
Does not know: how to choose among equals (`placement`), what a ledger does with the answer.
"""

from collections.abc import Collection
from typing import NamedTuple

from quire.client.core.adds import StoreEnsemble
from quire.client.health import Health
from quire.client.network import Clock
from quire.client.placement import Placement, Wish
from quire.client.topology import Topology
from quire.client.weights import Weights
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList, MetadataStore
from quire.protocol.errors import MetaStore, NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

SUSPECT_SECONDS_MAX = 60.0  # so long a bookie that failed is picked only if nobody else is left


class Picked(NamedTuple):
    """The ensemble with as many failed bookies replaced as there were spares, why not all, and who was registered."""

    bookies: tuple[str, ...]
    shortage: str
    seen: frozenset[str]


def wish_of(metadata: LedgerMetadata) -> Wish:
    return Wish(metadata.write_quorum, metadata.ack_quorum, metadata.custom)


class Spares:
    """One client's choice of bookies."""

    def __init__(
        self,
        clock: Clock,
        store: MetadataStore,
        placement: Placement,
        health: Health | None = None,
        topology: Topology | None = None,
        weights: Weights | None = None,
    ) -> None:
        self.placement = placement
        self._store = store
        self._health = health or Health(clock.seconds)
        self._topology = topology
        self._weights = weights

    def suspect(self, bookie: str) -> None:
        """It failed just now."""
        self._health.failed(bookie)

    def suspects(self, registered: Collection[str]) -> list[str]:
        """Who failed lately and has been registered ever since; one that left and came back has a clean slate.  And the quarantine."""
        return self._health.suspects(registered)

    async def available(self) -> list[str]:
        """The writable bookies, of whom the policy now knows what it may have to.  `MetaStore`."""
        bookies: BookieList = await self._store.bookies()
        self._health.registered = bookies
        if self._topology is not None:
            await self._topology.learn(bookies.writable)
        if self._weights is not None:
            await self._weights.learn(list(bookies.writable))
        return sorted(bookies.writable)

    async def ensemble(self, size: int, wish: Wish = Wish()) -> list[str]:
        """Bookies for a new ledger.  `NotEnoughBookies` with the numbers; `MetaStore`."""
        available = await self.available()
        suspects = self.suspects(available)
        try:
            return self.placement.new_ensemble(available, size, suspects, wish=wish)
        except NotEnoughBookies:
            if not suspects:
                raise
            return self.placement.new_ensemble(available, size, (), wish=wish)

    async def replace(self, wanted: StoreEnsemble, wish: Wish = Wish()) -> Picked:
        """Replacements for the failed bookies of an ensemble.  A store that can't be asked means that there is none."""
        try:
            available = await self.available()
        except MetaStore as error:
            return Picked(wanted.bookies, f"no spare could be looked up: {error}", frozenset())
        bookies, failed = list(wanted.bookies), [bookie for _index, bookie in wanted.failed]
        suspects = self.suspects(available)
        shortage = ""
        for index, _bookie in wanted.failed:
            for excluded in ([*failed, *suspects], failed) if wanted.must else ([*failed, *suspects],):
                try:
                    bookies[index] = self.placement.replacement(available, bookies, excluded, index=index, wish=wish)
                    break
                except NotEnoughBookies as error:
                    shortage = str(error)
        return Picked(tuple(bookies), shortage, frozenset(available))
