"""
The bookies that hold an entry, and when enough of them have answered (protocol-rules.md 1.2 to 1.4).

Knows: the round-robin schedule of E, WQ and AQ, in integers without a width (D10), and the questions asked of it: the
write set of an entry, who is needed to acknowledge, who to say "absent", and whether a set of answers leaves no ack
quorum unheard (`covered`).
Does not know: bookies, entries' bytes, time.

Safety: coverage is decided over the actual write sets, never by counting alone (protocol-rules.md 1.4); silence is
never counted as an answer.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import OK, BookieHandleNotAvailable, NoSuchEntry, NoSuchLedgerExists, Security

# SPDX-License-Identifier: Apache-2.0

KEPT_MAX = 256  # quorums of ledgers
NEGATIVE = frozenset((NoSuchEntry.code, NoSuchLedgerExists.code))  # a bookie says: I do not have it


@dataclass(frozen=True, slots=True)
class Domains:
    """Fault domains: `of` a bookie, `least` that acknowledged copies must be in (protocol-rules.md 2.4, 6)."""

    of: Callable[[str], str]
    least: int

    def suffice(self, bookies: Iterable[str], write: int) -> bool:
        """True if copies on these bookies are far enough apart."""
        return len(set(map(self.of, bookies))) >= min(write, self.least)

    def serve(self, quorums: "Quorums", bookies: Sequence[str], lost: Container[int] = ()) -> bool:
        """True if each write set of an ensemble, without the indexes of `lost`, is in enough of them."""
        return all(
            self.suffice([bookies[index] for index in quorums.write_set(entry) if index not in lost], quorums.write)
            for entry in range(quorums.ensemble)
        )

    def spread(self, quorums: "Quorums", bookies: Sequence[str]) -> int:
        """In how many domains the write sets of an ensemble are, as far as they count, all together."""
        return sum(
            min(len({self.of(bookies[index]) for index in quorums.write_set(entry)}), self.least)
            for entry in range(quorums.ensemble)
        )

    def lack(self, bookies: Sequence[str]) -> str:
        """Why an ensemble won't do, for an error."""
        return (
            f"of {', '.join(bookies)} some write set is in fewer than {self.least} racks, regions or zones "
            "(enforceMinNumFaultDomainsForWrite)"
        )


@dataclass(frozen=True, slots=True)
class Quorums:
    """1 <= ack <= write <= ensemble, fixed for the life of a ledger."""

    ensemble: int
    write: int
    ack: int
    striped: bool = field(init=False)  # some bookie of the ensemble lacks some entries by design

    def __post_init__(self) -> None:
        object.__setattr__(self, "striped", self.write != self.ensemble)
        if not 1 <= self.ack <= self.write <= self.ensemble:
            raise ValueError(
                f"quorums must be 1 <= ack <= write <= ensemble, not ack {self.ack}, write {self.write}, "
                f"ensemble {self.ensemble}"
            )

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> "Quorums":
        return _shared(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    @property
    def absent(self) -> int:
        """QC: how many of an entry's write set must say "no" before it may be taken for never acknowledged."""
        return self.write - self.ack + 1

    @property
    def fence(self) -> int:
        """EC: so many of an ensemble always cover it; fewer may or may not, see `covered`."""
        return self.ensemble - self.ack + 1

    def write_set(self, entry: int) -> list[int]:
        """The indexes that hold `entry`, in the default order of reading."""
        size = self.ensemble
        return [(entry + step) % size for step in range(self.write)]

    def has(self, entry: int, index: int) -> bool:
        """True if `entry` belongs on `index`."""
        return (index - entry) % self.ensemble < self.write

    def next_of(self, index: int, entry: int) -> int:
        """The lowest id above `entry` that belongs on `index`."""
        entry += 1
        gap = (index - entry) % self.ensemble  # the first `gap - write + 1` of them do not
        return entry if gap < self.write else entry + gap - self.write + 1

    def entries_of(self, index: int, first: int, last: int) -> Sequence[int]:
        """The ids of first..last that belong on `index`, ascending."""
        if not self.striped:
            return range(first, last + 1)
        size, write = self.ensemble, self.write
        return [entry for entry in range(first, last + 1) if (index - entry) % size < write]

    def covered(self, heard: Container[int]) -> bool:
        """
        True if no write set can still reach its ack quorum among the indexes that are not in `heard`.  With every index
        of `heard` fenced, no entry can be acknowledged any more; with their LACs known, none above the highest is
        confirmed.
        """
        size = self.ensemble
        for start in range(size):
            unheard = sum((start + step) % size not in heard for step in range(self.write))
            if unheard >= self.ack:
                return False
        return True

    def writable_without(self, lost: Container[int]) -> bool:
        """True if every write set still reaches the ack quorum when none of `lost` answers (D17)."""
        size = self.ensemble
        for start in range(size):
            alive = sum((start + step) % size not in lost for step in range(self.write))
            if alive < self.ack:
                return False
        return True

    def confirmed(self, watermarks: Sequence[int], at_least: int) -> int:
        """
        The highest id up to which every entry is at its ack quorum, given that index i acknowledged all of its entries
        up to watermarks[i] and that everything up to `at_least` is settled.
        """
        if self.write == self.ensemble:
            reached = sorted(watermarks)[self.write - self.ack]
            return max(at_least, reached)
        size, last_of_quorum = self.ensemble, self.write - self.ack
        lowest: int | None = None
        for entry in range(at_least + 1, at_least + 1 + size):  # one entry of each write set
            if lowest is not None and lowest <= entry:  # what the other write sets miss is higher
                break
            reached = sorted([watermarks[(entry + step) % size] for step in range(self.write)])[last_of_quorum]
            missing = (
                entry if reached < entry else reached + size - (reached - entry) % size
            )  # first of this write set above `reached`
            if lowest is None or missing < lowest:
                lowest = missing
        assert lowest is not None
        return lowest - 1


@lru_cache(KEPT_MAX)
def _shared(ensemble: int, write: int, ack: int) -> Quorums:
    """One value for all ledgers that have these: they are asked for again and again."""
    return Quorums(ensemble, write, ack)


def shortage(codes: Iterable[int], otherwise: int) -> int:
    """
    The code to report when too few bookies are left after these failures: -24 if TLS or authentication failed with each
    of them, which is no lack of bookies; else `otherwise`.
    """
    codes = set(codes)
    return Security.code if codes == {Security.code} else otherwise


def merge(current: int, code: int) -> int:
    """
    The code to report after one more replica failed with `code` (protocol-rules.md 3.2): the first error of any
    other kind wins over "unreachable" (-8), which wins over the latest negative.  Start with 0.
    """
    if current == OK or current in NEGATIVE:
        return code
    if current == BookieHandleNotAvailable.code and code not in NEGATIVE:
        return code
    return current


def near(one: int, other: int, size: int, write: int) -> bool:
    """True if some write set has both of these indexes."""
    distance = (one - other) % size
    return min(distance, size - distance) < write
