"""
The judgement of looks at shares: which ranges deserve a second look, and what is found when that agrees.  Pure.

Knows: sums, codes, kinds of findings.  Does not know: who reads.

| kind | an entry or ledger of which |
|---|---|
| `missing` | a bookie lacks its copy; others have it |
| `damaged` | a copy's digest is wrong, or the bookie can't read it |
| `head` | a copy's digest holds, but its last add confirmed or length can't be |
| `differs` | copies differ though all digests hold; the row names those that are in the minority, or all |
| `stale` | a copy's last add confirmed went back, others' did not |
| `unreachable` | the bookie gave no answer |
| `restoring` | the bookie does not know whether it has it: it lost a disk and is being filled again |
| `misplaced` | the bookie lacks its copy, and one that the metadata does not name has it: the ensemble is wrong |
| `lost` | no bookie that should have it does |
| `length` | payload bytes and the length in the metadata differ |
| `changing` | the metadata changed in each of several looks at what was suspected, so nobody can say what is wrong |
| `metadata` | fragments or metadata can't be |
| `duplicate` | an ensemble names a bookie twice |
| `unknown` | an ensemble names a bookie that is neither registered nor has a cookie |
| `placement` | copies of an entry are in fewer racks, regions or zones than the policy wants |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.client.core.quorum import NEGATIVE, Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import DataUnknown, DigestMatch, Read
from quire.replication.scrub.examine import DIFFERS, STALE, UNDECIDED, WRONG_HEAD, Missing, Sum
from quire.replication.scrub.plan import CHUNK, Share

# SPDX-License-Identifier: Apache-2.0

KINDS = {
    DigestMatch.code: "damaged",
    Read.code: "damaged",
    DataUnknown.code: "restoring",
    WRONG_HEAD: "head",
    DIFFERS: "differs",
    STALE: "stale",
    UNDECIDED: "differs",
}
WRONG_THERE = frozenset(("damaged", "head", "differs", "stale"))  # the bookie has a copy, which is not the right one
MENDED_BY_COPIES = WRONG_THERE | {"missing", "misplaced", "lost"}


@dataclass(frozen=True, slots=True)
class Finding:
    """
    `entries` entries between `first` and `last`, those of the fragment at `fragment` that belong on ensemble index
    `index`.  Of a whole ledger or fragment: index -1, no entries.  `holder`: a bookie that has what is misplaced.
    """

    ledger: int
    fragment: int
    index: int
    bookie: str
    first: int
    last: int
    entries: int
    kind: str
    code: int
    detail: str
    holder: str = ""


class Seen(NamedTuple):
    """The result of the first look at a share.  `moved`: the metadata does not name this bookie there any more."""

    share: Share
    missing: list[Missing]
    sums: dict[tuple[int, int], Sum]
    read_bytes: int
    moved: bool = False


@dataclass(slots=True)
class Suspicion:
    """
    Suspicions about one ledger: (ensemble index, first, last) that were not good, ranges (first, last) of which copies
    differ. `late`: some seem missing, and may be on their way: an add is acknowledged, its ledger even closed, before
    the last copy is there.
    """

    ledger: int
    last: int
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    differing: set[tuple[int, int]] = field(default_factory=set)
    late: bool = False


def about_ledger(ledger: int, kind: str, detail: str, fragment: int = 0, bookie: str = "") -> Finding:
    """A finding that is about no entry."""
    return Finding(ledger, fragment, -1, bookie, -1, -1, 0, kind, 0, detail)


def kind_of(code: int) -> str:
    """Returns the kind of a finding by a copy's code."""
    return "missing" if code in NEGATIVE else KINDS.get(code, "unreachable")


def joined(quorums: Quorums, index: int, missing: Sequence[Missing]) -> list[tuple[Missing, int]]:
    """(with all its entries, last) of those of an index between which it has to hold nothing, by code."""
    out: list[tuple[Missing, int]] = []
    for each in missing:
        last = each.first + each.entries - 1
        if out and out[-1][0].code == each.code and quorums.next_of(index, out[-1][1]) == each.first:
            before = out[-1][0]
            out[-1] = before._replace(entries=before.entries + each.entries), last
        else:
            out.append((each, last))
    return out


