"""
gRPC's client, as one tree uses it: a channel to each server, of which one is used, calls, and the stream of watches.

Knows: gRPC: its channels and errors, as ours; which failures say that an answer was lost; who we are for etcd.
Does not know: the tree, how often and how long a call is tried.

Threads: gRPC has its own, and a stream of watches has one that waits for what comes.  Nothing of ours runs on them but
the hop to the reactor.

Safety: with TLS nothing is sent before the server's certificate was found good for the name in the metadata's URI.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import grpc
from twisted.internet.defer import Deferred

from quire.metadata.clock import Reactor
from quire.metadata.etcd.messages import CLASSES
from quire.protocol.errors import MetadataTooLarge, MetaStore, MetaStoreRefused
from quire.security.etcd import Pems

# SPDX-License-Identifier: Apache-2.0

PACKAGE = "etcdserverpb"
# LeaseKeepAlive is a stream for etcd; one request, the end of ours, and one answer are a stream as well.
CALLS = {
    "Txn": "KV",
    "LeaseGrant": "Lease",
    "LeaseRevoke": "Lease",
    "LeaseKeepAlive": "Lease",
    "Authenticate": "Auth",
}
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # no connection is shared with another tree of this process
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd ends a connection on which it is asked more often than each 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # or a silent stream waits a minute for a server that hangs
    ("grpc.http2.max_pings_without_data", 0),
)
WITH_LEADER = ("hasleader", "true")  # a server that is cut off from the others says so instead of waiting
LOST = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED"}
TLS_SIGNS = ("CERTIFICATE_VERIFY_FAILED", "handshake failed", "Ssl handshake", "SSL_ERROR")
# What etcd says -> the error, and what it means and what to do.
SAYINGS: tuple[tuple[str, type[MetaStore], str], ...] = (
    (
        "database space exceeded",
        MetaStoreRefused,
        "its database is full (the alarm NOSPACE): compact and defragment it, give it more with "
        "--quota-backend-bytes, then `etcdctl alarm disarm`",
    ),
    (
        "request is too large",
        MetadataTooLarge,
        "the request is larger than it takes: make what is stored smaller (of a ledger: its custom metadata), or set "
        "--max-request-bytes of all of its servers higher",
    ),
    (
        "larger than max",
        MetadataTooLarge,
        "the request is larger than it takes: make what is stored smaller, or set --max-request-bytes of all of its "
        "servers higher",
    ),
    (
        "too many operations",
        MetadataTooLarge,
        "the transaction has more operations than it takes: set --max-txn-ops of all of its servers higher",
    ),
    (
        "invalid user ID or password",
        MetaStoreRefused,
        "it does not let this user in: compare name and password in the section etcdSection of saslJaasFile with its "
        "own users",
    ),
    (
        "user name is empty",
        MetaStoreRefused,
        "it wants to know who we are: set etcdSection and saslJaasFile",
    ),
    (
        "authentication is not enabled",
        MetaStoreRefused,
        "it lets nobody prove a password, and we are to (etcdSection): turn it on with `etcdctl auth enable`",
    ),
    (
        "permission denied",
        MetaStoreRefused,
        "our user may not do that: grant a role of it to read and write all keys that begin with quire",
    ),
)


class CallFailed(Exception):
    """A call that etcd, or the way to it, has refused; `code`: gRPC's name of it."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details

    @property
    def lost(self) -> bool:
        """True if it may have been carried out, and another server may answer, or this one later."""
        return self.code in LOST or "too many requests" in self.details

    @property
    def untrusted(self) -> bool:
        """True if there is no connection, for one side did not accept the other's certificate."""
        return self.code == "UNAVAILABLE" and any(sign in self.details for sign in TLS_SIGNS)

    @property
    def token_over(self) -> bool:
        """True if the proof of our password is asked for again."""
        return self.code == "UNAUTHENTICATED" or "auth store is old" in self.details

    @property
    def no_lease(self) -> bool:
        """True if the lease that the call named is gone."""
        return self.code == "NOT_FOUND" and "lease" in self.details

    def error(self, where: str) -> MetaStore:
        """Says what it means, and what to do."""
        for saying, kind, text in SAYINGS:
            if saying in self.details:
                return kind(f"{where}: {text}")
        return MetaStore(f"{where}: {self.details} ({self.code})")


def _failure(call: Any) -> CallFailed:
    code = call.code()
    return CallFailed("UNKNOWN" if code is None else code.name, call.details() or "no reason was given")


