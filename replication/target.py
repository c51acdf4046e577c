"""
Writing copies to one bookie: recovery adds over V3, a batch at a time.

Knows: the add channel and which ids of the batch under way have no answer.
Does not know: where the bodies came from.

Bodies travel as they are, with the digest, the last add confirmed and the length that their writer gave them.
Safety: a batch is stored only when the bookie said so for every id of it, and a bookie says so after its disk did.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from quire.client.connections.pool import AddChannel, AddSink
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import OK

# SPDX-License-Identifier: Apache-2.0


class WritePool(Protocol):
    """The part of a `BookiePool` that writing copies needs."""

    def add_channel(self, bookie: str, ledger: int, sink: AddSink, secure: bool = False) -> AddChannel: ...

    def connection_of(self, bookie: str) -> int | None: ...


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

    def __init__(self, pool: WritePool, bookie: str, ledger: int, master_key: bytes) -> None:
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
        """
        Stores entries, given as (first id, bodies) pieces of consecutive ones; the code: 0, or what failed.  One call
        at a time; after a failure no more.
        """
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
