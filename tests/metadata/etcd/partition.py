"""
Proxies before the peers' ports of etcd's members, of which one can be cut off from the others, both ways.

Knows: a member says its id in the first request of each connection to another (`X-Server-From`).
Does not know: what members say to each other; clients reach each of them all the time.
"""

import re

from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol

# SPDX-License-Identifier: Apache-2.0

SAID = re.compile(rb"X-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)


class Peers:
    """Everything on the reactor's thread.  `ports`: those at which members listen, `ids`: what they are called."""

    def __init__(self, reactor, ports) -> None:
        self.reactor = reactor
        self.proxies = [PeerProxy(self, number, port) for number, port in enumerate(ports)]
        self.ids = []
        self.cut_off = None

    async def start(self):
        """Returns the ports of the proxies."""
        for each in self.proxies:
            each.listener = await TCP4ServerEndpoint(self.reactor, 0, interface="127.0.0.1").listen(each)
        return [each.listener.getHost().port for each in self.proxies]

    async def stop(self) -> None:
        for each in self.proxies:
            await each.listener.stopListening()
        self.cut(None)
        self.drop(lambda _: True)

    def cut(self, number) -> None:
        """Lets nothing through between that member and the others; None: lets all through."""
        self.cut_off = number
        self.drop(lambda near: near.is_cut())

    def drop(self, wanted) -> None:
        for each in self.proxies:
            for near in [near for near in each.connections if wanted(near)]:
                near.transport.abortConnection()


class PeerProxy(Factory):
    """What others connect to in place of a member."""

    def __init__(self, peers, number, target) -> None:
        self.peers, self.number, self.target = peers, number, target
        self.connections = set()

    def buildProtocol(self, _address):
        return Near(self)


class Near(Protocol):
    """The side of the member that connects."""

    def __init__(self, proxy) -> None:
        self.proxy = proxy
        self.begun = b""
        self.source = None
        self.far = None

    def is_cut(self) -> bool:
        """True if one of its ends is cut off; a connection whose source has not said its name yet is not."""
        peers = self.proxy.peers
        cut_off = peers.cut_off
        return cut_off is not None and (self.proxy.number == cut_off or self.source == peers.ids[cut_off])

    def connectionMade(self) -> None:
        self.proxy.connections.add(self)
        self.transport.pauseProducing()
        endpoint = TCP4ClientEndpoint(self.proxy.peers.reactor, "127.0.0.1", self.proxy.target, timeout=5)
        connectProtocol(endpoint, Far(self)).addErrback(lambda _: self.transport.abortConnection())

    def dataReceived(self, data: bytes) -> None:
        if self.source is None:
            self.begun += data
            said = SAID.search(self.begun)
            if said is None:
                return
            self.source, data = int(said[1], 16), self.begun
        if self.is_cut():
            self.transport.abortConnection()
        else:
            self.far.transport.write(data)

    def connectionLost(self, _reason) -> None:
        self.proxy.connections.discard(self)
        if self.far is not None:
            self.far.transport.abortConnection()


class Far(Protocol):
    """The side of the member that is connected to."""

    def __init__(self, near) -> None:
        self.near = near

    def connectionMade(self) -> None:
        self.near.far = self
        if self.near in self.near.proxy.connections:
            self.near.transport.resumeProducing()
        else:
            self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self.near.transport.write(data)

    def connectionLost(self, _reason) -> None:
        self.near.transport.abortConnection()
