"""
A TCP proxy before ZooKeeper that loses what a test wants lost, and alters what it wants altered.

Knows: ZooKeeper's frames just enough to recognize answers, pings and events (u32 length, i32 xid; pings are -2, events
-1).
"""

from collections.abc import Callable

from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol

# SPDX-License-Identifier: Apache-2.0


class Proxy:
    """Listens on a free port; everything on the reactor's thread."""

    def __init__(self, reactor, port: int) -> None:
        self.reactor = reactor
        self.target = port
        self.port = 0
        self.refusing = False
        self.lost = 0  # answers that were thrown away, with their connection
        self.passed = 0  # bytes of a lost answer that the client still gets
        self.answers = 0  # what was asked for and answered, pings and events left out
        self.connections = []
        self.lose: Callable[[], bool] = lambda: False  # asked for each answer
        self.alter: Callable[[bytes], bytes] = lambda frame: frame  # of an answer, with its length

    async def start(self) -> None:
        factory = Factory.forProtocol(Near)
        factory.proxy = self
        self.listener = await TCP4ServerEndpoint(self.reactor, 0, interface="127.0.0.1").listen(factory)
        self.port = self.listener.getHost().port

    async def stop(self) -> None:
        self.drop()
        await self.listener.stopListening()

    def drop(self) -> None:
        """Cuts every connection."""
        for connection in list(self.connections):
            connection.transport.abortConnection()

    def lose_answer(self, number: int = 1) -> None:
        """
        The server does what it was asked, and the client never hears of it: the answer of that number from now on.
        """
        left = [number]

        def lose() -> bool:
            left[0] -= 1
            return left[0] == 0

        self.lose = lose


class Near(Protocol):
    """The client's side."""

    def connectionMade(self) -> None:
        self.proxy = self.factory.proxy
        self.waiting = b""
        self.far = None
        self.greeted = False
        self.answers = b""
        if self.proxy.refusing:
            self.transport.abortConnection()
            return
        self.proxy.connections.append(self)
        endpoint = TCP4ClientEndpoint(self.proxy.reactor, "127.0.0.1", self.proxy.target, timeout=5)
        connectProtocol(endpoint, Far(self)).addErrback(lambda _: self.transport.abortConnection())

    def dataReceived(self, data: bytes) -> None:
        if self.far is None:
            self.waiting += data
        else:
            self.far.transport.write(data)

    def joined(self, far) -> None:
        self.far = far
        far.transport.write(self.waiting)

    def answered(self, data: bytes) -> None:
        """Hands whole frames on, except the one that is to be lost."""
        self.answers += data
        while len(self.answers) >= 4:
            size = 4 + int.from_bytes(self.answers[:4], "big")
            if len(self.answers) < size:
                return
            frame, self.answers = self.answers[:size], self.answers[size:]
            first, self.greeted = not self.greeted, True
            if not first and int.from_bytes(frame[4:8], "big", signed=True) > 0:
                self.proxy.answers += 1
                if self.proxy.lose():
                    self.proxy.lost += 1
                    self.transport.write(frame[: self.proxy.passed])
                    (self.transport.loseConnection if self.proxy.passed else self.transport.abortConnection)()
                    return
                frame = self.proxy.alter(frame)
            self.transport.write(frame)

    def connectionLost(self, reason) -> None:
        if self in self.proxy.connections:
            self.proxy.connections.remove(self)
        if self.far is not None:
            self.far.transport.abortConnection()


class Far(Protocol):
    """The server's side."""

    def __init__(self, near: Near) -> None:
        self.near = near

    def connectionMade(self) -> None:
        self.near.joined(self)

    def dataReceived(self, data: bytes) -> None:
        self.near.answered(data)

    def connectionLost(self, reason) -> None:
        self.near.transport.loseConnection()  # behind what it has said, as that a session is over
