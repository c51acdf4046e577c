"""
Copies whose sums differ, entry by entry: which of them are wrong though their digests hold.

Knows: that a recovery writes an entry again with the same payload and length and another last add confirmed, so copies
that differ in that alone may all be right; and that on one bookie it never goes back from one entry to the next.
Does not know: how the sums came about.

A content that more than half of an entry's bookies have is taken for the right one, also of those that can't be asked
now: they may have another.  Where none has, all copies are reported.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from quire.client.core.quorum import Quorums
from quire.protocol.digest import last_add_confirmed, ledger_length
from quire.protocol.errors import OK
from quire.replication.concurrently import all_of
from quire.replication.core.fragments import lacking_of
from quire.replication.replicas import ReplicaReader
from quire.replication.scrub.examine import DIFFERS, STALE, UNDECIDED, Manner, Missing

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
