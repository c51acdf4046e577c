"""
The network between simulated processes: TCP connections as Twisted's code sees them.

Each connection keeps its order; two connections know nothing of each other, so what travels on them is reordered
freely.  Bytes arrive in pieces cut anywhere.  A blocked direction (a partition, perhaps one way) holds bytes back until
it is unblocked, as TCP does by sending again; a cut connection loses what is under way, after a prefix of it.
"""

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.error import ConnectionLost, ConnectionRefusedError, TimeoutError, UserError
from twisted.python.failure import Failure

from tests.simulation.timeline import Process, Timeline

LOST = Failure(ConnectionLost())
RESENT_S = (0.2, 1.0)  # after so long TCP sends again what was lost


class Address:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


class End:
    """One side of a connection: the transport of its protocol, and what travels towards it."""

    dataBuffer = b""  # what is written travels at once

    def __init__(self, network: "Network", process: Process, peer_host: str) -> None:
        self.network = network
        self.process = process
        self.peer_host = peer_host
        self.peer: End = self
        self.protocol: Any = None
        self.open = True
        self.stands = False  # the protocol was told
        self.reading = True
        self.bufferSize = 1 << 18
        self._coming: deque[bytes | None] = deque()  # towards this side; None: the other side closed
        self._broken = False
        self._arrival = 0.0
        self._due = False

    # the transport

    def write(self, data: bytes) -> None:
        if self.open and data:
            self.network.writes[self.process.host, int(self.network.timeline.now)] += 1
            self.peer.come(data)

    def loseConnection(self) -> None:
        if self.open:
            self.open = False
            self.peer.come(None)
            self.process.callLater(0, self.protocol.connectionLost, LOST)

    abortConnection = loseConnection

    def getPeer(self) -> Address:
        return Address(self.peer_host, 0)

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    def registerProducer(self, producer: Any, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True
        self.deliver_soon()

    # the wire

    def come(self, data: bytes | None) -> None:
        """The other side sent this; behind a break nothing comes any more."""
        if self._broken:
            return
        self._broken = data is None
        self._coming.append(data)
        self.deliver_soon()

    def deliver_soon(self) -> None:
        if self._due or not self._coming or not self.reading or not self.stands:
            return
        network = self.network
        if (self.peer_host, self.process.host) in network.blocked:
            return
        self._due = True
        now = network.timeline.now
        self._arrival = max(self._arrival, now + network.delay(self.peer_host, self.process.host))
        network.timeline.at(self._arrival - now, self._deliver, self.process)

    def _deliver(self) -> None:
        self._due = False
        if not self.open or not self.reading or (self.peer_host, self.process.host) in self.network.blocked:
            return
        coming, self._coming = self._coming, deque()
        data = b"".join([piece for piece in coming if piece is not None])
        ended = None in coming
        rng = self.network.random
        if len(data) > 1 and rng.random() < self.network.fragmenting:
            cut = rng.randrange(1, len(data))
            self._coming.append(data[cut:])
            if ended:
                self._coming.append(None)
            data, ended = data[:cut], False
        if data:
            self.protocol.dataReceived(data)
        if ended:
            self.lost()
        self.deliver_soon()

    def lost(self) -> None:
        if self.open:
            self.open = False
            self.network.ends.pop(self, None)
            self.protocol.connectionLost(LOST)

    def cut(self) -> None:
        """The connection breaks: a prefix of what was under way may still arrive."""
        if not self.open or self._broken:
            return
        self._broken = True
        data = b"".join([piece for piece in self._coming if piece is not None])
        self._coming.clear()
        if data and self.network.random.random() < 0.5:
            self._coming.append(data[: self.network.random.randrange(len(data) + 1)])
        self._coming.append(None)
        self.deliver_soon()


class Connector:
    """A connection that is being made, and its waiting end: called once, when it ends."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory
        self.waiting = True

    def take(self) -> Any:
        """It is connected: its protocol."""
        self.waiting = False
        return self._factory.buildProtocol(None)

    def fail(self, error: Exception) -> None:
        if self.waiting:
            self.waiting = False
            self._factory.clientConnectionFailed(None, Failure(error))

    def disconnect(self) -> None:
        """It is not wanted any more."""
        self.fail(UserError())


class Network:
    """All hosts.  `listeners`: (host, port) -> (process, make a server protocol)."""

    def __init__(self, timeline: Timeline, random: Random, latency: float, jitter: float) -> None:
        self.timeline = timeline
        self.random = random
        self.latency = latency
        self.jitter = jitter
        self.fragmenting = 0.0
        self.losses = 0.0  # how often TCP has to send again
        self.slow: dict[str, float] = {}  # seconds more from and to a host
        self.blocked: set[tuple[str, str]] = set()  # (from, to)
        self.listeners: dict[tuple[str, int], tuple[Process, Callable[[], Any]]] = {}
        self.ends: dict[End, None] = {}
        self.writes: Counter[tuple[str, int]] = Counter()  # by host and second; a client's are its requests

    def delay(self, source: str, target: str) -> float:
        slow = self.slow
        more = slow.get(source, 0.0) + slow.get(target, 0.0) if slow else 0.0
        if self.losses and self.random.random() < self.losses:
            more += self.random.uniform(*RESENT_S)
        return self.latency + self.random.random() * self.jitter + more

    def connect(self, process: Process, host: str, port: int, factory: Any, timeout: float) -> Connector:
        there = self.delay(process.host, host)
        connector = Connector(factory)

        def arrive() -> None:
            found = self.listeners.get((host, port))
            back = self.delay(host, process.host)
            if (process.host, host) in self.blocked or (host, process.host) in self.blocked:
                process.callLater(max(0.0, timeout - there), connector.fail, TimeoutError())
            elif found is None:
                process.callLater(back, connector.fail, ConnectionRefusedError())
            else:
                self._accept(process, host, found, connector, back, timeout)

        self.timeline.at(there, arrive)
        return connector

    def _accept(
        self,
        process: Process,
        host: str,
        found: tuple[Process, Callable[[], Any]],
        connector: Connector,
        back: float,
        timeout: float,
    ) -> None:
        server_process, make = found
        near, far = End(self, process, host), End(self, server_process, process.host)
        near.peer, far.peer = far, near
        far.protocol = make()
        self.ends[near] = self.ends[far] = None

        def give_up() -> None:
            near.open = False
            self.ends.pop(near, None)
            far.come(None)
            connector.fail(TimeoutError())

        late = process.callLater(timeout, give_up)  # the other process may be paused, or end before it accepts

        def stand() -> None:
            if not late.active():
                return
            if not connector.waiting:  # it was given up: what was accepted there ends
                late.cancel()
                give_up()
                return
            late.cancel()
            near.protocol = connector.take()
            near.stands = True
            near.protocol.makeConnection(near)
            near.deliver_soon()

        def served() -> None:
            far.stands = True
            far.protocol.makeConnection(far)
            far.deliver_soon()
            self.timeline.at(back, stand, process)

        self.timeline.at(0, served, server_process)

    def between(self, host: str, other: str) -> list[End]:
        return [end for end in self.ends if end.open and end.process.host == host and end.peer_host == other]

    def cut(self, host: str, other: str) -> None:
        for end in self.between(host, other) + self.between(other, host):
            if end.protocol is not None:
                end.cut()

    def drop_process(self, process: Process) -> None:
        """It is gone: its own side hears nothing more, the others learn that their connections broke."""
        for end in [end for end in self.ends if end.process is process]:
            end.open = False
            del self.ends[end]
            if end.peer.open:
                end.peer.cut()

    def block(self, source: str, target: str) -> None:
        self.blocked.add((source, target))

    def unblock(self, pairs: list[tuple[str, str]]) -> None:
        self.blocked.difference_update(pairs)
        for end in list(self.ends):
            if end.open:
                end.deliver_soon()
