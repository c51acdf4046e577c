"""
One run over the ledgers that name lost bookies: its settings, its bounds and its tally; and the survey with which it
begins, of all ledgers' metadata, before anything is copied.

Knows: how much of the memory and of the metadata store all ledgers of a run share; that ids are counted first and
metadata is read many at a time.
Does not know: how a ledger is freed (`ledger`).

Bounded: ids in eight bytes each; of what was read only the metadata of closed ledgers is kept, and of so many.  That of
an unclosed one is read again when its turn comes: its writer may have replaced the bookie, and must not be fenced then.
"""

from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from quire.client.api import Client
from quire.client.placement.policy import Available
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import RepairLock
from quire.metadata.store import Versioned
from quire.protocol.errors import LedgerError, NoSuchLedgerExistsOnMetadataServer, NotEnoughBookies
from quire.replication.concurrently import Pace, Share, about_one
from quire.replication.copier import Wrong
from quire.replication.core.fragments import copies_of, entry_bytes, fragments_naming, writer_depends_on
from quire.replication.core.progress import RunProgress

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Stored = Versioned[LedgerMetadata]
Ranges = tuple[tuple[int, int], ...]  # of entries: (first, last), ascending and apart

COPIED_BYTES_MAX = 64 << 20  # entries that were read and are not stored yet, of all ledgers together
OPERATIONS_MAX = 64  # of the metadata store that have no answer yet
LEDGER_BYTES = 64 << 10  # a ledger costs as much time as so many bytes, about, whatever is copied of it
SPARES_S = 1.0  # for so long new bookies are chosen among those that were there


@dataclass(frozen=True, slots=True)
class FreeingProgress(RunProgress):
    """
    How far a run is.  `ledgers_named` of those that were seen name a lost bookie, and are dealt with, `ledgers_failed`
    in vain.  `fragments`, `entries` and bytes done are those to do in a dry run.
    """

    ledger_bytes = LEDGER_BYTES

    ledgers_named: int = 0
    ledgers_failed: int = 0
    ledgers_recovered: int = 0
    fragments: int = 0
    entries: int = 0
    entries_total: int = 0

    @property
    def ledgers_to_do(self) -> int:
        return self.ledgers_named


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
    The result of a run.  `failed` is empty when no ledger names a lost bookie any more (in a dry run: when all could be
    looked at).  `ended`: the lock that the caller gave went with the last change, and so did the ledger's mark.
    """

    lost: tuple[str, ...]
    dry_run: bool
    progress: FreeingProgress
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


Report = Callable[[FreeingProgress], None]
# Asked about ledgers that could not be freed: the entries that are given up, by ledger (`gone_of`).
Accept = Callable[[Sequence[Failed]], Awaitable[Mapping[int, Ranges]]]


@dataclass(slots=True)
class FreeingRun:
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
    counts: Counter[str] = field(default_factory=Counter)  # by the names of `FreeingProgress`
    getting: Counter[str] = field(default_factory=Counter)  # entries that bookies are to get of what is copied now
    _spares: Available = field(default_factory=lambda: Available(()))
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
        if before is not None and before in self._spares and before not in (*excluded, *bookies):
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
        """Makes an operation of the metadata store in its turn."""
        return await self.operations.turn(call)

    def result(self) -> Recovered:
        """Returns what was done so far."""
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
        """Adds to the counts of `FreeingProgress`."""
        for name, amount in more.items():
            self.counts[name] += amount
        if self.report is not None:
            self.report(self.progress)

    @property
    def progress(self) -> FreeingProgress:
        """How far it is by now."""
        return FreeingProgress(**self.counts)


KEPT_MAX = 10_000  # ledgers whose metadata is kept for their turn: some ten megabytes
# Of larger ones it is read again in their turn: another process may have repaired them by then, and to see that after
# they were copied once more costs more than a read.
KEPT_BYTES_MAX = 1 << 20


async def all_ids(client: Client) -> AsyncIterator[int]:
    """Yields the ids of all ledgers, ascending."""
    after = -1
    while page := await client.ledger_ids(after):
        for ledger in page:
            yield ledger
        after = page[-1]


async def survey(run: FreeingRun, ledgers: Iterable[int] | None) -> list[Named]:
    """Finds the ledgers, of these or of all, that name a lost bookie; what can't be read is noted as failed."""
    ids = array("q", ledgers or ())
    if ledgers is None:
        async for ledger in all_ids(run.client):
            ids.append(ledger)
    run.count(ledgers_total=len(ids))
    found: list[Named] = []
    for start in range(0, len(ids), OPERATIONS_MAX):
        some = ids[start : start + OPERATIONS_MAX].tolist()
        for ledger, stored in zip(some, await read_each(run.client, some, run.fail), strict=True):
            if stored is not None and not stored.value.bookies().isdisjoint(run.lost):
                entries = _count(run, ledger, stored.value)
                small = entries * entry_bytes(stored.value) <= KEPT_BYTES_MAX
                kept = stored.value.is_closed and small and len(found) < KEPT_MAX
                found.append(Named(ledger, stored if kept else None, entries))
        run.count(ledgers_seen=len(some))
    return found


async def read_each(client: Client, ledgers: list[int], fail: Callable[[int, str], None]) -> list[Stored | None]:
    """Reads what is stored of each; None of one that is not there, or can't be read: `fail` hears why.  `MetaStore`."""
    try:
        return await client.store.read_ledgers(ledgers)
    except LedgerError:
        return [await _read_one(client, ledger, fail) for ledger in ledgers]


async def _read_one(client: Client, ledger: int, fail: Callable[[int, str], None]) -> Stored | None:
    try:
        return await client.store.read_ledger(ledger)
    except NoSuchLedgerExistsOnMetadataServer:
        return None
    except LedgerError as error:
        await about_one(client.store, error)
        fail(ledger, str(error))
        return None


def _count(run: FreeingRun, ledger: int, metadata: LedgerMetadata) -> int:
    """Counts what there is to do for a ledger; returns how many entries are to be copied."""
    fragments = fragments_naming(metadata, run.lost)
    run.named.append(ledger)
    entries = sum(copies_of(metadata, fragment) for fragment in fragments)
    run.count(ledgers_named=1, entries_total=entries, bytes_total=entries * entry_bytes(metadata))
    if run.dry_run:
        closing = int(writer_depends_on(metadata, run.lost))
        run.count(fragments=len(fragments), entries=entries, ledgers_recovered=closing, ledgers_done=1)
    return entries
