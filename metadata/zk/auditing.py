"""
Votes and settings of auditors in ZooKeeper: the same znodes and bytes as Apache BookKeeper 4.17 (metadata-rules.md 12).

    R/underreplication/auditorelection            the vote of who was elected last, for people
    R/underreplication/auditorelection/V_n        ephemeral and sequential: a vote; the lowest number has won
    R/underreplication/lostBookieRecoveryDelay    seconds, as text; open to everybody, as Apache makes it
    R/underreplication/checkallledgersctime       ms, and likewise for the other two checks

Knows: which znode holds what.  Does not know: kazoo (`session`), bytes (`formats`).

Safety: a vote is cast in one session or never; of those that lost answers have left in our session one is kept.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from twisted.internet.defer import Deferred

from quire.metadata.auditing import DELAY_MAX_S, Auditing, Election, Periodic, check_delay
from quire.metadata.clock import Reactor
from quire.metadata.formats import repair_text
from quire.metadata.store import ANY, Watch, no_cluster
from quire.metadata.zk.calls.answers import NodeExists, NoNode, SessionOver, Wake
from quire.metadata.zk.calls.session import ZooKeeperSession
from quire.metadata.zk.watches import Reading, Watches

# SPDX-License-Identifier: Apache-2.0

DELAY = "lostBookieRecoveryDelay"
DELAY_TEXT = re.compile(rb"[0-9]{1,10}")
VOTE = re.compile(r"V_(\d{10,19})", re.ASCII)


class ZooKeeperAuditing(Auditing):
    """Those of one store, below `root`."""

    def __init__(self, reactor: Reactor, session: ZooKeeperSession, root: str) -> None:
        self._session = session
        self._root = f"{root}/underreplication"
        self._votes = f"{self._root}/auditorelection"
        self._elections: Watches[str, Election] = Watches(reactor, self._read_election)
        self._delays: Watches[str, int] = Watches(reactor, self._read_delay)

    def end(self) -> None:
        """Ends the watches."""
        self._elections.end()
        self._delays.end()

    async def _make(self, path: str, data: bytes = b"", for_all: bool = False) -> bool:
        """Makes a znode of the tree; False: it is there, perhaps by a try whose answer was lost.  `NoCluster`."""
        while True:
            try:
                await self._session.create(path, data, for_all=for_all)
            except NodeExists:
                return False
            except NoNode:
                if path == self._root:
                    raise no_cluster(self._session.uri) from None
                await self._make(self._root)
            else:
                return True

    # -- the election ----------------------------------------------------------------------------------------------

    def vote(self, bookie: str) -> "Deferred[int]":
        return Deferred.fromCoroutine(self._vote(bookie))

    async def _vote(self, bookie: str) -> int:
        await self._make(self._votes)
        while True:
            session = self._session.id
            try:
                own = await self._own(session)
                for extra in own[1:]:  # of lost answers
                    await self._withdraw_one(extra, session)
                if own:
                    return number_of(own[0])
                data = repair_text.encode_owner(bookie)
                await self._session.create(f"{self._votes}/V_", data, ephemeral=True, sequence=True, session=session)
            except SessionOver:
                continue
            except NoNode:
                raise no_cluster(self._session.uri) from None

    async def _own(self, session: int) -> list[str]:
        """The votes that were cast in a session, the lowest first."""
        found = []
        for name in await self._names():
            stat = await self._session.exists(f"{self._votes}/{name}")
            if stat is not None and stat.ephemeralOwner == session:
                found.append(name)
        return found

    async def _names(self, wake: Wake | None = None) -> list[str]:
        """All votes, the lowest first; `NoNode`."""
        return sorted(filter(VOTE.fullmatch, await self._session.children(self._votes, wake)), key=number_of)

    async def _withdraw_one(self, name: str, session: int) -> None:
        with suppress(NoNode):
            await self._session.delete_own(f"{self._votes}/{name}", session)

    def withdraw(self) -> "Deferred[None]":
        async def withdraw() -> None:
            session = self._session.id
            with suppress(NoNode):
                for name in await self._own(session):
                    await self._withdraw_one(name, session)

        return Deferred.fromCoroutine(withdraw())

    def election(self) -> "Deferred[Election]":
        async def read() -> Election:
            await self._session.sync(self._root)
            return (await self._read_election(self._votes, None)).value or Election()

        return Deferred.fromCoroutine(read())

    def watch_election(self, fn: Callable[[Election], None]) -> Watch:
        return self._elections.add(self._votes, lambda found: fn(found or Election()))

    async def _read_election(self, path: str, wake: Wake | None) -> Reading[Election]:
        while True:
            try:
                names = await self._names(wake)
            except NoNode:
                if await self._session.exists(path, wake) is None:
                    return Reading(Election(), None)
                continue
            auditor = None
            if names:
                try:
                    data, stat = await self._session.get(f"{path}/{names[0]}")
                except NoNode:
                    continue
                auditor = repair_text.decode_owner(data)
                if stat.ephemeralOwner == self._session.id:
                    await self._announce(data)
            found = Election(tuple(map(number_of, names)), auditor)
            return Reading(found, found)

    async def _announce(self, vote: bytes) -> None:
        """Who is elected says so, as Apache's auditor does."""
        with suppress(NoNode):
            if (await self._session.get(self._votes))[0] != vote:
                await self._session.set(self._votes, vote, ANY)

    # -- the delay -------------------------------------------------------------------------------------------------

    def delay(self) -> "Deferred[int | None]":
        async def read() -> int | None:
            try:
                return _seconds((await self._session.get(f"{self._root}/{DELAY}"))[0])
            except NoNode:
                return None

        return Deferred.fromCoroutine(read())

    def set_delay(self, seconds: int, *, unless_set: bool = False) -> "Deferred[None]":
        async def write() -> None:
            check_delay(seconds)
            await self._put(DELAY, b"%d" % seconds, unless_set)

        return Deferred.fromCoroutine(write())

    async def _put(self, name: str, data: bytes, unless_there: bool = False) -> None:
        """Sets a znode, whatever it had; one that is missing is made with that value."""
        path = f"{self._root}/{name}"
        while not await self._make(path, data, name == DELAY) and not unless_there:
            with suppress(NoNode):
                await self._session.set(path, data, ANY)
                return

    def watch_delay(self, fn: Callable[[int | None], None]) -> Watch:
        return self._delays.add(f"{self._root}/{DELAY}", fn)

    async def _read_delay(self, path: str, wake: Wake) -> Reading[int]:
        while True:
            try:
                data, stat = await self._session.get(path, wake)
            except NoNode:
                if await self._session.exists(path, wake) is None:
                    return Reading(None, None)
            else:
                return Reading(stat.mzxid, _seconds(data))

    # -- check times -----------------------------------------------------------------------------------------------

    def checked(self, check: Periodic) -> "Deferred[int | None]":
        async def read() -> int | None:
            try:
                return repair_text.decode_check_time((await self._session.get(f"{self._root}/{check.value}"))[0])
            except NoNode:
                return None

        return Deferred.fromCoroutine(read())

    def set_checked(self, check: Periodic, time_ms: int) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._put(check.value, repair_text.encode_check_time(time_ms)))


def number_of(name: str) -> int:
    """The number of a vote."""
    return int(name.rpartition("_")[2])


def _seconds(data: bytes) -> int | None:
    """A delay; None for a text that is none."""
    return int(data) if DELAY_TEXT.fullmatch(data) and int(data) <= DELAY_MAX_S else None
