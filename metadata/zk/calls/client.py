"""
kazoo's client, as one session uses it.

Knows: kazoo: its connection, which proves who we are before anything else is sent; its errors, as ours.
Does not know: the reactor, Deferreds, what is asked.

Threads: all of it runs on the thread of kazoo's connection, and so do the two functions that are told about it.

Safety: nothing is sent, and nobody hears of a connection, before the server's certificate was found good and our
password was proved, where that is asked for.  A server that refuses us, or is refused, is tried again like one that is
away; why is told, and never with a password.
"""

import logging
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
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
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL
from kazoo.protocol.states import Callback, KazooState, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from quire.conf.properties import ConfigurationError
from quire.metadata.zk.calls.answers import BadVersion, NodeError, NodeExists, NoNode, NotEmpty
from quire.protocol.errors import MetaStore, MetaStoreRefused
from quire.security.exchange import NotAuthenticated
from quire.security.zookeeper import PAGE, Login, Tls, ZooKeeperSecurity, refusal

# SPDX-License-Identifier: Apache-2.0

CONNECTED, SUSPENDED = KazooState.CONNECTED, KazooState.SUSPENDED
Answer = AsyncResult
Failed = KazooException  # whatever a call fails with
Missing = NoNodeError
Stat = ZnodeStat
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
# Otherwise Python prints kazoo's warnings of every reconnection on standard error.
KAZOO_LOG = logging.getLogger("quire.metadata.kazoo")
KAZOO_LOG.addHandler(logging.NullHandler())


class Trouble(NamedTuple):
    """Why there is no connection with a server; `refused`: by one of both sides, so that a next try is in vain."""

    why: str
    refused: bool


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
    and a half times the time-out for reading that kazoo makes of that.
    """

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        security: ZooKeeperSecurity = self.client.security
        try:
            read_ms, connect_ms = super()._connect(host, hostip, port)
            if security.login is not None:
                self._prove(security.login, connect_ms / 1000)
        except (ConnectionDropped, NotAuthenticated, ConfigurationError) as error:
            trouble = self._trouble(error, security)
            if trouble is None:
                raise
            self.client.on_troubled(f"{host}:{port}", trouble)
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
    ) -> None:
        super().__init__(
            hosts=",".join(hosts),
            timeout=timeout_s,
            handler=Handler(security.tls),
            default_acl=CREATOR_ALL_ACL if security.with_acl else None,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
            logger=KAZOO_LOG,
        )
        self.security = security
        self.on_state = heard
        self.on_troubled = troubled
        self.granted_s = timeout_s  # known with the first answer: the server makes it two of its ticks at least
        self._connection = Connection(self, self._conn_retry.copy(), logger=KAZOO_LOG)
        self.add_listener(lambda state: None if state == CONNECTED else heard(state))

    def error_of(self, where: str, path: str, error: BaseException, retried: bool) -> MetaStore:
        """What an operation on a znode failed with, as ours."""
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
        return MetaStore(f"{where}: {error!r} for {path}")
