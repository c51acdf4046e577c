"""
Making the copies again that a lost bookie held of one fragment.

Knows: which other bookies hold each entry, the order of steps (copy, be sure, and look once more when the metadata
names the new bookie), how to go on from another survivor when one lacks an entry, which copies its caller calls wrong,
and that what was read and is not stored yet takes memory, which many copiers share.
Does not know: which ledgers are concerned, which bookie may replace which, how the metadata comes to name it
(`freeing`).

Safety: only settled fragments are touched.  What is copied had its digest checked; a copy ends well only when the new
bookie has acknowledged every entry.  So a copier that dies at any point leaves at most copies that no client asks for,
and beginning again is always right.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple, Protocol

from crc32c import crc32c
from twisted.internet.defer import Deferred

from quire.client.connections.pool import BookiePool
from quire.client.core.quorum import NEGATIVE, merge
from quire.client.handles.ledger_record import LedgerRecord, digest_of
from quire.protocol.errors import OK, DigestMatch, NoSuchEntry, Replication, UnclosedFragment
from quire.replication.concurrently import Pace, Portion, Share, all_of
from quire.replication.core.fragments import HeldFragment, count_on, entry_bytes, runs_on, runs_without
from quire.replication.replicas import PASSING, UNHEARD, ReplicaPiece, ReplicaReader, Target, why

# SPDX-License-Identifier: Apache-2.0


RUNS_MAX = 32  # of a striped ledger, whose runs are short, read at a time
BYTES_MAX = 4 << 20  # what these may bring back together, judged by the entries seen so far
ASSUMED_ENTRY_BYTES = 64 << 10  # before the first, where the metadata does not say


class Copied(NamedTuple):
    """Counts of what one step moved."""

    entries: int
    bytes: int


class Wrong(NamedTuple):
    """A bookie's copies of entries `first` to `last`, which nothing is copied from though their digests may hold."""

    bookie: str
    first: int
    last: int


class Unread(Replication):
    """No survivor gives `entry`; what an index has to hold before it was stored."""

    def __init__(self, text: str, entry: int) -> None:
        super().__init__(text)
        self.entry = entry


class NoCopy(Unread):
    """An entry is on no bookie that can be read from: each of its survivors says that it has none."""


class TargetFailed(Exception):
    """The new bookie failed; another one may do."""

    def __init__(self, bookie: str, code: int) -> None:
        super().__init__(f"bookie {bookie} could not store copies (code {code})")
        self.bookie = bookie
        self.code = code


Moved = Callable[[Copied], None]


class Storing(Protocol):
    """Where copies go: a `Target`, or a storage in this process."""

    def store(self, pieces: list[tuple[int, list[bytes]]]) -> Deferred[int]: ...

    def close(self) -> None: ...


class Runs:
    """Runs of ids, taken whole or in parts."""

    def __init__(self, runs: Iterator[tuple[int, int]]) -> None:
        self._runs = runs
        self._now = (0, 0)

    def first(self) -> tuple[int, int]:
        """Returns the rest of the present run, as (first id, count); count 0 at the end."""
        if not self._now[1]:
            self._now = next(self._runs, (0, 0))
        return self._now

    def done(self, count: int) -> None:
        """Takes so many of the present run."""
        self._now = (self._now[0] + count, self._now[1] - count)

    def whole(self, runs_max: int) -> list[tuple[int, int]]:
        return list(islice(self._runs, runs_max))


def _giving_back(memory: Portion, size: int) -> Callable[[int], int]:
    """Makes a callback that gives memory back and passes a store's answer on."""

    def give(answer: int) -> int:
        memory.give(size)
        return answer

    return give


