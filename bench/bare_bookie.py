"""
The bare bookie: V2 adds, group commit with fdatasync, acknowledgements, and nothing else.

A ceiling for CPython on this machine, not a design: no index, no entry log, no fencing, no checks, no reads.
Usage: bare_bookie.py JOURNAL; prints its port once it listens, and ends when its standard input does.
"""

import os
import struct
import sys
import threading

from twisted.internet import epollreactor

epollreactor.install()
from twisted.internet import protocol, reactor, stdio  # noqa: E402

ADD = struct.Struct(">ii20sqq")  # length, packet header, master key, ledger, entry
ACK = struct.Struct(">iiiqq")  # length, packet header, return code, ledger, entry
LENGTH = struct.Struct(">i")
SEGMENT_BYTES = 1 << 28


class Journal:
    """Gathers what is queued, writes and syncs it once, then acknowledges it."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        zeros = bytes(1 << 22)
        for offset in range(0, SEGMENT_BYTES, len(zeros)):
            os.pwrite(self.fd, zeros, offset)
        os.fsync(self.fd)
        self.position = 0
        self.queue, self.acks = [], []
        self.ready = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def add(self, bodies, connection, acks):
        with self.ready:
            self.queue += bodies
            self.acks.append((connection, acks))
            self.ready.notify()

    def run(self):
        while True:
            with self.ready:
                while not self.queue:
                    self.ready.wait()
                queue, self.queue = self.queue, []
                acks, self.acks = self.acks, []
            data = b"".join(queue)
            if self.position + len(data) > SEGMENT_BYTES:
                self.position = 0
            os.pwrite(self.fd, data, self.position)
            self.position += len(data)
            os.fdatasync(self.fd)
            reactor.callFromThread(acknowledge, acks)


def acknowledge(acks):
    for connection, data in acks:
        connection.transport.write(data)


class Connection(protocol.Protocol):
    rest = b""

    def connectionMade(self):
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data):
        if self.rest:
            data = self.rest + data
        size, at = len(data), 0
        bodies, acks = [], []
        while size - at >= ADD.size:
            length, header, _key, ledger, entry = ADD.unpack_from(data, at)
            end = at + 4 + length
            if end > size:
                break
            body = data[at + 28 : end]
            cache.setdefault(ledger, {})[entry] = body
            bodies.append(LENGTH.pack(len(body)))
            bodies.append(body)
            acks.append(ACK.pack(24, header, 0, ledger, entry))
            at = end
        self.rest = data[at:]
        if bodies:
            if len(cache.get(ledger, ())) > 200_000:
                cache.clear()
            journal.add(bodies, self, b"".join(acks))


class Leash(protocol.Protocol):
    """Ends the process when its parent is gone."""

    def connectionLost(self, reason):
        if reactor.running:
            reactor.stop()


cache: dict[int, dict[int, bytes]] = {}
journal = Journal(sys.argv[1])
port = reactor.listenTCP(0, protocol.Factory.forProtocol(Connection), interface="127.0.0.1")
stdio.StandardIO(Leash())
print(port.getHost().port, flush=True)
reactor.run()
