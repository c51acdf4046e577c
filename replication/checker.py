"""
Whether every entry of a ledger has all its copies: every replica of every entry is read and its digest checked.

Knows: which entries each bookie has to hold, and how to ask for them in batches, a bounded number at a time.
Does not know: how a missing copy is made again (`copier`).

Nothing is changed, fenced or recovered; of a ledger that isn't closed only what is confirmed now is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.client.core.quorum import Quorums
from quire.client.handles.ledger_record import digest_of
from quire.metadata.ledger import LedgerState
from quire.protocol.errors import OK, NoSuchEntry
from quire.replication.concurrently import all_of
from quire.replication.fragments import count_on, runs_on
from quire.replication.replicas import ABOUT_ONE_ENTRY, ReplicaReader, why

# SPDX-License-Identifier: Apache-2.0

RUNS_MAX = 32  # of a striped ledger, whose runs are short, asked of one bookie at a time
# entries of a bookie that denies or damages one after the other and doesn't say what it has, asked for at a time
SINGLES_MAX = 256
BYTES_MAX = 8 << 20  # what these may bring back together, judged by the entries seen so far
ASSUMED_ENTRY_BYTES = 64 << 10  # before the first


class Missing(NamedTuple):
    """
    `entries` entries from `first` on lack the copy that `bookie` should hold.  `code` says how: -13 or -7 not there, -5
    bad digest, others no answer.
    """

    bookie: str
    first: int
    entries: int
    code: int

    @property
    def why(self) -> str:
        """The code in words."""
        return why(self.code)


class CheckProgress(NamedTuple):
    """Copies looked at so far, of how many in all."""

    ledger: int
    copies: int
    expected: int


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """What `check_ledger` found.  `last` is the last entry looked at; a *copy* is one entry on one bookie."""

    ledger: int
    state: LedgerState
    last: int
    copies_expected: int
    missing: tuple[Missing, ...]
    fragments: tuple[int, ...] = (0,)  # their first entries, ascending

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def copies_missing(self) -> int:
        return sum(each.entries for each in self.missing)

    def by_fragment(self) -> dict[int, list[Missing]]:
        """
        The same by the fragment's first entry; a run that reaches over a fragment's end is cut there.  Whole fragments
        are left out.
        """
        out: dict[int, list[Missing]] = {}
        for fragment, end in zip(self.fragments, (*self.fragments[1:], self.last + 1), strict=True):
            for each in self.missing:
                first, stop = max(each.first, fragment), min(each.first + each.entries, end)
                if first < stop:
                    out.setdefault(fragment, []).append(each._replace(first=first, entries=stop - first))
        return out

    def entries_missing(self) -> list[tuple[int, int, tuple[str, ...]]]:
        """Runs (first id, count, bookies without it) of the entries that lack copies, ascending and disjoint."""
        edges: dict[int, list[tuple[str, int]]] = {}
        for each in self.missing:
            edges.setdefault(each.first, []).append((each.bookie, 1))
            edges.setdefault(each.first + each.entries, []).append((each.bookie, -1))
        out: list[tuple[int, int, tuple[str, ...]]] = []
        lacking: dict[str, int] = {}
        before = 0
        for at in sorted(edges):
            if lacking:
                out.append((before, at - before, tuple(sorted(lacking))))
            for bookie, change in edges[at]:
                lacking[bookie] = lacking.get(bookie, 0) + change
                if not lacking[bookie]:
                    del lacking[bookie]
            before = at
        return out


Progress = Callable[[CheckProgress], None]


def check_ledger(client: Client, ledger: int, progress: Progress | None = None) -> Deferred[LedgerCheck]:
    """
    Reads every replica of every entry up to the ledger's end, or the last add confirmed of an unclosed one.
    `NoSuchLedger`; `MetaStore`; `Read` when an unclosed ledger's last add confirmed can't be had.
    """
    return Deferred.fromCoroutine(_check(client, ledger, progress))


async def _check(client: Client, ledger: int, progress: Progress | None) -> LedgerCheck:
    metadata = await client.metadata(ledger)
    digest = digest_of(ledger, metadata)
    last = metadata.last_entry
    if not metadata.is_closed:
        assert metadata.password is not None  # else it had no digest either
        reader = await client.open_ledger(ledger, metadata.password, recover=False)
        last, metadata = reader.last_entry_id, reader.metadata
        await reader.close()
    quorums = Quorums.of(metadata)
    parts = [
        (index, bookie, first, last if end is None else min(end, last))
        for first, end, bookies in metadata.fragment_ranges()
        for index, bookie in enumerate(bookies)
    ]
    expected = sum(count_on(quorums, index, first, end) for index, _bookie, first, end in parts)
    tally = Tally(ledger, expected, progress)
    reader_of = ReplicaReader(client.pool, ledger, digest)
    # By bookie, so that one that doesn't answer is waited for once, not once per fragment.
    checks = {bookie: BookieCheck(reader_of, quorums, bookie, tally) for _index, bookie, _first, _end in parts}
    for index, bookie, first, end in parts:
        checks[bookie].parts.append((index, first, end))
    await all_of([check.run() for check in checks.values()])
    missing = sorted(
        (each for check in checks.values() for each in check.missing), key=lambda each: (each.first, each.bookie)
    )
    return LedgerCheck(
        ledger, metadata.state, last, expected, tuple(missing), tuple(fragment.first for fragment in metadata.fragments)
    )


class Tally:
    """How far a check is."""

    def __init__(self, ledger: int, expected: int, progress: Progress | None) -> None:
        self._ledger = ledger
        self._expected = expected
        self._copies = 0
        self._progress = progress

    def seen(self, copies: int) -> None:
        self._copies += copies
        if self._progress is not None:
            self._progress(CheckProgress(self._ledger, self._copies, self._expected))


class BookieCheck:
    """One bookie's share of the ledger: `parts` are (ensemble index, first, last)."""

    def __init__(self, reader: ReplicaReader, quorums: Quorums, bookie: str, tally: Tally) -> None:
        self.parts: list[tuple[int, int, int]] = []
        self.missing: list[Missing] = []
        self._reader = reader
        self._quorums = quorums
        self._bookie = bookie
        self._tally = tally
        self._stored: list[tuple[int, int]] | None = None  # what it says it holds, once an entry was missing
        self._asked = False
        self._entry_bytes = ASSUMED_ENTRY_BYTES
        self._given_up = OK  # the code of a failure that the next request would meet too

    async def run(self) -> None:
        for index, first, last in self.parts:
            runs = runs_on(self._quorums, index, first, last)
            while some := list(islice(runs, self._at_once())):
                await all_of([self._run(start, count) for start, count in some])
        self.missing = merged(self.missing)

    def _at_once(self) -> int:
        return max(1, min(RUNS_MAX, BYTES_MAX // (self._quorums.write * self._entry_bytes)))

    async def _run(self, first: int, count: int) -> None:
        stop = first + count
        # so many further entries are asked for one by one, but together: nothing says where the next good one is
        ahead = 0
        while first < stop:
            if self._given_up:
                self._note(first, stop - first, self._given_up)
                return
            piece = await self._reader.piece(self._bookie, first, stop - first)
            if piece.code == OK:
                self._entry_bytes = max(map(len, piece.bodies))
                self._tally.seen(len(piece.bodies))
                first += len(piece.bodies)
                ahead = 0
            elif piece.code not in ABOUT_ONE_ENTRY:
                self._given_up = piece.code
            else:
                gap = await self._gap(first, stop) if piece.code == NoSuchEntry.code else 1
                self._note(first, gap, piece.code)
                first += gap
                if self._stored is None:
                    await all_of([self._single(entry) for entry in range(first, min(first + ahead, stop))])
                    first = min(first + ahead, stop)
                    ahead = min(2 * ahead + 1, SINGLES_MAX, BYTES_MAX // self._entry_bytes)

    async def _single(self, entry: int) -> None:
        piece = await self._reader.piece(self._bookie, entry, 1)
        if piece.code == OK:
            self._entry_bytes = max(self._entry_bytes, *map(len, piece.bodies))
            self._tally.seen(1)
            return
        self._note(entry, 1, piece.code)

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
        self.missing.append(Missing(self._bookie, first, count, code))
        self._tally.seen(count)


def merged(missing: list[Missing]) -> list[Missing]:
    """Neighbours with one code joined."""
    out: list[Missing] = []
    for each in sorted(missing, key=lambda one: one.first):
        if out and out[-1].first + out[-1].entries == each.first and out[-1].code == each.code:
            out[-1] = out[-1]._replace(entries=out[-1].entries + each.entries)
        else:
            out.append(each)
    return out
