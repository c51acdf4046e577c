"""
Answers that are not taken: who has them, since when, and who goes when it is too much.

Knows: the account of all connections (`answers_bytes_max`), and what one address has of it.
Does not know: what was asked and read (`reads`).

What a transport keeps of its answers is looked at only after all together were given an eighth of the bound, so an
answer costs an addition here, whoever takes it.  A connection has taken nothing since a look when it has not taken what
it had been given until then.

Safety: an address that has more than half of what is not taken pays for it, and none elsewhere.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from quire.bookie.server.complaints import Complaints
from quire.bookie.server.reads import Reads
from quire.bookie.server.transport import unsent_bytes
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, Timer

# SPDX-License-Identifier: Apache-2.0

LOOK_PART = 8  # of the bound is given between two looks, and is free after one


class Debtor(Protocol):
    """A connection.  It must be hashable."""

    peer: str
    source: str  # the address that it is counted for
    choked: bool  # it does not take its answers, so nothing is read for it
    given_bytes: int  # of answers
    owed_bytes: int  # of these, since it is choked, less what was seen to be taken

    @property
    def transport(self) -> Any: ...

    def abort(self) -> None: ...


class Owed:
    """That of one bookie.  `connections`: all that may hold answers."""

    def __init__(
        self,
        clock: Clock,
        options: BookieOptions,
        reads: Reads,
        complaints: Complaints,
        connections: Iterable[Debtor],
    ) -> None:
        self._clock = clock
        self._bytes_max = options.answers_bytes_max
        self._look_bytes = options.answers_bytes_max // LOOK_PART
        self._reads = reads  # which begin nothing for who is choked while too much is owed
        self._complaints = complaints
        self._connections = connections
        self._debtors: dict[Debtor, int] = {}  # what each had been given when it was seen first, longest ago first
        self._given = 0  # to all, since the last look
        self._look_soon: Timer | None = None

    def gave(self, debtor: Debtor, size: int) -> None:
        """
        An answer was given to a transport, which may keep it.  When all keep too much, connections are closed, but not
        inside what is being done.
        """
        debtor.given_bytes += size
        self._given += size
        if debtor.choked:  # perhaps by this one
            self.owes(debtor, size)
        if self._given > self._look_bytes and self._look_soon is None:
            self._look_soon = self._clock.callLater(0, self._look)

    def owes(self, debtor: Debtor, size: int) -> None:
        """So much more, or less, is owed to who is choked."""
        debtor.owed_bytes += size
        self._reads.owed_bytes += size

    def took(self, debtor: Debtor) -> None:
        """A connection has taken its answers, or has ended."""
        self._reads.owed_bytes -= debtor.owed_bytes
        debtor.owed_bytes = 0
        self._debtors.pop(debtor, None)

    def _look(self) -> None:
        self._look_soon, self._given = None, 0
        kept = {each: size for each in self._connections if (size := unsent_bytes(each.transport))}
        self._debtors = {
            each: given
            for each, given in self._debtors.items()
            if each in kept and each.given_bytes - kept[each] < given
        }
        for each, size in kept.items():
            self._debtors.setdefault(each, each.given_bytes)
            if size < each.owed_bytes:  # it took a part
                self.owes(each, size - each.owed_bytes)
        if sum(kept.values()) > self._bytes_max:
            self._end_longest(kept)

    def _end_longest(self, kept: dict[Debtor, int]) -> None:
        """Of an address with more than half those that took nothing for the longest time, then others likewise."""
        most, left = self._bytes_max, sum(kept.values())
        of_address: Counter[str] = Counter()
        for each, size in kept.items():
            of_address[each.source] += size
        crowded = {source for source, size in of_address.items() if 2 * size > left}
        reason = f"more than {most} bytes of answers are not taken (answersSizeMB), its own for the longest time"
        for each in sorted(self._debtors, key=lambda each: each.source not in crowded):
            if left <= most - self._look_bytes:
                return
            left -= kept[each]
            said = f"{reason} of its address, which has most of them" if each.source in crowded else reason
            self._complaints.report(each.peer, "answers not taken", said)
            self.took(each)
            each.abort()
