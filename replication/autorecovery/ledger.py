"""
The repair of one ledger that was taken from the queue.

Knows: in which order what it is short of is made good, when a writer that seems gone loses its ledger, and which copies
are moved to where the placement wants them: one after the other as long as each brings write sets further apart.  Also
when each bookie left, the delay of lost bookies, that a younger mark comes from a process that counts it as lost; which
last add confirmed an open ledger had, under which mark, and since when (protocol-rules.md 5.3, 5.4).
Does not know: the queue, when a ledger is tried again; how copies are made (`lost_bookies`, `mending`).

| a bookie that the mark names | then |
|---|---|
| the ledger does not name it any more | all that it names are looked at: a worker that died may have named one |
| it is gone | what it held is copied to others; an open ledger is closed first when its writer does not replace it |
| it is away, inside the delay of lost bookies | it is waited for |
| it is there | what it lacks is found by its list, or by reading, and copied to it |

What it lacks of a fragment that is being written is copied once that is closed; the ledger is in the queue until then.
A mark that names no bookie asks for better places; what bookies that are there lack is found then, too, and the ledger
stays in the queue while one that it names is away: that one comes back, or is marked when it is lost.

Safety: an open ledger is recovered, never merely copied, and only after its last add confirmed stood still for the
grace, while its last ensemble names a bookie that is gone.  A grace is over only when nothing moved during all of it,
for this very mark: another mark, or another bookie that is gone, begins another one.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import Domains
from quire.client.handles.ledger_record import LedgerRecord
from quire.metadata.clock import pause
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repair_queue import Shortage
from quire.metadata.repairs import RepairLock
from quire.metadata.store import BookieList, BookieWatcher, Watch
from quire.protocol.errors import (
    LedgerError,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Replication,
)
from quire.replication.autorecovery.measures import Measures
from quire.replication.concurrently import Pace
from quire.replication.core.fragments import (
    HeldFragment,
    Outlook,
    outlook,
    short_fragments,
    short_of,
    writer_depends_on,
)
from quire.replication.freeing.naming import move
from quire.replication.lost_bookies import free_ledger
from quire.replication.mending import Mended, Mending, mend_bookies
from quire.replication.scrub.ledgers import domains_of, end_of
from quire.replication.scrub.second_look import Look

# SPDX-License-Identifier: Apache-2.0

UNREADABLE = -2  # in place of a last add confirmed that can't be had
FIRST_LOOK_S = 0.1  # between two looks whether the bookies were listed
KEPT_MAX = 10_000  # ledgers; the grace of the first one begins again


class Graces:
    """The graces of writers, on a clock that is never set."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._seen: dict[int, tuple[object, float]] = {}

    async def left(
        self, ledger: int, metadata: LedgerMetadata, gone: Collection[str], shortage: Shortage
    ) -> float | None:
        """Seconds until an open ledger that depends on bookies that are gone is to be closed; None for any other."""
        if not writer_depends_on(metadata, gone):
            return None
        try:
            confirmed, _metadata = await end_of(self._client, ledger, metadata)
        except (MetaStore, NoSuchLedgerExistsOnMetadataServer):
            raise
        except LedgerError:
            confirmed = UNREADABLE
        now = self._client.reactor.seconds()
        state = confirmed, shortage, frozenset(gone)
        if ledger not in self._seen or self._seen[ledger][0] != state:
            self._seen.pop(ledger, None)
            self._seen[ledger] = state, now
        if len(self._seen) > KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        return self._seen[ledger][1] + self._seconds - now

    def over(self, ledger: int) -> None:
        """Forgets a ledger: it is closed, or none of its bookies is gone."""
        self._seen.pop(ledger, None)


