"""
A check that every entry of a ledger has all its copies: every replica of every entry is read, its digest checked, and
what the bookies have compared.

Knows: one ledger as a whole.
Does not know: how a bookie is asked and copies are compared (`scrub`), how a missing copy is made again (`copier`).

Nothing is changed, fenced or recovered; of a ledger that isn't closed only what is confirmed now is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from quire.client.api import Client
from quire.metadata.ledger import LedgerState
from quire.replication.concurrently import all_of
from quire.replication.core.fragments import count_on
from quire.replication.scrub.examine import Manner, Missing, Subject, merged
from quire.replication.scrub.judge import Seen, suspicions
from quire.replication.scrub.ledgers import end_of
from quire.replication.scrub.plan import Share
from quire.replication.scrub.second_look import compared

# SPDX-License-Identifier: Apache-2.0


class CheckProgress(NamedTuple):
    """Copies looked at so far, of how many in all."""

    ledger: int
    copies: int
    expected: int


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """The findings of `check_ledger`.  `last` is the last entry looked at; a *copy* is one entry on one bookie."""

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
        """Groups missing copies by the first entry of their fragment, cut at its end; whole ones are left out."""
        out: dict[int, list[Missing]] = {}
        for fragment, end in zip(self.fragments, (*self.fragments[1:], self.last + 1), strict=True):
            for each in self.missing:
                first, stop = max(each.first, fragment), min(each.first + each.entries, end)
                if first < stop:
                    out.setdefault(fragment, []).append(each._replace(first=first, entries=stop - first))
        return out


Progress = Callable[[CheckProgress], None]


async def check_ledger(client: Client, ledger: int, progress: Progress | None = None) -> LedgerCheck:
    """
    Reads every replica of every entry up to the ledger's end, or the last add confirmed of an unclosed one.
    `NoSuchLedger`; `MetaStore`; `Read` when an unclosed ledger's last add confirmed can't be had.
    """
    metadata = await client.metadata(ledger)
    last, metadata = await end_of(client, ledger, metadata)
    subject = Subject(client.pool, ledger, metadata)
    quorums, reader = subject.quorums, subject.reader
    fragments = [
        (first, last if end is None else min(end, last), bookies) for first, end, bookies in metadata.fragment_ranges()
    ]
    shares = [
        Share(ledger, first, index, bookie, first, end, 0)
        for first, end, bookies in fragments
        for index, bookie in enumerate(bookies)
    ]
    expected = sum(count_on(quorums, share.index, share.first, share.last) for share in shares)
    copies = 0

    def counted(some: int) -> None:
        nonlocal copies
        copies += some
        if progress is not None:
            progress(CheckProgress(ledger, copies, expected))

    manner = Manner(counted=counted)
    seen: list[Seen] = []

    # By bookie, so that one that doesn't answer is waited for once, not once per fragment.
    async def look(bookie: str) -> None:
        examination = subject.examination(bookie, manner)
        for share in shares:
            if share.bookie == bookie:
                sums = subject.sums()
                missing = await examination.run(share.index, share.first, share.last, sums)
                seen.append(Seen(share, missing, sums.found, 0))

    await all_of([look(bookie) for bookie in sorted({share.bookie for share in shares})])
    unread = sorted((part for each in seen for part in each.missing), key=lambda part: part.first)
    wrong = list(unread)
    for suspicion in suspicions({ledger: (quorums, last)}, seen):
        for first, stop in sorted(suspicion.differing):
            for begin, end, bookies in fragments:
                low, high = max(first, begin), min(stop, end)
                if low <= high:
                    odds = await compared(reader, quorums, bookies, begin, low, high, unread)
                    wrong += [Missing(bookies[odd.index], odd.entry, 1, odd.code) for odd in odds]
    bookies_wrong = sorted({each.bookie for each in wrong})
    missing = [part for name in bookies_wrong for part in merged([each for each in wrong if each.bookie == name])]
    missing.sort(key=lambda each: (each.first, each.bookie))
    starts = tuple(fragment.first for fragment in metadata.fragments)
    return LedgerCheck(ledger, metadata.state, last, expected, tuple(missing), starts)