def suspicions(ledgers: Mapping[int, tuple[Quorums, int]], seen: Iterable[Seen]) -> list[Suspicion]:
    """Lists what a second look has to look at; `ledgers`: quorums and last entry of each."""
    found: dict[int, Suspicion] = {}
    sums: dict[tuple[int, int, int, int], dict[int, Sum]] = {}
    for each in seen:
        share = each.share
        quorums, last = ledgers[share.ledger]
        if each.moved or each.missing:
            one = found.setdefault(share.ledger, Suspicion(share.ledger, last))
            one.late |= any(kind_of(part.code) == "missing" for part in each.missing)
            if each.moved:
                one.copies.append((share.index, share.first, share.last))
            one.copies += [(share.index, part.first, end) for part, end in joined(quorums, share.index, each.missing)]
        for (chunk, rest), total in each.sums.items():
            sums.setdefault((share.ledger, share.fragment, chunk, rest), {})[share.index] = total
    for (ledger, fragment, chunk, _rest), by_index in sums.items():
        if unequal(by_index.values()):
            one = found.setdefault(ledger, Suspicion(ledger, ledgers[ledger][1]))
            one.differing.add((max(fragment, chunk * CHUNK), (chunk + 1) * CHUNK - 1))
    return [found[ledger] for ledger in sorted(found)]


def unequal(totals: Iterable[Sum]) -> bool:
    """True if copies may differ: what is compared is not the same; also when one lacks only some of the entries."""
    return len(set(totals)) > 1


def payload_bytes(last: int, seen: Iterable[Seen]) -> int | None:
    """Counts the payload bytes of a ledger's entries, from whole copies; None when there is none for some."""
    best: dict[tuple[int, int, int], Sum] = {}
    for each in seen:
        for (chunk, rest), total in each.sums.items():
            key = each.share.fragment, chunk, rest
            if key not in best or best[key].entries < total.entries:
                best[key] = total
    whole = sum(total.entries for total in best.values()) == last + 1
    return sum(total.payload_bytes for total in best.values()) if whole else None


def findings_of(
    ledger: int, metadata: LedgerMetadata, missing: Mapping[tuple[int, int], list[Missing]]
) -> list[Finding]:
    """All of one ledger by (fragment, ensemble index), as findings."""
    quorums = Quorums.of(metadata)
    lost = {
        fragment: lost_runs(quorums, [missing[key] for key in missing if key[0] == fragment])
        for fragment in {fragment for fragment, _index in missing}
    }
    found = []
    for (fragment, index), some in sorted(missing.items()):
        gone, held = parted(some, lost[fragment])
        for kind, parts in (("lost", gone), ("", held)):
            found += [
                Finding(
                    *(ledger, fragment, index, each.bookie, each.first, last, each.entries),
                    *(kind or kind_of(each.code), each.code, each.why),
                )
                for each, last in joined(quorums, index, parts)
            ]
    return found


def lost_runs(quorums: Quorums, indexes: Iterable[list[Missing]]) -> list[tuple[int, int]]:
    """Ranges (first, end) of a fragment's entries of which every copy is missing or damaged, ascending and apart."""
    edges: dict[int, int] = {}
    for missing in indexes:
        for each in missing:
            if kind_of(each.code) in ("missing", "damaged", "head"):
                edges[each.first] = edges.get(each.first, 0) + 1
                edges[each.first + each.entries] = edges.get(each.first + each.entries, 0) - 1
    out: list[tuple[int, int]] = []
    lacking = before = 0
    for at in sorted(edges):
        if lacking == quorums.write:
            out.append((before, at))
        lacking += edges[at]
        before = at
    return out


def parted(missing: Iterable[Missing], lost: Sequence[tuple[int, int]]) -> tuple[list[Missing], list[Missing]]:
    """Parts entries into those in the ranges, and the others."""
    inside: list[Missing] = []
    outside: list[Missing] = []
    for each in missing:
        at, stop = each.first, each.first + each.entries
        for first, end in lost:
            low, high = max(at, first), min(stop, end)
            if low < high and kind_of(each.code) in ("missing", "damaged", "head"):
                outside += [each._replace(first=at, entries=low - at)] if at < low else []
                inside.append(each._replace(first=low, entries=high - low))
                at = high
        outside += [each._replace(first=at, entries=stop - at)] if at < stop else []
    return inside, outside
