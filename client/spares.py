"""
Picking bookies: ensembles for new ledgers, replacements for failed ones.

Knows: which bookies are registered (from the store), which of them failed for this client lately.
Does not know: how to choose among equals (`placement`), what a ledger does with the answer.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from quire.client.core.adds import StoreEnsemble
from quire.client.network import Clock
from quire.metadata.store import MetadataStore
from quire.protocol.errors import MetaStore, NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

SUSPECT_SECONDS_MAX = 60.0  # so long a bookie that failed is picked only if nobody else is left


class Placement(Protocol):
    """Chooses among bookies; see `placement.RandomPlacement`."""

    def new_ensemble(self, available: Sequence[str], size: int, exclude: Sequence[str] = ()) -> list[str]: ...

    def replacement(self, available: Sequence[str], ensemble: Sequence[str], excluded: Sequence[str] = ()) -> str: ...


class Picked(NamedTuple):
    """The ensemble with as many failed bookies replaced as there were spares, why not all, and who was registered."""

    bookies: tuple[str, ...]
    shortage: str
    seen: frozenset[str]


class Spares:
    """One client's choice of bookies."""

    def __init__(self, clock: Clock, store: MetadataStore, placement: Placement) -> None:
        self._clock = clock
        self._store = store
        self._placement = placement
        self._suspects: dict[str, float] = {}  # bookie -> when it failed

    def suspect(self, bookie: str) -> None:
        """It failed just now."""
        self._suspects[bookie] = self._clock.seconds()

    def suspects(self, registered: Sequence[str]) -> list[str]:
        """Who failed lately and has been registered ever since; one that left and came back has a clean slate."""
        since = self._clock.seconds() - SUSPECT_SECONDS_MAX
        self._suspects = {bookie: at for bookie, at in self._suspects.items() if at > since and bookie in registered}
        return sorted(self._suspects)

    async def ensemble(self, size: int) -> list[str]:
        """Bookies for a new ledger.  `NotEnoughBookies` with the numbers; `MetaStore`."""
        available = sorted((await self._store.bookies()).writable)
        suspects = self.suspects(available)
        try:
            return self._placement.new_ensemble(available, size, suspects)
        except NotEnoughBookies:
            if not suspects:
                raise
            return self._placement.new_ensemble(available, size, ())

    async def replace(self, wanted: StoreEnsemble) -> Picked:
        """Replacements for the failed bookies of an ensemble.  A store that can't be asked means that there is none."""
        try:
            available = sorted((await self._store.bookies()).writable)
        except MetaStore as error:
            return Picked(wanted.bookies, f"no spare could be looked up: {error}", frozenset())
        bookies, failed = list(wanted.bookies), [bookie for _index, bookie in wanted.failed]
        suspects = self.suspects(available)
        shortage = ""
        for index, _bookie in wanted.failed:
            for excluded in ([*failed, *suspects], failed) if wanted.must else ([*failed, *suspects],):
                try:
                    bookies[index] = self._placement.replacement(available, bookies, excluded)
                    break
                except NotEnoughBookies as error:
                    shortage = str(error)
        return Picked(tuple(bookies), shortage, frozenset(available))
