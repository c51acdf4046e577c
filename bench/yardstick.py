"""
The yardstick: how fast three bare bookies and a bare client are on this machine, right now.

    python bench/yardstick.py [--size 100] [--entries 200000] [--window 4000] [--batch 50]   # starts the bookies
    python bench/yardstick.py --ports 4711,4712,4713 …                                       # against running ones

Appends with E=3 WQ=3 AQ=2 and CRC32C, prints one JSON line.  `--window 1 --batch 1` measures one outstanding append.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

from crc32c import crc32c

HERE = pathlib.Path(__file__).parent
FRAME = struct.Struct(">ii20s")
HEAD = struct.Struct(">qqqq")
DIGEST = struct.Struct(">I")
ACK = struct.Struct(">iiiqq")
ADD_V2 = (2 << 24) | (1 << 16)


class BareCluster:
    """Three bare bookies; `with BareCluster() as bare: bare.run(size=100, …)`."""

    def __init__(self, directory=None):
        self.folder = tempfile.TemporaryDirectory(dir=directory, prefix="quire-yardstick-")
        self.bookies = []

    def __enter__(self):
        for number in range(3):
            command = [sys.executable, str(HERE / "bare_bookie.py"), f"{self.folder.name}/journal-{number}"]
            self.bookies.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.ports = [int(bookie.stdout.readline()) for bookie in self.bookies]
        return self

    def __exit__(self, *_):
        for bookie in self.bookies:
            bookie.kill()
            bookie.wait()
            bookie.stdin.close()
            bookie.stdout.close()
        self.folder.cleanup()

    @property
    def pids(self):
        return [bookie.pid for bookie in self.bookies]

    def run(self, **options):
        """One run in a process of its own; its JSON as a dict."""
        words = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, str(HERE / "yardstick.py"), f"--ports={','.join(map(str, self.ports))}", *words]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=600).stdout)


def measure(options, ports):
    """One run on the reactor of this process; returns the figures."""
    from twisted.internet import epollreactor

    epollreactor.install()
    from twisted.internet import defer, endpoints, protocol, reactor

    class Link(protocol.Protocol):
        rest = b""

        def connectionMade(self):
            self.transport.setTcpNoDelay(True)

        def dataReceived(self, data):
            data = self.rest + data if self.rest else data
            whole = len(data) // ACK.size * ACK.size
            self.rest = data[whole:]
            writer.acknowledged([ack[4] for ack in ACK.iter_unpack(data[:whole])])

    async def story():
        for port in ports:
            writer.links.append(
                await endpoints.connectProtocol(endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port), Link())
            )
        cpu, start = os.times(), time.perf_counter()
        writer.pump()
        seconds = await writer.done - start
        spent = os.times()
        return seconds, spent.user + spent.system - cpu.user - cpu.system

    writer = Writer(options, defer.Deferred())
    found = []
    running = defer.ensureDeferred(story()).addCallback(found.append)
    running.addErrback(lambda failure: failure.printTraceback())
    running.addBoth(lambda _: reactor.stop())
    reactor.run()
    (seconds, cpu_seconds), waits = found[0], sorted(writer.latencies)
    figures = {
        f"{name}_ms": round(waits[min(len(waits) - 1, int(len(waits) * share))] * 1e3, 3)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    }
    return {
        "entries_per_second": round(options.entries / seconds),
        "megabytes_per_second": round(options.entries * options.size / seconds / 1e6, 1),
        **figures,
        "client_cpu_us_per_entry": round(cpu_seconds / options.entries * 1e6, 2),
        **{name: getattr(options, name) for name in ("size", "entries", "window", "batch")},
    }


class Writer:
    """Keeps `window` entries outstanding, counts acknowledgements, notes how long each batch took."""

    def __init__(self, options, done):
        self.options, self.done = options, done
        self.links = []
        self.next, self.confirmed = 0, -1
        self.acks = bytearray(options.entries + options.batch)
        self.sent_at, self.latencies = {}, []

    def acknowledged(self, entries):
        if self.done.called:
            return
        acks, confirmed = self.acks, self.confirmed
        for entry in entries:
            acks[entry] += 1
        while confirmed + 1 < self.next and acks[confirmed + 1] >= 2:
            confirmed += 1
        if confirmed != self.confirmed:
            self.confirmed = confirmed
            now = time.perf_counter()
            for entry in [entry for entry in self.sent_at if entry <= confirmed]:
                self.latencies.append(now - self.sent_at.pop(entry))
        if self.confirmed + 1 >= self.options.entries:
            self.done.callback(time.perf_counter())
        else:
            self.pump()

    def pump(self):
        size, batch = self.options.size, self.options.batch
        payload = b"x" * size
        while self.next < self.options.entries and self.next - self.confirmed - 1 + batch <= self.options.window:
            parts = []
            for entry in range(self.next, self.next + batch):
                head = HEAD.pack(1, entry, self.confirmed, (entry + 1) * size)
                parts += (
                    FRAME.pack(24 + 36 + size, ADD_V2, b"k" * 20),
                    head,
                    DIGEST.pack(crc32c(payload, crc32c(head))),
                    payload,
                )
            self.next += batch
            self.sent_at[self.next - 1] = time.perf_counter()
            data = b"".join(parts)
            for link in self.links:
                link.transport.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    for name, default in (("size", 100), ("entries", 200_000), ("window", 4000), ("batch", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ports", help="of three bare bookies that run (default: starts them)")
    parser.add_argument("--dir", help="where the journals are (default: a temporary folder)")
    options = parser.parse_args()
    options.entries -= options.entries % options.batch
    if options.ports:
        print(json.dumps(measure(options, [int(port) for port in options.ports.split(",")])))
    else:
        with BareCluster(options.dir) as bare:
            print(
                json.dumps(
                    bare.run(**{name: getattr(options, name) for name in ("size", "entries", "window", "batch")})
                )
            )


if __name__ == "__main__":
    main()
