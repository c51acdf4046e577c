"""
The second look at what seemed wrong, by which alone a finding is made.

Knows: that metadata which changed meanwhile (a bookie was replaced, the ledger deleted) explains most of what the first
look saw, and asks other bookies for what is missing.
Does not know: why something was suspected.

Safety: what is found was so while the metadata did not change: it is read before and after, and when it is another one
everything is looked at again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import MetadataSerialization, NoSuchLedgerExistsOnMetadataServer, Replication
from quire.replication.core.fragments import lacking_of
from quire.replication.scrub.compare import compared
from quire.replication.scrub.examine import Manner, Missing, merged
from quire.replication.scrub.judge import Finding, Suspicion, about_ledger, findings_of, kind_of
from quire.replication.scrub.subject import Subject

# SPDX-License-Identifier: Apache-2.0

ROUNDS_MAX = 10  # a ledger whose metadata changes all the time is left to the next run


async def second_look(client: Client, suspicion: Suspicion, manner: Manner, by_lists: bool = False) -> list[Finding]:
    """
    What is wrong now of what was suspected of a ledger; nothing if it was deleted.  `Replication` when nobody can say,
    for its metadata changed in each look.
    """
    ledger = suspicion.ledger
    for _ in range(ROUNDS_MAX):
        try:
            before = await client.store.read_ledger(ledger)
            found = await Look(client, ledger, before.value, manner).found(suspicion, by_lists)
            if not found or (await client.store.read_ledger(ledger)).version == before.version:
                return found
        except NoSuchLedgerExistsOnMetadataServer:
            return []
        except MetadataSerialization as error:
            return [about_ledger(ledger, "metadata", str(error))]
    raise Replication(f"ledger {ledger}: its metadata changed all the time while it was looked at; run this again")


class Look:
    """One, under one state of the metadata."""

    def __init__(self, client: Client, ledger: int, metadata: LedgerMetadata, manner: Manner) -> None:
        self._client = client
        self._ledger = ledger
        self._metadata = metadata
        self._manner = manner
        self._subject = Subject(client.pool, ledger, metadata)
        self._quorums, self._reader = self._subject.quorums, self._subject.reader
        self._stored: dict[str, list[tuple[int, int]]] = {}

    async def found(self, suspicion: Suspicion, by_lists: bool) -> list[Finding]:
        missing: dict[tuple[int, int], list[Missing]] = {}
        for index, first, last in sorted(set(suspicion.copies)):
            for fragment, start, end, bookies in self._fragments(first, min(last, suspicion.last)):
                examination = self._subject.examination(bookies[index], self._manner)
                if by_lists:
                    some = await examination.present(index, start, end)
                else:
                    some = await examination.run(index, start, end, self._subject.sums())
                missing.setdefault((fragment, index), []).extend(some)
        unread = sorted((part for some in missing.values() for part in some), key=lambda part: part.first)
        for first, last in sorted(suspicion.differing):
            for fragment, start, end, bookies in self._fragments(first, min(last, suspicion.last)):
                for odd in await compared(
                    self._reader, self._quorums, bookies, fragment, start, end, unread, self._manner
                ):
                    one = Missing(bookies[odd.index], odd.entry, 1, odd.code)
                    missing.setdefault((fragment, odd.index), []).append(one)
        found = findings_of(self._ledger, self._metadata, {key: merged(some) for key, some in missing.items() if some})
        return [await self._placed(finding) for finding in found]

    def _fragments(self, first: int, last: int) -> Iterable[tuple[int, int, int, Sequence[str]]]:
        """(begin of the fragment, first, last, bookies) of the parts of a range."""
        for fragment, end, bookies in self._metadata.fragment_ranges():
            start, stop = max(first, fragment), last if end is None else min(last, end)
            if start <= stop:
                yield fragment, start, stop, bookies

    async def _placed(self, finding: Finding) -> Finding:
        """`misplaced` where another bookie, which the fragment does not name, has what is missing."""
        if kind_of(finding.code) != "missing":
            return finding
        named = self._metadata.fragment_at(finding.first).bookies
        listed = await self._client.store.bookies()
        for bookie in sorted({*listed.writable, *listed.read_only}.difference(named)):
            if bookie not in self._stored:
                self._stored[bookie] = await self._reader.stored(bookie) or []
            held = self._stored[bookie]
            if held and not any(lacking_of(self._quorums, finding.index, finding.first, finding.last, held)):
                return replace(finding, kind="misplaced", detail=f"{finding.detail}; {bookie} has it", holder=bookie)
        return finding
