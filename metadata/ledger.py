"""
The metadata of one ledger: quorums, fragments, state, end.

Knows: the invariants (protocol-rules.md 1.1, metadata-rules.md 4.2 and 7) and the only changes that are allowed.
Does not know: bytes (`formats.ledger_codec`), or who keeps them (`store`).

Safety: a value that breaks an invariant can't be made, CLOSED is never left, and the end of a closed ledger never
changes. Every edit is a pure function from one value to the next; the store's compare-and-set decides whether it
happened.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType

from quire.protocol.digest import DigestType
from quire.protocol.errors import IncorrectParameter, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

FORMAT_VERSION = 3  # what new ledgers are written in
FORMAT_VERSIONS = (1, 2, 3)
INT32_MAX = (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
CUSTOM_BYTES_MAX = 768 << 10  # names and values together: what ZooKeeper takes at once is 1 MiB, all metadata in it

# ":-_" is a range (0x3A to 0x5F) in the reference too (metadata-rules.md 5.3).
BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def is_bookie_id(name: str) -> bool:
    """True if it is a legal bookie id (metadata-rules.md 5.3)."""
    return BOOKIE_ID.fullmatch(name) is not None and name.lower() != "readonly"


@lru_cache(1024)  # a new ledger's are checked twice
def check_bookie_id(bookie: str) -> str:
    """Returns the id; `ValueError` unless it is a legal one."""
    if not is_bookie_id(bookie):
        raise ValueError(f"{bookie!r} is no bookie id: use letters, digits, '.', '-', '_' and ':' (and not 'readonly')")
    return bookie


def no_ledger(uri: str, ledger: int) -> NoSuchLedgerExistsOnMetadataServer:
    """The error of a ledger that is not there, with the next command."""
    return NoSuchLedgerExistsOnMetadataServer(f"{uri} has no ledger {ledger}: `quire ledger list` shows those it has")


def check_ledger_id(ledger: int) -> None:
    """
    Raises `IncorrectParameter` unless 0 <= ledger < 2^63 - 1 (metadata-rules.md 3.1: the highest id is refused
    everywhere); `TypeError` for no int, which a store may not take.
    """
    if not isinstance(ledger, int):
        raise TypeError(f"a ledger id is an int, not {ledger!r}: int(...) makes one of what is a number")
    if not 0 <= ledger < (1 << 63) - 1:
        raise IncorrectParameter(f"ledger id {ledger} is outside 0 to 2^63 - 2")


def check_custom(custom: Mapping[str, bytes]) -> None:
    """`TypeError`, `ValueError` for custom metadata that can't be kept."""
    for name, value in custom.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise TypeError(f"custom metadata is names and bytes: {name!r} with a {type(value).__name__} is neither")
    size = sum(len(name.encode()) + len(value) for name, value in custom.items())
    if size > CUSTOM_BYTES_MAX:
        raise ValueError(f"custom metadata of {size} bytes is larger than {CUSTOM_BYTES_MAX}: put it into an entry")


def check_page(after: int, limit: int) -> None:
    """`IncorrectParameter` for a page of ledgers that can't be asked for: an empty one means the end."""
    if limit < 1 or not -1 <= after <= INT64_MAX:
        raise IncorrectParameter(
            f"a page of ledger ids begins after -1 or an id and has at least 1: not after {after}, at most {limit}"
        )


