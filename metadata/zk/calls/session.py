"""
One ZooKeeper session: kazoo's, made to speak in Deferreds on the reactor's thread.

Knows: connecting, losing the connection, a new session after an expiry, which failures may be tried again, and how
long.
Does not know: what the znodes mean.

Threads: kazoo runs one, its connection's.  Nothing of ours runs on it: each callback hops to the reactor at once, but
which session is there, and how long it lasts, is noted.  It ends in `close()`, which waits for it on another.

Safety: an operation whose answer was lost is tried again, so it may happen twice; the error of a later try then carries
`retried`, and the caller reads again before it decides (metadata-rules.md 8.2).  kazoo drops every watch when the
connection is lost, and calls each of them: a caller that watches must read again at any event (metadata-rules.md 8.3).

A call may be bound to a session: it is carried out in that one or never, whatever happens between the call and the
moment in which kazoo sends it.  kazoo reports a session's end before it drops what waits to be sent, and connects
again after that; a bound call is handed to it under the lock under which that news is noted.
"""

import logging
import select
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import Callback, KazooState, ZnodeStat
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from quire.metadata.clock import Reactor, pause
from quire.metadata.records import Step
from quire.metadata.store import StoreClosed
from quire.metadata.worker import Worker
from quire.metadata.zk.calls.answers import (
    BadVersion,
    Hop,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionOver,
    Wake,
    all_answered,
    answered,
)
from quire.metadata.zk.calls.gathering import Asked, Gathering
from quire.metadata.zk.calls.steps import committed
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

RETRY_PAUSE_S = 0.02
# Otherwise Python prints kazoo's warnings of every reconnection on standard error.
KAZOO_LOG = logging.getLogger("quire.metadata.kazoo")
KAZOO_LOG.addHandler(logging.NullHandler())

TRANSIENT = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError, SessionMovedError)

