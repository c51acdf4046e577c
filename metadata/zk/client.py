"""
kazoo's client, as one session uses it.

Knows: kazoo: its connection, which proves who we are before anything else is sent; its errors, as ours; that one which
kazoo does not foresee ends a connection, never the thread.
Does not know: the reactor, Deferreds, what is asked.

Threads: all of it runs on the thread of kazoo's connection, and so do the two functions that are told about it.

Safety: nothing is sent, and nobody hears of a connection, before the server's certificate was found good and our
password was proved, where that is asked for.  A server that refuses us, or is refused, is tried again like one that is
away; why is told, and never with a password.  An answer is given to the request that it names, or the connection ends
and each request under way has lost its answer.
"""

import logging
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    MarshallingError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import PING_XID, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import SASL, int_struct
from kazoo.protocol.states import Callback, KazooState, KeeperState, ZnodeStat
from kazoo.retry import ForceRetryError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from quire.conf.properties import ConfigurationError
from quire.metadata.store import ANY
from quire.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    Done,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Stat,
    Step,
    Write,
)
from quire.protocol.errors import MetadataTooLarge, MetaStore, MetaStoreRefused
from quire.security.exchange import NotAuthenticated
from quire.security.zookeeper import PAGE, Login, Tls, ZooKeeperSecurity, refusal

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

CONNECTED, SUSPENDED = KazooState.CONNECTED, KazooState.SUSPENDED
Answer = AsyncResult
Failed = KazooException  # whatever a call fails with
Missing = NoNodeError
TRANSIENT = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError, SessionMovedError)
UNDONE = (RolledBackError, RuntimeInconsistency)  # a step of a transaction that failed by another one
FOR_ALL = OPEN_ACL_UNSAFE  # an access list by which everybody may do everything

