"""
One ZooKeeper session: kazoo's, made to speak in Deferreds on the reactor's thread.

Knows: connecting, losing the connection, a new session after an expiry, which failures may be tried again, and how
long.
Does not know: what the znodes mean; kazoo (`client`).

Long: each call of ZooKeeper's has its method here, and all of them share the one way of trying again.

Threads: kazoo runs one, its connection's.  Nothing of ours runs on it: each callback hops to the reactor at once, but
which session is there, and how long it lasts, is noted.  It ends in `close()`, which waits for it on another.

Safety: an operation whose answer was lost is tried again, so it may happen twice; the error of a later try then carries
`retried`, and the caller reads again before it decides (metadata-rules.md 8.2).  kazoo drops every watch when the
connection is lost, and calls each of them: a caller that watches must read again at any event (metadata-rules.md 8.3).

A call may be bound to a session: it is carried out in that one or never, whatever happens between the call and the
moment in which kazoo sends it.  kazoo reports a session's end before it drops what waits to be sent, and connects
again after that; a bound call is handed to it under the lock under which that news is noted.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger

from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.metadata.clock import Reactor, pause
from quire.metadata.store import ANY, StoreClosed
from quire.metadata.tree import (
    Done,
    NodeError,
    NoNode,
    SessionId,
    SessionOver,
    Stat,
    Step,
    Tree,
    Wake,
    counted,
)
from quire.metadata.worker import Worker
from quire.metadata.zk.answers import Hop, all_answered, answered
from quire.metadata.zk.client import (
    CONNECTED,
    SUSPENDED,
    TRANSIENT,
    UNDONE,
    Answer,
    Client,
    Failed,
    Missing,
    Trouble,
    committed,
    done,
    stat_of,
    with_stat,
)
from quire.metadata.zk.gathering import Asked, Gathering
from quire.protocol.errors import MetadataTooLarge, MetaStore, MetaStoreRefused
from quire.security.zookeeper import ZooKeeperSecurity

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

RETRY_PAUSE_S = 0.02
LARGE_BYTES = 512 << 10  # a request above that may be what its connection is lost for
LARGE_LOSSES = 2
SAID_AGAIN_S = 60.0  # from one line about a server's trouble until the next about the same
OPEN = ZooKeeperOptions()
TICKS_PER_SESSION_MIN = 2  # the server notices an expiry at the end of a tick


class ZooKeeperSession(Tree):
    """
    The calls below fail with a `NodeError`, or with `MetaStore` (with the address) when there is no answer within the
    session timeout. `on_connected` is called on each return of the connection, `on_expired` before that when it
    returned with a new session, and both before calls that waited for the connection continue.  What ZooKeeper refuses
    us for who we are fails with `MetaStoreRefused`, what is too large for it with `MetadataTooLarge`;
    `ConfigurationError` here when files of `security` can't be used.
    """

    has_strangers = True

    def __init__(
        self, reactor: Reactor, hosts: Sequence[str], uri: str, timeout_s: float, security: ZooKeeperOptions = OPEN
    ) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self.client_id: tuple[int, bytes] | None = None  # (session id, password) of the last session
        self._reactor = reactor
        self._connected = False
        self._closing: Deferred[None] | None = None
        self._waiting: dict[Deferred[None], None] = {}  # callers that wait for the connection, in their order
        self._outstanding: set[Deferred[Any]] = set()
        self._gathering = Gathering(self._transact_once, self._transact, partial(reactor.callLater, 0))
        self._servers = len(hosts)
        self._troubles: dict[str, Trouble] = {}  # with servers, since the last connection
        self._said: dict[str, tuple[Trouble | None, float]] = {}  # with servers: what was logged last, and when
        self._client = Client(
            hosts,
            timeout_s,
            ZooKeeperSecurity(security),
            self._hop_state,
            self._hop_trouble,
            security.zk_request_bytes_max,
        )
        self._guard = threading.Lock()
        # the session that kazoo has, as its connection's thread knows: 0 from its end until the next one is there
        self._current = 0
        self._closer: Worker[Client] = Worker("metadata zookeeper close", self._stop_client)

    @property
    def id(self) -> int:
        """The session's id, as `ephemeralOwner` shows it; 0 before the first connection."""
        return self.client_id[0] if self.client_id is not None else 0

    @property
    def granted_s(self) -> float:
        """How long the server lets the session live without a word, whatever was asked for."""
        return self._client.granted_s

    @property
    def outlives_s(self) -> float:
        return self.granted_s * (1 + 1 / TICKS_PER_SESSION_MIN)

    def changes(self) -> Deferred[int]:
        """Counts up to the last transaction that the server knew when it answered last."""
        return succeed(int(self._client.last_zxid))

    # -- the connection -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects; `MetaStore` when no server answers within the session timeout (the session is closed then)."""
        self._client.start_async()
        try:
            await self._connection(self._reactor.seconds() + self.timeout_s)
        except BaseException:
            self.close()
            raise

    def _hop_state(self, state: str) -> None:
        """On kazoo's thread."""
        client_id = self._client.client_id
        if state != SUSPENDED:
            with self._guard:
                self._current = client_id[0] if state == CONNECTED and client_id is not None else 0
        self._reactor.callFromThread(self._state_changed, state, client_id)

    def _hop_trouble(self, server: str, trouble: Trouble) -> None:
        """On kazoo's thread."""
        self._reactor.callFromThread(self._has_trouble, server, trouble)

    def _state_changed(self, state: str, client_id: tuple[int, bytes] | None) -> None:
        if self._closing is not None:
            return
        self._connected = state == CONNECTED and client_id is not None
        if not self._connected:
            return
        self._troubles.clear()
        expired = self.client_id is not None and client_id is not None and client_id[0] != self.client_id[0]
        self.client_id = client_id
        if expired:
            log.warn("{uri}: the session expired, its registrations are gone", uri=self.uri)
            self.on_expired()
        self.on_connected()
        waiting, self._waiting = self._waiting, {}
        for deferred in waiting:
            deferred.callback(None)

    def _has_trouble(self, server: str, trouble: Trouble) -> None:
        """At the start who waits is told at once when no server is left; later the reason may go as it came."""
        if self._closing is not None or self._troubles.get(server) == trouble:
            return
        self._troubles[server] = trouble
        now = self._reactor.seconds()
        said, at = self._said.get(server, (None, 0.0))
        if said != trouble or now - at >= SAID_AGAIN_S:  # it may come back with each connection
            self._said[server] = trouble, now
            log.error("no connection with ZooKeeper at {server}: {why}", server=server, why=trouble.why)
        refused = [each for each in self._troubles.values() if each.refused]
        if self.client_id is None and len(refused) == self._servers:
            waiting, self._waiting = self._waiting, {}
            for deferred in waiting:
                deferred.errback(MetaStoreRefused(f"ZooKeeper at {self.uri}: {trouble.why}"))

    async def _connection(self, deadline: float) -> None:
        """Returns when there is a connection."""
        while not self._connected:
            if self._closing is not None:
                raise StoreClosed
            deferred: Deferred[None] = Deferred()
            self._waiting[deferred] = None
            try:
                await self._until(deadline, deferred)
            finally:
                self._waiting.pop(deferred, None)

    async def _until(self, deadline: float, deferred: "Deferred[T]") -> T:
        timer = self._reactor.callLater(max(0.0, deadline - self._reactor.seconds()), deferred.cancel)
        self._outstanding.add(deferred)
        try:
            return await deferred
        except CancelledError:
            if self._closing is not None:
                raise StoreClosed from None
            if timer.active():  # it was not the time: the caller cancelled it
                raise
            what = f"ZooKeeper at {self.uri} did not answer within {self.timeout_s:g} s"
            if self._troubles:
                why = "; ".join(sorted({trouble.why for trouble in self._troubles.values()}))
                refused = any(trouble.error is MetaStoreRefused for trouble in self._troubles.values())
                raise (MetaStoreRefused if refused else MetaStore)(f"{what}: {why}") from None
            raise MetaStore(f"{what}: see whether it runs and can be reached from here, then try again") from None
        finally:
            self._outstanding.discard(deferred)
            if timer.active():
                timer.cancel()

    def close(self) -> Deferred[None]:
        """
        Ends the session, so that its ephemeral nodes go, and kazoo's threads; what is under way fails with `MetaStore`.
        """
        if self._closing is None:
            self._closing = Deferred()
            self._connected = False
            for deferred in [*self._outstanding, *self._waiting]:
                deferred.cancel()
            self._closer.submit(self._client)
            self._closer.end()
        answer: Deferred[None] = Deferred()
        self._closing.addCallback(answer.callback)
        return answer

    def _stop_client(self, clients: list[Client]) -> None:
        """On the closing thread."""
        for client in clients:
            try:
                client.stop()
            # its connection thread hangs in a connect or a look-up of a name
            except (Failed, OSError, AttributeError) as error:
                log.warn("{uri}: kazoo did not end cleanly: {error!r}", uri=self.uri, error=error)
            else:
                client.close()
        self._reactor.callFromThread(self._closed)

    def _closed(self) -> None:
        assert self._closing is not None
        self._closer.join(self.timeout_s)
        self._closing.callback(None)

    # -- calls ----------------------------------------------------------------------------------------------------

    @property
    def session(self) -> int:
        return self.id

    async def session_now(self) -> int:
        return self.id

    @counted
    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        """Carries out a transaction, together with those that are asked for at the same time (`gathering`)."""
        asked = self._gathering.ask(
            steps, None if session is None else int(session), self._reactor.seconds() + self.timeout_s
        )
        return asked.addCallback(lambda results: list(map(done, steps, results)))

    async def _transact(self, asked: Asked, in_doubt: bool) -> list[Any]:
        steps, submit = asked.steps, partial(committed, asked.steps)
        results, retried = await self._attempts(
            steps[0].path, submit, asked.session, asked.deadline, in_doubt, asked.bytes
        )
        for number, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, UNDONE):
                error = self._error(steps[number].path, result, retried)
                if isinstance(error, NodeError):
                    error.step = number
                raise error
        return list(results)

    async def _transact_once(self, asked: Asked) -> tuple[list[Any] | None, bool]:
        await self._connection(asked.deadline)
        submitted = self._submit(partial(committed, asked.steps), asked.session)
        if submitted is None:
            return None, False
        try:
            results = await self._until(asked.deadline, answered(self._reactor, submitted))
        except Failed:
            return None, True
        return None if any(isinstance(each, Exception) for each in results) else list(results), False

    @counted
    def delete(self, path: str, version: int = ANY, *, session: SessionId | None = None) -> Deferred[None]:
        """By itself and at once, so before the end of the session where that is asked for next."""
        bound = None if session is None else int(session)
        attempts = self._attempts(path, lambda client: client.delete_async(path, version), bound)
        return Deferred.fromCoroutine(attempts).addCallback(lambda _: None)

    @counted
    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        found = self._call(path, lambda client: client.get_async(path, watch=self._watcher(watch)))
        return found.addCallback(with_stat)

    @counted
    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        """With one hop to the reactor for all."""
        return Deferred.fromCoroutine(self._get_each(paths))

    async def _get_each(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        deadline = self._reactor.seconds() + self.timeout_s
        found: dict[int, tuple[bytes, Stat] | None] = {}
        left = list(range(len(paths)))
        while left:
            await self._connection(deadline)
            asked = {number: self._client.get_async(paths[number]) for number in left}
            await self._until(deadline, all_answered(self._reactor, list(asked.values())))
            left = []
            for number, answer in asked.items():
                if answer.exception is None:
                    found[number] = with_stat(answer.value)
                elif isinstance(answer.exception, Missing):
                    found[number] = None
                elif isinstance(answer.exception, TRANSIENT):
                    left.append(number)
                else:
                    raise self._error(paths[number], answer.exception, False)
            if left:
                await pause(self._reactor, RETRY_PAUSE_S)
        return [found[number] for number in range(len(paths))]

    @counted
    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        found = self._call(path, lambda client: client.exists_async(path, watch=self._watcher(watch)))
        return found.addCallback(lambda stat: None if stat is None else stat_of(stat))

    @counted
    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        found = self._call(path, lambda client: client.get_children_async(path, self._watcher(watch), True))
        return found.addCallback(with_stat)

    @counted
    def sync(self, path: str) -> Deferred[None]:
        return self._call(path, lambda client: client.sync_async(path)).addCallback(lambda _: None)

    def clock(self, path: str) -> Deferred[int]:
        """A quorum has to take the write: ZooKeeper's own `sync` is answered by a leader that has lost its quorum."""
        return Deferred.fromCoroutine(self._touch(path))

    async def _touch(self, path: str) -> int:
        while True:
            try:
                return int((await self._call(path, lambda client: client.set_async(path, b""))).mtime)
            except NoNode:
                await self.ensure(path)

    def _watcher(self, watch: Wake | None) -> Hop | None:
        return None if watch is None else Hop(self._reactor, watch)

    def _call(self, path: str, submit: Callable[[Client], Answer]) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._attempts(path, submit, None)).addCallback(lambda answer: answer[0])

    def _submit(self, submit: Callable[[Client], Answer], session: int | None) -> Answer | None:
        """None: kazoo no longer has the session that the call is bound to."""
        if session is None:
            return submit(self._client)
        with self._guard:
            return submit(self._client) if session == self._current else None

    async def _attempts(
        self,
        path: str,
        submit: Callable[[Client], Answer],
        session: int | None,
        deadline: float | None = None,
        retried: bool = False,
        size: int = 0,
    ) -> tuple[Any, bool]:
        """
        Tries until there is an answer or the session timeout is over; with `session`, until that one has ended.  The
        answer, and whether an earlier try's was lost.  `size`: bytes that are to be stored, about.  After a first loss
        a large request goes only behind something small that was answered in the same connection; one that loses it
        so twice is not tried again, for each try ends it for everybody else, too.
        """
        is_large, losses = size > LARGE_BYTES, 0
        if deadline is None:
            deadline = self._reactor.seconds() + self.timeout_s
        while True:
            await self._connection(deadline)
            if is_large and retried and not await self._answers(deadline):
                await pause(self._reactor, RETRY_PAUSE_S)
                continue
            if session is not None and session != self.id:
                raise SessionOver(f"ZooKeeper at {self.uri}: the session that {path} belonged to has ended")
            submitted = self._submit(submit, session)
            if submitted is None:  # the news is under way
                await pause(self._reactor, RETRY_PAUSE_S)
                continue
            try:
                return await self._until(deadline, answered(self._reactor, submitted)), retried
            except TRANSIENT:
                losses += retried  # the first one may have another reason
                retried = True
                if is_large and losses == LARGE_LOSSES:
                    raise MetadataTooLarge(
                        f"ZooKeeper at {self.uri} ended the connection {losses} times just when {path} was to be "
                        f"written, about {size} bytes, while it answered what is small, as it does with what is larger "
                        "than jute.maxbuffer of its servers: see whether that is set below zkRequestBytesMax; make "
                        "what is stored smaller, or set it higher"
                    ) from None
                await pause(self._reactor, RETRY_PAUSE_S)
            except Failed as error:
                raise self._error(path, error, retried) from error

    async def _answers(self, deadline: float) -> bool:
        """True if something small is answered before the connection is lost."""
        try:
            await self._until(deadline, answered(self._reactor, self._client.sync_async("/")))
        except TRANSIENT:
            return False
        except Failed:  # an answer
            return True
        return True

    def _error(self, path: str, error: BaseException, retried: bool) -> MetaStore:
        return self._client.error_of(f"ZooKeeper at {self.uri}", path, error, retried)