KINDS: tuple[tuple[type[Exception], type[NodeError]], ...] = (
    (NoNodeError, NoNode),
    (NoChildrenForEphemeralsError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
)


class Handler(SequentialThreadingHandler):
    """
    kazoo's without its threads for callbacks: ours only hop to the reactor, so each is called where it comes up.  And
    with one poll where kazoo makes, fills, asks and closes an epoll object, five times for each call.
    """

    def start(self) -> None:
        """Starts nothing: while no thread runs, kazoo itself calls who waits for an answer."""

    stop = start

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def select(self, readers: Any, writers: Any, _errors: Any, timeout: float | None = None) -> Any:
        """As `select.select`, for descriptors of any number; kazoo never waits for one in two ways."""
        poll = select.poll()
        for events, sockets in ((select.POLLIN, readers), (select.POLLOUT, writers)):
            for each in sockets:
                poll.register(each, events)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return tuple([each for each in sockets if each.fileno() in ready] for sockets in (readers, writers, ()))


class Connection(ConnectionHandler):
    """
    kazoo's, which notes in its client how long the server lets the session live: one and a half times the time-out for
    reading that it makes of that.
    """

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_ms, connect_ms = super()._connect(host, hostip, port)
        self.client.granted_s = read_ms * 1.5 / 1000
        return read_ms, connect_ms


class Client(KazooClient):
    """kazoo's, which knows how long its session lives without a word."""

    def __init__(self, hosts: str, timeout_s: float) -> None:
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
        super().__init__(hosts=hosts, timeout=timeout_s, handler=Handler(), connection_retry=retry, logger=KAZOO_LOG)
        self.granted_s = timeout_s  # known with the first answer: the server makes it two of its ticks at least
        self._connection = Connection(self, self._conn_retry.copy(), logger=KAZOO_LOG)


class ZooKeeperSession:
    """
    The calls below fail with a `NodeError`, or with `MetaStore` (with the address) when there is no answer within the
    session timeout. `on_connected` is called on each return of the connection, `on_expired` before that when it
    returned with a new session, and both before calls that waited for the connection continue.
    """

    def __init__(self, reactor: Reactor, hosts: Sequence[str], uri: str, timeout_s: float) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self.on_connected: Callable[[], None] = lambda: None
        self.on_expired: Callable[[], None] = lambda: None
        self.client_id: tuple[int, bytes] | None = None  # (session id, password) of the last session
        self._reactor = reactor
        self._connected = False
        self._closing: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []  # callers that wait for the connection
        self._outstanding: set[Deferred[Any]] = set()
        self._gathering = Gathering(self._transact_once, self._transact)
        self._client = Client(",".join(hosts), timeout_s)
        self._guard = threading.Lock()
        # the session that kazoo has, as its connection's thread knows: 0 from its end until the next one is there
        self._current = 0
        self._client.add_listener(self._hop_state)
        self._closer: Worker[KazooClient] = Worker("metadata zookeeper close", self._stop_client)

    @property
    def id(self) -> int:
        """The session's id, as `ephemeralOwner` shows it; 0 before the first connection."""
        return self.client_id[0] if self.client_id is not None else 0

    @property
    def granted_s(self) -> float:
        """How long the server lets the session live without a word, whatever was asked for."""
        return self._client.granted_s

    @property
    def last_zxid(self) -> int:
        """The last transaction that the server knew when it answered last."""
        return int(self._client.last_zxid)

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
        if state != KazooState.SUSPENDED:
            with self._guard:
                self._current = client_id[0] if state == KazooState.CONNECTED and client_id is not None else 0
        self._reactor.callFromThread(self._state_changed, state, client_id)

    def _state_changed(self, state: str, client_id: tuple[int, bytes] | None) -> None:
        if self._closing is not None:
            return
        self._connected = state == KazooState.CONNECTED and client_id is not None
        if not self._connected:
            return
        expired = self.client_id is not None and client_id is not None and client_id[0] != self.client_id[0]
        self.client_id = client_id
        if expired:
            log.warn("{uri}: the session expired, its registrations are gone", uri=self.uri)
            self.on_expired()
        self.on_connected()
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)

    async def _connection(self, deadline: float) -> None:
        """Returns when there is a connection."""
        while not self._connected:
            if self._closing is not None:
                raise StoreClosed
            deferred: Deferred[None] = Deferred()
            self._waiting.append(deferred)
            try:
                await self._until(deadline, deferred)
            finally:
                if deferred in self._waiting:
                    self._waiting.remove(deferred)

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

    def _stop_client(self, clients: list[KazooClient]) -> None:
        """On the closing thread."""
        for client in clients:
            try:
                client.stop()
            # its connection thread hangs in a connect or a look-up of a name
            except (KazooException, OSError, AttributeError) as error:
                log.warn("{uri}: kazoo did not end cleanly: {error!r}", uri=self.uri, error=error)
            else:
                client.close()
        self._reactor.callFromThread(self._closed)

    def _closed(self) -> None:
        assert self._closing is not None
        self._closer.join(self.timeout_s)
        self._closing.callback(None)

    # -- calls ----------------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        session: int | None = None,
    ) -> "Deferred[str]":
        """Makes a znode and returns its path.  `NodeExists`, `NoNode` (no parent), `SessionOver`."""
        return self._call(
            path, lambda client: client.create_async(path, data, ephemeral=ephemeral, sequence=sequence), session
        )

    def transact(self, steps: "Sequence[Step]", *, session: int | None = None) -> "Deferred[list[Any]]":
        """
        Carries out all steps or none; their paths are those of znodes, a claim is an ephemeral one.  What kazoo answers
        to each.  Fails as the first step that can't be done, with `.step`; `SessionOver`.  Those that are asked for at
        the same time go together (`gathering`).
        """
        return self._gathering.ask(steps, session, self._reactor.seconds() + self.timeout_s)

    async def _transact(self, asked: Asked, in_doubt: bool) -> list[Any]:
        steps, submit = asked.steps, partial(committed, asked.steps)
        results, retried = await self._attempts(steps[0].path, submit, asked.session, asked.deadline, in_doubt)
        for number, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
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
        except KazooException:
            return None, True
        return None if any(isinstance(each, Exception) for each in results) else list(results), False

    def get(self, path: str, watch: Wake | None = None) -> "Deferred[tuple[bytes, ZnodeStat]]":
        """`NoNode`.  `watch` is called once, when the node changes or the watch is lost."""
        return self._call(path, lambda client: client.get_async(path, watch=self._watcher(watch)))

    def get_each(self, paths: Sequence[str]) -> "Deferred[list[tuple[bytes, ZnodeStat] | None]]":
        """Of many nodes, in their order, with one hop to the reactor for all; None where there is no node."""
        return Deferred.fromCoroutine(self._get_each(paths))

    async def _get_each(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        deadline = self._reactor.seconds() + self.timeout_s
        found: dict[int, tuple[bytes, ZnodeStat] | None] = {}
        left = list(range(len(paths)))
        while left:
            await self._connection(deadline)
            asked = {number: self._client.get_async(paths[number]) for number in left}
            await self._until(deadline, all_answered(self._reactor, list(asked.values())))
            left = []
            for number, answer in asked.items():
                if answer.exception is None:
                    found[number] = answer.value
                elif isinstance(answer.exception, NoNodeError):
                    found[number] = None
                elif isinstance(answer.exception, TRANSIENT):
                    left.append(number)
                else:
                    raise self._error(paths[number], answer.exception, False)
            if left:
                await pause(self._reactor, RETRY_PAUSE_S)
        return [found[number] for number in range(len(paths))]

    def exists(self, path: str, watch: Wake | None = None) -> "Deferred[ZnodeStat | None]":
        """What the node is, or None.  `watch` is called once: it appears, changes or goes, or the watch is lost."""
        return self._call(path, lambda client: client.exists_async(path, watch=self._watcher(watch)))

    def children(self, path: str, watch: Wake | None = None) -> "Deferred[list[str]]":
        """The names, in no order.  `NoNode`."""
        return self.listing(path, watch).addCallback(lambda found: found[0])

    def listing(self, path: str, watch: Wake | None = None) -> "Deferred[tuple[list[str], ZnodeStat]]":
        """The names, and what the node was at that moment: its `cversion` counts who was made or went.  `NoNode`."""
        return self._call(path, lambda client: client.get_children_async(path, self._watcher(watch), True))

    def set(self, path: str, data: bytes, version: int, *, session: int | None = None) -> "Deferred[ZnodeStat]":
        """`NoNode`, `BadVersion`, `SessionOver`; version -1 is any."""
        return self._call(path, lambda client: client.set_async(path, data, version), session)

    def delete(self, path: str, version: int = -1, *, session: int | None = None) -> "Deferred[None]":
        """`NoNode`, `BadVersion`, `NotEmpty`, `SessionOver`."""
        return self._call(path, lambda client: client.delete_async(path, version), session)

    def delete_own(self, path: str, session: int) -> "Deferred[None]":
        """
        Removes an ephemeral znode that this session made, and never another's: within a session no other client puts
        one in its place, and in the next session nothing is done.  `NoNode`: there is none of ours, which may have gone
        with its session.
        """
        return Deferred.fromCoroutine(self._delete_own(path, session))

    async def _delete_own(self, path: str, session: int) -> None:
        found = await self.exists(path)
        if found is None or found.ephemeralOwner != session:
            raise NoNode(f"ZooKeeper at {self.uri}: {path} is not this session's")
        try:
            await self.delete(path, session=session)
        except SessionOver as over:
            raise NoNode(str(over)) from None

    async def holds(self, path: str, data: bytes, version: int) -> bool:
        """Whether a znode has these bytes at this version: after a retried write, whether an earlier try was done."""
        try:
            found, stat = await self.get(path)
        except NoNode:
            return False
        return stat.version == version and found == data

    def sync(self, path: str) -> "Deferred[None]":
        """What was written before this is seen by reads after it, from any server."""
        return self._call(path, lambda client: client.sync_async(path))

    def _watcher(self, watch: Wake | None) -> Hop | None:
        return None if watch is None else Hop(self._reactor, watch)

    def _call(
        self, path: str, submit: Callable[[KazooClient], AsyncResult], session: int | None = None
    ) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._attempts(path, submit, session)).addCallback(lambda answer: answer[0])

    def _submit(self, submit: Callable[[KazooClient], AsyncResult], session: int | None) -> AsyncResult | None:
        """None: kazoo no longer has the session that the call is bound to."""
        if session is None:
            return submit(self._client)
        with self._guard:
            return submit(self._client) if session == self._current else None

    async def _attempts(
        self,
        path: str,
        submit: Callable[[KazooClient], AsyncResult],
        session: int | None,
        deadline: float | None = None,
        retried: bool = False,
    ) -> tuple[Any, bool]:
        """
        Tries until there is an answer or the session timeout is over; with `session`, until that one has ended.  The
        answer, and whether an earlier try's was lost.
        """
        if deadline is None:
            deadline = self._reactor.seconds() + self.timeout_s
        while True:
            await self._connection(deadline)
            if session is not None and session != self.id:
                raise SessionOver(f"ZooKeeper at {self.uri}: the session that {path} belonged to has ended")
            submitted = self._submit(submit, session)
            if submitted is None:  # the news is under way
                await pause(self._reactor, RETRY_PAUSE_S)
                continue
            try:
                return await self._until(deadline, answered(self._reactor, submitted)), retried
            except TRANSIENT:
                retried = True
                await pause(self._reactor, RETRY_PAUSE_S)
            except KazooException as error:
                raise self._error(path, error, retried) from error

    def _error(self, path: str, error: BaseException, retried: bool) -> MetaStore:
        for theirs, ours in KINDS:
            if isinstance(error, theirs):
                made = ours(f"ZooKeeper at {self.uri}: {type(error).__name__} for {path}")
                made.retried = retried
                return made
        return MetaStore(f"ZooKeeper at {self.uri}: {error!r} for {path}")
