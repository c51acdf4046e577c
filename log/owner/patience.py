"""
How long a handle tries to become the owner.

Knows: `wait_s`, when another took the claim, and which operation the metadata store did not answer.
Does not know: claims, edits, what a try consists of.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.log.core import edits
from quire.log.core import ownership_messages as m
from quire.log.core.ownership import Ownership, State
from quire.log.owner.timers import OwnerTimers
from quire.log.store.editing import LogRecords
from quire.metadata.clock import Clock
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

BEGINNING = frozenset({State.WAITING, State.CLAIMING, State.SETTLING})


class Patience:
    """
    Of one handle.  Another one's claim is waited for `wait_s`; so long an answer of the store may fail, too, and the
    first that fails later ends the handle.  `look` asks the store for the claim, should nothing else be asked then.
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

    def unanswered(self, error: MetaStore) -> None:
        """The store failed to answer."""
        beginning = self._machine.state in BEGINNING
        if beginning and self._wait_s is not None and self._clock.seconds() >= self._until:
            self._feed(m.Deposed(error))


@contextmanager
def told(name: str) -> Iterator[None]:
    """What the store says names the log that was to be owned, and what to do next."""
    try:
        yield
    except MetaStore as error:
        if type(error) is not MetaStore:  # it says by itself what to do
            raise
        raise MetaStore(
            f"the log {name!r} could not be owned: {error}: own it again once the metadata store answers, which "
            "`quire metadata show` tells"
        ) from error
