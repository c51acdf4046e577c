"""
What flushes and catch-up reads do to the latency of appends: one bookie that only appends, one that flushes all the time while another process
reads an old ledger of it from the disk; in turn, in one run.

    python -m bench.interference                       # 9 pairs of 4 s, 10,000 entries/s of 1 KiB
    python -m bench.interference --rate 50000 --size 100 --pairs 3 --seconds 2

Open loop: every millisecond its share of entries is sent, whether the last ones were answered or not, and an append's latency counts from
that tick to its answer.  Prints one JSON line: both sides' p50 and p99 of each pair, the median of the ratios, and their interval.  The goal holds when the
lower bound is within it (p50 1.3, p99 1.5).
"""

import argparse
import contextlib
import json
import pathlib
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from bench.ratios import Comparison
from bench.restart import ACK_BYTES, DIGEST, HOST, take
from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.messages import BatchRead
from quire.tools.cluster import LocalBookie, LocalCluster

# SPDX-License-Identifier: Apache-2.0

TICK = 0.001
OLD, OLD_ENTRIES, BATCH = 1, 200_000, 1000
QUIET = {"flushInterval": "3600000", "dbStorage_writeCacheMaxSizeMb": "4096"}
BUSY = {"flushInterval": "250", "dbStorage_readAheadCacheMaxSizeMb": "1"}
GOALS = {"p50": 1.3, "p99": 1.5}


def frames(ledger: int, first: int, count: int, size: int) -> bytes:
    return AddBatch(DIGEST, ledger, first, first - 1, 0, [b"x" * size] * count).frames()


def fill(port: int) -> None:
    """The old ledger."""
    with socket.create_connection((HOST, port)) as link:
        for first in range(0, OLD_ENTRIES, BATCH):
            link.sendall(frames(OLD, first, BATCH, 1024))
            take(link, BATCH)


def read_on(port: int) -> None:
    """Batch reads of the old ledger, from its start again and again; for ever."""
    with socket.create_connection((HOST, port)) as link, link.makefile("rb") as replies:
        while True:
            for first in range(0, OLD_ENTRIES, BATCH):
                link.sendall(v2.pack_batch_read(BatchRead(OLD, first, 1, BATCH, 1 << 20)))
                replies.read(int.from_bytes(replies.read(4), "big"))


def appended(port: int, ledger: int, seconds: float, rate: int, size: int) -> list[float]:
    """Latencies of all entries, in seconds, ascending."""
    share = max(1, int(rate * TICK))
    latencies: list[float] = []
    with socket.create_connection((HOST, port)) as link, selectors.DefaultSelector() as selector:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        selector.register(link, selectors.EVENT_READ)
        waiting = bytearray()
        ticks: list[float] = []  # when each share was to be sent
        answered = received = 0
        began = time.perf_counter()
        wanted = int(seconds / TICK)
        while answered < wanted * share:
            now = time.perf_counter() - began
            while len(ticks) < wanted and now >= len(ticks) * TICK:
                waiting += frames(ledger, len(ticks) * share, share, size)
                ticks.append(len(ticks) * TICK)
            if waiting:
                with contextlib.suppress(BlockingIOError):
                    del waiting[: link.send(waiting)]
            pause = 0.0 if waiting else max(0.0, len(ticks) * TICK - (time.perf_counter() - began)) if len(ticks) < wanted else 1.0
            if selector.select(pause):
                more = link.recv(1 << 20)
                if not more:
                    raise ConnectionResetError("the bookie closed the connection")
                received += len(more)
                now = time.perf_counter() - began
                while (answered + 1) * ACK_BYTES <= received:
                    latencies.append(now - ticks[answered // share])
                    answered += 1
    return sorted(latencies)


@contextlib.contextmanager
def bookie(folder: str, options: Mapping[str, str]) -> Iterator[LocalBookie]:
    with LocalCluster(pathlib.Path(folder), bookies=1, options=options) as cluster:
        yield cluster.bookies[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--directory")
    parser.add_argument("--read-on", type=int, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.read_on:
        read_on(words.read_on)
    found: dict[str, dict[str, list[float]]] = {"quiet": {"p50": [], "p99": []}, "busy": {"p50": [], "p99": []}}
    temporary = tempfile.TemporaryDirectory(dir=words.directory, prefix="quire-interference-", ignore_cleanup_errors=True)
    with temporary as folder, bookie(f"{folder}/quiet", QUIET) as quiet, bookie(f"{folder}/busy", BUSY) as busy:
        for port in (quiet.port, busy.port):
            fill(port)
            appended(port, 2, 1.0, words.rate, words.size)  # warm
        for number in range(words.pairs):
            for name, port in (("quiet", quiet.port), ("busy", busy.port))[:: 1 if number % 2 else -1]:
                reader = subprocess.Popen([sys.executable, "-m", "bench.interference", "--read-on", str(port)]) if name == "busy" else None
                try:
                    times = appended(port, 10 + number, words.seconds, words.rate, words.size)
                finally:
                    if reader is not None:
                        reader.kill()
                        reader.wait()
                for part, share in (("p50", 0.5), ("p99", 0.99)):
                    found[name][part].append(round(times[int(len(times) * share)] * 1000, 3))
    lines = []
    for part, goal in GOALS.items():
        comparison = Comparison(part, found["busy"][part], found["quiet"][part], goal, at_most=True, unit="ms")
        lines.append(comparison.as_json() | {"passed": comparison.interval[0] <= goal})
    print(json.dumps({"rate": words.rate, "size": words.size, "seconds": words.seconds, "lines": lines}))


if __name__ == "__main__":
    main()
