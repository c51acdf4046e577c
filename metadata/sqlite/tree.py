"""
The tree in the SQLite file: the operations, and what is watched.

Knows: that a claim exists only while its session's row exists and its owner lives; when to look for changes: after a
commit of ours at what that changed, otherwise every `poll_s` while anything is watched.  After a commit of another
process the states of all that is watched are asked for, without the values.
Does not know: threads (`run` takes work to the store's), statements (`nodes`), how a session is kept.

Safety: a claim that is read, listed, watched or contended for is one whose owner lives, and a dead session is removed
first.  The counters of changes are read before the states, so a change that comes between is seen by the next look.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, Timer, time_of_day
from quire.metadata.sqlite import nodes, tables
from quire.metadata.sqlite.nodes import Token
from quire.metadata.sqlite.session import Runner, Session
from quire.metadata.sqlite.tables import Connection
from quire.metadata.store import notify
from quire.metadata.tree import Create, Done, NoNode, SessionId, SessionOver, Stat, Step, Tree, Wake, Write

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
Watched = tuple[str, bool]  # a path, and whether its children
Change = tuple[int, int]
Bury = Callable[[Sequence[str]], Deferred[None]]
log = Logger()


class SQLiteTree(Tree):
    """The tree through one store.  `bury(names)` removes ended sessions."""

    def __init__(self, clock: Clock, uri: str, poll_s: float, run: Runner, session: Session, bury: Bury) -> None:
        self.uri = uri
        self._run = run
        self._session = session
        self._bury = bury
        self._wakes = Wakes(clock, uri, poll_s, self._see, bury)

    def end(self) -> None:
        """Ends the watches."""
        self._wakes.end()

    @property
    def session(self) -> str | None:
        return self._session.current or None

    async def session_now(self) -> str:
        return await self._session.name()

    # -- changing --------------------------------------------------------------------------------------------------

    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        return Deferred.fromCoroutine(self._transact(steps, session))

    async def _transact(self, steps: Sequence[Step], session: SessionId | None) -> list[Done]:
        claims = any(isinstance(step, Create) and step.claim for step in steps)
        while True:
            name = str(session) if session is not None else await self._session.name() if claims else ""
            done = await self._run(partial(self.apply, steps, name), writes=True)
            if done is not None:
                self.changed(steps, done)
                return done
            await self._session.lost(name)
            if session is not None:
                raise SessionOver(f"{self.uri}: the session that {steps[0].path} belonged to has ended")

    def apply(self, steps: Sequence[Step], session: str, connection: Connection) -> list[Done] | None:
        """On the thread, in a transaction: carries out steps; None when that session, if one is named, was ended."""
        if session and not tables.has_session(connection, session):
            return None
        return nodes.apply(connection, self.uri, steps, session, partial(self._ended, connection))

    def _ended(self, connection: Connection, session: str) -> bool:
        dead = self._dead(connection, [session])
        self._session.bury(dead, connection)
        return bool(dead)

    def changed(self, steps: Sequence[Step], done: Sequence[Done]) -> None:
        """Looks at what the steps have changed, as far as it is watched."""
        watched: set[Watched] = set()
        for step, each in zip(steps, done, strict=True):
            if isinstance(step, Write):
                watched.add((each.path, False))
            else:  # a check is looked at in vain
                watched |= {(each.path, False), (each.path, True), (nodes.parent_of(each.path), True)}
        self._wakes.changed(watched)

    def _dead(self, connection: Connection, sessions: Iterable[str]) -> list[str]:
        """On the thread: those of the sessions whose owners are gone."""
        names = sorted(sessions)
        timeouts = dict(tables.sessions(connection)) if names else {}
        return [name for name in names if name not in timeouts or not self._session.is_alive(name, timeouts[name])]

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _look(self, work: Callable[[Connection], tuple[T, Collection[str]]]) -> T:
        """Returns the result of `work` once no claim that it met is a dead session's."""

        def look(connection: Connection) -> tuple[T, list[str]]:
            found, met = work(connection)
            return found, self._dead(connection, met)

        while True:
            found, dead = await self._run(look)
            if not dead:
                return found
            await self._bury(dead)

    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        return Deferred.fromCoroutine(self._get(path, watch))

    async def _get(self, path: str, watch: Wake | None) -> tuple[bytes, Stat]:
        (found,) = await self._nodes([path])
        if found is None:
            raise NoNode(f"{self.uri}: there is no node {path}")
        self._wakes.arm((path, False), watch, nodes.token(found[1], False))
        return found

    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        return Deferred.fromCoroutine(self._nodes(paths))

    async def _nodes(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        def read(connection: Connection) -> tuple[dict[str, tuple[bytes, Stat]], set[str]]:
            found = nodes.read(connection, paths)
            return found, {str(each.owner) for _, each in found.values() if each.owner is not None}

        found = await self._look(read)
        return [found.get(path) for path in paths]

    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        return Deferred.fromCoroutine(self._exists(path, watch))

    async def _exists(self, path: str, watch: Wake | None) -> Stat | None:
        def look(connection: Connection) -> tuple[Stat | None, set[str]]:
            found = nodes.stat(connection, path)
            return found, set() if found is None or found.owner is None else {str(found.owner)}

        found = await self._look(look)
        self._wakes.arm((path, False), watch, nodes.token(found, False))
        return found

    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        return Deferred.fromCoroutine(self._listing(path, watch))

    async def _listing(self, path: str, watch: Wake | None, after: str = "", limit: int = -1) -> tuple[list[str], Stat]:
        def look(connection: Connection) -> tuple[tuple[list[str], Stat | None], set[str]]:
            found = nodes.stat(connection, path)
            names, met = nodes.children(connection, path, after, limit) if found is not None else ([], set())
            return (names, found), met

        names, found = await self._look(look)
        if found is None:
            raise NoNode(f"{self.uri}: there is no node {path}")
        self._wakes.arm((path, True), watch, nodes.token(found, True))
        return names, found

    def page(self, path: str, after: str, limit: int) -> Deferred[list[str]]:
        listing = Deferred.fromCoroutine(self._listing(path, None, after, limit))
        return listing.addCallback(lambda found: found[0])

    def sync(self, path: str) -> Deferred[None]:
        """Each read sees the last commit anyway."""
        return self._run(lambda _: None)

    def clock(self, path: str) -> Deferred[int]:
        return self.sync(path).addCallback(lambda _: int(time_of_day() * 1000))

    # -- watching --------------------------------------------------------------------------------------------------

    def disarm(self, watch: Wake) -> bool:
        self._wakes.disarm(watch)
        return True

    def _see(
        self, fresh: Collection[Watched], every: Collection[Watched], since: Change | None
    ) -> Deferred[tuple[Change, list[str], dict[Watched, Token]]]:
        """The counters of changes, sessions whose owners are gone, and the states of what may be new."""

        def see(connection: Connection) -> tuple[Change, list[str], dict[Watched, Token]]:
            # commits of other connections, and what ours did beside the transactions of the tree
            change = tables.scalar(connection, "PRAGMA data_version"), nodes.ended_sessions(connection)
            watched = fresh if change == since else every
            return change, self._session.dead(connection), nodes.tokens(connection, watched)

        return self._run(see)


class Wakes:
    """The watches of one store, with the state in which each was read."""

    def __init__(
        self,
        clock: Clock,
        uri: str,
        poll_s: float,
        see: Callable[
            [Collection[Watched], Collection[Watched], Change | None],
            Deferred[tuple[Change, list[str], dict[Watched, Token]]],
        ],
        bury: Bury,
    ) -> None:
        self._clock = clock
        self._uri = uri
        self._poll_s = poll_s
        self._see = see
        self._bury = bury
        self._armed: dict[Watched, dict[Wake, Token]] = {}
        self._fresh: set[Watched] = set()  # to be looked at, whatever the counter says
        self._change: Change | None = None  # at the last look
        self._timer: Timer | None = None
        self._looking = False
        self._again = False  # to be looked again right after the look under way
        self._ended = False
        self._complained = False

    def arm(self, watched: Watched, wake: Wake | None, token: Token) -> None:
        """Calls `wake` once the state is not `token` any more."""
        if wake is not None and not self._ended:
            self._armed.setdefault(watched, {})[wake] = token
            self._fresh.add(watched)
            self._look_after(self._poll_s)

    def disarm(self, wake: Wake) -> None:
        """Forgets a watch."""
        for watched in [watched for watched, wakes in self._armed.items() if wake in wakes]:
            self._drop(watched, wake)

    def _drop(self, watched: Watched, wake: Wake) -> None:
        del self._armed[watched][wake]
        if not self._armed[watched]:
            del self._armed[watched]

    def end(self) -> None:
        """Ends the watches."""
        self._ended = True
        self._armed.clear()
        self._cancel()

    def changed(self, watched: Iterable[Watched]) -> None:
        """We have changed these: looks at those that are watched, now, or right after the look under way."""
        fresh = self._armed.keys() & watched
        if fresh:
            self._fresh |= fresh
            self._look_now()

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _look_after(self, seconds: float) -> None:
        if self._armed and not self._looking and not self._ended and not (self._timer and self._timer.active()):
            self._timer = self._clock.callLater(seconds, self._look_now)

    def _look_now(self) -> None:
        if self._looking:
            self._again = True
        elif self._armed and not self._ended:
            self._cancel()
            self._looking = True
            Deferred.fromCoroutine(self._look())

    async def _look(self) -> None:
        fresh, self._fresh, self._again = self._fresh, set(), False
        pause = self._poll_s
        try:
            change, dead, found = await self._see(fresh, list(self._armed), self._change)
            if dead:
                await self._bury(dead)
                self._fresh.update(self._armed)
                self._again = True
        except Exception as error:  # a look that fails ends no watch
            self._fresh |= fresh
            self._missed(error)
            pause *= 4
        else:
            self._complained = False
            self._change = change
            for watched, token in found.items():
                for wake, seen in list(self._armed.get(watched, {}).items()):
                    if seen != token:
                        self._drop(watched, wake)
                        notify(wake)
        self._looking = False
        if self._again and pause == self._poll_s:
            self._look_now()
        else:
            self._look_after(pause)

    def _missed(self, error: Exception) -> None:
        if not self._complained and not self._ended:
            self._complained = True
            log.warn("{uri}: can't look for changes, will go on trying: {error!r}", uri=self._uri, error=error)