class Absent:
    """
    The bookies that left, on the same clock, as a watch reports them.  `delay_s` of lost bookies holds until one is
    said in the store; `arrivals`: how often bookies came.
    """

    def __init__(self, client: Client, delay_s: float = 0.0) -> None:
        self.arrivals = 0
        self._client = client
        self._delay_s = delay_s
        self._watch: Watch | None = None
        self._listed: BookieList | None = None  # as it was reported last
        self._here: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}

    def watch(self, then: BookieWatcher = lambda _listed: None) -> Watch:
        """Follows the lists until that is cancelled; `then` is called with each, after it was seen."""

        def heard(listed: BookieList) -> None:
            self.see(listed)
            then(listed)

        self._watch = self._client.store.watch_bookies(heard)
        return self._watch

    async def listed(self) -> BookieList:
        """Both lists as they were reported last; the store is not asked."""
        if self._watch is None:
            self.watch()
        while self._listed is None:
            await pause(self._client.reactor, FIRST_LOOK_S)
        return self._listed

    def see(self, listed: BookieList) -> None:
        """The bookies that are there now."""
        now, here = self._client.reactor.seconds(), frozenset((*listed.writable, *listed.read_only))
        follows = self._listed is not None and listed.follows(self._listed)
        if not follows:  # one that is away may have been back, and left just now
            self._since = dict.fromkeys(self._since, now)
        self.arrivals += not (follows and here <= self._here)
        self._listed = listed
        self._since.update(dict.fromkeys(self._here - here, now))
        for bookie in here & self._since.keys():
            del self._since[bookie]
        self._here = here

    async def inside(self, bookies: Collection[str], shortage: Shortage) -> set[str]:
        """
        Returns the bookies that are inside the delay: none that had left before this worker looked, or whose mark says
        no time, or one since then.  `MetaStore`.
        """
        marked_ms = shortage.since_ms
        seen = {bookie: self._since[bookie] for bookie in bookies if bookie in self._since}
        if not seen or marked_ms is None:
            return set()
        said = await self._client.store.auditing.delay()
        delay_s = self._delay_s if said is None else said
        if not delay_s:
            return set()
        now_ms, now = await self._client.store.records.clock(), self._client.reactor.seconds()
        away_s = {bookie: now - since for bookie, since in seen.items()}
        return {each for each, s in away_s.items() if s < delay_s and marked_ms < now_ms - 1000 * s}


READ_AGAIN_S = 3600.0  # a ledger that is being written, in which a scrub found a wrong copy


class Outcome(NamedTuple):
    """
    The outcome of a try.  `reasons`: why the ledger is not whole; `due_s`: when to look again, if that is known;
    `entries` and `bytes` were copied; `ended`: the ledger left the queue, and its lock went.
    """

    reasons: tuple[str, ...] = ()
    outlook: Outlook | None = None
    due_s: float | None = None
    entries: int = 0
    bytes: int = 0
    ended: bool = False

    @property
    def done(self) -> bool:
        return not self.reasons


class Concerned(NamedTuple):
    """The bookies that a try is about: those that are here, those that are gone, and those that are waited for."""

    here: list[str]
    gone: list[str]
    waited: list[str]


