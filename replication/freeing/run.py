"""
One run over the ledgers that name lost bookies: its settings, its bounds and its tally, as values.

Knows: how much of the memory and of the metadata store all ledgers of a run share.
Does not know: how a ledger is freed (`ledger`), which ledgers there are (`survey`).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import RepairLock
from quire.metadata.store import Versioned
from quire.protocol.errors import NotEnoughBookies
from quire.replication.concurrently import Pace, Share
from quire.replication.copier import Wrong

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Stored = Versioned[LedgerMetadata]
Ranges = tuple[tuple[int, int], ...]  # of entries: (first, last), ascending and apart

COPIED_BYTES_MAX = 64 << 20  # entries that were read and are not stored yet, of all ledgers together
OPERATIONS_MAX = 64  # of the metadata store that have no answer yet
LEDGER_BYTES = 64 << 10  # a ledger costs as much time as so many bytes, about, whatever is copied of it
SPARES_S = 1.0  # for so long new bookies are chosen among those that were there


@dataclass(frozen=True, slots=True)
class Progress:
    """
    How far a run is.  `ledgers_total` are looked at, `ledgers_seen` of them were; `ledgers_named` of these name a lost
    bookie, and `ledgers_done` of those were dealt with, `ledgers_failed` of them in vain.  `fragments`, `entries`,
    `bytes` done (in a dry run: to do), of `entries_total` and `bytes_total`, in which nothing counts whose end is not
    known, and which are whole once all were seen.
    """

    ledgers_total: int = 0
    ledgers_seen: int = 0
    ledgers_named: int = 0
    ledgers_done: int = 0
    ledgers_failed: int = 0
    ledgers_recovered: int = 0
    fragments: int = 0
    entries: int = 0
    bytes: int = 0
    entries_total: int = 0
    bytes_total: int = 0

    @property
    def surveyed(self) -> bool:
        """True if all ledgers were seen, so that the totals are whole."""
        return self.ledgers_seen == self.ledgers_total

    @property
    def ledgers_to_do(self) -> int:
        """How many are to be dealt with, as far as that is known."""
        return self.ledgers_named

    @property
    def share(self) -> float:
        """Of the time that copying takes in all, as much as is over, 0 to 1; means something once it is `surveyed`."""
        whole = self.bytes_total + LEDGER_BYTES * self.ledgers_named
        return min(1.0, (self.bytes + LEDGER_BYTES * self.ledgers_done) / whole) if whole else 1.0


@dataclass(frozen=True, slots=True)
class Failed:
    """
    A ledger that could not be dealt with, and why; `gone`: nothing more can be done, for entries have no copy;
    `open`: the rest is up to its writer, or to a process that closes it.
    """

    ledger: int
    reason: str
    gone: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """
    What a run did.  `failed` is empty when no ledger names a lost bookie any more (in a dry run: when all could be
    looked at).  `ended`: the lock that the caller gave went with the last change, and so did the ledger's mark.
    """

    lost: tuple[str, ...]
    dry_run: bool
    progress: Progress
    failed: tuple[Failed, ...]
    ledgers: tuple[int, ...]  # that named a lost bookie, ascending
    ended: bool = False

    @property
    def complete(self) -> bool:
        return not self.failed


class Named(NamedTuple):
    """A ledger that names a lost bookie, with its metadata if that was kept, and the entries to be copied so far."""

    ledger: int
    stored: Stored | None
    entries: int


Report = Callable[[Progress], None]
# Asked about ledgers that could not be freed: the entries that are given up, by ledger (`gone_of`).
Accept = Callable[[Sequence[Failed]], Awaitable[Mapping[int, Ranges]]]


@dataclass(slots=True)
class Run:
    """One call's settings and tally.  `lock`: the caller's, of its one ledger; `finish`: it goes with the last edit."""

    client: Client
    lost: frozenset[str]
    dead: frozenset[str]  # those of them that can't be asked
    dry_run: bool
    verify: bool
    fence: bool
    report: Report | None = None
    wrong: Sequence[Wrong] = ()
    lock: RepairLock | None = None
    finish: bool = False
    pace: Pace | None = None
    accepted: Mapping[int, Ranges] = field(default_factory=dict)  # entries that are given up, by ledger
    failed: list[Failed] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    waits: bool = False  # a ledger that another process has locked is tried again later
    locked: list[Named] = field(default_factory=list)
    ended: bool = False
    memory: Share = field(default_factory=lambda: Share(COPIED_BYTES_MAX))
    operations: Share = field(default_factory=lambda: Share(OPERATIONS_MAX))
    counts: Counter[str] = field(default_factory=Counter)  # by the names of `Progress`
    getting: Counter[str] = field(default_factory=Counter)  # entries that bookies are to get of what is copied now
    _spares: list[str] = field(default_factory=list)
    _spares_until: float = float("-inf")

    async def spare(
        self,
        bookies: Sequence[str],
        index: int,
        excluded: Sequence[str],
        metadata: LedgerMetadata,
        before: str | None = None,
    ) -> str:
        """
        As `BookieChoice.spare`, from those that were there a moment ago; of two that it gives, the one that gets fewer
        copies from this run at present.  `before`: it is wanted, if it may be.
        """
        now, choice = self.client.reactor.seconds(), self.client.choice
        if now >= self._spares_until:
            self._spares_until = now + SPARES_S  # meanwhile others choose as they did
            self._spares = await self.store(choice.available)
        if before in self._spares and before not in (*excluded, *bookies):
            return before
        try:
            one = await choice.spare(bookies, index, excluded, metadata, self._spares)
            if len(self._spares) <= len(bookies):  # of which one is lost: there is hardly another one
                return one
            other = await choice.spare(bookies, index, excluded, metadata, self._spares)
        except NotEnoughBookies:
            return await choice.spare(bookies, index, excluded, metadata)
        return min(one, other, key=self.getting.__getitem__)

    async def store(self, call: Callable[[], Awaitable[T]]) -> T:
        """What an operation of the metadata store gives, in its turn."""
        return await self.operations.turn(call)

    def result(self) -> Recovered:
        """What was done so far."""
        return Recovered(
            tuple(sorted(self.lost)),
            self.dry_run,
            self.progress,
            tuple(sorted(self.failed, key=lambda each: each.ledger)),
            tuple(sorted(self.named)),
            self.ended,
        )

    def fail(self, ledger: int, reason: str, gone: bool = False, open: bool = False) -> None:
        self.failed.append(Failed(ledger, reason, gone, open))
        self.count(ledgers_failed=1)

    def count(self, **more: int) -> None:
        """So much more of what `Progress` counts."""
        for name, amount in more.items():
            self.counts[name] += amount
        if self.report is not None:
            self.report(self.progress)

    @property
    def progress(self) -> Progress:
        """How far it is by now."""
        return Progress(**self.counts)
