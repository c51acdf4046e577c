"""
The second look at what seemed wrong, by which alone a finding is made; copies whose sums differ are compared there,
entry by entry.

Knows: that metadata which changed meanwhile (a bookie was replaced, the ledger deleted) explains most of what the first
look saw, and that bookies which the metadata does not name may have what is missing; that a recovery writes an entry
again with the same payload and length and another last add confirmed, so copies that differ in that alone may all be
right, and that on one bookie it never goes back from one entry to the next.
Does not know: why something was suspected.

Safety: what is confirmed was so while the metadata did not change: it is read before and after, and when it is another
one everything is looked at again.  A content that more than half of an entry's bookies have is taken for the right one,
also of those that can't be asked now: they may have another.  Where none has, all copies are reported.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import NEGATIVE, Quorums
from quire.client.handles.ledger_record import LedgerRecord
from quire.protocol.digest import last_add_confirmed, ledger_length
from quire.protocol.errors import OK, MetadataSerialization, NoSuchLedgerExistsOnMetadataServer, Replication
from quire.replication.concurrently import all_of
from quire.replication.core.fragments import lacking_of
from quire.replication.replicas import ReplicaReader
from quire.replication.scrub.examine import DIFFERS, STALE, UNDECIDED, Examination, Manner, Missing, Subject, merged
from quire.replication.scrub.judge import Finding, Suspicion, about_ledger, findings_of, kind_of

# SPDX-License-Identifier: Apache-2.0

HASH_BYTES = 16


class Mark(NamedTuple):
    """The content of one copy of an entry."""

    lac: int
    content: tuple[int, bytes]  # the ledger's length, a hash of the payload


@dataclass(frozen=True, slots=True)
class Odd:
    """An entry whose copy on an ensemble index is wrong, or may be: `code` DIFFERS, STALE or UNDECIDED."""

    index: int
    entry: int
    code: int


async def compared(
    reader: ReplicaReader,
    quorums: Quorums,
    bookies: Sequence[str],
    fragment: int,
    first: int,
    last: int,
    missing: Sequence[Missing] = (),
    manner: Manner = Manner(),
) -> list[Odd]:
    """
    Reads entries first..last of the fragment that begins at `fragment` from all its bookies, ascending, except for
    those that are known to be `missing`.  A copy that can't be read is passed over.
    """
    begin = max(fragment, first - quorums.ensemble)  # each bookie's entry before them
    marks: dict[int, dict[int, Mark]] = {}

    async def read(index: int, bookie: str) -> None:
        known = [(each.first, each.entries) for each in missing if each.bookie == bookie]
        await _read(reader, bookie, lacking_of(quorums, index, begin, last, known), index, marks, manner)

    await all_of([read(index, bookie) for index, bookie in enumerate(bookies)])
    return [odd for odd in odds(marks, quorums.write) if odd.entry >= first]


async def _read(
    reader: ReplicaReader,
    bookie: str,
    runs: Iterable[tuple[int, int]],
    index: int,
    marks: dict[int, dict[int, Mark]],
    manner: Manner,
) -> None:
    start = reader.digest.overhead
    for run, count in runs:
        at = run
        while at < run + count:
            if manner.pace is not None:
                await manner.pace.turn()
            piece = await reader.piece(bookie, at, run + count - at)
            size = sum(map(len, piece.bodies))
            if manner.pace is not None:
                manner.pace.read(size)
            manner.heard(size)
            if piece.code != OK:
                at += 1
                continue
            for entry, body in enumerate(piece.bodies, at):
                content = ledger_length(body), blake2b(body[start:], digest_size=HASH_BYTES).digest()
                marks.setdefault(entry, {})[index] = Mark(last_add_confirmed(body), content)
            at += len(piece.bodies)


def odds(marks: dict[int, dict[int, Mark]], write: int) -> list[Odd]:
    """Lists what is wrong, by entry and index; `write`: how many copies each entry should have."""
    found: list[Odd] = []
    highest: dict[int, int] = {}  # LAC so far, by index
    for entry in sorted(marks):
        copies = marks[entry]
        contents = Counter(mark.content for mark in copies.values())
        content, most = contents.most_common(1)[0]
        if len(contents) > 1:
            right, code = (content, DIFFERS) if most * 2 > write else (None, UNDECIDED)
            found += [Odd(index, entry, code) for index in sorted(copies) if copies[index].content != right]
        elif len({mark.lac for mark in copies.values()}) > 1:
            found += [
                Odd(index, entry, STALE) for index in sorted(copies) if copies[index].lac < highest.get(index, -1)
            ]
        for index, mark in copies.items():
            if mark.lac < entry:  # Apache's repairs write the last add confirmed of their own time, which is above
                highest[index] = max(highest.get(index, -1), mark.lac)
    return found


ROUNDS_MAX = 10  # a ledger whose metadata changes all the time is left to the next run

Runs = list[tuple[int, int]]


async def second_look(client: Client, suspicion: Suspicion, manner: Manner, by_lists: bool = False) -> list[Finding]:
    """
    Finds what is wrong now of what was suspected of a ledger; nothing if it was deleted.  `Replication` when nobody can
    say, for its metadata changed in each look.
    """
    try:
        look = await Look.taken(client, suspicion.ledger)
        return await look.confirmed(suspicion, manner, by_lists, placed=True)
    except NoSuchLedgerExistsOnMetadataServer:
        return []
    except MetadataSerialization as error:
        return [about_ledger(suspicion.ledger, "metadata", str(error))]


class Look:
    """
    A ledger as it was read: its metadata with the version, and what bookies that it does not name hold of it.  Taken
    once, and carried through all that a repair does.  `asks_others`: whether bookies that it does not name are asked.
    """

    def __init__(self, client: Client, record: LedgerRecord, asks_others: bool = True) -> None:
        self.client = client
        self.record = record
        self.asks_others = asks_others
        self._held: dict[str, Runs | None] = {}  # by bookies that were asked; None: one gave no answer

    @classmethod
    async def taken(cls, client: Client, ledger: int) -> "Look":
        """Makes a look at a ledger as it is now."""
        return cls(client, LedgerRecord(client.store, ledger, await client.store.read_ledger(ledger)))

    @property
    def version(self) -> int:
        """The version of the metadata that is looked at."""
        return self.record.current.version

    @property
    def others_denied(self) -> bool:
        """True if others were asked, and each of them has answered."""
        return bool(self._held) and None not in self._held.values()

    async def holds(self) -> bool:
        """True if the metadata is still what was looked at; if not, the next look is at what it is now."""
        now = await self.client.store.read_ledger(self.record.ledger)
        if now.version == self.version:
            return True
        self.record = LedgerRecord(self.client.store, self.record.ledger, now)
        self._held.clear()
        return False

    async def confirmed(
        self, suspicion: Suspicion, manner: Manner, by_lists: bool = False, placed: bool = False
    ) -> list[Finding]:
        """As `found`, under metadata that was the same before and after it.  `Replication` when it always changed."""
        for _ in range(ROUNDS_MAX):
            found = await self.found(suspicion, manner, by_lists, placed)
            if not found or await self.holds():
                return found
        raise Replication(
            f"ledger {self.record.ledger}: its metadata changed all the time while it was looked at; run this again"
        )

    async def found(
        self, suspicion: Suspicion, manner: Manner, by_lists: bool = False, placed: bool = False
    ) -> list[Finding]:
        """
        Finds what is wrong of what was suspected.  `by_lists`: by what bookies say that they hold, without reading;
        `placed`: others are asked for what is missing, which is `misplaced` then.
        """
        metadata = self.record.metadata
        subject = Subject(self.client.pool, self.record.ledger, metadata)
        missing: dict[tuple[int, int], list[Missing]] = {}
        examinations: dict[str, Examination] = {}
        for index, first, last in sorted(set(suspicion.copies)):
            for fragment, start, end, bookies in self._fragments(first, min(last, suspicion.last)):
                bookie = bookies[index]
                examination = examinations.setdefault(bookie, subject.examination(bookie, manner))
                if by_lists:
                    some = await examination.present(index, start, end)
                else:
                    some = await examination.run(index, start, end, subject.sums())
                missing.setdefault((fragment, index), []).extend(some)
        unread = sorted((part for some in missing.values() for part in some), key=lambda part: part.first)
        for first, last in sorted(suspicion.differing):
            for fragment, start, end, bookies in self._fragments(first, min(last, suspicion.last)):
                for odd in await compared(
                    subject.reader, subject.quorums, bookies, fragment, start, end, unread, manner
                ):
                    one = Missing(bookies[odd.index], odd.entry, 1, odd.code)
                    missing.setdefault((fragment, odd.index), []).append(one)
        found = findings_of(self.record.ledger, metadata, {key: merged(some) for key, some in missing.items() if some})
        return [await self._placed(finding) for finding in found] if placed else found

    def _fragments(self, first: int, last: int) -> Iterable[tuple[int, int, int, Sequence[str]]]:
        """(begin of the fragment, first, last, bookies) of the parts of a range."""
        for fragment, end, bookies in self.record.metadata.fragment_ranges():
            start, stop = max(first, fragment), last if end is None else min(last, end)
            if start <= stop:
                yield fragment, start, stop, bookies

    async def _placed(self, finding: Finding) -> Finding:
        """`misplaced` where another bookie, which the fragment does not name, has what is missing."""
        if kind_of(finding.code) == "missing" and (bookie := await self.holder(finding)):
            return replace(finding, kind="misplaced", detail=f"{finding.detail}; {bookie} has it", holder=bookie)
        return finding

    async def holder(self, finding: Finding) -> str:
        """A bookie that the fragment does not name and that says it has all that is missing; empty if there is none."""
        if not self.asks_others:
            return ""
        named = self.record.metadata.fragment_at(finding.first).bookies
        listed = await self.client.store.known_bookies()
        for bookie in sorted({*listed.writable, *listed.read_only}.difference(named)):
            if bookie not in self._held:
                answer = await self.client.pool.list_entries(bookie, self.record.ledger)
                self._held[bookie] = answer.runs if answer.code in NEGATIVE | {OK} else None
            held = self._held[bookie]
            if held and not any(lacking_of(self.record.quorums, finding.index, finding.first, finding.last, held)):
                return bookie
        return ""