class Repairer:
    """
    The repairs of one worker.  `bytes_per_second`: 0 or less sets no limit; `grace_s`: what the writer of an open
    ledger has; `delay_s` of lost bookies, until one is said in the store; `absent` follows which bookies are there.
    """

    def __init__(
        self,
        client: Client,
        bytes_per_second: float,
        grace_s: float,
        delay_s: float = 0.0,
        measures: Measures | None = None,
    ) -> None:
        measures = measures or Measures()
        self.absent = Absent(client, delay_s)
        self._client = client
        rate = max(bytes_per_second, 0) or None
        self._how = Mending(pace=Pace(client.reactor, rate, measures.reads, measures.stores))
        self._graces = Graces(client, grace_s)
        # ledgers with entries that nobody has: the version in which, and the arrivals until which others were asked
        self._denied: dict[int, tuple[int, int]] = {}

    async def repaired(self, lock: RepairLock, *, full: bool = False) -> Outcome:
        """One try.  `full`: all is read, for a scrub found a wrong copy.  `LedgerError`: not this ledger's fault."""
        done = Mended(lock.ledger)
        try:
            return await self._repaired(lock, full, done)
        except NoSuchLedgerExistsOnMetadataServer:
            self._over(lock.ledger)
            return Outcome((), None, None, done.entries, done.bytes)

    async def _repaired(self, lock: RepairLock, full: bool, done: Mended) -> Outcome:
        assert lock.shortage is not None, "it was taken from the queue"
        client, ledger, shortage = self._client, lock.ledger, lock.shortage
        how = replace(self._how, lock=lock)
        look = await Look.taken(client, ledger)
        listed, arrivals = await self.absent.listed(), self.absent.arrivals
        look.asks_others = self._denied.get(ledger) != (look.version, arrivals)
        here, gone, waited = await self._concerned(look.record.metadata, shortage, listed)
        due_s = None
        ended = unsettled = False
        went: list[str] = []
        hopeless: list[bool] = []  # of each part that left something: whether its entries have no copy
        if gone:
            due_s = await self._graces.left(ledger, look.record.metadata, gone, shortage)
            freed = await free_ledger(
                client,
                ledger,
                look.record.current,
                gone,
                fence=due_s is not None and due_s <= 0,
                lock=lock,
                finish=not here and not waited,
                pace=how.pace,
            )
            ended = freed.ended
            done.entries += freed.progress.entries
            done.bytes += freed.progress.bytes
            done.left += [each.reason for each in freed.failed]
            hopeless += [each.gone for each in freed.failed]
            if here or done.left:
                await look.holds()
        if here:
            mended, lost = await mend_bookies(look, here, how, full=full, gone=gone)
            done.entries += mended.entries
            done.bytes += mended.bytes
            done.left += mended.left
            hopeless += [lost] if mended.left else []
            unsettled = mended.unsettled
            now = await client.store.known_bookies()  # one that went is marked, by the mark of this repair
            went = [each for each in here if now.find(each) is None]
            done.left += [f"ledger {ledger}: {each} went while it was repaired" for each in went]
        if waited:
            done.left.append(f"ledger {ledger}: {', '.join(waited)} may come back")
            hopeless.append(False)
        if not shortage.missing:
            await put_right(look, how, done)
        if not done.left:
            self._over(ledger)
            return Outcome((), None, None, done.entries, done.bytes, ended)
        short = short_fragments(look.record.metadata, gone, listed.writable)
        found = outlook(short)
        if went:  # the next try judges it
            found = None if found is Outlook.GONE else found
        elif hopeless and all(hopeless):  # whatever the metadata promises; only its writer may go on
            found = Outlook.GONE
            if any(each.outlook is Outlook.WAITS_FOR_WRITER for each in short):
                found = Outlook.WAITS_FOR_WRITER
        if found is Outlook.GONE and look.others_denied:
            self._denied.pop(ledger, None)
            self._denied[ledger] = look.version, arrivals
            if len(self._denied) > KEPT_MAX:
                del self._denied[next(iter(self._denied))]
        waiting = due_s if found is Outlook.WAITS_FOR_WRITER and due_s is not None and due_s > 0 else None
        if found is None and unsettled:
            found, waiting = Outlook.WAITS_FOR_WRITER, READ_AGAIN_S if full else None
        return Outcome(tuple(done.left), found, waiting, done.entries, done.bytes)

    async def _concerned(self, metadata: LedgerMetadata, shortage: Shortage, listed: BookieList) -> Concerned:
        named = metadata.bookies()
        replaced = not named.issuperset(shortage.missing)
        marked = short_of(metadata, named if replaced or not shortage.missing else shortage.missing)
        here = [bookie for bookie in marked if listed.find(bookie) is not None]
        away = [bookie for bookie in marked if bookie not in here]
        inside = await self.absent.inside(away, shortage)
        gone = [bookie for bookie in away if bookie in shortage.missing and bookie not in inside]
        return Concerned(here, gone, [bookie for bookie in away if bookie not in gone])

    def _over(self, ledger: int) -> None:
        """Ends the repair of a ledger that is whole, or was deleted."""
        self._graces.over(ledger)
        self._denied.pop(ledger, None)


async def put_right(look: Look, how: Mending, done: Mended) -> None:
    """Moves what is in the wrong place; `done.left` has why a fragment is still there.  `how.lock` is held."""
    client, ledger = look.client, look.record.ledger
    domains = await domains_of(client, await client.store.known_bookies())
    if domains is None:
        return  # the placement promises nothing that could be kept
    assert how.lock is not None, "it was taken from the queue"
    await look.holds()
    record = look.record
    for first, last, bookies in record.metadata.fragment_ranges():
        while last is not None and not domains.serve(record.quorums, bookies):
            index, bookie = await _better(client, record, domains, bookies)
            if index < 0:
                done.left.append(f"ledger {ledger}, entries from {first} on: {domains.lack(bookies)}")
                break
            part = HeldFragment(first, last, bookies, (index,))
            try:
                await move(client, how.lock, record, part, bookie, done.copied, how.pace)
            except Replication as error:
                done.left.append(str(error))
                break
            bookies = _replaced(bookies, index, bookie)


async def _better(client: Client, record: LedgerRecord, domains: Domains, bookies: tuple[str, ...]) -> tuple[int, str]:
    """An index, and a bookie in place of the one there, by which write sets are furthest apart; -1: none is better."""
    quorums = record.quorums
    best, found = domains.spread(quorums, bookies), (-1, "")
    for index in range(len(bookies)):
        try:
            bookie = await client.choice.spare(bookies, index, [], record.metadata)
        except NotEnoughBookies:
            break
        spread = domains.spread(quorums, _replaced(bookies, index, bookie))
        if spread > best:
            best, found = spread, (index, bookie)
    return found


def _replaced(bookies: tuple[str, ...], index: int, bookie: str) -> tuple[str, ...]:
    """The ensemble with another bookie at an index."""
    return (*bookies[:index], bookie, *bookies[index + 1 :])
