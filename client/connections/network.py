"""
What the client needs of a reactor and of a connection's transport, as types: besides time and calls from other
threads, TCP.

Twisted's reactors and `twisted.internet.testing.MemoryReactorClock` fit, and so does the simulator's; nothing below
`background` names the global reactor.
"""

from typing import Any, Protocol

from twisted.internet.protocol import ClientFactory

from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0


class TcpReactor(Reactor, Protocol):
    """A reactor that opens TCP connections."""

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float = ...) -> Any: ...


class Transport(Protocol):
    """A TCP connection's sending side."""

    def write(self, data: bytes, /) -> Any: ...

    def abortConnection(self) -> Any: ...

    def setTcpNoDelay(self, enabled: bool, /) -> Any: ...

    def setTcpKeepAlive(self, enabled: bool, /) -> Any: ...

    def registerProducer(self, producer: Any, streaming: bool, /) -> Any: ...
