"""
A byte proxy before each bookie, and a reactor whose connections go through them: connections are cut in the middle of a
frame.

Knows: nothing of the protocol; it hands bytes on and counts them.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol


class Proxy:
    """Before one port of this machine; `port` is its own.  Everything on the reactor's thread."""

    def __init__(self, reactor: Any, target: int) -> None:
        self.reactor = reactor
        self.target = target
        self.left: int | None = None  # bytes until every connection is cut
        self.cuts = 0
        self.near: list[Near] = []
        factory = Factory.forProtocol(Near)
        factory.proxy = self
        self.listener = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.port = self.listener.getHost().port

    def passed(self, size: int) -> bool:
        """Whether so many bytes may pass; else everything is cut."""
        if self.left is None:
            return True
        self.left -= size
        if self.left > 0:
            return True
        self.left = None
        self.cuts += 1
        for near in list(self.near):
            near.transport.abortConnection()
        return False

    async def stop(self) -> None:
        for near in list(self.near):
            near.transport.abortConnection()
        await self.listener.stopListening()


class Near(Protocol):
    """The client's side."""

    def connectionMade(self) -> None:
        self.proxy = self.factory.proxy
        self.proxy.near.append(self)
        self.waiting = b""
        self.far: Far | None = None
        self.gone = False
        endpoint = TCP4ClientEndpoint(self.proxy.reactor, "127.0.0.1", self.proxy.target, timeout=5)
        connectProtocol(endpoint, Far(self)).addErrback(lambda _failure: self.transport.abortConnection())

    def dataReceived(self, data: bytes) -> None:
        if not self.proxy.passed(len(data)):
            return
        if self.far is None:
            self.waiting += data
        else:
            self.far.transport.write(data)

    def connectionLost(self, reason: object = None) -> None:
        self.gone = True
        self.proxy.near.remove(self)
        if self.far is not None:
            self.far.transport.abortConnection()


class Far(Protocol):
    """The bookie's side."""

    def __init__(self, near: Near) -> None:
        self.near = near

    def connectionMade(self) -> None:
        if self.near.gone:
            self.transport.abortConnection()
            return
        self.near.far = self
        self.transport.write(self.near.waiting)

    def dataReceived(self, data: bytes) -> None:
        if self.near.proxy.passed(len(data)):
            self.near.transport.write(data)

    def connectionLost(self, reason: object = None) -> None:
        self.near.transport.abortConnection()


class ThroughProxies:
    """A reactor that connects to a bookie's proxy where a client asks for the bookie."""

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.proxies: dict[int, Proxy] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reactor, name)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30) -> Any:
        if port not in self.proxies:
            self.proxies[port] = Proxy(self.reactor, port)
        return self.reactor.connectTCP(host, self.proxies[port].port, factory, timeout)

    def cut(self, port: int, after: int) -> Callable[[], int]:
        """Cuts every connection to that port after so many more bytes; what comes back counts the cuts."""
        proxy = self.proxies.get(port)
        if proxy is None:
            return lambda: 0
        proxy.left = after
        return lambda: proxy.cuts

    async def stop(self) -> None:
        for proxy in self.proxies.values():
            await proxy.stop()
