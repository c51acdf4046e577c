"""
A bookie's answer as the rest of the client sees it: a BookKeeper code and the data that came with it.

Knows: the fields per kind of request, and which answer each V3 reply is.
Does not know: frames, connections, digests; bodies are as the bookie sent them.

`code` is 0 or a code of `quire.protocol.errors`; a lost connection is -8, no answer in time -23, a closed client -19.
An answer is a value: nothing here is ever raised.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from quire.protocol import availability
from quire.protocol.errors import OK, Read, Status, WireError, code_of
from quire.protocol.messages import InfoReply, LacReply, ListReply, ReadReply

# SPDX-License-Identifier: Apache-2.0


class Answer(NamedTuple):
    """
    The answer to a read or a long poll.  `entry` is what the bookie echoed (-1 for "your last entry", or a poll without
    one); the true id is in `body`.  `lac` is the bookie's, V3 only, and no digest covers it: a hint (D14).  To a poll
    quire's bookies add the entries behind `body`, `following`, and what proves the hint, as in a `LacAnswer`.
    """

    code: int
    body: bytes | None = None
    lac: int | None = None
    entry: int = -1
    following: tuple[bytes, ...] = ()
    lac_body: bytes | None = None
    last_body: bytes | None = None

    @classmethod
    def of_read(cls, reply: ReadReply) -> Self:
        """Success without a body is none."""
        code = code_of(reply.status, writing=False)
        return cls(code or (OK if reply.body is not None else Read.code), reply.body, reply.lac, reply.entry)

    @classmethod
    def of_poll(cls, reply: ReadReply) -> Self:
        """There need not be an entry."""
        code = code_of(reply.status, writing=False)
        more = reply.following, reply.lac_body, reply.last_body
        return cls(code, reply.body or None, reply.lac, reply.entry, *more)


class BatchAnswer(NamedTuple):
    """The answer to a batch read: bodies of consecutive entries, at least one if `code` is 0."""

    code: int
    bodies: Sequence[bytes] = ()


class LacAnswer(NamedTuple):
    """The explicit LAC as it was written and the highest stored entry; None: there is none, or `code` is not 0."""

    code: int
    lac_body: bytes | None = None
    last_body: bytes | None = None

    @classmethod
    def of(cls, reply: LacReply) -> Self:
        return cls(code_of(reply.status, writing=False), reply.lac_body, reply.last_body)


class ListAnswer(NamedTuple):
    """Runs (first id, count) of the entries that a bookie stores of a ledger, ascending."""

    code: int
    runs: list[tuple[int, int]]

    @classmethod
    def of(cls, reply: ListReply) -> Self:
        """A list that is unreadable is the same as no answer."""
        if reply.status is not Status.EOK or reply.availability is None:
            return cls(code_of(reply.status, writing=False) or Read.code, [])
        try:
            return cls(OK, availability.decode(reply.availability))
        except WireError:
            return cls(Read.code, [])


class InfoAnswer(NamedTuple):
    """A bookie's disk, bytes."""

    code: int
    total_bytes: int | None = None
    free_bytes: int | None = None

    @classmethod
    def of(cls, reply: InfoReply) -> Self:
        return cls(code_of(reply.status, writing=False), reply.total_bytes, reply.free_bytes)