class LedgerState(IntEnum):
    """The values are those that ledger metadata stores."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Fragment:
    """From entry `first` on, until the next fragment, entries are on these bookies, by ensemble index."""

    first: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """
    One ledger.  `last_entry` is -1 unless CLOSED (and for a closed empty ledger); `length` in payload bytes, 0 unless
    CLOSED.  `digest` and `password` are None together: format 1 has neither.  `ctoken` only shows a creator whether a
    retried create was its own; every edit sets it to 0, as the reference does (metadata-rules.md 4.5).  Raises
    `ValueError` when an invariant is broken.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    last_entry: int
    length: int
    fragments: tuple[Fragment, ...]
    digest: DigestType | None
    password: bytes | None = field(repr=False)
    custom: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    ctime_ms: int | None = None
    ctoken: int = 0
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "custom", MappingProxyType(dict(self.custom)))
        object.__setattr__(self, "fragments", tuple(self.fragments))
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size <= INT32_MAX:
            raise ValueError(
                f"quorums must be 1 <= ack {self.ack_quorum} <= write {self.write_quorum} <= ensemble "
                f"{self.ensemble_size}"
            )
        if self.format_version not in FORMAT_VERSIONS:
            raise ValueError(f"ledger metadata format {self.format_version} is unknown")
        if (self.digest is None) != (self.password is None):
            raise ValueError("digest type and password belong together")
        if self.state is LedgerState.CLOSED:
            if not -1 <= self.last_entry < INT64_MAX or not 0 <= self.length <= INT64_MAX:
                raise ValueError(
                    f"a closed ledger ends at entry -1 or more and has a length: not {self.last_entry}, {self.length}"
                )
        elif self.last_entry != -1 or self.length != 0:
            raise ValueError(f"a ledger that is {self.state.name} has no last entry and no length")
        for number in (self.ctoken, self.ctime_ms or 0):
            if not INT64_MIN <= number <= INT64_MAX:
                raise ValueError(f"{number} is no 64-bit number")
        self._check_fragments()

    def _check_fragments(self) -> None:
        before = -1
        for fragment in self.fragments:
            if not before < fragment.first < INT64_MAX:
                raise ValueError(
                    f"fragments must start at rising entry ids from 0 on: {fragment.first} follows {before}"
                )
            if len(fragment.bookies) != self.ensemble_size:
                raise ValueError(
                    f"the fragment at {fragment.first} has {len(fragment.bookies)} bookies, not {self.ensemble_size}"
                )
            for bookie in fragment.bookies:
                check_bookie_id(bookie)
            before = fragment.first
        if before < 0:
            raise ValueError("a ledger has at least one fragment")

    @classmethod
    def new(
        cls,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        bookies: Sequence[str],
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ctoken: int = 0,
        ctime_ms: int | None = None,
    ) -> "LedgerMetadata":
        """
        A ledger that is about to be created: OPEN, one fragment at entry 0.  With `ctoken` 0 the store draws one.
        `TypeError`, `ValueError` for custom metadata that can't be kept.
        """
        check_custom(custom or {})
        return cls(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            state=LedgerState.OPEN,
            last_entry=-1,
            length=0,
            fragments=(Fragment(0, tuple(bookies)),),
            digest=digest,
            password=password,
            custom=custom or {},
            ctime_ms=ctime_ms,
            ctoken=ctoken,
        )

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[object, ...]:
        """By which a closed ledger is told from another one that had or gets its number; bookies may be exchanged."""
        return self.is_closed, self.last_entry, self.length, self.digest, self.password, self.ctime_ms

    def is_same(self, other: "LedgerMetadata") -> bool:
        """
        False if this is another ledger, made under an id whose ledger was deleted: what never changes differs.  Two
        that were made alike within a millisecond, or without a time, can't be told apart.
        """
        return (
            (self.digest, self.password) == (other.digest, other.password)
            and (self.ensemble_size, self.write_quorum, self.ack_quorum)
            == (other.ensemble_size, other.write_quorum, other.ack_quorum)
            and (self.ctime_ms == other.ctime_ms or None in (self.ctime_ms, other.ctime_ms))
        )

    @property
    def is_closed(self) -> bool:
        """True if the last entry is final."""
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        """The newest fragment, to which a writer adds."""
        return self.fragments[-1]

    def fragment_at(self, entry: int) -> Fragment:
        """
        The fragment with the greatest first entry at or below `entry`; `ValueError` for an id before the first
        fragment.
        """
        if entry >= self.fragments[-1].first:  # the usual one
            return self.fragments[-1]
        index = bisect_right(self.fragments, entry, key=_first) - 1
        if index < 0:
            raise ValueError(f"entry {entry} is before the ledger's first fragment at {self.fragments[0].first}")
        return self.fragments[index]

    def ensemble_at(self, entry: int) -> tuple[str, ...]:
        """The bookies of `entry`, by ensemble index."""
        return self.fragment_at(entry).bookies

    def fragment_ranges(self) -> list[tuple[int, int | None, tuple[str, ...]]]:
        """
        (first, last, bookies) of each fragment, ascending.  The last one ends at the ledger's last entry, or at None
        while it is not closed; a fragment that holds nothing has last < first.
        """
        end = self.last_entry if self.is_closed else None
        if len(self.fragments) == 1:  # most ledgers
            return [(self.fragments[0].first, end, self.fragments[0].bookies)]
        ranges: list[tuple[int, int | None, tuple[str, ...]]] = []
        for fragment, following in zip(self.fragments, [*self.fragments[1:], None], strict=True):
            last = end if following is None else following.first - 1
            if end is not None and last is not None:
                last = min(last, end)
            ranges.append((fragment.first, last, fragment.bookies))
        return ranges

    def bookies(self) -> set[str]:
        """Every bookie that any fragment names."""
        return {bookie for fragment in self.fragments for bookie in fragment.bookies}

    # -- changing --------------------------------------------------------------------------------------------------

    def recovering(self) -> "LedgerMetadata":
        """OPEN or IN_RECOVERY becomes IN_RECOVERY; `ValueError` when it is closed."""
        self._refuse_if_closed("be recovered")
        return replace(self, state=LedgerState.IN_RECOVERY, ctoken=0)

    def closed(self, last_entry: int, length: int) -> "LedgerMetadata":
        """Closed for good; a value that is closed already is returned when the end is the same, else `ValueError`."""
        if self.is_closed and (self.last_entry, self.length) == (last_entry, length):
            return self
        self._refuse_if_closed("be closed at another entry")
        return replace(self, state=LedgerState.CLOSED, last_entry=last_entry, length=length, ctoken=0)

    def with_ensemble(self, first: int, bookies: Sequence[str]) -> "LedgerMetadata":
        """
        From entry `first` on these bookies: a new fragment, or the last one's bookies replaced when it starts there
        too.
        """
        self._refuse_if_closed("change its ensemble")
        last = self.last_fragment
        if first < last.first:
            raise ValueError(f"a fragment at {first} can't follow the one at {last.first}")
        kept = self.fragments[:-1] if first == last.first else self.fragments
        return replace(self, fragments=(*kept, Fragment(first, tuple(bookies))), ctoken=0)

    def replace_bookies(self, first: int, bookies: Sequence[str]) -> "LedgerMetadata":
        """
        The fragment that starts at `first` with other bookies (repair; any state); `ValueError` if none starts there.
        """
        changed = self.fragments_with(first, bookies)
        return replace(self, fragments=tuple(changed), ctoken=0)

    def fragments_with(self, first: int, bookies: Sequence[str]) -> list[Fragment]:
        """The fragments, of which that at `first` has other bookies; `ValueError` if none starts there."""
        changed = list(self.fragments)
        for at, fragment in enumerate(changed):
            if fragment.first == first:
                changed[at] = Fragment(first, tuple(bookies))
                return changed
        raise ValueError(f"no fragment starts at entry {first}")

    def replace_part(self, first: int, last: int, bookies: Sequence[str]) -> "LedgerMetadata":
        """
        Entries `first` to `last` of the fragment that starts at `first` with other bookies (repair of a closed ledger);
        the rest of it keeps its own.  What then has the bookies of the fragment before it is one with that.
        `ValueError` if no fragment starts there, or the ledger is not closed.
        """
        if not self.is_closed:
            raise ValueError("the ledger is not closed: only whole fragments get other bookies")
        whole = self.fragments_with(first, bookies)
        at = [fragment.first for fragment in whole].index(first)
        _first, end, before = self.fragment_ranges()[at]
        assert end is not None
        rest = (Fragment(last + 1, before),) if last < end else ()
        kept = at if at and whole[at - 1].bookies == whole[at].bookies else at + 1
        return replace(self, fragments=(*whole[:kept], *rest, *whole[at + 1 :]), ctoken=0)

    def with_custom(self, name: str, value: bytes | None) -> "LedgerMetadata":
        """With this member of the custom metadata, or without it (any state)."""
        rest = {key: kept for key, kept in self.custom.items() if key != name}
        return replace(self, custom=rest if value is None else {**rest, name: value}, ctoken=0)

    def _refuse_if_closed(self, what: str) -> None:
        if self.is_closed:
            raise ValueError(f"the ledger is closed at entry {self.last_entry}: it can't {what}")

    def safe_text(self) -> str:
        """For logs and screens: everything but the password."""
        digest = self.digest.name if self.digest else "none"
        end = f" last={self.last_entry} length={self.length}" if self.is_closed else ""
        fragments = " ".join(f"{fragment.first}:[{','.join(fragment.bookies)}]" for fragment in self.fragments)
        password = "none" if self.password is None else "hidden"
        return (
            f"{self.state.name}{end} E={self.ensemble_size} WQ={self.write_quorum} AQ={self.ack_quorum} "
            f"digest={digest} "
            f"password={password} format={self.format_version} custom={sorted(self.custom)} {fragments}"
        )


def _first(fragment: Fragment) -> int:
    return fragment.first