KINDS: tuple[tuple[type[Exception], type[NodeError]], ...] = (
    (NoNodeError, NoNode),
    (NoChildrenForEphemeralsError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
)
TO_ENLARGE = (
    "and was not carried out: make what it stores smaller (of a ledger: its custom metadata), or set jute.maxbuffer of "
    "all of ZooKeeper's servers higher, then zkRequestBytesMax"
)
AGAIN_S = 1.0  # from the end of kazoo's loop until it runs again
RECONNECTING = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
# Otherwise Python prints kazoo's warnings of every reconnection on standard error.
KAZOO_LOG = logging.getLogger("quire.metadata.kazoo")
KAZOO_LOG.addHandler(logging.NullHandler())


class Trouble(NamedTuple):
    """
    Why there is no connection with a server; `refused`: by one of both sides, so that a next try is in vain; `error`:
    what a call fails with that waits for a connection until its time is over.
    """

    why: str
    refused: bool
    error: type[MetaStore] = MetaStoreRefused


class Unsendable(KazooException):
    """A request that was not sent, and never will be."""


class TooLarge(Unsendable):
    """One that is larger than ZooKeeper takes."""


class Reply(AsyncResult):
    """kazoo's, which fails with an error of kazoo's in any case: bytes that can't be decoded fail with anything."""

    def set_exception(self, exception: BaseException) -> None:
        """Says that the call failed."""
        if not isinstance(exception, KazooException):
            made = MarshallingError(f"its answer can't be read ({exception!r})")
            made.__cause__ = exception
            exception = made
        super().set_exception(exception)


class Handler(SequentialThreadingHandler):
    """
    kazoo's without its threads for callbacks: ours only hop to the reactor, so each is called where it comes up.  With
    one poll where kazoo makes, fills, asks and closes an epoll object, five times for each call; and with our own TLS:
    kazoo's accepts the machine's authorities, too, and looks for no name unless it is told.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        super().__init__()
        self._tls = tls

    def start(self) -> None:
        """Starts nothing: while no thread runs, kazoo itself calls who waits for an answer."""

    stop = start

    def async_result(self) -> Reply:
        return Reply(self)

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self._tls is None:
            return super().create_connection(*args, **kwargs)
        return self._encrypted(self._tls, kwargs["address"], kwargs["hostname"], kwargs["timeout"])

    def _encrypted(self, tls: Tls, address: tuple[str, int], name: str, timeout: float) -> ssl.SSLSocket:
        context = tls.context()
        tcp = socket.create_connection(address, timeout)
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(tcp, server_hostname=name)
        except BaseException:
            tcp.close()
            raise

    def select(self, readers: Any, writers: Any, _errors: Any, timeout: float | None = None) -> Any:
        """As `select.select`, for descriptors of any number; kazoo never waits for one in two ways."""
        held = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        if held:  # a record of TLS had more in it than was asked for, and the descriptor says nothing of that
            return held, [], ()
        poll = select.poll()
        for events, sockets in ((select.POLLIN, readers), (select.POLLOUT, writers)):
            for each in sockets:
                poll.register(each, events)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return tuple([each for each in sockets if each.fileno() in ready] for sockets in (readers, writers, ()))


class Connection(ConnectionHandler):
    """
    kazoo's, which proves who we are, and then tells its client so and how long the server lets the session live: one
    and a half times the time-out for reading that kazoo makes of that.  What nobody foresaw is a connection that was
    dropped, as a server that is away; a loop that ends all the same runs again, with a new session.
    """

    _server = ""  # that was connected with last

    def zk_loop(self) -> None:
        while not self.client.ended:
            why = "its loop returned"
            try:
                super().zk_loop()
            except BaseException as error:  # the thread is kazoo's: nobody else would hear of it
                why = repr(error)
            if self.client.ended:
                return
            self._tell(f"the thread of its connection ended ({why}): it begins a new session", MetaStore)
            self.client.handler.sleep_func(AGAIN_S)

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except ForceRetryError:  # the next round
            raise
        except Exception as error:
            self._tell(
                f"the connection was dropped, and is made again, for an error that is not foreseen ({error!r}): see "
                "whether the server, and what is between, speak ZooKeeper's protocol",
                MetaStore,
            )
            self.client.drop()
            raise ForceRetryError(repr(error)) from error

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        found = super()._expand_client_hosts()
        known = {(name, port) for name, _, port in found}
        for host, port in self.client.hosts:
            if (host.strip(), port) not in known:
                self.client.on_troubled(
                    f"{host}:{port}",
                    Trouble(
                        f"the name {host.strip()} can't be resolved: compare it with metadataServiceUri, and see "
                        "whether this machine's name server knows it",
                        False,
                        MetaStore,
                    ),
                )
        return found

    def _tell(self, why: str, error: type[MetaStore]) -> None:
        server = self._server or ",".join(f"{host}:{port}" for host, port in self.client.hosts)
        self.client.on_troubled(server, Trouble(why, False, error))

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        security: ZooKeeperSecurity = self.client.security
        self._server = f"{host}:{port}"
        try:
            read_ms, connect_ms = super()._connect(host, hostip, port)
            if security.login is not None:
                self._prove(security.login, connect_ms / 1000)
        except (ConnectionDropped, NotAuthenticated, ConfigurationError) as error:
            trouble = self._trouble(error, security)
            if trouble is None:
                raise
            self.client.on_troubled(self._server, trouble)
            raise ConnectionDropped(trouble.why) from error
        self.client.granted_s = read_ms * 1.5 / 1000
        self.client.on_state(CONNECTED)
        return read_ms, connect_ms

    def _prove(self, login: Login, timeout: float) -> None:
        """Proves our password; `NotAuthenticated`."""
        exchange = login.begin()
        token, xid = exchange.step(b""), 0
        while not exchange.complete:
            xid += 1
            self._submit(SASL(token), timeout, xid)
            header, buffer, offset = self._read_header(timeout)
            if header.err:
                raise NotAuthenticated(self.client.security.wrong_password)
            challenge, _ = SASL.deserialize(buffer, offset)
            if not challenge and xid == 1:
                raise NotAuthenticated(self.client.security.no_login)
            token = exchange.step(challenge)

    def _trouble(self, error: Exception, security: ZooKeeperSecurity) -> Trouble | None:
        """None: nothing but that the server is away."""
        if isinstance(error, NotAuthenticated):
            return Trouble(str(error), True)
        if isinstance(error, ConfigurationError):  # files of TLS that changed since the start
            return Trouble(str(error), False)
        cause = error.__context__
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return Trouble(refusal(cause), True)
        if security.tls is not None and isinstance(cause, ssl.SSLEOFError | ConnectionResetError):
            return Trouble(security.tls.cut_off, False)
        return None

    def _read_socket(self, read_timeout: float) -> Any:
        """
        As kazoo's, but nothing is taken off its queue for an answer to something else: kazoo fails the request in
        front then, as if it had not been carried out.
        """
        header, frame, offset = self._read_header(read_timeout)
        if header.xid == PING_XID:
            self.ping_outstanding.clear()
            return None
        if header.xid == WATCH_XID:
            self._read_watch_event(frame, offset)
            return None
        if header.xid != self.client.expected:
            raise MarshallingError("an answer came to another request than the one in front")
        return self._read_response(header, frame, offset)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """As kazoo's, but a request that can't be sent fails alone."""
        try:
            super()._send_request(read_timeout, connect_timeout)
        except Unsendable as unsendable:
            self._read_sock.recv(1)
            self.client.fail_next(unsendable)

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        """As kazoo's; `Unsendable` before anything is sent."""
        try:
            body = b"".join(int_struct.pack(number) for number in (xid, request.type) if number) + request.serialize()
        except Exception as error:
            raise Unsendable(f"a request can't be written ({error!r})") from error
        if len(body) > self.client.request_bytes_max:
            raise TooLarge(
                f"a request of {len(body)} bytes is above the {self.client.request_bytes_max} that are sent "
                f"(zkRequestBytesMax), {TO_ENLARGE}"
            )
        self._write(int_struct.pack(len(body)) + body, timeout)


class Client(KazooClient):
    """
    kazoo's, which knows how long its session lives without a word.  `heard` is called with each state of the
    connection, of which `CONNECTED` means that we have proved who we are; `troubled` when a server refuses us or is
    refused.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        timeout_s: float,
        security: ZooKeeperSecurity,
        heard: Callable[[str], None],
        troubled: Callable[[str, Trouble], None],
        request_bytes_max: int,
    ) -> None:
        super().__init__(
            hosts=",".join(hosts),
            timeout=timeout_s,
            handler=Handler(security.tls),
            default_acl=CREATOR_ALL_ACL if security.with_acl else None,
            connection_retry=RECONNECTING,
            logger=KAZOO_LOG,
        )
        self.security = security
        self.request_bytes_max = request_bytes_max
        self.on_state = heard
        self.on_troubled = troubled
        self.granted_s = timeout_s  # known with the first answer: the server makes it two of its ticks at least
        self._connection = Connection(self, self._conn_retry.copy(), logger=KAZOO_LOG)
        self.add_listener(lambda state: None if state == CONNECTED else heard(state))

    @property
    def ended(self) -> bool:
        """True if `stop` was called, or the client was not started."""
        return bool(self._stopped.is_set())

    @property
    def expected(self) -> int | None:
        """The number of the request whose answer comes next."""
        return self._pending[0][2] if self._pending else None

    def fail_next(self, error: KazooException) -> None:
        """The request that was to be sent next fails."""
        _, answer = self._queue.popleft()
        answer.set_exception(error)

    def drop(self) -> None:
        """The connection was lost, and the answers with it."""
        self._session_callback(KeeperState.CONNECTING)

    def error_of(self, where: str, path: str, error: BaseException, retried: bool) -> MetaStore:
        """Translates the error of an operation on a znode."""
        for theirs, ours in KINDS:
            if isinstance(error, theirs):
                made = ours(f"{where}: {type(error).__name__} for {path}")
                made.retried = retried
                return made
        if isinstance(error, NoAuthError):
            return MetaStoreRefused(
                f"{where}: the access list of {path}, or of the znode above it, does not let {self.security.who} do "
                "that: be the user whom it names (zkSaslSection, saslJaasFile), or have that one widen it; "
                f"{PAGE}"
            )
        if isinstance(error, InvalidACLError | SessionClosedRequireSaslError):
            return MetaStoreRefused(
                f"{where}: for {path} it wants to know who we are, and we are {self.security.who} to it; set "
                f"zkSaslSection and saslJaasFile, and see whether SASL is on in it; {PAGE}"
            )
        if isinstance(error, TooLarge):
            return MetadataTooLarge(f"{where}: {error}; it was for {path}")
        what = str(error) if isinstance(error, MarshallingError | Unsendable) else repr(error)
        return MetaStore(f"{where}: {what} for {path}")


def committed(steps: Sequence[Step], client: KazooClient) -> Answer:
    """Hands all of them to kazoo as one transaction, in their order; its answer to come."""
    transaction = client.transaction()
    for step in steps:
        if isinstance(step, Create):
            transaction.create(step.path, step.data, FOR_ALL if step.shared else None, step.claim, step.numbered)
        elif isinstance(step, Write):
            transaction.set_data(step.path, step.data, step.version)
        elif isinstance(step, Delete):
            transaction.delete(step.path, step.version)
        else:
            transaction.check(step.path, step.version)
    return transaction.commit_async()


def done(step: Step, answer: Any) -> Done:
    """Translates kazoo's answer to a step."""
    if isinstance(step, Create):
        return Done(answer, 0)
    return Done(step.path, answer.version if isinstance(step, Write) else ANY)


def stat_of(found: ZnodeStat) -> Stat:
    """Translates kazoo's stat of a znode."""
    return Stat(
        found.version,
        found.ephemeralOwner or None,
        found.czxid,
        found.mzxid,
        found.numChildren,
        found.cversion,
        found.pzxid,
    )


def with_stat(answer: tuple[T, ZnodeStat]) -> tuple[T, Stat]:
    """Data or names with what is known of the znode."""
    return answer[0], stat_of(answer[1])
