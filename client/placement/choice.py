"""
Picking bookies: ensembles for new ledgers, replacements for failed ones.

Knows: which bookies are registered (from the store), which of them failed for this client lately (`health`), and that a
policy needs machines, places and weights before it chooses; what bookies reported last about their disks, for how long
to believe it, and the cap of that weight at a multiple of the median (docs/placement.md).
Does not know: how to choose among equals (`policy`), what a ledger does with the answer.

Safety: no bookie is in an ensemble twice, whatever the policy, which may be a user's: two copies on one are one.

It chooses among the bookies that the store's handle knows, and asks again only where these are too few: one that has
just left is tried and fails.  A new ledger waits for what the policy needs to know.  Who replaces a bookie waits for it
for a moment, for its entries wait too; for longer only where no spare is known and there must be one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.client.connections.answers import InfoAnswer
from quire.client.placement.health import Health
from quire.client.placement.hosts import Hosts
from quire.client.placement.policy import Available, Placement, Wish
from quire.client.placement.topology import Topology
from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import OK, BookieHandleNotAvailable, MetaStore, NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

RETRY_SECONDS = 60.0  # a bookie that did not answer is asked again after that


def capped(free: Sequence[int], multiple: int) -> list[float]:
    """A bookie with nothing reported gets the smallest weight of all; none more than `multiple` medians (0: any)."""
    known = sorted(each for each in free if each > 0)
    if not known:
        return [1.0] * len(free)
    most = multiple * median(known) if multiple else float("inf")
    return [min(float(each if each > 0 else known[0]), most) for each in free]


class Weights:
    """`info` asks a bookie; `seconds` is the clock."""

    def __init__(
        self, seconds: Callable[[], float], info: Callable[[str], Deferred[InfoAnswer]], multiple: int, interval_ms: int
    ) -> None:
        self._seconds = seconds
        self._info = info
        self._multiple = multiple
        self._interval = interval_ms / 1000
        self._free: dict[str, int] = {}
        self._due: dict[str, float] = {}  # when each is asked again

    def weigh(self, bookies: Sequence[str]) -> list[float] | None:
        return capped([self._free.get(bookie, 0) for bookie in bookies], self._multiple)

    async def learn(self, bookies: Sequence[str]) -> None:
        """Asks those of whom nothing is known, or nothing new; one that does not answer waits for `RETRY_SECONDS`."""
        now = self._seconds()
        due = [bookie for bookie in sorted(bookies) if self._due.get(bookie, now) <= now]
        for one in [self._info(bookie).addCallback(self._heard, bookie, now) for bookie in due]:
            await one

    def _heard(self, answer: InfoAnswer, bookie: str, asked: float) -> None:
        """At once: who chooses may not wait for all others."""
        if answer.code == OK:
            self._free[bookie] = answer.free_bytes or 0
            self._due[bookie] = asked + self._interval
        else:
            self._due[bookie] = asked + min(self._interval, RETRY_SECONDS)


LEARN_SECONDS_MAX = 2.0  # so long who replaces a bookie waits for places and free disks


class Picked(NamedTuple):
    """The ensemble with failed bookies replaced, why not all, who was registered, the new ones' incarnations."""

    bookies: tuple[str, ...]
    shortage: str
    seen: frozenset[str]
    incarnations: Mapping[str, str | None] = MappingProxyType({})


def wish_of(metadata: LedgerMetadata) -> Wish:
    return Wish(metadata.write_quorum, metadata.ack_quorum, metadata.custom)


def different(given: Iterable[str], size: int) -> list[str]:
    """Returns what a policy gave; `NotEnoughBookies` where these are not so many, each another one."""
    bookies = list(given)
    if not size == len(bookies) == len(set(bookies)):
        raise NotEnoughBookies(f"{size} different bookies are needed; the placement policy gave {', '.join(bookies)}")
    return bookies


