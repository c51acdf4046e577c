"""
Votes and settings of auditors in memory: their state, and the handle of one store.

Knows: the contract (`auditing`).  Does not know: when an operation takes effect (`store`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, fail

from quire.metadata.auditing import Auditing, Election, Periodic, check_delay
from quire.metadata.store import Watch, notify
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


@dataclass(slots=True)
class AuditState:
    """What all handles share.  `changed` is called after each change."""

    changed: Callable[[], None]
    votes: dict[int, tuple[int, str]] = field(default_factory=dict)  # number -> session, bookie
    next_vote: int = 0
    delay: int | None = None
    delays: int = 0  # how often it was set
    checked: dict[Periodic, int] = field(default_factory=dict)

    def election(self) -> Election:
        """As it stands."""
        numbers = tuple(sorted(self.votes))
        return Election(numbers, self.votes[numbers[0]][1] if numbers else None)

    def vote(self, session: int, bookie: str) -> int:
        """The number of the session's vote, which is cast if there is none."""
        for number, (owner, _) in self.votes.items():
            if owner == session:
                return number
        number = self.next_vote
        self.next_vote += 1
        self.votes[number] = session, bookie
        self.changed()
        return number

    def end_session(self, session: int) -> None:
        """Removes the vote of a session."""
        self.votes = {number: vote for number, vote in self.votes.items() if vote[0] != session}

    def set_delay(self, seconds: int, unless_set: bool) -> None:
        """Sets the delay, perhaps only for the first time."""
        if not (unless_set and self.delays):
            self.delay = seconds
            self.delays += 1
            self.changed()

    def clear(self) -> None:
        """Forgets the settings; votes go with their sessions."""
        self.delay = None
        self.delays = 0
        self.checked.clear()
        self.changed()


class Runner(Protocol):
    """Applies an operation of that name, now or as a fault has it."""

    def __call__(self, name: str, effect: Callable[..., T], /, *args: object) -> Deferred[T]: ...


class MemoryAuditing(Auditing):
    """Those of one store.  `check()` raises `NoCluster`; `session()` is the store's of now."""

    def __init__(
        self,
        state: AuditState,
        run: Runner,
        watch: Callable[[Callable[[], None]], Watch],
        check: Callable[[], object],
        session: Callable[[], int],
    ) -> None:
        self._state = state
        self._run = run
        self._watch = watch
        self._check = check
        self._session = session

    def _checked(self) -> AuditState:
        self._check()
        return self._state

    def vote(self, bookie: str) -> Deferred[int]:
        session = self._session()

        def cast(bookie: str) -> int:
            if self._session() != session:
                raise MetaStore(f"{bookie}: the session ended before the vote was cast")
            return self._checked().vote(session, bookie)

        return self._run("audit_vote", cast, bookie)

    def withdraw(self) -> Deferred[None]:
        session = self._session()

        def withdraw() -> None:
            self._state.end_session(session)
            self._state.changed()

        return self._run("audit_withdraw", withdraw)

    def election(self) -> Deferred[Election]:
        return self._run("audit_election", lambda: self._checked().election())

    def watch_election(self, fn: Callable[[Election], None]) -> Watch:
        return self._follow(self._state.election, fn)

    def delay(self) -> Deferred[int | None]:
        return self._run("audit_delay", lambda: self._checked().delay)

    def set_delay(self, seconds: int, *, unless_set: bool = False) -> Deferred[None]:
        try:
            check_delay(seconds)
        except IncorrectParameter as error:
            return fail(error)
        return self._run("audit_set_delay", lambda *args: self._checked().set_delay(*args), seconds, unless_set)

    def watch_delay(self, fn: Callable[[int | None], None]) -> Watch:
        return self._follow(lambda: (self._state.delays, self._state.delay), lambda found: fn(found[1]))

    def _follow(self, value: Callable[[], T], fn: Callable[[T], None]) -> Watch:
        heard: list[T] = []

        def look() -> None:
            found = value()
            if heard != [found]:
                heard[:] = [found]
                notify(fn, found)

        return self._watch(look)

    def checked(self, check: Periodic) -> Deferred[int | None]:
        return self._run("audit_checked", self._checked_at, check)

    def _checked_at(self, check: Periodic) -> int | None:
        return self._checked().checked.get(check)

    def set_checked(self, check: Periodic, time_ms: int) -> Deferred[None]:
        return self._run(
            "audit_set_checked", lambda check, time_ms: self._checked().checked.update({check: time_ms}), check, time_ms
        )
