"""
The reads of one recovery: which bookie is asked for which entries above the base, and what their answers say of each.

Knows: what the fenced bookies said they hold is read in pieces of many entries, from several bookies at once; what a
piece did not bring, and what lies above all they said, is read entry by entry.
Does not know: fencing, writing back, the end of the ledger.  `core.recovery` takes the verdicts in order.

Safety: a piece only ever brings entries, each under its own digest; what it did not bring is not missing.  An entry is
absent only when `Quorums.absent` bookies of its write set said so of that entry alone, and a failure is never a "no".
How far bookies say they reach decides how much is asked for at once, and nothing else.
"""

from dataclasses import replace
from enum import Enum, auto
from heapq import heappop, heappush

from quire.client.core.quorum import NEGATIVE, Quorums
from quire.client.core.recovery_messages import ReadAnswer, RecoveryRead, RecoveryRun, RunAnswer
from quire.protocol.digest import ENTRY_ID_MAX, HEADER, Digest
from quire.protocol.errors import OK, BookieHandleNotAvailable, DigestMatch

# SPDX-License-Identifier: Apache-2.0

READS_MAX = 64  # entries that are read by themselves, under way
READ_BYTES_MAX = 8 << 20  # what all reads may bring back, and what waits for a lower entry
PIECE_ENTRIES_MAX = 256
PIECE_BYTES_MAX = 1 << 20

Ask = RecoveryRead | RecoveryRun


class Verdict(Enum):
    ABSENT = auto()
    UNKNOWN = auto()


class EntryRead:
    """The answers of the write set of one entry so far."""

    __slots__ = ("asked", "codes", "entry", "order", "verdict")

    def __init__(self, entry: int, order: list[int]) -> None:
        self.entry = entry
        self.order = order
        self.asked = 0
        self.codes: dict[int, int] = {}
        self.verdict: Verdict | None = None

    def judge(self, absent: int) -> None:
        """Strict on absence, and once all answered there is nothing to wait for (protocol-rules.md 4.3)."""
        if sum(code in NEGATIVE for code in self.codes.values()) >= absent:
            self.verdict = Verdict.ABSENT
        elif len(self.codes) == len(self.order):
            self.verdict = Verdict.UNKNOWN


