"""
How long a handle tries to become the owner, and to leave in order.

Knows: `wait_s`, when another took the claim, when the handle began to leave, and which operation the metadata store did
not answer.
Does not know: claims, edits, what a try consists of.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twisted.logger import Logger

from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.ownership import Ownership, State
from quire.log.owner.timers import OwnerTimers
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock
from quire.metadata.store import StoreClosed
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LEAVE_S = 5.0  # in which a store that fails to answer a handle that leaves is asked again
BEGINNING = frozenset({State.WAITING, State.CLAIMING, State.SETTLING})


class Patience:
    """
    Of one handle.  Another one's claim is waited for `wait_s`; so long an answer of the store may fail, too, and the
    first that fails later ends the handle.  `look` asks the store for the claim, should nothing else be asked then.
    A handle that leaves has `LEAVE_S` for that likewise.
    """

    def __init__(
        self,
        records: LogRecords,
        clock: Clock,
        timers: OwnerTimers,
        machine: Ownership,
        feed: Callable[[m.Input], None],
    ) -> None:
        self._records = records
        self._clock = clock
        self._timers = timers
        self._machine = machine
        self._feed = feed
        self._wait_s: float | None = None
        self._until = 0.0
        self._leave_until: float | None = None

    def begin(self, wait_s: float | None, poll_s: float, look: Callable[[], object]) -> None:
        """`wait_s` None: without end."""
        self._wait_s = wait_s
        if wait_s is not None:
            self._until = self._clock.seconds() + wait_s

            def ask() -> None:
                if self._machine.state is State.WAITING:
                    look()

            self._timers.ask(wait_s + poll_s, ask)

    def taken(self) -> None:
        """Another one has the claim."""
        if self._wait_s is not None and self._machine.state is State.WAITING:
            self._timers.patience(self._wait_s, self._give_up)

    def _give_up(self) -> None:
        if self._machine.state is State.WAITING:
            known = self._records.known
            self._feed(m.Deposed(edits.not_owned(self._records.name, None if known is None else known.value)))

    def leave(self, to: str) -> None:
        """The log goes to the candidate with that token; empty: to nobody."""
        self._leave_until = self._clock.seconds() + LEAVE_S
        self._feed(m.Transfer(to))

    def left(self, error: LedgerError | None) -> None:
        """The handle is over; `error`: why it left without what belongs to that."""
        if error is not None:
            log.warn(
                "the owner of the log {name} left without its manifest saying so, for the metadata store did not "
                "answer: {error}; what was acknowledged is in the log, its next owner brings the last segment to its "
                "end, and the claim goes with this session: `quire metadata show` tells whether the store answers",
                name=self._records.name,
                error=str(error),
            )

    def unanswered(self, error: MetaStore | ClientClosed) -> None:
        """The store failed to answer, or this program closed it."""
        if self._leave_until is not None:
            if isinstance(error, StoreClosed | ClientClosed) or self._clock.seconds() >= self._leave_until:
                self._feed(m.GiveUp(error))
            return
        beginning = self._machine.state in BEGINNING
        if beginning and self._wait_s is not None and self._clock.seconds() >= self._until:
            self._feed(m.Deposed(error))


@contextmanager
def name_log_in_errors(name: str) -> Iterator[None]:
    """Has errors of the store name the log that was to be owned, and what to do next."""
    try:
        yield
    except MetaStore as error:
        if type(error) is not MetaStore:  # it says by itself what to do
            raise
        raise MetaStore(
            f"the log {name!r} could not be owned: {error}: own it again once the metadata store answers, which "
            "`quire metadata show` tells"
        ) from error
