"""
A reactor as the client uses it, as a type: besides time and calls from other threads, TCP.

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
