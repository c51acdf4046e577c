"""A proxy between clients and one bookie that keeps every byte, and may change what passes."""

from collections.abc import Callable

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0

Change = Callable[[bytes], bytes]


@implementer(IHalfCloseableProtocol)
class Half(Protocol):
    """One side of one connection through the proxy; a side that only says no more is passed on as such."""

    def __init__(self, proxy: "Proxy", name: str, other: "Half | None" = None) -> None:
        self.proxy = proxy
        self.name = name
        self.other = other
        self.early = b""
        self.seen = b""
        self.is_over = False  # it says no more

    def connectionMade(self) -> None:
        if self.other is None:  # the client's side: the bookie's is made now
            self.other = Half(self.proxy, "bookie", self)
            factory = Factory()
            factory.noisy = False
            factory.buildProtocol = lambda _address: self.other  # type: ignore[method-assign,assignment,return-value]
            factory.startedConnecting = lambda _connector: None  # type: ignore[attr-defined]
            factory.clientConnectionLost = lambda *_: None  # type: ignore[attr-defined]
            factory.clientConnectionFailed = lambda *_: self.transport.abortConnection()  # type: ignore[attr-defined,union-attr]
            reactor.connectTCP("127.0.0.1", self.proxy.target, factory)  # type: ignore[attr-defined]
        else:
            self.transport.write(self.early)  # type: ignore[union-attr,call-arg]

    def dataReceived(self, data: bytes) -> None:
        self.seen += data
        self.proxy.seen[self.name] += data
        changed = self.proxy.change[self.name](data)
        other = self.other
        assert other is not None
        if changed is not data:
            self.proxy.changed += 1
        if other.transport is None:
            other.early += changed
        else:
            other.transport.write(changed)  # type: ignore[call-arg]

    def readConnectionLost(self) -> None:
        other = self.other
        if other is None or other.transport is None or other.is_over:
            self.transport.loseConnection()  # type: ignore[union-attr,call-arg]
            return
        self.is_over = True
        other.transport.loseWriteConnection()  # type: ignore[attr-defined]

    def writeConnectionLost(self) -> None:
        """Does nothing: the side may say more."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.loseConnection()


class Proxy(Factory):
    """
    `seen`: all that came from each side; `connections`: the clients' sides, each with what came of it; `change`: what
    passes of each piece.  Listens on `port`.
    """

    noisy = False

    def __init__(self, target: int) -> None:
        self.target = target
        self.seen = {"client": b"", "bookie": b""}
        self.connections: list[Half] = []
        self.change: dict[str, Change] = {"client": same, "bookie": same}
        self.changed = 0

    def buildProtocol(self, addr: object) -> Half:
        made = Half(self, "client")
        self.connections.append(made)
        return made

    async def start(self) -> int:
        self._listening = reactor.listenTCP(0, self, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.port = int(self._listening.getHost().port)
        return self.port

    async def stop(self) -> None:
        await self._listening.stopListening()

    @property
    def everything(self) -> bytes:
        return self.seen["client"] + self.seen["bookie"]


def same(data: bytes) -> bytes:
    return data