class BookieChoice:
    """One client's choice of bookies."""

    def __init__(
        self,
        clock: Clock,
        store: MetadataStore,
        placement: Placement,
        health: Health | None = None,
        topology: Topology | None = None,
        weights: Weights | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.placement = placement
        self._clock = clock
        self._store = store
        self._health = health or Health(clock.seconds)
        self._topology = topology
        self._weights = weights
        self._hosts = hosts
        self._listed = BookieList({}, {})  # what the last choice was made from
        self._available = Available(())  # of it, as the places of bookies were then
        self._places_known = 0

    def suspect(self, bookie: str, code: int = BookieHandleNotAvailable.code) -> None:
        """Notes a bookie that failed just now, with this code."""
        self._health.failed(bookie)
        self._health.answered(bookie, code)

    def suspects(self, registered: Collection[str]) -> list[str]:
        """The bookies that failed lately without leaving since, and those in quarantine."""
        return self._health.suspects(registered)

    async def available(self, ask: bool = False, until: float | None = None) -> Available:
        """
        The writable bookies, as far as was heard or as they are now, of whom the policy now knows what it may have to;
        or, with a time by the clock, what it has learned until then.  `MetaStore`.
        """
        bookies: BookieList = await (self._store.bookies() if ask else self._store.known_bookies())
        self._health.registered = bookies
        if self._hosts is not None:
            self._hosts.learn(bookies)
        learning = Deferred.fromCoroutine(self._learn(bookies))
        await (learning if until is None or learning.called else self._at_latest(until, learning))
        known = 0 if self._topology is None else self._topology.changes
        if bookies is not self._listed or known != self._places_known:
            self._listed, self._places_known, self._available = bookies, known, Available(bookies.writable)
        return self._available

    def incarnations(self, bookies: Iterable[str]) -> dict[str, str | None]:
        """Incarnations of bookies chosen in this very turn, as listed before any metadata names them (D19)."""
        writable = self._listed.writable
        return {bookie: info.incarnation if (info := writable.get(bookie)) is not None else None for bookie in bookies}

    async def _learn(self, bookies: BookieList) -> None:
        if self._topology is not None:
            await self._topology.learn(bookies.writable)
        if self._weights is not None:
            await self._weights.learn(list(bookies.writable))

    def _at_latest(self, until: float, learning: "Deferred[None]") -> "Deferred[object]":
        """Fires with it, or at that time; it goes on then, for the next choice."""
        over: Deferred[object] = Deferred(lambda _over: timer.cancel())
        timer = self._clock.callLater(max(0.0, until - self._clock.seconds()), over.callback, None)

        def learned(result: object) -> object:
            if not timer.active():
                return result
            timer.cancel()
            over.callback(result)
            return None

        learning.addBoth(learned)
        return over

    async def ensemble(self, size: int, wish: Wish = Wish()) -> list[str]:
        """Bookies for a new ledger.  `NotEnoughBookies` with the numbers; `MetaStore`."""
        try:
            return self._ensemble_of(await self.available(), size, wish)
        except NotEnoughBookies:
            return self._ensemble_of(await self.available(ask=True), size, wish)

    def _ensemble_of(self, available: Available, size: int, wish: Wish) -> list[str]:
        suspects = self.suspects(available)
        try:
            return different(self.placement.new_ensemble(available, size, suspects, wish=wish), size)
        except NotEnoughBookies:
            if not suspects:
                raise
            return different(self.placement.new_ensemble(available, size, (), wish=wish), size)

    async def replace(
        self, bookies: tuple[str, ...], failed: Sequence[int], must: bool = False, wish: Wish = Wish()
    ) -> Picked:
        """
        Replacements for the bookies of an ensemble at the indexes that failed; `must`: even ones that failed lately may
        be picked, and what the policy needs to know of a spare is waited for.  A store that can't be asked means that
        there is none.
        """
        until = self._clock.seconds() + LEARN_SECONDS_MAX
        try:
            picked = self._replace_from(await self.available(until=until), bookies, failed, must, wish)
            if not picked.shortage:
                return picked
            available = await self.available(ask=True, until=None if must else until)
            return self._replace_from(available, bookies, failed, must, wish)
        except MetaStore as error:
            return Picked(bookies, f"no spare could be looked up: {error}", frozenset())

    def _replace_from(
        self, available: Available, before: tuple[str, ...], failed: Sequence[int], must: bool, wish: Wish
    ) -> Picked:
        bookies, lost = list(before), [before[index] for index in failed]
        suspects = self.suspects(available)
        shortage = ""
        for index in failed:
            for excluded in ([*lost, *suspects], lost) if must else ([*lost, *suspects],):
                try:
                    bookies[index] = self._replacement(available, bookies, excluded, index, wish)
                    break
                except NotEnoughBookies as error:
                    shortage = str(error)
        replacing = self.incarnations(set(bookies) - set(before))
        return Picked(tuple(bookies), shortage, frozenset(available), replacing)

    async def spare(
        self,
        bookies: Sequence[str],
        index: int,
        excluded: Sequence[str],
        metadata: LedgerMetadata,
        available: Available | None = None,
    ) -> str:
        """A bookie for index `index` of an ensemble, of `available` if given.  `NotEnoughBookies`; `MetaStore`."""
        if available is None:
            available = await self.available()
        return self._replacement(available, bookies, excluded, index, wish_of(metadata))

    def _replacement(
        self, available: Available, ensemble: Sequence[str], excluded: Sequence[str], index: int, wish: Wish
    ) -> str:
        found = self.placement.replacement(available, ensemble, excluded, index=index, wish=wish)
        if found in ensemble:
            raise NotEnoughBookies(f"the placement policy gave {found}, which the ensemble has: it has to be another")
        return found
