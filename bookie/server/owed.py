"""
Answers that are not taken: who owes that, since when, and who goes when it is too much.

Knows: the account of all connections (`answers_bytes_max`).  Does not know: what was asked and read (`reads`).
"""

from typing import Protocol

from quire.bookie.server.complaints import Complaints
from quire.bookie.server.reads import Reads
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0


class Debtor(Protocol):
    """A connection.  It must be hashable."""

    peer: str
    owed_bytes: int  # of answers, since it takes none

    def abort(self) -> None: ...


class Owed:
    """That of one bookie."""

    def __init__(self, clock: Clock, options: BookieOptions, reads: Reads, complaints: Complaints) -> None:
        self._clock = clock
        self._bytes_max = options.answers_bytes_max
        self._reads = reads  # which begin nothing while too much is owed
        self._complaints = complaints
        self._debtors: dict[Debtor, None] = {}  # longest first
        self._too_much: Timer | None = None

    def owes(self, debtor: Debtor, size: int) -> None:
        """
        So much more is not taken.  When it is too much altogether, the connection that has taken nothing for the
        longest time is closed, but not inside what is being done.
        """
        debtor.owed_bytes += size
        self._reads.owed_bytes += size
        self._debtors.setdefault(debtor)
        if self._reads.owed_bytes > self._bytes_max and self._too_much is None:
            self._too_much = self._clock.callLater(0, self._end_longest)

    def took(self, debtor: Debtor) -> None:
        """A connection has taken its answers, or has ended."""
        self._reads.owed_bytes -= debtor.owed_bytes
        debtor.owed_bytes = 0
        self._debtors.pop(debtor, None)

    def _end_longest(self) -> None:
        self._too_much = None
        most = self._bytes_max
        while self._reads.owed_bytes > most:
            longest = next(iter(self._debtors))
            reason = f"more than {most} bytes of answers are not taken (answersSizeMB), its own for the longest time"
            self._complaints.report(longest.peer, "answers not taken", reason)
            self.took(longest)
            longest.abort()
