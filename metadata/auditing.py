"""
What auditors agree on: which of them audits, how long a bookie that left may stay away, and when they checked last.

Knows: the operations, their results and errors (metadata-rules.md 12).
Does not know: how that is kept, what an auditor does.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: of the votes that the store has at one time the lowest is the auditor's, so there are never two by its clock; a
vote goes with its session.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from twisted.internet.defer import Deferred

from quire.metadata.store import Watch
from quire.protocol.errors import IncorrectParameter

# SPDX-License-Identifier: Apache-2.0

DELAY_MAX_S = (1 << 31) - 1


class Periodic(Enum):
    """A check of all ledgers whose last time is kept, by the name that it is kept under."""

    COPIES = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class Election:
    """The numbers of all votes, ascending, and the id of the bookie that cast the first: the auditor."""

    votes: tuple[int, ...] = ()
    auditor: str | None = None

    def is_won(self, vote: int) -> bool:
        """Whether that vote is the auditor's."""
        return self.votes[:1] == (vote,)


def check_delay(seconds: int) -> None:
    """`IncorrectParameter` for a delay that can't be kept."""
    if not 0 <= seconds <= DELAY_MAX_S:
        raise IncorrectParameter(f"the delay of a lost bookie is 0 to {DELAY_MAX_S} seconds, not {seconds}")


class Auditing(ABC):
    """The votes and settings through one handle; votes share its session."""

    @abstractmethod
    def vote(self, bookie: str) -> Deferred[int]:
        """The number of this session's vote, which is cast, behind all others, if there is none.  `NoCluster`."""

    @abstractmethod
    def withdraw(self) -> Deferred[None]:
        """Takes this session's vote back, if there is one."""

    @abstractmethod
    def election(self) -> Deferred[Election]:
        """As it stands now."""

    @abstractmethod
    def watch_election(self, fn: Callable[[Election], None]) -> Watch:
        """Calls `fn` with the election as it stands, now and after changes: so its own vote's loss is heard of, too."""

    @abstractmethod
    def delay(self) -> Deferred[int | None]:
        """Seconds that a bookie may stay away before it counts as lost; None when nobody has said so yet."""

    @abstractmethod
    def set_delay(self, seconds: int, *, unless_set: bool = False) -> Deferred[None]:
        """Says how long; `unless_set` leaves what was said before.  `NoCluster`, `IncorrectParameter`."""

    def ask(self) -> Deferred[None]:
        """
        Asks for an audit: sets the delay again to what it is.  One that nobody has said is left to the first auditor,
        which begins with an audit.
        """
        return Deferred.fromCoroutine(self._ask())

    async def _ask(self) -> None:
        seconds = await self.delay()
        if seconds is not None:
            await self.set_delay(seconds)

    @abstractmethod
    def watch_delay(self, fn: Callable[[int | None], None]) -> Watch:
        """Calls `fn` with the delay, now and after each time that it was set, to another value or to the same."""

    @abstractmethod
    def checked(self, check: Periodic) -> Deferred[int | None]:
        """When that check was done last, in ms since 1970; None: never."""

    @abstractmethod
    def set_checked(self, check: Periodic, time_ms: int) -> Deferred[None]:
        """Notes when it was done.  `NoCluster`."""