class Stream:
    """
    The stream of watches on one server.  `heard` is called with each answer, `ended` once, unless it was closed;
    `shaped` makes what is sent of a request.
    """

    def __init__(
        self,
        reactor: Reactor,
        call: Callable[[Iterator[Any]], Any],
        heard: Callable[[Any], None],
        ended: Callable[["Stream", str], None],
        shaped: Callable[[Any], Any] | None = None,
    ) -> None:
        self._reactor = reactor
        self._shaped = shaped
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._heard = heard
        self._ended = ended
        self._open = True
        self._call = call(iter(self._requests.get, None))
        threading.Thread(target=self._listen, name="metadata etcd watches", daemon=True).start()

    def send(self, request: Any) -> None:
        """Sends a request for or against a watch."""
        self._requests.put(request if self._shaped is None else self._shaped(request))

    def close(self) -> None:
        """Ends it, and nothing more is heard."""
        self._open = False
        self._requests.put(None)
        self._call.cancel()

    def _listen(self) -> None:
        """On its thread."""
        why = "it ended the stream"
        try:
            for response in self._call:
                self._reactor.callFromThread(self._arrived, response)
        except grpc.RpcError:
            why = str(_failure(self._call))
        self._reactor.callFromThread(self._gone, why)

    def _arrived(self, response: Any) -> None:
        if self._open:
            self._heard(response)

    def _gone(self, why: str) -> None:
        if self._open:
            self.close()
            self._ended(self, why)


class Client:
    """Channels to the servers of one etcd, of which one is used; `tls`: what encrypts them."""

    def __init__(self, reactor: Reactor, hosts: Sequence[str], tls: Pems | None) -> None:
        self.hosts = list(hosts)
        self.at = 0  # the server that is used
        self.token = ""  # that etcd gave for our password
        self._reactor = reactor
        self._credentials = None
        if tls is not None:
            self._credentials = grpc.ssl_channel_credentials(tls.trust, tls.key, tls.certificate)
        self._channels: dict[int, grpc.Channel] = {}
        self._calls: dict[tuple[int, str], Any] = {}

    @property
    def server(self) -> str:
        """The server that is used."""
        return self.hosts[self.at]

    def move(self, lost: int) -> bool:
        """Uses another server than that one; True if there is another one, and it was used until now."""
        if self.at != lost or len(self.hosts) == 1:
            return False
        self.at = (self.at + 1) % len(self.hosts)
        return True

    def call(self, name: str, request: Any, seconds: float) -> Deferred[Any]:
        """The answer to a call; `CallFailed`."""
        future = self._method(name).future(request, timeout=seconds, metadata=self._metadata())
        answer: Deferred[Any] = Deferred(lambda _: future.cancel())

        def arrived() -> None:
            if answer.called:
                return
            if future.cancelled() or future.code() is not grpc.StatusCode.OK:
                answer.errback(_failure(future))
            else:
                answer.callback(future.result())

        future.add_done_callback(lambda _: self._reactor.callFromThread(arrived))
        return answer

    def stream(
        self,
        heard: Callable[[Any], None],
        ended: Callable[[Stream, str], None],
        shaped: Callable[[Any], Any] | None = None,
    ) -> Stream:
        """Opens the stream of watches."""
        method = self._channel().stream_stream(
            f"/{PACKAGE}.Watch/Watch",
            request_serializer=CLASSES["WatchRequest"].SerializeToString,
            response_deserializer=CLASSES["WatchResponse"].FromString,
        )
        metadata = self._metadata()
        return Stream(self._reactor, lambda requests: method(requests, metadata=metadata), heard, ended, shaped)

    def close(self) -> None:
        """Ends all connections, and the calls under way."""
        for channel in self._channels.values():
            channel.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (WITH_LEADER, ("token", self.token)) if self.token else (WITH_LEADER,)

    def _channel(self) -> grpc.Channel:
        channel = self._channels.get(self.at)
        if channel is None:
            if self._credentials is None:
                channel = grpc.insecure_channel(self.server, OPTIONS)
            else:
                channel = grpc.secure_channel(self.server, self._credentials, OPTIONS)
            self._channels[self.at] = channel
        return channel

    def _method(self, name: str) -> Any:
        method = self._calls.get((self.at, name))
        if method is None:
            method = self._calls[self.at, name] = self._channel().unary_unary(
                f"/{PACKAGE}.{CALLS[name]}/{name}",
                request_serializer=CLASSES[f"{name}Request"].SerializeToString,
                response_deserializer=CLASSES[f"{name}Response"].FromString,
            )
        return method
