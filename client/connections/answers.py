"""
What a bookie's answer becomes for the rest of the client: a BookKeeper code and the data that came with it.

Knows: the fields per kind of request.  Does not know: frames, connections, digests; bodies are as the bookie sent them.

`code` is 0 or a code of `quire.protocol.errors`; a lost connection is -8, no answer in time -23, a closed client -19.
An answer is a value: nothing here is ever raised.
"""

from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0


class Answer(NamedTuple):
    """
    Of a read or a long poll.  `entry` is what the bookie echoed (-1 for "your last entry", or a poll without one); the
    true id is in `body`.  `lac` is the bookie's, V3 only, and no digest covers it: a hint (D14).
    """

    code: int
    body: bytes | None = None
    lac: int | None = None
    entry: int = -1


class BatchAnswer(NamedTuple):
    """Of a batch read: bodies of consecutive entries from the first one asked for, at least one when `code` is 0."""

    code: int
    bodies: list[bytes]


class LacAnswer(NamedTuple):
    """
    The explicit LAC as it was written and the highest stored entry, each None when there is none (or `code` is not 0).
    """

    code: int
    lac_body: bytes | None = None
    last_body: bytes | None = None


class ListAnswer(NamedTuple):
    """Runs (first id, count) of the entries that a bookie stores of a ledger, ascending."""

    code: int
    runs: list[tuple[int, int]]


class InfoAnswer(NamedTuple):
    """A bookie's disk, bytes."""

    code: int
    total_bytes: int | None = None
    free_bytes: int | None = None
