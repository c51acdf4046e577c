"""
The state that auditors share: which of them audits, how long a bookie that left may stay away, and when they checked
last.

    U/auditorelection            the vote of who was elected last, for people
    U/auditorelection/V_n        a numbered claim: a vote; the lowest number has won
    U/lostBookieRecoveryDelay    seconds, as text; open to everybody, as Apache makes it
    U/checkallledgersctime       ms, and in the same way for the other two checks

Knows: the operations, their results and errors, and which node holds what (metadata-rules.md 12); U is
`underreplication` below the cluster's root.
Does not know: how a tree is kept, bytes (`formats`), what an auditor does.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: of the votes that the store has at one time the lowest is the auditor's, so there are never two by its clock.  A
vote is cast in one session or never; of those that lost answers have left in our session one is kept.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from twisted.internet.defer import Deferred

from quire.metadata.clock import Clock
from quire.metadata.formats import repair_text
from quire.metadata.store import ANY, Watch, no_cluster
from quire.metadata.tree import NoNode, SessionId, SessionOver, Tree, Wake
from quire.metadata.watches import Reading, Watches, value
from quire.protocol.errors import IncorrectParameter

# SPDX-License-Identifier: Apache-2.0

DELAY_MAX_S = (1 << 31) - 1
DELAY = "lostBookieRecoveryDelay"
DELAY_TEXT = re.compile(rb"[0-9]{1,10}")
VOTE = re.compile(r"V_(\d{10,19})", re.ASCII)


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
        """True if that vote is the auditor's."""
        return self.votes[:1] == (vote,)


def check_delay(seconds: int) -> None:
    """`IncorrectParameter` for a delay that can't be kept."""
    if not 0 <= seconds <= DELAY_MAX_S:
        raise IncorrectParameter(f"the delay of a lost bookie is 0 to {DELAY_MAX_S} seconds, not {seconds}")


