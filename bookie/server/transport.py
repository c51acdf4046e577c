"""
Twisted's reactor and transports as a bookie uses them, whose interfaces carry no types, and how its sockets are set.

Knows: their shapes.  Does not know: what is sent.
"""

from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_NODELAY,
    TCP_USER_TIMEOUT,
    inet_ntop,
    inet_pton,
    socket,
)
from typing import Any, Protocol

from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 60, 10, 6
MAPPED = bytes(10) + b"\xff\xff"  # an address of IPv4 as one of IPv6
NETWORK_BYTES = 8  # of an address of IPv6
USER_TIMEOUT_MS = 30_000  # the kernel gives up on bytes that were not acknowledged for so long


class ListeningReactor(Reactor, Protocol):
    """A reactor that serves a socket that listens already."""

    def adoptStreamPort(self, descriptor: int, family: int, factory: Any, /) -> Any: ...


class Wire(Protocol):
    """A transport, plain or encrypted, as far as a connection uses it."""

    def write(self, data: bytes) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...


class Transport(Wire, Protocol):
    """Twisted's TCP transport."""

    bufferSize: int

    def getPeer(self) -> object: ...

    def loseWriteConnection(self) -> None: ...


def peer_name(address: object) -> str:
    """Returns host:port of the other side, for log lines."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    return f"{host}:{port}" if host is not None else str(address)


def source_of(address: object) -> str:
    """Returns what a machine has one of: its address of IPv4, its /64 of IPv6."""
    host = str(getattr(address, "host", address))
    if ":" not in host:
        return host
    packed = inet_pton(AF_INET6, host.partition("%")[0])
    if packed.startswith(MAPPED):
        return inet_ntop(AF_INET, packed[len(MAPPED) :])
    return f"{inet_ntop(AF_INET6, packed[:NETWORK_BYTES].ljust(len(packed), bytes(1)))}/64"


def unsent_bytes(transport: Any) -> int:
    """Returns how many bytes a transport of Twisted keeps because its socket does not take them."""
    return len(transport.dataBuffer) + int(getattr(transport, "_tempDataLen", 0))


def socket_options(handle: socket) -> None:
    """Lets small answers leave at once; the kernel notices vanished peers, as nothing above TCP does (wire.md 10.1)."""
    handle.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
    for option, value in (
        (TCP_NODELAY, 1),
        (TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (TCP_KEEPCNT, KEEPALIVE_COUNT),
        (TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
    ):
        handle.setsockopt(IPPROTO_TCP, option, value)
