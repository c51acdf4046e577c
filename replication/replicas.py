"""
One bookie's copies of a ledger: read in batches, every digest checked; and written, by recovery adds over V3.

Knows: how to ask (batch reads; single ones for a bookie that has none), what an answer is worth, and when there is no
use in asking on; the add channel, and which ids of the batch under way have no answer.
Does not know: fragments, which other bookies hold the entries.

Bodies travel as they are, with the digest, the last add confirmed and the length that their writer gave them.
Safety: nothing leaves here as read unless its digest and its ids are right; a batch is stored only when the bookie said
so for every id of it, and a bookie says so after its disk did.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred

from quire.client.connections.answers import BatchAnswer
from quire.client.connections.pool import AddChannel, BookiePool
from quire.client.core.quorum import NEGATIVE
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
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

    def __init__(self, pool: BookiePool, ledger: int, digest: Digest, bytes_max: int = BYTES_MAX) -> None:
        self.ledger = ledger
        self.digest = digest
        self._pool = pool
        self._bytes_max = bytes_max
        self._single: set[str] = set()

    async def piece(self, bookie: str, first: int, count: int) -> ReplicaPiece:
        """Up to `count` entries from `first` on, as one answer holds."""
        answer = BatchAnswer(Timeout.code)
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
        """Asks about the ledger over the connection of adds; the code, which came from it unless in `UNHEARD`."""
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


class Sealed(Digest):
    """In place of a batch's digest: the payloads are whole entry bodies already, and go out untouched."""

    __slots__ = ()

    def __init__(self, master_key: bytes) -> None:
        super().__init__(DigestType.DUMMY, b"")
        self.master_key = master_key
        self.overhead = 0

    def parts(
        self, prefix: Sequence[bytes], ledger: int, first: int, lac: int, length: int, payloads: Iterable[bytes]
    ) -> tuple[list[bytes], int]:
        out: list[bytes] = []
        for before, body in zip(prefix, payloads, strict=True):
            out += (before, b"", b"", body)
            length += len(body)
        return out, length


class Target:
    """
    One ledger's copies on their way to one bookie.  `connection`: the token of the connection that took all that is
    stored so far (`BookiePool.connection_of`); None before the first batch.
    """

    def __init__(self, pool: BookiePool, bookie: str, ledger: int, master_key: bytes) -> None:
        self.bookie = bookie
        self.ledger = ledger
        self.connection: int | None = None
        self._pool = pool
        self._digest = Sealed(master_key)
        self._left = 0
        self._code = OK
        self._waiting: Deferred[int] | None = None
        self._channel = pool.add_channel(bookie, ledger, self, secure=True)

    def store(self, pieces: list[tuple[int, list[bytes]]]) -> Deferred[int]:
        """Stores (first id, bodies) pieces; the code: 0, or what failed.  One call at a time, none after a failure."""
        assert self._waiting is None, "a batch is under way"
        answer: Deferred[int] = Deferred()
        if self._code:
            answer.callback(self._code)
            return answer
        self._left = sum(len(bodies) for _first, bodies in pieces)
        self._waiting = answer
        for first, bodies in pieces:
            self._channel.send(AddBatch(self._digest, self.ledger, first, -1, 0, bodies, recovery=True))
        return answer

    def close(self) -> None:
        self._channel.close()

    def acked(self, channel: AddChannel, first: int, count: int, code: int, /) -> None:
        if code:
            self._end(code)
        else:
            self._left -= count
            if not self._left:
                self.connection = self._pool.connection_of(self.bookie)  # a channel ends with its connection
                self._settle()

    def failed(self, channel: AddChannel, code: int, reason: str, /) -> None:
        self._end(code)

    def _end(self, code: int) -> None:
        self._code = self._code or code
        self._settle()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(self._code)