class RecoveryReads:
    """
    Entries from `first` on.  `highest`: the last entry that each index said it holds, of those that were heard;
    `suspects`: indexes that failed, asked last.  `pieces`: whether bookies may be asked for many entries at once.
    """

    def __init__(
        self,
        ledger: int,
        quorums: Quorums,
        digest: Digest,
        bookies: tuple[str, ...],
        first: int,
        highest: dict[int, int],
        suspects: set[int],
        pieces: bool,
    ) -> None:
        self.found: dict[int, tuple[bytes, int]] = {}  # not taken yet: payload, and the ledger's length after it
        self.ended: EntryRead | None = None  # the lowest entry that was not found; nothing above it is of interest
        self._ledger = ledger
        self._quorums = quorums
        self._digest = digest
        self._bookies = bookies
        self._highest = highest
        self._known = max(highest.values(), default=-1)
        self._suspects = suspects
        self._by_pieces = pieces and not quorums.striped
        self._next = first
        self._again: list[tuple[int, RecoveryRun | None]] = []  # a heap of what pieces did not bring: rests and entries
        self._pieces: dict[int, RecoveryRun] = {}
        self._entries: dict[int, EntryRead] = {}
        self._turn = 0
        self._beyond = 1  # how many entries above all that is known are asked for at once
        self._held_bytes = 0
        self._largest = READ_BYTES_MAX // 16

    def ask_on(self) -> list[Ask]:
        """Returns what to ask now."""
        asks: list[Ask] = []
        while self._has_room() and (self.ended is None or self._lowest < self.ended.entry):
            if self._again:
                first, rest = heappop(self._again)
                if rest is None:
                    self._ask(self._entry(first), 1, asks)
                else:
                    self._pieces[first] = rest
                    asks.append(rest)
            elif self._next > self._known:
                if len(self._entries) >= self._beyond or self._next > ENTRY_ID_MAX:
                    break
                read = self._entry(self._next)
                self._next += 1
                self._ask(read, len(read.order), asks)  # probably nobody has it, which takes several to say
            elif self._by_pieces and (index := self._holder()) is not None:
                self._ask_piece(index, asks)
            else:
                self._ask(self._entry(self._next), 1, asks)
                self._next += 1
        return asks

    @property
    def _lowest(self) -> int:
        """The first entry of what is asked next."""
        return self._again[0][0] if self._again else self._next

    def _has_room(self) -> bool:
        """True if one more may be under way; the lowest may whatever the others bring."""
        if len(self._entries) >= READS_MAX:
            return False
        piece = self._again[0][1] is not None if self._again else self._by_pieces
        under_way = len(self._pieces) * PIECE_BYTES_MAX + len(self._entries) * self._largest
        if self._held_bytes + under_way + (PIECE_BYTES_MAX if piece else self._largest) <= READ_BYTES_MAX:
            return True
        return self._lowest < min((*self._entries, *self._pieces), default=self._lowest + 1)

    def _holder(self) -> int | None:
        """An index that said that it holds the next entry, each in its turn, so that all of them work."""
        holders = [index for index, highest in sorted(self._highest.items()) if highest >= self._next]
        holders = [index for index in holders if index not in self._suspects] or holders
        self._turn += 1
        return holders[self._turn % len(holders)] if holders else None

    def _ask_piece(self, index: int, asks: list[Ask]) -> None:
        count = min(PIECE_ENTRIES_MAX, self._highest[index] + 1 - self._next)
        piece = RecoveryRun(self._next, count, PIECE_BYTES_MAX, index, self._bookies[index])
        self._pieces[self._next] = piece
        self._next += count
        asks.append(piece)

    def _entry(self, entry: int) -> EntryRead:
        order = sorted(self._quorums.write_set(entry), key=self._suspects.__contains__)
        read = self._entries[entry] = EntryRead(entry, order)
        return read

    def _ask(self, read: EntryRead, up_to: int, asks: list[Ask]) -> None:
        asks += [RecoveryRead(read.entry, index, self._bookies[index]) for index in read.order[read.asked : up_to]]
        read.asked = up_to

    def answered(self, given: ReadAnswer) -> list[Ask]:
        """One bookie's answer about one entry; further ones that have to be asked about it."""
        asks: list[Ask] = []
        read = self._entries.get(given.entry)
        if read is None or given.index in read.codes:
            return asks
        code = given.code
        if code == OK:
            code = self._take(given.entry, given.body)
        if code == OK:
            del self._entries[given.entry]
            if given.entry > self._known:
                self._beyond = min(2 * self._beyond, READS_MAX)
            return asks
        read.codes[given.index] = code
        if code not in NEGATIVE:
            self._suspects.add(given.index)
        read.judge(self._quorums.absent)
        if read.verdict is None:
            self._ask(read, len(read.order), asks)
        else:
            del self._entries[given.entry]
            if self.ended is None or read.entry < self.ended.entry:
                self.ended = read
        return asks

    def brought(self, given: RunAnswer) -> None:
        """The answer to a piece; its rest is a piece again, once and again while that brings any."""
        piece = self._pieces.pop(given.first, None)
        if piece is None:
            return
        count = 0
        if given.code == OK:
            bodies = given.bodies[: piece.count]
            while count < len(bodies) and self._take(given.first + count, bodies[count]) == OK:
                count += 1
            if count < len(bodies):
                self._suspects.add(piece.index)
            elif 0 < count < piece.count:  # the rest did not fit, or begins with one that the bookie lacks
                rest = replace(piece, first=piece.first + count, count=piece.count - count)
                heappush(self._again, (rest.first, rest))
                return
        elif given.code == BookieHandleNotAvailable.code:  # that, or it closes connections for a batch read
            self._suspects.add(piece.index)
            self._by_pieces = False
        elif given.code not in NEGATIVE:
            self._suspects.add(piece.index)
        for entry in range(given.first + count, given.first + piece.count):
            heappush(self._again, (entry, None))

    def _take(self, entry: int, body: bytes | None) -> int:
        """OK, or that these bytes are not the entry."""
        if body is None:
            return DigestMatch.code
        try:
            payload = self._digest.open(self._ledger, entry, body)
        except DigestMatch:
            return DigestMatch.code
        length = HEADER.unpack_from(body)[3]
        if length < 0 or entry == ENTRY_ID_MAX:  # no ledger can end so, nor all ids below that one be acknowledged
            return DigestMatch.code
        self.found[entry] = payload, length
        self._held_bytes += len(body)
        self._largest = max(self._largest, len(body))
        return OK

    def pop(self, entry: int) -> tuple[bytes, int] | None:
        """Payload, and the length after it, of an entry that was found."""
        found = self.found.pop(entry, None)
        if found is not None:
            self._held_bytes -= len(found[0]) + self._digest.overhead
        return found