class Auditing:
    """The votes and settings through one handle, below the cluster's `root`; votes share its session."""

    def __init__(self, clock: Clock, tree: Tree, root: str) -> None:
        self._tree = tree
        self._root = f"{root}/underreplication"
        self._votes = f"{self._root}/auditorelection"
        self._elections: Watches[str, Election] = Watches(clock, tree, self._read_election)
        self._turns: Watches[str, Election] = Watches(clock, tree, self._read_turn)
        self._cast: tuple[SessionId, str] | None = (
            None  # the session in which a vote was tried last; its name, if known
        )
        self._voted: Wake | None = None  # to be called with the next vote
        self._delays: Watches[str, int] = Watches(clock, tree, self._read_delay)

    def end(self) -> None:
        """Ends the watches."""
        self._elections.end()
        self._turns.end()
        self._delays.end()

    async def _make(self, path: str, data: bytes = b"", shared: bool = False) -> bool:
        """Makes a node; False: it is there, perhaps by a try whose answer was lost.  `NoCluster`."""
        while True:
            try:
                return await self._tree.ensure(path, data, shared=shared)
            except NoNode:
                if path == self._root:
                    raise no_cluster(self._tree.uri) from None
                await self._make(self._root)

    # -- the election ----------------------------------------------------------------------------------------------

    def vote(self, bookie: str) -> Deferred[int]:
        """The number of this session's vote, which is cast, behind all others, if there is none.  `NoCluster`."""
        return Deferred.fromCoroutine(self._vote(bookie))

    async def _vote(self, bookie: str) -> int:
        await self._make(self._votes)
        while True:
            session = await self._tree.session_now()
            try:
                before = await self._names()
                own = await self._own(session, before) if self._has_tried(session) else []
                if not own:
                    self._cast = session, ""
                    data = repair_text.encode_owner(bookie)
                    await self._tree.create(f"{self._votes}/V_", data, claim=True, numbered=True, session=session)
                    own = await self._own(session, set(await self._names()).difference(before))
                for extra in own[1:]:  # of lost answers
                    await self._withdraw_one(extra, session)
                if own:
                    self._cast = session, own[0]
                    voted, self._voted = self._voted, None
                    if voted is not None:
                        voted()
                    return number_of(own[0])
            except SessionOver:
                continue
            except NoNode:
                raise no_cluster(self._tree.uri) from None

    def _has_tried(self, session: SessionId) -> bool:
        """True if one of the votes may be of that session: only then all of them are read."""
        return self._cast is not None and self._cast[0] == session

    async def _own(self, session: SessionId, names: Iterable[str]) -> list[str]:
        """Returns the votes among these that were cast in a session, the lowest first."""
        votes = sorted(names, key=number_of)
        found = await self._tree.get_each([f"{self._votes}/{name}" for name in votes])
        return [name for name, node in zip(votes, found, strict=True) if node is not None and node[1].owner == session]

    async def _names(self, wake: Wake | None = None) -> list[str]:
        """All votes, the lowest first; `NoNode`."""
        return sorted(filter(VOTE.fullmatch, await self._tree.children(self._votes, wake)), key=number_of)

    async def _withdraw_one(self, name: str, session: SessionId) -> None:
        with suppress(NoNode):
            await self._tree.delete_own(f"{self._votes}/{name}", session)

    def withdraw(self) -> Deferred[None]:
        """Takes this session's vote back, if there is one."""
        return Deferred.fromCoroutine(self._withdraw())

    async def _withdraw(self) -> None:
        session = self._tree.session
        if session is not None and self._has_tried(session):
            with suppress(NoNode):
                for name in await self._own(session, await self._names()):
                    await self._withdraw_one(name, session)

    def election(self) -> Deferred[Election]:
        """As it is now."""
        return Deferred.fromCoroutine(self._election())

    async def _election(self) -> Election:
        await self._tree.sync(self._root)
        return (await self._look(self._votes, None))[1]

    def watch_election(self, fn: Callable[[Election], None]) -> Watch:
        """Calls `fn` with the election, now and after changes: so the loss of its own vote is heard of, too."""
        return self._elections.add(self._votes, lambda found: fn(found or Election()))

    def watch_turn(self, fn: Callable[[Election], None]) -> Watch:
        """
        Calls `fn` with the election for a candidate: after its vote, and then for the end of this and of the one before
        it alone, so that of a thousand candidates each end wakes one.
        """
        return self._turns.add(self._votes, lambda found: fn(found or Election()))

    async def _read_turn(self, path: str, wake: Wake) -> Reading[Election]:
        while True:
            cast = self._cast
            names, found = await self._look(path, None)
            if self._cast is not cast:  # a vote came meanwhile, which these may lack
                continue
            own = self._cast[1] if self._cast is not None and self._cast[0] == self._tree.session else ""
            if own not in names:
                self._voted = wake  # there is nothing to wait for until then
                return Reading(found, found)
            at = names.index(own)
            near = [await self._tree.exists(f"{path}/{name}", wake) for name in names[max(0, at - 1) : at + 1]]
            if None not in near:
                return Reading(found, found)

    async def _read_election(self, path: str, wake: Wake | None) -> Reading[Election]:
        _names, found = await self._look(path, wake)
        return Reading(found, found)

    async def _look(self, path: str, wake: Wake | None) -> tuple[list[str], Election]:
        """All votes, the lowest first, and the election that they are."""
        while True:
            try:
                names = await self._names(wake)
            except NoNode:
                if await self._tree.exists(path, wake) is None:
                    return [], Election()
                continue
            auditor = None
            if names:
                try:
                    data, stat = await self._tree.get(f"{path}/{names[0]}")
                except NoNode:
                    continue
                auditor = repair_text.decode_owner(data)
                if stat.owner == self._tree.session:
                    await self._announce(data)
            return names, Election(tuple(map(number_of, names)), auditor)

    async def _announce(self, vote: bytes) -> None:
        """Writes who is elected, as Apache's auditor does."""
        with suppress(NoNode):
            if (await self._tree.get(self._votes))[0] != vote:
                await self._tree.set(self._votes, vote, ANY)

    # -- the delay -------------------------------------------------------------------------------------------------

    def delay(self) -> Deferred[int | None]:
        """Seconds that a bookie may stay away before it counts as lost; None when nobody has said so yet."""
        return Deferred.fromCoroutine(self._number(DELAY, _seconds))

    async def _number(self, name: str, decode: Callable[[bytes], int | None]) -> int | None:
        try:
            return decode((await self._tree.get(f"{self._root}/{name}"))[0])
        except NoNode:
            return None

    def set_delay(self, seconds: int, *, unless_set: bool = False) -> Deferred[None]:
        """Says how long; `unless_set` leaves what was said before.  `NoCluster`, `IncorrectParameter`."""
        return Deferred.fromCoroutine(self._set_delay(seconds, unless_set))

    async def _set_delay(self, seconds: int, unless_set: bool) -> None:
        check_delay(seconds)
        await self._put(DELAY, b"%d" % seconds, unless_set)

    async def _put(self, name: str, data: bytes, unless_there: bool = False) -> None:
        """Sets a node, whatever it had; one that is missing is made with that value."""
        path = f"{self._root}/{name}"
        while not await self._make(path, data, name == DELAY) and not unless_there:
            with suppress(NoNode):
                await self._tree.set(path, data, ANY)
                return

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

    def watch_delay(self, fn: Callable[[int | None], None]) -> Watch:
        """Calls `fn` with the delay, now and after each time that it was set, to another value or to the same."""
        return self._delays.add(f"{self._root}/{DELAY}", fn)

    async def _read_delay(self, path: str, wake: Wake) -> Reading[int]:
        found = await value(self._tree, path, wake)
        return Reading(None, None) if found is None else Reading(found[1].changed, _seconds(found[0]))

    # -- check times -----------------------------------------------------------------------------------------------

    def checked(self, check: Periodic) -> Deferred[int | None]:
        """When that check was done last, in ms since 1970; None: never."""
        return Deferred.fromCoroutine(self._number(check.value, repair_text.decode_check_time))

    def set_checked(self, check: Periodic, time_ms: int) -> Deferred[None]:
        """Notes when it was done.  `NoCluster`."""
        return Deferred.fromCoroutine(self._put(check.value, repair_text.encode_check_time(time_ms)))


def number_of(name: str) -> int:
    """The number of a vote."""
    return int(name.rpartition("_")[2])


def _seconds(data: bytes) -> int | None:
    """A delay; None for a text that is none."""
    return int(data) if DELAY_TEXT.fullmatch(data) and int(data) <= DELAY_MAX_S else None