@dataclass(frozen=True, slots=True)
class Sources:
    """
    Copies that entries are read from.  `lost`: bookies that are never read from, as copies that are `wrong` are not;
    one that is replaced though it is not lost is asked last, and after it `others`, which the metadata does not name.
    `gone`: ranges (first, last) of entries that an operator has given up, ascending, which are not looked for.
    """

    lost: Collection[str] = ()
    others: Sequence[str] = ()
    wrong: Sequence[Wrong] = ()
    gone: Sequence[tuple[int, int]] = ()


class FragmentCopier:
    """One fragment.  `moved` hears of each stored batch; `pace` of reading; `memory`: bytes read and not stored."""

    def __init__(
        self,
        pool: BookiePool,
        record: LedgerRecord,
        fragment: HeldFragment,
        sources: Sources,
        moved: Moved,
        pace: Pace | None = None,
        memory: Share | None = None,
    ) -> None:
        if fragment.last is None:
            raise UnclosedFragment(f"ledger {record.ledger}: the fragment at {fragment.first} is still being written")
        self._pool = pool
        self._record = record
        self._fragment = fragment
        self._last = fragment.last
        self._lost = sources.lost
        self._moved = moved
        self._pace = pace
        self._memory = memory
        self._gone = sources.gone
        self._others = [bookie for bookie in sources.others if bookie]
        self._wrong = sources.wrong
        self._edges = sorted({edge for each in sources.wrong for edge in (each.first, each.last + 1)})
        self._sums: dict[int, int] = {}  # by ensemble index, of what the last copy was made of
        self._carried_by: dict[int, int | None] = {}  # by ensemble index, the connection that took the last copy
        self._quorums = record.quorums
        self._digest = digest_of(record.ledger, record.metadata)
        self._reader = ReplicaReader(pool, record.ledger, self._digest)
        self._entry_bytes = entry_bytes(record.metadata) or ASSUMED_ENTRY_BYTES
        self._prefer = 0  # the survivor, by its place in an entry's list, that served last

    async def copy(self, index: int, bookie: str) -> None:
        """
        Copies what ensemble index `index` has to hold to `bookie`.  `TargetFailed`; `Unread` names an entry that no
        survivor gives, once all before it are stored, `NoCopy` where none has it.  The next entries are read while some
        are being stored.
        """
        target = Target(self._pool, bookie, self._record.ledger, self._digest.master_key)
        try:
            await self.copy_to(target, index, bookie)
        finally:
            self._carried_by[index] = target.connection

    def end_at(self, last: int) -> None:
        """The fragment is only a part now, up to entry `last`: those behind it can't be copied."""
        self._last = last

    async def copy_to(self, target: Storing, index: int, bookie: str) -> None:
        """Copies into a given target, which is closed at the end."""
        self._sums[index] = 0
        memory = Portion(None if self._pace is None else self._pace.stores(bookie).ahead, self._memory)
        left = self.entries_on(index)
        under_way: tuple[Deferred[int], Copied] | None = None
        runs = Runs(self._runs(index))
        try:
            while left:
                at_once = BYTES_MAX if self._pace is None else self._pace.stores(bookie).bytes
                asked = min(BYTES_MAX, at_once, left * self._entry_bytes)
                await memory.take(asked)
                pieces, unread = await self._read_some(index, runs, asked)
                size = sum(sum(map(len, bodies)) for _first, bodies in pieces)
                memory.give(asked - size)
                entries = sum(len(bodies) for _first, bodies in pieces)
                left -= entries
                if under_way is not None:
                    await self._stored(bookie, *under_way)
                    under_way = None
                if entries:
                    for _first, bodies in pieces:
                        self._sums[index] = crc32c(b"".join(bodies), self._sums[index])
                    self._entry_bytes = max(1, size // entries)
                    if not left and unread is None:  # nothing is read meanwhile, as of most small ledgers
                        await self._stored(bookie, self._store(target, bookie, pieces, size), Copied(entries, size))
                        break
                    answer = Deferred.fromCoroutine(self._store(target, bookie, pieces, size))
                    under_way = answer.addBoth(_giving_back(memory, size)), Copied(entries, size)
                if unread is not None:
                    if under_way is not None:
                        await self._stored(bookie, *under_way)
                    raise unread
            if under_way is not None:
                await self._stored(bookie, *under_way)
        finally:
            memory.end()
            target.close()
            if under_way is not None:  # no answer comes any more
                under_way[0].addErrback(lambda _: None).cancel()

    async def _store(self, target: Storing, bookie: str, pieces: list[tuple[int, list[bytes]]], size: int) -> int:
        if self._pace is None:
            return await target.store(pieces)
        return await self._pace.stores(bookie).ask(size, lambda: target.store(pieces), PASSING.__contains__)

    def _runs(self, index: int) -> Iterator[tuple[int, int]]:
        """Runs (first id, count) of what the index has to hold, without what is gone."""
        runs = runs_on(self._quorums, index, self._fragment.first, self._last)
        return runs_without(runs, self._gone) if self._gone else runs

    def entries_on(self, index: int) -> int:
        """How many entries are copied for an index."""
        parts = [(max(self._fragment.first, first), min(self._last, last)) for first, last in self._gone]
        gone = sum(count_on(self._quorums, index, *part) for part in parts)
        return count_on(self._quorums, index, self._fragment.first, self._last) - gone

    async def _stored(self, bookie: str, answer: Awaitable[int], step: Copied) -> None:
        code = await answer
        if code:
            raise TargetFailed(bookie, code)
        self._moved(step)

    async def _read_some(
        self, index: int, runs: "Runs", size: int
    ) -> tuple[list[tuple[int, list[bytes]]], Unread | None]:
        """
        The next entries as (first id, bodies) pieces, of about that size: one batch of a long run, or several short
        runs at once; [] at the end.  With them the error about the entry behind them that can't be read, if any.
        """
        if not self._quorums.striped:
            first, count = runs.first()
            if not count:
                return [], None
            pieces, unread = await self._read_run(
                index, first, min(count, max(1, size // self._entry_bytes)), whole=False
            )
            runs.done(sum(len(bodies) for _first, bodies in pieces))
            return pieces, unread
        at_once = max(1, min(RUNS_MAX, size // (self._quorums.write * self._entry_bytes)))
        some = await all_of([self._read_run(index, first, count) for first, count in runs.whole(at_once)])
        out: list[tuple[int, list[bytes]]] = []
        for pieces, unread in some:
            out += pieces
            if unread is not None:
                return out, unread
        return out, None

    async def _read_run(
        self, index: int, first: int, count: int, whole: bool = True
    ) -> tuple[list[tuple[int, list[bytes]]], Unread | None]:
        """A run, or with `whole` false what comes of it at once; as `_read_some`."""
        pieces: list[tuple[int, list[bytes]]] = []
        stop = first + count
        try:
            while first < stop:
                bodies = await self._read(index, first, stop - first)
                pieces.append((first, bodies))
                first += len(bodies)
                if not whole:
                    break
        except Unread as error:
            return pieces, error
        return pieces, None

    async def verify(self, index: int, bookie: str) -> None:
        """
        Reads back everything that was just copied to the new bookie.  `TargetFailed` when a digest is wrong, or when
        all together is not, byte for byte, what was sent: a bookie may have had other copies before, and kept them.
        """
        found = 0
        memory = Portion(self._memory)
        for first, count in self._runs(index):
            at = first
            while at < first + count:
                await memory.take(min(BYTES_MAX, (first + count - at) * self._entry_bytes))
                try:
                    piece = await self._piece(bookie, at, first + count - at)
                finally:
                    memory.end()
                if piece.code:
                    raise TargetFailed(bookie, piece.code)
                found = crc32c(b"".join(piece.bodies), found)
                at += len(piece.bodies)
        if found != self._sums[index]:
            raise TargetFailed(bookie, DigestMatch.code)

    async def keep(self, index: int, bookie: str) -> None:
        """
        Once the metadata names the bookie: makes sure that it still has what was copied to it, and copies again if not.
        A bookie loses copies only by a restart, and one that restarts from now on knows what it lacks.  So an answer on
        the connection that took the copies is the proof (protocol-rules.md 5.1); else all of them are read back.
        `Replication` when it gives no answer; `TargetFailed`.
        """
        if not self.entries_on(index):
            return
        code = await self._answers(bookie)
        connection = self._pool.connection_of(bookie)
        if connection is None or code in UNHEARD:
            raise Replication(
                f"ledger {self._record.ledger}: the metadata names {bookie} now, which has copies but can't be asked "
                f"for them ({why(code)}): `quire ledger check {self._record.ledger}` shows whether it kept them"
            )
        if connection == self._carried_by.get(index):
            return
        try:
            await self.verify(index, bookie)
        except TargetFailed:
            await self.copy(index, bookie)

    async def _answers(self, bookie: str) -> int:
        """Asks the bookie for any answer, in one request with others who want one now."""
        if self._pace is None:
            return await self._reader.answers(bookie)
        return await self._pace.stores(bookie).answers.ask(lambda: self._reader.answers(bookie))

    async def _piece(self, bookie: str, first: int, count: int) -> ReplicaPiece:
        """Cuts off as much of these runs as the bookie may be asked for at once."""
        if self._pace is None:
            return await self._reader.piece(bookie, first, count)
        lane = self._pace.reads(bookie)
        count = min(count, max(1, min(BYTES_MAX, lane.bytes) // self._entry_bytes))
        return await lane.ask(
            count * self._entry_bytes,
            lambda: self._reader.piece(bookie, first, count),
            lambda piece: piece.code in PASSING,
        )

    def _survivors(self, entry: int, index: int) -> list[str]:
        """The bookies that hold the entry, in the order of reading."""
        bookies = self._fragment.bookies
        write_set = sorted(self._quorums.write_set(entry), key=lambda other: other == index)
        having = [bookies[other] for other in write_set if bookies[other] not in self._lost] + self._others
        wrong = {each.bookie for each in self._wrong if each.first <= entry <= each.last}
        return [bookie for bookie in having if bookie not in wrong]

    async def _read(self, index: int, first: int, count: int) -> list[bytes]:
        """Checked bodies from `first` on, at least one, at most `count`."""
        if self._pace is not None:
            await self._pace.turn()
        code = OK
        survivors, alike = self._group(first, count, index)
        begin = self._prefer  # other runs, which are read at the same time, change it
        for turn in range(len(survivors)):
            place = (begin + turn) % len(survivors)
            piece = await self._piece(survivors[place], first, alike)
            if piece.code == OK:
                self._prefer = place
                if self._pace is not None:
                    self._pace.read(sum(map(len, piece.bodies)))
                return piece.bodies
            code = merge(code, piece.code)
        if not survivors:
            raise NoCopy(
                f"ledger {self._record.ledger}: every bookie that held entry {first} is lost, or its copy is wrong",
                first,
            )
        failed = NoCopy if code in NEGATIVE else Unread
        raise failed(
            f"ledger {self._record.ledger}: no survivor has entry {first} ({', '.join(sorted(survivors))}: "
            f"{why(code or NoSuchEntry.code)})",
            first,
        )

    def _group(self, first: int, count: int, index: int) -> tuple[list[str], int]:
        """The survivors of entry `first` and how many entries from it on, at most `count`, have the same ones."""
        if not self._quorums.striped:
            following = bisect_right(self._edges, first)
            alike = min([count, *(edge - first for edge in self._edges[following : following + 1])])
            return self._survivors(first, index), alike
        groups: Iterator[tuple[list[str], Iterator[int]]] = groupby(
            range(first, first + count), key=lambda entry: self._survivors(entry, index)
        )
        survivors, entries = next(groups)
        return survivors, sum(1 for _ in entries)
