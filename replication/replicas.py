"""
Reading what one bookie stores of a ledger, in batches, every digest checked.

Knows: how to ask (batch reads; single ones for a bookie that has none), what an answer is worth, and when there is no
use in asking on.
Does not know: fragments, which other bookies hold the entries.

Safety: nothing leaves here as read unless its digest and its ids are right.
"""

from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from quire.client.connections.answers import BatchAnswer, LacAnswer, ListAnswer
from quire.client.core.quorum import NEGATIVE
from quire.protocol.digest import Digest
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    DigestMatch,
    NoSuchEntry,
    NoSuchLedgerExists,
    Read,
    Timeout,
    TooManyRequests,
    name_of,
)

# SPDX-License-Identifier: Apache-2.0

TRIES_MAX = 3  # of a request that timed out or found the bookie overloaded
BYTES_MAX = 4 << 20  # asked for at a time

ABOUT_ONE_ENTRY = frozenset((NoSuchEntry.code, DigestMatch.code, Read.code))  # the next entry may yet be fine
PASSING = frozenset((Timeout.code, TooManyRequests.code))  # worth asking again
UNHEARD = PASSING | {BookieHandleNotAvailable.code}  # nothing is known of the bookie


class ReadPool(Protocol):
    """The part of a `BookiePool` that reading replicas needs."""

    def batch_read(
        self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int
    ) -> Deferred[BatchAnswer]: ...

    def read_run(
        self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int
    ) -> Deferred[BatchAnswer]: ...

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]: ...

    def read_lac(self, bookie: str, ledger: int) -> Deferred[LacAnswer]: ...

    def connection_of(self, bookie: str) -> int | None: ...


class ReplicaPiece(NamedTuple):
    """
    Checked bodies of consecutive entries from the first one asked for on.  With `code` 0 there is at least one, and
    asking for the next goes on; any other code is about the first entry, and there are none.
    """

    code: int
    bodies: list[bytes]


def why(code: int) -> str:
    """A missing copy's code in words."""
    if code in NEGATIVE:
        return "no such ledger there" if code == NoSuchLedgerExists.code else "not stored there"
    return "its digest is wrong" if code == DigestMatch.code else f"no answer ({name_of(code)})"


class ReplicaReader:
    """Reads from any bookie of one ledger; remembers which of them know no batch read."""

    def __init__(self, pool: ReadPool, ledger: int, digest: Digest, bytes_max: int = BYTES_MAX) -> None:
        self.ledger = ledger
        self.digest = digest
        self._pool = pool
        self._bytes_max = bytes_max
        self._single: set[str] = set()

    async def piece(self, bookie: str, first: int, count: int) -> ReplicaPiece:
        """Up to `count` entries from `first` on, as one answer holds."""
        answer = BatchAnswer(Timeout.code, [])
        for _ in range(TRIES_MAX):
            answer = await self._ask(bookie, first, count)
            if answer.code not in PASSING:
                break
        if answer.code != OK:
            return ReplicaPiece(answer.code, [])
        bodies = list(answer.bodies[:count])
        good = self._good(first, bodies)
        if not good:
            return ReplicaPiece(DigestMatch.code, [])
        return ReplicaPiece(OK, bodies[:good])

    async def answers(self, bookie: str) -> int:
        """
        Asks the bookie about the ledger over the connection that adds of copies take; the code, of which all but those
        in `UNHEARD` came from it.
        """
        code = Timeout.code
        for _ in range(TRIES_MAX):
            code = (await self._pool.read_lac(bookie, self.ledger)).code
            if code not in PASSING:
                break
        return code

    def _good(self, first: int, bodies: list[bytes]) -> int:
        """How many of the bodies, from the first on, are what they should be."""
        return self.digest.intact(self.ledger, first, bodies)

    async def _ask(self, bookie: str, first: int, count: int) -> BatchAnswer:
        if bookie in self._single:
            return await self._pool.read_run(bookie, self.ledger, first, count, self._bytes_max)
        answer = await self._pool.batch_read(bookie, self.ledger, first, count, self._bytes_max)
        if answer.code != BookieHandleNotAvailable.code:
            return answer
        # Gone, or a bookie before 4.17, which drops the connection at a batch read (wire.md 10.1).
        singly = await self._pool.read_run(bookie, self.ledger, first, count, self._bytes_max)
        if singly.code != BookieHandleNotAvailable.code:
            self._single.add(bookie)
        return singly

    async def stored(self, bookie: str) -> list[tuple[int, int]] | None:
        """Runs of the entries that the bookie says it stores; None when it doesn't say (wire.md 8)."""
        answer = await self._pool.list_entries(bookie, self.ledger)
        return answer.runs if answer.code == OK else None
