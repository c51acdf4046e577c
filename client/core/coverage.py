"""
Asking a whole ensemble how far a ledger is confirmed, with or without fencing it (protocol-rules.md 1.4, 3.5, 4.1
R3, R4), and how far entries are stored.

Knows: which indexes were heard, the highest LAC that a digest vouches for, the highest entry, and when the answers
suffice.
Does not know: who asks, fences or waits.

Safety: an answer counts as heard when the bookie holds the ledger fenced, whatever it could read; but only bytes whose
digest is right bring a LAC (never a header's hint, D14), and a bad digest alone completes nothing.  Silence and errors
are not heard.  How far entries are stored only those tell who hold none, or gave their last one whole: what a bookie
with a damaged one holds is not known.
"""

from collections.abc import Callable, Sequence

from quire.client.core.quorum import NEGATIVE, Quorums
from quire.protocol.digest import ENTRY_ID_MAX, HEADER, Digest
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    DataUnknown,
    DigestMatch,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedgerExists,
    Security,
    Timeout,
    TooManyRequests,
    UnauthorizedAccess,
    WriteOnReadOnlyBookie,
    name_of,
)

# SPDX-License-Identifier: Apache-2.0

WORDS = {
    BookieHandleNotAvailable.code: "can't be reached",
    Timeout.code: "gave no answer in time",
    DigestMatch.code: "sent bytes whose digest is wrong",
    UnauthorizedAccess.code: "refused the password, or gives this client no right to that (its log says which)",
    Security.code: "and this client do not trust each other (TLS or authentication; log or standard error say why)",
    NoSuchEntry.code: "does not have it",
    NoSuchLedgerExists.code: "has nothing of the ledger",
    DataUnknown.code: "may have lost entries of the ledger, and answers for none until it is repaired",
    LedgerFenced.code: "has fenced the ledger",
    WriteOnReadOnlyBookie.code: "is read-only",
    TooManyRequests.code: "is overloaded",
}


def describe(bookie: str, code: int) -> str:
    """A bookie's failure in words."""
    return f"{bookie} {WORDS[code]}" if code in WORDS else f"{bookie} failed ({name_of(code)})"


class Coverage:
    """The answers of one ensemble, by index."""

    def __init__(self, ledger: int, quorums: Quorums, digest: Digest) -> None:
        self.ledger = ledger
        self.quorums = quorums
        self.digest = digest
        self.heard: set[int] = set()
        self.answered: dict[int, int] = {}  # index -> code
        self.lac = -1
        self.told: set[int] = set()  # whose last entry is known
        self.highest = -1  # the id of the highest entry of any of them
        self.length = 0  # the longest that any entry seen says the ledger was; it may count entries above the LAC
        self._valid = False

    @property
    def complete(self) -> bool:
        """True if no entry above `lac` can be confirmed by those not heard."""
        return self._valid and self.quorums.covered(self.heard)

    @property
    def reaches(self) -> bool:
        """True if no entry above `highest` can be acknowledged by those whose last entry is not known."""
        return self.quorums.covered(self.told)

    @property
    def refused(self) -> bool:
        """True if a bookie refused the password, or the right to ask."""
        return UnauthorizedAccess.code in self.answered.values()

    @property
    def exhausted(self) -> bool:
        """True if all answered."""
        return len(self.answered) == self.quorums.ensemble

    def last_entry(self, index: int, code: int, body: bytes | None) -> None:
        """An answer to a read of -1: the bookie's highest stored entry, a negative, or a failure."""
        self._take(index, code, [] if body is None else [(body, self._of_entry)])

    def lac_and_entry(self, index: int, code: int, lac_body: bytes | None, last_body: bytes | None) -> None:
        """An answer to a LAC request: the explicit LAC and the highest stored entry, each perhaps missing."""
        bodies = [
            (body, read) for body, read in ((lac_body, self._of_lac), (last_body, self._of_entry)) if body is not None
        ]
        self._take(index, code, bodies)

    def _of_entry(self, body: bytes) -> int:
        self.digest.open(self.ledger, -1, body)
        _ledger, entry, lac, length = HEADER.unpack_from(body)
        self._check(lac, length)
        self.length = max(self.length, length)
        self.highest = max(self.highest, entry)
        return int(lac)

    def _of_lac(self, body: bytes) -> int:
        lac = self.digest.open_lac(self.ledger, body)
        self._check(lac, 0)
        return lac

    def _check(self, lac: int, length: int) -> None:
        """`DigestMatch` for what no writer says, though its sum is right: CRC32C is no secret."""
        if not -1 <= lac < ENTRY_ID_MAX or length < 0:
            raise DigestMatch(f"ledger {self.ledger}: it can't be {length} bytes long, confirmed up to entry {lac}")

    def _take(self, index: int, code: int, bodies: Sequence[tuple[bytes, Callable[[bytes], int]]]) -> None:
        if index in self.answered:
            return
        if code == OK or code in NEGATIVE:
            self.heard.add(index)
            bad = []
            for body, read in bodies:
                try:
                    self.lac = max(self.lac, read(body))
                except DigestMatch:
                    bad.append(read)
            if self._of_entry not in bad:
                self.told.add(index)
            if bad and len(bad) == len(bodies):
                code = DigestMatch.code
            else:
                self._valid = True
        self.answered[index] = code

    def refusal(self, bookies: tuple[str, ...]) -> str:
        """Names the bookie that refused, and what that may mean."""
        code = UnauthorizedAccess.code
        return "; ".join(describe(bookies[index], code) for index, said in self.answered.items() if said == code)

    def failure(self, bookies: tuple[str, ...]) -> str:
        """Says which bookie failed how, which quorum is missing, and what to do."""
        failed = [
            describe(bookies[index], code)
            for index, code in sorted(self.answered.items())
            if code != OK and code not in NEGATIVE
        ]
        failed += [
            f"{describe(bookies[index], DigestMatch.code)} of its last entry"
            for index in sorted(self.heard - self.told)
            if self.answered[index] == OK
        ]
        heard = f"{len(self.heard)} of {len(bookies)} bookies answered for ledger {self.ledger}"
        if self.quorums.covered(self.heard):
            return (
                f"{heard}, none with whole bytes: {'; '.join(failed)}; `quire ledger check {self.ledger}` shows "
                "which copies are left"
            )
        missing = f"the others could still make up an ack quorum of {self.quorums.ack}"
        return (
            f"{heard}, and {missing}: {'; '.join(failed)}; bring some of these back (`quire bookie list` shows who "
            "is up), then try again"
        )
