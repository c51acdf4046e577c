"""
An examination of one bookie's copies of a ledger: every entry that it has to hold is read from it and from no other.

Knows: how to ask in batches, a bounded number at a time; when a failure means that further questions are of no use; the
sum of what a bookie holds of a chunk, by which copies on several bookies are compared without a second reading.
Does not know: which entries those are (its caller says), whether other bookies have them.

Nothing is changed, fenced or recovered.
The sum of an entry is the CRC-32 of its head with the digest, which covers the payload; where there is no digest, of
all of the body.  Sums are added up, in whatever order entries come; in a striped ledger apart for each class of entries
that have the same write set (their id modulo the size of the ensemble).  Copies that are equal have equal sums.  Copies
that differ may still both be right: a recovery writes an entry again, with another last add confirmed in its head.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from operator import ge, lt
from sys import byteorder
from typing import NamedTuple
from zlib import crc32

from quire.client.connections.pool import BookiePool
from quire.client.core.quorum import Quorums
from quire.client.handles.ledger_record import digest_of
from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import LAC_OFFSET, Digest
from quire.protocol.errors import OK, BookieHandleNotAvailable, NoSuchEntry, Timeout
from quire.replication.concurrently import Pace, all_of
from quire.replication.core.fragments import count_on, lacking_of, runs_on
from quire.replication.replicas import ABOUT_ONE_ENTRY, ReplicaReader, why
from quire.replication.replicas import BYTES_MAX as ASKED_BYTES_MAX
from quire.replication.scrub.plan import CHUNK

# SPDX-License-Identifier: Apache-2.0

HEAD = 8  # the ledger's id is left out
FIELDS_END = 32


class Sum(NamedTuple):
    """The sum of the entries of a class in a chunk that a bookie has."""

    entries: int
    sum: int
    payload_bytes: int


class Sums:
    """The sums of one ledger on one bookie: by (chunk, class)."""

    def __init__(self, quorums: Quorums, digest: Digest, settled: int = 0, end: int = -1) -> None:
        """Entries below `settled` may have been written again with a last add confirmed up to `end`, as Apache does."""
        self.found: dict[tuple[int, int], Sum] = {}
        self.wrong: list[int] = []  # entries whose head can't be, though the digest holds
        self._classes = quorums.ensemble if quorums.striped else 1
        self._overhead = digest.overhead
        self._end = digest.overhead if digest.size else None
        self._settled = settled
        self._lac_max = end

    def add(self, first: int, bodies: list[bytes]) -> None:
        """Consecutive entries from `first` on, digests checked."""
        self._check(first, bodies)
        crcs = list(map(crc32, [body[HEAD : self._end] for body in bodies]))
        sizes = list(map(len, bodies))
        at = 0
        while at < len(bodies):
            chunk = (first + at) // CHUNK
            stop = min(len(bodies), (chunk + 1) * CHUNK - first)
            for start in range(at, min(at + self._classes, stop)):
                some = slice(start, stop, self._classes)
                self._count((chunk, (first + start) % self._classes), crcs[some], sizes[some])
            at = stop

    def _count(self, key: tuple[int, int], crcs: list[int], sizes: list[int]) -> None:
        before = self.found.get(key, Sum(0, 0, 0))
        payload = sum(sizes) - self._overhead * len(sizes)
        self.found[key] = Sum(
            before.entries + len(crcs), (before.sum + sum(crcs)) % (1 << 64), before.payload_bytes + payload
        )

    def _check(self, first: int, bodies: list[bytes]) -> None:
        """
        A last add confirmed is from -1 on and below the entry; the ledger's length is not below the payload's.
        Apache's repairs write the last add confirmed of their own time.
        """
        fields = array("q", b"".join([body[LAC_OFFSET:FIELDS_END] for body in bodies]))
        if byteorder == "little":
            fields.byteswap()
        lacs, lengths = fields[::2], fields[1::2]
        payloads = [len(body) - self._overhead for body in bodies]
        entries = range(first, first + len(bodies))
        if min(lacs) >= -1 and all(map(lt, lacs, entries)) and all(map(ge, lengths, payloads)):
            return
        for entry, (lac, length, payload) in enumerate(zip(lacs, lengths, payloads, strict=True), first):
            lac_max = self._lac_max if entry < self._settled and entry <= lac else entry - 1
            if not -1 <= lac <= lac_max or length < payload:
                self.wrong.append(entry)


RUNS_MAX = 32  # of a striped ledger, whose runs are short, asked of one bookie at a time
# entries of a bookie that denies or damages one after the other and doesn't say what it has, asked for at a time
SINGLES_MAX = 256
BYTES_MAX = 8 << 20  # what these may bring back together, judged by the entries seen so far
ASSUMED_ENTRY_BYTES = 64 << 10  # before the first
MAX_ENTRY = (1 << 63) - 1

# Why a copy is none, beside BookKeeper's codes, which are negative.
WRONG_HEAD, DIFFERS, STALE, UNDECIDED = 1, 2, 3, 4
WHY = {
    WRONG_HEAD: "its digest holds, but its last add confirmed or length can't be",
    DIFFERS: "its digest holds, but other copies differ from it",
    STALE: "its last add confirmed went back",
    UNDECIDED: "its digest holds, but copies differ, and no content is known to have the majority",
}
ABOUT_THE_BOOKIE = frozenset((BookieHandleNotAvailable.code, Timeout.code))  # any other question would end so, too


class Missing(NamedTuple):
    """
    `entries` entries from `first` on lack the copy that `bookie` should hold.  `code` says how: -13 or -7 not there, -5
    bad digest, others below 0 no answer; above 0 a copy whose digest holds is wrong.
    """

    bookie: str
    first: int
    entries: int
    code: int

    @property
    def why(self) -> str:
        """The code in words."""
        return WHY.get(self.code) or why(self.code)


@dataclass(slots=True)
class Manner:
    """
    How bookies are asked: `pace` of what is read of this bookie, if it has one; `refusals`: bookies that don't answer,
    by code, which no other examination that shares it asks again; `counted` hears how many copies were looked at,
    `heard` how many bytes were read.
    """

    pace: Pace | None = None
    refusals: dict[str, int] = field(default_factory=dict)
    counted: Callable[[int], object] = lambda _copies: None
    heard: Callable[[int], object] = lambda _bytes: None

    @classmethod
    def at(cls, clock: Clock, bytes_per_second: float | None) -> "Manner":
        """So fast at most."""
        return cls(Pace(clock, bytes_per_second))


class Examination:
    """One bookie's share of one ledger, a part at a time.  `read_bytes` so far."""

    def __init__(self, reader: ReplicaReader, quorums: Quorums, bookie: str, manner: Manner) -> None:
        self.read_bytes = 0
        self._bookie = bookie
        self._reader = reader
        self._quorums = quorums
        self._manner = manner
        self._missing: list[Missing] = []
        self._sums: Sums | None = None
        self._stored: list[tuple[int, int]] | None = None  # what it says it holds, once an entry was missing
        self._asked = False
        self._entry_bytes = ASSUMED_ENTRY_BYTES
        self._given_up = OK  # the code of a failure that the next request would meet too

    async def run(self, index: int, first: int, last: int, sums: Sums | None = None) -> list[Missing]:
        """Reads all copies of first..last on an index; those that aren't good, ascending.  `sums` gets the others."""
        self._missing, self._sums = [], sums
        runs = runs_on(self._quorums, index, first, last)
        while some := list(islice(runs, self._at_once())):
            await all_of([self._run(start, count) for start, count in some])
        if sums is not None:
            self._missing += [Missing(self._bookie, entry, 1, WRONG_HEAD) for entry in sums.wrong]
        return merged(self._missing)

    async def present(self, index: int, first: int, last: int) -> list[Missing]:
        """Examines by the bookie's own list, without reading; a bookie that gives none is read."""
        if not self._asked and not self._refused():
            self._asked = True
            self._stored = await self._reader.stored(self._bookie)
        if self._stored is None:
            return await self.run(index, first, last)
        self._missing = []
        for start, count in lacking_of(self._quorums, index, first, last, self._stored):
            self._missing.append(Missing(self._bookie, start, count, NoSuchEntry.code))
        self._manner.counted(count_on(self._quorums, index, first, last))
        return merged(self._missing)

    def _refused(self) -> int:
        return self._given_up or self._manner.refusals.get(self._bookie, OK)

    def _at_once(self) -> int:
        return max(1, min(RUNS_MAX, BYTES_MAX // (self._quorums.write * self._entry_bytes)))

    async def _run(self, first: int, count: int) -> None:
        stop = first + count
        # so many further entries are asked for one by one, but together: nothing says where the next good one is
        ahead = 0
        while first < stop:
            if refused := self._refused():
                self._note(first, stop - first, refused)
                return
            code, read = await self._piece(first, stop - first)
            if code == OK:
                first += read
                ahead = 0
            elif code not in ABOUT_ONE_ENTRY:
                self._given_up = code
                if code in ABOUT_THE_BOOKIE:
                    self._manner.refusals[self._bookie] = code
            else:
                gap = await self._gap(first, stop) if code == NoSuchEntry.code else 1
                self._note(first, gap, code)
                first += gap
                if self._stored is None:
                    await all_of([self._single(entry) for entry in range(first, min(first + ahead, stop))])
                    first = min(first + ahead, stop)
                    ahead = min(2 * ahead + 1, SINGLES_MAX, BYTES_MAX // self._entry_bytes)

    async def _piece(self, first: int, count: int) -> tuple[int, int]:
        """(code, entries read)."""
        pace, expected = self._manner.pace, 0
        if pace is not None:
            count = max(1, int(min(count, pace.at_once // self._entry_bytes)))
            expected = min(count * self._entry_bytes, ASKED_BYTES_MAX)
            await pace.turn(expected)
        piece = await self._reader.piece(self._bookie, first, count)
        size = sum(map(len, piece.bodies))
        if pace is not None:
            pace.read(size, expected)
        if piece.code != OK:
            return piece.code, 0
        self._entry_bytes = max(map(len, piece.bodies))
        self.read_bytes += size
        self._manner.heard(size)
        if self._sums is not None:
            self._sums.add(first, piece.bodies)
        self._manner.counted(len(piece.bodies))
        return OK, len(piece.bodies)

    async def _single(self, entry: int) -> None:
        code, _read = await self._piece(entry, 1)
        if code != OK:
            self._note(entry, 1, code)

    async def _gap(self, first: int, stop: int) -> int:
        """How many entries from `first` on, at least one, the bookie says it lacks; one where it doesn't say."""
        if not self._asked:
            self._asked = True
            self._stored = await self._reader.stored(self._bookie)
        if self._stored is None:
            return 1
        following = min((start for start, count in self._stored if start + count > first + 1), default=stop)
        return max(1, min(following, stop) - first)

    def _note(self, first: int, count: int, code: int) -> None:
        self._missing.append(Missing(self._bookie, first, count, code))
        self._manner.counted(count)


def merged(missing: list[Missing]) -> list[Missing]:
    """Neighbours on one bookie with one code joined; ascending."""
    out: list[Missing] = []
    for each in sorted(missing, key=lambda one: one.first):
        if (
            out
            and out[-1].first + out[-1].entries == each.first
            and (out[-1].bookie, out[-1].code) == (each.bookie, each.code)
        ):
            out[-1] = out[-1]._replace(entries=out[-1].entries + each.entries)
        else:
            out.append(each)
    return out


class Subject:
    """One state of a ledger's metadata, by which its copies are read.  `MetadataSerialization` if it has no digest."""

    def __init__(self, pool: BookiePool, ledger: int, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.quorums = Quorums.of(metadata)
        self.reader = ReplicaReader(pool, ledger, digest_of(ledger, metadata))

    def examination(self, bookie: str, manner: Manner) -> Examination:
        return Examination(self.reader, self.quorums, bookie, manner)

    def sums(self) -> Sums:
        metadata = self.metadata
        if metadata.is_closed:
            return Sums(self.quorums, self.reader.digest, metadata.last_entry + 1, metadata.last_entry)
        return Sums(self.quorums, self.reader.digest, metadata.last_fragment.first, MAX_ENTRY)
